"""A resize while it is carried out: the CPUs before and after it, and which steps are done."""

from __future__ import annotations

import asyncio

from podslice.api.pod.spec import Pod
from podslice.node.cpu.state import Intent, PodCPUs
from podslice.service.identity import Identity
from podslice.values.cpuset import Bits, format_bits
from podslice.values.errors import PodsliceError


class ResizeRefusedError(PodsliceError):
    """The resize was refused; `result` is `deferred`, `infeasible` or `failed`."""

    def __init__(self, result: str, message: str) -> None:
        self.result = result
        super().__init__(f"resize {result}: {message}")


class CPUsLostError(PodsliceError):
    """CPUs that the resize was to hand over went offline."""


class ResizeInProgress:
    """A resize of the pod admitted under `unit`, from the specification `before` to `desired`.

    `gives`, `takes`: CPUs that the pod releases and gets. `waiting`: the delay runs and nothing but the announcement is
    written; setting `skip_delay` ends it. `hook`: id of the container whose update call started the resize; the answer
    gives it new CPUs, and CPUs are taken from it only after `applied`, because the runtime's late write would restore
    them. `lost`: CPUs that are offline, so no evacuation is needed. `memory_stays`: reason why memory keeps its NUMA
    nodes. `bound`: number of threads whose own affinity contains only released CPUs; the kernel then lets them run on
    all remaining ones.
    """

    def __init__(
        self, identity: Identity, before: Pod, desired: Pod, intent: Intent, *, since: float, lost: Bits = 0
    ) -> None:
        self.identity = identity
        self.before = before
        self.desired = desired
        self.since = since
        self.lost = lost
        self.memory_stays = ""
        self.bound = 0
        self.waiting = False
        self.committed = False
        self.hook = ""
        self.skip_delay = asyncio.Event()
        self.applied = asyncio.Event()
        self.done = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.plan(intent)

    def plan(self, intent: Intent) -> None:
        """Set the intended CPUs, and derive which are released and which are taken."""
        self.intent = intent
        # CPUs that change containers within the pod are in both sets.
        self.gives = _moves(intent.before, intent.after) & ~self.lost
        self.takes = _moves(intent.after, intent.before)

    @property
    def unit(self) -> str:
        return self.desired.metadata.uid

    @property
    def changed(self) -> Bits:
        """CPUs that are added, removed or moved within the pod."""
        return self.gives | self.takes

    @property
    def operation(self) -> str:
        """The kind of change: `grow`, `shrink`, `move` for both at once, `keep` where no CPU changes."""
        if self.gives and self.takes:
            return "move"
        return "grow" if self.takes else "shrink" if self.gives else "keep"

    def text(self) -> str:
        """Return the changed CPU sets by container, as one line for logs and events."""
        before, after = _sets(self.intent.before), _sets(self.intent.after)
        moved = [name for name in after | before if before.get(name) != after.get(name)]
        changed = [
            f"{name or 'the pod'}: {format_bits(before.get(name, 0)) or 'shared'}"
            f" -> {format_bits(after.get(name, 0)) or 'shared'}"
            for name in moved
        ]
        if self.bound:
            threads = "1 thread was" if self.bound == 1 else f"{self.bound} threads were"
            changed.append(f"{threads} bound to nothing but CPUs that are given back")
        return "; ".join([*changed, self.memory_stays] if self.memory_stays else changed)


def _sets(had: PodCPUs) -> dict[str, Bits]:
    """Return the CPUs by container; those of the whole pod are under the empty name."""
    return dict(had.assignments) | ({"": had.pod_cpus} if had.pod_cpus else {})


def _moves(one: PodCPUs, other: PodCPUs) -> Bits:
    """Return the CPUs that a container or the pod has in `one` and not in `other`."""
    sets = _sets(other)
    moved = 0
    for name, cpus in _sets(one).items():
        moved |= cpus & ~sets.get(name, 0)
    return moved
