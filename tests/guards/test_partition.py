"""Partitions of cpusets: taken from the top, given back from the bottom, undone where the kernel does not agree."""

from __future__ import annotations

import errno

from hypothesis import given, settings
from hypothesis import strategies as st

from podslice.guards.holders import GuardedHolder, holders
from podslice.guards.partition import (
    EXCLUSIVE,
    PARTITION,
    Partition,
    choose_partitions,
    partition_files,
    partition_paths,
)
from podslice.node.checkpoints.guard_files import bits_in
from podslice.values.cpuset import Bits, format_bits, parse_bits
from tests.guards.kernel import ONLINE, FakeKernel, KilledError
from tests.node.mixed import helpers as mixed

MOUNT = "sys/fs/cgroup"
PODS = {"kubepods/a/app": "kubepods/a", "kubepods/b/app": "kubepods/b", "kubepods/b/side": "kubepods/b"}


class PartitionKernel(FakeKernel):
    """cgroups of two pods with three containers. A partition is valid while every cgroup above has its CPUs, and no two
    cgroups of one parent take the same CPU; `cpus` are those of the containers."""

    def __init__(self, *, remote: bool = True) -> None:
        super().__init__({})
        self.cpus: dict[str, Bits] = {}
        folders = ["kubepods", "kubepods/a", "kubepods/b", *PODS]
        for folder in folders if remote else []:
            self.files[f"{MOUNT}/{folder}/{EXCLUSIVE}"] = ""
        for folder in folders:
            self.files[f"{MOUNT}/{folder}/{PARTITION}"] = "member"

    def take(self, path: str, text: str) -> None:
        folder, _, name = path.removeprefix(f"{MOUNT}/").rpartition("/")
        if name == EXCLUSIVE:
            mine = bits_in(text, "list")
            for other in ("kubepods/a", "kubepods/b"):
                if folder.count("/") == 1 and folder != other and mine & self._taken(other):
                    raise OSError(errno.EINVAL, "Invalid argument")
        super().take(path, text)
        for child in PODS:
            there = f"{MOUNT}/{child}/{PARTITION}"
            word = self.files[there].split()[0]
            if word != "member":
                valid = self.cpus.get(child, 0) and not self.cpus[child] & ~self._above(child)
                self.files[there] = word if valid else f"{word} invalid (Parent has no such CPUs)"

    def _taken(self, folder: str) -> Bits:
        return bits_in(self.files[f"{MOUNT}/{folder}/{EXCLUSIVE}"], "list")

    def _above(self, child: str) -> Bits:
        return self._taken("kubepods") & self._taken(PODS[child])

    def found(self, wishes: list[Partition]) -> list:
        texts = {
            path: self.files[f"{MOUNT}/{path}"] for path in partition_paths(wishes) if f"{MOUNT}/{path}" in self.files
        }
        files = list(partition_files(wishes, texts, self.stored, mount=MOUNT))
        known = {file.path for file in files}
        return [*files, *(one for one in self.saved() if one.path not in known)]

    def text(self, path: str) -> str:
        return self.files[f"{MOUNT}/{path}"]

    def owned(self, cpus: dict[str, str]) -> list[Partition]:
        self.cpus = {path: parse_bits(text) for path, text in cpus.items()}
        return [Partition(path, bits, "root") for path, bits in self.cpus.items()]


def test_made_and_removed() -> None:
    """Every cgroup above takes the CPUs, then the container is a partition; in the end all is as before."""
    kernel = PartitionKernel()
    first = dict(kernel.files)
    guard = kernel.guard()
    wishes = kernel.owned({"kubepods/a/app": "2-3", "kubepods/b/app": "4-5"})
    guard.run(kernel.found(wishes), online=ONLINE)
    assert [kernel.text(f"{path}/{EXCLUSIVE}") for path in ("kubepods", "kubepods/a", "kubepods/b")] == [
        "2-5",
        "2-3",
        "4-5",
    ]
    assert [kernel.text(f"{path}/{PARTITION}") for path in PODS] == ["root", "root", "member"]
    assert kernel.writes[0][0].endswith(f"kubepods/{EXCLUSIVE}")
    guard.run(kernel.found(wishes[1:]), online=ONLINE)
    assert (kernel.text(f"kubepods/a/app/{PARTITION}"), kernel.text(f"kubepods/{EXCLUSIVE}")) == ("member", "4-5")
    guard.run(kernel.found([]), online=ONLINE)
    assert (kernel.files, kernel.stored) == (first, {})


def test_a_kernel_that_does_not_agree() -> None:
    """A partition that the kernel calls invalid is left again and not asked for within the hour."""
    kernel = PartitionKernel()
    guard = kernel.guard()
    wishes = kernel.owned({"kubepods/a/app": "2-3"})
    kernel.cpus = {}
    there = f"{MOUNT}/kubepods/a/app/{PARTITION}"
    assert guard.run(kernel.found(wishes), online=ONLINE).refused == (there,)
    assert kernel.files[there] == "member"
    assert guard.is_paused(there)
    assert guard.changed == {f"{MOUNT}/kubepods/{EXCLUSIVE}", f"{MOUNT}/kubepods/a/{EXCLUSIVE}"}
    kernel.now += 7200
    assert not guard.is_paused(there)


def test_an_older_kernel() -> None:
    """Where cgroups cannot take CPUs for one below (before 6.7), nothing is wished."""
    kernel = PartitionKernel(remote=False)
    assert kernel.found(kernel.owned({"kubepods/a/app": "2-3"})) == []


def test_sets_that_change_hands() -> None:
    """CPUs that one pod gives up can be taken by another in the same pass."""
    kernel = PartitionKernel()
    guard = kernel.guard()
    guard.run(kernel.found(kernel.owned({"kubepods/a/app": "2-5"})), online=ONLINE)
    wishes = kernel.owned({"kubepods/a/app": "2-3", "kubepods/b/app": "4-5"})
    assert guard.run(kernel.found(wishes), online=ONLINE).refused == ()
    assert [kernel.text(f"{path}/{PARTITION}") for path in PODS] == ["root", "root", "member"]


OWNERS = st.fixed_dictionaries({}, optional=dict.fromkeys(PODS, st.integers(1, 7)))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(OWNERS, st.integers(0, 14)), max_size=5))
def test_killed_anywhere(life: list[tuple[dict[str, int], int]]) -> None:
    """After any sequence of owners, with the agent killed before any store or write, no cgroup keeps a CPU or a
    partition once nobody owns CPUs (P1, P6)."""
    kernel = PartitionKernel()
    first = dict(kernel.files)
    guard = kernel.guard()
    for owners, kill_at in life:
        at, owned = 0, {}
        for path, count in sorted(owners.items()):
            cpus = (1 << min(count, 2)) - 1 << at
            owned[path], at = format_bits(cpus), at + min(count, 2)
        wishes = kernel.owned(owned)
        kernel.kill_at, kernel.now = kill_at, kernel.now + 7200
        try:
            guard.run(kernel.found(wishes), online=ONLINE)
        except KilledError:
            guard = kernel.guard()
        kernel.kill_at = 0
    kernel.now += 7200
    kernel.owned({})
    guard = kernel.guard()
    for _ in range(2):
        guard.run(kernel.found([]), online=ONLINE)
        kernel.now += 7200
    assert (kernel.files, kernel.stored) == (first, {})


def holder(container: str, cpus: str, isolation: str = "root") -> GuardedHolder:
    return GuardedHolder("u1", container, parse_bits(cpus), isolation=isolation)


def wished(holders: list[GuardedHolder], running: dict[str, str | None]) -> list[tuple[str, str, bool]]:
    cgroups = [
        ("u1", name, f"kubepods/pod1/{name}", None if cpus is None else parse_bits(cpus))
        for name, cpus in running.items()
    ]
    return [(one.path, format_bits(one.cpus), one.whole) for one in choose_partitions(holders, cgroups)]


def test_a_pod_that_shares_its_cpus() -> None:
    """CPUs that containers share are a partition of their pod, with those that one of them owns; not where one of
    them runs elsewhere, or the pod requests none. Then containers with CPUs of their own are partitions themselves."""
    pod = [holder("", "4-7"), holder("db", "2-3")]
    assert wished(pod, {"db": "2-3", "web": "4-7"}) == [("kubepods/pod1", "2-7", True)]
    assert wished(pod, {"db": "2-3", "web": "4-8"}) == [("kubepods/pod1/db", "2-3", False)]
    assert wished(pod, {"db": "2-3", "web": None}) == [("kubepods/pod1/db", "2-3", False)]
    assert wished([holder("", "4-7", "shared"), pod[1]], {"db": "2-3", "web": "4-7"})[0][2] is False
    assert wished([holder("db", "2-3", "shared")], {"db": "2-3"}) == []
    assert wished(pod, {}) == []


def test_files_of_a_pod() -> None:
    """The pod's cgroup takes its CPUs too: nothing else says which are its own."""
    wish = Partition("kubepods/pod1", parse_bits("2-7"), "root", whole=True)
    assert partition_paths([wish]) == [
        f"kubepods/{EXCLUSIVE}", f"kubepods/pod1/{EXCLUSIVE}", f"kubepods/pod1/{PARTITION}"
    ]  # fmt: skip


def test_containers_that_share_their_pods_cpus() -> None:
    """Of a pod that has CPUs as a whole, containers that share them own none, though its ledgers name all of these for
    each: the pod is one partition, and they are none."""
    settings = {"feature_gates": {"PodLevelResourceManagers": True}, "topology_manager_scope": "pod"}
    node = mixed.node(None, topology_manager_policy="restricted", **settings)
    for one in (mixed.pod("p", "", "", budget="2"), mixed.pod("q", "1", "", budget="3")):
        assert node.admit(one).admitted
    found = list(holders(node.view))
    assert [(one.uid, one.container, format_bits(one.cpus)) for one in found] == [
        ("p", "", "2-3"), ("q", "c0", "6"), ("q", "", "4-5"),
    ]  # fmt: skip
    running = [
        (uid, name, f"kubepods/pod{uid}/{name}", node.view.affinity(uid, name)) for uid in "pq" for name in ("c0", "c1")
    ]
    wishes = choose_partitions(found, running)
    assert [(one.path, format_bits(one.cpus), one.whole) for one in wishes] == [
        ("kubepods/podp", "2-3", True), ("kubepods/podq", "4-6", True),
    ]  # fmt: skip
