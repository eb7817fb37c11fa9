"""A resize that is killed between any two writes ends as done or as never begun."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from podslice import ExclusiveResize, KubeletConfig, Pod, PodslicePolicy
from podslice.config.kubelet import MemoryReservation
from podslice.host.state.resize_store import ResizeStore
from podslice.host.state.store import NodeStore, StateWriteError
from podslice.node.cpu.state import Intent
from tests.node.resize.helpers import burstable, guaranteed, pod
from tests.node.resize.test_exclusive import MACHINE, budget
from tests.state_files.test_crash import FullDisk, KilledError, Killer

POLICY = PodslicePolicy(
    resize=ExclusiveResize(exclusive=True, below_baseline="allow", eligibility_change="allow", memory_nodes="follow")
)
CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    reserved_system_cpus="0-1",
    memory_manager_policy="Static",
    system_reserved={"memory": "1Gi"},
    reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    eviction_hard={},
    topology_manager_policy="best-effort",
    topology_manager_scope="pod",
    feature_gates={"PodLevelResourceManagers": True},
)
OWNER = pod(guaranteed("4", "1Gi"), name="other")
SHARER = pod(burstable("4"), name="other")
"""Holds no memory, so that another pod's may spread over all nodes."""


def one(cpu: str, memory: str = "1Gi") -> Pod:
    return pod(guaranteed(cpu, memory))


def whole(memory: str, slice_: str, cpu: str = "8") -> Pod:
    amounts = {"cpu": cpu, "memory": memory}
    return pod(guaranteed("4", slice_), {}, pod_level={"requests": amounts, "limits": dict(amounts)})


def open_store(directory: Path, *running: Pod, files: Killer | None = None) -> NodeStore:
    return NodeStore(directory, MACHINE, CONFIG, running=running, policy=POLICY, files=files)


WIDE = one("4", "80Gi"), whole("80Gi", "3Gi")
HISTORIES = [
    pytest.param([one("4"), one("8")], id="grow"),
    pytest.param([one("4"), one("12"), one("6")], id="shrink"),
    pytest.param([one("4"), one("8"), one("4")], id="back"),
    pytest.param([one("4"), one("8"), one("2")], id="below-the-promise"),
    pytest.param([one("1500m"), one("4")], id="first-exclusive"),
    pytest.param([one("4"), one("1500m")], id="no-longer-exclusive"),
    pytest.param([budget("8", "4"), budget("12", "6")], id="pod-cpus-grows"),
    pytest.param([budget("8", "4"), budget("12", "8"), budget("8", "4")], id="pod-cpus-shrinks"),
    pytest.param([budget("8", "4"), budget("8", "1500m")], id="slice-becomes-shared"),
    pytest.param([one("4"), one("4", "5Gi")], id="memory-grows"),
    pytest.param([one("4"), WIDE[0]], id="memory-grows-to-a-second-node"),
    pytest.param([one("4", "80Gi"), one("8", "5Gi")], id="memory-leaves-a-node"),
    pytest.param([whole("4Gi", "1Gi"), WIDE[1]], id="whole-memory-grows"),
    pytest.param([whole("80Gi", "3Gi"), whole("4Gi", "1Gi")], id="whole-memory-shrinks"),
]


def memory_of(store: NodeStore) -> tuple[object, ...]:
    memory = store.node.state.memory
    return memory.machine_state, memory.assignments, memory.pod_assignments


def play(store: NodeStore, sizes: list[Pod], other: Pod = OWNER) -> None:
    """The pod in its first size beside another one, then in the others."""
    assert store.admit(sizes[0]).admitted
    assert store.admit(other).admitted
    for size in sizes[1:]:
        assert store.resize(size).outcome == "Allocated"


@pytest.mark.parametrize("sizes", HISTORIES)
@pytest.mark.slow
def test_every_kill_point(sizes: list[Pod], tmp_path: Path) -> None:
    """Killed before or after any write, a node starts with exactly what it had where the old size was granted, with
    what it was to have where the new one was, and the other pod stays where it is."""
    other = SHARER if sizes[-1] in WIDE else OWNER
    before, after = open_store(tmp_path / "before"), open_store(tmp_path / "after")
    play(before, sizes[:-1], other)
    play(after, sizes, other)
    counter = Killer()
    play(open_store(tmp_path / "count", files=counter), sizes[:-1], other)
    first = counter.steps
    play(open_store(tmp_path / "whole", files=(counter := Killer())), sizes, other)
    for at in range(first + 1, counter.steps + 1):
        for granted, expected in ((sizes[-2], before), (sizes[-1], after)):
            directory = tmp_path / f"kill-{at}-{granted is sizes[-1]}"
            with pytest.raises(KilledError):
                play(open_store(directory, files=Killer(at)), sizes, other)
            again = open_store(directory, granted, other)
            assert again.refused == []
            now, then = again.node.state.cpu, expected.node.state.cpu
            assert (now.default, now.assignments, now.pod_cpus) == (then.default, then.assignments, then.pod_cpus)
            assert (now.loans, now.pod_loans) == (then.loans, then.pod_loans)
            assert memory_of(again) == memory_of(expected)


def test_memory_of_a_pod_without_whole_cpus(tmp_path: Path) -> None:
    """Memory that stays where it is goes back to the NUMA nodes it had, of pods that own no CPUs too."""
    sticky = PodslicePolicy(resize=ExclusiveResize(exclusive=True))
    small, large = whole("4Gi", "1Gi", "7500m"), whole("80Gi", "3Gi", "7500m")
    store = NodeStore(tmp_path, MACHINE, CONFIG, policy=sticky)
    assert store.admit(small).admitted
    before = memory_of(store)
    assert store.resize(large).outcome == "Allocated"
    again = NodeStore(tmp_path, MACHINE, CONFIG, running=[small], policy=sticky)
    assert memory_of(again) == before


def test_two_pods_in_one_pass(tmp_path: Path) -> None:
    """CPUs that one pod gives back go to another that waits in the same pass; after a kill before either was
    granted its new size, both have their old CPUs."""
    waits, wants = pod(guaranteed("8", "1Gi"), name="other"), pod(guaranteed("14", "1Gi"), name="other")

    def play_both(store: NodeStore, *, shrinks: bool) -> None:
        store.admit(one("20"))
        store.admit(waits)
        assert store.resize(wants).outcome == "Deferred"
        if shrinks:
            assert [answer.outcome for answer in store.resize(one("4")).others] == ["Allocated"]

    before = open_store(tmp_path / "before")
    play_both(before, shrinks=False)
    counter = Killer()
    play_both(open_store(tmp_path / "count", files=counter), shrinks=False)
    first, counter = counter.steps, Killer()
    play_both(open_store(tmp_path / "whole", files=counter), shrinks=True)
    for at in range(first + 1, counter.steps + 1):
        directory = tmp_path / f"kill-{at}"
        with pytest.raises(KilledError):
            play_both(open_store(directory, files=Killer(at)), shrinks=True)
        again = open_store(directory, one("20"), waits)
        assert again.refused == []
        assert again.node.state.cpu.assignments == before.node.state.cpu.assignments
        assert again.node.state.cpu.loans == {}
        assert memory_of(again) == memory_of(before)


def test_a_full_disk(tmp_path: Path) -> None:
    """A resize that cannot be written is taken back."""
    disk = FullDisk()
    store = NodeStore(tmp_path, MACHINE, CONFIG, policy=POLICY, files=disk)
    play(store, [one("4")])
    before = store.node.state
    disk.full = True
    with pytest.raises(StateWriteError):
        store.resize(one("8"))
    assert store.node.state == before


def test_the_intents_are_told_to_who_accepts(tmp_path: Path) -> None:
    """The caller that may refuse an opened store gets the resizes that were being written, from the one reading of
    the file."""
    first = ResizeStore(tmp_path, MACHINE, CONFIG, policy=POLICY)
    size = one("4")
    assert first.admit(size).admitted
    plan = first.plan_resize(one("6"))
    first.begin_resize(size.metadata.uid, plan.intent)
    seen: list[Mapping[str, Intent]] = []
    accept = lambda node, intents: seen.append(intents)  # noqa: E731
    ResizeStore(tmp_path, MACHINE, CONFIG, policy=POLICY, running=[size], accept=accept)
    assert seen == [{size.metadata.uid: plan.intent}]
