"""Pods as the managers see them under a policy, with the containers that have exclusive and shared CPUs
(docs/policy.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from podslice.api.pod.eligibility import NO_MIXED_SHARES, AdmissionPod
from podslice.api.pod.mixed import MixedProblem, MixedShare, split_request
from podslice.api.pod.spec import Pod
from podslice.config.annotations import containers_hiding_smt, mixed_shares
from podslice.config.policy import PodslicePolicy
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT


def make_admission_pod(
    policy: PodslicePolicy,
    pod: Pod,
    gates: Mapping[str, bool],
    *,
    unmanaged: bool = False,
    known: Mapping[str, MixedShare] = NO_MIXED_SHARES,
    release: Release = DEFAULT,
) -> AdmissionPod:
    """Return the managers' view of a pod. `known`: mixed shares that its running containers already have; they stay,
    even where the policy no longer grants them."""
    if policy.mixed is None and not known and not policy.cpu_classes:
        return AdmissionPod.of(pod, gates, unmanaged=unmanaged, release=release)
    shares = mixed_shares(policy, pod)
    if known:
        # A share of the current policy wins over the recorded one.
        shares = dict(_keep_mixed(pod, known)) | shares
    hiding = containers_hiding_smt(policy, pod)
    return AdmissionPod.of(pod, gates, unmanaged=unmanaged, mixed=shares, hides_smt=hiding, release=release)


def _keep_mixed(pod: Pod, known: Mapping[str, MixedShare]) -> Iterable[tuple[str, MixedShare]]:
    """Yield the shares of containers that had exclusive and shared CPUs and whose request still allows the split."""
    for container in (*pod.spec.init_containers, *pod.spec.containers):
        had = known.get(container.name)
        share = None if had is None else split_request(container, str(had.exclusive), pod_guaranteed=True)
        if share is not None and not isinstance(share, MixedProblem):
            yield container.name, share


def count_without_remainder(pods: Iterable[AdmissionPod]) -> int:
    """Count the containers that have shared CPUs on top of whole ones without requesting a part of a CPU."""
    return sum(one.remainder == 0 for pod in pods if pod.mixed for one in pod.containers)
