"""Rules that try the pod on the empty node, and compare its requests with single NUMA nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from podslice.advise.explain.codes import ADVICE, OTHER_ADVICE
from podslice.advise.explain.explain import explain
from podslice.advise.lint.model import ERROR, INFO, MACHINE, WARNING, Problem, Rule, count_cpus
from podslice.advise.lint.subject import PodSubject
from podslice.api.pod.memory_demand import container_memory, pod_memory
from podslice.config.policy_options import RESTRICTED, SINGLE_NUMA_NODE
from podslice.node.decision import Decision
from podslice.node.idle_cpus import idle_cpus
from podslice.node.node import with_default_uid
from podslice.node.view import NodeView
from podslice.scheduling.predicates import NODE_TOTAL, TOO_MANY_PODS
from podslice.values.errors import AdmissionError, UpstreamDefectError
from podslice.values.quantity import BINARY_SI, Quantity

_CPU = "cpu"


def _empty_node_refusal(subject: PodSubject) -> Iterator[Problem]:
    if subject.node is None or subject.node.view is None:
        return
    node = subject.node.new_node()
    try:
        decision = node.admit(subject.written)
    except UpstreamDefectError as defect:
        remedy = defect.remedy or "see docs/deviations.md"
        yield Problem("spec", f"{defect.consequence}: {defect.detail} (upstream defect {defect.name})", remedy)
        return
    if not decision.admitted:
        # The admission above has used its node up.
        code = explain(subject.node.new_node(), with_default_uid(subject.written), fixes=False).trace.code
        yield Problem(
            "spec",
            f"refused on the empty node with {decision.reason}: {decision.message}{_why(decision, code)}",
            ADVICE.get(code, OTHER_ADVICE),
        )


def _why(decision: Decision, code: str) -> str:
    """Return our explanation of a refusal; empty for a lack of resources, where upstream's message is complete."""
    if code in (NODE_TOTAL, TOO_MANY_PODS) or not decision.why:
        return ""
    return f". {decision.why.rstrip('.')}"


def _takes_all(subject: PodSubject) -> Iterator[Problem]:
    if subject.node is None or subject.node.view is None or not subject.admission.guaranteed:
        return
    node = subject.node.new_node()
    before = node.view.assignable.bit_count()
    try:
        decision = node.admit(subject.written)
    except UpstreamDefectError:
        return
    # A node whose pool was empty before says nothing about the pod.
    if before and decision.admitted and not node.view.assignable:
        left = node.view.shared.bit_count()
        rest = f"shares the {count_cpus(left, 'reserved')}" if left else "has no CPU at all"
        yield Problem(
            "spec",
            f"the pod takes all {before} CPUs that can be exclusive; every other pod {rest}",
            "leave some CPUs to the shared pool, or keep other pods off this node",
        )


def _idle_after_init(subject: PodSubject) -> Iterator[Problem]:
    containers = subject.admission.containers
    if subject.node is None or subject.node.view is None or not any(one.plain_init for one in containers):
        return
    node = subject.node.new_node()
    try:
        decision = node.admit(subject.written)
    except UpstreamDefectError:
        return
    if not decision.admitted:
        return
    paths = {one.name: place.path for place, one in zip(subject.places, containers, strict=True)}
    inits = {one.name: one.exclusive_cpus for one in containers if one.plain_init}
    others = sum(one.exclusive_cpus for one in containers if not one.plain_init)
    for idle in idle_cpus(node.view):
        got, left = inits[idle.container], count_cpus(idle.cpus.bit_count())
        more = got > others
        why = f"the others own {others}" if more else "on the empty node no other takes all of them over"
        yield Problem(
            f"{paths[idle.container]}.resources.requests[cpu]",
            f"init container {idle.container} owns {count_cpus(got)}, and {why}: {left} idle until the pod ends",
            "ask for a fraction there, such as 900m: the init container then runs in the shared pool",
            WARNING if more else INFO,
        )


def _over_numa_node(subject: PodSubject) -> Iterator[Problem]:
    view = subject.node.view if subject.node is not None else None
    if view is None or not subject.admission.guaranteed or len(view.topology.numa_nodes) < 2:
        return
    rooms = _rooms(view)
    for path, owner, amounts in _amounts_together(subject, view):
        for name, amount in sorted(amounts.items()):
            room = rooms.get(name, {})
            largest = max(room.values(), default=0)
            total = sum(room.values())
            # What exceeds all nodes together is refused, and PS501 reports it.
            if largest < amount <= total:
                yield _too_wide(subject, path, owner, (name, amount, largest))


def _rooms(view: NodeView) -> Mapping[str, Mapping[int, int]]:
    """Return the amount that each NUMA node of the empty machine can give, by resource."""
    rooms: dict[str, dict[int, int]] = {}
    if view.pins_cpus:
        free = view.assignable
        rooms[_CPU] = {node: (cpus & free).bit_count() for node, cpus in view.topology.numa_nodes.items()}
    for node, ledger in (view.memory if view.binds_memory else {}).items():
        for name, table in (ledger.memory_map or {}).items():
            rooms.setdefault(name, {})[node] = table.free
    return rooms


def _amounts_together(subject: PodSubject, view: NodeView) -> Iterator[tuple[str, str, dict[str, int]]]:
    """Yield (path, owner, amounts) of what has to fit at once: the pod in pod scope or with a budget, else each
    container."""
    admission = subject.admission
    if admission.ignored:
        return
    try:
        if admission.managed or view.config.topology_manager_scope == "pod":
            path = "spec.resources.requests" if admission.managed else "spec"
            yield path, "the pod", {_CPU: admission.cpus, **pod_memory(admission, view.quirks)}
            return
        for place, container in zip(subject.places, admission.containers, strict=True):
            memory = container_memory(admission, container, view.quirks)
            yield f"{place.path}.resources.requests", container.name, {_CPU: container.exclusive_cpus, **memory}
    except AdmissionError:
        return


def _too_wide(subject: PodSubject, path: str, owner: str, numbers: tuple[str, int, int]) -> Problem:
    assert subject.node is not None
    name, amount, largest = numbers
    config = subject.node.config
    policy = config.topology_manager_policy
    # In container scope the budget of a pod is not placed as a whole, so it may span nodes.
    refused = policy == SINGLE_NUMA_NODE and (not subject.admission.managed or config.topology_manager_scope == "pod")
    effect = f"topologyManagerPolicy {policy} refuses it" if refused else "it spans NUMA nodes"
    if policy == RESTRICTED:
        effect = "it spans NUMA nodes, and restricted refuses it unless the fewest possible have room"
    # Less of one resource does not help where the devices need more NUMA nodes.
    also = ", if its devices are on one NUMA node too" if subject.node.devices else ""
    return Problem(
        f"{path}[{name}]" if path != "spec" else path,
        f"{owner} asks for {_show(name, amount)}, the largest NUMA node can give {_show(name, largest)}: {effect}",
        f"ask for at most {_show(name, largest)}{also}, or split the work over several pods",
        ERROR if refused else WARNING if policy == RESTRICTED or subject.admission.managed else INFO,
    )


def _show(name: str, amount: int) -> str:
    return count_cpus(amount) if name == _CPU else f"{Quantity.of(amount, BINARY_SI)} {name}"


RULES: tuple[Rule[PodSubject], ...] = (
    Rule(
        "PS202",
        "over-numa-node",
        WARNING,
        "More than any NUMA node can hold",
        "The exclusive CPUs (or, with the static Memory Manager, the memory) of a pod-level budget, of a pod in pod "
        "scope or of a container do not fit one NUMA node of the machine after reservations. Policy single-numa-node "
        "refuses the pod (an error), restricted admits it only while the fewest possible nodes have room, other "
        "policies spread it (an information for containers).",
        _over_numa_node,
        MACHINE,
        ("PS501",),
        others=(INFO, ERROR),
    ),
    Rule(
        "PS501",
        "refused-on-empty-node",
        ERROR,
        "Refused even on the empty node",
        "The pod is really admitted on an empty node with this configuration and machine, and refused. No scheduler "
        "setting helps: the pod or the node has to change.",
        _empty_node_refusal,
        MACHINE,
    ),
    Rule(
        "PS502",
        "takes-all-exclusive-cpus",
        WARNING,
        "One pod takes all CPUs that can be exclusive",
        "After this pod no CPU is left for another exclusive container, and the shared pool shrinks to the reserved "
        "CPUs, where system daemons run as well.",
        _takes_all,
        MACHINE,
    ),
    Rule(
        "PS503",
        "idle-after-init",
        WARNING,
        "CPUs stay with an init container that has ended",
        "An init container with whole CPUs owns them. Containers after it take them over as far as they own CPUs "
        "themselves and the picker chooses these; the rest is idle until the pod ends "
        "(kubernetes/kubernetes#112228). A warning where the init container has more CPUs than all others together; a "
        "note where a v1.36.2 kubelet picks others on the empty node (--profile kubelet-1.36).",
        _idle_after_init,
        MACHINE,
        others=(INFO,),
    ),
)
