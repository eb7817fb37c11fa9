"""Pods in the managers' view under a policy: whose containers have exclusive and shared CPUs (docs/mixed.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podslice.api.pod.eligibility import NOBODY_MIXED, AdmissionPod
from podslice.api.pod.mixed import MixedProblem, MixedShare, split_request
from podslice.api.pod.spec import Pod
from podslice.config.annotations import hides_smt, mixed_shares
from podslice.config.policy import PodslicePolicy


def admission_of(
    policy: PodslicePolicy,
    pod: Pod,
    gates: Mapping[str, bool],
    *,
    unmanaged: bool = False,
    known: Mapping[str, MixedShare] = NOBODY_MIXED,
) -> AdmissionPod:
    """The managers' view of a pod. `known`: what containers of it have so already; a policy that says nothing of them
    any more takes nothing away."""
    if policy.mixed is None and not known and not policy.cpu_classes:
        return AdmissionPod.of(pod, gates, unmanaged=unmanaged)
    shares = mixed_shares(policy, pod)
    if known:
        shares = dict(_still_mixed(pod, known)) | shares
    return AdmissionPod.of(pod, gates, unmanaged=unmanaged, mixed=shares, hides_smt=hides_smt(policy, pod))


def _still_mixed(pod: Pod, known: Mapping[str, MixedShare]) -> Iterable[tuple[str, MixedShare]]:
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        had = known.get(container.name)
        share = None if had is None else split_request(container, str(had.exclusive), pod_guaranteed=True)
        if share is not None and not isinstance(share, MixedProblem):
            yield container.name, share


def without_remainder(pods: Iterable[AdmissionPod]) -> int:
    """How many containers have shared CPUs on top of whole ones without asking for a part of one."""
    return sum(one.remainder == 0 for pod in pods if pod.mixed for one in pod.containers)
