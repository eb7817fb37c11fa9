"""What a kubelet's configuration says about its node, for checking state files without that kubelet."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.core.config.kubelet import KubeletConfig
from podslice.core.config.reservation import reserved_memory_bytes
from podslice.core.machine.model import Machine
from podslice.core.managers.container import ContainerManager
from podslice.core.quirks import KUBELET_1_36
from podslice.core.state.start import NodeFacts


def node_facts(
    machine: Machine, config: KubeletConfig, containers: Mapping[str, tuple[str, str]] | None = None
) -> NodeFacts:
    """The facts a kubelet with this configuration checks its files against; see `NodeFacts`.

    Raises `StartError` where the kubelet would not start even without files.
    """
    manager = ContainerManager(machine, config, KUBELET_1_36)
    manager.start({})
    memory = None
    if manager.memory.static:
        memory = reserved_memory_bytes(config, machine, manager.reservation or {})
    return NodeFacts(
        machine=machine,
        reserved=manager.cpu.reserved,
        strict=manager.cpu.static and manager.cpu.options.strict_cpu_reservation,
        containers=containers or {},
        policies={"cpu": manager.cpu.policy, "memory": manager.memory.policy},
        memory_reserved=memory,
    )
