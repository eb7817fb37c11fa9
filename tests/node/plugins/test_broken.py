"""Plugins that are broken, slow, impure or mean: they are named, and cannot do a node any harm."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from podslice.config.policy import OnError
from podslice.node.plugins.contract import Stopwatch
from podslice.plugins import Bits, CPUAsk, CPUEffects, CPUNode, Layer
from podslice.values.cpuset import union
from tests.conftest import make_pod
from tests.node.plugins.helpers import Base, cpus_of, own


class Clock:
    """Seconds that a test lets pass."""

    now = 0.0


class Fickle(Base):
    """Answers by chance, now and then outside its contract."""

    def __init__(self, chance: Random) -> None:
        super().__init__()
        self.chance = chance

    def _some(self, cpus: Bits) -> Bits:
        self._now_and_then()
        return cpus & self.chance.getrandbits(32)

    def _now_and_then(self) -> None:
        if self.chance.random() < 0.05:
            raise self.chance.choice((ValueError("now"), SystemExit(1), RecursionError("deep")))

    def filter(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Bits:
        return self._some(cpus) if self.chance.random() < 0.3 else cpus

    def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
        return ((self._some(cpus), self.chance.randint(-9, 9)),)

    def select(
        self, ask: CPUAsk, cpus: Bits, mask: Bits | None, layers: tuple[Layer, ...], node: CPUNode
    ) -> Iterable[Bits]:
        ids = [cpu for cpu in range(32) if cpus >> cpu & 1]
        for _ in range(self.chance.randint(0, 2)):
            self._now_and_then()
            some = self.chance.sample(ids, min(ask.count, len(ids)))
            yield union(1 << cpu for cpu in some) | (self.chance.random() < 0.05)

    def score(self, ask: CPUAsk, candidate: Bits, node: CPUNode) -> int:
        return self.chance.randint(0, 101)

    def allocate(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> CPUEffects | None:
        self._now_and_then()
        return None

    def deallocate(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> CPUEffects | None:
        self._now_and_then()
        return None


class Broken(Base):
    """Breaks its contract at one point."""

    def __init__(self, point: str, answer: object) -> None:
        super().__init__()
        self.point, self.answer = point, answer

    def _do(self, point: str, usual: Any) -> Any:
        if point != self.point:
            return usual
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def filter(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Any:
        return self._do("Filter", cpus)

    def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Any:
        return self._do("PreScore", ())

    def select(self, ask: CPUAsk, cpus: Bits, mask: Bits | None, layers: tuple[Layer, ...], node: CPUNode) -> Any:
        return self._do("Select", ())

    def score(self, ask: CPUAsk, candidate: Bits, node: CPUNode) -> Any:
        return self._do("Score", 0)

    def allocate(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Any:
        return self._do("Allocate", None)

    def deallocate(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Any:
        return self._do("Deallocate", None)


class Lying(int):
    """A number that claims to be part of every set."""

    def __and__(self, other: int) -> int:
        return 0

    __rand__ = __and__


class MuteError(Exception):
    """An error whose text is an error."""

    def __str__(self) -> str:
        raise ValueError


BREAKS: dict[str, tuple[str, object, str]] = {
    "exception": ("Filter", KeyError("x"), "KeyError: 'x'"),
    "not a subset": ("Filter", 1 << 40, "the CPUs are not a subset of those that it was given"),
    "not a number": ("Filter", "0-3", "the CPUs are not a subset of those that it was given"),
    "a number of its own": ("Filter", Lying(1 << 40), "the CPUs are not a subset of those that it was given"),
    "yes": ("Filter", True, "the CPUs are not a subset of those that it was given"),
    "exit": ("PreScore", SystemExit(3), "SystemExit: 3"),
    "no text": ("Select", MuteError(), "MuteError"),
    "lines": ("Select", ValueError("one\n two\n"), "ValueError: one two"),
    "points": ("PreScore", ((3, 10**7),), "10000000 points are not from -1000000 to 1000000"),
    "layers": ("PreScore", 5, "TypeError: 'int' object is not iterable"),
    "no layer": ("PreScore", (("0-3", 1),), "a layer has no set of CPUs"),
    "a set of its own": ("Select", (Lying(1 << 40 | 1),), "a set has CPUs that it was not given"),
    "foreign CPUs": ("Select", (3,), "a set has CPUs that it was not given"),
    "wrong count": ("Select", (4,), "a set has 1 CPUs, not the 2 that are asked for"),
    "score": ("Score", 101, "101 is not a score from 0 to 100"),
    "a long answer": ("Score", "x" * 1000, f"'{'x' * 199}…"),
    "recursion": ("Score", RecursionError("deep"), "RecursionError: deep"),
    "effects": ("Allocate", {"a": "b"}, "the answer is not CPUEffects"),
    "variables": (
        "Allocate",
        CPUEffects(environment={"A": 1}),  # type: ignore[dict-item]
        "ValidationError: Expected `str`, got `int` - at `$.environment[...]`",
    ),
    "memo": ("Allocate", CPUEffects(memo="x" * 5000), "the memo has more than 4096 bytes"),
}


@pytest.mark.parametrize("on_error", ["refuse", "skip", "static"])
@pytest.mark.parametrize(("point", "answer", "problem"), BREAKS.values(), ids=list(BREAKS))
def test_a_broken_plugin(point: str, answer: object, problem: str, on_error: OnError) -> None:
    """A plugin that breaks its contract is named; the pod is refused and nothing changed, or has all it wants."""
    node = own(Broken(point, answer), on_error=on_error, hint_scores=point == "Score")
    before = node.state
    decision = node.admit(make_pod("a", ("c", "2")))
    text = f'plugin "broken" {point}: {problem}'
    counted = {series.name: series.labels for series in node.counters if "plugin" in series.name}
    assert dict(counted["podslice_plugin_errors_total"]) == {"plugin": "broken", "point": point}
    if on_error == "refuse":
        assert (decision.reason, decision.message) == (
            "UnexpectedAdmissionError",
            f"Allocate failed due to {text}, which is unexpected",
        )
        assert node.state == before
        return
    assert cpus_of(node, "a") == "2-3"
    assert [(event.reason, event.message) for event in decision.events] == [("PodslicePluginError", text)]


def test_a_broken_deallocate_gives_back_all_the_same() -> None:
    """Released CPUs are free again, whatever a plugin does then."""
    node = own(Broken("Deallocate", ValueError("no")))
    before = node.shared_cpus
    node.admit(make_pod("a", ("c", "2")))
    node.remove("a")
    assert node.shared_cpus == before
    assert node.released_cpus == ()


def test_a_plugin_cannot_change_what_it_sees() -> None:
    """Asks and nodes are values."""

    class Meddling(Base):
        sees_pods = True

        def filter(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Bits:
            ask.pod.labels["app"] = "mine"  # type: ignore[index]
            return cpus

    node = own(Meddling())
    pod = make_pod("a", ("c", "2"))
    pod = replace(pod, metadata=replace(pod.metadata, labels={"app": "web"}))
    assert "TypeError" in node.admit(pod).message


@pytest.mark.parametrize("name", ["all_cpus", "cores", "new"])
def test_a_plugin_cannot_change_the_machine(name: str) -> None:
    """The machine that all plugins of a node see stays as it was."""

    class Moving(Base):
        def filter(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Bits:
            setattr(node.machine, name, 0)
            return cpus

    assert "AttributeError: a machine does not change" in own(Moving()).admit(make_pod("a", ("c", "2"))).message


def test_what_is_kept_is_not_the_plugins() -> None:
    """Effects that a plugin changes later stay as they were returned."""
    mine = {"A": "1"}

    class Keeping(Base):
        def allocate(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> CPUEffects:
            return CPUEffects(environment=mine)

    node = own(Keeping())
    node.admit(make_pod("a", ("c", "2")))
    mine["A"] = "2"
    assert node.cpu_effects("a", "c")["keeping"].environment == {"A": "1"}


def test_a_slow_generator_is_slow() -> None:
    """Time that is spent while sets are taken from a generator counts too."""
    clock = Clock()

    class Dawdling(Base):
        def select(
            self, ask: CPUAsk, cpus: Bits, mask: Bits | None, layers: tuple[Layer, ...], node: CPUNode
        ) -> Iterable[Bits]:
            clock.now += 0.02
            yield cpus & -cpus

    node = own(Dawdling(), on_error="skip")
    assert node.rules.cpu.plugins is not None
    node.rules.cpu.plugins.time_calls(Stopwatch(lambda: clock.now))
    reported = [node.admit(make_pod(f"p{number}", ("c", "1"))).events for number in range(6)]
    assert [len(events) for events in reported] == [0] * 5 + [1]
    assert reported[5][0].message == 'plugin "dawdling" Select: took more than 10 ms 5 times in a row'


@settings(deadline=None, max_examples=60)
@given(
    st.integers(0, 1 << 32),
    st.lists(st.integers(1, 6), min_size=1, max_size=8),
    st.sampled_from(["refuse", "skip", "static"]),
    st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
    st.sampled_from(["container", "pod"]),
)
def test_a_plugin_that_answers_at_random(
    seed: int, counts: list[int], on_error: OnError, policy: str, scope: str
) -> None:
    """An impure plugin, asked twice, says two things, some of them wrong: no pod gets CPUs that another has or
    that are reserved, every pod gets as many as were asked for or nothing at all, and all is free in the end."""
    node = own(Fickle(Random(seed)), on_error=on_error, hint_scores=True, topology_manager_policy=policy,
               topology_manager_scope=scope)  # fmt: skip
    whole = node.shared_cpus
    for number, count in enumerate(counts):
        before = node.state
        decision = node.admit(make_pod(f"p{number}", ("c", str(count)), ("d", "1")))
        assert decision.admitted or node.state == before
        owned = [cpus for held in node.view.owners.values() for cpus in held.values()]
        assert sum(cpus.bit_count() for cpus in owned) == union(owned).bit_count()
        assert not union(owned) & (node.view.shared | 0b11)
        if decision.admitted:
            assert [one.bit_count() for one in node.view.owners[f"p{number}"].values()] == [count, 1]
        if number % 3 == 2:
            node.remove(f"p{number - 1}")
    for number in range(len(counts)):
        node.remove(f"p{number}")
    assert node.shared_cpus == whole
