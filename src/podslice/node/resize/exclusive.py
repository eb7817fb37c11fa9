"""Rules for resizes of exclusive CPUs (docs/resize.md).

Upstream grants such resizes under the gate InPlacePodVerticalScalingExclusiveCPUs and leaves every container the CPUs
it had (quirk `resize_keeps_old_cpus`); KEP-5554, which would change that, is not merged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.api.pod.eligibility import AdmissionPod
from podslice.config.annotations import ResizeRequest
from podslice.config.policy import ExclusiveResize
from podslice.node.cpu.picking.picker import check_smt_alignment
from podslice.node.cpu.pod_level import check_shared_pool
from podslice.node.resize.allocation import INFEASIBLE, ResizeVerdict
from podslice.values.cpuset import Bits, format_bits
from podslice.values.errors import AdmissionError
from podslice.values.quirks import PODSLICE

SMT_ALIGNMENT = "smt_alignment"
"""Detail of a resize that requests part of a core under `full-pcpus-only`."""


class ResizeRules(NamedTuple):
    """The policy's rules for resizes, and the pod's own requests beside them."""

    policy: ExclusiveResize
    request: ResizeRequest = ResizeRequest()

    def may_shrink_below(self, container: str) -> bool:
        """Whether a container may give up CPUs promised to it."""
        return self.policy.below_baseline == "allow" or container in self.request.below

    @property
    def pod_may_shrink_below(self) -> bool:
        """Whether a pod with pod CPUs may give up promised ones."""
        return self.policy.below_baseline == "allow" or self.request.pod_below

    def may_move(self, container: str, was: int) -> bool:
        """Whether a container may change between shared and exclusive CPUs; `was`: the number of CPUs it owns."""
        return self.policy.eligibility_change == "allow" and (not was or self.may_shrink_below(container))


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
    rules: ResizeRules,
    *,
    whole: bool,
    pod_cpus: Bits | None,
    core_size: int,
) -> ResizeVerdict | None:
    """Return why the new sizes can never be granted; None where the free CPUs decide. `promised` are the containers'
    baselines. `whole`: the pod gets its CPUs as one, and its containers only parts of those; `pod_cpus` is the baseline
    of its pod CPUs, if it has some. CPUs are given in multiples of `core_size` only."""
    if whole and bool(allocated.cpus) != bool(desired.cpus):
        return _POD_MOVES
    if whole and not desired.cpus:
        return None
    if pod_cpus is not None:
        verdict = _check_pod_cpus(allocated, desired, pod_cpus, rules, core_size)
        if verdict is not None:
            return verdict
    before = {container.name: container.exclusive_cpus for container in allocated.containers}
    for container in desired.containers:
        was, wants = before.get(container.name, 0), container.exclusive_cpus
        if was == wants:
            continue
        # A growth is checked as well: it must be whole cores under `full-pcpus-only`.
        verdict = None
        if was and wants:
            below = rules.may_shrink_below(container.name)
            verdict = _check_size(wants, promised.get(container.name, 0), core_size, below=below)
        elif not rules.may_move(container.name, was):
            verdict = _MOVES
        if verdict is not None:
            return verdict
    return None


def _check_pod_cpus(
    allocated: AdmissionPod, desired: AdmissionPod, promised: Bits, rules: ResizeRules, core_size: int
) -> ResizeVerdict | None:
    """As `check_exclusive`, for a pod that gets its CPUs as a whole. `promised` is the baseline of its pod CPUs."""
    verdict = None
    if desired.cpus != allocated.cpus:
        verdict = _check_size(desired.cpus, promised, core_size, below=rules.pod_may_shrink_below)
    if verdict is not None:
        return verdict
    # Containers that share the pod's pool would be left without any CPU.
    try:
        check_shared_pool(desired, PODSLICE)
    except AdmissionError as error:
        return ResizeVerdict(INFEASIBLE, error.message, "empty_pod_pool")
    return None


def _check_size(wants: int, promised: Bits, core_size: int, *, below: bool) -> ResizeVerdict | None:
    """Return why a size is never granted: below the promise, or no whole cores."""
    if wants < promised.bit_count() and not below:
        return ResizeVerdict(INFEASIBLE, _below_text(promised), "below_baseline")
    try:
        check_smt_alignment(wants, wants, core_size)
    except AdmissionError as error:
        return ResizeVerdict(INFEASIBLE, error.message, SMT_ALIGNMENT)
    return None


def _below_text(promised: Bits) -> str:
    return (
        f"cannot take exclusive CPUs below the {promised.bit_count()} promised at admission ({format_bits(promised)})"
    )
