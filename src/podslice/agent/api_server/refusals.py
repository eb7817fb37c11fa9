"""What becomes of refused pods where there is an API server: the parts, put together.

`Arriving` decides and finds out whether a pod waits, `Rejecting` marks pods Failed, `Explaining` says what would help.
"""

from __future__ import annotations

from collections.abc import Callable

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
from podslice.service.supervise import Supervisor

QUIET_SECONDS = 2.0
"""After a container was refused: the kubelet tries it once more within a second or so, and writes a status."""
SANDBOX_SECONDS = 3.0
"""After the decision, where no container was asked for yet."""
LONGEST_SECONDS = 60.0
"""A kubelet that makes a sandbox, fetches an image or asks again and again is left alone for so long."""
LOOK_SECONDS = 0.5


class Refusals:
    """Of one node. `fail` False leaves refused pods Pending; `early` False leaves deciding to their sandboxes."""

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
        self._explaining = Explaining(lambda: owner.node, self._explained, trouble=reporter.trouble)
        self._rejecting: Rejecting | None = None
        if fail:
            self._rejecting = Rejecting(
                api,
                self.rejected,
                ready=lambda: connected() and self.awaiting.current,
                moot=lambda uid: self._arriving.moot(uid),
                busy=self._busy,
                free=lambda uid: self._arriving.freed(uid),
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
            told=self._explaining,
        )
        self.wake = self._arriving.wake

    def start(self, loops: Supervisor) -> None:
        """Begin; what an earlier agent rejected is known again."""
        self.rejected.load()
        loops.start("arriving", self._arriving.run)
        loops.start("explaining", self._explaining.run)
        if self._rejecting is not None:
            loops.start("rejecting", self._rejecting.run)

    def _busy(self, uid: str) -> float:
        """Seconds for which the kubelet is still at work on a refused pod. What is marked meanwhile is Pending once
        more before it is Failed for good, then without reason and message, and its controller makes one pod too
        many."""
        pod = self._owner.pods.get(uid)
        refusal = None if pod is None else pod.refusals.get(uid)
        if pod is None or refusal is None:
            return 0.0
        now = self._owner.admitting.now()
        if now < refusal.since:  # the clock was set back: nobody knows how long that is ago
            return 0.0
        if self.awaiting.preparing(uid):
            return min(LOOK_SECONDS, refusal.since + LONGEST_SECONDS - now)
        begun = pod.turned_away + QUIET_SECONDS
        if not pod.turned_away:
            begun = refusal.since + SANDBOX_SECONDS
        return min(begun, refusal.since + LONGEST_SECONDS) - now

    def _reject(self, identity: Identity, refusal: ReportedRefusal) -> bool:
        return self._rejecting is not None and self._rejecting.reject(identity, refusal)

    async def _explained(self, identity: Identity, refusal: ReportedRefusal, fix: str) -> None:
        pod = self._owner.pods.get(identity.uid)
        known = None if pod is None else pod.refusals.get(identity.uid)
        if pod is not None and known is not None and (known.reason, known.message) == (refusal.reason, refusal.message):
            pod.refusals[identity.uid] = replace(known, fix=fix)
        self._reporter.explained(identity, refusal, fix)
        await self.rejected.explain(identity.uid, fix)
