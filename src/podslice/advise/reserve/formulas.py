"""Formulas by which providers of Kubernetes reserve resources on their nodes, as they publish them.

None of them knows NUMA nodes or the static CPU Manager, which keeps whole CPUs; `advise.reserve.advise` turns these
amounts into advice for a machine.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

import msgspec

from podslice.values.errors import InputError, did_you_mean

MIB, GIB = 1 << 20, 1 << 30
_EVICTION = 100 * MIB
_OLD_EVICTION = 750 * MIB


class Formula(NamedTuple):
    """A provider's rule. `cpu` returns millicores for a number of CPUs, `memory` bytes for a machine's bytes and its
    pods; `eviction` is the hard eviction threshold for memory in bytes, `source` the address of its publication."""

    name: str
    title: str
    cpu: Callable[[int], float]
    memory: Callable[[int, int], float]
    eviction: int
    source: str


def _steps(amount: float, steps: Sequence[tuple[float, float]]) -> float:
    """Return a share of each part of an amount; the last part has no end."""
    total = 0.0
    for size, share in steps:
        part = min(amount, size)
        total += part * share
        amount -= part
    return total


def _gke_cpu(cpus: int) -> float:
    return 1000 * _steps(cpus, ((1, 0.06), (1, 0.01), (2, 0.005), (float("inf"), 0.0025)))


def _gke_memory(memory: int, _: int) -> float:
    if memory < GIB:
        return 255 * MIB
    parts = ((4, 0.25), (4, 0.20), (8, 0.10), (112, 0.06), (float("inf"), 0.02))
    return _steps(memory, [(size * GIB, share) for size, share in parts])


def _eks_memory(_: int, pods: int) -> float:
    return (255 + 11 * pods) * MIB


_AKS = ((1, 60), (2, 100), (4, 140), (8, 180), (16, 260), (32, 420), (64, 740))


def _aks_cpu(cpus: int) -> float:
    """Interpolate linearly between two lines of the published table; beyond it on the last line."""
    at = min(max(bisect_left([size for size, _ in _AKS], cpus), 1), len(_AKS) - 1)
    (low, least), (high, most) = _AKS[at - 1], _AKS[at]
    return least + (most - least) * (cpus - low) / (high - low)


def _aks_memory(memory: int, pods: int) -> float:
    return min((20 * pods + 50) * MIB, memory / 4)


def _openshift_cpu(cpus: int) -> float:
    return 60 + 12 * (cpus - 1)


def _on_prem_cpu(cpus: int) -> float:
    return 80 + 10 * cpus


def _on_prem_memory(memory: int, _: int) -> float:
    return 280 * MIB + memory * 0.05


_GKE = "https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes"
_EKS = "https://github.com/awslabs/amazon-eks-ami"
_AKS_PAGE = "https://learn.microsoft.com/azure/aks/node-resource-reservations"
_OPENSHIFT = "https://github.com/openshift/machine-config-operator"
_ON_PREM = "https://cloud.google.com/anthos/clusters/docs/on-prem/1.5/how-to/resources-available-pods"

FORMULAS: dict[str, Formula] = {
    one.name: one
    for one in (
        Formula("gke", "GKE, OKE", _gke_cpu, _gke_memory, _EVICTION, _GKE),
        Formula("eks", "EKS", _gke_cpu, _eks_memory, _EVICTION, _EKS),
        Formula("aks", "AKS from 1.29", _aks_cpu, _aks_memory, _EVICTION, _AKS_PAGE),
        Formula("aks-1.28", "AKS to 1.28", _aks_cpu, _gke_memory, _OLD_EVICTION, _AKS_PAGE),
        Formula("openshift", "OpenShift", _openshift_cpu, _gke_memory, _EVICTION, _OPENSHIFT),
        Formula("onprem", "GKE on-prem", _on_prem_cpu, _on_prem_memory, _EVICTION, _ON_PREM),
    )
}
AUTO = "auto"
"""What was measured, where that is given; else the CPU of `gke` and the memory of `eks`, which grows with the number of
pods as the system's need does. Never less than the node keeps today."""
MAX = "max"
"""The most that any formula reserves, and what was measured."""
DEFAULT = AUTO
_MEASURE = "give --measured DIR, the state directory of an agent that has measured for a day, or --from-metrics FILE"
MEASURED = "measured"
"""The measured use of the system of this very node."""
NAMES = (AUTO, MAX, *FORMULAS)
CHOICES = (*NAMES, MEASURED)
KEPT = "kept today"
"""The origin of an amount that is the present configuration's."""


class ReservedAmounts(NamedTuple):
    """Millicores, and bytes in whole MiB. `origins`: where each of them comes from: the title of a formula, `measured`,
    or `kept today`."""

    milli_cpu: int
    memory: int
    eviction: int
    origins: tuple[str, str, str]

    @property
    def total_memory(self) -> int:
        """Return the bytes that no pod can have: the reserved ones and the eviction threshold."""
        return self.memory + self.eviction


class MeasuredAmounts(msgspec.Struct, frozen=True):
    """Millicores and bytes that a system needs, margins included, from so many hours. `samples`: their number where
    they are single ones, 0 where every minute was measured."""

    milli_cpu: float
    memory: float
    hours: int
    samples: int = 0

    @property
    def covers_a_day(self) -> bool:
        """Whether every minute of a day was measured, so that less than before can be reserved."""
        return not self.samples and self.hours >= 24


def amounts(
    formula: str, *, cpus: int, memory: int, pods: int, found: MeasuredAmounts | None = None
) -> ReservedAmounts:
    """Return what a formula reserves on a machine with `cpus` CPUs, `memory` bytes and `pods` pods, rounded up to whole
    millicores and MiB.

    `found`: the amounts measured there. `auto` takes them where they cover a day, and falls below them as little as
    `max` where they do not. Raises `InputError` for an
    unknown name, and for `measured` without measurements.
    """
    if formula not in CHOICES:
        raise InputError(f"{formula!r} is not a formula", path="--formula", remedy=did_you_mean(formula, CHOICES))
    if formula == MEASURED and found is None:
        raise InputError("nothing was measured", path="--formula measured", remedy=_MEASURE)
    measured = [] if found is None else [_measured(found)]
    if found is not None and (formula == MEASURED or (formula == AUTO and found.covers_a_day)):
        return _measured(found)
    published = {name: _published(rule, cpus, memory, pods) for name, rule in FORMULAS.items()}
    if formula == AUTO:
        return largest(_of_auto(published["gke"], published["eks"]), *measured)
    if formula == MAX:
        return largest(*published.values(), *measured)
    return published[formula]


def _of_auto(gke: ReservedAmounts, eks: ReservedAmounts) -> ReservedAmounts:
    origins = gke.origins[0], eks.origins[1], gke.origins[2]
    return ReservedAmounts(gke.milli_cpu, eks.memory, gke.eviction, origins)


def largest(first: ReservedAmounts, *others: ReservedAmounts) -> ReservedAmounts:
    """Return the largest of each amount with its origin; of equal ones the first."""
    found = first
    for other in others:
        pairs = zip(found[:3], found.origins, other[:3], other.origins, strict=True)
        (milli, cpu), (memory, of), (eviction, below) = (
            (theirs, origin) if theirs > ours else (ours, before) for ours, before, theirs, origin in pairs
        )
        found = ReservedAmounts(milli, memory, eviction, (cpu, of, below))
    return found


def _published(rule: Formula, cpus: int, memory: int, pods: int) -> ReservedAmounts:
    milli, size = _round_up(rule.cpu(cpus), 1), _round_up(rule.memory(memory, pods), MIB)
    return ReservedAmounts(milli, size, rule.eviction, (rule.title,) * 3)


def _measured(found: MeasuredAmounts) -> ReservedAmounts:
    milli, size = _round_up(found.milli_cpu, 1), _round_up(found.memory, MIB)
    # Nothing that is measured says when a kubelet should begin to evict.
    return ReservedAmounts(milli, size, _EVICTION, (MEASURED, MEASURED, FORMULAS["gke"].title))


def _round_up(amount: float, unit: int) -> int:
    """Round up to a multiple of the unit; rounding errors of floats do not count."""
    # 2.0000000001 is 2: without rounding first, noise of floats would add a whole unit.
    return -int(-round(amount / unit, 6) // 1) * unit
