"""All that decides on a node and never changes while its kubelet runs."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.core.config.kubelet import KubeletConfig
from podslice.core.machine.devices import DeviceInventory
from podslice.core.machine.model import Machine
from podslice.core.managers.cpu_rules import CPURules
from podslice.core.managers.device_pool import DevicePool
from podslice.core.managers.memory_rules import MemoryRules
from podslice.core.merge.merge import Merger
from podslice.core.quirks import Quirks
from podslice.core.scheduling.allocatable import NodeResources
from podslice.core.values.quantity import Quantity


class NodeRules(msgspec.Struct, frozen=True, eq=False):
    """Made once, by a start; nodes of the same machine and configuration share them. Rules are equal when they are the
    same object.

    `restored`: the state files that were there at the start. `resources` are the node's as long as its device plugins
    list `pools`, `amounts` what is allocatable of them as the predicates count it.
    """

    machine: Machine
    config: KubeletConfig
    quirks: Quirks
    inventory: DeviceInventory
    gates: Mapping[str, bool]
    reservation: Mapping[str, Quantity]
    restored: frozenset[str]
    cpu: CPURules
    memory: MemoryRules
    machine_nodes: tuple[int, ...]
    merger: Merger | None
    predicates: bool
    cgroup_version: int
    resources: NodeResources
    amounts: dict[str, int]
    pools: dict[str, DevicePool]
