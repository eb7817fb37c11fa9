"""Owners in the state files, and whether they lie as the machine and the configuration allow it.

A Topology Manager with policy single-numa-node admits nothing that needs two NUMA nodes, and full-pcpus-only gives
whole cores. Owners that break these rules on a machine were placed on another one, or under another configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from podslice.config.kubelet import KubeletConfig
from podslice.config.policy_options import RESTRICTED, SINGLE_NUMA_NODE
from podslice.machine.model import CPUTopology
from podslice.node.checkpoints.content import Content
from podslice.node.checkpoints.names import POLICY_STATE_FILE
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.devices.checkpoint import DeviceCheckpoint
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.node.memory.ledger import iter_blocks
from podslice.values.cpuset import Bits, bits_of, format_bits, parse_bits_or_empty

_MOST_NODES = 1 << 12
_TRUE = ("1", "t", "T", "true", "True", "TRUE")
"""Values that Go reads as true."""


class Owner(NamedTuple):
    """The holdings of a container, or of a pod as a whole (`container` empty): CPUs, and the NUMA nodes of its memory
    and devices."""

    uid: str
    container: str
    cpus: Bits
    memory: Bits = 0
    devices: Bits = 0


class PlacementRules(NamedTuple):
    """Rules of a configuration about where owners lie: the Topology Manager's policy, whether it places whole pods,
    whether owners get whole cores, and the reserved CPUs where it names them."""

    policy: str
    pod_scope: bool
    whole_cores: bool
    reserved: Bits = 0


class Misplaced(NamedTuple):
    """An owner that the rules do not allow, and why."""

    owner: Owner
    why: str


def placement_rules(config: KubeletConfig, files: Iterable[str]) -> PlacementRules:
    """Return the rules of a configuration; `files` are the names of the state files. Under a PodslicePolicy, which has
    a state file of its own, owners may grow by parts of cores."""
    whole = config.cpu_manager_policy_options.get("full-pcpus-only") in _TRUE
    return PlacementRules(
        config.topology_manager_policy,
        config.topology_manager_scope == "pod",
        whole and POLICY_STATE_FILE not in set(files),
        parse_bits_or_empty(config.reserved_system_cpus),
    )


def read_owners(contents: Mapping[str, Content]) -> tuple[Owner, ...]:
    """Return the owners of CPUs in the state files. Containers of a pod with CPUs as a whole count with their pod."""
    found: dict[tuple[str, str], Owner] = {}
    for content in contents.values():
        if isinstance(content.checkpoint, CPUCheckpoint) and not content.by_container_id:
            found |= {(one.uid, one.container): one for one in _cpu_owners(content.checkpoint)}
    whole = {uid for uid, container in found if not container}
    for content in contents.values():
        match content.checkpoint:
            case MemoryCheckpoint() as memory:
                for uid, container, block in iter_blocks(memory, pod_level=True):
                    key = uid, "" if uid in whole else container
                    if key in found:
                        own = found[key]
                        found[key] = own._replace(memory=own.memory | _mask(block.numa_affinity or ()))
            case DeviceCheckpoint() as devices:
                for entry in devices.entries or ():
                    key = entry.pod, "" if entry.pod in whole else entry.container
                    if key in found and isinstance(entry.by_node, Mapping):
                        own = found[key]
                        nodes = _mask(node for node, ids in entry.by_node.items() if ids)
                        found[key] = own._replace(devices=own.devices | nodes)
    return tuple(found.values())


def _mask(nodes: Iterable[int]) -> Bits:
    """Return NUMA nodes as a mask, without ids that no machine has: a damaged file would make a mask of any size."""
    return bits_of(node for node in nodes if 0 <= node < _MOST_NODES)


def _cpu_owners(checkpoint: CPUCheckpoint) -> Iterator[Owner]:
    whole = checkpoint.pod_entries or {}
    yield from (Owner(uid, "", cpus) for uid, cpus in whole.items() if cpus)
    for uid, named in (checkpoint.entries or {}).items():
        for name, text in (named or {}).items() if uid not in whole else ():
            if cpus := parse_bits_or_empty(text):
                yield Owner(uid, name, cpus)


def find_misplaced(owners: Iterable[Owner], topology: CPUTopology, rules: PlacementRules) -> list[Misplaced]:
    """Return the owners that lie as the rules do not allow it on this machine."""
    units = list(_by_pod(owners) if rules.pod_scope else owners)
    found = []
    for unit in units:
        why = _why_misplaced(unit, topology, rules)
        if why:
            found.append(Misplaced(unit, why))
    return found


def _by_pod(owners: Iterable[Owner]) -> Iterator[Owner]:
    """Yield one owner for each pod, with everything that its containers hold."""
    pods: dict[str, Owner] = {}
    for one in owners:
        own = pods.get(one.uid)
        pods[one.uid] = (
            one
            if own is None
            else Owner(one.uid, "", own.cpus | one.cpus, own.memory | one.memory, own.devices | one.devices)
        )
    yield from pods.values()


def _why_misplaced(owner: Owner, topology: CPUTopology, rules: PlacementRules) -> str:
    nodes = topology.numa_nodes_of(owner.cpus)
    if rules.policy in (SINGLE_NUMA_NODE, RESTRICTED):
        # A kubelet counts the reserved CPUs as well; profile podslice does not, and may place an owner on one more.
        ownable = topology.all_cpus & ~rules.reserved
        fewest = topology.fewest_numa_nodes(owner.cpus.bit_count(), ownable)
        most = 1 if rules.policy == SINGLE_NUMA_NODE else fewest
        if nodes.bit_count() > most:
            return f"its CPUs lie on NUMA {format_bits(nodes)}"
        if owner.memory and nodes & ~owner.memory:
            return f"its CPUs lie on NUMA {format_bits(nodes)}, its memory on NUMA {format_bits(owner.memory)}"
        if rules.policy == SINGLE_NUMA_NODE and owner.devices and not nodes & owner.devices:
            return f"its CPUs lie on NUMA {format_bits(nodes)}, its devices on NUMA {format_bits(owner.devices)}"
    if rules.whole_cores and not has_whole_cores(owner.cpus, topology):
        return "its CPUs are not whole cores"
    return ""


def has_whole_cores(cpus: Bits, topology: CPUTopology) -> bool:
    """Whether the CPUs are cores with all their threads."""
    return all(not core & cpus or not core & ~cpus for core in topology.cores.values())
