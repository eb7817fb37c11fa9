"""Explain refused pods: one event each, with a change that would let the pod run.

The fix comes from the explainer, as in `podslice explain`. The search may take seconds, so it runs in a thread, on a
copy of the node.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from podslice.advise.explain.explain import Explainer
from podslice.advise.trial.trial import Trial
from podslice.agent.records import ReportedRefusal
from podslice.agent.status.trialnode import copy_for_trial
from podslice.api.pod.spec import Pod
from podslice.node.node import Node
from podslice.node.state import NodeState
from podslice.service.identity import Identity
from podslice.status.status import waiting_text

_MOST_WAITING = 64
_LONGEST_WHY = 600
_LONGEST_FIX = 250
LONGEST_SECONDS = 5.0
"""Most seconds of the search for a fix of one pod."""
LATER = 0.5
"""Seconds before explaining begins, so that the pod is first marked Failed, which races against the kubelet."""


class _Known(NamedTuple):
    state: NodeState
    explainer: Explainer


class Explaining:
    """Explains refused pods, one after the other; implements `arriving.RefusalListener`. `run` does the work.

    `explained`: gets each explanation, with an empty fix where none was found. `run_in_thread`: runs a search in a
    thread."""

    def __init__(
        self,
        node: Callable[[], Node | None],
        explained: Callable[[Identity, ReportedRefusal, str], Awaitable[None]],
        *,
        trouble: Callable[[str, str], None],
        run_in_thread: Callable[[Callable[[], str]], Awaitable[str]] = asyncio.to_thread,
    ) -> None:
        self._node = node
        self._explained = explained
        self._trouble = trouble
        self._run_in_thread = run_in_thread
        self._jobs: dict[str, tuple[Identity, ReportedRefusal]] = {}
        self._due = asyncio.Event()
        self._known: _Known | None = None
        self._until = 0.0

    def on_refusal(self, identity: Identity, refusal: ReportedRefusal) -> None:
        """Queue a pod; its last refusal counts. Where too many wait, the oldest are reported without a fix."""
        self._jobs[identity.uid] = identity, refusal
        self._due.set()

    async def run(self) -> None:
        """Explain for ever."""
        while True:
            await self._due.wait()
            self._due.clear()
            await asyncio.sleep(LATER)
            while self._jobs:
                crowded = len(self._jobs) > _MOST_WAITING
                identity, refusal = self._jobs.pop(next(iter(self._jobs)))
                fix = "" if crowded or refusal.waits_for else await self._fix(refusal)
                await self._explained(identity, refusal, fix)
            self._known = None

    async def _fix(self, refusal: ReportedRefusal) -> str:
        """Return the best change that makes the pod fit, empty where none was found."""
        pod = refusal.spec
        if pod is None:
            return ""
        try:
            explainer = self._explainer()
            self._until = time.monotonic() + LONGEST_SECONDS
            return "" if explainer is None else await self._run_in_thread(lambda: best_fix(explainer, pod))
        except Exception as error:
            self._trouble("explain", f"{type(error).__name__}: {str(error)[:300]}")
            self._known = None
            return ""

    def _explainer(self) -> Explainer | None:
        node = self._node()
        if node is None:
            return None
        if self._known is None or self._known.state != node.state:
            self._known = _Known(node.state, Explainer(Trial.of(copy_for_trial(node)), self._too_long))
        return self._known.explainer

    def _too_long(self) -> bool:
        return time.monotonic() > self._until


def best_fix(explainer: Explainer, pod: Pod) -> str:
    """Return the best change as text; empty where there is none, or the pod fits by now."""
    # The explainer writes about kubelets; on this node the agent has the managers.
    fixes = explainer.explain(pod).fixes
    return fixes[0].text.replace("restart the kubelet", "restart the agent") if fixes else ""


def event_text(refusal: ReportedRefusal, fix: str) -> str:
    """Return the event's text: upstream's message, our reason, and the fix."""
    parts = [refusal.message, _shorten(refusal.why, _LONGEST_WHY)]
    if refusal.waits_for:
        parts.append(waiting_text(refusal.waits_for))
    text = "; ".join(part for part in parts if part)
    return f"{text.removesuffix('.')}. What would help: {_shorten(fix, _LONGEST_FIX)}" if fix else text


def _shorten(text: str, most: int) -> str:
    """Cut a text to `most` characters, between words: half a name would read like another name."""
    return text if len(text) <= most else f"{text[:most].rpartition(' ')[0]} …"
