"""The Container Manager: brings the resource managers of one node up, in upstream's order, and holds them.

Everything that can keep a kubelet from starting with these managers happens in `start`, step by step; a `StartError`
names the step, and the attributes set until then stay readable, so that a failed start can be explained
(spec cpu-topology 2.1, 3.1, memory-device 3.1).
"""

from __future__ import annotations

from podslice.core.config.kubelet import KubeletConfig
from podslice.core.config.reservation import (
    Reservations,
)
from podslice.core.machine.devices import DeviceInventory
from podslice.core.machine.model import Machine
from podslice.core.managers.topology import TopologyManager
from podslice.core.quirks import Quirks

CPU_STATE_FILE = "cpu_manager_state"
MEMORY_STATE_FILE = "memory_manager_state"
STATE_DIRECTORY = "/var/lib/kubelet"


class ContainerManager:
    """One node's managers. `start` must succeed before anything else is asked of it."""

    reservations: Reservations
    topology: TopologyManager

    def __init__(
        self, machine: Machine, config: KubeletConfig, quirks: Quirks, devices: DeviceInventory | None = None
    ) -> None:
        self.machine = machine
        self.config = config
        self.quirks = quirks
