"""A move that is killed between any two writes ends as done or as never begun."""

from __future__ import annotations

from pathlib import Path

import pytest

from podslice import ExclusiveResize, Pod, PodslicePolicy
from podslice.advise.defrag.plan import ContainerMove, Move, apply_move
from podslice.config.policy import Defragmentation
from podslice.host.state.resize_store import ResizeStore
from podslice.host.state.store import StateWriteError
from podslice.node.checkpoints.names import POLICY_STATE_FILE
from podslice.node.checkpoints.policy_state import decode, read_intents
from podslice.node.state import NodeState
from podslice.state_files.promises import check_promises
from podslice.values.cpuset import CPUSet
from tests.node.resize.test_exclusive import MACHINE, budget
from tests.state_files.test_crash import FullDisk, KilledError, Killer
from tests.state_files.test_resize_crash import CONFIG, OWNER, one

UID = "uid-p"
DEFRAG = PodslicePolicy(defrag=Defragmentation(carry_out="onRequest"))
BOTH = PodslicePolicy(resize=ExclusiveResize(exclusive=True), defrag=Defragmentation(carry_out="onRequest"))


def sets(text: str) -> CPUSet:
    return CPUSet.parse(text)


def make_move(
    *containers: tuple[str, str, str], whole: tuple[str, str] | None = None, memory: tuple[str, str] = ("0", "0")
) -> Move:
    """A move of containers of the pod, each from and to these CPUs."""
    nodes = [sets(text) for text in memory]
    return Move(
        uid=UID,
        namespace="default",
        name="p",
        containers=tuple(ContainerMove(name, sets(old), sets(new), *nodes) for name, old, new in containers),
        pod_cpus_before=None if whole is None else sets(whole[0]),
        pod_cpus_after=None if whole is None else sets(whole[1]),
    )


MOVES = [
    pytest.param(one("4"), make_move(("c0", "2-5", "20-23")), id="cpus"),
    pytest.param(one("4"), make_move(("c0", "2-5", "4-7")), id="cpus-some-of-which-stay"),
    pytest.param(one("4"), make_move(("c0", "2-5", "20-23"), memory=("0", "1")), id="with-memory"),
    pytest.param(one("4"), make_move(("c0", "2-5", "2-5"), memory=("0", "1")), id="memory-only"),
    pytest.param(
        budget("8", "4"), make_move(("c0", "2-5", "16-19"), ("c1", "6-9", "20-23"), whole=("2-9", "16-23")), id="pod"
    ),
]


def open_store(
    directory: Path, policy: PodslicePolicy, *running: Pod, files: Killer | FullDisk | None = None
) -> ResizeStore:
    return ResizeStore(directory, MACHINE, CONFIG, running=running, policy=policy, files=files)


def begin(store: ResizeStore, pod: Pod) -> None:
    assert store.admit(pod).admitted
    assert store.admit(OWNER).admitted


def carry_out(store: ResizeStore, move: Move, *, undo: bool = False) -> None:
    """Each step of a move on the ledgers."""
    store.begin_move(UID, store.plan_move(UID, lambda node: apply_move(node, move)))
    if undo:
        store.undo_move(UID)
    else:
        store.commit_move(UID, lambda node: apply_move(node, move))
        store.end_resize(UID)


def play(store: ResizeStore, pod: Pod, move: Move, *, undo: bool) -> None:
    begin(store, pod)
    carry_out(store, move, undo=undo)


def holds(state: NodeState) -> tuple[object, ...]:
    cpu, memory = state.cpu, state.memory
    held = cpu.default, cpu.assignments, cpu.pod_cpus, cpu.loans, cpu.pod_loans
    return *held, memory.machine_state, memory.assignments, memory.pod_assignments


@pytest.mark.slow
@pytest.mark.parametrize("policy", [DEFRAG, BOTH], ids=["moves", "moves-and-resizes"])
@pytest.mark.parametrize(("pod", "move"), MOVES)
@pytest.mark.parametrize("undo", [False, True], ids=["done", "undone"])
def test_every_kill_point(pod: Pod, move: Move, policy: PodslicePolicy, tmp_path: Path, undo: bool) -> None:
    """Killed before or after any write, a node starts with exactly what the pod had or with what the plan promised, the
    former before the latter; the other pod stays where it is, and nothing is left to do."""
    store = open_store(tmp_path / "whole", policy)
    begin(store, pod)
    before = holds(store.node.state)
    apply_move(store.node, move)
    after = holds(store.node.state)
    assert after != before
    counter = Killer()
    begin(open_store(tmp_path / "count", policy, files=counter), pod)
    first = counter.steps
    counter = Killer()
    store = open_store(tmp_path / "all", policy, files=counter)
    play(store, pod, move, undo=undo)
    assert holds(store.node.state) == (before if undo else after)
    seen = []
    for at in range(first + 1, counter.steps + 1):
        directory = tmp_path / f"kill-{at}"
        store = open_store(directory, policy, files=Killer(at))
        with pytest.raises(KilledError):
            play(store, pod, move, undo=undo)
        again = open_store(directory, policy, pod, OWNER)
        assert again.refused == []
        seen.append(holds(again.node.state))
        assert seen[-1] in (before, after)
        for uid in again.open_resizes:
            again.end_resize(uid)
        assert holds(open_store(directory, policy, pod, OWNER).node.state) == seen[-1]
    done = [one == after for one in seen]
    assert done == ([False] * len(seen) if undo else sorted(done))
    assert undo or (not done[0] and done[-1])


def test_while_it_moves_both_places_are_its_own(tmp_path: Path) -> None:
    """No other pod gets the CPUs that it leaves or those that it is to have, and the file says what goes on."""
    store = open_store(tmp_path, BOTH)
    begin(store, one("4"))
    move = make_move(("c0", "2-5", "20-23"))
    store.begin_move(UID, store.plan_move(UID, lambda node: apply_move(node, move)))
    cpu = store.node.state.cpu
    assert str(CPUSet.from_bits(cpu.assignments[UID]["c0"])) == "2-5,20-23"
    assert not cpu.default & (sets("2-5") | sets("20-23")).bits
    data = (tmp_path / POLICY_STATE_FILE).read_bytes()
    assert read_intents(data)[UID].move
    (finding,) = check_promises(decode(data), "", None)
    assert finding.text.startswith("a move from ")


def test_a_full_disk_undoes_it(tmp_path: Path) -> None:
    """Where the first or the last file cannot be written, the pod has what it had, in memory and on the disk."""
    disk = FullDisk()
    store = open_store(tmp_path, BOTH, files=disk)
    begin(store, one("4"))
    before, move = holds(store.node.state), make_move(("c0", "2-5", "20-23"))
    intent = store.plan_move(UID, lambda node: apply_move(node, move))
    disk.full = True
    with pytest.raises(StateWriteError):
        store.begin_move(UID, intent)
    assert (holds(store.node.state), store.open_resizes) == (before, ())
    disk.full = False
    store.begin_move(UID, intent)
    disk.full = True
    with pytest.raises(StateWriteError):
        store.commit_move(UID, lambda node: apply_move(node, move))
    disk.full = False
    store.undo_move(UID)
    assert holds(store.node.state) == before
    assert holds(open_store(tmp_path, BOTH, one("4"), OWNER).node.state) == before
