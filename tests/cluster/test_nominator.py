"""Nominations: who comes first, what a full cluster costs, and API servers that refuse or are away."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from math import inf

from podslice.cluster.nominate.nominator import NominationLimits, Nominator
from podslice.service.clusterobjects import ScheduledPod
from tests.clock import run
from tests.cluster.bench import pod_object, scheduled_pod
from tests.cluster.fake_api import FakeClusterApi


class Line:
    """A nominator with so many places on a node; `asked` counts questions by kind of pod."""

    def __init__(self, places: int, *, patience: float = 0.0, **limits: int) -> None:
        self.api = FakeClusterApi()
        self.places, self.patience = places, patience
        self.asked: Counter[str] = Counter()
        self.released: list[str] = []
        self.failures: list[str] = []
        self.nominator = Nominator(
            self.api,
            choose=self._choose,
            release=self.released.append,
            kind_of=self._kind,
            failed=self.failures.append,
            limits=NominationLimits(**limits),
            patience=lambda: self.patience,
        )

    def _kind(self, pod: ScheduledPod) -> tuple[int, str]:
        return pod.priority, pod.name.split("-")[0]

    def _choose(self, pod: ScheduledPod) -> str:
        self.asked[pod.name.split("-")[0]] += 1
        if self.places == 0:
            return ""
        self.places -= 1
        return "n"

    def add(self, name: str, priority: int = 0, *, refused: bool = False) -> None:
        document = pod_object(name, priority=priority)
        if refused:
            document["status"]["conditions"] = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]
        self.nominator.add(scheduled_pod(document))


def lining(line: Line, test: Callable[[Line], Awaitable[None]]) -> None:
    async def main() -> None:
        task = asyncio.ensure_future(line.nominator.run())
        try:
            await test(line)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await line.nominator.close()

    run(main())


def names(line: Line) -> list[str]:
    return [name for name, _ in line.api.nominated]


def test_order() -> None:
    """The most important pods first, and of equal ones those that came first, whatever their kind."""

    async def test(line: Line) -> None:
        for name, priority in (("a-1", 0), ("b-1", 0), ("a-2", 0), ("c-1", 9), ("b-2", 0)):
            line.add(name, priority)
        await asyncio.sleep(1)
        assert names(line) == ["c-1", "a-1", "b-1", "a-2", "b-2"]
        assert set(line.nominator.ahead) == {f"uid-{name}" for name in names(line)}

    lining(Line(9), test)


def test_full_cluster() -> None:
    """Pods that no node takes cost one question for each kind, again whenever room comes, and none while nothing
    happens."""

    async def test(line: Line) -> None:
        for number in range(50):
            line.add(f"a-{number}")
            line.add(f"b-{number}")
        await asyncio.sleep(1)
        assert line.asked == {"a": 1, "b": 1}
        await asyncio.sleep(100)
        line.add("a-99")
        await asyncio.sleep(1)
        assert line.asked == {"a": 1, "b": 1}
        line.places = 1
        line.nominator.unblock()
        await asyncio.sleep(1)
        assert names(line) == ["a-0"]
        assert line.asked == {"a": 3, "b": 2}
        assert line.nominator.waiting == 100

    lining(Line(0), test)


def test_not_too_far_ahead() -> None:
    """No more than so many are nominated and not bound; each that is bound lets another in."""

    async def test(line: Line) -> None:
        for number in range(5):
            line.add(f"a-{number}")
        await asyncio.sleep(1)
        assert names(line) == ["a-0", "a-1"]
        line.nominator.drop("uid-a-0")
        await asyncio.sleep(1)
        assert names(line) == ["a-0", "a-1", "a-2"]

    lining(Line(9, ahead=2), test)


def test_refused_nominations() -> None:
    """A pod that is gone or bound is dropped without a failure; a server that is away is reported, and the pod waits
    again."""

    async def test(line: Line) -> None:
        line.api.refuse = 422
        line.add("a-1")
        await asyncio.sleep(1)
        assert (line.released, line.nominator.ahead, line.nominator.waiting, line.failures) == (["uid-a-1"], {}, 0, [])
        line.api.refuse, line.api.broken = 0, "connection refused"
        line.places = 1
        line.add("a-2")
        await asyncio.sleep(1)
        assert line.released[-1] == "uid-a-2"
        assert line.failures == ["connection refused"]
        assert line.nominator.waiting == 1
        line.api.broken, line.places = "", 1
        line.nominator.unblock()
        await asyncio.sleep(1)
        assert names(line) == ["a-2"]

    lining(Line(9), test)


def test_pods_that_leave() -> None:
    """A pod that left its line is not nominated, and a line without pods is dropped."""

    async def test(line: Line) -> None:
        line.add("a-1")
        line.add("a-2")
        line.nominator.drop("uid-a-1")
        await asyncio.sleep(1)
        assert names(line) == ["a-2"]
        assert line.nominator.waiting == 0

    lining(Line(9), test)


def test_new_pods_are_left_to_the_scheduler() -> None:
    """A pod that the scheduler reaches soon costs no nomination; one that it does not reach is nominated then, with
    those that came before it first."""

    async def test(line: Line) -> None:
        line.add("a-1")
        line.add("a-2")
        await asyncio.sleep(4)
        line.add("a-3")
        line.nominator.drop("uid-a-1")
        assert (names(line), line.nominator.waiting) == ([], 2)
        assert line.nominator.has("uid-a-2")
        await asyncio.sleep(2)
        assert names(line) == ["a-2"]
        await asyncio.sleep(4)
        assert names(line) == ["a-2", "a-3"]

    lining(Line(9, patience=5.0), test)


def test_refused_pods_are_not_left_to_the_scheduler() -> None:
    """A pod that filter has just refused, or that its scheduler has marked, joins its line at once: a nomination is
    what has it tried again."""

    async def test(line: Line) -> None:
        for name in ("a-1", "a-2"):
            line.add(name)
        line.add("a-3", refused=True)
        line.nominator.add_refused("uid-a-2")
        line.nominator.add_refused("uid-unknown")
        await asyncio.sleep(1000)
        assert names(line) == ["a-3", "a-2"]
        # The cluster has grown: what came before is not forgotten.
        line.patience = 5.0
        line.add("a-4")
        await asyncio.sleep(6)
        assert names(line) == ["a-3", "a-2", "a-1", "a-4"]

    lining(Line(9, patience=inf), test)
