"""A node on a state directory whose resizes take time: the agent's, which changes what runs in several steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.core.decide import settle_resizes
from podslice.core.decision import ResizeDecision
from podslice.core.pod.spec import Pod
from podslice.core.state.model import Intent, PodCPUs
from podslice.host.store import NodeStore, StateWriteError
from podslice.statefiles.names import POLICY_STATE_FILE


class PlannedResize(NamedTuple):
    """What `NodeStore.resize` would answer, what the pod has and would have, and the pod as it would be granted."""

    decision: ResizeDecision
    intent: Intent
    spec: Pod


class ResizeStore(NodeStore):
    """Resizes between `begin_resize` and `end_resize` stay in the policy's state file, also over a restart."""

    def _resume(self, intents: Mapping[str, Intent]) -> None:
        self._open = {uid: one for uid, one in intents.items() if uid in self.node.pods}

    @property
    def unfinished(self) -> tuple[str, ...]:
        """Pods whose resize has begun and not ended."""
        return tuple(self._open)

    def plan_resize(self, pod: Pod) -> PlannedResize:
        """Decide, and change nothing. Raises as `Node.resize`."""
        before = self.node.state
        try:
            decision = self.node.resize(pod)
            after = self.node.state
        finally:
            self.node.state = before
        uid = decision.uid
        return PlannedResize(decision, Intent(before.of_pod(uid), after.of_pod(uid)), after.pods[uid].spec)

    def begin_resize(self, uid: str, intent: Intent) -> None:
        """A pod is about to be resized in several steps: until `end_resize` the file says what it had and what it is to
        have. Raises `StateWriteError`; nothing has begun then."""
        self._open[uid] = intent
        try:
            self._write(POLICY_STATE_FILE, self._policy_file(self._open))
        except OSError as error:
            del self._open[uid]
            raise StateWriteError(f"{self.directory}: cannot be written: {error.strerror or error}") from error

    def end_resize(self, uid: str) -> None:
        """The pod has what the state says. Raises `StateWriteError`; the next decision then writes it."""
        self._open.pop(uid, None)
        self.save()

    def undo_resize(self, pod: Pod, had: PodCPUs) -> None:
        """A pod that was resized has again what it asked for and had before. Raises `StateWriteError`; it has it then
        in memory only."""
        self.node.resize(pod)
        settle_resizes(self.node, {pod.metadata.uid: Intent(had, had)}, (pod,))
        self.save()
