"""Guards of a node: kernel threads, caches, irqbalance, where the rest goes, and guards that containers wait for."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from podslice.config.policy import CacheClass, InterferenceGuards
from podslice.guards.resctrl import RESCTRL
from tests.guards.node import IRQ, GuardedNode, cgroups_of
from tests.guards.test_resctrl import put_resctrl

KERNEL, FIXED = 0x00200000, 0x04000000


def test_threads_of_the_kernel(tmp_path: Path) -> None:
    """Movable threads of the kernel leave exclusive CPUs and come back; those of one CPU, and processes, stay. A thread
    that got the number of one that ended is not touched."""
    node = GuardedNode(tmp_path, None, rules=InterferenceGuards(kthreads="enforce", housekeeping_cpus="0-1"))
    for pid, name, flags, allowed in (
        (2, "kthreadd", KERNEL, "0-31"),
        (9, "ksoftirqd/3", KERNEL | FIXED, "3"),
        (20, "kswapd0", KERNEL, "2-5"),
        (21, "kcompactd0", KERNEL, "2-5"),
        (700, "sshd", 0, "0-31"),
    ):
        node.thread(pid, name, flags, allowed)
    node.own()
    node.look()
    assert {pid: node.allowed(pid) for pid in (2, 9, 20, 700)} == {2: "0-1,6-31", 9: "3", 20: "0-1", 700: "0-31"}
    assert node.open("kthreads") == 0
    node.thread(21, "another", KERNEL, "0-1", started=6)
    node.guards.restore()
    assert {pid: node.allowed(pid) for pid in (2, 20, 21)} == {2: "0-31", 20: "2-5", 21: "0-1"}
    assert not node.troubles


def test_threads_of_the_kernel_after_a_kill(tmp_path: Path) -> None:
    """Threads that a killed agent moved are moved back by the next one; in observe mode nothing is moved."""
    killed = GuardedNode(tmp_path, None, rules=InterferenceGuards(kthreads="enforce"))
    killed.thread(20, "kswapd0", KERNEL)
    killed.own()
    killed.look()
    assert killed.allowed(20) == "0-1,6-31"
    node = GuardedNode(tmp_path, None, rules=InterferenceGuards())
    node.look()
    assert node.allowed(20) == "0-31"
    node.own()
    node.look()
    assert (node.allowed(20), node.open("kthreads")) == ("0-31", 1)


CLASSES = {"latency": CacheClass(l3="ff0", memory_bandwidth="50"), "gap": CacheClass(l3="f0f")}


def test_cache_of_a_container(tmp_path: Path) -> None:
    """A class is a group of resctrl with the CPUs of its containers, without those of an operator's group; lines and
    CPUs are written when the folder is there. What the machine cannot do is said once."""
    rules = InterferenceGuards(cache="enforce", cache_classes=CLASSES, default_cache="latency")
    node = GuardedNode(tmp_path, None, rules=rules)
    node.own()
    node.look()
    node.look()
    assert node.troubles == ["cache: resctrl is not mounted at /sys/fs/resctrl"]
    put_resctrl(node.root)
    (node.root / RESCTRL / "operators/cpus_list").write_text("5\n")
    group = node.root / RESCTRL / "podslice-latency"
    node.look()
    assert group.is_dir()
    assert "another group" in node.troubles[1]
    (group / "schemata").write_text("L3:0=fff;1=fff\nMB:0=100;1=100\n")
    (group / "cpus_list").write_text("\n")
    node = GuardedNode(tmp_path, None, rules=rules)
    node.own()
    node.look()
    assert (group / "cpus_list").read_text() == "2-4\n"
    assert (group / "schemata").read_text() == "L3:0=ff0;1=ff0\nMB:0=50;1=50\n"
    assert node.open("cache") == 0
    for file in group.iterdir():
        file.unlink()
    node.guards.restore()
    assert not group.exists()


@pytest.mark.parametrize(("wish", "said"), [("gap", "L3 f0f has a gap"), ("latency", "")])
def test_cache_class_of_an_annotation(tmp_path: Path, wish: str, said: str) -> None:
    """A container asks for a class; one that the machine cannot give gets no group. Observed, nothing is made."""
    node = GuardedNode(tmp_path, None, rules=InterferenceGuards(cache_classes=CLASSES))
    put_resctrl(node.root)
    node.own(cache_class=wish)
    node.look()
    assert not list((node.root / RESCTRL).glob("podslice-[!o]*"))
    assert node.open("cache") == (0 if said else 3)
    assert said in " ".join(node.troubles)


def test_where_the_rest_goes(tmp_path: Path) -> None:
    """A file that would have no CPU left gets the housekeeping CPUs, those of its NUMA node first; so does one that
    allows all CPUs."""
    rules = InterferenceGuards("enforce", units="enforce", housekeeping_cpus="8-9")
    node = GuardedNode(tmp_path, None, rules=rules)
    node.put("proc/irq/7/smp_affinity_list", "3")
    system = node.put("sys/fs/cgroup/system.slice/cpuset.cpus", "")
    node.own()
    node.look()
    assert node.text("proc/irq/7/smp_affinity_list") == "8-9"
    assert system.read_text().strip() == "8-9"
    assert node.text() == "0-1,6-31"


@pytest.mark.parametrize("guard", ["irq", "kthreads"])
def test_other_work_goes_on(tmp_path: Path, guard: str) -> None:
    """A pass reads of thousands of processes, and the agent does other work in between."""
    turns = []
    for processes in (0, 320):
        rules = InterferenceGuards(**{guard: "enforce"})  # type: ignore[arg-type]
        node = GuardedNode(tmp_path / str(processes), None, rules=rules)
        for pid in range(1000, 1000 + processes):
            node.thread(pid, "app", 0)
        node.own()
        turns.append(asyncio.run(turns_of(node)))
    assert turns[1] - turns[0] >= 20


async def turns_of(node: GuardedNode) -> int:
    """How often others run in one pass."""
    look, turns = asyncio.ensure_future(node.guards.look()), 0
    while not look.done():
        turns += 1
        await asyncio.sleep(0)
    return turns


def test_irqbalance_is_named_once(tmp_path: Path) -> None:
    """One that would move interrupts back is named, with the CPUs that it is to leave alone; one that leaves them alone
    is not."""
    node = GuardedNode(tmp_path, "enforce")
    node.thread(50, "irqbalance", 0)
    node.put("proc/50/environ", "PATH=/bin\0IRQBALANCE_BANNED_CPULIST=2-4\0")
    node.own()
    node.look()
    node.look()
    assert node.troubles == [
        "irqbalance (50) runs and moves interrupts back: stop it, or start it with IRQBALANCE_BANNED_CPULIST=2-5"
    ]
    for environment in ("IRQBALANCE_BANNED_CPULIST=1-5\0", "IRQBALANCE_BANNED_CPUS=3c\0"):
        node = GuardedNode(tmp_path, "enforce")
        node.put("proc/50/environ", environment)
        node.own()
        node.look()
        assert not node.troubles


@pytest.mark.parametrize(("kernel", "kind"), [((6, 10), "member"), ((6, 11), "root"), ((7, 0), "root")])
def test_partitions_by_the_kernel(tmp_path: Path, kernel: tuple[int, int], kind: str) -> None:
    """`auto` makes partitions where the kernel is new enough for them."""
    node = GuardedNode(tmp_path, None, rules=InterferenceGuards(partition="auto"), kernel=kernel)
    node.own()
    files = cgroups_of(node)
    node.look()
    assert files["/pod1/app"].read_text().strip() == kind


def test_required_guards(tmp_path: Path) -> None:
    """A guard that can change nothing is said to have failed, for pods with CPUs of their own and where the policy asks
    for it; one that works has not, though a single interrupt is managed."""
    node = GuardedNode(tmp_path, None, rules=InterferenceGuards("enforce", required=True))
    assert not node.guards.concerns("u1")
    node.own()
    assert node.guards.concerns("u1")
    real = node.guards._files.write
    node.guards._files.write = lambda path, text: (_ for _ in ()).throw(OSError(30, "EROFS"))  # type: ignore[method-assign]
    node.look()
    assert node.guards.failure == "guard irq: irq 131 cannot be moved: managed, or not writable"
    node.look()
    assert node.guards.failure
    optional = GuardedNode(tmp_path, "enforce")
    optional.own()
    assert not optional.guards.concerns("u1")

    def managed(path: str, text: str) -> None:
        if path == IRQ:
            raise OSError(5, "EIO")
        real(path, text)

    optional.guards._files.write = managed  # type: ignore[method-assign]
    optional.look()
    assert (optional.guards.failure, optional.open()) == ("", 1)
    (tmp_path / "state" / "podslice_guard_state").write_text("{")
    damaged = GuardedNode(tmp_path, "enforce")
    damaged.own()
    damaged.look()
    assert "cannot be read" in damaged.guards.failure
