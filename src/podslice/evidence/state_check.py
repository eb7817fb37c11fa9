"""State files against the machine and the configuration that are given for them.

A machine from a text or a Node object may have other numbers than the node whose files these are, and every answer
about free CPUs would then be about another machine. The files know better: their owners were placed by rules.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from podslice.evidence.contradiction import Contradiction, StateFacts
from podslice.evidence.memory_check import NODES_OF_STATE, find_memory_file, memory_totals
from podslice.evidence.numbering import Numbering, one_line, other_numberings, with_nodes
from podslice.evidence.owners import (
    Misplaced,
    Owner,
    PlacementRules,
    find_misplaced,
    has_whole_cores,
    placement_rules,
    read_owners,
)
from podslice.machine.model import CPUTopology, Machine, TopologyError
from podslice.node.checkpoints.names import CPU_STATE_FILE, MEMORY_STATE_FILE
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.devices.checkpoint import DeviceCheckpoint
from podslice.values.cpuset import Bits, bits_of, format_bits, parse_bits_or_empty

replace = msgspec.structs.replace
_MOST_NAMED = 3
_MOST_NODES = 64
_LISTING = "What `lscpu -e` prints on the node (--from) says how its CPUs are numbered"


def check_state(facts: StateFacts) -> tuple[Contradiction, ...]:
    """Return where the files contradict the machine or the configuration, what says most first. Amounts of memory are
    `memory_check.check_memory`."""
    try:
        topology = CPUTopology(facts.machine)
    except TopologyError:
        return ()
    owners = read_owners(facts.contents)
    other_cpus = list(_other_cpus(facts, topology))
    other_nodes = list(_other_nodes(facts, owners))
    # On a machine with other CPUs or nodes no owner can lie right: that is said once.
    misplaced = [] if other_cpus or other_nodes else list(_misplaced(facts, owners, topology))
    return (*other_cpus, *other_nodes, *misplaced, *_reserved(facts, owners), *_other_devices(facts))


def _cpu_file(facts: StateFacts) -> CPUCheckpoint | None:
    found = (content.checkpoint for content in facts.contents.values() if not content.by_container_id)
    return next((one for one in found if isinstance(one, CPUCheckpoint)), None)


# CPUs and NUMA nodes


def _other_cpus(facts: StateFacts, topology: CPUTopology) -> Iterator[Contradiction]:
    """Yield the difference between the CPUs of the CPU Manager's file and those of the machine."""
    checkpoint = _cpu_file(facts)
    if checkpoint is None or checkpoint.policy_name != "static":
        return
    named = parse_bits_or_empty(checkpoint.default_cpuset)
    for owner in read_owners(facts.contents):
        named |= owner.cpus
    there = topology.all_cpus
    kept = parse_bits_or_empty(facts.config.reserved_system_cpus)
    more, fewer = named & ~there & ~facts.machine.offline.bits, there & ~named & ~kept
    if not named or not (more or fewer):
        return
    differ = [f"names CPUs {format_bits(more)}, which it does not have"] if more else []
    differ += [f"does not name its CPUs {format_bits(fewer)}"] if fewer else []
    yield Contradiction(
        "cpus-differ",
        facts.about,
        f"The machine has CPUs {format_bits(there)}; {CPU_STATE_FILE} {' and '.join(differ)}",
        _LISTING if facts.about == "machine" else "",
    )


def _other_nodes(facts: StateFacts, owners: Sequence[Owner]) -> Iterator[Contradiction]:
    """Yield the difference between the NUMA nodes of the Memory Manager's file and those of the machine."""
    checkpoint = find_memory_file(facts.contents)
    ledger = {} if checkpoint is None else checkpoint.machine_state or {}
    nodes = {node.id for node in facts.machine.nodes}
    if not ledger or set(ledger) == nodes:
        return
    totals = memory_totals(checkpoint)
    here, there = (", ".join(map(str, sorted(ids)[:_MOST_NODES])) for ids in (nodes, set(ledger)))
    text = f"The machine has NUMA nodes {here}; {MEMORY_STATE_FILE} has {there}"
    shaped = with_nodes(facts.machine, totals)
    remedy = NODES_OF_STATE
    if shaped is not None and (found := _fitting(shaped, owners, placement_rules(facts.config, facts.contents))):
        remedy = _numbering_text(found, f"all {len(owners)}", f"{len(totals)} NUMA nodes and ")
    yield Contradiction("nodes-differ", facts.about, text, remedy if facts.about == "machine" else "")


def _with_memory(facts: StateFacts) -> Machine:
    """Return the machine with the memory that the Memory Manager's file gives its NUMA nodes."""
    totals = memory_totals(find_memory_file(facts.contents))
    nodes = (replace(node, memory=totals.get(node.id, node.memory)) for node in facts.machine.nodes)
    return replace(facts.machine, nodes=tuple(nodes))


# Where owners lie


def _misplaced(facts: StateFacts, owners: Sequence[Owner], topology: CPUTopology) -> Iterator[Contradiction]:
    rules = placement_rules(facts.config, facts.contents)
    wrong = find_misplaced(owners, topology, rules)
    if not wrong:
        yield from _unusual(facts, owners, topology)
        return
    found = _fitting(_with_memory(facts), owners, rules)
    units = len({one.uid for one in owners}) if rules.pod_scope else len(owners)
    rule = " with ".join(filter(None, (rules.policy if rules.policy != "none" else "", _cores_text(rules))))
    text = f"{len(wrong)} of {units} owners in {CPU_STATE_FILE} lie on this machine where {rule} does not put them: "
    text += _named(facts, wrong)
    pods = tuple(dict.fromkeys(one.owner.uid for one in wrong))
    if found is not None:
        yield Contradiction("owners-misplaced", facts.about, text, _numbering_text(found, f"all {units}"), pods)
    elif 2 * len(wrong) >= units and not facts.changed:
        yield Contradiction("owners-misplaced", facts.about, text, _LISTING, pods)
    else:
        # Most lie right, so the machine is right too; these were placed under other rules.
        remedy = "They may date from another configuration"
        yield Contradiction("owners-misplaced", "state", text, remedy, pods)


def _cores_text(rules: PlacementRules) -> str:
    return "full-pcpus-only" if rules.whole_cores else ""


def _named(facts: StateFacts, wrong: Sequence[Misplaced]) -> str:
    texts = [
        f"{facts.label(one.owner.uid)}{'/' + one.owner.container if one.owner.container else ''} ({one.why})"
        for one in wrong[:_MOST_NAMED]
    ]
    return ", ".join(texts) + (f" and {len(wrong) - _MOST_NAMED} more" if len(wrong) > _MOST_NAMED else "")


def _unusual(facts: StateFacts, owners: Sequence[Owner], topology: CPUTopology) -> Iterator[Contradiction]:
    """Yield a contradiction where no rule is broken but every owner lies as no kubelet places it without need, and in
    another numbering most do not: it takes whole cores, on one NUMA node, while there are some."""
    size = max(map(int.bit_count, topology.cores.values()), default=1)
    some = [one for one in owners if one.cpus.bit_count() % size == 0 and _is_small(one.cpus, topology)]
    if len(some) < 2 or not all(_lies_unusually(one.cpus, topology) for one in some):
        return
    others = [(_count_unusual(some, other.machine), other) for other in other_numberings(_with_memory(facts))]
    fewest, best = min(others, key=lambda one: (one[0], one[1].levels[0] != "thread"), default=(len(some), None))
    # A few may lie so for want of room.
    if best is not None and 3 * fewest <= len(some):
        text = f"None of {len(some)} owners in {CPU_STATE_FILE} has whole cores of one NUMA node on this machine"
        remedy = _numbering_text(best, f"{len(some) - fewest} of them")
        yield Contradiction("owners-scattered", facts.about, text, remedy)


def _count_unusual(owners: Sequence[Owner], machine: Machine) -> int:
    topology = CPUTopology(machine)
    return sum(_lies_unusually(one.cpus, topology) for one in owners)


def _is_small(cpus: Bits, topology: CPUTopology) -> bool:
    return 2 * cpus.bit_count() <= topology.smallest_numa_node


def _lies_unusually(cpus: Bits, topology: CPUTopology) -> bool:
    return topology.numa_nodes_of(cpus).bit_count() > 1 or not has_whole_cores(cpus, topology)


def _fitting(machine: Machine, owners: Sequence[Owner], rules: PlacementRules) -> Numbering | None:
    """Return the numbering under which all owners lie as they must, on whole cores where several do."""
    fitting = [one for one in other_numberings(machine) if not find_misplaced(owners, CPUTopology(one.machine), rules)]
    return min(fitting, key=lambda one: (_split_cores(one.machine, owners), one.levels[0] != "thread"), default=None)


def _split_cores(machine: Machine, owners: Sequence[Owner]) -> int:
    topology = CPUTopology(machine)
    return sum(not has_whole_cores(one.cpus, topology) for one in owners)


def _numbering_text(found: Numbering, who: str, nodes: str = "") -> str:
    """Return that these owners fit the machine with this numbering, and with these nodes."""
    line = one_line(found)
    # The description may be of thousands of numbers where they follow no loop.
    given = f": --from '{line}'" if line and len(line) < 200 else f". {_LISTING}"
    return f"With {nodes}CPUs numbered otherwise ({found.text}) {who} lie as they must{given}"


# Reserved CPUs and devices


def _reserved(facts: StateFacts, owners: Sequence[Owner]) -> Iterator[Contradiction]:
    reserved = parse_bits_or_empty(facts.config.reserved_system_cpus)
    held = [one for one in owners if one.cpus & reserved]
    if held and facts.config.cpu_manager_policy == "static":
        who = ", ".join(
            f"{facts.label(one.uid)} (CPUs {format_bits(one.cpus & reserved)})" for one in held[:_MOST_NAMED]
        )
        yield Contradiction(
            "reserved-owned",
            "configuration",
            f"reservedSystemCPUs is {format_bits(reserved)}, and {CPU_STATE_FILE} gives some of them to {who}",
            "Is it the configuration of the kubelet that wrote the files?",
            tuple(dict.fromkeys(one.uid for one in held)),
        )


def _other_devices(facts: StateFacts) -> Iterator[Contradiction]:
    """Yield devices that the Device Manager's file has on other NUMA nodes than they are given with."""
    if facts.devices is None:
        return
    numa = {(own.resource, one.id): one.numa for own in facts.devices.resources for one in own.devices}
    nodes = bits_of(node.id for node in facts.machine.nodes)
    found = [content.checkpoint for content in facts.contents.values()]
    wrong: dict[str, tuple[str, str]] = {}
    for entry in (one for each in found if isinstance(each, DeviceCheckpoint) for one in each.entries or ()):
        if not isinstance(entry.by_node, Mapping):
            continue
        for node, ids in entry.by_node.items():
            for name in ids or ():
                given = numa.get((entry.resource, name))
                if given is not None and node >= 0 and node not in given:
                    where = ", ".join(map(str, given)) or "none"
                    wrong.setdefault(entry.pod, (f"{entry.resource} {name}", f"NUMA {node}, not {where}"))
                elif node >= 0 and not nodes >> node & 1:
                    wrong.setdefault(entry.pod, (f"{entry.resource} {name}", f"NUMA {node}, which the machine has not"))
    if wrong:
        some = ", ".join(f"{device} is on {where}" for device, where in list(wrong.values())[:_MOST_NAMED])
        yield Contradiction(
            "devices-elsewhere",
            "devices",
            f"By the Device Manager's file {some}",
            "`nvidia-smi topo -m`, or numa_node of the device in sysfs, says where it is (--devices)",
            tuple(wrong),
        )
