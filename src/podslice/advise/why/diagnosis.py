"""Find out why a pod is as it is: what was reported of it, and for a refusal its admission once more.

A refusal is repeated on the node as it was at that time, as far as is known: without the pods that started later. What
the kubelet said and what podslice expects are kept apart; where they differ, the difference is the answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from podslice.advise.explain.codes import ELIGIBILITY, REFUSALS
from podslice.advise.explain.explain import Explanation, explain
from podslice.advise.explain.fixes.doubt import without_doubtful_fixes
from podslice.advise.explain.fixes.fix import Fix
from podslice.advise.why.reported import ReportedContainer, ReportedPod
from podslice.api.pod.class_edits import find_spoiled, spoiled_sentences
from podslice.api.pod.spec import Pod
from podslice.evidence.contradiction import Contradiction
from podslice.node.effects.quota_words import quota_sentence
from podslice.node.node import Node
from podslice.node.shared_pool import describe_pool
from podslice.values import reasons
from podslice.values.cpuset import format_bits
from podslice.values.quantity import plural

REFUSED, OTHERWISE, UNEXPLAINED = "refused", "refused-otherwise", "unexplained"
UNSCHEDULED, WAITING, CRASHING, RUNS, ENDED = "unscheduled", "waiting", "crashing", "runs", "ended"
CODES = {
    REFUSED: "the kubelet refused the pod, and podslice says why",
    OTHERWISE: "the kubelet refused the pod, podslice expects another reason",
    UNEXPLAINED: "the kubelet refused the pod, podslice would admit it: something about the node is not known",
    UNSCHEDULED: "the scheduler found no node",
    WAITING: "the kubelet admitted the pod, and its containers wait",
    CRASHING: "a container ends and is started again",
    RUNS: "the pod runs",
    ENDED: "the pod has ended",
}
_ADMISSION = frozenset(
    (
        reasons.TOPOLOGY_AFFINITY,
        reasons.SMT_ALIGNMENT,
        reasons.UNEXPECTED_ADMISSION,
        reasons.EMPTY_POD_SHARED_POOL,
        reasons.EMPTY_NODE_SHARED_POOL,
        reasons.INVALID_NODE_INFO,
        reasons.NODE_AFFINITY,
        reasons.NODE_NAME,
        reasons.POD_OS,
        reasons.POD_OS_LABEL,
        reasons.POD_LEVEL_RESOURCES,
        reasons.POD_FEATURE,
        reasons.INIT_RESTART_POLICY,
        reasons.CPU_CLASS_UNAVAILABLE,
        reasons.INVALID_ANNOTATION,
    )
)
_NOT_REPEATED = frozenset(
    (reasons.NODE_AFFINITY, reasons.NODE_NAME, reasons.POD_OS, reasons.POD_OS_LABEL, reasons.INVALID_NODE_INFO)
)
_NO_REPETITION = "podslice does not repeat this check, which is about labels and names, not CPUs, memory or devices."
_UNCERTAIN = (
    "Which pods to restart, and how many CPUs would fit, is not said: who owns which CPUs is assumed. podslice capture "
    "fetches it, as does kubectl podslice why --capture."
)
_LOOK = "Look on the node: kubectl podslice why --capture, or podslice capture there; what is not known stands below."
_RESTS_ON_OWNERS = frozenset(("shrink", "shrink-together", "shrink-both"))
"""Classes of fixes whose amounts are what is free on some NUMA node."""
_MOST_NAMES = 3
_SECONDS = len("2026-11-27T09:00:00")
_WAITING_IS_USUAL = frozenset(("", "ContainerCreating", "PodInitializing"))


class Diagnosis(NamedTuple):
    """`code` is one of `CODES`, `cause` the answer in a sentence, `evidence` what it follows from, `advice` what to do.
    `then` is the admission on the node as it was when the kubelet refused the pod, `now` on the node as it is; None
    where it was not repeated."""

    code: str
    cause: str
    evidence: tuple[str, ...]
    advice: tuple[str, ...] = ()
    then: Explanation | None = None
    now: Explanation | None = None


class Asked(NamedTuple):
    """A pod with what was reported of it, and `others` of its node. `certain`: machine and owners of CPUs are known,
    and not assumed; `contradictions` are what is known to be in doubt."""

    pod: Pod
    reported: ReportedPod
    others: Sequence[ReportedPod] = ()
    certain: bool = True
    contradictions: Sequence[Contradiction] = ()


def diagnose(node: Node | None, asked: Asked, *, fixes: bool = True) -> Diagnosis:
    """Return why a pod is as it is. `node` is the one that it was bound to, or that is asked instead; without one only
    what was reported counts."""
    reported = asked.reported
    if is_refused(reported):
        return _refusal(node, asked, fixes=fixes)
    if not reported.node and reported.phase in ("", "Pending"):
        return _unscheduled(node, asked, fixes=fixes)
    if reported.phase in ("Failed", "Succeeded"):
        return _ended(reported)
    return _admitted(node, asked)


def is_refused(reported: ReportedPod) -> bool:
    """Whether a kubelet refused to admit the pod."""
    refused = reported.reason in _ADMISSION or reasons.is_out_of(reported.reason)
    return reported.phase == "Failed" and refused


# Refused by the kubelet


def _refusal(node: Node | None, asked: Asked, *, fixes: bool) -> Diagnosis:
    reported = asked.reported
    said = f"The kubelet of {reported.node or 'its node'} refused {reported.title} with {reported.reason}"
    quoted = f"The kubelet said{_at(reported.started)}: {reported.reason}: {reported.message or '(no message)'}"
    if node is None:
        return Diagnosis(REFUSED, f"{said}: {reported.message}", (quoted,))
    if reported.reason in _NOT_REPEATED:
        return Diagnosis(REFUSED, f"{said}: {reported.message}", (quoted, _NO_REPETITION))
    later = started_after(asked)
    then = _explain(node, asked, {one.uid for one in later}, fixes=fixes)
    now = _explain(node, asked, (), fixes=fixes) if later else then
    evidence = [quoted, *then.why[1:], *_difference(then, now, later)]
    if then.trace.admitted:
        return _unexplained(said, asked, evidence, then, now)
    same, text = then.trace.reason == reported.reason, refusal_text(then, certain=asked.certain)
    cause = f"{said}: {text}." if same else (
        f"{said}, and podslice expects {then.trace.reason} there: {text}."
    )  # fmt: skip
    code = REFUSED if same else OTHERWISE
    return Diagnosis(code, cause, tuple(evidence), _advice(node, asked, now), then, now)


def started_after(asked: Asked) -> list[ReportedPod]:
    """Return the running pods of the node that started after the kubelet refused the pod."""
    moment = asked.reported.started[:_SECONDS]
    return [
        one
        for one in asked.others
        if moment and one.started[:_SECONDS] > moment and one.uid != asked.reported.uid and not _is_over(one)
    ]


def _is_over(reported: ReportedPod) -> bool:
    return reported.phase in ("Failed", "Succeeded")


def _explain(node: Node, asked: Asked, without: Collection[str], *, fixes: bool) -> Explanation:
    """Explain the pod on a copy of the node. Where it is assumed who owns what, fixes that name pods or free amounts
    are left out: they would name the wrong ones."""
    copy = node.copy()
    for uid in [uid for uid in copy.pods if uid in without or uid == asked.pod.metadata.uid]:
        copy.remove(uid)
    found = explain(copy, asked.pod, fixes=fixes)
    if fixes:
        found = without_doubtful_fixes(found, asked.contradictions)
    if asked.certain:
        return found
    return msgspec.structs.replace(found, fixes=tuple(fix for fix in found.fixes if not _rests_on_owners(fix)))


def _rests_on_owners(fix: Fix) -> bool:
    return fix.code in _RESTS_ON_OWNERS or bool(getattr(fix.change, "uids", ()))


def refusal_text(explanation: Explanation, *, certain: bool = True) -> str:
    """Return the binding cause of a refusal with its numbers, without a full stop; `certain` as in `Asked`."""
    if not explanation.why:
        text, message = REFUSALS[explanation.trace.code], explanation.trace.message
        return f"{text} ({message})" if message else text
    return f"{'' if certain else 'as assumed, '}{explanation.why[0].rstrip('.')}"


def _difference(then: Explanation, now: Explanation, later: Sequence[ReportedPod]) -> Iterator[str]:
    if later:
        yield f"podslice, on the node as it was then ({names_of(later)} started later): {_verdict(then)}."
    alone = "" if later else ", on which no pod started later"
    yield f"podslice, on the node as it is now{alone}: {_verdict(now)}."


def _verdict(explanation: Explanation) -> str:
    return "admitted" if explanation.trace.admitted else f"refused with {explanation.trace.reason}"


def _unexplained(said: str, asked: Asked, evidence: list[str], then: Explanation, now: Explanation) -> Diagnosis:
    reported = asked.reported
    gone = [
        one for one in asked.others
        if _is_over(one) and one.uid != reported.uid and not is_refused(one)
        and one.started[:_SECONDS] <= reported.started[:_SECONDS] <= one.ended[:_SECONDS]
    ]  # fmt: skip
    if gone:
        evidence.append(f"{names_of(gone)} ran then, and is not counted, because it has ended since.")
    cause = f"{said}, and podslice would admit it: the node is, or was then, not as it is described here."
    advice = ("As the node is now it would be admitted.", *_again(reported)) if now.trace.admitted else ()
    return Diagnosis(UNEXPLAINED, cause, tuple(evidence), advice if asked.certain else (_LOOK,), then, now)


def _advice(node: Node, asked: Asked, now: Explanation) -> tuple[str, ...]:
    if now.trace.admitted:
        return ("Now it would be admitted.", *_again(asked.reported))
    commands: dict[str, str] = {}
    for fix in now.fixes:
        for text, command in _commands(node, fix):
            commands.setdefault(command, text)
    if not asked.certain:
        return (_UNCERTAIN,)
    lines = [f"{text}: {command}" for command, text in commands.items()]
    return (*lines, *_again(asked.reported)) if lines else ()


def _again(reported: ReportedPod) -> Iterator[str]:
    delete = f"kubectl delete pod -n {reported.namespace} {reported.name}"
    # Nothing tries a Failed pod again.
    then = f"its {reported.owner} makes a new one" if reported.owner else "create it again"
    yield f"The refused pod itself stays refused; delete it, and {then}: {delete}"


def _commands(node: Node, fix: Fix) -> Iterator[tuple[str, str]]:
    """Yield text and command of a fix that removes pods."""
    pods = [node.view.pods[uid].spec.metadata for uid in getattr(fix.change, "uids", ()) if uid in node.view.pods]
    if pods and not getattr(fix.change, "drained", False):
        yield fix.text, "; ".join(f"kubectl delete pod -n {one.namespace or 'default'} {one.name}" for one in pods)


# Not refused


def _unscheduled(node: Node | None, asked: Asked, *, fixes: bool) -> Diagnosis:
    reported = asked.reported
    cause = f"{reported.title} has no node: {reported.unscheduled or 'no scheduler has tried it yet'}"
    if node is None:
        return Diagnosis(UNSCHEDULED, cause, ())
    now = _explain(node, asked, (), fixes=fixes)
    text = "" if now.trace.admitted else f": {refusal_text(now, certain=asked.certain)}"
    line = f"podslice, on the node {node.view.machine.name or 'that is given'}: {_verdict(now)}{text}."
    return Diagnosis(UNSCHEDULED, cause, (line,), (), None, now)


def _ended(reported: ReportedPod) -> Diagnosis:
    why = ": ".join(filter(None, (reported.reason, reported.message)))
    ends = [one for one in reported.containers if one.state == "terminated"]
    text = why or "; ".join(map(_end_text, ends)) or "no reason is given"
    return Diagnosis(ENDED, f"{reported.title} has ended ({reported.phase}): {text}", tuple(map(_end_text, ends)))


def _end_text(one: ReportedContainer) -> str:
    code = "" if one.exit_code is None else f" with exit code {one.exit_code}"
    return f"container {one.name} ended{code} ({one.reason or 'no reason'})"


def _admitted(node: Node | None, asked: Asked) -> Diagnosis:
    """Return the answer for a pod that its kubelet did not refuse."""
    reported = asked.reported
    evidence = tuple(_placement(node, asked)) if node is not None else ()
    where = f"on {reported.node}" if reported.node else "on its node"
    crashing = next((one for one in reported.containers if one.reason == "CrashLoopBackOff"
                     or (one.restarts and one.state != "running")), None)  # fmt: skip
    if crashing is not None:
        last = crashing.last or crashing.reason
        code = "" if crashing.exit_code is None else f", exit code {crashing.exit_code}"
        often = plural(crashing.restarts, "time")
        cause = f"{reported.title} was admitted {where}; container {crashing.name} ended {often} ({last}{code})"
        return Diagnosis(CRASHING, cause, evidence)
    waiting = [one for one in reported.containers if one.state == "waiting"]
    if waiting or reported.phase == "Pending":
        # The container that waits for something of its own says more than one that waits for it.
        first = min(waiting, key=lambda one: one.reason in _WAITING_IS_USUAL, default=None)
        text = ": ".join(filter(None, (first.reason, first.message))) if first is not None else "no container yet"
        who = f"container {first.name} waits" if first is not None else "it waits"
        return Diagnosis(WAITING, f"{reported.title} is {where} and was not refused; {who}: {text}", evidence)
    return Diagnosis(RUNS, f"{reported.title} runs {where}", evidence)


def _placement(node: Node, asked: Asked) -> Iterator[str]:
    """Yield the CPUs of a pod's containers on the node, and why some own none."""
    view, uid = node.view, asked.pod.metadata.uid
    there = view.pods.get(uid)
    if there is None:
        yield "The node as it is described here does not have the pod."
        return
    # Who spoils the class, what throttles whom and who has the other CPUs is what people ask about a pod that runs.
    spoiled = find_spoiled(there.spec, view.gates) if view.pins_cpus else None
    if spoiled is not None:
        yield from spoiled_sentences(spoiled)
    facts = {one.name: one.eligibility for one in _explain(node, asked, (), fixes=False).trace.containers}
    for container in there.containers:
        owned = view.assignment(uid, container.name)
        if owned is None:
            why = ELIGIBILITY.get(facts.get(container.name, ""), "it owns none")
            yield f"Container {container.name} has no CPUs of its own: {why}."
            continue
        if not asked.certain:
            yield f"Container {container.name} owns {plural(owned.bit_count(), 'CPU')}; which ones is not known."
            continue
        nodes = ", ".join(str(number) for number, cpus in sorted(view.topology.numa_nodes.items()) if cpus & owned)
        yield f"Container {container.name} owns CPUs {format_bits(owned)} on NUMA {nodes}."
    owners = [one.name for one in there.containers if view.assignment(uid, one.name) and not one.shares]
    if quota := quota_sentence(there.spec, view.gates, view.release, owners, cfs_quota=view.config.cpu_cfs_quota):
        yield quota
    if view.pins_cpus and not owners and asked.certain and (pool := describe_pool(view)):
        yield f"{pool}."


def names_of(pods: Iterable[ReportedPod]) -> str:
    """Return the names of some pods."""
    names = [one.title for one in pods]
    return ", ".join(names[:_MOST_NAMES]) + (
        f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    )


def _at(moment: str) -> str:
    return f" at {moment}" if moment else ""
