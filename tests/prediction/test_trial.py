"""A real kubelet and podslice in the same histories."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from contextlib import nullcontext
from pathlib import Path
from random import Random

import msgspec
import pytest
from click.testing import CliRunner
from e2e.guest import cri_pb2 as pb
from e2e.programs import Programs
from tools.prediction import trial
from tools.prediction.__main__ import main
from tools.prediction.compare import as_kernel_shows, cgroup_v1_files, normalise_memory_state
from tools.prediction.configurations import ALL, FOUR, NAMED, SHAPES, configuration, machine_of
from tools.prediction.kubelet import KubeletEndedError
from tools.prediction.machine import Shape, write
from tools.prediction.model import Model
from tools.prediction.node import OneNode
from tools.prediction.notes import Difference, Notes
from tools.prediction.shortage import ShortageError, shortage_in
from tools.prediction.table import row, table
from tools.prediction.trial import Trial

from podslice import load_machine


@pytest.mark.slow
def test_a_real_kubelet_does_what_podslice_says(programs: Programs) -> None:
    """Pods come and go, and the kubelet restarts, in two configurations: nothing differs."""
    arguments = ["--seed", "3", "--pods", "5", "--first", "4", "--configurations", "2"]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert "| 4 restricted, pod | 5 |" in done.output
    for counted in ("state files", "sandboxes", "containers at their creation", "files of containers"):
        assert re.search(rf"[1-9]\d* {counted}", done.output), done.output


@pytest.mark.slow
def test_a_difference_is_found(node: OneNode, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where podslice says something else than the kubelet does, the step and both texts are reported."""
    said = Model.files
    monkeypatch.setattr(trial, "PATIENCE", 0.0)
    monkeypatch.setattr(Model, "files", lambda self: {name: own + b"?" for name, own in said(self).items()})
    tried = Trial(node, NAMED[1], Random(1))
    tried.run(1)
    assert tried.counts["differences"] == len(tried.notes.differences) >= 6
    assert tried.notes.differences[0].step == "start"
    assert tried.notes.differences[0].what == "cpu_manager_state"
    assert tried.notes.differences[0].podslice == tried.notes.differences[0].kubelet + "?"


class Slow:
    """A history whose kubelet keeps the first configuration's second pod waiting."""

    begun = 0

    def __init__(self, node: object, chosen: object, r: Random) -> None:
        self.notes = Notes()
        self.counts = self.notes.counts

    def run(self, pods: int) -> None:
        Slow.begun += 1
        self.counts["pods"] += 1
        if Slow.begun == 1:
            self.notes.step = "create p1"
            raise KubeletEndedError("waited a minute in vain: pod p1")
        self.counts["pods"] += pods - 1


def test_the_next_configuration_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that keeps a pod waiting ends its own configuration, not the campaign."""
    for name, value in (("why_not", None), ("find_programs", "programs")):
        monkeypatch.setattr(f"tools.prediction.__main__.{name}", lambda value=value: value)
    for name in ("control_plane", "node_of"):
        monkeypatch.setattr(f"tools.prediction.__main__.{name}", lambda *where: nullcontext())
    monkeypatch.setattr("tools.prediction.__main__.Trial", Slow)
    monkeypatch.setattr(Slow, "begun", 0)
    done = CliRunner().invoke(main, ["--seed", "3", "--pods", "5", "--configurations", "2"], catch_exceptions=False)
    assert done.exit_code == 1
    assert "ended early at create p1: waited a minute in vain: pod p1" in done.output
    assert "| all | 6 |" in done.output
    assert "1 ended early" in done.output


def test_a_difference_shows_where_the_texts_part() -> None:
    """Long texts are cut around the first character that differs."""
    shown = str(Difference("start", "file", "x" * 1000 + "1" + "y" * 1000, "x" * 1000 + "2" + "y" * 1000))
    assert shown.startswith("start: file: kubelet xxx")
    assert "x1y" in shown
    assert "x2y" in shown
    assert len(shown) < 1400


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_the_drawers_see_the_machine_that_the_kubelet_sees(shape: Shape, tmp_path: Path) -> None:
    """Configurations and pods are drawn for the NUMA nodes, cores, threads and memory of the files."""
    write(shape, tmp_path)
    read = msgspec.to_builtins(load_machine(tmp_path).nodes)
    for drawn, found in zip(machine_of(shape)["nodes"], read, strict=True):
        assert (drawn["id"], drawn["memory"]) == (found["id"], found["memory"])
        cores = [
            {"socket": core["socket"], "core": core["core"], "threads": sorted(core["threads"])}
            for core in sorted(found["cores"], key=lambda core: int(core["core"]))
        ]
        assert drawn["cores"] == cores
        assert [pool["numPages"] for pool in drawn.get("hugepages", ())] == [
            pool["numPages"] for pool in found["hugepages"] if pool["numPages"]
        ]


def test_every_policy_and_scope_is_tried() -> None:
    """The named configurations have each Topology Manager policy, with both scopes where it aligns anything, and later
    numbers draw others, the same ones each time."""
    tried = {(one.kubelet["topologyManagerPolicy"], one.kubelet["topologyManagerScope"]) for one in NAMED}
    for policy in ("best-effort", "restricted", "single-numa-node"):
        assert {(policy, "container"), (policy, "pod")} <= tried
    assert "none" in {policy for policy, _ in tried}
    assert len({one.name for one in ALL}) == len(ALL) >= 12
    drawn = configuration(Random(1), len(ALL))
    assert drawn == configuration(Random(1), len(ALL)) != configuration(Random(2), len(ALL))


def test_the_table_has_every_count() -> None:
    """A row for each configuration, a sum, and the counts that have no column below it."""
    counts = Counter({"pods": 20, "refused": 7, "state files": 99})
    text = table([row(0, "none", counts, 12.3)], counts)
    assert "| 0 none | 20 | 0 | 7 |" in text
    assert "| all | 20 | 0 | 7 |" in text
    assert text.endswith("99 state files")


def test_no_limit_of_memory_is_the_largest_number_of_pages() -> None:
    """A limit written as -1 is read as another number with cgroup v1."""
    shown = as_kernel_shows({"memory.limit_in_bytes": "-1", "cpu.cfs_quota_us": "-1"})
    assert shown == {"memory.limit_in_bytes": "9223372036854771712", "cpu.cfs_quota_us": "-1"}


def test_what_a_runtime_writes() -> None:
    """Of CRI's values for a container: no quota and no limit are -1, memory comes in whole pages."""
    told = pb.LinuxContainerResources(cpu_shares=512, memory_limit_in_bytes=4097, cpu_quota=-1, cpu_period=5000)
    told.hugepage_limits.add(page_size="2MB", limit=1 << 21)
    assert cgroup_v1_files(told) == {
        "cpu.shares": "512",
        "cpu.cfs_quota_us": "-1",
        "cpu.cfs_period_us": "5000",
        "memory.limit_in_bytes": "4096",
        "hugetlb.2MB.limit_in_bytes": "2097152",
    }
    nothing = cgroup_v1_files(pb.LinuxContainerResources(cpu_shares=2))
    assert (nothing["cpu.cfs_period_us"], nothing["memory.limit_in_bytes"]) == ("100000", "-1")


def test_the_order_of_memory_blocks_is_chance() -> None:
    """Two memory state files that differ in the order of a container's blocks, and so in the checksum, say the same;
    another amount does not."""
    file = '{"entries":{"u":{"c":[{"type":"memory","size":%d},{"type":"hugepages-2Mi","size":2}]}},"checksum":1}'
    other = b'{"entries":{"u":{"c":[{"type":"hugepages-2Mi","size":2},{"type":"memory","size":7}]}},"checksum":2}'
    assert (
        normalise_memory_state((file % 7).encode())
        == normalise_memory_state(other)
        != normalise_memory_state((file % 8).encode())
    )


def test_without_the_programs_one_line_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nothing can be compared, one line says why; that is an error unless it was allowed."""
    monkeypatch.setenv("PODSLICE_KUBERNETES", str(tmp_path))
    failed = CliRunner().invoke(main, [])
    assert (failed.exit_code, failed.output.count("\n")) == (2, 1)
    assert "nothing compared" in failed.output
    assert CliRunner().invoke(main, ["--skip-without"]).exit_code == 0


def test_cores_of_four_nodes() -> None:
    """CPUs are numbered thread by thread, as most firmware does."""
    assert FOUR.cpus_of_core(5) == [5, 21]
    assert FOUR.cpus_of_socket(1) == [*range(8, 16), *range(24, 32)]


class Short(Slow):
    """A history in which the machine runs out of something at the third pod."""

    def run(self, pods: int) -> None:
        Slow.begun += 1
        self.counts["pods"] += 3
        raise ShortageError("inotify_init: too many open files")


@pytest.mark.parametrize("more", [[], ["--skip-without"]])
def test_a_machine_that_has_too_little_is_said_once(monkeypatch: pytest.MonkeyPatch, more: list[str]) -> None:
    """A resource that the machine lacks is no difference: it is reported, nothing is tried after it, and it is no
    success."""
    for name, value in (("why_not", None), ("find_programs", "programs")):
        monkeypatch.setattr(f"tools.prediction.__main__.{name}", lambda value=value: value)
    for name in ("control_plane", "node_of"):
        monkeypatch.setattr(f"tools.prediction.__main__.{name}", lambda *where: nullcontext())
    monkeypatch.setattr("tools.prediction.__main__.Trial", Short)
    monkeypatch.setattr(Slow, "begun", 0)
    done = CliRunner().invoke(main, ["--seed", "3", "--pods", "5", *more], catch_exceptions=False)
    assert (done.exit_code, Slow.begun) == (2, 1)
    assert done.output.count("inotify_init: too many open files") == 1
    assert "| all | 3 |" in done.output


@pytest.mark.parametrize(
    ("line", "short"),
    [
        ('E1124 1 run.go:72] "command failed" err="failed to run Kubelet: inotify_init: too many open files"',
         "inotify_init: too many open files"),
        ('E1124 1 x.go:7] "Unable to read config" err="unable to create inotify: too many open files"',
         "inotify: too many open files"),
        ('E1124 1 x.go:7] "failed to watch" err="inotify_add_watch /x: no space left on device"',
         "inotify_add_watch /x: no space left on device"),
        ('E1124 1 x.go:7] "Failed" err="fork/exec /bin/x: resource temporarily unavailable"',
         "fork/exec /bin/x: resource temporarily unavailable"),
        ('E1124 1 x.go:7] "Failed to start" err="not all reserved cpus are present in defaultCpuSet"', ""),
        ('I1124 1 watch_based_manager.go:9] "Starting"', ""),
    ],
)  # fmt: skip
def test_what_a_kubelet_lacked(line: str, short: str) -> None:
    """Its log says of what there was too little; what a kubelet says of its own is something else."""
    found = shortage_in(f'I1124 1 x.go:1] "Before"\n{line}\n')
    assert found.partition(" (end other")[0] == short
    assert ("max_user_instances" in found) == ("inotify" in short)


@pytest.mark.process
def test_inotify_instances_that_are_taken() -> None:
    """A user who has taken all of them is told so, before any kubelet is started; those tried are given back."""
    code = (
        "import os, resource\n"
        "from tools.prediction.shortage import inotify_shortage\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)\n"
        "assert inotify_shortage() == '', inotify_shortage()\n"
        "before = len(os.listdir('/proc/self/fd'))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (before + 3, hard))\n"
        "print(inotify_shortage())\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))\n"
        "assert len(os.listdir('/proc/self/fd')) == before\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("inotify_init: too many open files after ")
    assert "fs.inotify.max_user_instances" in done.stdout
