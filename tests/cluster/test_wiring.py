"""The service as `podslice cluster` makes it: with NodeState objects, and with loops that run."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from e2e.hollow_nodes import VERSION, HollowNode

from podslice.cluster.apiclient import NODES, PODS, ObjectPage
from podslice.cluster.journal import node_states
from podslice.cluster.journal.journals import Journals
from podslice.cluster.service import Listening, ServiceSettings
from podslice.cluster.wiring import wire
from podslice.replica.nodestate import NODE_STATES, build_status, new_node_state
from podslice.replica.rulebook import Rulebook
from tests.clock import until
from tests.cluster.bench import LIKE, ignore, node_object, pod_object, scheduled_pod
from tests.cluster.fake_api import FakeClusterApi


async def nobody(token: str) -> str:
    raise AssertionError("no agent calls here")


class WatchedApi(FakeClusterApi):
    """Remembers which nodes the journals have when pods are listed."""

    def __init__(self) -> None:
        super().__init__()
        self.journals = Journals(Rulebook(), {VERSION}, caller=nobody, trouble=ignore)
        self.before_pods: list[list[str]] = []

    async def page(self, path: str, selector: str, more: str) -> ObjectPage:
        if path == PODS:
            self.before_pods.append(sorted(self.journals.nodes))
        return await super().page(path, selector, more)


def state_object(node: HollowNode) -> dict[str, Any]:
    status = build_status(node.journal.whole_state())
    return new_node_state(node.name) | {"status": msgspec.to_builtins(status)}


def test_node_states_are_read_before_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    """A service that starts anew knows nodes from their NodeStates: a bound pod that its node has rests as soon as it
    is listed, and is on its way nowhere. An object confirms nothing, so new pods stay away. The object of a node that
    left the cluster is removed, and no loop dies."""
    monkeypatch.setattr(node_states, "SWEEP_SECONDS", 0.01)
    node, document = HollowNode("a", LIKE, 1), pod_object("p", "2", "a")
    assert node.admit(scheduled_pod(document).pod)[0] == ""

    async def main() -> None:
        api, troubles = WatchedApi(), list[tuple[str, str]]()
        journals = api.journals
        api.put(NODES, "a", node_object("a"))
        api.put(NODE_STATES, "a", state_object(node))
        api.put(NODE_STATES, "gone", state_object(HollowNode("gone", LIKE, 1)))
        api.put(PODS, "uid-p", document)

        def trouble(where: str, what: str) -> None:
            troubles.append((where, what))

        service = wire(api, journals, ServiceSettings(), trouble=trouble, disputed=ignore, seeded=journals)
        await service.start(Listening(port=0))
        await until(lambda: service.pods.ready and api.removed_states)
        assert api.before_pods == [["a", "gone"]]
        placing = service.placing
        assert (list(placing.pods), list(placing.pods.awake()), placing.model.holds()) == (["uid-p"], [], ())
        assert not journals.is_fresh("a")
        assert placing.choose(scheduled_pod(pod_object("new", "2"))) == ""
        assert set(api.removed_states) == {"gone"}
        assert (service.supervisor.problem(), troubles) == ("", [])
        await service.stop()
        await journals.close()

    asyncio.run(main())
