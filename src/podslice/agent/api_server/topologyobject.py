"""The NodeResourceTopology object of this node, for schedulers that consider NUMA nodes: written when it changes, at
most once a second. It lags behind the node; exact readers follow the journal (cluster-integration B.6). A Lease shows
whether an agent still keeps it (`topologylease`)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

from podslice.agent.api_server.apiserver import ApiServer
from podslice.agent.journal import NodeJournal
from podslice.node.devices.pool import DevicePool
from podslice.node.holding import Digest, Digester
from podslice.node.node import Node
from podslice.node.rules import NodeRules
from podslice.node_objects.write_nrt import merge, node_topology
from podslice.replica.setup import setup_of
from podslice.service.answers import ApiError
from podslice.service.pacing import BackOff

_LEAST_SECONDS = 1.0


class _Facts(NamedTuple):
    """The facts of which the object is made."""

    digest: Digest
    pools: Mapping[str, DevicePool]
    rules: NodeRules


class TopologyObject:
    """Writes the object of node `name`.

    `node`: returns the node, None while there is no state. `merges`: keep what other programs have written into it.
    `lease`: the Lease that the object names, as NAMESPACE/NAME. `trouble`: gets failed writes.
    `writes`: how many succeeded. `written`: is set with the first one.
    """

    def __init__(
        self,
        api: ApiServer,
        name: str,
        node: Callable[[], Node | None],
        journal: NodeJournal,
        *,
        merges: bool,
        version: str,
        lease: str,
        trouble: Callable[[str, str], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.writes = 0
        self.written = asyncio.Event()
        self._api = api
        self._name = name
        self._node = node
        self._journal = journal
        self._merges = merges
        self._version = version
        self._lease = lease
        self._trouble = trouble
        self._sleep = sleep
        self._digester = Digester()
        self._uid = ""

    async def run(self, back_off: BackOff | None = None) -> None:
        """Write for ever; waits grow after failures."""
        back_off = back_off or BackOff(5.0, 300.0)
        seen: _Facts | None = None
        while True:
            node = self._node()
            now = None if node is None else self._look(node)
            if node is not None and now != seen:
                try:
                    await self._write(self._object(node))
                except ApiError as error:
                    self._trouble("nodeResourceTopology", str(error))
                    await self._sleep(back_off.next())
                    continue
                seen = now
                self.writes += 1
                self.written.set()
                back_off.reset()
            await self._sleep(_LEAST_SECONDS)

    @property
    def owner(self) -> dict[str, str]:
        """The owner reference to the Node; its UID is known from the first write on."""
        return {"apiVersion": "v1", "kind": "Node", "name": self._name, "uid": self._uid}

    def _look(self, node: Node) -> _Facts:
        state = node.state
        return _Facts(self._digester.of(state), state.device.pools, node.rules)

    def _object(self, node: Node) -> dict[str, Any]:
        digests = setup_of(node.rules).digests
        journal = self._journal.journal
        facts = {
            "podslice.io/machine": digests.machine,
            "podslice.io/config": digests.config,
            "podslice.io/state": self._digester.of(node.state).allocation,
            **({} if journal is None else {"podslice.io/sequence": str(journal.sequence)}),
            "podslice.io/version": self._version,
            "podslice.io/lease": self._lease,
        }
        return node_topology(node, facts, name=self._name)

    async def _write(self, own: dict[str, Any]) -> None:
        """Write the object. Raises `ApiError`."""
        # By the owner reference the object is deleted with its Node.
        self._uid = self._uid or await self._api.node_uid(self._name)
        own["metadata"]["ownerReferences"] = [self.owner]
        there = await self._api.read_topology(self._name) if self._merges else None
        await self._api.apply_topology(self._name, own if there is None else merge(own, there))
