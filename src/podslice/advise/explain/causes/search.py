"""Finding the causes of a refusal: options are computed from the recorded decision, and tried on a copy of the node.

The nearest option comes first. With all its demands relaxed the pod must be admitted, or refused later, in which case
the search goes on from there. A bounded number of trials ends it.
"""

from __future__ import annotations

from typing import NamedTuple

from msgspec.structs import replace

from podslice.advise.explain.causes.cause import Cause, Causes, Holder
from podslice.advise.explain.causes.demands import Demands, Option, whole_core_options
from podslice.advise.explain.causes.shares import Situation, pod_name
from podslice.advise.trial.record import HintRound, Record
from podslice.advise.trial.relax import Relaxation
from podslice.advise.trial.trial import Trial
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Pod
from podslice.config.policy_options import RESTRICTED, SINGLE_NUMA_NODE
from podslice.node.cpu.manager import NOTHING_LEFT
from podslice.node.cpu.picking.picker import SMT_FRACTION, SMT_SHORT, SMT_SIZES
from podslice.node.shared_pool import idle_cpus
from podslice.node.topology.manager import NOT_ALIGNED
from podslice.node.view import NodeView
from podslice.scheduling.predicates import CPU, MEMORY, NODE_TOTAL, TOO_MANY_PODS
from podslice.values.errors import Refusal, RefusalKind, UpstreamDefectError
from podslice.values.reasons import UPSTREAM_DEFECT

_SMT = (SMT_FRACTION, SMT_SHORT, SMT_SIZES)
_BUDGET = ("pod-pool-empty", "over-budget")
DEFECT = RefusalKind("upstream-defect", "{defect}", UPSTREAM_DEFECT)
"""The refusal that stands for a kubelet that hangs or crashes."""
_MOST_TRIALS = 12
_MOST_NEXT = 4


class Refused(NamedTuple):
    """A refused admission as it was recorded."""

    record: Record
    refusal: Refusal

    def is_beyond(self, other: Refused, absent: frozenset[str]) -> bool:
        """Whether this admission came farther than another, without these containers, or failed there for another
        reason."""
        mine, theirs = self._progress(absent), other._progress(absent)
        return mine > theirs or (mine == theirs and self._kind != other._kind)

    @property
    def _kind(self) -> tuple[object, ...]:
        failed = next((one.provider for one in self.record.allocations if one.error), "")
        if failed == "memory":
            # It has many words for one thing: no NUMA nodes were found.
            return (failed,)
        return self.refusal.code, self.refusal.facts.get("cause")

    def _progress(self, absent: frozenset[str]) -> tuple[int, int, bool]:
        """Return how far the admission came; larger is farther."""
        steps = sum(one.container not in absent for one in self.record.steps)
        allocations = sum(one.container not in absent for one in self.record.allocations)
        return steps, allocations, self.refusal.code in (NODE_TOTAL, TOO_MANY_PODS)


class CauseFinder:
    """Finds causes of refusals on one node. `trial` is a copy of it, which is left as it is; `view` the node before the
    pod."""

    def __init__(self, trial: Trial, view: NodeView) -> None:
        self._trial, self._view = trial, view
        self._idle = {one.pod: one for one in idle_cpus(view)}
        self._left = 0

    def find(self, pod: Pod, admission: AdmissionPod, refused: Refused) -> Causes:
        """Return the causes of a refusal, the binding one first."""
        self._left = _MOST_TRIALS
        found: list[Cause] = []
        for option in self._options(admission, refused):
            if self._left <= 0:
                break
            # Beside a rule a shortage alone is shown too: which of the two goes first is the operator's to choose.
            if found and option.codes != {"short"}:
                continue
            cause = self._prove(pod, admission, option, refused, Relaxation(), 0)
            if cause is not None:
                found.append(cause)
                if len(found) > 1 or option.codes == {"short"}:
                    break
        if not found:
            found.append(self._otherwise(pod, admission, refused, Relaxation()))
        return Causes(tuple(found), cut_short=self._left <= 0)

    # Options

    def _options(self, admission: AdmissionPod, refused: Refused) -> list[Option]:
        record, refusal = refused
        if record.failed is not None:
            return self._options_of_failure(admission, refused)
        if refusal.code == NOT_ALIGNED and record.steps:
            return Demands(self._situation(admission, record, record.steps[-1])).options()
        return []

    def _options_of_failure(self, admission: AdmissionPod, refused: Refused) -> list[Option]:
        record = refused.record
        assert record.failed is not None
        last = next(one for one in record.allocations if one.error)
        if refused.refusal.code in _SMT:
            return whole_core_options(self._situation(admission, record, record.failed), refused.refusal)
        if last.provider != "memory":
            return Demands(self._situation(admission, record, record.failed), last.provider).whole()
        merged = record.steps and not record.steps[-1].hints.get("memory")
        if merged and self._view.config.topology_manager_policy in (RESTRICTED, SINGLE_NUMA_NODE):
            # Upstream takes memory that is nowhere for no preference; where it is somewhere, the merge decides.
            return Demands(self._situation(admission, record, record.steps[-1]), binds=True).options()
        return Demands(self._situation(admission, record, record.failed), last.provider).options()

    def _situation(self, admission: AdmissionPod, record: Record, step: HintRound) -> Situation:
        return Situation(self._view, admission, record, step, self._idle, self._trial.withheld_cpus)

    # Trials

    def _prove(
        self,
        pod: Pod,
        admission: AdmissionPod,
        option: Option,
        refused: Refused,
        before: Relaxation,
        depth: int,
    ) -> Cause | None:
        """Return the causes of an option as a chain, if with all of them relaxed the admission comes farther."""
        relaxation = before | option.relaxation
        outcome = self.attempt(pod, relaxation)
        absent = relaxation.absent
        if outcome is not None and not outcome.is_beyond(refused, absent):
            return None
        if not self._is_least(pod, option, before, outcome, refused):
            return None
        following = None
        if outcome is not None:
            following = self._next(pod, admission, outcome, relaxation, depth + 1)
        chain = following
        for demand in reversed(option.demands):
            chain = replace(demand.cause, next=chain, proven=outcome is None or following is not None)
        return chain

    def _is_least(
        self, pod: Pod, option: Option, before: Relaxation, outcome: Refused | None, refused: Refused
    ) -> bool:
        """Whether one less of any amount is not enough. With more free, an earlier container of the pod may go
        elsewhere, and less may do for this one."""
        container = (refused.record.failed or refused.record.steps[-1]).container
        if all(one.container == container for one in refused.record.allocations):
            return True
        for relaxation in option.almost:
            less = self.attempt(pod, before | relaxation)
            if less is None or (outcome is not None and not outcome.is_beyond(less, relaxation.absent)):
                return False
        return True

    def _next(
        self, pod: Pod, admission: AdmissionPod, refused: Refused, before: Relaxation, depth: int
    ) -> Cause | None:
        if depth < _MOST_NEXT:
            for option in self._options(admission, refused):
                if self._left <= 0:
                    break
                cause = self._prove(pod, admission, option, refused, before, depth)
                if cause is not None:
                    return cause
        return self._otherwise(pod, admission, refused, before)

    def _otherwise(self, pod: Pod, admission: AdmissionPod, refused: Refused, before: Relaxation) -> Cause:
        """Return the cause where no option was proven: earlier containers would go where more is free, or no trial can
        tell."""
        options = self._options(admission, refused)
        earlier = frozenset(one.container for one in refused.record.allocations if one.container is not None)
        container = (refused.record.failed or refused.record.steps[-1]).container if options else None
        if container is not None and earlier - {container} and self._left > 0:
            first = next((one.cause for one in options[0].demands if one.code in ("short", "own-containers")), None)
            relaxation = before | options[0].relaxation | Relaxation(absent=earlier - {container})
            outcome = self.attempt(pod, relaxation)
            if first is not None and (outcome is None or outcome.is_beyond(refused, relaxation.absent)):
                return replace(first, code="own-containers", facts=("first",), proven=True)
        return self._without_trial(admission, refused, possible=bool(options))

    def attempt(self, pod: Pod, relaxation: Relaxation) -> Refused | None:
        """Admit the pod with constraints relaxed; return the refusal, None if it is admitted."""
        self._left -= 1
        if relaxation.absent:
            pod = _without_containers(pod, relaxation.absent)
        with self._trial.relaxing(relaxation), self._trial.recording() as record:
            try:
                refusal = self._trial.admit(pod)
            except UpstreamDefectError as defect:
                refusal = Refusal(DEFECT, {"defect": defect.sentence, "name": defect.name})
        return None if refusal is None else Refused(record, refusal)

    # Causes that need no trial

    def _without_trial(self, admission: AdmissionPod, refused: Refused, *, possible: bool) -> Cause:
        """Return the cause that the refusal itself names. `possible`: some set of NUMA nodes could do."""
        refusal, record = refused.refusal, refused.record
        facts = refusal.facts
        if refusal.code in (NODE_TOTAL, TOO_MANY_PODS):
            return self._total(admission, refusal)
        if refusal.kind == DEFECT:
            return Cause("defect", None, rule=str(refusal.facts["name"]), facts=(refusal.message,), proven=True)
        pool = self._view.empty_pool(admission)
        if pool is not None and refusal.code not in _SMT:
            return Cause("pod-budget", None, pool.resource, rule="spec.resources", facts=(str(pool),), proven=True)
        container = record.failed.container if record.failed else record.steps[-1].container if record.steps else None
        if facts.get("cause") in _BUDGET or refusal.code in _BUDGET:
            text = str(facts.get("problem", refusal.message)).removeprefix("[memorymanager] ")
            return Cause(
                "pod-budget", None, str(facts.get("resource", "")), rule="spec.resources", facts=(text,), proven=True
            )
        if admission.managed and record.failed is not None and facts.get("cause") == "not-enough-cpus":
            need, free = (int(str(facts[key])) for key in ("requested", "available"))
            return Cause(
                "pod-budget",
                None,
                "cpu",
                None,
                need,
                free,
                admission.cpus,
                need - free,
                "CPUs",
                (),
                "spec.resources",
                proven=True,
            )
        if NOTHING_LEFT.code in (refusal.code, facts.get("cause")):
            return Cause("node-pool", container, "cpu", rule="strict-cpu-reservation", proven=True)
        if record.failed is not None or (refusal.code == NOT_ALIGNED and record.steps):
            step = record.failed or record.steps[-1]
            last = next((one.provider for one in record.allocations if one.error), "")
            demands = Demands(self._situation(admission, record, step), last)
            cause = None if possible else demands.impossible()
            if cause is not None:
                return cause
            if last == "memory" and not demands.columns:
                # A defect of v1.36.2: it looks for a place for no memory at all, and finds more than one.
                why = (f"v1.36.2 looks for NUMA nodes for container {container}, which has no memory of its own",)
                return Cause("defect", container, rule="shared_containers_need_memory", facts=why, proven=True)
            return Cause("unknown", container, facts=(refusal.message,))
        return Cause("rule", container, rule=refusal.code, facts=(refusal.message,), proven=True)

    def _total(self, admission: AdmissionPod, refusal: Refusal) -> Cause:
        """Return the cause of a refusal by what all pods request together."""
        facts = refusal.facts
        name = str(facts["resource"])
        need, used, capacity = (int(str(facts[key])) for key in ("requested", "used", "capacity"))
        counted = refusal.code == TOO_MANY_PODS
        holders = []
        for one in self._trial.others(admission.uid).pods:
            uid = one.pod.metadata.uid
            amount = 1 if counted else one.taken.get(name, 0)
            if amount:
                holders.append(Holder("pod", amount, pod_name(self._view, uid), uid))
        return Cause(
            "pod-count" if counted else "node-total",
            None,
            name,
            None,
            need,
            capacity - used,
            capacity,
            need - (capacity - used),
            "pods" if counted else "milliCPUs" if name == CPU else "bytes" if _is_bytes(name) else "devices",
            tuple(sorted(holders, key=lambda one: (-one.amount, one.name))),
            "maxPods" if counted else "allocatable",
            proven=True,
        )


def _is_bytes(name: str) -> bool:
    return name in (MEMORY, "ephemeral-storage") or name.startswith("hugepages-")


def _without_containers(pod: Pod, names: frozenset[str]) -> Pod:
    """Return a pod without some of its containers."""
    init, rest = (
        tuple(one for one in group if one.name not in names)
        for group in (pod.spec.init_containers, pod.spec.containers)
    )
    return replace(pod, spec=replace(pod.spec, init_containers=init, containers=rest))
