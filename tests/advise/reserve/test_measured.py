"""Reservations by what a node's system has used: recorded by the agent, advised by `reserve`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from podslice import InputError, Machine
from podslice.advise.reserve.advise import ReservationRequest, advise
from podslice.advise.reserve.formulas import GIB, MIB, MeasuredAmounts, amounts
from podslice.advise.reserve.measured import USAGE_FILE, SystemUsage, measured_amounts, with_minute
from podslice.advise.reserve.usage import load_usage
from podslice.agent.admitting import NodeSetup
from podslice.agent.contract import Listed
from podslice.agent.node_wiring import wire_node
from podslice.agent.status.report import AgentReporter
from podslice.agent.status.systemusage import SystemUsageRecorder
from podslice.cli.main import cli
from podslice.config.policy import PodslicePolicy, ReservationRules, check_policy
from podslice.host.filesystem import MemoryFileSystem
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.quirks import KUBELET_1_36
from tests.conftest import make_node

MACHINE: Machine = from_synthetic("pack:2 numa:1(memory=64GiB) core:16 pu:2")
DAY = 24 * 60


def test_the_formula() -> None:
    """The 99th percentile of minutes, four times softirqs, the most memory, each with a quarter more; not before a day
    has passed, and never less than 100m and 255 MiB."""
    usage = SystemUsage(minutes={400: 980, 800: DAY - 980 - 10, 9000: 10}, softirq=DAY * 30.0, memory=1000 * MIB)
    assert measured_amounts(usage) == MeasuredAmounts(1.25 * (800 + 4 * 30), 1250.0 * MIB, 24)
    assert measured_amounts(SystemUsage(minutes={400: DAY - 1})) is None
    assert measured_amounts(SystemUsage(minutes={10: DAY})) == MeasuredAmounts(100, 255 * MIB, 24)


@given(st.lists(st.tuples(st.floats(0, 20000), st.integers(0, 64 * GIB)), min_size=1, max_size=20))
def test_more_use_is_never_less_reserved(minutes: list[tuple[float, int]]) -> None:
    """A busier system is advised to keep at least as much (P3)."""
    less, more = SystemUsage(minutes={100: DAY}), SystemUsage(minutes={100: DAY})
    for milli, memory in minutes:
        less = with_minute(less, milli=milli, softirq_milli=1, memory=memory)
        more = with_minute(more, milli=milli * 2, softirq_milli=2, memory=memory + MIB)
    first, second = measured_amounts(less), measured_amounts(more)
    assert first is not None
    assert second is not None
    assert second.milli_cpu >= first.milli_cpu
    assert second.memory >= first.memory


def test_max_is_no_less_than_what_was_measured() -> None:
    """`max` is the larger of the providers' amounts and the measured ones; `measured` needs samples."""
    found = MeasuredAmounts(3000.2, 100.0, 24)
    asked = amounts("max", cpus=64, memory=256 * GIB, pods=110, found=found)
    assert (asked.milli_cpu, asked.memory // MIB) == (3001, 13388)
    assert amounts("measured", cpus=64, memory=256 * GIB, pods=110, found=found).memory == MIB
    with pytest.raises(InputError, match="nothing was measured"):
        amounts("measured", cpus=64, memory=256 * GIB, pods=110)


def test_advice_of_what_was_measured() -> None:
    """Advice by measurements starts a kubelet as any other (P1), and states how long was measured."""
    found = MeasuredAmounts(2500.0, 3.0 * GIB, 48)
    advice = advise(MACHINE, request=ReservationRequest(formula="measured", found=found))
    assert (advice.cpu, advice.memory) == ("2500m", "3Gi")
    assert any("measured in 48 hours" in note for note in advice.notes)


class RecordedNode:
    """An agent that records, with cgroups in memory."""

    def __init__(self, folder: Path, *, measure: bool = True) -> None:
        made = make_node()
        policy = PodslicePolicy(reservation=ReservationRules(measure=measure))
        owner = wire_node(NodeSetup(folder, made.machine, made.view.config, policy), AgentReporter()).owner
        owner.synchronize(Listed([], []))
        self.now, self.troubles = 0.0, list[str]()
        self.cgroups = {"kubepods/cpu.stat": "usage_usec 9000000000\n", "kubepods/memory.current": "9\n"}
        self.cgroups |= dict.fromkeys(
            (f"system.slice/{one}" for one in ("cpu.stat", "memory.current", "memory.stat")), ""
        )
        self.proc = {"stat": "cpu 0 0 0 0 0 0 0 0 0 0\n"}
        self.recorder = SystemUsageRecorder(
            owner,
            MemoryFileSystem(self.cgroups),
            MemoryFileSystem(self.proc),
            trouble=lambda kind, text: self.troubles.append(text),
            clock=lambda: self.now,
        )

    def minute(self, usec: int) -> None:
        self.now += 60
        self.cgroups["system.slice/cpu.stat"] = f"usage_usec {usec}\n"
        self.cgroups["system.slice/memory.current"] = f"{600 * MIB}\n"
        self.cgroups["system.slice/memory.stat"] = f"anon 1\ninactive_file {200 * MIB}\n"
        self.proc["stat"] = f"cpu 0 0 0 0 0 0 {int(self.now)} 0 0 0\n"
        self.recorder.sample()


def test_recording(tmp_path: Path) -> None:
    """The agent records each minute's CPU of all but the pods, and the most memory without half of the reclaimable
    part, and goes on after a restart."""
    node = RecordedNode(tmp_path)
    for at in range(3):
        node.minute(at * 30_000_000)
    node.recorder.save()
    assert load_usage(tmp_path / USAGE_FILE) == SystemUsage(minutes={500: 2}, softirq=20.0, memory=500 * MIB)
    again = RecordedNode(tmp_path)
    again.minute(0)
    again.minute(60_000_000)
    again.recorder.save()
    usage = load_usage(tmp_path / USAGE_FILE)
    assert usage is not None
    assert usage.minutes == {500: 2, 1000: 1}


def test_nothing_is_recorded_unasked(tmp_path: Path) -> None:
    """Without `measure` no file is written; a folder that cannot be written to is a trouble."""
    node = RecordedNode(tmp_path, measure=False)
    node.minute(0)
    node.minute(1)
    node.recorder.save()
    assert not (tmp_path / USAGE_FILE).exists()
    lost = RecordedNode(tmp_path)
    lost.recorder.path = tmp_path / "gone" / USAGE_FILE
    lost.minute(0)
    lost.minute(1)
    lost.recorder.save()
    assert "cannot be written" in lost.troubles[0]


def test_on_the_command_line(tmp_path: Path) -> None:
    """Formula and placement come from the policy, options win, and less than a day of samples is an error, as is no
    file of an agent."""
    policy = tmp_path / "policy.yaml"
    head = "apiVersion: podslice.io/v1alpha1\nkind: PodslicePolicy\n"
    policy.write_text(f"{head}spec: {{reservation: {{formula: measured, pods: 50}}}}\n")
    usage = SystemUsage(minutes={2000: DAY}, memory=GIB)
    (tmp_path / USAGE_FILE).write_bytes(msgspec.json.encode(usage))
    options = ["reserve", "--machine=xeon-6338-2s", f"--policy={policy}", f"--measured={tmp_path}"]
    result = CliRunner().invoke(cli, [*options, "-o", "json"])
    advice = msgspec.json.decode(result.output)
    assert (advice["formula"], advice["pods"], advice["cpu"], advice["memory"]) == ("measured", 50, "2500m", "1280Mi")
    openshift = CliRunner().invoke(cli, [*options, "--formula=openshift", "-o", "json"])
    assert msgspec.json.decode(openshift.output)["formula"] == "openshift"
    (tmp_path / USAGE_FILE).write_bytes(msgspec.json.encode(SystemUsage(minutes={1: 120})))
    assert "has 2 hours of samples" in str(CliRunner().invoke(cli, options).exception)
    (tmp_path / USAGE_FILE).write_text("{")
    assert "does not exist, or was not written by an agent" in str(CliRunner().invoke(cli, options).exception)


def test_a_kubelet_takes_the_section() -> None:
    """Advice changes no decision: profile `kubelet-1.36` takes a policy with nothing else."""
    check_policy(PodslicePolicy(reservation=ReservationRules(formula="gke")), KUBELET_1_36)
