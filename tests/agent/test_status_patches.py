"""Marking pods Failed where the API server is slow, away or unwilling."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podslice.agent.api_server.rejected import MOST, REJECTED_FILE, RejectedPods, to_rejected_pod
from podslice.agent.api_server.rejecting import (
    AGAIN_SECONDS,
    AT_ONCE,
    CHECK_SECONDS,
    DENIED_SECONDS,
    MOST_LOOKS,
    MOST_MARKS,
    MOST_TRIES,
    MOST_WAITING,
    Rejecting,
)
from podslice.agent.api_server.statuspatch import status_patch
from podslice.agent.records import ReportedRefusal
from podslice.service.answers import ApiError
from podslice.service.http.apiconnection import AnswerError
from podslice.service.identity import Identity
from tests import clock
from tests.agent.fake_apiserver import FakeApiServer
from tests.conftest import make_pod

REFUSAL = ReportedRefusal("TopologyAffinityError", "no room", "because", final=True, since=1.0)


def identity(name: str, uid: str = "") -> Identity:
    return Identity(uid or name, "default", name, {})


class Desk:
    """A `Rejecting` with everything around it."""

    def __init__(self, folder: Path) -> None:
        self.api = FakeApiServer()
        self.troubles: list[str] = []
        self.freed: list[str] = []
        self.marked: list[str] = []
        self.moot: set[str] = set()
        self.ready = True
        self.rejected = RejectedPods(
            folder, trouble=lambda what, text: self.troubles.append(text), run_in_thread=at_once
        )
        self.rejecting = Rejecting(
            self.api,
            self.rejected,
            ready=lambda: self.ready,
            moot=lambda uid: uid in self.moot or self.phase(uid) == "Failed",
            busy=lambda uid: 0.0,
            free=self.freed.append,
            trouble=lambda what, text: self.troubles.append(text),
            marked=lambda identity, refusal: self.marked.append(identity.name),
            now=lambda: asyncio.get_running_loop().time(),
            clock=lambda: asyncio.get_running_loop().time(),
        )

    async def store(self, *names: str) -> None:
        for name in names:
            data = {"metadata": {"name": name, "namespace": "default", "uid": name}, "spec": {"containers": []}}
            await self.api.apply(data)

    def phase(self, uid: str) -> str:
        return str(self.api.objects.get(uid, {}).get("status", {}).get("phase", ""))

    def reject(self, *names: str) -> list[bool]:
        return [self.rejecting.reject(identity(name), REFUSAL) for name in names]


async def at_once(work: Callable[[], None]) -> None:
    work()


def at_desk(folder: Path, test: Callable[[Desk], Awaitable[None]]) -> None:
    async def main() -> None:
        desk = Desk(folder)
        task = asyncio.ensure_future(desk.rejecting.run())
        try:
            await test(desk)
        finally:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task

    clock.run(main())


def test_what_is_written(tmp_path: Path) -> None:
    """Phase, reason and message are a kubelet's, a condition of our own says it too, the patch is for this UID only,
    and the pod is listed."""

    async def test(desk: Desk) -> None:
        await desk.store("a")
        assert desk.reject("a", "a") == [True, True]
        await clock.until(lambda: desk.marked)
        ((where, patch),) = desk.api.patches
        assert where == "default/a"
        assert patch["metadata"]["uid"] == "a"
        assert patch["metadata"]["annotations"]["podslice.io/refused"].endswith("Z TopologyAffinityError: because")
        assert patch["status"] == {
            "phase": "Failed",
            "reason": "TopologyAffinityError",
            "message": "Pod was rejected: no room",
            "conditions": [
                {
                    "type": "podslice.io/Refused",
                    "status": "True",
                    "reason": "TopologyAffinityError",
                    "message": "no room",
                    "lastTransitionTime": patch["metadata"]["annotations"]["podslice.io/refused"].split()[0],
                }
            ],
        }
        assert [one.name for one in desk.rejected] == ["a"]
        await asyncio.sleep(60)
        assert desk.rejecting.waiting == 0
        assert len(desk.api.patches) == 1

    at_desk(tmp_path, test)


def test_written_over_at_once(tmp_path: Path) -> None:
    """A kubelet may write over a mark before the server's answer to it is here."""

    async def test(desk: Desk) -> None:
        await desk.store("a")
        patch = desk.api.patch_pod_status

        async def overtaken(namespace: str, name: str, patch_: dict[str, Any]) -> None:
            await patch(namespace, name, patch_)
            if len(desk.api.patches) == 1:
                desk.api.objects["a"]["status"] = {"phase": "Pending"}
                desk.reject("a")

        desk.api.patch_pod_status = overtaken  # type: ignore[method-assign]
        desk.reject("a")
        await asyncio.sleep((AGAIN_SECONDS + CHECK_SECONDS) / 2)
        assert len(desk.api.patches) == 2
        assert desk.phase("a") == "Failed"

    at_desk(tmp_path, test)


def test_again_while_the_server_is_away(tmp_path: Path) -> None:
    """Without connection a patch is tried again, more and more slowly and for as long as it takes."""

    async def test(desk: Desk) -> None:
        await desk.store("a", "b")
        desk.api.down = True
        desk.reject("a", "b")
        await asyncio.sleep(3600)
        assert 200 <= len(desk.troubles) <= 400
        assert desk.rejecting.waiting == 2
        desk.api.down = False
        await asyncio.sleep(60)
        assert sorted(desk.marked) == ["a", "b"]

    at_desk(tmp_path, test)


@pytest.mark.parametrize("code", [409, 429, 500, 503])
def test_again_when_the_server_says_so(tmp_path: Path, code: int) -> None:
    """Conflicts and faults of the server are tried again a few times, and do not keep others waiting."""

    async def test(desk: Desk) -> None:
        await desk.store("a", "b")
        desk.api.answers = [code, code]
        desk.reject("a", "b")
        await asyncio.sleep(60)
        assert sorted(desk.marked) == ["a", "b"]
        desk.api.answers = [code] * MOST_TRIES
        await desk.store("c")
        desk.reject("c")
        await asyncio.sleep(200)
        assert desk.freed == ["c"]
        assert desk.reject("c") == [False]

    at_desk(tmp_path, test)


def test_a_pod_that_is_gone(tmp_path: Path) -> None:
    """A pod that was deleted is done; of its successor with the same name nothing is changed."""

    async def test(desk: Desk) -> None:
        await desk.store("new")
        desk.rejecting.reject(identity("new", uid="old"), REFUSAL)
        desk.reject("nowhere")
        await asyncio.sleep(600)
        assert desk.rejecting.waiting == 0
        assert "status" not in desk.api.objects["new"]
        assert not desk.marked
        assert not desk.freed
        assert not desk.troubles

    at_desk(tmp_path, test)


def test_what_happened_meanwhile(tmp_path: Path) -> None:
    """Nothing is patched while it is not known what runs, nor where it need not be any more."""

    async def test(desk: Desk) -> None:
        await desk.store("a", "b")
        desk.ready = False
        desk.reject("a", "b")
        await asyncio.sleep(100)
        desk.ready = True
        desk.moot.add("a")
        await asyncio.sleep(100)
        assert (desk.freed, desk.marked) == (["a"], ["b"])

    at_desk(tmp_path, test)


@pytest.mark.parametrize("code", [400, 403, 422])
def test_the_server_will_not(tmp_path: Path, code: int) -> None:
    """A patch that is not allowed or not accepted is given up with a line; without the right nobody is tried for five
    minutes."""

    async def test(desk: Desk) -> None:
        await desk.store("a", "b")
        desk.api.answers = [code]
        desk.reject("a")
        await asyncio.sleep(10)
        assert (desk.freed, len(desk.troubles)) == (["a"], 1)
        assert desk.reject("a", "b") == [False, code != 403]
        await asyncio.sleep(DENIED_SECONDS)
        assert desk.reject("a") == [True]
        await asyncio.sleep(10)
        assert "a" in desk.marked

    at_desk(tmp_path, test)


def test_bounds(tmp_path: Path) -> None:
    """So many may wait; so many are failed at once and then one a second; so many are listed."""

    async def test(desk: Desk) -> None:
        names = [f"p{number}" for number in range(MOST_WAITING + 1)]
        await desk.store(*names)
        assert desk.reject(*names).count(False) == 1
        await asyncio.sleep(0.5)
        assert len(desk.marked) == AT_ONCE
        await asyncio.sleep(10)
        assert AT_ONCE + 9 <= len(desk.marked) <= AT_ONCE + 11
        await asyncio.sleep(600)
        assert len(desk.marked) == MOST_WAITING
        assert len(list(desk.rejected)) == MOST

    at_desk(tmp_path, test)


def test_any_error_is_tried_again(tmp_path: Path) -> None:
    """No error of the client about a broken connection or answer ends a loop."""

    async def test(desk: Desk) -> None:
        await desk.store("a")
        errors = [ApiError("reset"), AnswerError("slow down", 429)]
        send = desk.api.patch_pod_status

        async def patch(namespace: str, name: str, body: dict[str, Any]) -> None:
            if errors:
                raise errors.pop()
            await send(namespace, name, body)

        desk.api.patch_pod_status = patch  # type: ignore[method-assign]
        desk.reject("a")
        await asyncio.sleep(60)
        assert desk.marked == ["a"]

    at_desk(tmp_path, test)


@pytest.mark.parametrize("content", [b"", b"{", b'[{"name": 1}]', b"\xff", b"[" * 100_000])
def test_a_damaged_list(tmp_path: Path, content: bytes) -> None:
    """The list of rejected pods that cannot be read costs a line; the next pod begins a new one."""

    async def test(desk: Desk) -> None:
        (tmp_path / REJECTED_FILE).write_bytes(content)
        desk.rejected.load()
        assert not list(desk.rejected)
        assert len(desk.troubles) == 1
        await desk.rejected.add(to_rejected_pod(identity("a"), REFUSAL))
        await desk.rejected.explain("a", "ask for less")
        desk.rejected.load()
        assert [(one.name, one.fix) for one in desk.rejected] == [("a", "ask for less")]

    at_desk(tmp_path, test)


def test_a_kubelet_that_writes_over_it(tmp_path: Path) -> None:
    """A pod that is not Failed a moment later is marked again, each time with another annotation, which a kubelet takes
    for a change of the pod; one that never ends is given up with a line."""

    async def test(desk: Desk) -> None:
        await desk.store("a", "b")
        desk.reject("a")
        await clock.until(lambda: desk.marked)
        await desk.store("a")
        await asyncio.sleep(CHECK_SECONDS + 1)
        notes = [patch["metadata"]["annotations"]["podslice.io/refused"] for _, patch in desk.api.patches]
        assert len(set(notes)) == len(notes) == 2
        assert desk.marked == ["a"]
        desk.reject("b")
        for _ in range(20):
            await asyncio.sleep(CHECK_SECONDS / 2)
            await desk.store("b")
        assert len(desk.api.patches) == 2 + MOST_MARKS
        assert desk.freed == ["b"]
        assert "does not end it" in desk.troubles[-1]

    at_desk(tmp_path, test)


def test_a_pod_that_is_pending_again_at_once(tmp_path: Path) -> None:
    """A marked pod that the API server tells of again is marked again a second after its mark and not sooner, however
    often it is told, and so many times at most."""

    async def test(desk: Desk) -> None:
        await desk.store("a")
        desk.reject("a")
        await clock.until(lambda: desk.marked)
        for _ in range(3):
            await desk.store("a")
            desk.reject("a", "a")
            await asyncio.sleep(AGAIN_SECONDS / 4)
        assert len(desk.api.patches) == 1
        await asyncio.sleep(AGAIN_SECONDS / 2)
        assert len(desk.api.patches) == 2
        for _ in range(MOST_MARKS * 3):
            await desk.store("a")
            desk.reject("a")
            await asyncio.sleep(AGAIN_SECONDS)
        assert len(desk.api.patches) == MOST_MARKS

    at_desk(tmp_path, test)


def ended(name: str, **status: str) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "default", "uid": name}
    return {"metadata": metadata, "spec": {"containers": []}, "status": {"phase": "Failed", **status}}


def test_a_kubelet_that_ends_it_without_a_word(tmp_path: Path) -> None:
    """A marked pod that has ended without reason is marked again with another annotation, as often as it is looked at;
    then nobody looks any more."""

    async def test(desk: Desk) -> None:
        await desk.store("a")
        desk.reject("a")
        await clock.until(lambda: desk.marked)
        for number in range(MOST_LOOKS):
            await desk.api.apply(ended("a"))
            await clock.until(lambda number=number: len(desk.api.patches) == number + 2)
            assert desk.api.objects["a"]["status"]["reason"] == "TopologyAffinityError"
        notes = {patch["metadata"]["annotations"]["podslice.io/refused"] for _, patch in desk.api.patches}
        assert len(notes) == MOST_LOOKS + 1
        await desk.api.apply(ended("a"))
        await asyncio.sleep(3600)
        assert len(desk.api.patches) == MOST_LOOKS + 1
        assert (desk.rejecting.waiting, desk.marked, desk.troubles) == (0, ["a"], [])

    at_desk(tmp_path, test)


@pytest.mark.parametrize(
    ("how", "looks"),
    [("another reason", MOST_LOOKS), ("gone", 1), ("its successor", 1), ("going", 1), ("never marked", 0), ("away", 0)],
)
def test_an_end_that_is_left_as_it_is(tmp_path: Path, how: str, looks: int) -> None:
    """A pod that ended with a reason of another program, is gone or going, or was not marked by us is not written
    to, and read a few times at most, also while the server is away."""

    async def test(desk: Desk) -> None:
        await desk.store("a")
        found = ended("a", **({"reason": "Evicted"} if how == "another reason" else {}))
        if how == "never marked":
            await desk.api.apply(found)
        desk.reject("a")
        await clock.until(lambda: desk.marked or desk.freed)
        if how == "going":
            found["metadata"]["deletionTimestamp"] = "2026-11-22T06:00:00Z"
        await desk.api.apply(found)
        desk.moot.add("a")
        if how in ("gone", "its successor"):
            del desk.api.objects["a"]
        if how == "its successor":
            desk.api.objects["b"] = {**found, "metadata": {**found["metadata"], "uid": "b"}}
        desk.api.down = how == "away"
        await asyncio.sleep(3600)
        assert len(desk.api.patches) == (how != "never marked")
        assert desk.rejecting.waiting == 0
        assert desk.api.looks == looks
        assert desk.freed == (["a"] if how == "never marked" else [])

    at_desk(tmp_path, test)


def test_containers_that_never_were() -> None:
    """Each container has the pod's reason for its end, because kubectl shows that in place of the pod's own."""
    spec = make_pod("a", ("app", "4"), ("log", "1"), init=(("prepare", "4", False),))
    status = status_patch("a", msgspec.structs.replace(REFUSAL, spec=spec), 0.0)["status"]
    (init,) = status["initContainerStatuses"]
    assert [init["name"], *(one["name"] for one in status["containerStatuses"])] == ["prepare", "app", "log"]
    for one in (init, *status["containerStatuses"]):
        assert one["state"]["terminated"] == {"exitCode": 137, "reason": "TopologyAffinityError", "message": "no room"}
    many = make_pod("a", *((f"c{number}", "1") for number in range(101)))
    assert "containerStatuses" not in status_patch("a", msgspec.structs.replace(REFUSAL, spec=many), 0.0)["status"]
