"""What a resize does to exclusive CPUs, and what it may not do (docs/resize.md).

Upstream grants such resizes under the gate InPlacePodVerticalScalingExclusiveCPUs and leaves every container the CPUs
it had (quirk `resize_keeps_old_cpus`); KEP-5554, which would change that, is not merged.
"""

from __future__ import annotations

from collections.abc import Mapping

from podslice.core.allocate.picker import check_smt_alignment
from podslice.core.allocate.pod_level import check_shared_pool
from podslice.core.config.policy import ExclusiveResize
from podslice.core.errors import AdmissionError
from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.quirks import PODSLICE
from podslice.core.resize.allocation import INFEASIBLE, ResizeVerdict
from podslice.core.values.cpuset import Bits, format_bits

_MOVES = ResizeVerdict(
    INFEASIBLE, "resize would move the container between shared and exclusive CPUs", "eligibility_change"
)
_POD_MOVES = ResizeVerdict(
    INFEASIBLE, "resize would move the pod between shared and exclusive CPUs", "eligibility_change"
)


def check_exclusive(
    allocated: AdmissionPod,
    desired: AdmissionPod,
    promised: Mapping[str, Bits],
    policy: ExclusiveResize,
    *,
    bubble: Bits | None,
    core_size: int,
) -> ResizeVerdict | None:
    """Why the new sizes can never be granted; None where it is for the free CPUs to decide. `promised` are the
    containers' baselines, `bubble` is the pod's if it has one, `core_size` the CPUs that can only be given together.
    """
    if bubble is not None:
        verdict = _check_bubble(allocated, desired, bubble, policy, core_size)
        if verdict is not None:
            return verdict
    before = {container.name: container.exclusive_cpus for container in allocated.containers}
    for container in desired.containers:
        was, wants = before.get(container.name, 0), container.exclusive_cpus
        if was == wants:
            continue
        verdict = (
            _check_size(wants, promised.get(container.name, 0), policy, core_size)
            if was and wants
            else _check_move(was, policy)
        )
        if verdict is not None:
            return verdict
    return None


def _check_bubble(
    allocated: AdmissionPod, desired: AdmissionPod, promised: Bits, policy: ExclusiveResize, core_size: int
) -> ResizeVerdict | None:
    if not desired.cpus:
        return _POD_MOVES
    verdict = None if desired.cpus == allocated.cpus else _check_size(desired.cpus, promised, policy, core_size)
    if verdict is not None:
        return verdict
    try:
        check_shared_pool(desired, PODSLICE)
    except AdmissionError as error:
        return ResizeVerdict(INFEASIBLE, error.message, "empty_pod_pool")
    return None


def _check_move(was: int, policy: ExclusiveResize) -> ResizeVerdict | None:
    allowed = policy.eligibility_change == "allow" and (not was or policy.below_baseline == "allow")
    return None if allowed else _MOVES


def _check_size(wants: int, promised: Bits, policy: ExclusiveResize, core_size: int) -> ResizeVerdict | None:
    if wants < promised.bit_count() and policy.below_baseline != "allow":
        return ResizeVerdict(INFEASIBLE, _below(promised), "below_baseline")
    try:
        check_smt_alignment(wants, wants, core_size)
    except AdmissionError as error:
        return ResizeVerdict(INFEASIBLE, error.message, "smt_alignment")
    return None


def _below(promised: Bits) -> str:
    return (
        f"cannot take exclusive CPUs below the {promised.bit_count()} promised at admission ({format_bits(promised)})"
    )
