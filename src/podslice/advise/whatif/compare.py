"""Comparing kubelet configurations and machines for the same pods, in numbers.

Every scenario is a node of its own that really admits the pods, in the order given. Nothing is estimated: CPUs left
over are counted by filling the node up with more of the same pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import msgspec

from podslice.advise.explain.fixes.losses import config_losses, strength
from podslice.advise.explain.fixes.node_fixes import config_differences
from podslice.advise.whatif.workload import ResizeAnswer, Step, carry_out, count_outcomes
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy
from podslice.config.policy_options import EXCLUSIVE_PAIRS, POLICIES, SCOPES
from podslice.config.validation import validate
from podslice.machine.delta import ConsequenceKind
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import CPUTopology, Machine
from podslice.node.decision import Decision
from podslice.node.node import Node
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, CPUSet
from podslice.values.errors import StartError, UpstreamDefectError
from podslice.values.quirks import PROFILE_RELEASES

replace = msgspec.structs.replace
# Bound for pods that own so few CPUs, or so little of a full node, that filling it would take very long.
_MOST_FILLING = 4096
COMPARED_OPTIONS = ("full-pcpus-only", "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache")
"""The CPU Manager options that decide which CPUs a container gets and need no gate for alpha features."""
OPTION_SETS: tuple[tuple[str, ...], ...] = tuple(
    options
    for size in range(len(COMPARED_OPTIONS) + 1)
    for options in combinations(COMPARED_OPTIONS, size)
    if not any(set(pair) <= set(options) for pair in EXCLUSIVE_PAIRS)
)
"""The sets of these options that `variants` tries, fewer options first."""


class Scenario(msgspec.Struct, frozen=True):
    """A machine with a kubelet configuration, under a name. `present`: the configuration to which it is an alternative.
    `running` are pods that are on the node before, owners in the state files `files` (by name) if there are any.
    `predicates` and `policy` are as of `Node`. `steps` come after the pods that are compared; then the machine becomes
    each of `then`, while everything runs."""

    name: str
    machine: Machine
    config: KubeletConfig
    devices: DeviceInventory = DeviceInventory()
    present: KubeletConfig | None = None
    running: tuple[Pod, ...] = ()
    files: Mapping[str, bytes] = {}
    predicates: bool = True
    policy: PodslicePolicy = NO_POLICY
    steps: tuple[Step, ...] = ()
    then: tuple[Machine, ...] = ()


class AfterChange(msgspec.Struct, frozen=True):
    """A consequence of a changed machine, as `MachineConsequence`: `pod` is namespace/name, `lost` and `cpus` are CPU
    lists."""

    kind: ConsequenceKind
    pod: str
    container: str
    lost: str
    cpus: str
    text: str


class PodVerdict(msgspec.Struct, frozen=True, rename="camel"):
    """The verdict about one pod: upstream's `reason` (empty: admitted), and whether a container of it is spread over
    NUMA nodes."""

    pod: str
    reason: str
    cross_numa: bool


class ClassCPUs(msgspec.Struct, frozen=True, rename="camel"):
    """CPUs of a class of the policy: the number of all, of those owned, and of the others that containers with this
    class could own."""

    name: str
    cpus: int
    owned: int
    free: int


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    """The result of a scenario for the pods.

    `problem` is the reason why a kubelet would not start; then nothing else counts. `exclusive_cpus` are owned by
    containers and pods. `stranded_cpus` could be owned but are of no use to any further pod of the mix. `shared_cores`
    counts cores whose threads belong to different pods, or to a pod and the shared pool. `displaced` are pods that run
    on the node now and are refused in this scenario. `fragmentation` has a score for each NUMA node with free CPUs: 0
    when they all lie in wholly free L3 groups, 1 when each is a lone thread. Of the `resizes` of the scenario's steps,
    `granted` were granted in the end, `deferred` still wait, and `infeasible` can never be granted. `consequences` are
    those of a changed machine, which the numbers of CPUs include. `classes` are those of the scenario's policy with the
    pods on the node.

    For an alternative to a present configuration: whether it `is_present`, how many fields it `changes`, and the
    guarantees that it gives up (`losses`, the words of `explain.fixes.losses`). `strength` orders Topology Manager
    policies from none (0) to single-numa-node (3).
    """

    scenario: str
    problem: str = ""
    admitted: int = 0
    refused: dict[str, int] = {}
    exclusive_cpus: int = 0
    stranded_cpus: int = 0
    cross_numa_pods: int = 0
    shared_cores: int = 0
    fragmentation: dict[int, float] = {}
    pods: tuple[PodVerdict, ...] = ()
    is_present: bool = False
    changes: int = 0
    losses: tuple[str, ...] = ()
    strength: int = 0
    displaced: tuple[PodVerdict, ...] = ()
    granted: int = 0
    deferred: int = 0
    infeasible: int = 0
    resizes: tuple[ResizeAnswer, ...] = ()
    consequences: tuple[AfterChange, ...] = ()
    classes: tuple[ClassCPUs, ...] = ()

    @property
    def mean_fragmentation(self) -> float:
        return sum(self.fragmentation.values()) / len(self.fragmentation) if self.fragmentation else 0.0


def evaluate(scenario: Scenario, pods: Sequence[Pod], *, profile: str = "podslice") -> Outcome:
    """Admit the pods in order and measure the node."""
    return replace(_measure(scenario, pods, profile), **_beside_present(scenario))


def _beside_present(scenario: Scenario) -> dict[str, Any]:
    """Return what the configuration changes of the present one."""
    policy, _ = strength(scenario.config)
    if scenario.present is None:
        return {"strength": policy}
    changes = config_differences(scenario.present, scenario.config)
    return {
        "strength": policy,
        "is_present": not changes,
        "changes": len(changes),
        "losses": config_losses(scenario.present, scenario.config),
    }


def _measure(scenario: Scenario, pods: Sequence[Pod], profile: str) -> Outcome:
    node, displaced, problem = _start(scenario, profile)
    if node is None:
        return Outcome(scenario.name, problem=problem)
    verdicts = [_verdict(node, pod) for pod in pods]
    done = carry_out(node, scenario.steps)
    consequences = tuple(_change_machine(node, scenario.then))
    counts = count_outcomes(done.resizes)
    verdicts += [_verdict_of(node, pod, answer) for pod, answer in done.admissions]
    refused: dict[str, int] = {}
    for verdict in verdicts:
        if verdict.reason:
            refused[verdict.reason] = refused.get(verdict.reason, 0) + 1
    view = node.view
    owners = _owners(view)
    outcome = Outcome(
        scenario.name,
        admitted=len(verdicts) - sum(refused.values()),
        refused=refused,
        exclusive_cpus=sum(cpus.bit_count() for cpus in owners),
        cross_numa_pods=sum(verdict.cross_numa for verdict in verdicts),
        shared_cores=_count_shared_cores(view.topology, owners),
        fragmentation=_fragmentation(view.topology, view.assignable) if view.pins_cpus else {},
        pods=tuple(verdicts),
        displaced=displaced,
        resizes=done.resizes,
        granted=counts.granted,
        deferred=counts.deferred,
        infeasible=counts.infeasible,
        consequences=consequences,
        classes=tuple(_classes(view)),
    )
    mix = [*pods, *(pod for pod, _ in done.admissions)]
    return replace(outcome, stranded_cpus=_count_stranded(node, mix) if view.pins_cpus else 0)


def populate(scenario: Scenario, pods: Sequence[Pod], *, profile: str = "podslice") -> Node | None:
    """Return the scenario's node with the pods that it admits, for a picture of it; None where a kubelet would not
    start."""
    node, _, _ = _start(scenario, profile)
    if node is not None:
        for pod in pods:
            _verdict(node, pod)
        carry_out(node, scenario.steps)
        list(_change_machine(node, scenario.then))
    return node


def _change_machine(node: Node, machines: Iterable[Machine]) -> Iterator[AfterChange]:
    """Change the machine to one after the other and yield the consequences. Raises `InputError` as
    `Node.change_machine`."""
    for machine in machines:
        for one in node.change_machine(machine):
            metadata = node.view.pods[one.pod].spec.metadata if one.pod in node.view.pods else None
            pod = "" if metadata is None else f"{metadata.namespace or 'default'}/{metadata.name}"
            yield AfterChange(one.kind, pod, one.container, str(one.lost), str(one.cpus), one.text)


def _start(scenario: Scenario, profile: str) -> tuple[Node | None, tuple[PodVerdict, ...], str]:
    """Return the scenario's node with the pods that run on it, and those of them that it refuses; or the reason why
    there is none."""
    problems = validate(scenario.config, PROFILE_RELEASES[profile])
    if problems:
        return None, (), "; ".join(map(str, problems))
    try:
        node = Node(
            scenario.machine,
            scenario.config,
            profile=profile,
            devices=scenario.devices,
            predicates=scenario.predicates,
            files=scenario.files,
            policy=scenario.policy,
        )
        refused = node.settle(scenario.running, restored=bool(scenario.files))
    except StartError as error:
        return None, (), error.message
    except UpstreamDefectError as defect:
        return None, (), defect.name
    return node, tuple(PodVerdict(f"{one.namespace}/{one.name}", one.reason, False) for one in refused), ""


def _verdict(node: Node, pod: Pod) -> PodVerdict:
    try:
        return _verdict_of(node, pod, node.admit(pod))
    except UpstreamDefectError as defect:
        return _verdict_of(node, pod, defect.name)


def _verdict_of(node: Node, pod: Pod, decision: Decision | str) -> PodVerdict:
    name = f"{pod.metadata.namespace or 'default'}/{pod.metadata.name}"
    if isinstance(decision, str):
        return PodVerdict(name, decision, False)
    return PodVerdict(name, decision.reason, decision.admitted and _is_spread(node, decision))


def _is_spread(node: Node, decision: Decision) -> bool:
    """Whether a container's CPUs, memory and devices lie on several NUMA nodes."""
    for container in decision.containers:
        nodes = container.numa_nodes if container.isolation != "host" else CPUSet()
        together = {*nodes, *container.memory_nodes, *_device_nodes(node, container.devices)}
        if len(together) > 1:
            return True
    return False


def _device_nodes(node: Node, held: dict[str, list[str]]) -> Iterator[int]:
    for resource in node.view.devices.resources:
        for device in resource.devices:
            # A device on several NUMA nodes is near each of them; the lowest stands for it.
            if device.id in held.get(resource.resource, ()) and device.numa:
                yield min(device.numa)


def _owners(view: NodeView) -> list[Bits]:
    """Return disjoint sets of CPUs: those of pods with pod-level resources, and for each other pod those of its
    containers."""
    return [*view.pod_cpus.values(), *(view.assigned_to(uid) for uid in view.owners if uid not in view.pod_cpus)]


def _classes(view: NodeView) -> Iterator[ClassCPUs]:
    classes = view.cpu_classes if view.policy.cpu_classes else None
    if classes is None:
        return
    for name, members in classes.cpus.items():
        free = view.assignable & classes.ownable.get(name, 0)
        yield ClassCPUs(name, members.bit_count(), (members & view.owned).bit_count(), free.bit_count())


def _count_shared_cores(topology: CPUTopology, owners: Iterable[Bits]) -> int:
    shared = set()
    for cpus in owners:
        # A core counts once, however many owners its threads have.
        shared |= {core for core, threads in topology.cores.items() if threads & cpus and threads & ~cpus}
    return len(shared)


def _fragmentation(topology: CPUTopology, free: Bits) -> dict[int, float]:
    scores = {}
    for node, cpus in topology.numa_nodes.items():
        here = cpus & free
        if here:
            whole = sum(_in_whole(units.values(), cpus, here) for units in (topology.cores, topology.uncore_caches))
            # Free CPUs are counted twice, in whole cores and in whole caches, hence the 2.
            scores[node] = round(1 - whole / (2 * here.bit_count()), 3)
    return scores


def _in_whole(units: Iterable[Bits], node: Bits, free: Bits) -> int:
    """Count free CPUs in units whose part on this node is wholly free."""
    return sum((unit & node).bit_count() for unit in units if unit & node and unit & node & ~free == 0)


def _count_stranded(node: Node, pods: Sequence[Pod]) -> int:
    """Fill the node with copies of the mix's pods that own CPUs, small ones first, until none fits; return how many
    CPUs are left."""
    view = node.view
    sizes = [view.admission(default_pod(pod, view.gates)).cpus for pod in pods]
    shapes = [pod for size, pod in sorted(zip(sizes, pods, strict=True), key=lambda pair: pair[0]) if size]
    number = 0
    for shape in shapes:
        while number < _MOST_FILLING:
            # The limit is for all shapes together.
            number += 1
            uid = f"filling-{number}"
            copy = replace(shape, metadata=replace(shape.metadata, name=uid, uid=uid))
            if _verdict(node, copy).reason:
                break
    return node.view.assignable.bit_count()


# Recommendations


class Recommendation(msgspec.Struct, frozen=True):
    """All outcomes, best first, and for each criterion the best value and the scenarios that reach it."""

    outcomes: tuple[Outcome, ...]
    best: dict[str, tuple[float, tuple[str, ...]]]


CRITERIA = {
    "admitted": "most pods admitted",
    "granted": "most resizes granted",
    "cross_numa_pods": "fewest pods across NUMA nodes",
    "shared_cores": "fewest cores shared by owners",
    "stranded_cpus": "fewest stranded CPUs",
    "mean_fragmentation": "least fragmentation",
}
"""The criteria of the comparison, the most important first; resizes count where there are any."""
_MORE_IS_BETTER = 2
"""How many of the first criteria are better when larger; of the others smaller is better."""


def variants(scenario: Scenario) -> Iterator[Scenario]:
    """Yield the scenario as it is, then its machine under every other Topology Manager policy and scope, with every set
    of `OPTION_SETS`, fewer options first."""
    present = scenario.config
    enabled = [name for name, value in present.cpu_manager_policy_options.items() if value.lower() == "true"]
    as_is = _variant_name(present, enabled)
    if present.cpu_manager_policy != "static":
        as_is += f" (CPU manager {present.cpu_manager_policy})"
    scenario = replace(scenario, present=present)
    yield replace(scenario, name=f"as it is: {as_is}")
    base = replace(present, cpu_manager_policy="static")
    for options in OPTION_SETS:
        for policy in POLICIES:
            for scope in SCOPES if policy != "none" else (base.topology_manager_scope,):
                config = replace(
                    base,
                    topology_manager_policy=policy,
                    topology_manager_scope=scope,
                    cpu_manager_policy_options=dict.fromkeys(options, "true"),
                )
                name = _variant_name(config, options)
                # The present configuration comes first, under a name of its own.
                if name != as_is:
                    yield replace(scenario, name=name, config=config)


def _variant_name(config: KubeletConfig, options: Iterable[str]) -> str:
    policy = config.topology_manager_policy
    return " +".join((policy if policy == "none" else f"{policy}/{config.topology_manager_scope}", *sorted(options)))


def rank(outcomes: Iterable[Outcome]) -> Recommendation:
    """Order the outcomes by `CRITERIA`, the first one first.

    Among equals the present configuration comes first, then the one that gives up the fewest guarantees, has the
    strongest policy, changes the least, and else the first of them. Scenarios that do not start come last.
    """
    ordered = sorted(outcomes, key=lambda outcome: (bool(outcome.problem), *_merits(outcome), *_preference(outcome)))
    running = [outcome for outcome in ordered if not outcome.problem]
    best = {}
    for place, name in enumerate(CRITERIA):
        values = [(_merits(outcome)[place], outcome.scenario) for outcome in running]
        if values and (name != "granted" or any(outcome.resizes for outcome in running)):
            least = min(values)[0]
            # Merits of criteria in which more is better are negated.
            best[name] = abs(least), tuple(scenario for value, scenario in values if value == least)
    return Recommendation(tuple(ordered), best)


def _preference(outcome: Outcome) -> tuple[bool, int, int, int]:
    return not outcome.is_present, len(outcome.losses), -outcome.strength, outcome.changes


def _merits(outcome: Outcome) -> tuple[float, ...]:
    """Return the values of the criteria such that smaller is better."""
    values = [float(getattr(outcome, name)) for name in CRITERIA]
    return (*(-value for value in values[:_MORE_IS_BETTER]), *values[_MORE_IS_BETTER:])
