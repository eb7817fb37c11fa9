"""The Lease of an agent that keeps the NodeResourceTopology of its node. That object is written only when it changes;
the Lease distinguishes a quiet node from an agent that is gone (cluster-integration B.6)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from podslice.agent.api_server.apiserver import ApiServer
from podslice.agent.api_server.timestamps import micro_time
from podslice.agent.api_server.topologyobject import TopologyObject
from podslice.service.answers import ApiError
from podslice.service.pacing import BackOff

RENEW_SECONDS = 300.0
DURATION_SECONDS = 900
"""Three renewals, so that one may be late or lost."""


class LeaseName(NamedTuple):
    """Name of the Lease of `node` in the agents' namespace, where no other Lease is called `podslice-agent-`."""

    namespace: str
    node: str

    @property
    def name(self) -> str:
        """The Lease's name."""
        return f"podslice-agent-{self.node}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


class TopologyLease:
    """Renews the Lease of `topology`, for the first time when that is written.

    `trouble`: gets failures. `now`: Unix time. `renewals`: how many succeeded.
    """

    def __init__(
        self,
        api: ApiServer,
        name: LeaseName,
        topology: TopologyObject,
        *,
        trouble: Callable[[str, str], None],
        now: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.renewals = 0
        self._api = api
        self._name = name
        self._topology = topology
        self._trouble = trouble
        self._now = now
        self._sleep = sleep

    async def run(self, back_off: BackOff | None = None) -> None:
        """Renew for ever; after a failure sooner than otherwise."""
        back_off = back_off or BackOff(5.0, 240.0)
        await self._topology.written.wait()
        while True:
            try:
                await self._api.apply_lease(self._lease())
            except ApiError as error:
                self._trouble("lease", str(error))
                await self._sleep(back_off.next())
                continue
            self.renewals += 1
            back_off.reset()
            await self._sleep(RENEW_SECONDS)

    def _lease(self) -> dict[str, Any]:
        return {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": self._name.name,
                "namespace": self._name.namespace,
                "ownerReferences": [self._topology.owner],
            },
            "spec": {
                "holderIdentity": self._name.node,
                "leaseDurationSeconds": DURATION_SECONDS,
                "renewTime": micro_time(self._now()),
            },
        }
