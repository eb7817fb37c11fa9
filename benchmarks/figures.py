"""Figures that are not a time of a call: memory of a node, import time, recorded decisions per second."""

from __future__ import annotations

import gc
import gzip
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from time import perf_counter

from benchmarks.measure import Result
from benchmarks.nodes import config, machine
from podslice import Machine, Node
from podslice.replay.run import compare
from podslice.values.quirks import KUBELET_1_36


def results() -> Iterator[Result]:
    yield _memory_of_a_node("shared machine", 20, lambda made: Node(made, config(memory=True)))
    first = Node(machine(2, cpus_per_node=32), config(memory=True))
    rules, state = first.rules, first.state
    yield _memory_of_a_node("shared rules", 2, lambda made: Node.of(rules, state))
    yield _import_time()
    yield from _replay_rate()


def _memory_of_a_node(shared: str, target: float, make: Callable[[Machine], Node], number: int = 200) -> Result:
    """Idle simulated nodes that share their machine or all their rules, each asked once for what is free."""
    made = machine(2, cpus_per_node=32)
    nodes = [make(made)]
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    nodes += [make(made) for _ in range(number)]
    for node in nodes:
        assert node.assignable_cpus
    gc.collect()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    size = (after - before) / 1024 / number
    return Result("figures", f"idle node, 2 NUMA x 64 CPUs, {shared}", round(size, 1), target=target, unit="KiB")


def _import_time() -> Result:
    script = "import time; start = time.perf_counter(); import podslice; print(time.perf_counter() - start)"
    times = [
        float(subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True).stdout)
        for _ in range(5)
    ]
    return Result("figures", "import podslice", round(min(times) * 1e3, 1), unit="ms")


def _replay_rate() -> Iterator[Result]:
    folder = Path(__file__).parent.parent / "tests" / "vectors"
    for name in ("take", "merge", "managers"):
        with gzip.open(folder / f"{name}.jsonl.gz", "rt") as lines:
            records = [json.loads(line) for line in lines]
        start = perf_counter()
        for record in records:
            assert not compare(record, KUBELET_1_36).difference
        rate = len(records) / (perf_counter() - start)
        yield Result("figures", f"replay of recorded decisions, {name}", round(rate), unit="cases/s")
