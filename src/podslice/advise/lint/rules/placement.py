"""Rules that try the pod on the empty node, and compare its requests with single NUMA nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from podslice.advise.explain.fixes.edits import POD, places, with_amounts
from podslice.advise.lint.attempt import admit_on_empty_node, explain_fix
from podslice.advise.lint.model import ERROR, INFO, MACHINE, WARNING, Problem, Rule, count_cpus
from podslice.advise.lint.subject import NodeSubject, PodSubject
from podslice.api.pod.demand import limits_of, requests_of
from podslice.api.pod.memory_demand import container_memory, pod_memory
from podslice.api.pod.spec import Pod
from podslice.config.policy_options import RESTRICTED, SINGLE_NUMA_NODE
from podslice.node.node import with_default_uid
from podslice.node.pod_remarks import describe_reserved
from podslice.node.shared_pool import idle_cpus
from podslice.node.view import NodeView
from podslice.values.cpuset import CPUSet, format_bits, union
from podslice.values.errors import AdmissionError, UpstreamDefectError
from podslice.values.quantity import BINARY_SI, ZERO, Quantity

_CPU = "cpu"
_MOST_CAUSES = 2
_NO_LESS = "with {} it {}: what else the pod asks for does not fit one NUMA node then"


def _empty_node_refusal(subject: PodSubject) -> Iterator[Problem]:
    if subject.node is None or subject.node.explainer is None:
        return
    node = subject.node.new_node()
    try:
        decision = node.admit(subject.written)
    except UpstreamDefectError as defect:
        remedy = defect.remedy or "see docs/deviations.md"
        yield Problem("spec", f"{defect.consequence}: {defect.detail} (upstream defect {defect.name})", remedy)
        return
    if not decision.admitted:
        why = subject.node.explainer.explain(with_default_uid(subject.written), fixes=False).why
        # For a lack of resources upstream's message is complete.
        cause = " ".join(why[:_MOST_CAUSES]).rstrip(".") or decision.why.rstrip(".")
        yield Problem(
            "spec",
            f"refused on the empty node with {decision.reason}: {decision.message}{'. ' if cause else ''}{cause}",
            explain_fix(subject),
        )


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


def _reserved_given(subject: PodSubject) -> Iterator[Problem]:
    decision = admit_on_empty_node(subject, subject.written)
    if decision is None or not decision.admitted or subject.node is None or subject.node.view is None:
        return
    reserved = CPUSet.from_bits(subject.node.view.reserved)
    paths = {place.container.name: place.path for place in subject.places}
    for container in decision.containers:
        if given := container.exclusive_cpus & reserved:
            yield Problem(
                f"{paths[container.name]}.resources.limits[cpu]",
                f"on the empty node {describe_reserved(container.name, given)}",
                _other_reservation(subject, subject.node, subject.node.view),
            )


def _other_reservation(subject: PodSubject, node: NodeSubject, view: NodeView) -> str:
    """Return the whole cores of the reserved CPUs, where with them the pod gets none of them."""
    whole = union(core for core in view.topology.cores.values() if core & view.reserved)
    config = msgspec.structs.replace(node.config, reserved_system_cpus=format_bits(whole))
    other = NodeSubject(config, node.machine, profile=node.profile, devices=node.devices, policy=node.policy)
    decision = admit_on_empty_node(PodSubject(subject.written, other, policy=subject.policy), subject.written)
    gets = union(one.exclusive_cpus.bits for one in decision.containers) if decision is not None else whole
    if decision is not None and decision.admitted and not gets & whole:
        return f"set reservedSystemCPUs: {format_bits(whole)}, with which this pod gets none of them"
    return "no whole cores to reserve were found that help: see average_sizes in docs/deviations.md"


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
    return Problem(
        f"{path}[{name}]" if path != "spec" else path,
        f"{owner} asks for {_show(name, amount)}, the largest NUMA node can give {_show(name, largest)}: {effect}",
        _narrower(subject, "" if path.startswith("spec.resources") or path == "spec" else owner, numbers),
        ERROR if refused else WARNING if policy == RESTRICTED or subject.admission.managed else INFO,
    )


def _narrower(subject: PodSubject, owner: str, numbers: tuple[str, int, int]) -> str:
    """Return the amount with which the pod or container was seen to get one NUMA node of the empty node."""
    name, amount, largest = numbers
    edited = _with_less(subject, owner, name, amount - largest)
    decision = None if edited is None else admit_on_empty_node(subject, edited)
    if decision is None or not decision.admitted:
        return explain_fix(subject) if _is_refused(subject) else _NO_LESS.format(_show(name, largest), "is refused")
    nodes = {str(node) for one in decision.containers if owner in ("", one.name) and (one.exclusive or one.memory_nodes)
             for node in (*one.numa_nodes, *one.memory_nodes)}  # fmt: skip
    if len(nodes) > 1:
        return _NO_LESS.format(_show(name, largest), "spans NUMA nodes too")
    return f"ask for at most {_show(name, largest)}"


def _is_refused(subject: PodSubject) -> bool:
    decision = admit_on_empty_node(subject, subject.written)
    return decision is not None and not decision.admitted


def _with_less(subject: PodSubject, owner: str, name: str, excess: int) -> Pod | None:
    """Return the pod with so much less of a resource: in one container, or with an empty `owner` in the pod's budget,
    or where it has none in the container that asks for most; None where it has not so much."""
    asked = {place: requests_of(resources).get(name, ZERO) for place, resources in places(subject.written)
             if not owner or place == owner}  # fmt: skip
    where = (
        POD if POD in asked and not asked[POD].is_zero() else max(asked, key=lambda one: asked[one].nano, default=POD)
    )
    limits = {place: limits_of(resources) for place, resources in places(subject.written)}
    has = asked.get(where, ZERO) if not asked.get(where, ZERO).is_zero() else limits.get(where, {}).get(name, ZERO)
    less = Quantity.of(has.value() - excess) if name == _CPU else Quantity.of(has.value() - excess, BINARY_SI)
    return with_amounts(subject.pod, {(where, name): less}) if less.sign() > 0 else None


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
        "PS504",
        "reserved-cpus-given",
        ERROR,
        "The kubelet gives reserved CPUs to the pod",
        "On machines whose cores or sockets differ in size, or have CPUs offline, a v1.36.2 kubelet can hand out CPUs "
        "that are reserved (average_sizes in docs/deviations.md). The pod runs, but a kubelet that restarts then finds "
        "its state file wrong and does not start. Seen with --profile kubelet-1.36 on the empty node.",
        _reserved_given,
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
