"""Tables of the cluster's pods and nodes: everything comes once, goes once, and nothing ends them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from podslice.cluster.apiclient import NODES, PODS
from podslice.cluster.object_table import ObjectTable, node_table, pod_table
from podslice.service.answers import ApiError
from podslice.service.clusterobjects import ScheduledNode, ScheduledPod, read_node, read_pod
from podslice.service.pacing import BackOff
from tests.clock import run
from tests.cluster.fake_api import FakeClusterApi, Json


def pod(name: str, node: str = "", **status: Any) -> Json:
    return {
        "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "generation": 1},
        "spec": {"nodeName": node, "containers": [{"name": "c"}]} if node else {"containers": [{"name": "c"}]},
        "status": status,
    }


class Watched:
    """A table of pods of an API server in memory, and the changes that it reported."""

    def __init__(self) -> None:
        self.api = FakeClusterApi()
        self.news: list[tuple[str, str]] = []
        self.troubles: list[str] = []
        self.table: ObjectTable[ScheduledPod] = pod_table(
            self.api, self._record_change, lambda where, what: self.troubles.append(f"{where}: {what}")
        )

    def _record_change(self, old: ScheduledPod | None, new: ScheduledPod | None) -> None:
        about = new or old
        assert about is not None
        self.news.append(("gone" if new is None else "new" if old is None else "other", about.name))


def watching(test: Callable[[Watched], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        watched = Watched()
        task = asyncio.ensure_future(watched.table.run(BackOff(0.1, 1.0)))
        try:
            await test(watched)
            assert not task.done()
        finally:
            await cancel(task)

    run(main())


async def cancel(task: asyncio.Future[None]) -> None:
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(10_000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")


def test_come_and_go() -> None:
    """A list of several pages, then changes; each is reported once and the table has what is there."""

    async def test(watched: Watched) -> None:
        for number in range(7):
            watched.api.put(PODS, f"p{number}", pod(f"p{number}"))
        await until(lambda: watched.table.ready)
        assert watched.news == [("new", f"p{number}") for number in range(7)]
        watched.news.clear()
        watched.api.put(PODS, "p0", pod("p0", "n1"))
        watched.api.drop(PODS, "p1")
        watched.api.put(PODS, "p9", pod("p9"))
        await until(lambda: len(watched.news) == 3)
        assert watched.news == [("other", "p0"), ("gone", "p1"), ("new", "p9")]
        assert watched.table.objects["uid-p0"].node == "n1"
        assert len(watched.table.objects) == 7

    watching(test)


def test_too_old() -> None:
    """After a 410 the list is read again; objects that went meanwhile are reported as gone, new ones as new, and none
    twice."""

    async def test(watched: Watched) -> None:
        watched.api.put(PODS, "stays", pod("stays"))
        watched.api.put(PODS, "goes", pod("goes"))
        await until(lambda: watched.table.ready)
        watched.news.clear()
        watched.api.broken = "connection refused"
        watched.api.forget()
        watched.api.drop(PODS, "goes")
        watched.api.put(PODS, "comes", pod("comes"))
        watched.api.forget()
        await until(lambda: watched.troubles)
        assert set(watched.table.objects) == {"uid-stays", "uid-goes"}
        watched.api.broken = ""
        await until(lambda: watched.table.relists == 2)
        assert set(watched.table.objects) == {"uid-stays", "uid-comes"}
        assert [what for what in watched.news if what[1] != "stays"] == [("new", "comes"), ("gone", "goes")]

    watching(test)


def test_unreadable_objects() -> None:
    """An object that cannot be read is counted and reported; it hides no other."""

    async def test(watched: Watched) -> None:
        watched.api.put(PODS, "bad", {"metadata": {"uid": "../x", "name": "bad"}})
        watched.api.put(PODS, "good", pod("good"))
        await until(lambda: watched.table.ready)
        watched.api.put(PODS, "worse", {"metadata": {"uid": 7}})
        await until(lambda: watched.table.unreadable == 2)
        assert list(watched.table.objects) == ["uid-good"]
        assert all(trouble.startswith("/api/v1/pods: metadata.") for trouble in watched.troubles)

    watching(test)


def test_specification_is_decoded_once() -> None:
    """While the generation is the same, the decoded specification is taken over from version to version."""

    async def test(watched: Watched) -> None:
        watched.api.put(PODS, "p", pod("p"))
        await until(lambda: watched.table.ready)
        first = watched.table.objects["uid-p"].pod
        watched.api.put(PODS, "p", pod("p", phase="Running"))
        await until(lambda: len(watched.news) == 2)
        assert watched.table.objects["uid-p"].pod is first
        other = pod("p", "n1")
        other["metadata"]["generation"] = 2
        watched.api.put(PODS, "p", other)
        await until(lambda: len(watched.news) == 3)
        assert watched.table.objects["uid-p"].pod is not first

    watching(test)


def test_heartbeats_are_not_reported() -> None:
    """Of nodes only changes that decide about pods are reported."""
    told: list[ScheduledNode | None] = []

    async def main() -> None:
        api = FakeClusterApi()
        table = node_table(api, lambda old, new: told.append(new), lambda where, what: None)
        task = asyncio.ensure_future(table.run(BackOff(0.1, 1.0)))
        node: Json = {"metadata": {"name": "n", "labels": {"a": "b"}}, "status": {"allocatable": {"cpu": "8"}}}
        api.put(NODES, "n", node)
        await until(lambda: table.ready)
        api.put(NODES, "n", node | {"status": {"allocatable": {"cpu": "8"}, "conditions": [{"type": "Ready"}]}})
        api.put(NODES, "n", node | {"spec": {"unschedulable": True}})
        await until(lambda: len(told) == 2)
        await cancel(task)

    run(main())
    assert [None if one is None else one.unschedulable for one in told] == [False, True]


@pytest.mark.parametrize("data", [b"", b"{}", b"[]", b'{"metadata":{"name":"a/b"}}', b'{"metadata":{"name":"\xff"}}'])
def test_no_object(data: bytes) -> None:
    """Anything but an object is a typed error of one line."""
    for read in (read_pod, read_node):
        with pytest.raises(ApiError) as error:
            read(data)
        assert "\n" not in str(error.value)
