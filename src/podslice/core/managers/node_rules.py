"""All that decides on a node and never changes while its kubelet runs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from podslice.core.config.kubelet import KubeletConfig
from podslice.core.config.policy import PodslicePolicy
from podslice.core.config.reservation import NodeResources
from podslice.core.machine.devices import DeviceInventory
from podslice.core.machine.model import Machine
from podslice.core.managers.cpu_rules import CPURules
from podslice.core.managers.device_pool import DevicePool
from podslice.core.managers.memory_rules import MemoryRules
from podslice.core.merge.merge import Merger
from podslice.core.quirks import Quirks
from podslice.core.scheduling.predicates import NodeObject
from podslice.core.values.quantity import Quantity


class Counted(NamedTuple):
    """The resources of a node as long as its device plugins list `pools`, and the node as the predicates see it."""

    pools: dict[str, DevicePool]
    resources: NodeResources
    node: NodeObject


class NodeRules(msgspec.Struct, frozen=True, eq=False):
    """Made once, by a start; nodes of the same machine and configuration share them. Rules are equal when they are the
    same object.

    `restored`: the state files that were there at the start.
    """

    machine: Machine
    config: KubeletConfig
    policy: PodslicePolicy
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
    counted: Counted


def rules_under(old: NodeRules, started: NodeRules) -> NodeRules:
    """The rules of a node that goes on by what another start says. The CPUs that are reserved stay so, and what the
    node has learnt of its machine since it began counts on."""
    cpu = started.cpu.reserving(old.cpu.reserved)
    return replace(
        started,
        machine=old.machine,
        restored=old.restored,
        cpu=replace(cpu, core_size=max(old.cpu.core_size, cpu.core_size)),
        memory=replace(started.memory, sums_wrap=old.memory.sums_wrap or started.memory.sums_wrap),
        counted=old.counted,
    )
