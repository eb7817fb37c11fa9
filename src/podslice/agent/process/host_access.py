"""The agent's access to the host it runs on."""

from __future__ import annotations

from typing import NamedTuple

from podslice.agent.hotplug import MachineSource
from podslice.host.boot import Boot
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.host.kernel.filewrites import FileWrites
from podslice.host.kernel.kernelfiles import KernelFiles


class HostAccess(NamedTuple):
    """Parts of the host that the agent may use. A part that is None is not used."""

    boot: Boot | None = None
    kernel: KernelFiles | None = None
    tree: CgroupTree | None = None
    writes: FileWrites | None = None
    machine: MachineSource | None = None
