"""One node from several sources: whole machines, Node objects, what programs print, and lists of GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import msgspec

from podslice.machine.devices import DeviceInventory
from podslice.machine.listings.facts import Level, MachineFacts, NodeFacts, Totals, check_agreement
from podslice.machine.listings.merge import merge_machine
from podslice.machine.model import HugePages, Machine
from podslice.node_objects.described import DescribedNode
from podslice.values.assumption import Assumption
from podslice.values.cpuset import bits_of
from podslice.values.errors import InputError


class NodeEvidence(NamedTuple):
    """A machine from `title`. `whole`: CPUs and NUMA nodes are known and not assumed, as of a snapshot; a Node object
    has amounts only."""

    title: str
    node: DescribedNode
    whole: bool


class DeviceEvidence(NamedTuple):
    """The devices of a node from `title`."""

    title: str
    devices: DeviceInventory


Evidence: TypeAlias = NodeEvidence | MachineFacts | DeviceEvidence


def combine_evidence(sources: Sequence[Evidence]) -> DescribedNode:
    """Return the node that all sources describe. Raises `InputError` where two contradict each other, or where none
    lists CPUs."""
    listings = [one for one in sources if isinstance(one, MachineFacts)]
    lists = [one for one in sources if isinstance(one, DeviceEvidence)]
    devices = _devices(lists)
    nodes = [one for one in sources if isinstance(one, NodeEvidence)]
    whole = [one for one in nodes if one.whole]
    if len(whole) > 1 or len(nodes) - len(whole) > 1:
        first, second = (whole if len(whole) > 1 else [one for one in nodes if not one.whole])[:2]
        remedy = "give one of them, and what lscpu and numactl print"
        raise InputError(f"{first.title} and {second.title} each describe a node", remedy=remedy)
    amounts = next((one for one in nodes if not one.whole), None)
    if len(sources) == 1 and nodes:
        return nodes[0].node
    if whole:
        _check_whole(whole[0], [*listings, *([_amounts_of(amounts)] if amounts else [])])
        return _with_amounts(whole[0].node, amounts, devices)
    if not listings:
        if amounts is None:
            raise InputError(
                "lists devices, not CPUs", source=lists[0].title, remedy="give lscpu -e as well, --from twice"
            )
        return amounts.node._replace(devices=devices or amounts.node.devices)
    merged = merge_machine([*listings, *([_amounts_of(amounts)] if amounts else [])])
    return _with_amounts(
        DescribedNode(merged.machine, assumed=merged.assumed, memory_unit=merged.memory_unit), amounts, devices
    )


def _devices(lists: Sequence[DeviceEvidence]) -> DeviceInventory | None:
    """Return the devices of all lists, which have to be the same. Raises `InputError`."""
    for other in lists[1:]:
        if other.devices != lists[0].devices:
            problem = f"{lists[0].title} and {other.title} list different devices"
            raise InputError(problem, remedy="give the one of this node")
    return lists[0].devices if lists else None


def _check_whole(whole: NodeEvidence, others: Sequence[MachineFacts]) -> None:
    try:
        check_agreement([facts_of_machine(whole), *others])
    except InputError as error:
        if not whole.node.assumed:
            raise
        # The difference is most likely in what is assumed, not in what the other source says.
        remedy = f"{whole.title} does not say it; assumed: {'; '.join(map(str, whole.node.assumed))}"
        raise InputError(error.problem, remedy=remedy) from None


def facts_of_machine(evidence: NodeEvidence) -> MachineFacts:
    """Return the facts of a whole machine in the form in which sources are compared."""
    machine = evidence.node.machine
    places: dict[Level, dict[int, int]] = {"core": {}, "socket": {}, "l3": {}}
    count = 0
    for node in machine.nodes:
        for core in node.cores:
            for cpu in core.threads:
                places["core"][cpu], places["socket"][cpu] = count, core.socket
            count += 1
    for number, cache in enumerate(cache for cache in machine.caches if cache.level == 3):
        places["l3"].update(dict.fromkeys(cache.cpus, number))
    nodes = {
        node.id: NodeFacts(
            cpus=bits_of(cpu for core in node.cores for cpu in core.threads),
            memory=node.memory or None,
            unit=1 << 20,  # numactl and describe cut off what is less than a MiB
            distances=node.distances,
        )
        for node in machine.nodes
    }
    return MachineFacts(source=evidence.title, program="machine", online=machine.cpus.bits, places=places, nodes=nodes)


def _amounts_of(evidence: NodeEvidence) -> MachineFacts:
    """Return the amounts of a Node, without the topology that was assumed for it."""
    machine = evidence.node.machine
    totals = Totals(cpus=machine.cpu_count, memory=machine.memory, unit=64 << 20)
    return MachineFacts(source=evidence.title, program="kubectl", totals=totals, architecture=machine.architecture)


def _with_amounts(node: DescribedNode, amounts: NodeEvidence | None, devices: DeviceInventory | None) -> DescribedNode:
    """Return the node with name, operating system, huge pages, configuration and devices of a Node object."""
    if amounts is None:
        return node._replace(devices=devices or node.devices)
    reported = amounts.node.machine
    machine = msgspec.structs.replace(
        node.machine, name=reported.name or node.machine.name, operating_system=reported.operating_system
    )
    assumed = list(node.assumed)
    if reported.all_hugepages and not any(one.hugepages for one in machine.nodes):
        machine = _share_huge_pages(machine, reported.all_hugepages)
        if len(machine.nodes) > 1:
            text = "huge pages are the same on every NUMA node, because a Node has only their sum"
            assumed.append(Assumption("hugepages", text))
    if devices is None and amounts.node.devices:
        assumed += amounts.node.assumed_of_devices
    return DescribedNode(
        machine,
        amounts.node.fields,
        devices or amounts.node.devices,
        tuple(assumed),
        amounts.node.settled,
        node.measured,
        amounts.node.reported,
        node.memory_unit,
    )


def _share_huge_pages(machine: Machine, pools: Sequence[HugePages]) -> Machine:
    count = len(machine.nodes)
    nodes = tuple(
        msgspec.structs.replace(
            node,
            hugepages=tuple(
                HugePages(pool.page_size_ki, pool.num_pages // count + (index < pool.num_pages % count))
                for pool in pools
            ),
        )
        for index, node in enumerate(machine.nodes)
    )
    return msgspec.structs.replace(machine, nodes=nodes)
