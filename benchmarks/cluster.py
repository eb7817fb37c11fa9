"""Speed of the cluster model: filters over 5 000 nodes in states of their own, choices, and memory of a node.

`python -m benchmarks.cluster` prints it in CPU time of one core; `python -m benchmarks cluster` beside the goals.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from random import Random
from time import thread_time_ns

from msgspec.structs import replace

from benchmarks.fleet import CPUS, one_class, shapes
from benchmarks.measure import Result
from podslice import Pod
from podslice.api.pod.spec import pod_from_dict
from podslice.cluster.model.model import ClusterModel, ModelLimits
from podslice.node.decide import decide
from podslice.node.state import NodeState

GROUP = "cluster"
NODES, STEPS = 5_000, 300
COLD, DISTINCT = "filter, a kind of pod never seen", "filter, as pods and nodes come"
WARM, CHOICE = "filter, the same kind again", "choose"
KIB = "the model, for each node in a state of its own"
NODE_KIB = 150 * 1000**2 / 15_000 / 1024
"""150 MB for 15 000 nodes."""


class Bench:
    """A cluster of equal machines of 96 CPUs with both static policies and single-numa-node, each with pods of its own
    mix on 20 to 90 % of its CPUs."""

    def __init__(self, nodes: int) -> None:
        self.r = Random(1)
        self.kind = one_class(managers=True)
        self.pods = [shape.pod for shape in shapes(self.kind)]
        self.weights = [share for _, share in CPUS]
        self.count = 0
        self.names = [f"node-{number:05}.example.internal" for number in range(nodes)]

    def pod(self, template: Pod | None = None) -> Pod:
        """Return a new pod, of one of the usual sizes or like `template`."""
        self.count += 1
        one = template or self.r.choices(self.pods, self.weights)[0]
        name = f"pod-{self.count}"
        return replace(one, metadata=replace(one.metadata, name=name, uid=name))

    def unusual_pod(self, number: int) -> Pod:
        """Return a pod of a size that no other pod has."""
        amounts = {"cpu": str(1 + number % 24), "memory": f"{1 + number}Gi"}
        container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
        return self.pod(pod_from_dict({"metadata": {"name": "p"}, "spec": {"containers": [container]}}))

    def state(self) -> NodeState:
        """Return the state of a node with some of its CPUs taken."""
        state, fill = self.kind.state, self.r.uniform(0.2, 0.9)
        most = state.cpu.default.bit_count() * (1 - fill)
        while state.cpu.default.bit_count() > most:
            state = decide(self.kind.rules, state, self.pod()).state
        return state

    def model(self) -> ClusterModel:
        """Return the model of all nodes, used as the service does: for the one best node."""
        model = ClusterModel(ModelLimits(best=1))
        for name in self.names:
            model.add_node(name, self.kind.rules, self.state())
        return model


def results(nodes: int = NODES, steps: int = STEPS) -> Iterator[Result]:
    """Yield all figures."""
    bench = Bench(nodes)
    model = bench.model()
    model.filter(bench.unusual_pod(0), bench.names, 0.0)
    yield from _unusual_pods(bench, model)
    yield from _churn(bench, model, steps)
    yield _memory()


def _unusual_pods(bench: Bench, model: ClusterModel) -> Iterator[Result]:
    """Time pods of sizes not requested before, and the same when the best nodes are all known."""
    first: list[float] = []
    second: list[float] = []
    again: list[float] = []
    for number in range(1, 101):
        for times in (first, second, again):
            pod = bench.unusual_pod(number)
            times.append(_time(lambda pod=pod: model.filter(pod, bench.names, 0.0)))  # type: ignore[misc]
            model.unbind(pod.metadata.uid)
    yield _result(COLD, first)
    yield _result(WARM, again)


def _churn(bench: Bench, model: ClusterModel, steps: int) -> Iterator[Result]:
    """Time pods of all sizes that are chosen, filtered, bound and removed: nodes change between two filters."""
    choices: list[float] = []
    singles: list[float] = []
    filters: list[float] = []
    coming: list[str] = []
    for step in range(steps):
        ahead, other = bench.pod(), bench.pod()
        name, took = _choose(model, ahead, float(step))
        choices.append(took)
        singles.append(_filter(model, ahead, [name], float(step)))
        model.bind(ahead.metadata.uid, name, float(step))
        coming.append(ahead.metadata.uid)
        filters.append(_filter(model, other, bench.names, float(step)))
        model.unbind(other.metadata.uid)
        if len(coming) > 50:
            model.unbind(coming.pop(0))
    yield _result(DISTINCT, filters)
    yield _result(CHOICE, choices)
    yield _result("filter of the one nominated name", singles)


def _choose(model: ClusterModel, pod: Pod, now: float) -> tuple[str, float]:
    begun = thread_time_ns()
    name = model.choose(pod, now)
    took = (thread_time_ns() - begun) / 1000
    assert name is not None
    return name, took


def _filter(model: ClusterModel, pod: Pod, names: list[str], now: float) -> float:
    return _time(lambda: model.filter(pod, names, now))


def _memory(nodes: int = 1000) -> Result:
    """Measure the memory of nodes whose replicas are elsewhere, and of answers about them."""
    bench, model = Bench(nodes), ClusterModel()
    model.add_node("first", bench.kind.rules, bench.kind.state)
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for name in bench.names:
        model.add_node(name, bench.kind.rules, bench.state())
    for template in bench.pods:
        pod = bench.pod(template)
        model.filter(pod, bench.names, 0.0)
        model.unbind(pod.metadata.uid)
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return Result(GROUP, KIB, round((after - before) / 1024 / nodes, 2), target=round(NODE_KIB, 1), unit="KiB")


def _time(run: Callable[[], object]) -> float:
    """Return the microseconds of CPU time of a call."""
    begun = thread_time_ns()
    run()
    return (thread_time_ns() - begun) / 1000


def _result(name: str, times: list[float]) -> Result:
    times.sort()
    return Result(GROUP, name, round(times[len(times) // 2], 1), round(times[int(len(times) * 0.99)], 1))


def main() -> int:
    """Print every result."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cluster", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--steps", type=int, default=STEPS)
    arguments = parser.parse_args()
    print(f"{f'{arguments.nodes} nodes':<58}{'median us':>12}{'p99':>12}")
    for found in results(arguments.nodes, arguments.steps):
        p99 = "" if found.p99 is None else f"{found.p99:12,.0f}"
        print(f"{found.name:<58}{found.median:12,.1f}{p99} {'' if found.unit == 'us' else found.unit}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
