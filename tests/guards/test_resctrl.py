"""Cache ways and memory bandwidth: groups of resctrl as the kernel documents them, made, changed and removed again."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice.config.policy import CacheClass
from podslice.guards.resctrl import RESCTRL, CacheFacts, ResctrlFacts, cache_groups, domains_of, schemata_of
from podslice.host.kernel.kernelfiles import KernelFiles
from podslice.host.kernel.resctrl import read_last_error, read_resctrl
from podslice.node.checkpoints.guard_files import GuardedFile, same, schemata_in
from podslice.values.cpuset import Bits, format_bits, parse_bits
from tests.guards.kernel import ONLINE, FakeKernel, KilledError

ROOT = "    L3:0=fff;1=fff\n    MB:0=100;1=100\n"
RESOURCES = {"L3": CacheFacts(0xFFF, 2), "MB": CacheFacts(0, 10, 10)}
PLAIN = ResctrlFacts(RESOURCES, domains_of(ROOT))
CDP = ResctrlFacts(
    {"L3CODE": CacheFacts(0xFFF, 1), "L3DATA": CacheFacts(0xFFF, 1)}, {"L3CODE": ("0", "1"), "L3DATA": ("0", "1")}
)
LATENCY, BATCH = CacheClass(l3="ff0", memory_bandwidth="50"), CacheClass(l3="0=f;1=3")


@pytest.mark.parametrize(
    ("wish", "facts", "lines"),
    [
        (LATENCY, PLAIN, "L3:0=ff0;1=ff0\nMB:0=50;1=50"),
        (BATCH, PLAIN, "L3:0=f;1=3"),
        (CacheClass(memory_bandwidth="0=45;1=1"), PLAIN, "MB:0=50;1=10"),
        (CacheClass(l3="ff0"), CDP, "L3CODE:0=ff0;1=ff0\nL3DATA:0=ff0;1=ff0"),
        (CacheClass(l3="ff0", l3_code="f"), CDP, "L3DATA:0=ff0;1=ff0\nL3CODE:0=f;1=f"),
        (CacheClass(l3="f0f"), PLAIN._replace(resources={"L3": CacheFacts(0xFFF, 2, sparse=True)}), "L3:0=f0f;1=f0f"),
    ],
)
def test_lines_of_a_class(wish: CacheClass, facts: ResctrlFacts, lines: str) -> None:
    """For every domain or each, for code and data together or apart; bandwidth in the machine's steps."""
    assert schemata_of(wish, facts) == (lines, ())


@pytest.mark.parametrize(
    ("wish", "facts", "problem"),
    [
        (CacheClass(l3="f0f"), PLAIN, "L3 f0f has a gap"),
        (CacheClass(l3="1000"), PLAIN, "L3 1000 is not within fff"),
        (CacheClass(l3="0"), PLAIN, "L3 0 is not within fff"),
        (CacheClass(l3="1"), PLAIN, "L3 1 has fewer than 2 ways"),
        (CacheClass(l3="0=f;7=f"), PLAIN, "L3 has no domain 7"),
        (CacheClass(l2="f"), PLAIN, "no L2 on this machine"),
        (CacheClass(l3_code="f"), PLAIN, "no L3CODE on this machine"),
        (CacheClass(memory_bandwidth="50"), CDP, "no MB on this machine"),
    ],
)
def test_what_a_machine_cannot(wish: CacheClass, facts: ResctrlFacts, problem: str) -> None:
    """Nothing is asked of the kernel that it would refuse; what is wrong is said, and the class has no group."""
    assert schemata_of(wish, facts)[1] == (problem,)
    found = cache_groups({"a": wish}, {"a": 0b11}, facts)
    assert (found.files, found.lacks) == ((), (f"cache: class a: {problem}",))


def test_lines_that_say_the_same() -> None:
    """The kernel writes resources with blanks and masks with zeros before; only what is wished is compared."""
    assert same("    L3:0=0ff0;1=00ff\n    MB:0= 50;1= 50\n", "L3:0=ff0\nMB:1=50", "schemata")
    assert not same(ROOT, "L3:0=ff0", "schemata")
    assert not same("", "L3:0=ff0", "schemata")
    assert schemata_in("what?\nL3:0=zz;=;1\n") == {("L3", "0"): "zz", ("L3", ""): ""}


def test_groups_of_others_stay() -> None:
    """CPUs that an operator or a runtime has put into a group stay there, and a group with our name that is not ours is
    left alone; both are said."""
    found = cache_groups({"a": LATENCY}, {"a": parse_bits("2-5")}, PLAIN._replace(others=parse_bits("4-9")))
    assert [one.wanted for one in found.files if one.form == "list"] == ["2-3"]
    assert found.lacks == ("cache: CPUs 4-5 are in another group of resctrl and stay there",)
    found = cache_groups({"a": LATENCY}, {"a": 0b1100}, PLAIN._replace(foreign=frozenset({"a"})))
    assert found == ((), ("cache: /sys/fs/resctrl/podslice-a is not the agent's and is left alone",))


class ResctrlKernel(FakeKernel):
    """resctrl on CPUs 0-7 with room for two groups beside the first. A folder that is made has all resources and no
    CPUs; CPUs leave the group that they were in; when a folder goes they are the first group's again."""

    def __init__(self) -> None:
        super().__init__({f"{RESCTRL}/schemata": ROOT.rstrip(), f"{RESCTRL}/cpus_list": "0-7"})

    def folder(self, path: str) -> bool:
        return f"{path}cpus_list" in self.files

    def read(self, path: str) -> str:
        return ("there" if self.folder(path) else "") if path.endswith("/") else super().read(path)

    def take(self, path: str, text: str) -> None:
        if path.endswith("/"):
            self._make(path) if text else self._remove(path)
        elif path not in self.files:
            raise FileNotFoundError(errno.ENOENT, "No such file or directory", path)
        elif path.endswith("cpus_list"):
            mine = parse_bits(text)
            for other in [one for one in self.files if one.endswith("cpus_list") and one != path]:
                self.files[other] = format_bits(parse_bits(self.files[other]) & ~mine)
            self.files[path] = text
            self._rest()
        else:
            told = schemata_in(self.files[path]) | schemata_in(text)
            assert all(value != 0 for value in told.values()), "no cache is without ways"
            self.files[path] = "\n".join(
                f"{resource}:{domain}={value:x}" if isinstance(value, int) else f"{resource}:{domain}={value}"
                for (resource, domain), value in told.items()
            )

    def write(self, path: str, text: str) -> None:
        self._step()
        self.writes.append((path, text))
        folder = path.rpartition("/")[0] + "/"
        assert folder in self.stored, "a folder is known before it is made"
        self.take(path, text)

    def _make(self, path: str) -> None:
        if self.folder(path):
            raise FileExistsError(errno.EEXIST, "File exists", path)
        if sum(one.endswith("cpus_list") for one in self.files) > 2:
            raise OSError(errno.ENOSPC, "No space left on device", path)
        self.files |= {f"{path}schemata": ROOT.rstrip(), f"{path}cpus_list": ""}

    def _remove(self, path: str) -> None:
        del self.files[f"{path}schemata"], self.files[f"{path}cpus_list"]
        self._rest()

    def _rest(self) -> None:
        """The first group has the CPUs that no other has."""
        first, taken = f"{RESCTRL}/cpus_list", 0
        for path in self.files:
            taken |= parse_bits(self.files[path]) if path.endswith("cpus_list") and path != first else 0
        self.files[first] = format_bits(ONLINE & ~taken)

    def found(self, cpus: dict[str, Bits], classes: dict[str, CacheClass]) -> list[GuardedFile]:
        groups_of_classes = [path for path in self.stored if "/mon_groups/" not in path]
        ours = {path.removeprefix(f"{RESCTRL}/podslice-").rstrip("/") for path in groups_of_classes}
        groups = {
            name: (self.files[f"{folder}schemata"], self.files[f"{folder}cpus_list"])
            for name in ours
            if self.folder(folder := f"{RESCTRL}/podslice-{name}/")
        }
        files = list(cache_groups(classes, cpus, PLAIN._replace(groups=groups)).files)
        paths = {one.path for one in files}
        for one in self.stored.values():
            if one.path not in paths:
                files.append(GuardedFile(one.path, one.form, self.read(one.path), one.guard))
        return files


CLASSES = {"a": LATENCY, "b": BATCH, "c": CacheClass(l3="3")}


def test_groups_come_and_go() -> None:
    """A class that is used has a group with its lines and CPUs, made in one pass; CPUs may change class; the last one
    that leaves takes the group along; without room for one more it is refused and nothing else is."""
    kernel = ResctrlKernel()
    first = dict(kernel.files)
    guard = kernel.guard()
    assert guard.run(kernel.found({"a": 0b11, "b": 0b1100}, CLASSES), online=ONLINE).refused == ()
    assert kernel.files[f"{RESCTRL}/cpus_list"] == "4-7"
    assert same(kernel.files[f"{RESCTRL}/podslice-a/schemata"], "L3:0=ff0;1=ff0\nMB:0=50;1=50", "schemata")
    assert guard.run(kernel.found({"a": 0b11, "b": 0b1100}, CLASSES), online=ONLINE).written == ()
    assert guard.run(kernel.found({"a": 0b1001, "b": 0b0110}, CLASSES), online=ONLINE).refused == ()
    assert [kernel.files[f"{RESCTRL}/podslice-{name}/cpus_list"] for name in "ab"] == ["0,3", "1-2"]
    news = guard.run(kernel.found({"a": 1, "b": 2, "c": 4}, CLASSES), online=ONLINE)
    assert f"{RESCTRL}/podslice-c/" in news.refused
    assert list(kernel.stored) == [f"{RESCTRL}/podslice-{name}/" for name in "ab"]
    assert guard.run(kernel.found({}, CLASSES), online=ONLINE).refused == ()
    assert (kernel.files, kernel.stored) == (first, {})


def test_a_group_that_somebody_changes() -> None:
    """One whose lines somebody else keeps changing is left to them."""
    kernel = ResctrlKernel()
    guard = kernel.guard()
    path = f"{RESCTRL}/podslice-a/schemata"
    for _ in range(4):
        assert guard.run(kernel.found({"a": 1}, CLASSES), online=ONLINE).contested == ()
        kernel.files[path] = ROOT.rstrip()
        kernel.now += 10
    assert guard.run(kernel.found({"a": 1}, CLASSES), online=ONLINE).contested == (path,)
    assert kernel.files[path] == ROOT.rstrip()


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.lists(st.sampled_from("abc-"), min_size=8, max_size=8), st.integers(0, 14)), max_size=5))
def test_killed_anywhere(life: list[tuple[list[str], int]]) -> None:
    """After any sequence of owners, with the agent killed before any store or write, there is no group and every CPU is
    the first group's once nobody owns any (P1, P6)."""
    kernel = ResctrlKernel()
    first = dict(kernel.files)
    guard = kernel.guard()
    for owned, kill_at in life:
        cpus = {name: sum(1 << cpu for cpu, one in enumerate(owned) if one == name) for name in "abc"}
        kernel.kill_at, kernel.now = kill_at, kernel.now + 7200
        try:
            guard.run(kernel.found({name: bits for name, bits in cpus.items() if bits}, CLASSES), online=ONLINE)
        except KilledError:
            guard = kernel.guard()
        kernel.kill_at = 0
    kernel.now += 7200
    kernel.guard().run(kernel.found({}, CLASSES), online=ONLINE)
    assert (kernel.files, kernel.stored) == (first, {})


def put_resctrl(root: Path) -> None:
    """A tree as the kernel has it on a machine with L3 allocation and bandwidth, and a group of an operator."""
    for path, text in {
        "schemata": ROOT,
        "cpus_list": "0-5,8-31\n",
        "info/L3/cbm_mask": "fff\n",
        "info/L3/min_cbm_bits": "2\n",
        "info/L3/num_closids": "16\n",
        "info/L3/sparse_masks": "0\n",
        "info/L3_MON/num_rmids": "176\n",
        "info/MB/bandwidth_gran": "10\n",
        "info/MB/min_bandwidth": "10\n",
        "info/MB/num_closids": "8\n",
        "info/last_cmd_status": "ok\n",
        "operators/cpus_list": "6-7\n",
        "operators/schemata": ROOT,
        "podslice-old/cpus_list": "\n",
        "podslice-old/schemata": ROOT,
        "mon_groups/x": "",
    }.items():
        (root / RESCTRL / path).parent.mkdir(parents=True, exist_ok=True)
        (root / RESCTRL / path).write_text(text)


def test_reading_a_tree(tmp_path: Path) -> None:
    """Resources and their domains, groups of others, and those that the agent has made."""
    files = KernelFiles(tmp_path)
    assert read_resctrl(files, ()) is None
    put_resctrl(tmp_path)
    found = read_resctrl(files, (f"{RESCTRL}/podslice-old/",))
    assert found == ResctrlFacts(
        RESOURCES, {"L3": ("0", "1"), "MB": ("0", "1")}, parse_bits("6-7"), {"old": (ROOT, "")}, frozenset({""})
    )
    found = read_resctrl(files, ())
    assert found is not None
    assert "old" in found.foreign
    assert read_last_error(files) == ""
    (tmp_path / RESCTRL / "info/last_cmd_status").write_text("Mask f0f has non-consecutive 1-bits\n")
    assert read_last_error(files) == "Mask f0f has non-consecutive 1-bits"
    (tmp_path / RESCTRL / "info/L3/cbm_mask").write_text("what?\n")
    assert read_resctrl(files, ()) is not None


def test_folders_are_files_too(tmp_path: Path) -> None:
    """A folder is made and removed like a file is written."""
    files = KernelFiles(tmp_path)
    (tmp_path / RESCTRL).mkdir(parents=True)
    path = f"{RESCTRL}/podslice-a/"
    assert files.read(path) == ""
    files.write(path, "there")
    assert files.read(path) == "there"
    files.write(path, "")
    assert not (tmp_path / path).exists()
