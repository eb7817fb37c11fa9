"""NodeStates of nodes that have left the cluster are removed, and no others."""

from __future__ import annotations

import asyncio
import json

from podslice.cluster.journal.node_states import SWEEP_SECONDS, GoneStates, SeenState
from podslice.cluster.object_table import ObjectTable, node_table
from podslice.service.answers import ApiError
from podslice.service.clusterobjects import read_node
from podslice.service.http.apiconnection import AnswerError
from tests.clock import run
from tests.cluster.bench import node_object
from tests.cluster.fake_api import FakeClusterApi


def test_only_of_nodes_that_stay_away() -> None:
    """A node that is not there twice is gone; one that comes back in between keeps its object, nothing is removed
    before both lists have come, and a server that refuses or is away is asked again."""
    api = FakeClusterApi()
    removed: list[str] = []
    troubles: list[str] = []
    answers: dict[str, Exception] = {"other": AnswerError("no", 404), "third": ApiError("away")}

    async def remove(name: str) -> None:
        removed.append(name)
        if name in answers:
            raise answers.pop(name)
        states.drop(name)

    nodes = node_table(api, lambda old, new: None, lambda where, what: None)
    states: ObjectTable[SeenState] = ObjectTable(
        api, "states", "", read=lambda data: SeenState("x", None), key=lambda seen: seen.name,
        on_change=lambda old, new: None, trouble=lambda where, what: None,
    )  # fmt: skip
    gone = GoneStates(states, nodes, remove=remove, trouble=lambda where, what: troubles.append(what))

    async def main() -> None:
        task = asyncio.ensure_future(gone.run())
        for name in ("here", "gone", "back"):
            states.put(SeenState(name, None))
        nodes.put(read_node(json.dumps(node_object("here")).encode()))
        await asyncio.sleep(3.5 * SWEEP_SECONDS)
        assert removed == []
        states.ready = nodes.ready = True
        await asyncio.sleep(SWEEP_SECONDS)
        nodes.put(read_node(json.dumps(node_object("back")).encode()))
        await asyncio.sleep(SWEEP_SECONDS)
        assert removed == ["gone"]
        for name in ("other", "third"):
            states.put(SeenState(name, None))
        await asyncio.sleep(2 * SWEEP_SECONDS)
        assert (removed, troubles) == (["gone", "other", "third"], ["away"])
        await asyncio.sleep(SWEEP_SECONDS)
        assert removed == ["gone", "other", "third", "other", "third"]
        assert set(states.objects) == {"here", "back"}
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    run(main())
