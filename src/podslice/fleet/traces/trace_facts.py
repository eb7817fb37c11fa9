"""Facts of a trace without interpretation, and notes that every user of it must know.

For a list of pods: which requests could own CPUs at all, how many shapes there are, how many pods ever run at the same
time, and what is missing, so that it must be assumed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import chain, pairwise
from typing import Any, TypeVar

import msgspec

from podslice.fleet.traces.columns import Format
from podslice.fleet.traces.trace import OpenTrace, TraceNode, TracePod

S = TypeVar("S", bound=tuple[Any, ...])
_DAY = 86_400_000
_MOST_ROWS = 12
_WHOLE = 1000


class ColumnFacts(msgspec.Struct, frozen=True):
    """A column, its meaning ("" where it is left out), its unit, and its empty cells."""

    name: str
    meaning: str
    unit: str
    empty: int


class CountedValue(msgspec.Struct, frozen=True):
    """A value or a shape, and the number of rows that have it."""

    value: str
    rows: int


class Concurrency(msgspec.Struct, frozen=True, rename="camel"):
    """The most that runs at once when the trace is replayed by its own times, each maximum on its own. A part of a GPU
    counts as that part."""

    pods: int
    milli_cpus: int
    milli_gpus: int


class PodListFacts(msgspec.Struct, frozen=True, rename="camel"):
    """Facts of a list of pods. Times in milliseconds; `whole_cpus` counts requests of whole CPUs, at least one."""

    whole_cpus: int
    commonest_cpu: int
    shapes: int
    shapes_with_qos: int
    with_gpus: int
    with_part_of_a_gpu: int
    with_several_gpus: int
    without_arrival: int
    without_end: int
    without_schedule: int
    without_length: int
    sorted_by_arrival: bool
    span: int
    at_once: Concurrency | None
    sums: Concurrency
    qos: tuple[CountedValue, ...]
    phases: tuple[CountedValue, ...]
    commonest_shapes: tuple[CountedValue, ...]


class NodeListFacts(msgspec.Struct, frozen=True, rename="camel"):
    """Facts of a list of nodes."""

    with_gpus: int
    gpus: int
    milli_cpus: int
    memory: int
    shapes: tuple[CountedValue, ...]


class TraceFacts(msgspec.Struct, frozen=True, rename="camel"):
    """A trace as it is. `notes`: for every user of it; `missing`: must be assumed."""

    file: str
    format: str
    rows: int
    columns: tuple[ColumnFacts, ...]
    pods: PodListFacts | None
    nodes: NodeListFacts | None
    missing: tuple[str, ...]
    notes: tuple[str, ...]


def describe(trace: OpenTrace) -> TraceFacts:
    """Read a trace to its end. Raises `InputError`."""
    pods = nodes = None
    if trace.format.rows == "pods":
        counted, pods = _pod_facts(trace.pods())
        missing, notes = _missing_of_pods(trace.format, counted), _pod_notes(counted, pods)
    else:
        counted, nodes = _node_facts(trace.nodes())
        missing, notes = _missing_of_nodes(trace.format), ()
    meanings = {column.name: (meaning, column.unit) for meaning, column in trace.format.columns.items()}
    columns = tuple(
        ColumnFacts(name, *meanings.get(name, ("", "")), empty=trace.empty.get(name, 0)) for name in trace.columns
    )
    return TraceFacts(
        str(trace.path), trace.format.name, counted, columns, pods, nodes, missing, (*notes, *trace.format.notes)
    )


# Pods


def _pod_facts(rows: Iterable[TracePod]) -> tuple[int, PodListFacts]:
    shapes: Counter[tuple[int, int, int, int, tuple[str, ...]]] = Counter()
    classes: Counter[tuple[object, ...]] = Counter()
    cpus: Counter[int] = Counter()
    qos: Counter[str] = Counter()
    phases: Counter[str] = Counter()
    spans: list[tuple[int | None, int | None, int, int]] = []
    whole = shares = several = no_schedule = no_length = 0
    for pod in rows:
        shape = (pod.cpu, pod.memory, pod.gpus, pod.gpu_milli, pod.models)
        shapes[shape] += 1
        classes[(*shape, pod.qos)] += 1
        cpus[pod.cpu] += 1
        qos[pod.qos] += 1
        phases[pod.phase] += 1
        whole += pod.cpu > 0 and pod.cpu % _WHOLE == 0
        shares += pod.gpus > 0 and pod.gpu_milli < _WHOLE
        several += pod.gpus > 1
        no_schedule += pod.scheduled is None
        no_length += pod.arrival is not None and pod.arrival == pod.end
        spans.append((pod.arrival, pod.end, pod.cpu, pod.gpus * pod.gpu_milli))
    arrivals = [span[0] for span in spans if span[0] is not None]
    instants = [at for at in chain.from_iterable(span[:2] for span in spans) if at is not None]
    facts = PodListFacts(
        whole_cpus=whole,
        commonest_cpu=cpus.most_common(1)[0][0] if cpus else 0,
        shapes=len(shapes),
        shapes_with_qos=len(classes),
        with_gpus=sum(span[3] > 0 for span in spans),
        with_part_of_a_gpu=shares,
        with_several_gpus=several,
        without_arrival=len(spans) - len(arrivals),
        without_end=sum(span[1] is None for span in spans),
        without_schedule=no_schedule,
        without_length=no_length,
        sorted_by_arrival=all(one <= other for one, other in pairwise(arrivals)),
        span=max(instants) - min(instants) if instants else 0,
        at_once=_most_at_once(spans) if instants else None,
        sums=Concurrency(len(spans), sum(span[2] for span in spans), sum(span[3] for span in spans)),
        qos=_most_common(qos),
        phases=_most_common(phases),
        commonest_shapes=tuple(
            CountedValue(shape_text(*shape), rows) for shape, rows in _commonest(shapes)[:_MOST_ROWS]
        ),
    )
    return len(spans), facts


def _most_at_once(spans: list[tuple[int | None, int | None, int, int]]) -> Concurrency:
    """Return the maxima over time; pods that end at a moment do not overlap with those that begin then."""
    running = [0, 0, 0]
    changes: list[tuple[int, int, int, int]] = []
    for begin, end, cpu, gpus in spans:
        if begin is None:
            running = [running[0] + 1, running[1] + cpu, running[2] + gpus]
        else:
            changes.append((begin, 1, cpu, gpus))
        if end is not None:
            changes.append((end, -1, -cpu, -gpus))
    most = list(running)
    # At equal times −1 sorts before 1.
    for _, *change in sorted(changes):
        running = [one + more for one, more in zip(running, change, strict=True)]
        most = [max(one, now) for one, now in zip(most, running, strict=True)]
    return Concurrency(*most)


def shape_text(cpu: int, memory: int, gpus: int, gpu_milli: int, models: tuple[str, ...]) -> str:
    """Describe a shape: `12 CPUs, 16 GiB, 1 GPU of V100M16|V100M32`."""
    parts = [cpu_text(cpu)]
    if memory:
        parts.append(memory_text(memory))
    if gpus:
        share = "" if gpu_milli == _WHOLE else f"{gpu_milli / _WHOLE:g} of "
        kind = f" of {'|'.join(models)}" if models else ""
        parts.append(f"{share}{gpus} GPU{'s' if gpus > 1 else ''}{kind}")
    return ", ".join(parts)


def cpu_text(milli: int) -> str:
    """Describe millicores: `12 CPUs`, `3152m CPU`."""
    if milli % _WHOLE:
        return f"{milli}m CPU"
    return f"{milli // _WHOLE} CPU{'' if milli == _WHOLE else 's'}"


def memory_text(amount: int) -> str:
    """Describe bytes: `16 GiB`, `0.5 GiB`."""
    return f"{round(amount / (1 << 30), 2):g} GiB"


def _commonest(counter: Counter[S]) -> list[tuple[S, int]]:
    return sorted(counter.items(), key=lambda item: (-item[1], item[0]))


def _most_common(counter: Counter[str]) -> tuple[CountedValue, ...]:
    found = [(value, rows) for value, rows in sorted(counter.items(), key=lambda item: (-item[1], item[0])) if value]
    return tuple(CountedValue(value, rows) for value, rows in found[:_MOST_ROWS])


def _missing_of_pods(format: Format, rows: int) -> tuple[str, ...]:
    texts = {
        "memory": "memory: pods ask for none",
        "gpus": "GPUs: pods ask for none",
        "arrival": "times: use the trace without departures, or with synthetic arrivals",
        "qos": "QoS classes: a reading says what limits there are",
        "owner": "owners: a reading says what replaces a refused pod",
    }
    lacking = tuple(text for meaning, text in texts.items() if meaning not in format.columns) if rows else ()
    return (*lacking, "containers and limits: a reading says how many containers a pod has and what limits them")


def _pod_notes(rows: int, facts: PodListFacts) -> tuple[str, ...]:
    return tuple(chain(_replay_note(facts), _cpu_note(rows, facts), _gpu_note(facts), _time_notes(rows, facts)))


def _replay_note(facts: PodListFacts) -> Iterator[str]:
    if facts.at_once is None or not facts.sums.pods:
        return
    once = facts.at_once
    text = (
        f"Replayed by its own times, over {facts.span / _DAY:.0f} days, at most {once.pods} pods, "
        f"{_round_up(once.milli_gpus)} GPUs and {_round_up(once.milli_cpus)} CPUs run at once."
    )
    if once.pods * 20 < facts.sums.pods:
        text += (
            " Nodes for all of them never fill: use the trace without departures, with its time compressed, or for its "
            "shapes."
        )
    yield text


def _round_up(milli: int) -> int:
    return -(-milli // _WHOLE)


def _cpu_note(rows: int, facts: PodListFacts) -> Iterator[str]:
    if rows and facts.whole_cpus < rows:
        share = 100 * facts.whole_cpus / rows
        yield (
            f"Only {share:.0f} % of the pods ask for whole CPUs ({facts.whole_cpus} of {rows}; the commonest request "
            f"is {cpu_text(facts.commonest_cpu)}). As written the others can never own CPUs; rounded up they can, and "
            "that choice changes what a simulation says: it is the reading's `cpus`."
        )


def _gpu_note(facts: PodListFacts) -> Iterator[str]:
    if facts.with_part_of_a_gpu:
        yield (
            f"{facts.with_part_of_a_gpu} pods use a part of one GPU, {facts.with_several_gpus} use several. A kubelet "
            "does not see parts: it is the reading's `gpuShare`."
        )


def _time_notes(rows: int, facts: PodListFacts) -> Iterator[str]:
    if not facts.span:
        return
    if not facts.sorted_by_arrival:
        yield "The rows are not in the order of arrival."
    for count, text in (
        (facts.without_arrival, "have no arrival"),
        (facts.without_end, "have no end"),
        (facts.without_schedule if facts.without_schedule < rows else 0, "were never scheduled by what the trace says"),
        (facts.without_length, "end the moment they begin"),
    ):
        if count:
            yield f"{count} of {rows} pods {text}."


# Nodes


def _node_facts(rows: Iterable[TraceNode]) -> tuple[int, NodeListFacts]:
    shapes: Counter[tuple[int, int, int, str]] = Counter()
    for node in rows:
        shapes[(node.cpu, node.memory or 0, node.gpus, node.model)] += 1
    facts = NodeListFacts(
        with_gpus=sum(count for shape, count in shapes.items() if shape[2]),
        gpus=sum(shape[2] * count for shape, count in shapes.items()),
        milli_cpus=sum(shape[0] * count for shape, count in shapes.items()),
        memory=sum(shape[1] * count for shape, count in shapes.items()),
        shapes=tuple(CountedValue(_node_text(shape), rows) for shape, rows in _commonest(shapes)),
    )
    return shapes.total(), facts


def _node_text(shape: tuple[int, int, int, str]) -> str:
    cpu, memory, gpus, model = shape
    return shape_text(cpu, memory, gpus, _WHOLE, (model,) if model else ())


def _missing_of_nodes(format: Format) -> tuple[str, ...]:
    texts = {"memory": "memory", "gpus": "GPUs", "model": "GPU models"}
    lacking = tuple(text for meaning, text in texts.items() if meaning not in format.columns)
    return (*lacking, "sockets, NUMA nodes, hardware threads, which GPU is near which NUMA node, and reservations")
