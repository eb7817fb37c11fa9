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
    pods; `eviction` is the hard eviction threshold for memory in bytes, `source` the place of publication."""

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


FORMULAS: dict[str, Formula] = {
    one.name: one
    for one in (
        Formula("gke", "GKE, OKE", _gke_cpu, _gke_memory, _EVICTION, "GKE: plan node sizes, node allocatable"),
        Formula("eks", "EKS", _gke_cpu, _eks_memory, _EVICTION, "EKS: the AMI's bootstrap, kube-reserved"),
        Formula("aks", "AKS from 1.29", _aks_cpu, _aks_memory, _EVICTION, "AKS: node resource reservations"),
        Formula("aks-1.28", "AKS to 1.28", _aks_cpu, _gke_memory, _OLD_EVICTION, "AKS: node resource reservations"),
        Formula("openshift", "OpenShift", _openshift_cpu, _gke_memory, _EVICTION, "OpenShift: auto node sizing, v2"),
        Formula("onprem", "GKE on-prem", _on_prem_cpu, _on_prem_memory, _EVICTION, "GKE on-prem: node allocatable"),
    )
}
DEFAULT = "max"
"""The CPU of `gke` and the memory of `eks`, which hold on machines of any size; or the measured amounts, where they are
larger."""
_MEASURE = "--measured DIR names the state directory of an agent whose policy has had reservation.measure for a day"
MEASURED = "measured"
"""The measured use of the system of this very node."""
NAMES = (DEFAULT, *FORMULAS)
CHOICES = (*NAMES, MEASURED)


class ReservedAmounts(NamedTuple):
    """Millicores, and bytes in whole MiB."""

    milli_cpu: int
    memory: int
    eviction: int


class MeasuredAmounts(msgspec.Struct, frozen=True):
    """Millicores and bytes that a system needs, from so many hours of samples."""

    milli_cpu: float
    memory: float
    hours: int


def amounts(
    formula: str, *, cpus: int, memory: int, pods: int, found: MeasuredAmounts | None = None
) -> ReservedAmounts:
    """Return what a formula reserves on a machine with `cpus` CPUs, `memory` bytes and `pods` pods, rounded up to whole
    millicores and MiB.

    `found`: the amounts measured there, which `max` never falls below. Raises `InputError` for an unknown name, and for
    `measured` without measurements.
    """
    if formula not in CHOICES:
        raise InputError(f"{formula!r} is not a formula", path="--formula", remedy=did_you_mean(formula, CHOICES))
    if formula == MEASURED:
        if found is None:
            raise InputError("nothing was measured", path="--formula measured", remedy=_MEASURE)
        return ReservedAmounts(_round_up(found.milli_cpu, 1), _round_up(found.memory, MIB), _EVICTION)
    rule = FORMULAS["eks" if formula == DEFAULT else formula]
    milli, size = rule.cpu(cpus), rule.memory(memory, pods)
    if formula == DEFAULT and found is not None:
        milli, size = max(milli, found.milli_cpu), max(size, found.memory)
    return ReservedAmounts(_round_up(milli, 1), _round_up(size, MIB), rule.eviction)


def _round_up(amount: float, unit: int) -> int:
    """Round up to a multiple of the unit; rounding errors of floats do not count."""
    # 2.0000000001 is 2: without rounding first, noise of floats would add a whole unit.
    return -int(-round(amount / unit, 6) // 1) * unit
