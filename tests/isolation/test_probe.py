"""The latency probe: what it counts on a clock of its own, and that it runs on the CPU that it names."""

from __future__ import annotations

import os

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from podslice.cli.main import cli
from podslice.isolation.latency import ProbeError, latency_report, percentile, probe_cpu, wake_latencies


class LateClock:
    """Nanoseconds; every sleep ends late by the next of some delays, then on time."""

    def __init__(self, delays: list[int]) -> None:
        self.time = 0
        self._delays = iter(delays)

    def now(self) -> int:
        return self.time

    def sleep(self, seconds: float) -> None:
        self.time += round(seconds * 1e9) + next(self._delays, 0)


def test_how_late() -> None:
    """Each wake-up's delay is counted; one that takes several intervals is one, and the next is on time again."""
    clock = LateClock([0, 5_000, 2_500_000])
    late = wake_latencies(seconds=0.008, interval=0.001, now=clock.now, sleep=clock.sleep)
    assert late == [0, 5_000, 2_500_000, 0, 0, 0]


@given(st.lists(st.integers(0, 10**7), max_size=50))
def test_any_delays(delays: list[int]) -> None:
    """Whatever happens the probe ends, is never early, and counts no more wake-ups than there is time for."""
    clock = LateClock(delays)
    late = wake_latencies(seconds=0.02, interval=0.001, now=clock.now, sleep=clock.sleep)
    assert 1 <= len(late) <= 20
    assert min(late) >= 0


def test_report() -> None:
    """Percentiles are values that occurred; CPUs with a wake-up beyond the limit are named."""
    report = latency_report({4: list(range(1000, 1_001_000, 1000)), 5: [1500]}, interval=1000, seconds=5, limit=900.0)
    assert [msgspec.structs.astuple(row) for row in report.cpus] == [
        (4, 1000, 1.0, 500.0, 990.0, 999.0, 1000.0),
        (5, 1, 1.5, 1.5, 1.5, 1.5, 1.5),
    ]
    assert report.failed == "4"
    assert latency_report({}, interval=1000, seconds=5, limit=1.0).failed == ""


@given(st.lists(st.floats(0, 1e6), min_size=1).map(sorted), st.floats(1, 100))
def test_percentiles(values: list[float], percent: float) -> None:
    """A percentile is one of the values, and no more than the rest of them are greater."""
    found = percentile(values, percent)
    assert found in values
    assert sum(value > found for value in values) <= len(values) * (100 - percent) / 100 + 1e-6


def test_on_this_machine() -> None:
    """The thread runs where it should and this process stays as it was; a CPU that is not there is an error,
    before anything is measured."""
    mine = os.sched_getaffinity(0)
    cpu = min(mine)
    assert probe_cpu(cpu, seconds=0.005, interval=0.001)
    assert os.sched_getaffinity(0) == mine
    with pytest.raises(ProbeError):
        probe_cpu(1023, seconds=0.005, interval=0.001)
    run = CliRunner().invoke
    options = ["probe", f"--cpus={cpu}", "--seconds=0.02"]
    document = msgspec.json.decode(run(cli, [*options, "-o", "json"]).output)
    assert (document["kind"], [row["cpu"] for row in document["cpus"]]) == ("LatencyReport", [cpu])
    assert run(cli, options).output.startswith("CPU")
    assert run(cli, [*options, "--limit=1000000000"]).exit_code == 0
    assert "cannot be used" in str(run(cli, ["probe", "--cpus=1023", "--seconds=0.01"]).exception)
    asked = [f"--cpus={cpu},1023", "--seconds=3600"]
    assert "CPU 1023 cannot be used" in str(run(cli, ["probe", *asked]).exception)
    assert "names no CPU" in str(run(cli, ["probe", "--cpus="]).exception)
