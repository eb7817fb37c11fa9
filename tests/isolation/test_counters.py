"""Metrics of containers with exclusive CPUs: out of samples, only growing, absent where nothing was read."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.agent.admitting import NodeSetup
from podslice.agent.contract import Listed
from podslice.agent.guards.isolationmetrics import IsolationMetrics
from podslice.agent.node_wiring import wire_node
from podslice.agent.owner import Owner
from podslice.agent.records import ContainerRecord, PodRecord
from podslice.agent.status.report import AgentReporter
from podslice.config.policy import InterferenceGuards, PodslicePolicy
from podslice.host.filesystem import MemoryFileSystem
from podslice.isolation.cache_counters import counting_groups
from podslice.isolation.counters import (
    GAUGES,
    GRADE,
    HELP,
    PREFIX,
    Key,
    NodeSample,
    OwnedSample,
    ThreadSample,
    Who,
    add_sample,
    grades,
)
from podslice.isolation.kernel_facts import IsolationSources
from podslice.isolation.samples import read_cpus, read_owned
from podslice.service.identity import Identity
from podslice.values.cpuset import parse_bits
from tests.conftest import make_node, make_pod
from tests.isolation.node import FakeKernel

LABELS = {"cpu_pressure_seconds_total": "kind", "cpus_irq_total": "kind", "numa_memory_bytes": "local",
          "frequency_hertz": "stat", "memory_bandwidth_bytes_total": "kind"}  # fmt: skip
WHO = "namespace pod container"
ISOLATION = {
    f"{PREFIX}{name}": ("gauge" if name in GAUGES else "counter", f"{WHO} {LABELS.get(name, '')}".strip())
    for name in HELP
} | {GRADE: ("gauge", WHO)}
"""Types and labels of all of them."""
CPUS = parse_bits("4-7")
ME = ("default", "p", "app")
GROUP = "fs/resctrl/podslice-a/mon_groups/podslice-u1-app"


def sources(kernel: FakeKernel) -> IsolationSources:
    proc, cgroups, sys = map(MemoryFileSystem, (kernel.proc, kernel.cgroups, kernel.sys))
    return IsolationSources(proc, cgroups, sys, {})


def sample(kernel: FakeKernel, at: float = 0.0) -> NodeSample:
    cpus, group = read_cpus(sources(kernel).proc), counting_groups(sources(kernel).sys).get(CPUS)
    owned = read_owned("kubepods/pod1/app", CPUS, sources(kernel), counting=group)
    return NodeSample(at, {ME: owned}, cpus.busy, cpus.stolen, cpus.interrupts)


def full_kernel() -> FakeKernel:
    """One that says everything."""
    kernel = FakeKernel()
    kernel.cgroups["kubepods/pod1/app/cpu.stat"] = "usage_usec 1000000\nnr_throttled 5\nthrottled_usec 250000\n"
    kernel.proc["100/status"] = "nonvoluntary_ctxt_switches:\t7\n"
    kernel.proc["softirqs"] = "          CPU0       CPU4\n   TIMER:  9   5\n NET_RX:  1   2\n"
    for cpu in range(4, 8):
        kernel.sys[f"devices/system/cpu/cpu{cpu}/cpufreq/scaling_cur_freq"] = f"{cpu}00000\n"
    kernel.sys |= {
        "fs/resctrl/mon_groups/other/cpus_list": "0-3\n",
        "fs/resctrl/podslice-a/cpus_list": "4-7\n",
        f"{GROUP}/cpus_list": "4-7\n",
        f"{GROUP}/mon_data/mon_L3_00/llc_occupancy": "1000\n",
        f"{GROUP}/mon_data/mon_L3_00/mbm_total_bytes": "5000\n",
        f"{GROUP}/mon_data/mon_L3_00/mbm_local_bytes": "4000\n",
        f"{GROUP}/mon_data/mon_L3_01/llc_occupancy": "24\n",
        f"{GROUP}/mon_data/mon_L3_01/mbm_total_bytes": "Unavailable\n",
        f"{GROUP}/mon_data/mon_L3_01/mbm_local_bytes": "Error\n",
        f"{GROUP}/mon_data/mon_MB_00/llc_occupancy": "7\n",
    }
    return kernel


def test_a_sample_of_a_kernel() -> None:
    """Every file is read as the kernel writes it."""
    kernel = full_kernel()
    found = sample(kernel)
    assert found.interrupts["softirq"] == {0: 10, 4: 7}
    assert found.interrupts["timer"][4] == 1000
    one = found.containers[ME]
    assert (one.usage, one.periods, one.throttled, one.full) == (1.0, 5, 0.25, 0.0)
    assert (one.local, one.remote, one.hertz) == (1048576, 0, (400000000, 500000000, 600000000, 700000000))
    assert one.threads == {100: ThreadSample(0.0, 3, 7)}
    assert read_owned("kubepods/pod1/app", CPUS, sources(kernel), threads=False).threads == {}


def test_what_is_counted_in_between() -> None:
    """Interrupts, stolen time and time of strangers on its CPUs are counted from sample to sample."""
    kernel = full_kernel()
    first = sample(kernel)
    series = add_sample({}, None, first)
    assert series[ME]["cpu_seconds_total", ()] == 1.0
    assert ("foreign_cpu_seconds_total", ()) not in series[ME]
    kernel.proc["stat"] = kernel.stat({4: 300, 0: 500}, {4: 20})
    kernel.proc["interrupts"] = kernel.interrupts({4: 30, 0: 99})
    kernel.proc["100/schedstat"] = "1000 2000000000 1\n"
    kernel.cgroups["kubepods/pod1/app/cpu.stat"] = "usage_usec 3000000\nnr_throttled 5\n"
    second = sample(kernel, 10.0)
    series = add_sample(series, first, second)
    assert series[ME]["foreign_cpu_seconds_total", ()] == 1.0
    assert series[ME]["cpus_steal_seconds_total", ()] == 0.2
    assert series[ME]["cpus_irq_total", (("kind", "device"),)] == 30
    assert series[ME]["run_delay_seconds_total", ()] == 2.0
    assert add_sample(series, second, sample(kernel, 20.0))[ME] == series[ME]
    assert grades(first, second) == {ME: 2}
    assert grades(second, second._replace(at=20.0)) == {ME: 0}


def test_what_cannot_be_read_has_no_series() -> None:
    """Without files there are no values, and the grade is unknown; it is never good."""
    nothing = NodeSample(0.0, {ME: OwnedSample(CPUS)})
    assert add_sample(add_sample({}, None, nothing), nothing, nothing._replace(at=10.0)) == {ME: {}}
    assert grades(nothing, nothing._replace(at=10.0)) == {ME: 3}


def test_cache_and_bandwidth() -> None:
    """resctrl's counters of its CPUs; one that is unavailable for a while, or set back, takes nothing away."""
    kernel = full_kernel()
    first = sample(kernel)
    series = add_sample({}, None, first)
    assert series[ME]["llc_occupancy_bytes", ()] == 1024
    assert not [key for key in series[ME] if key[0] == "memory_bandwidth_bytes_total"]
    kernel.sys[f"{GROUP}/mon_data/mon_L3_00/mbm_total_bytes"] = "9000\n"
    kernel.sys[f"{GROUP}/mon_data/mon_L3_01/mbm_total_bytes"] = "77\n"
    kernel.sys[f"{GROUP}/mon_data/mon_L3_00/mbm_local_bytes"] = "Unavailable\n"
    second = sample(kernel, 10.0)
    series = add_sample(series, first, second)
    assert series[ME]["memory_bandwidth_bytes_total", (("kind", "total"),)] == 4000
    assert ("memory_bandwidth_bytes_total", (("kind", "local"),)) not in series[ME]
    kernel.sys[f"{GROUP}/mon_data/mon_L3_00/mbm_total_bytes"] = "0\n"
    kernel.sys[f"{GROUP}/mon_data/mon_L3_01/mbm_total_bytes"] = "100\n"
    assert add_sample(series, second, sample(kernel))[ME]["memory_bandwidth_bytes_total", (("kind", "total"),)] == 4023


COUNTS = st.integers(0, 1000)
THREADS = st.dictionaries(st.integers(1, 5), st.builds(ThreadSample, COUNTS, COUNTS, st.none() | COUNTS), max_size=4)
SAMPLES = st.builds(
    lambda cpus, busy, irqs, threads, usage: NodeSample(
        0.0, {ME: OwnedSample(cpus, usage, threads=threads, scale=2.0)}, busy, busy, {"device": irqs}
    ),
    st.integers(1, 15),
    st.dictionaries(st.integers(0, 3), COUNTS, max_size=4),
    st.dictionaries(st.integers(0, 3), COUNTS, max_size=4),
    THREADS,
    st.none() | COUNTS,
)


@given(st.lists(SAMPLES, min_size=2, max_size=6))
@pytest.mark.slow
def test_counters_only_grow(life: list[NodeSample]) -> None:
    """Whatever comes, goes or is set back, no counter that we keep goes down."""
    series: dict[Who, dict[Key, float]] = {}
    for before, after in pairwise(life):
        now = add_sample(series, before, after)
        for key, value in series.get(ME, {}).items():
            if key[0] != "cpu_seconds_total":
                assert now[ME][key] >= value
        series = now


def agent(folder: Path, metrics: str) -> tuple[IsolationMetrics, FakeKernel, Owner]:
    """A node with one container that owns four CPUs."""
    policy = PodslicePolicy(guards=InterferenceGuards(metrics=metrics))  # type: ignore[arg-type]
    made = make_node()
    owner = wire_node(NodeSetup(folder, made.machine, made.view.config, policy), AgentReporter()).owner
    owner.synchronize(Listed([], []))
    assert owner.node is not None
    decision = owner.node.admit(make_pod("u1", ("app", "4")))
    owner.pods["u1"] = PodRecord(Identity(uid="u1", namespace="default", name="p", annotations={}))
    owner.containers["c1"] = ContainerRecord(
        "c1", "app", "u1", "s1", cgroups_path="/kubepods/pod1/app", unit="u1", member="app", started=True
    )
    kernel = full_kernel()
    kernel.sys[f"{GROUP}/cpus_list"] = f"{decision.containers[0].cpus}\n"
    return IsolationMetrics(owner, sources(kernel), clock=lambda: 0.0), kernel, owner


def test_on_the_page(tmp_path: Path) -> None:
    """Each container has its series, at most 25, with types and labels as documented; they go with it."""
    sampler, _, owner = agent(tmp_path, "containers")
    for _ in range(2):
        asyncio.run(sampler.sample())
    text = sampler.text()
    types = {name: kind for _, _, name, kind in (line.split() for line in text.splitlines() if line[:6] == "# TYPE")}
    assert types == {name: kind for name, (kind, _) in ISOLATION.items()}
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(lines) <= 25
    assert all('{namespace="default",pod="p",container="app"' in line for line in lines)
    owner.containers.clear()
    asyncio.run(sampler.sample())
    assert sampler.text() == ""


def test_together_or_not_at_all(tmp_path: Path) -> None:
    """`totals` has one series for all containers, `off` none."""
    sampler, _, _ = agent(tmp_path / "a", "totals")
    asyncio.run(sampler.sample())
    assert "podslice_container_cpu_seconds_total 1.0" in sampler.text().splitlines()
    assert "pod=" not in sampler.text()
    sampler, _, _ = agent(tmp_path / "b", "off")
    asyncio.run(sampler.sample())
    assert sampler.text() == ""
