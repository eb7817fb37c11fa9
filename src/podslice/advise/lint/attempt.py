"""Trials of what a finding advises: the changed pod is admitted on the empty node, before the advice is given."""

from __future__ import annotations

import msgspec

from podslice.advise.lint.subject import PodSubject
from podslice.api.pod.demand import GUARANTEED, compute_qos
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Pod, PodStatus
from podslice.api.server.defaults import default_pod
from podslice.api.server.validate import validate_pod
from podslice.node.decision import Decision
from podslice.values.errors import UpstreamDefectError


def admit_on_empty_node(subject: PodSubject, pod: Pod) -> Decision | None:
    """Return the empty node's answer to a pod; None where there is no node, or where upstream's kubelet hangs or
    crashes."""
    if subject.node is None or subject.node.view is None:
        return None
    try:
        return subject.node.new_node().admit(pod)
    except UpstreamDefectError:
        return None


def helps(subject: PodSubject, edited: Pod, owners: frozenset[str] = frozenset(), *, guaranteed: bool = False) -> bool:
    """Whether the API server and, where it is known, the empty node accept an edited pod, it is Guaranteed if that is
    asked for, and these containers are entitled to exclusive CPUs in it."""
    pod = default_pod(edited, subject.gates)
    if validate_pod(pod, subject.gates):
        return False
    if guaranteed and compute_qos(pod, subject.gates) != GUARANTEED:
        return False
    if owners:
        # A class that the API server has stored is that of the pod before the edit.
        fresh = msgspec.structs.replace(pod, status=PodStatus())
        entitled = {one.name for one in AdmissionPod.of(fresh, subject.gates).containers if one.exclusive_cpus}
        if not owners <= entitled:
            return False
    if subject.node is None or subject.node.view is None:
        return True
    decision = admit_on_empty_node(subject, pod)
    return decision is not None and decision.admitted
