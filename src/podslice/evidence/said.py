"""The status that the kubelet wrote for a pod, against the decision here. The two are never the same sentence."""

from __future__ import annotations

import msgspec

from podslice.api.pod.spec import Pod
from podslice.evidence.contradiction import Contradiction
from podslice.evidence.listed import ENDED
from podslice.values import reasons

_REFUSALS = frozenset(
    {
        reasons.TOPOLOGY_AFFINITY,
        reasons.SMT_ALIGNMENT,
        reasons.EMPTY_POD_SHARED_POOL,
        reasons.UNEXPECTED_ADMISSION,
        reasons.INVALID_NODE_INFO,
        reasons.POD_OS_LABEL,
        reasons.POD_OS,
        reasons.NODE_AFFINITY,
        reasons.NODE_NAME,
        reasons.POD_LEVEL_RESOURCES,
        reasons.INIT_RESTART_POLICY,
        reasons.POD_FEATURE,
        "NodeShutdown",
        "Preempting",
    }
)
"""Reasons with which a kubelet refuses a pod at its admission; see `is_out_of` for the others."""
AGREEMENT = (
    "the machine, the configuration, the devices or the running pods are not as given here, or have changed since"
)
REMEDY = "Give the node's own machine and configuration, and what runs there (--pods, --state)"


class KubeletStatus(msgspec.Struct, frozen=True):
    """The `phase`, `reason` and `message` of a pod's status, as the kubelet wrote them."""

    phase: str
    reason: str = ""
    message: str = ""

    def __str__(self) -> str:
        text = ", ".join(filter(None, (self.phase, self.reason)))
        return f"{text}: {self.message}" if self.message else text


def status_said(pod: Pod) -> KubeletStatus | None:
    """Return what the status of a pod says; None for a pod without one."""
    status = pod.status
    return KubeletStatus(status.phase, status.reason, status.message) if status.phase else None


def was_refused(pod: Pod) -> bool:
    """Whether the kubelet says that it refused the pod at its admission."""
    reason = pod.status.reason
    return pod.status.phase == "Failed" and (reason in _REFUSALS or reasons.is_out_of(reason))


def check_status(pod: Pod, refusal: str | None) -> Contradiction | None:
    """Return where the decision about a pod contradicts its status. `refusal` is the reason with which it is refused
    here, None for a pod that is admitted."""
    said = pod.status
    who = pod.metadata.full_name
    uids = (pod.metadata.uid,) if pod.metadata.uid else ()
    if was_refused(pod) and refusal is None:
        text = f"The kubelet refused {who} with {said.reason}, and here it would be admitted: {AGREEMENT}"
        return Contradiction("refused-but-admitted", "pods", text, REMEDY, uids)
    if was_refused(pod) and refusal != said.reason:
        text = f"The kubelet refused {who} with {said.reason}, and here it would be refused with {refusal}: {AGREEMENT}"
        return Contradiction("refused-otherwise", "pods", text, REMEDY, uids)
    if refusal is not None and said.phase == "Running" and said.phase not in ENDED:
        text = f"The kubelet runs {who}, and here it would be refused with {refusal}: {AGREEMENT}"
        return Contradiction("runs-but-refused", "pods", text, REMEDY, uids)
    return None
