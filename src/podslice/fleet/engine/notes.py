"""The measurements of a run: rows of a series while it goes on, sums and columns at its end.

All values are integers; rates are divided where they are printed.
"""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np

from podslice.fleet.engine.clock import FleetEvent
from podslice.fleet.engine.live import LiveNodes
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.pods import FAILED, LOOPING, PENDING, RAN
from podslice.fleet.engine.refusals import COLLECTED_FROM
from podslice.fleet.engine.result import CellResult, NodeColumns
from podslice.fleet.engine.stranded import StrandedCPUs
from podslice.fleet.engine.workload import NEVER
from podslice.fleet.scheduler.loads import Ints
from podslice.fleet.scheduler.queue import PodQueue

_SERIES = (
    "at_ms", "arrived_pods", "arrived_milli", "running", "waiting", "looping", "cpu_milli", "memory", "gpu_milli",
    "attempts", "refused_attempts",
)  # fmt: skip


_AT_ONCE = 4096
"""Number of nodes whose fragmentation is computed in one step, which bounds the memory of the intermediate arrays."""


class Notes:
    """The series and the sums of one run."""

    def __init__(self, queue: PodQueue, options: CellOptions) -> None:
        self._queue = queue
        self._options = options
        self._by_gpu = any(shape.gpus for shape in queue.workload.shapes)
        requests = [shape.gpu_request if self._by_gpu else shape.cpu_request for shape in queue.workload.shapes]
        self._requests = requests
        self._all = sum(requests[shape] for shape in queue.workload.shape)
        self._arrived = self._shown = 0
        self._series: dict[str, array[int]] = {name: array("q") for name in _SERIES}
        self.fragments = FragmentNotes(queue) if "fragmentation" in options.metrics else None
        self._now = 0
        self._integrals = [0, 0, 0, 0, 0, 0]

    def deliver_until(self, at: int) -> None:
        """Advance to `at`, and add the elapsed time to the integrals with everything as it is."""
        if at > self._now:
            # Integrals begin after the warm-up, so that a filling cluster does not count.
            passed = at - max(self._now, self._options.warmup_ms)
            self._now = at
            if passed > 0:
                queue, integrals = self._queue, self._integrals
                pods, cpu, memory, gpu = queue.live.booked
                integrals[0] += pods * passed
                integrals[1] += cpu * passed
                integrals[2] += memory * passed
                integrals[3] += gpu * passed
                integrals[4] += queue.waiting_pods * passed
                integrals[5] += len(queue.loops) * passed

    def count_arrival(self, event: FleetEvent) -> None:
        """Count a pod that has arrived and been tried, and take a sample if one is due."""
        self._arrived += self._requests[self._queue.workload.shape[event.number]]
        share = self._options.sample_share
        due = share and self._all and self._arrived * 1000 // self._all // share > self._shown
        if due:
            self._shown = self._arrived * 1000 // self._all // share
        if due or self._options.sample_arrivals:
            self.sample(event.at)

    def sample(self, at: int) -> None:
        """Append a row to the series."""
        queue = self._queue
        pods, cpu, memory, gpu = queue.live.booked
        row = {
            "at_ms": at,
            "arrived_pods": queue.arrived,
            "arrived_milli": self._arrived,
            "running": pods,
            "waiting": queue.waiting_pods,
            "looping": len(queue.loops),
            "cpu_milli": cpu,
            "memory": memory,
            "gpu_milli": gpu,
            "attempts": queue.attempts,
            "refused_attempts": queue.refused_attempts,
        }
        if self.fragments is not None:
            self.fragments.sample()
        for name, value in row.items():
            self._series[name].append(value)

    def result(self) -> CellResult:
        """Return the result of the run, which ends here."""
        queue, options = self._queue, self._options
        horizon = max(self._now, options.until_ms)
        self.deliver_until(horizon)
        # Pods that still loop have their attempts up to the horizon counted before the last sample.
        queue.finish(horizon)
        self.sample(horizon)
        if self.fragments is not None:
            self._series["fragmented_milli"] = self.fragments.series()
        pods, workload = queue.pods, queue.workload
        numbers = range(len(workload)) if options.cpus else ()
        work = queue.live.answers
        nodes, stranded = self._nodes()
        return CellResult(
            summary=self._summary(horizon) | stranded,
            series=self._series,
            refusals=pods.refusals(),
            reasons=tuple(pods.reasons),
            popular=queue.fragmentation.weight,
            pods=pods.columns(
                [queue.alignment.cpus.get(pod, 0) for pod in numbers],
                [queue.alignment.numa.get(pod, 0) for pod in numbers],
            ),
            nodes=nodes,
            work={"asked": work.asked, "computed": work.computed, "verified": work.verified},
        )

    def _summary(self, horizon: int) -> dict[str, int]:
        """Return the integers of the result by name (docs/fleet.md has the table)."""
        queue = self._queue
        pods, columns, workload = queue.pods, queue.live.columns, queue.workload
        verdicts = np.bincount(np.array(pods.verdict, dtype=np.int64) + 1, minlength=6).tolist()
        bound = np.array(pods.first_bound, dtype=np.int64)
        waited = np.sort((bound - np.array(pods.first_try, dtype=np.int64))[bound >= 0])
        refused = np.array(pods.refused, dtype=np.int64)
        # Each refused attempt of a replaced pod is one failed Pod object in the API server.
        replaced = np.sort(refused[bound >= 0])
        objects = int(refused.sum()) if self._options.retry == "owner" else 0
        # A pod that was bound once counts as met, even if it was evicted and waits again at the end.
        unmet = [pod for pod in range(len(workload)) if pods.first_bound[pod] == NEVER]
        shapes = workload.shapes
        running, cpu, memory, gpu = queue.live.booked
        return {
            "horizon_ms": horizon,
            "nodes": columns.count,
            "cpu_milli_room": int(columns.room[:, 1].sum()),
            "memory_room": int(columns.room[:, 2].sum()),
            "gpu_milli_room": 1000 * int(columns.gpu_count.sum()),
            "pods": len(workload),
            "bound": len(workload) - len(unmet),
            "running": running,
            "cpu_milli": cpu,
            "memory": memory,
            "gpu_milli": gpu,
            "ended": sum(ended != NEVER for ended in pods.ended),
            "waiting": verdicts[PENDING + 1],
            "looping": verdicts[LOOPING + 1],
            "failed": verdicts[FAILED + 1],
            "admitted": verdicts[RAN + 1],
            "attempts": sum(pods.attempts),
            "refused_attempts": sum(pods.refused),
            "first_refused": queue.first_refused,
            "looped": queue.loop_count,
            "preempted": queue.preempted,
            "lost_in_restarts": queue.lost_in_restarts,
            "loop_ms": queue.loop_ms,
            "most_replacements": max(pods.refused, default=0),
            "replacements_of_bound": int(replaced.sum()),
            "replacements_p99": _quantile(replaced, 99),
            "failed_objects": min(objects, COLLECTED_FROM),
            "collected_objects": max(0, objects - COLLECTED_FROM),
            "wait_ms_p50": _quantile(waited, 50),
            "wait_ms_p90": _quantile(waited, 90),
            "wait_ms_p99": _quantile(waited, 99),
            "unmet_cpu_milli": sum(shapes[workload.shape[pod]].cpu_request for pod in unmet),
            "unmet_gpu_milli": sum(shapes[workload.shape[pod]].gpu_request for pod in unmet),
            "asked_cpu_milli": sum(shapes[shape].cpu_request for shape in workload.shape),
            "asked_gpu_milli": sum(shapes[shape].gpu_request for shape in workload.shape),
            "owners_on_one_numa": queue.alignment.one,
            "owners_across_numa": queue.alignment.across,
            "owners_with_split_cores": queue.alignment.split_cores,
            "owners_distance_x_1000": queue.alignment.distance,
            "empty_nodes": int((columns.used[:, 0] == 0).sum()),
            "measured_ms": max(0, horizon - self._options.warmup_ms),
            **dict(
                zip(
                    ("pods_x_ms", "cpu_milli_x_ms", "memory_x_ms", "gpu_milli_x_ms", "waiting_x_ms", "looping_x_ms"),
                    self._integrals,
                    strict=True,
                )
            ),
        }

    def _nodes(self) -> tuple[NodeColumns, dict[str, int]]:
        """Return the final columns of nodes, and the sums over them."""
        queue, columns = self._queue, self._queue.live.columns
        numbers: dict[int, int] = {}
        # Numbered again in the order of nodes: the engine's numbers depend on which answers were computed first.
        state = array("q", [numbers.setdefault(one, len(numbers)) for one in columns.state.tolist()])
        found = StrandedCPUs(queue, self._options.metrics).measure()
        shared = measure_shared_pools(queue.live)
        made = NodeColumns(
            state,
            array("q", columns.used[:, 0].tolist()),
            array("q", columns.used[:, 1].tolist()),
            array("q", columns.used[:, 2].tolist()),
            array("q", (columns.gpu_count * 1000 - columns.gpus.sum(axis=1)).tolist()),
            *(*found, *shared),
        )
        return made, {
            "assignable_cpus": sum(found[0]),
            "stranded_cpus": sum(found[1]),
            "expected_stranded_cpus_x_pods": sum(found[2]),
            "blind_stranded_cpus_x_pods": sum(found[3]),
            "holes": sum(found[5]),
            "overloaded_nodes": shared.overload_count,
        }


class FragmentNotes:
    """FGD's fragmentation of all nodes at each sample. A sample only copies what is left of the nodes that changed;
    their fragmentation is computed for many samples at once."""

    def __init__(self, queue: PodQueue) -> None:
        self._queue = queue
        self._seen = queue.live.columns.log.position
        self._nodes: list[Ints] = [np.arange(queue.live.columns.count, dtype=np.int64)]
        self._left: list[tuple[Ints, Ints]] = [self._read(self._nodes[0])]

    def _read(self, nodes: Ints) -> tuple[Ints, Ints]:
        """Return free millicores, and free milli of each GPU, of some nodes."""
        columns = self._queue.live.columns
        loads = columns.load[nodes]
        return columns.loads.room[loads, 1] - columns.loads.used[loads, 1], columns.loads.gpus[loads]

    def sample(self) -> None:
        """Note the nodes that changed since the last sample."""
        log = self._queue.live.columns.log
        changed = log.since(self._seen)
        nodes = self._nodes[0] if isinstance(changed, slice) else np.unique(changed)
        self._seen = log.position
        self._nodes.append(nodes)
        self._left.append(self._read(nodes))

    def series(self) -> array[int]:
        """Return the fragmentation at each sample, in milli-GPUs times pods."""
        queue = self._queue
        nodes = np.concatenate(self._nodes)
        cpus, gpus = (np.concatenate(column) for column in zip(*self._left, strict=True))
        amounts: list[int] = []
        for at in range(0, len(nodes), _AT_ONCE):
            some = slice(at, at + _AT_ONCE)
            found = queue.fragmentation.amounts(cpus[some], gpus[some], queue.models[nodes[some]])
            amounts += found.tolist()
        # Only differences are added up: a sample holds the nodes that changed, and the total carries the others.
        each, now, total, place = [0] * queue.live.columns.count, array("q"), 0, 0
        for changed in self._nodes:
            for node in changed.tolist():
                total += amounts[place] - each[node]
                each[node] = amounts[place]
                place += 1
            now.append(total)
        return now[1:]


def _quantile(ordered: Ints, percent: int) -> int:
    """Return the least value that is not exceeded by `percent` percent of the ascending values, `NEVER` for no
    values."""
    return int(ordered[-(-len(ordered) * percent // 100) - 1]) if len(ordered) else NEVER


class SharedPools(NamedTuple):
    """By node, in `array('q')`: millicores requested of the pool, and CPUs in it."""

    asked_milli: array[int]
    cpus: array[int]

    @property
    def overload_count(self) -> int:
        """Number of nodes with more requested than the pool has."""
        return sum(asked > 1000 * cpus for asked, cpus in zip(self.asked_milli, self.cpus, strict=True))


def measure_shared_pools(live: LiveNodes) -> SharedPools:
    """Return the shared pools of all nodes as they are now."""
    asked, sizes = array("q"), array("q")
    for node, booked in enumerate(live.columns.used[:, 1].tolist()):
        kind, state = live.kinds[node], live.states[node]
        rules = live.fleet.classes[kind].rules.cpu
        # Without a static policy no pod owns CPUs, and all pods share all CPUs of the node.
        pool = state.cpus.bit_count() if rules.static else rules.topology.all_cpus.bit_count()
        # CPUs that left the initial pool are owned; each of them carries 1000 of the booked millicores.
        owned = (live.classes[kind].start.cpus & ~state.cpus).bit_count() if rules.static else 0
        asked.append(max(0, booked - 1000 * owned))
        sizes.append(pool)
    return SharedPools(asked, sizes)
