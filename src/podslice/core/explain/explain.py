"""One call for everything: the trace of a pod's admission, its story, and for a refused pod the ranked fixes."""

from __future__ import annotations

import msgspec

from podslice.core.errors import UpstreamDefectError
from podslice.core.explain.edits import is_valid
from podslice.core.explain.fix import Fix
from podslice.core.explain.fork import fork
from podslice.core.explain.node_fixes import configurations, empty_node, hugepages, pod_moves, reservations
from podslice.core.explain.pod_fixes import PodFixes
from podslice.core.explain.record import recording
from podslice.core.explain.story import story
from podslice.core.explain.trace import Trace, trace
from podslice.core.explain.verdict import UPSTREAM_DEFECT
from podslice.core.kubelet import Kubelet
from podslice.core.pod.defaults import default_pod
from podslice.core.pod.spec import Pod
from podslice.core.scheduling.predicates import Refusal


class Explanation(msgspec.Struct, frozen=True):
    """The answer for one pod. `story` are sentences; `fixes`, cheapest first, all admit the pod when applied."""

    trace: Trace
    story: tuple[str, ...]
    fixes: tuple[Fix, ...]


def explain(kubelet: Kubelet, pod: Pod, *, fixes: bool = True) -> Explanation:
    """Explain what this node does with a pod. The node is left as it is; the pod need not be on it."""
    pod = default_pod(pod, kubelet.manager.context.gates)
    decision = _trace(kubelet, pod)
    found = find_fixes(kubelet, pod) if fixes and not decision.admitted else []
    return Explanation(decision, tuple(story(decision)), tuple(found))


def find_fixes(kubelet: Kubelet, pod: Pod) -> list[Fix]:
    """Every fix of a refused pod in the searched classes (docs/explain.md), cheapest first.

    A pod that the API server refuses can only be mended by editing it. Where draining the node alone helps, changes
    that need a drained node besides are left out.
    """
    pod = default_pod(pod, kubelet.manager.context.gates)
    found = PodFixes(kubelet, pod).find()
    if is_valid(pod, kubelet.manager.context.gates):
        for search in (pod_moves, empty_node, configurations, hugepages, reservations):
            found += search(kubelet, pod)
    if any(fix.code == "repack" for fix in found):
        found = [fix for fix in found if fix.code == "repack" or not getattr(fix.change, "drained", False)]
    return sorted(found, key=lambda fix: (fix.cost, fix.text))


def _trace(kubelet: Kubelet, pod: Pod) -> Trace:
    copy = fork(kubelet)
    admission = copy.admission(pod)
    with recording(copy) as record:
        try:
            refusal = copy.admit(pod)
        except UpstreamDefectError as defect:
            refusal = Refusal(UPSTREAM_DEFECT, str(defect))
    return trace(copy, admission, record, refusal)
