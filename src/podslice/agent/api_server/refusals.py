"""Handling of refused pods where there is an API server.

`Arriving` decides, and whether a refused pod waits; `Rejecting` marks pods Failed; `Explaining` adds what would help.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from msgspec.structs import replace

from podslice.agent.api_server.apiserver import ApiServer
from podslice.agent.api_server.explaining import Explaining
from podslice.agent.api_server.rejected import RejectedPods
from podslice.agent.api_server.rejecting import Rejecting
from podslice.agent.kubelet.arriving import Arriving, Awaiting
from podslice.agent.owner import Owner
from podslice.agent.records import ReportedRefusal
from podslice.agent.status.report import AgentReporter
from podslice.api.pod.spec import Pod
from podslice.service.identity import Identity

QUIET_SECONDS = 2.0
"""Seconds to wait after a container was refused: the kubelet tries it once more in about a second, and writes a
status."""
SANDBOX_SECONDS = 3.0
"""Seconds to wait after the decision, where no container was created yet."""
LONGEST_SECONDS = 60.0
"""Most seconds to wait for a kubelet that makes a sandbox, pulls an image or tries again and again."""
LOOK_SECONDS = 0.5


class Refusals:
    """Handles the refused pods of a node. `fail` False: they stay Pending. `early` False: pods are decided about when
    their sandboxes are made."""

    def __init__(
        self,
        api: ApiServer,
        awaiting: Awaiting,
        owner: Owner,
        reporter: AgentReporter,
        *,
        find: Callable[[Identity], Pod | None],
        connected: Callable[[], bool],
        early: bool,
        fail: bool,
    ) -> None:
        self.awaiting = awaiting
        self.rejected = RejectedPods(owner.directory, trouble=reporter.trouble)
        self._owner = owner
        self._reporter = reporter
        self._explaining = Explaining(lambda: owner.node, self._record_fix, trouble=reporter.trouble)
        self._rejecting: Rejecting | None = None
        if fail:
            self._rejecting = Rejecting(
                api,
                self.rejected,
                ready=lambda: connected() and self.awaiting.current,
                moot=lambda uid: self._arriving.is_moot(uid),
                busy=self._busy,
                free=lambda uid: self._arriving.undo_rejection(uid),
                trouble=reporter.trouble,
                marked=reporter.rejected,
            )
        self._arriving = Arriving(
            owner,
            self.awaiting,
            find=find,
            connected=connected,
            early=early,
            reject=self._reject,
            rejected=self.rejected.refusal,
            listener=self._explaining,
        )
        self.wake = self._arriving.wake

    def load(self) -> None:
        """Load what an earlier agent rejected."""
        self.rejected.load()

    def loops(self) -> Iterator[tuple[str, Callable[[], Awaitable[None]]]]:
        """Yield the loops, with their names."""
        yield "arriving", self._arriving.run
        yield "explaining", self._explaining.run
        if self._rejecting is not None:
            yield "rejecting", self._rejecting.run

    def _busy(self, uid: str) -> float:
        """Return the seconds for which the kubelet still works on a refused pod."""
        # A pod that is marked Failed meanwhile becomes Pending once more before it is Failed for good, then without
        # reason and message, and its controller makes one pod too many.
        pod = self._owner.pods.get(uid)
        refusal = None if pod is None else pod.refusals.get(uid)
        if pod is None or refusal is None:
            return 0.0
        now = self._owner.admitting.now()
        if now < refusal.since:  # the clock was set back, so the time since is unknown
            return 0.0
        if self.awaiting.is_preparing(uid):
            return min(LOOK_SECONDS, refusal.since + LONGEST_SECONDS - now)
        begun = pod.turned_away + QUIET_SECONDS
        if not pod.turned_away:
            begun = refusal.since + SANDBOX_SECONDS
        return min(begun, refusal.since + LONGEST_SECONDS) - now

    def _reject(self, identity: Identity, refusal: ReportedRefusal) -> bool:
        return self._rejecting is not None and self._rejecting.reject(identity, refusal)

    async def _record_fix(self, identity: Identity, refusal: ReportedRefusal, fix: str) -> None:
        pod = self._owner.pods.get(identity.uid)
        known = None if pod is None else pod.refusals.get(identity.uid)
        if pod is not None and known is not None and (known.reason, known.message) == (refusal.reason, refusal.message):
            pod.refusals[identity.uid] = replace(known, fix=fix)
        self._reporter.explained(identity, refusal, fix)
        await self.rejected.explain(identity.uid, fix)
