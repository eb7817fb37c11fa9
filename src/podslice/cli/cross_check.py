"""Evidence about a node against the machine and the configuration that the options give for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from podslice.evidence.contradiction import Contradiction
from podslice.evidence.reported import check_reported
from podslice.evidence.said import AGREEMENT, REMEDY
from podslice.node_objects.described import DescribedNode

MEMORY_OF_FILES = "memory of the NUMA nodes from memory_manager_state"

if TYPE_CHECKING:
    from podslice.api.pod.spec import Pod
    from podslice.evidence.contradiction import StateFacts
    from podslice.node.checkpoints.content import Content
    from podslice.node.decision import Decision
    from podslice.node.node import Node


def read_contents(files: Mapping[str, bytes]) -> dict[str, Content]:
    """Read the state files that can be read; what is wrong with the others is said where they are used."""
    if not files:
        return {}
    from podslice.node.checkpoints.content import read_content
    from podslice.values.go.gojson import CheckpointError

    found = {}
    for name, data in files.items():
        try:
            found[name] = read_content(data)
        except CheckpointError:
            continue
    return found


def labels_of(pods: Iterable[Pod]) -> dict[str, str]:
    """Return the names of pods by UID."""
    return {pod.metadata.uid: pod.metadata.full_name for pod in pods}


def check_files(facts: StateFacts, elsewhere: Iterable[Pod]) -> tuple[Contradiction, ...]:
    """Return where state files contradict the machine, the configuration or the list of pods."""
    if not facts.contents:
        return ()
    from podslice.evidence.memory_check import check_memory
    from podslice.evidence.pod_resources_check import check_pod_resources
    from podslice.evidence.pods_check import check_elsewhere
    from podslice.evidence.state_check import check_state

    amounts = check_memory(facts.contents, facts.machine, measured=facts.measured)
    return (*check_pod_resources(facts), *check_state(facts), *amounts, *check_elsewhere(facts.contents, elsewhere))


def with_memory_of_files(described: DescribedNode, contents: Mapping[str, Content]) -> DescribedNode:
    """Return the node with the memory by the Memory Manager's file, where the description has it rounded or assumed."""
    if described.measured or not contents:
        return described
    from podslice.evidence.memory_check import take_memory

    capacity = None if described.reported is None else described.reported.capacity.get("memory")
    machine = take_memory(
        described.machine,
        contents,
        unit=described.memory_unit,
        assumed=described.assumed,
        capacity=0 if capacity is None else capacity.value(),
    )
    if machine is None:
        return described
    left = tuple(one for one in described.assumed if one.about not in ("memory", "memory-rounding"))
    return described._replace(machine=machine, assumed=left, taken=(MEMORY_OF_FILES,))


def check_started(
    node: Node, described: DescribedNode, facts: StateFacts, *, listed: Iterable[Pod], refused: Iterable[Decision]
) -> Iterator[Contradiction]:
    """Yield what contradicts a node after it has started. `listed` are the running pods of a list, `refused` those that
    the node does not take; the Node object is compared only with a configuration that is given for it."""
    if described.reported is not None:
        reserved = {} if facts.changed else node.view.reservation
        yield from check_reported(described.reported, reserved, str(node.view.release))
    for one in refused:
        text = f"{one.namespace}/{one.name} runs, but this node refuses it with {one.reason}: {AGREEMENT}"
        yield Contradiction("runs-but-refused", "pods", text, REMEDY, (one.uid,))
    if facts.contents:
        from podslice.evidence.pods_check import check_owners

        yield from check_owners(facts.contents, map(node.view.admission, listed))
