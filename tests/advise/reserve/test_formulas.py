"""The formulas of providers: the values that they publish, and that more is never less."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice import InputError
from podslice.advise.reserve.formulas import FORMULAS, GIB, MIB, NAMES, amounts

SIZES = ((2, 7.5, 110), (8, 32, 110), (64, 256, 110), (128, 512, 250))
CPU = {
    "gke": (70, 90, 230, 390),
    "eks": (70, 90, 230, 390),
    "aks": (100, 180, 740, None),
    "openshift": (72, 144, 816, 1584),
    "onprem": (100, 160, 720, 1360),
}
MEMORY = {
    "gke": (1.70 * 1024, 3.56 * 1024, 11.88 * 1024, 17.0 * 1024),
    "eks": (1465, 1465, 1465, 3005),
    "aks": (1920, 2250, 2250, 5050),
    "aks-1.28": (1.70 * 1024, 3.56 * 1024, 11.88 * 1024, 17.0 * 1024),
    "onprem": (664, 1918, 13387, 26494),
}


@pytest.mark.parametrize("name", CPU)
def test_published_cpus(name: str) -> None:
    """Each formula gives the thousandths of a CPU of its provider's table, for four sizes of machines."""
    found = [amounts(name, cpus=cpus, memory=GIB, pods=110).milli_cpu for cpus, _, _ in SIZES]
    assert [one for one, wanted in zip(found, CPU[name], strict=True) if wanted] == [one for one in CPU[name] if one]


@pytest.mark.parametrize("name", MEMORY)
def test_published_memory(name: str) -> None:
    """Each formula gives the memory of its provider's table, parts of a MiB rounded up."""
    for (cpus, size, pods), wanted in zip(SIZES, MEMORY[name], strict=True):
        found = amounts(name, cpus=cpus, memory=int(size * GIB), pods=pods).memory / MIB
        assert abs(found - wanted) <= max(1, wanted * 0.003)


def test_aks_table() -> None:
    """AKS publishes CPUs of seven sizes; between two of them the advice is between theirs."""
    table = {1: 60, 2: 100, 4: 140, 8: 180, 16: 260, 32: 420, 64: 740, 3: 120, 48: 580}
    assert {cpus: amounts("aks", cpus=cpus, memory=GIB, pods=1).milli_cpu for cpus in table} == table


def test_small_machines_of_gke() -> None:
    """Below 1 GiB GKE keeps 255 MiB, whatever there is."""
    assert amounts("gke", cpus=1, memory=600 * MIB, pods=110).memory == 255 * MIB


def test_unknown_formula() -> None:
    """An unknown name is an error that lists the known ones."""
    with pytest.raises(InputError, match="did you mean gke"):
        amounts("gkee", cpus=1, memory=GIB, pods=1)


@given(
    st.sampled_from(NAMES),
    st.tuples(st.integers(1, 1024), st.integers(1, 1024)).map(sorted),
    st.tuples(st.integers(0, 8 * 1024 * GIB), st.integers(0, 8 * 1024 * GIB)).map(sorted),
    st.tuples(st.integers(1, 1000), st.integers(1, 1000)).map(sorted),
)
def test_more_is_never_less(name: str, cpus: list[int], memory: list[int], pods: list[int]) -> None:
    """A machine with more CPUs, memory and pods reserves no less, by any formula; memory is whole MiB."""
    small, large = (amounts(name, cpus=cpus[at], memory=memory[at], pods=pods[at]) for at in (0, 1))
    assert small.milli_cpu <= large.milli_cpu
    assert small.memory <= large.memory
    assert small.eviction == large.eviction
    assert small.memory % MIB == 0
    assert name in (*FORMULAS, "auto", "max")


def test_max_is_a_maximum() -> None:
    """`max` is no less than any formula, and `auto` the CPU of GKE and the memory of EKS, each with its origin."""
    facts = {"cpus": 384, "memory": 1536 * GIB, "pods": 110}
    largest = amounts("max", **facts)
    for name in FORMULAS:
        assert all(most >= one for most, one in zip(largest[:3], amounts(name, **facts)[:3], strict=True))
    assert largest.origins == ("OpenShift", "GKE on-prem", "AKS to 1.28")
    assert amounts("auto", **facts).origins == ("GKE, OKE", "EKS", "GKE, OKE")
