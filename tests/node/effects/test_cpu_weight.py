"""CPU amounts as cgroups know them (pod-level-resources 8.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.node.effects.cpu_weight import (
    milli_cpu_to_quota,
    milli_cpu_to_shares,
    quota_to_milli_cpu,
    shares_to_milli_cpu,
    shares_to_runtime_weight,
    shares_to_weight,
    weight_to_shares,
)


@pytest.mark.parametrize(
    ("milli", "shares"),
    [(0, 2), (1, 2), (2, 2), (3, 3), (100, 102), (1000, 1024), (1500, 1536), (256_000, 262_144), (300_000, 262_144)],
)
def test_shares(milli: int, shares: int) -> None:
    """A request in millicores becomes shares between 2 and 262144."""
    assert milli_cpu_to_shares(milli) == shares


@pytest.mark.parametrize(
    ("milli", "period", "quota"),
    [
        pytest.param(0, 100_000, 0, id="no limit"),
        pytest.param(250, 100_000, 25_000, id="usual period"),
        pytest.param(1, 100_000, 1000, id="least quota"),
        pytest.param(500, 500, 1000, id="least quota above the period"),
        pytest.param(333, 10_000, 3330, id="short period"),
        pytest.param(1501, 1500, 2251, id="truncated"),
    ],
)
def test_quota(milli: int, period: int, quota: int) -> None:
    """A limit in millicores becomes microseconds of quota, at least 1000."""
    assert milli_cpu_to_quota(milli, period) == quota


@pytest.mark.parametrize(
    ("shares", "linear", "quadratic"),
    [
        pytest.param(0, 0, 0, id="unset"),
        pytest.param(2, 1, 1, id="least"),
        pytest.param(102, 4, 17, id="100m"),
        pytest.param(1024, 39, 100, id="one CPU is the kernel's default weight"),
        pytest.param(2048, 79, 174, id="2 CPUs"),
        pytest.param(262_144, 10_000, 10_000, id="most"),
        pytest.param(300_000, 10_000, 10_000, id="beyond"),
    ],
)
def test_weights(shares: int, linear: int, quadratic: int) -> None:
    """The kubelet's linear weight and the runtime's curve differ, except at the ends."""
    assert shares_to_runtime_weight(shares) == quadratic
    if shares:
        assert shares_to_weight(shares) == linear


@pytest.mark.parametrize(("written", "read"), [(1000, 975), (2000, 1999), (600, 590), (100, 79), (2, 2)])
def test_the_way_back_is_not_exact(written: int, read: int) -> None:
    """A status read from cpu.weight shows another amount than was asked for."""
    weight = shares_to_weight(milli_cpu_to_shares(written))
    assert shares_to_milli_cpu(weight_to_shares(weight)) == read


@pytest.mark.parametrize(
    ("quota", "period", "milli"), [(50_000, 100_000, 500), (1000, 100_000, 10), (-1, 100_000, 0), (0, 100_000, 0)]
)
def test_quota_back(quota: int, period: int, milli: int) -> None:
    """A quota is read as millicores; none is 0."""
    assert quota_to_milli_cpu(quota, period) == milli


@given(st.integers(2, 262_144), st.integers(2, 262_144))
def test_weights_keep_the_order(one: int, other: int) -> None:
    """More shares never mean less weight, on either scale, and weights stay within what the kernel takes."""
    low, high = sorted((one, other))
    for convert in (shares_to_weight, shares_to_runtime_weight):
        assert 1 <= convert(low) <= convert(high) <= 10_000


@given(st.integers(1, 10_000))
def test_a_weight_survives_the_way_back(weight: int) -> None:
    """Shares read from a weight give that weight, or the one below it, when written again."""
    assert shares_to_weight(weight_to_shares(weight)) in (weight, weight - 1)


@given(st.integers(0, 10**9), st.integers(1000, 1_000_000))
def test_quota_never_starves_a_limit(milli: int, period: int) -> None:
    """Whatever the period, a limit above 0 leaves at least a millisecond, and else what was asked for."""
    quota = milli_cpu_to_quota(milli, period)
    assert quota == (max(1000, milli * period // 1000) if milli else 0)
