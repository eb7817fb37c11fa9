"""A resize on its way: what a pod had, what it is to have, and what of that is done."""

from __future__ import annotations

import asyncio

from podslice.api.pod.spec import Pod
from podslice.node.cpu.state import Intent, PodCPUs
from podslice.service.identity import Identity
from podslice.values.cpuset import Bits, format_bits
from podslice.values.errors import PodsliceError


class ResizeRefusedError(Exception):
    """A resize is not carried out: `result` is `deferred`, `infeasible` or `failed`."""

    def __init__(self, result: str, message: str) -> None:
        self.result = result
        super().__init__(f"resize {result}: {message}")


class CPUsLostError(PodsliceError):
    """CPUs that were to change hands went offline meanwhile."""


class ResizeInProgress:
    """Of the pod admitted under `unit`: `before` is the specification it was granted last, `desired` the one it is to
    have. `waiting`: nothing is written yet but that it is to come; `hurry` ends that. `hook` is the container by whose
    call it came: it gets CPUs with the answer, and loses them once that is `applied`, which would set them again. On
    `lost` CPUs nobody runs. `stays`: why memory is not to leave NUMA nodes. `bound` counts threads
    whose own affinity has nothing but CPUs that are given back: the kernel then lets them run on all that is left."""

    def __init__(
        self, identity: Identity, before: Pod, desired: Pod, intent: Intent, *, since: float, lost: Bits = 0
    ) -> None:
        self.identity = identity
        self.before = before
        self.desired = desired
        self.since = since
        self.lost = lost
        self.stays = ""
        self.bound = 0
        self.waiting = False
        self.committed = False
        self.hook = ""
        self.hurry = asyncio.Event()
        self.applied = asyncio.Event()
        self.done = asyncio.Event()
        self.task: asyncio.Task[None] | None = None
        self.plan(intent)

    def plan(self, intent: Intent) -> None:
        """These CPUs are to change."""
        self.intent = intent
        self.gives = _moves(intent.before, intent.after) & ~self.lost
        self.takes = _moves(intent.after, intent.before)

    @property
    def unit(self) -> str:
        return self.desired.metadata.uid

    @property
    def changed(self) -> Bits:
        """CPUs that come, go or move within the pod."""
        return self.gives | self.takes

    @property
    def operation(self) -> str:
        """`grow`, `shrink`, `move` for both at once, `keep` where no CPU changes."""
        if self.gives and self.takes:
            return "move"
        return "grow" if self.takes else "shrink" if self.gives else "keep"

    def text(self) -> str:
        """What changes, by container, for people."""
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
        return "; ".join([*changed, self.stays] if self.stays else changed)


def _sets(had: PodCPUs) -> dict[str, Bits]:
    """CPUs by container, the whole pod's under the empty name."""
    return dict(had.assignments) | ({"": had.bubble} if had.bubble else {})


def _moves(one: PodCPUs, other: PodCPUs) -> Bits:
    """CPUs that somebody has in `one` and not in `other`."""
    sets = _sets(other)
    moved = 0
    for name, cpus in _sets(one).items():
        moved |= cpus & ~sets.get(name, 0)
    return moved
