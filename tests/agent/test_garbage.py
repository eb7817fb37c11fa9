"""Answers no API server should give: the agent counts them, says them, and tries again; other pods are not hidden."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice.agent.api_server.apiclient import MOST_PAGES, HTTPApiServer
from podslice.agent.api_server.apiserver import ApiSource, Listing
from podslice.agent.kubelet.knownpods import MOST_BYTES, KnownPods
from podslice.service.answers import LARGEST_ITEM, LARGEST_REST, ApiError, GoneError
from podslice.service.pacing import BackOff
from podslice.service.podlist import LARGEST_SPEC, Change, ChangeReader, decode_change, decode_list, read_known_pod
from podslice.values.errors import InputError
from tests import clock
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.test_apiserver import access, mirror, pod, who
from tests.clock import until

VICTIM = pod("victim", "3")


def listed(*items: Any) -> bytes:
    return json.dumps({"metadata": {"resourceVersion": "5"}, "items": [*items, VICTIM]}).encode()


def nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    return (opening * depth + "1" + closing * depth).encode()


ITEMS: dict[str, Any] = {
    "null": None,
    "text": "x",
    "list": [1, {"a": 2}],
    "metadata text": {"metadata": "x", "spec": {}},
    "metadata list": {"metadata": [1]},
    "no uid": {"spec": {"containers": []}},
    "uid number": {"metadata": {"uid": 5}},
    "uid path": {"metadata": {"uid": "../../etc/passwd"}},
    "uid control characters": {"metadata": {"uid": "a\x1b[2J"}},
    "name": {"metadata": {"uid": "a", "name": "a\nb"}},
    "spec text": {"metadata": {"uid": "a"}, "spec": "x"},
    "containers text": {"metadata": {"uid": "a"}, "spec": {"containers": "x"}},
    "container null": {"metadata": {"uid": "a"}, "spec": {"containers": [None]}},
    "quantity": pod("a", "lots"),
    "digits": pod("a", "1" * 5000),
    "large": pod("a", namespace="d") | {"spec": {"containers": [{"name": "x" * (LARGEST_SPEC + 1)}]}},
}


@pytest.mark.parametrize("item", ITEMS.values(), ids=ITEMS.keys())
def test_bad_item_hides_no_other(item: Any) -> None:
    """An error in one item of a list is named, and the pod after it is read."""
    page = decode_list([listed(item)], "node")
    known = {one.uid: one for one in page.pods}
    assert str(known["victim"].pod().spec.containers[0].resources.limits["cpu"]) == "3"  # type: ignore[index]
    problems = [*page.problems, *(str(one.problem) for one in page.pods if one.problem is not None)]
    assert len(problems) == 1
    assert len(problems[0]) < 700


@pytest.mark.parametrize("data", [
    {"annotations": ["x"]}, {"annotations": {"kubernetes.io/config.hash": {"a": [1]}}}, {"ownerReferences": "x"},
    {"labels": 3}, {"name": None, "namespace": None},
])  # fmt: skip
def test_what_nobody_reads_may_be_anything(data: dict[str, Any]) -> None:
    """A pod whose other fields are odd is still that pod."""
    assert read_known_pod(json.dumps(pod("a", **data)).encode(), "node").problem is None


@pytest.mark.parametrize("place", ["spec", "metadata", "item", "managed"])
def test_depth_is_cut_while_reading(place: str) -> None:
    """Brackets without end are neither recursion nor time, and the pod they are in is the only one they can harm."""
    deep = nested(30_000)
    items = {
        "spec": b'{"metadata":{"uid":"a","name":"a"},"spec":{"x":%b,"containers":[]}}' % deep,
        "metadata": b'{"metadata":%b}' % deep,
        "item": deep,
        "managed": b'{"metadata":{"uid":"a","managedFields":%b},"spec":{"containers":[]}}'
        % nested(30_000, '[{"f:a":', "}]"),
    }
    body = b'{"items":[%b,%b]}' % (items[place], json.dumps(VICTIM).encode())
    page = decode_list([body], "node")
    assert page.pods[-1].uid == "victim"
    assert len(page.pods) + len(page.problems) == 2
    list(ChangeReader("node").feed(b'{"type":"ADDED","object":%b}\n' % items["managed"]))


@pytest.mark.parametrize("body", [
    b"", b"<html>", b"[]", b"{}", b"null", b"3", b'{"items":"abc"}', b'{"metadata":[1]}', b'{"items":[', b"]]]]",
    b'{"items":[]}x',
    b'{"metadata":{"continue":5}}', b'{"metadata":{"continue":"%b"}}' % (b"x" * 9000), b"x" * (LARGEST_REST + 1),
    b'{"a":%b}' % nested(30_000), b'"\\', b'{"metadata":{"continue":"\xff\xfe',
])  # fmt: skip
def test_no_list_is_a_typed_error(body: bytes) -> None:
    """An answer that is not a list gives one bounded line."""
    with pytest.raises(ApiError) as caught:
        decode_list([body], "node")
    assert len(str(caught.value)) < 700


@pytest.mark.slow
@pytest.mark.parametrize("field", ["spec", "annotations", "ownerReferences"])
def test_size_is_judged_before_anything_is_made_of_it(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that is too large is decoded neither into objects nor into amounts."""
    many = {f"r{number}": "1" for number in range(200_000)}
    data: dict[str, Any] = pod("a") if field == "spec" else mirror("a", "hash")
    if field == "spec":
        data["spec"]["containers"][0]["resources"] = {"limits": many}
    else:
        data["metadata"][field] = many | data["metadata"][field] if field == "annotations" else [{}] * 800_000
    body = json.dumps(data).encode()
    if field == "spec":
        monkeypatch.setattr("podslice.service.podlist.pod_from_dict", lambda plain: pytest.fail("decoded"))
        assert "more than 65536 bytes" in str(read_known_pod(body, "node").problem)
    else:
        assert read_known_pod(json.dumps(mirror("a", "hash")).encode(), "node").mirror_of == "hash"
        assert read_known_pod(body, "node").mirror_of == ""


def test_item_of_any_size_takes_a_bounded_place() -> None:
    """An item beyond the bound is counted and passed over while it is read."""
    start = b'{"items":[{"metadata":{"uid":"a","name":"'
    chunks = [start, *[b"x" * (1 << 20)] * ((LARGEST_ITEM >> 20) + 3), b'"}},' + json.dumps(VICTIM).encode() + b"]}"]
    page = decode_list(chunks, "node")
    assert [one.uid for one in page.pods] == ["victim"]
    assert "larger" in page.problems[0]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from([*ITEMS.values(), {"x": '"]}\\"'}, pod("b", annotations={"a": '\\"{['})]), max_size=5),
       st.randoms(use_true_random=False))  # fmt: skip
def test_where_an_answer_is_cut_does_not_matter(items: list[Any], chance: random.Random) -> None:
    """A list and a watch read the same in one piece and in pieces of any size."""
    body = listed(*items)
    cuts = sorted(chance.randrange(len(body)) for _ in range(chance.randrange(30)))
    pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    whole, cut = decode_list([body], "node"), decode_list(pieces, "node")
    assert [str(one) for one in whole] == [str(one) for one in cut]
    events = b"".join(json.dumps({"type": "ADDED", "object": pod(f"p{i}")}).encode() + b"\n" for i in range(3))
    reader, place = ChangeReader("node"), chance.randrange(len(events))
    changes = [change for part in (events[:place], events[place:]) for change in reader.feed(part)]
    assert [change.pod.uid for change in changes if change.pod is not None] == ["p0", "p1", "p2"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(
        st.sampled_from(["metadata", "spec", "uid", "name", "containers", "resources", "limits", "cpu", "annotations",
                         "object", "type", "items", "continue", "kubernetes.io/config.hash", "ownerReferences"]),
        inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(json_values)
def test_anything_is_an_answer_or_a_typed_error(value: Any) -> None:
    """Whatever JSON comes, nothing but the two typed errors goes out, and a pod is readable or says why not."""
    text = json.dumps(value).encode()
    for body in (text, b'{"items":[%b]}' % text, b'{"items":%b}' % text):
        try:
            pods = decode_list([body], "node").pods
        except ApiError:
            continue
        for one in pods:
            try:
                one.pod()
            except InputError:
                assert one.problem is not None
    for event in (text, b'{"type":"ADDED","object":%b}' % text, b'{"type":"ERROR","object":%b}' % text):
        try:
            decode_change(event, "node")
        except (ApiError, GoneError):
            continue


@pytest.mark.slow
def test_one_pod_changed_a_thousand_times_takes_one_place() -> None:
    """However often and however largely a pod's author changes it, what is kept of it does not grow."""
    pods, sizes = KnownPods(), set()
    for number in range(1000):
        said = {"kubernetes.io/config.hash": f"{number:08d}" + "x" * 250_000, "kubernetes.io/config.mirror": "x"}
        pods.put(read_known_pod(json.dumps(pod("a", annotations=said)).encode(), "node"))
        sizes.add((len(pods), pods.size))
    assert len(sizes) == 1
    assert pods.size < 1000
    pods.drop("a")
    assert (len(pods), pods.size) == (0, 0)


@pytest.mark.slow
def test_all_pods_together_are_bounded() -> None:
    """Pods that are each as large as allowed end at the bound; what does not fit is refused with a reason."""
    pods = KnownPods()
    pods.put(read_known_pod(json.dumps(VICTIM).encode(), "node"))
    for number in range(MOST_BYTES // LARGEST_SPEC + 10):
        spec = {"containers": [{"name": "x" * (LARGEST_SPEC - 100)}]}
        pods.put(read_known_pod(json.dumps(pod(f"p{number}") | {"spec": spec}).encode(), "node"))
    assert pods.size < MOST_BYTES + 100_000
    assert pods.find(who("victim")) is not None
    with pytest.raises(InputError, match="the pods of this node have more than"):
        pods.find(who(f"p{number}"))


class Script(FakeApiServer):
    """Answers in turn with what it was given: an exception is raised."""

    def __init__(self, *answers: Any) -> None:
        super().__init__()
        self.answers = list(answers)

    async def list_pods(self, node: str) -> Listing:
        answer = self.answers.pop(0) if self.answers else None
        if isinstance(answer, Exception):
            raise answer
        page = decode_list([answer if answer is not None else listed()], node)
        return Listing(list(page.pods), list(page.problems), "1")

    async def watch_pods(self, node: str, version: str) -> AsyncIterator[Change]:
        await asyncio.Event().wait()
        yield Change("BOOKMARK", None, "")


@pytest.mark.parametrize("failure", [
    ApiError("refused"), GoneError(), RecursionError("deep"), AttributeError("x"), MemoryError("x"),
    ValueError("y" * 9999),
])  # fmt: skip
def test_no_failure_ends_the_source(failure: Exception) -> None:
    """Whatever a call raises is a failed try: said, waited for, tried again."""

    async def main() -> None:
        waits: list[float] = []
        troubles: list[str] = []

        async def sleep(seconds: float) -> None:
            waits.append(seconds)

        source = ApiSource(
            Script(failure, failure), "node", trouble=lambda what, why: troubles.append(why), sleep=sleep
        )
        task = asyncio.ensure_future(source.run(BackOff(1.0, 30.0)))
        await until(lambda: source.ready)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert len(waits) == 2
        assert waits[1] > waits[0]
        assert len(troubles) == (0 if isinstance(failure, GoneError) else 2)
        assert all(len(one) < 500 for one in troubles)
        assert source.cause == ""

    clock.run(main())


def test_cause_is_known_while_it_lasts() -> None:
    """A pod that is waited for in vain is told why nobody knows it."""

    async def main() -> None:
        hold = asyncio.Event()

        async def sleep(seconds: float) -> None:
            await hold.wait()

        source = ApiSource(Script(ApiError("no route to host")), "node", trouble=lambda what, why: None, sleep=sleep)
        assert source.explain_unknown() == "no pods from the API server: it has not answered yet"
        task = asyncio.ensure_future(source.run())
        await until(lambda: source.cause)
        assert source.explain_unknown() == "no pods from the API server: no route to host"
        hold.set()
        await until(lambda: source.ready)
        assert source.explain_unknown() == "the API server has not reported this pod yet"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    clock.run(main())


class RawServer:
    """Answers every request with the next bytes of `answers`, the last one for ever."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.requests = 0

    async def client(self) -> HTTPApiServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._client = HTTPApiServer(access(int(self._server.sockets[0].getsockname()[1])))
        return self._client

    async def close(self) -> None:
        await self._client.close()
        self._server.close()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        writer.write(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        await writer.drain()
        writer.close()


def answer(body: bytes, headers: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nConnection: close\r\n{headers}\r\n".encode() + body


def page(number: int) -> bytes:
    return answer(json.dumps({"metadata": {"continue": f"t{number}"}, "items": []}).encode())


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ([b"garbage\r\n\r\n"], "the answer is not HTTP/1.1"),
        ([b""], "it hung up without an answer"),
        ([answer(b"abc", "Content-Encoding: gzip\r\n")], "compressed, which was not asked for"),
        ([page(1)], "the same continue token twice"),
        ([page(number) for number in range(MOST_PAGES + 1)], f"more than {MOST_PAGES} pages"),
        ([answer(b"<html>")], "not JSON"),
        ([b"HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 0\r\n\r\n"], "302"),
    ],
)
def test_bad_http_is_a_typed_error(answers: list[bytes], message: str) -> None:
    """No answer, a compressed one, and lists without end are failed tries, with an end."""

    async def main() -> None:
        server = RawServer(*answers)
        api = await server.client()
        with pytest.raises(ApiError, match=message):
            await api.list_pods("node")
        assert server.requests <= MOST_PAGES
        await server.close()

    asyncio.run(main())


@pytest.mark.parametrize("line", [
    b"%%%", b"null", b"3", b'"x"', b'{"type":"ADDED","object":"x"}', b'{"type":"ADDED","object":[1]}', b"]", b"{}",
    b'{"type":["ADDED"],"object":{}}', b'{"type":"ERROR","object":"gone"}',
    b'{"type":"ADDED","object":{"metadata":"x"}}', b'{"type":"ADDED","object":{"metadata":{"uid":"\xff"}}}',
    b'{"type":"ADDED","object":{"metadata":{"uid":"\\ud800"}}}',
    b'{"type":"ADDED","object":' + nested(5000) + b"}", b'{"type":"BOOKMARK","object":{"metadata":3}}',
])  # fmt: skip
def test_bad_event_is_a_typed_error(line: bytes) -> None:
    """An event that is none ends its watch with a reason, not the agent."""

    async def main() -> None:
        server = RawServer(answer(line + b"\n"))
        api = await server.client()
        with pytest.raises(ApiError):
            _ = [change async for change in api.watch_pods("node", "1")]
        await server.close()

    asyncio.run(main())
