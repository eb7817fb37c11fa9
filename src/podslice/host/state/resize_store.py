"""A node on a state directory whose resizes and moves take several steps, as those of the agent do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from msgspec.structs import replace

from podslice.api.pod.spec import Pod
from podslice.host.state.store import NodeStore, StateWriteError
from podslice.node.checkpoints.names import POLICY_STATE_FILE
from podslice.node.cpu.state import Intent, PodCPUs
from podslice.node.decide import hold_before, hold_both, settle_resizes
from podslice.node.decision import ResizeDecision
from podslice.node.node import Node
from podslice.node.resize.pending import Waiting


class PlannedResize(NamedTuple):
    """A resize that is not carried out: its decision, what the pod has and would have, and its granted
    specification."""

    decision: ResizeDecision
    intent: Intent
    spec: Pod


class ResizeStore(NodeStore):
    """A node store that keeps resizes between `begin_resize` and `end_resize` in the policy's state file, also over a
    restart."""

    def _resume(self, intents: Mapping[str, Intent]) -> None:
        self._open = {uid: one for uid, one in intents.items() if uid in self.node.pods}
        state = self.node.state
        self._waiting = {uid: one.desired for uid, one in state.resizes.pending.items()}
        self.node.state = replace(state, resizes=Waiting())

    @property
    def waiting(self) -> Mapping[str, Pod]:
        """Granted specifications of pods that run with less than they were granted. The node does not retry them by
        itself."""
        return self._waiting

    def take_waiting(self) -> Mapping[str, Pod]:
        """Return `waiting` and clear it."""
        waiting, self._waiting = self._waiting, {}
        return waiting

    @property
    def open_resizes(self) -> tuple[str, ...]:
        """UIDs of pods whose resize or move has begun and not ended."""
        return tuple(self._open)

    def plan_resize(self, pod: Pod, *, memory_stays: bool = False) -> PlannedResize:
        """Decide as `Node.resize` without changing the node. Raises what it raises."""
        before = self.node.state
        try:
            decision = self.node.resize(pod, memory_stays=memory_stays)
            after = self.node.state
        finally:
            self.node.state = before
        uid = decision.uid
        return PlannedResize(decision, Intent(before.of_pod(uid), after.of_pod(uid)), after.pods[uid].spec)

    def begin_resize(self, uid: str, intent: Intent) -> None:
        """Write what a pod has and will have, before the steps of its resize; the file keeps it until `end_resize`.
        Raises `StateWriteError`; nothing has begun then."""
        self._open[uid] = intent
        try:
            self._write(POLICY_STATE_FILE, self._policy_file(self._open))
        except OSError as error:
            del self._open[uid]
            raise self._write_error(error) from error

    def end_resize(self, uid: str) -> None:
        """Forget the intent: the pod now has what the state says. Raises `StateWriteError`; the next decision then
        writes it."""
        self._open.pop(uid, None)
        self.save()

    def undo_resize(self, pod: Pod, had: PodCPUs) -> None:
        """Give a pod back the requests and resources from before its resize. Raises `StateWriteError`; it then has them
        in memory only."""
        self.node.resize(pod)
        settle_resizes(self.node, {pod.metadata.uid: Intent(had, had)}, (pod,))
        self.save()

    # Moves

    def plan_move(self, uid: str, place: Callable[[Node], None]) -> Intent:
        """Return what a pod has, and what it has once `place` has moved it on a node; the node does not change."""
        before = self.node.state
        try:
            place(self.node)
            after = self.node.state
        finally:
            self.node.state = before
        return Intent(before.of_pod(uid), after.of_pod(uid), move=True)

    def begin_move(self, uid: str, intent: Intent) -> None:
        """Begin a move: until `commit_move` the pod owns both the CPUs that it leaves and those that it gets. Raises
        `StateWriteError`; nothing has begun then."""
        self.begin_resize(uid, intent)
        before = self.node.state
        hold_both(self.node, uid, intent)
        try:
            self._save()
        except OSError as error:
            self.node.state = before
            del self._open[uid]
            raise self._write_error(error) from error

    def commit_move(self, uid: str, place: Callable[[Node], None]) -> None:
        """Move the pod on the node with `place`; `end_resize` ends the move. Raises `StateWriteError`, and what `place`
        raises; the pod is then as after `begin_move`."""
        before = self.node.state
        # Both sides are held since `begin_move`; `place` must find the CPUs that the pod moves to free.
        try:
            hold_before(self.node, uid, self._open[uid])
            place(self.node)
            self._save()
        except OSError as error:
            self.node.state = before
            raise self._write_error(error) from error
        except Exception:
            self.node.state = before
            raise

    def undo_move(self, uid: str) -> None:
        """Give a pod back what it had before its move. Raises `StateWriteError`; it then has it in memory only."""
        intent = self._open.pop(uid, None)
        if intent is not None:
            hold_before(self.node, uid, intent)
        self.save()

    def _write_error(self, error: OSError) -> StateWriteError:
        return StateWriteError(f"{self.directory}: cannot be written: {error.strerror or error}")
