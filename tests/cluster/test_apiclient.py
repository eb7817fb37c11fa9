"""The service's calls to an API server, over a connection in memory."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from lightkube.config.kubeconfig import KubeConfig

from podslice.cluster import apiclient
from podslice.cluster.apiclient import Binding, HTTPClusterApi, ObjectPage, read_changes
from podslice.service.answers import ApiError, GoneError
from podslice.service.http.apiconnection import AnswerError
from podslice.service.http.lines import LineCutter, LongLineError
from tests.service.test_leanhttp import Server

BINDING = Binding("default", "p", "uid-1", "n1", {"podslice.io/plan": "{}"})


def status(code: int, message: str = "", **headers: Any) -> bytes:
    body = json.dumps({"kind": "Status", "code": code, "message": message}).encode()
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    return f"HTTP/1.1 {code} X\r\n{more}Content-Length: {len(body)}\r\n\r\n".encode() + body


def try_bind(answers: list[bytes | None], monkeypatch: pytest.MonkeyPatch) -> tuple[Exception | None, list[bytes]]:
    """Return the result of a Binding with these answers, and the requests that were sent."""
    monkeypatch.setattr(apiclient, "_RETRY_DELAYS", (0.0, 0.0, 0.0))
    monkeypatch.setattr(apiclient, "_LONGEST_WAIT", 0)
    server = Server(answers)

    async def main() -> Exception | None:
        listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{listening.sockets[0].getsockname()[1]}"
        config = KubeConfig.from_dict(
            {
                "clusters": [{"name": "c", "cluster": {"server": url}}],
                "users": [{"name": "u", "user": {"token": "t"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}], "current-context": "x",
            }
        ).get()  # fmt: skip
        api = HTTPClusterApi(config)
        try:
            await api.bind(BINDING)
        except ApiError as error:
            return error
        finally:
            await api.close()
            listening.close()
            await listening.wait_closed()
        return None

    return asyncio.run(main()), server.requests


def test_busy_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that is busy or gone for a moment is asked again, with the very same Binding."""
    error, sent = try_bind([status(429, Retry_After=1), status(503), None, status(201)], monkeypatch)
    assert error is None
    assert len(sent) == 4
    assert len(set(sent)) == 1
    body = json.loads(sent[0].partition(b"\r\n\r\n")[2])
    assert body["metadata"]["uid"] == "uid-1"
    assert body["target"]["name"] == "n1"


def test_busy_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a few tries the server's answer is raised."""
    error, sent = try_bind([status(503, "no leader")] * 4, monkeypatch)
    assert isinstance(error, AnswerError)
    assert (error.code, len(sent)) == (503, 4)
    assert "no leader" in str(error)


def test_conflict(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conflict is a plain no, and is not asked again."""
    error, sent = try_bind([status(409, "already assigned")], monkeypatch)
    assert isinstance(error, AnswerError)
    assert (error.code, len(sent)) == (409, 1)


def test_conflict_with_oneself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A conflict after a call with an unknown outcome is not a refusal: the pod may be bound by that call."""
    error, sent = try_bind([status(500, "etcd timed out"), status(409, "already assigned")], monkeypatch)
    assert isinstance(error, ApiError)
    assert not isinstance(error, AnswerError)
    assert len(sent) == 2


def event(kind: str, **document: Any) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode()


@pytest.mark.parametrize("cut", [1, 5, 64, 10_000])
def test_lines_in_any_cut(cut: int) -> None:
    """A watch has the same events however its bytes arrive."""
    events = [event("ADDED", metadata={"resourceVersion": str(number), "name": "ä\\n"}) for number in range(20)]
    lines, whole = LineCutter(12 << 20), b"\n".join(events) + b"\n"
    found = [line for start in range(0, len(whole), cut) for line in lines.feed(whole[start : start + cut])]
    assert found == events
    assert [change.version for line in found for change in read_changes(line)] == [str(n) for n in range(20)]


def test_line_without_end() -> None:
    """An event that does not end is an error before it fills the memory."""
    lines = LineCutter(12 << 20)
    for _ in range(12):
        assert lines.feed(b"x" * (1 << 20)) == []
    with pytest.raises(LongLineError):
        lines.feed(b"x")


def test_events_that_are_none() -> None:
    """Two events on a line are two; one that is nested for ever hides no other; anything else is an error."""
    first, second = event("ADDED", metadata={"resourceVersion": "1"}), event("BOOKMARK", metadata={})
    assert [change.kind for change in read_changes(first + second)] == ["ADDED", "BOOKMARK"]
    deep = b'{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"},"x":' + b"[" * 9000 + b"]" * 9000 + b"}}"
    assert [change.version for change in read_changes(deep)] == ["7"]
    with pytest.raises(GoneError):
        read_changes(event("ERROR", code=410))
    for bad in (b"nonsense", b'{"type":1}', event("ERROR", code=500, message="no")):
        with pytest.raises(ApiError):
            read_changes(bad)


def list_all(document: bytes, cut: int, *, most: int | None = None) -> ObjectPage:
    """A page whose answer arrives in pieces of so many bytes."""

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(document), cut):
            yield document[start : start + cut]

    with pytest.MonkeyPatch.context() as patch:
        if most is not None:
            patch.setattr(apiclient, "AT_ONCE", most)
        return asyncio.run(apiclient.read_page("/api/v1/pods", pieces()))


def read_listed(items: list[Any], more: str = "next") -> bytes:
    return json.dumps(
        {"kind": "PodList", "metadata": {"resourceVersion": "7", "continue": more}, "items": items}
    ).encode()


@pytest.mark.parametrize("most", [None, 0, 100, 3000])
@pytest.mark.parametrize("cut", [1, 64, 100_000])
def test_a_page_is_the_same_in_one_go_and_piece_by_piece(cut: int, most: int | None) -> None:
    """Whatever its size, and however its bytes arrive, a page has its objects in order, its version and its token."""
    items = [{"metadata": {"name": f"ä\\{number}", "labels": {"a]}": "[{"}}, "spec": [[], {}]} for number in range(40)]
    found = list_all(read_listed(items), cut, most=most)
    assert [json.loads(bytes(one)) for one in found.items] == items
    assert (found.version, found.more) == ("7", "next")


@pytest.mark.parametrize("most", [None, 10])
def test_pages_that_are_none(most: int | None) -> None:
    """An empty list, one without items, an object that is nested for ever, which hides no other, and nonsense."""
    assert list_all(read_listed([], ""), 50, most=most) == ObjectPage([], "7", "")
    assert list_all(b'{"metadata":{"resourceVersion":"7"},"items":null}', 50, most=most) == ObjectPage([], "7", "")
    deep = b"[" * 9000 + b"]" * 9000
    found = list_all(b'{"metadata":{},"items":[{"a":1},{"x":' + deep + b'},{"b":2}]}', 500, most=most)
    read = [bytes(one) for one in found.items]
    assert (read[0], read[-1]) == (b'{"a":1}', b'{"b":2}')
    for nonsense in (b"", b"[]", b"{", b'{"metadata":{}}', b'{"metadata":1,"items":[]}', b"\xff" * 20):
        with pytest.raises(ApiError, match=r"\A/api/v1/pods: "):
            list_all(nonsense, 50, most=most)
