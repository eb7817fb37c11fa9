"""Checks of amounts, times and numbers of a scenario, all of them before anything is simulated."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from podslice.fleet.scenario.scenario import (
    AUTO,
    FleetScenario,
    Lifetime,
    Reading,
    Replicas,
    Synthetic,
    SyntheticShape,
    WorkloadEntry,
)
from podslice.fleet.scenario.strict import Number, milliseconds, quantity, release_name
from podslice.fleet.traces.synthetic import LONGEST_LOG, gap_of_rate
from podslice.values.errors import InputError
from podslice.values.quirks import PROFILE_NAMES

_MOST_SIDECARS = 100


_MOST_INFLATED = 100_000


def value_problems(scenario: FleetScenario) -> Iterator[InputError]:
    """Yield every impossible value."""
    if not scenario.name.strip() or "/" in scenario.name or not scenario.name.isprintable():
        yield InputError(f"{scenario.name!r} is not a name of a folder", path="name", remedy="letters, digits, - and _")
    for index, node in enumerate(scenario.nodes):
        yield from _check_least(f"nodes[{index}].count", node.count, 0)
    for name, machine in scenario.machines.items():
        yield from _check_least(f"machines.{name}.gpus", machine.gpus, 0)
    yield from _release_problems(scenario)
    for index, work in enumerate(scenario.workload):
        yield from _workload_problems(work, f"workload[{index}]")
    yield from _scheduler_problems(scenario)
    for name, transform in scenario.transforms.items():
        path = f"transforms.{name}"
        for field, scale in transform.scale.items():
            yield from _check_positive(f"{path}.scale.{field}", scale)
        if transform.sidecars is not None:
            yield from _check_least(f"{path}.sidecars.count", transform.sidecars.count, 1)
            if transform.sidecars.count > _MOST_SIDECARS:
                yield InputError(f"is more than {_MOST_SIDECARS}", path=f"{path}.sidecars.count")
            yield from _check_parsed(quantity, f"{path}.sidecars.cpu", transform.sidecars.cpu)
            yield from _check_parsed(quantity, f"{path}.sidecars.memory", transform.sidecars.memory)
        if transform.reading is not None:
            yield from _reading_problems(transform.reading, f"{path}.reading")
    yield from _check_parsed(milliseconds, "refusals.delay", scenario.refusals.delay)
    yield from _check_least("refusals.tries", scenario.refusals.tries, 1)
    yield from _check_least("refusals.limit", scenario.refusals.limit, 0)
    for index, event in enumerate(scenario.node_events):
        yield from _check_parsed(milliseconds, f"nodeEvents[{index}].at", event.at)
    yield from _sample_problems(scenario)


def _release_problems(scenario: FleetScenario) -> Iterator[InputError]:
    for name, machine in scenario.machines.items():
        yield from _check_parsed(release_name, f"machines.{name}.kubernetes", machine.kubernetes)
    for index, node in enumerate(scenario.nodes):
        if not node.is_live:
            yield from _check_parsed(release_name, f"nodes[{index}].kubernetes", node.kubernetes)
    for name, kubelet in scenario.kubelets.items():
        if kubelet.kubernetes != AUTO:
            yield from _check_parsed(release_name, f"kubelets.{name}.kubernetes", kubelet.kubernetes)
        elif not any(node.is_live for node in scenario.nodes):
            remedy = "nodes: - kubernetes: nodes.json, or name a release"
            yield InputError("auto needs nodes of a live cluster", path=f"kubelets.{name}.kubernetes", remedy=remedy)
    if scenario.profile not in PROFILE_NAMES:
        yield InputError(
            f"{scenario.profile!r} is not a profile", path="profile", remedy=f"one of {', '.join(PROFILE_NAMES)}"
        )


def _sample_problems(scenario: FleetScenario) -> Iterator[InputError]:
    sample = scenario.sample
    yield from _check_parsed(milliseconds, "warmup", scenario.warmup)
    yield from _check_parsed(milliseconds, "sample.every", sample.every)
    if sample.every is not None and sample.per_percent_arrived is not None:
        yield InputError("has both every and perPercentArrived", path="sample", remedy="leave one out")
    yield from _check_positive("sample.perPercentArrived", sample.per_percent_arrived)


def _scheduler_problems(scenario: FleetScenario) -> Iterator[InputError]:
    for name, scheduler in scenario.schedulers.items():
        path = f"schedulers.{name}"
        if not 0 <= scheduler.percentage <= 100:
            yield InputError("is not a percentage", path=f"{path}.percentage")
        yield from _check_parsed(milliseconds, f"{path}.nrtDelay", scheduler.nrt_delay)
        shares = [share for share, _ in scheduler.curve]
        if not shares or shares != sorted(set(shares)) or not 0 <= shares[0] <= shares[-1] <= 100:
            remedy = "pairs of utilization and score, such as [[0, 0], [100, 10]]"
            yield InputError("does not go up from 0 to 100", path=f"{path}.curve", remedy=remedy)
        elif not all(0 <= score <= 10 for _, score in scheduler.curve):
            yield InputError("has a score that is not from 0 to 10", path=f"{path}.curve")


def _workload_problems(work: WorkloadEntry, path: str) -> Iterator[InputError]:
    yield from _reading_problems(work.reading, f"{path}.reading")
    if work.inflate is not None:
        ways = (work.inflate.to, work.inflate.copies, work.inflate.rate)
        if sum(value is not None for value in ways) != 1:
            yield InputError("needs exactly one of to, copies and rate", path=f"{path}.inflate")
        for field, value in zip(("to", "copies", "rate"), ways, strict=True):
            yield from _check_positive(f"{path}.inflate.{field}", value)
            if value is not None and value > _MOST_INFLATED:
                yield InputError(f"is more than {_MOST_INFLATED}", path=f"{path}.inflate.{field}")
    if isinstance(work.departures, Lifetime):
        yield from _check_parsed(_parse_positive_time, f"{path}.departures.mean", work.departures.mean)
    if work.synthetic is not None:
        yield from _synthetic_problems(work.synthetic, f"{path}.synthetic")


def _reading_problems(reading: Reading, path: str) -> Iterator[InputError]:
    time = reading.time
    yield from _check_positive(f"{path}.time.scale", time.scale)
    problems = [
        *_check_parsed(milliseconds, f"{path}.time.start", time.start),
        *_check_parsed(milliseconds, f"{path}.time.until", time.until),
    ]
    yield from problems
    if not problems and time.until is not None and milliseconds(time.until, "") <= milliseconds(time.start, ""):
        yield InputError("is not after start", path=f"{path}.time.until")
    if isinstance(reading.gpu_share, Replicas):
        yield from _check_least(f"{path}.gpuShare.replicas", reading.gpu_share.replicas, 1)


def _synthetic_problems(made: Synthetic, path: str) -> Iterator[InputError]:
    yield from _check_least(f"{path}.pods", made.pods, 1)
    arrivals, lifetime = made.arrivals, made.lifetime
    if (arrivals.poisson is None) == (arrivals.every is None):
        yield InputError("needs exactly one of poisson and every", path=f"{path}.arrivals")
    yield from _check_parsed(gap_of_rate, f"{path}.arrivals.poisson", arrivals.poisson)
    yield from _check_parsed(milliseconds, f"{path}.arrivals.every", arrivals.every)
    if lifetime is not None:
        ways = (lifetime.lognormal, lifetime.exponential, lifetime.constant)
        if sum(value is not None for value in ways) != 1:
            yield InputError("needs exactly one of lognormal, exponential and constant", path=f"{path}.lifetime")
        yield from _check_parsed(_parse_positive_time, f"{path}.lifetime.exponential", lifetime.exponential)
        yield from _check_parsed(milliseconds, f"{path}.lifetime.constant", lifetime.constant)
        if lifetime.lognormal is not None and not (lifetime.lognormal[0] <= LONGEST_LOG and lifetime.lognormal[1] >= 0):
            remedy = "mu and sigma of the logarithm of seconds, such as [3.2, 1.1]"
            yield InputError("is not a distribution", path=f"{path}.lifetime.lognormal", remedy=remedy)
    if isinstance(made.shapes, tuple):
        if not any(shape.weight for shape in made.shapes):
            yield InputError("has none that comes", path=f"{path}.shapes", remedy="name one with a weight above 0")
        for index, shape in enumerate(made.shapes):
            yield from _shape_problems(shape, f"{path}.shapes[{index}]")


def _shape_problems(shape: SyntheticShape, path: str) -> Iterator[InputError]:
    yield from _check_parsed(quantity, f"{path}.cpu", shape.cpu)
    yield from _check_parsed(quantity, f"{path}.memory", shape.memory)
    yield from _check_least(f"{path}.gpus", shape.gpus, 0)
    yield from _check_least(f"{path}.weight", shape.weight, 0)


def _parse_positive_time(value: Number, path: str) -> None:
    if milliseconds(value, path) == 0:
        raise InputError("is not above 0", path=path)


def _check_least(path: str, value: int, least: int) -> Iterator[InputError]:
    if value < least:
        yield InputError(f"{value} is less than {least}", path=path)


def _check_positive(path: str, value: float | None) -> Iterator[InputError]:
    if value is not None and not 0 < value < float("inf"):
        yield InputError(f"{value} is not above 0", path=path)


def _check_parsed(reader: Callable[[Any, str], object], path: str, value: object | None) -> Iterator[InputError]:
    """Yield the error of a parser for a value; None is a field that is left out."""
    if value is None:
        return
    try:
        reader(value, path)
    except InputError as error:
        yield error
