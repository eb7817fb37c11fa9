"""Metrics of containers with exclusive CPUs, sampled at the interval of the policy's guards."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping

from podslice.agent.owner import Owner
from podslice.config.policy import InterferenceGuards
from podslice.guards.holders import holders
from podslice.host.kernel.cgroup2 import cgroup_path
from podslice.isolation.cache_counters import counting_groups
from podslice.isolation.counters import (
    GAUGES,
    GRADE,
    HELP,
    PREFIX,
    Key,
    NodeSample,
    OwnedSample,
    Who,
    add_sample,
    grades,
    sum_counters,
)
from podslice.isolation.kernel_facts import IsolationSources
from podslice.isolation.samples import read_cpus, read_owned
from podslice.values.cpuset import Bits
from podslice.values.series import Labels, labels_text

_NO_GUARDS_SECONDS = 30.0


class IsolationMetrics:
    """Samples the kernel while the policy's guards have metrics on.

    `threads` False: the processes in `/proc` are not those of the node.
    """

    def __init__(
        self,
        owner: Owner,
        sources: IsolationSources,
        *,
        threads: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._owner = owner
        self._threads = threads
        self._sources = sources
        self._clock = clock
        self._last: NodeSample | None = None
        self._series: dict[Who, dict[Key, float]] = {}
        self._grades: dict[Who, int] = {}

    async def run(self) -> None:
        """Sample for ever."""
        while True:
            await self.sample()
            rules = self._rules()
            await asyncio.sleep(_NO_GUARDS_SECONDS if rules is None else rules.sample_seconds)

    async def sample(self) -> None:
        """Take a sample; the agent's other work goes on in between."""
        rules = self._rules()
        owned = list(self._owned()) if rules is not None and rules.metrics != "off" else []
        if not owned:
            # Without a last sample the next one only begins: differences over a gap would be charged to no one.
            self._last, self._series, self._grades = None, {}, {}
            return
        # Reading /proc/interrupts takes milliseconds on a machine with hundreds of CPUs, hence a thread.
        cpus = await asyncio.to_thread(read_cpus, self._sources.proc)
        counting = counting_groups(self._sources.sys)
        containers: dict[Who, OwnedSample] = {}
        for who, path, bits in owned:
            containers[who] = read_owned(path, bits, self._sources, threads=self._threads, counting=counting.get(bits))
            await asyncio.sleep(0)
        now = NodeSample(self._clock(), containers, cpus.busy, cpus.stolen, cpus.interrupts)
        self._series = add_sample(self._series, self._last, now)
        self._grades = grades(self._last, now) if self._last is not None else {}
        self._last = now

    def text(self) -> str:
        """Return the metrics of the last samples in Prometheus' text format."""
        rules = self._rules()
        if rules is None or rules.metrics == "off" or not self._series:
            return ""
        by_name: dict[str, dict[Labels, float]] = {}
        if rules.metrics == "totals":
            for (name, labels), value in sum_counters(self._series).items():
                by_name.setdefault(name, {})[labels] = value
            return "".join(_family(f"{PREFIX}{name}", name, values) for name, values in by_name.items())
        for who, series in self._series.items():
            for (name, labels), value in series.items():
                by_name.setdefault(name, {})[(*_labels(who), *labels)] = value
        texts = [_family(f"{PREFIX}{name}", name, values) for name, values in by_name.items()]
        graded = {_labels(who): float(grade) for who, grade in self._grades.items()}
        return "".join([*texts, _family(GRADE, GRADE, graded) if graded else ""])

    def _rules(self) -> InterferenceGuards | None:
        node = self._owner.node
        return None if node is None else node.view.policy.guards

    def _owned(self) -> Iterator[tuple[Who, str, Bits]]:
        """Yield the containers with exclusive CPUs, their cgroups and CPUs."""
        node = self._owner.node
        if node is None:
            return
        by_container = {(one.uid, one.container): one.cpus for one in holders(node.view) if one.container}
        for record in self._owner.containers.values():
            cpus, path = by_container.get((record.unit, record.member), 0), cgroup_path(record.cgroups_path)
            pod = self._owner.pods.get(record.pod_uid)
            if cpus and path is not None and record.started and pod is not None:
                yield (pod.identity.namespace, pod.identity.name, record.name), path, cpus


def _labels(who: Who) -> Labels:
    return (("namespace", who[0]), ("pod", who[1]), ("container", who[2]))


def _family(full: str, name: str, values: Mapping[Labels, float]) -> str:
    kind = "gauge" if name in GAUGES or name == GRADE else "counter"
    about = HELP.get(name, "Whether its CPUs were alone since the last sample: 0 pass, 1 warn, 2 fail, 3 unknown.")
    lines = [f"{full}{labels_text(labels)} {value}" for labels, value in sorted(values.items())]
    return "\n".join((f"# HELP {full} {about}", f"# TYPE {full} {kind}", *lines)) + "\n"
