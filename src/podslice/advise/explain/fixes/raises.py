"""Fixes that ask for more: whole cores, more NUMA nodes than fit now, an init container whose CPUs are reused.

A kubelet prefers the fewest NUMA nodes that could hold an amount even when empty. An amount just beyond what so many
nodes have makes it prefer more of them, so that a larger request may be admitted where a smaller one is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate, islice

from podslice.advise.explain.fixes.alternatives import Alternatives
from podslice.advise.explain.fixes.changes import EditPod
from podslice.advise.explain.fixes.edits import POD, differences, places, request_of, with_amounts
from podslice.advise.explain.fixes.fix import COSTS, Fix, text_of
from podslice.api.pod.demand import HUGEPAGES_PREFIX
from podslice.api.pod.eligibility import integral_cpus
from podslice.api.pod.spec import Pod
from podslice.config.policy_options import NONE, SINGLE_NUMA_NODE
from podslice.values.quantity import BINARY_SI, Quantity

_MI = 1 << 20
_BUDGET_STEPS = 16
_MOST_COUNTS = 128
"""Most counts that are tried for an init container."""
Amounts = dict[tuple[str, str], Quantity | None]


class Raises:
    """Searches larger requests of one refused pod. `works` tries an edited pod."""

    def __init__(self, nodes: Alternatives, pod: Pod, works: Callable[[Pod], bool]) -> None:
        self._nodes = nodes
        self._node = nodes.view
        self._pod = pod
        self._works = works
        self._inits = {one.name for one in pod.spec.init_containers if one.restart_policy != "Always"}
        self._places = places(pod)

    def of_cpus(self, place: str, quantity: Quantity, count: int) -> Iterator[Fix]:
        """Yield the least larger number of CPUs of one place that is admitted."""
        if place == POD:
            # The pod's own CPUs, of which its exclusive containers leave its other containers too few.
            yield from self._first("raise-budget", place, "cpu", quantity, self._budgets(count), 1)
            return
        per_core = self._node.topology.cpus_per_core
        if self._node.cpu_options.full_pcpus_only and count % per_core:
            fuller = count + per_core - count % per_core
            because = f"{fuller} CPUs fill whole cores, as full-pcpus-only demands; {count} do not"
            found = list(self._first("whole-cores", place, "cpu", quantity, [fuller], 1, because))
            if found:
                yield from found
                return
        yield from self._wider(place, "cpu", quantity, self._node.sums, 1, per_core)

    def of_amounts(self, place: str, name: str, quantity: Quantity) -> Iterator[Fix]:
        """Yield the least larger amount of memory, huge pages or devices of one container that is admitted because the
        kubelet then prefers more NUMA nodes."""
        if place == POD or place in self._inits:
            return
        if name == "memory" or name.startswith(HUGEPAGES_PREFIX):
            if not self._node.binds_memory:
                return
            unit = _MI if name == "memory" else Quantity.parse(name.removeprefix(HUGEPAGES_PREFIX)).value()
            tables = [(state.memory_map or {}).get(name) for state in self._node.memory.values()]
            sizes = [0 if table is None else table.allocatable for table in tables]
            yield from self._wider(place, name, quantity, _largest_sums(sizes), unit, 1)
        else:
            sizes = self._devices_by_node(name)
            yield from self._wider(place, name, quantity, _largest_sums(sizes), 1, 1)

    def _devices_by_node(self, name: str) -> list[int]:
        counts: dict[int, int] = {}
        for resource in self._node.devices.resources:
            for device in resource.devices if resource.resource == name else ():
                for numa in device.numa or ():
                    counts[numa] = counts.get(numa, 0) + 1
        return list(counts.values())

    def _budgets(self, count: int) -> range:
        return range(count + 1, count + _BUDGET_STEPS + 1)

    def _wider(
        self, place: str, name: str, before: Quantity, most: Sequence[int], unit: int, steps: int
    ) -> Iterator[Fix]:
        """Yield the least amount that is admitted because the kubelet prefers more NUMA nodes for it."""
        # With one NUMA node at most, or any, the preferred number of nodes decides nothing.
        if self._node.config.topology_manager_policy in (NONE, SINGLE_NUMA_NODE):
            return
        amount = before.value()
        # A pod that is placed as a whole counts all its containers together.
        beside = self._beside(place, name) if self._node.aligns_pods else 0
        for full in most[:-1]:
            first = (full - beside) // unit * unit + unit
            if first <= amount or first + beside > most[-1]:
                continue
            for value in (first + step * unit for step in range(max(1, steps))):
                if name == "cpu" and not self._node.aligns_pods and not self._nodes.here.may_own(value):
                    continue
                pod = self._with(place, name, value)
                if self._works(pod):
                    because = _wider_text(name, most, amount + beside, value + beside)
                    yield self._fix("raise", place, name, before, pod, value, because)
                    return

    def _beside(self, place: str, name: str) -> int:
        """Return what the pod's other containers add to this one: of CPUs those that are exclusive."""
        others = [r for other, r in self._places if other not in (place, POD) and other not in self._inits]
        found = [quantity for r in others if (quantity := request_of(r, name)) is not None]
        return sum(integral_cpus(quantity) if name == "cpu" else quantity.value() for quantity in found)

    def _first(
        self, code: str, place: str, name: str, before: Quantity, values: Iterable[int], unit: int, because: str = ""
    ) -> Iterator[Fix]:
        for value in values:
            pod = self._with(place, name, value * unit)
            if self._works(pod):
                yield self._fix(code, place, name, before, pod, value * unit, because)
                return

    def _with(self, place: str, name: str, value: int) -> Pod:
        quantity = Quantity.of(value) if not _in_bytes(name) else Quantity.of(value, BINARY_SI)
        return with_amounts(self._pod, {(place, name): quantity})

    def _fix(self, code: str, place: str, name: str, before: Quantity, pod: Pod, value: int, because: str) -> Fix:
        after = Quantity.of(value, BINARY_SI) if _in_bytes(name) else Quantity.of(value)
        what = "CPUs" if name == "cpu" else name
        where = "the pod as a whole" if place == POD else f"container {place}"
        words = f"Ask for {text_of(after)} instead of {text_of(before)} {what} in {where}"
        return Fix(code, words, COSTS[code], EditPod(pod), differences(self._pod, pod), because=because)

    # Init containers

    def of_inits(self) -> Iterator[Fix]:
        """Yield the least CPUs of an init container with which the containers after it get its CPUs."""
        for init in (place for place, _ in self._places if place in self._inits):
            yield from self._reused(init)

    def _reused(self, init: str) -> Iterator[Fix]:
        resources = dict(self._places)[init]
        cpu = request_of(resources, "cpu")
        if cpu is None or (resources.limits or {}).get("cpu") != cpu:
            return
        most = self._node.allocatable_cpus.bit_count()
        # What is placed as a whole is left to the trial.
        whole, may_own = self._node.aligns_pods, self._nodes.here.may_own
        counts = (n for n in range(cpu.milli_value() // 1000 + 1, most + 1) if whole or may_own(n))
        for count in islice(counts, _MOST_COUNTS):
            pod = with_amounts(self._pod, {(init, "cpu"): Quantity.of(count)})
            if self._works(pod):
                users = self._users(pod, init)
                because = f"{_names(users)} then {'get' if len(users) > 1 else 'gets'} its CPUs" if users else ""
                words = f"Ask for {count} instead of {text_of(cpu)} CPUs in init container {init}"
                edits = differences(self._pod, pod)
                yield Fix("reuse-init", words, COSTS["reuse-init"], EditPod(pod), edits, because=because)
                return

    def _users(self, pod: Pod, init: str) -> list[str]:
        """Return the containers that get CPUs of an init container."""
        copy = self._nodes.node.copy()
        copy.try_run(pod)
        owned = copy.view.owners.get(pod.metadata.uid, {})
        return [name for name, cpus in owned.items() if name not in self._inits and cpus & owned.get(init, 0)]


def _largest_sums(sizes: Iterable[int]) -> list[int]:
    """Return what one NUMA node has at most, two have at most, and so on."""
    return list(accumulate(sorted(sizes, reverse=True)))


def _in_bytes(name: str) -> bool:
    return name == "memory" or name.startswith(HUGEPAGES_PREFIX)


def _wider_text(name: str, most: Sequence[int], before: int, after: int) -> str:
    """Return how many NUMA nodes two amounts need; `most` is what so many nodes have at most, from one on."""
    narrow, wide = (next(width for width, full in enumerate(most, 1) if full >= size) for size in (before, after))
    return (
        f"{_amount(name, after)} need {wide} NUMA nodes even on an empty node, so the kubelet takes {wide}; "
        f"for {_amount(name, before)} it takes only {narrow}"
    )


def _amount(name: str, value: int) -> str:
    if name == "cpu":
        return f"{value} CPUs"
    return f"{Quantity.of(value, BINARY_SI).canonical() if _in_bytes(name) else value} {name}"


def _names(names: list[str]) -> str:
    return f"container {names[0]}" if len(names) == 1 else f"containers {', '.join(names)}"
