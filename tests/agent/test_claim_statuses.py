"""Conditions of claims that can never be prepared: written beside the answer, seldom, and given up in peace."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from podslice.agent.dra.driver import Driver
from podslice.agent.dra.statuses import LEFT_ALONE_SECONDS, ClaimStatuses
from podslice.api.pod.spec import from_dict
from podslice.dra.objects import ResourceClaim
from podslice.dra.prepared import ImpossibleClaimError
from podslice.service.answers import ApiError
from podslice.service.http.apiconnection import AnswerError
from tests.agent.claimhelpers import NODE, Desk, FakeClaims, claim
from tests.agent.test_dra_service import Kubelet, with_driver
from tests.clock import until

PROBLEM = ImpossibleClaimError("NothingRequested", "asks for nothing")


class Statuses:
    """A server that keeps what it is told, or answers with these errors first."""

    def __init__(self, *errors: ApiError) -> None:
        self.errors = list(errors)
        self.told: list[tuple[str, str, str]] = []
        self.reads: list[str] = []
        self.version = "2"

    async def read_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        self.reads.append(name)
        return None if name == "gone" else allocated(name, self.version)

    async def patch_claim_status(self, namespace: str, name: str, patch: list[dict[str, Any]]) -> None:
        if self.errors:
            raise self.errors.pop(0)
        (condition,) = patch[-1]["value"]["conditions"]
        self.told.append((name, condition["status"], condition["reason"]))


def allocated(name: str, version: str = "1") -> ResourceClaim:
    result = {"request": "r", "driver": "podslice.io", "pool": f"{NODE}/podslice.io", "device": "d"}
    status = {"allocation": {"devices": {"results": [result]}}}
    metadata = {"name": name, "namespace": "default", "uid": name, "resourceVersion": version}
    return from_dict({"metadata": metadata, "status": status}, ResourceClaim)


class Telling:
    """Conditions beside a server, with a clock that stands."""

    def __init__(self, server: Statuses) -> None:
        self.server = server
        self.troubles: list[str] = []
        self.clock = 0.0
        self.slept: list[float] = []
        self.statuses = ClaimStatuses(
            server,
            NODE,
            trouble=lambda what, why: self.troubles.append(why),
            now=lambda: 0.0,
            clock=lambda: self.clock,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await asyncio.sleep(0)

    async def settled(self) -> None:
        """Until there is nothing left to write."""
        task = asyncio.ensure_future(self.statuses.run())
        for _ in range(200):
            await asyncio.sleep(0)
        assert not task.done()
        task.cancel()


def test_retried_and_in_order() -> None:
    """A server that is away is asked again, ever less often; a claim that changed is read again; one that is gone is
    left alone."""
    gone, changed, away = AnswerError("not found", 404), AnswerError("rejected", 422), AnswerError("overloaded", 503)

    async def main() -> None:
        desk = Telling(Statuses(gone, ApiError("connection refused"), away, changed, changed))
        for name in ("a", "b", "c", "gone"):
            desk.statuses.queue(allocated(name), PROBLEM)
        await desk.settled()
        assert sorted(desk.server.told) == [(name, "False", "NothingRequested") for name in ("b", "c")]
        assert desk.troubles == []
        assert desk.statuses.writes == 2
        assert len(desk.slept) == 7
        assert sorted(desk.server.reads) == ["b", "gone"]

    asyncio.run(main())


def test_given_up() -> None:
    """A condition that cannot be written ten times is reported and dropped."""

    async def main() -> None:
        desk = Telling(Statuses(*[ApiError("connection refused")] * 10))
        desk.statuses.queue(allocated("a"), PROBLEM)
        await desk.settled()
        assert (desk.server.told, desk.server.errors) == ([], [])
        assert desk.troubles == ["the status of a claim cannot be written: connection refused"]

    asyncio.run(main())


@pytest.mark.parametrize(("said", "code"), [("forbidden", 403), ("changing status.devices requires resource=", 422)])
def test_without_the_right(said: str, code: int) -> None:
    """Said once with what has the right; then the server is left in peace for ten minutes."""

    async def main() -> None:
        desk = Telling(Statuses(AnswerError(said, code)))
        desk.server.version = "1"
        desk.statuses.queue(allocated("a"), PROBLEM)
        desk.statuses.queue(allocated("b"), PROBLEM)
        await desk.settled()
        desk.statuses.queue(allocated("a"), PROBLEM)
        await desk.settled()
        assert desk.server.told == []
        (trouble,) = desk.troubles
        assert "deploy/manifests/dra.yaml" in trouble
        desk.clock = LEFT_ALONE_SECONDS
        desk.statuses.queue(allocated("a"), PROBLEM)
        await desk.settled()
        assert desk.server.told == [("a", "False", "NothingRequested")]

    asyncio.run(main())


def test_prepared_while_it_is_written() -> None:
    """A claim that was read before the problem could be seen in it is told all the same that it has none any more."""

    async def main() -> None:
        desk = Telling(Statuses())
        desk.statuses.queue(allocated("a"), PROBLEM)
        desk.statuses.queue(allocated("b"), PROBLEM)
        await desk.settled()
        desk.statuses.queue(allocated("a"), None)
        desk.statuses.queue(allocated("never"), None)
        await desk.settled()
        desk.statuses.queue(allocated("a"), None)
        await desk.settled()
        assert desk.server.told[2:] == [("a", "True", "Prepared")]

    asyncio.run(main())


def test_what_is_not_there_yet_is_bounded() -> None:
    """However many claims are refused while the server is away."""
    desk = Telling(Statuses())
    for number in range(3000):
        desk.statuses.queue(allocated(str(number)), PROBLEM)
    assert desk.statuses.waiting == 1024
    assert len(desk.statuses._reported) <= 1024


@pytest.mark.parametrize(
    ("name", "cpus", "reason"), [("all", 99, "NotOffered"), ("none", 0, "NothingRequested"), ("fits", 4, None)]
)
def test_refused_for_good(tmp_path: Path, name: str, cpus: int, reason: str | None) -> None:
    """The kubelet has its answer before the server has any; what can be served later is told nothing."""

    async def test(desk: Desk, driver: Driver, claims: FakeClaims) -> None:
        kubelet = Kubelet(tmp_path)
        await kubelet.register()
        taken, one = claim("taken", (0, 6)), claim(name, (0, cpus))
        claims.put(taken)
        claims.put(one)
        assert not (await kubelet.prepare(taken))["uid-taken"].error
        error = (await kubelet.prepare(one))[one.uid].error
        assert error
        task = asyncio.ensure_future(driver.statuses.run())
        await until(lambda: bool(claims.statuses) == (reason is not None))
        assert not (await kubelet.unprepare(taken))["uid-taken"].error
        again = (await kubelet.prepare(one))[one.uid].error
        assert again == (error if reason else "")
        task.cancel()
        conditions = [condition for patch in claims.statuses for condition in patch[-1]["value"]["conditions"]]
        assert [(one["reason"], one["message"]) for one in conditions] == ([(reason, error)] if reason else [])

    with_driver(tmp_path, test)


def test_the_second_pod_of_a_claim(tmp_path: Path) -> None:
    """A claim stays that of the pod it was prepared for, also when it is prepared again, as after a reboot; one
    that nobody has yet and two want says why nobody gets it."""

    async def test(desk: Desk, driver: Driver, claims: FakeClaims) -> None:
        kubelet = Kubelet(tmp_path)
        await kubelet.register()
        one = claim("a", (0, 4))
        claims.put(one)
        first = (await kubelet.prepare(one))["uid-a"]
        assert not first.error
        claims.put(replace(one, pods=("a", "second")))
        assert (await kubelet.prepare(one))["uid-a"] == first
        assert driver.ledger.claims["uid-a"].pods == ("a",)
        claims.put(replace(one, pods=("second", "third")))
        assert "reserved for 2 pods" in (await kubelet.prepare(one))["uid-a"].error
        claims.put(replace(one, pods=("second",)))
        assert (await kubelet.prepare(one))["uid-a"] == first
        assert driver.ledger.claims["uid-a"].pods == ("second",)

    with_driver(tmp_path, test)
