"""Compare kubelet configurations and machines for the same pods, in numbers.

Every scenario is a node of its own that really admits the pods, in the order given. Nothing is estimated: CPUs left
over are counted by filling the node up with more of the same pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from podslice.advise.explain.fixes.losses import config_losses, strength
from podslice.advise.explain.fixes.node_fixes import config_differences
from podslice.advise.whatif.churn import Churn, churn
from podslice.advise.whatif.filling import Capacity, admit_or_name, count_stranded
from podslice.advise.whatif.placement import NOWHERE, Placement, Ruler, requested_cpus, shared_core_cpus
from podslice.advise.whatif.workload import ResizeAnswer, Step, carry_out, count_outcomes
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy
from podslice.config.validation import validate
from podslice.machine.delta import ConsequenceKind
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import CPUTopology, Machine
from podslice.node.decision import Decision
from podslice.node.node import Node, with_default_uid
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits
from podslice.values.errors import StartError, UpstreamDefectError
from podslice.values.quirks import PROFILE_RELEASES
from podslice.values.shown import Shown

replace = msgspec.structs.replace


class Scenario(msgspec.Struct, frozen=True):
    """A machine with a kubelet configuration, under a name. `present`: the configuration to which it is an alternative.
    `running` are pods that are on the node before, owners in the state files `files` (by name) if there are any.
    `predicates` and `policy` are as of `Node`. `notes` are sentences about the configuration. `steps` come after the
    pods that are compared; then the machine becomes each of `then`, while everything runs."""

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
    notes: tuple[str, ...] = ()


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
    """The verdict about one pod: upstream's `reason` (empty: admitted), whether it is `placed` (it owns what it could),
    whether a container of it is spread over NUMA nodes, or over more caches than it needs, and whether its containers
    lie `apart`, on different NUMA nodes without need."""

    pod: str
    reason: str
    cross_numa: bool
    placed: bool = False
    cross_cache: bool = False
    apart: bool = False


class Costs(msgspec.Struct, frozen=True, rename="camel"):
    """The disadvantages of a scenario, each in CPUs, so that they can be weighed against each other.

    - `refused`: CPUs requested by pods that are refused, running ones included
    - `not_placed`: CPUs that admitted pods would own under a static CPU Manager and do not
    - `across_numa`: CPUs of pods spread over more NUMA nodes than they need on an empty node
    - `apart`: CPUs of pods whose containers lie on different NUMA nodes although fewer would hold the pod
    - `across_caches`: CPUs of pods spread over more L3 or shared L2 caches than they need
    - `shared_cores`: owned CPUs on cores of which another pod, or the shared pool, has a thread
    - `stranded`: CPUs that are of no use to any further pod of the mix
    - `resizes`: resizes that are not granted, each as one CPU
    - `refused_later`, `across_later`, `not_placed_later`: the same of pods that come and go on the full node.
    """

    refused: int = 0
    not_placed: int = 0
    across_numa: int = 0
    apart: int = 0
    across_caches: int = 0
    shared_cores: int = 0
    stranded: int = 0
    resizes: int = 0
    refused_later: int = 0
    across_later: int = 0
    not_placed_later: int = 0


class ClassCPUs(msgspec.Struct, frozen=True, rename="camel"):
    """CPUs of a class of the policy: the number of all, of those owned, and of the others that containers with this
    class could own."""

    name: str
    cpus: int
    owned: int
    free: int


class Outcome(Shown, msgspec.Struct, frozen=True, rename="camel"):
    """The result of a scenario for the pods.

    `problem` is the reason why a kubelet would not start; then nothing else counts. `unplaced_pods` are admitted and
    own nothing, or not all the CPUs that they could own; none of them counts as aligned. `cross_numa_pods` and
    `cross_cache_pods` are spread, `apart_pods` have containers on different NUMA nodes without need. `exclusive_cpus`
    are owned by containers and pods. `stranded_cpus` are of no use to any further pod of the mix. `shared_cores` counts
    cores whose threads belong to different pods, or to a pod and the shared pool. `displaced` are pods that run on the
    node now and are refused in this scenario. `fragmentation` has a score for each NUMA node with free CPUs: 0 when
    they all lie in wholly free L3 groups, 1 when each is a lone thread. Of the `resizes` of the scenario's steps,
    `granted` were granted in the end, `deferred` still wait, and `infeasible` can never be granted. `consequences` are
    those of a changed machine, which the numbers of CPUs include. `classes` are those of the scenario's policy with the
    pods on the node. `costs` are the terms of the objective of a recommendation. `capacity`, where it was asked for, is
    how many of the pods fit beside those that run; `churn` is what happens as pods come and go on the full node.
    `cpus` are those of the machine.

    For an alternative to a present configuration: whether it `is_present`, how many fields it `changes`, the fields
    that it `sets` by their YAML names, its `notes`, and the guarantees that it gives up (`losses`,
    the words of `explain.fixes.losses`). `strength` orders Topology Manager
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
    unplaced_pods: int = 0
    cross_cache_pods: int = 0
    apart_pods: int = 0
    costs: Costs = Costs()
    capacity: Capacity | None = None
    churn: Churn = Churn()
    cpus: int = 0
    sets: dict[str, Any] = {}
    notes: tuple[str, ...] = ()

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
        "sets": _changed_fields(scenario.present, scenario.config),
        "notes": scenario.notes,
    }


def _changed_fields(before: KubeletConfig, after: KubeletConfig) -> dict[str, Any]:
    """Return the fields of a configuration that differ from another one, as they stand in YAML."""
    names = zip(after.__struct_fields__, after.__struct_encode_fields__, strict=True)
    return {
        encoded: msgspec.to_builtins(getattr(after, name))
        for name, encoded in names
        if getattr(before, name) != getattr(after, name)
    }


def _measure(scenario: Scenario, pods: Sequence[Pod], profile: str) -> Outcome:
    node, displaced, problem = start_node(scenario, profile)
    if node is None:
        return Outcome(scenario.name, problem=problem)
    ruler = Ruler(node.view)
    results = [_judge(ruler, pod, admit_or_name(node, pod)) for pod in pods]
    done = carry_out(node, scenario.steps)
    consequences = tuple(_change_machine(node, scenario.then))
    counts = count_outcomes(done.resizes)
    results += [_judge(ruler, pod, answer) for pod, answer in done.admissions]
    view = node.view
    owners = _owners(view)
    outcome = Outcome(
        scenario.name,
        cpus=view.topology.num_cpus,
        exclusive_cpus=sum(cpus.bit_count() for cpus in owners),
        shared_cores=_count_shared_cores(view.topology, owners),
        fragmentation=_fragmentation(view.topology, view.assignable) if view.pins_cpus else {},
        displaced=tuple(_name_verdict(one.namespace, one.name, one.reason) for one in displaced),
        resizes=done.resizes,
        granted=counts.granted,
        deferred=counts.deferred,
        infeasible=counts.infeasible,
        consequences=consequences,
        classes=tuple(_classes(view)),
        **_pods_in_numbers(results),
    )
    asked = [*pods, *(pod for pod, _ in done.admissions)]
    lost = {one.uid for one in displaced}
    refused = [pod for pod, result in zip(asked, results, strict=True) if result.verdict.reason]
    refused += [pod for pod in scenario.running if with_default_uid(pod).metadata.uid in lost]
    places = [result.place for result in results]
    later = churn(node.copy(), asked, ruler)
    # Last: it fills the node.
    stranded = count_stranded(node, asked)
    costs = Costs(
        sum(requested_cpus(view, pod) for pod in refused),
        sum(place.floating_cpus for place in places),
        sum(max(1, place.owned_cpus) for place in places if place.needless_nodes),
        sum(max(1, place.owned_cpus) for place in places if place.apart),
        sum(place.owned_cpus for place in places if place.cross_cache),
        shared_core_cpus(view, owners).bit_count(),
        stranded,
        counts.deferred + counts.infeasible,
        later.refused_cpus,
        later.across_cpus,
        later.floating_cpus,
    )
    return replace(outcome, stranded_cpus=stranded, costs=costs, churn=later)


def _pods_in_numbers(results: Sequence[_Result]) -> dict[str, Any]:
    """Return the fields of an outcome about the compared pods."""
    verdicts = [result.verdict for result in results]
    refused = Counter(verdict.reason for verdict in verdicts if verdict.reason)
    return {
        "admitted": len(verdicts) - refused.total(),
        "refused": dict(refused),
        "cross_numa_pods": sum(verdict.cross_numa for verdict in verdicts),
        "cross_cache_pods": sum(verdict.cross_cache for verdict in verdicts),
        "apart_pods": sum(verdict.apart for verdict in verdicts),
        "unplaced_pods": sum(not verdict.placed for verdict in verdicts if not verdict.reason),
        "pods": tuple(verdicts),
    }


def populate(scenario: Scenario, pods: Sequence[Pod], *, profile: str = "podslice") -> Node | None:
    """Return the scenario's node with the pods that it admits, for a picture of it; None where a kubelet would not
    start."""
    node, _, _ = start_node(scenario, profile)
    if node is not None:
        for pod in pods:
            admit_or_name(node, pod)
        carry_out(node, scenario.steps)
        list(_change_machine(node, scenario.then))
    return node


def _change_machine(node: Node, machines: Iterable[Machine]) -> Iterator[AfterChange]:
    """Change the machine to one after the other and yield the consequences. Raises `InputError` as
    `Node.change_machine`."""
    for machine in machines:
        for one in node.change_machine(machine):
            metadata = node.view.pods[one.pod].spec.metadata if one.pod in node.view.pods else None
            pod = "" if metadata is None else metadata.full_name
            yield AfterChange(one.kind, pod, one.container, str(one.lost), str(one.cpus), one.text)


def start_node(scenario: Scenario, profile: str) -> tuple[Node | None, list[Decision], str]:
    """Return the scenario's node with the pods that run on it, and those of them that it refuses; or the reason why
    there is none."""
    problems = validate(scenario.config, PROFILE_RELEASES[profile])
    if problems:
        return None, [], "; ".join(map(str, problems))
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
        return None, [], error.message
    except UpstreamDefectError as defect:
        return None, [], defect.name
    return node, refused, ""


class _Result(NamedTuple):
    verdict: PodVerdict
    place: Placement


def _judge(ruler: Ruler, pod: Pod, answer: Decision | str) -> _Result:
    """Return the verdict about a pod and its place. `answer`: the decision, or the name of the defect that it meets."""
    metadata = pod.metadata
    if isinstance(answer, str) or not answer.admitted:
        reason = answer if isinstance(answer, str) else answer.reason
        return _Result(_name_verdict(metadata.namespace, metadata.name, reason), NOWHERE)
    place = ruler.measure(pod, answer)
    verdict = _name_verdict(metadata.namespace, metadata.name, "")
    return _Result(
        replace(
            verdict, cross_numa=place.cross_numa, placed=place.placed, cross_cache=place.cross_cache, apart=place.apart
        ),
        place,
    )


def _name_verdict(namespace: str, name: str, reason: str) -> PodVerdict:
    return PodVerdict(f"{namespace or 'default'}/{name}", reason, False)


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
