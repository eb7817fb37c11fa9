"""Fixes in the pod: the smallest reduction of each amount, whole numbers and cores, sharing instead of owning.

Every value is tried by an admission. CPU counts are tried one by one downwards, because alignment makes admission jump
up and down with the count. Amounts of memory are tried at the sizes where a set of NUMA nodes is full, then by
bisection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from podslice.advise.explain.fixes.alternatives import Alternatives
from podslice.advise.explain.fixes.annotations import other_classes, without_annotations
from podslice.advise.explain.fixes.changes import EditPod
from podslice.advise.explain.fixes.edits import (
    POD,
    differences,
    is_covered,
    is_valid,
    places,
    request_of,
    with_amounts,
    with_resources,
    without_limit,
    without_resources,
)
from podslice.advise.explain.fixes.fix import COSTS, Edit, Fix, shrink_cost, text_of
from podslice.advise.explain.fixes.raises import Raises
from podslice.api.pod.demand import HUGEPAGES_PREFIX, aggregate, requests_of
from podslice.api.pod.eligibility import integral_cpus
from podslice.api.pod.spec import Pod, ResourceList, ResourceRequirements
from podslice.config.annotations import annotation_problems
from podslice.values.quantity import BINARY_SI, ZERO, Quantity

_MI = 1 << 20
_SMALL_MEMORY = 64 << 20
_MOST_TOTALS = 4096
_MOST_SIZES = 400
_MOST_WORK = 1500
"""Bound of the places that are edited times the places of the pod."""
Amounts = dict[tuple[str, str], Quantity | None]


class PodFixes:
    """Searches edits of one refused pod on one node."""

    def __init__(self, nodes: Alternatives, pod: Pod) -> None:
        self.node = nodes.view
        self.pod = pod
        self._nodes = nodes
        self._places = places(pod)
        admission = self.node.admission(pod)
        self._owners = {one.name for one in admission.containers if one.exclusive_cpus} - {POD}
        self._lack = nodes.lack(nodes.needs(pod))
        self._raises = Raises(nodes, pod, self._works)
        self.wrong_annotations: set[str] = set()
        if self.node.policy.annotations.invalid == "refuse":
            self.wrong_annotations = {one.key for one in annotation_problems(self.node.policy, pod)}

    def find(self) -> list[Fix]:
        """Return at most one fix per place, resource and class."""
        return list(self.each())

    def each(self) -> Iterator[Fix]:
        """Yield at most one fix per place, resource and class."""
        if self.wrong_annotations:
            yield from without_annotations(self.pod, self.wrong_annotations, self._works)
            return
        # A bound for all containers that binds only one of them is the change of that one.
        alone: set[tuple[Edit, ...]] = set()
        smaller = False
        for fix in chain(self._in_places(self._fixes_for), self._raises.of_inits()):
            alone.add(fix.edits)
            smaller = smaller or fix.code == "shrink"
            yield fix
        for fix in self._shrink_together():
            smaller = True
            if fix.edits not in alone:
                yield fix
        yield from other_classes(self.node, self.pod, self._works)
        # Smaller CPUs and memory together are worth a search only where neither alone helps.
        if not smaller:
            yield from self._in_places(self._shrink_both)

    def _in_places(self, search: Callable[[str, ResourceRequirements], Iterator[Fix]]) -> Iterator[Fix]:
        for place, resources in self._places_to_edit():
            yield from search(place, resources)

    def _places_to_edit(self) -> list[tuple[str, ResourceRequirements]]:
        """Return the places that are edited: all, or in a pod with very many the first of each kind, up to a number
        that keeps the work in proportion to the pod. Each trial looks at all places."""
        most = max(1, _MOST_WORK // len(self._places)) if self._places else 0
        if len(self._places) <= most:
            return self._places
        kinds: dict[str, tuple[str, ResourceRequirements]] = {}
        for place, resources in self._places:
            kinds.setdefault(repr(resources), (place, resources))
        return list(kinds.values())[:most]

    def _fixes_for(self, place: str, resources: ResourceRequirements) -> Iterator[Fix]:
        for name, quantity in (resources.requests or {}).items():
            if quantity.is_zero():
                continue
            if name == "cpu":
                yield from self._cpu_fixes(place, quantity)
            elif self._lack.is_of_cpus:
                continue
            elif name == "memory" or name.startswith(HUGEPAGES_PREFIX):
                yield from self._shrink(place, name, quantity, self._smaller_sizes(place, name, quantity.value()))
                yield from self._raises.of_amounts(place, name, quantity)
            else:
                counts = range(quantity.value() - 1, -1, -1)
                yield from self._shrink(place, name, quantity, (Quantity.of(n) if n else None for n in counts))
                yield from self._raises.of_amounts(place, name, quantity)
        yield from self._share(place, resources)

    # Trying

    def _works(self, pod: Pod) -> bool:
        # The cheapest check first: useless edits fail it most, and the API server's validation is the costliest.
        return is_covered(pod) and self._nodes.here.admits(self._nodes.needs(pod)) and is_valid(pod, self.node.gates)

    def _may_own(self, place: str, count: int) -> bool:
        """Whether the sums leave so many CPUs for a container. What is placed as a whole is left to the trial."""
        alone = place in self._owners and (len(self._places) == 1 or not self.node.aligns_pods)
        return not alone or self._nodes.here.may_own(count)

    def _may_help(self, least: Amounts) -> bool:
        """Whether the sums leave room for the pod with the least amounts that are tried; they do not tell for a pod
        that the node has already."""
        needs = self._nodes.needs(with_amounts(self.pod, least))
        return not self._nodes.here.is_too_small(needs)

    def _first_that_works(self, amounts: Iterable[Amounts]) -> Amounts | None:
        return next((these for these in amounts if self._works(with_amounts(self.pod, these))), None)

    def _fix(self, code: str, words: str, amounts: Amounts, cost: float) -> Fix:
        return self._edit_fix(code, words, with_amounts(self.pod, amounts), cost)

    def _edit_fix(self, code: str, words: str, pod: Pod, cost: float) -> Fix:
        return Fix(code, words, round(cost, 3), EditPod(pod), differences(self.pod, pod))

    def _place_name(self, place: str) -> str:
        return "the pod as a whole" if place == POD else f"container {place}"

    def _shrink_text(self, place: str, name: str, before: Quantity, after: Quantity | None) -> str:
        if after is None:
            return f"Leave out {name} of {self._place_name(place)}"
        what = "CPUs" if name == "cpu" else name
        return f"Ask for {text_of(after)} instead of {text_of(before)} {what} in {self._place_name(place)}"

    # Smaller amounts

    def _shrink(self, place: str, name: str, before: Quantity, values: Iterable[Quantity | None]) -> Iterator[Fix]:
        found = self._first_that_works({(place, name): value} for value in values)
        if found is not None:
            after = found[place, name]
            lost = 1 - (after.nano if after else 0) / before.nano
            yield self._fix("shrink", self._shrink_text(place, name, before, after), found, shrink_cost("shrink", lost))

    def _cpu_fixes(self, place: str, quantity: Quantity) -> Iterator[Fix]:
        count = integral_cpus(quantity)
        if count:
            counts = (n for n in range(count - 1, 0, -1) if self._may_own(place, n))
            # A pod that is placed as a whole may fit on more NUMA nodes with more CPUs, but not with fewer.
            if self.node.aligns_pods or self._may_help({(place, "cpu"): Quantity.of(1)}):
                yield from self._shrink(place, "cpu", quantity, map(Quantity.of, counts))
            yield from self._raises.of_cpus(place, quantity, count)
            # A little less than whole CPUs: the container shares, so that none have to be found for it alone.
            fraction: Amounts = {(place, "cpu"): Quantity.milli(count * 1000 - 100)}
            if place != POD and self._works(with_amounts(self.pod, fraction)):
                words = f"Ask for {count * 1000 - 100}m CPUs in {self._place_name(place)}: with a fraction it shares"
                yield self._fix("fraction", words, fraction, COSTS["fraction"])
            return
        milli = quantity.milli_value()
        # Rounded up first: the container asked for no less.
        whole = [n for n in (-(-milli // 1000), milli // 1000) if n]
        rounded = self._first_that_works({(place, "cpu"): Quantity.of(n)} for n in whole)
        if rounded is not None:
            words = f"Ask for a whole number of CPUs, {text_of(rounded[place, 'cpu'])}, in {self._place_name(place)}"
            yield self._fix("whole-number", words, rounded, COSTS["whole-number"])
        lowest = max(1, self._least(place, "cpu").milli_value())
        best = self._bisect(lowest, milli, lambda n: {(place, "cpu"): Quantity.milli(n)})
        if best:
            yield from self._shrink(place, "cpu", quantity, [Quantity.milli(best)])

    def _smaller_sizes(self, place: str, name: str, before: int) -> Iterator[Quantity | None]:
        """Yield the largest smaller size of memory or huge pages that works, as far as the search finds it; for huge
        pages then None, which removes them.

        Sizes at which a set of NUMA nodes is exactly full are tried from the largest down; above the first that works,
        and where none does, bisection looks for a larger one.
        """
        unit = _MI
        if name.startswith(HUGEPAGES_PREFIX):
            unit = Quantity.parse(name.removeprefix(HUGEPAGES_PREFIX)).value()

        def of(steps: int) -> Amounts:
            return {(place, name): Quantity.of(steps * unit, BINARY_SI)}

        below, above = max(1, -(-self._least(place, name).value() // unit)), -(-before // unit)
        may_help = self._may_help(of(below))
        # Under alignment a larger size may be admitted where a smaller one is not, so bisection alone would miss sizes
        # that fill a set.
        full = self._full_sizes(place, name) if may_help else ()
        sizes = sorted({size // unit * unit for size in full if 0 < size < before}, reverse=True)
        for size in sizes[:_MOST_SIZES]:
            if size and self._works(with_amounts(self.pod, of(size // unit))):
                below = size // unit
                break
            # Sizes fall, so the next size that works lies below this one that does not.
            above = max(below + 1, size // unit) if size else above
        else:
            above = -(-before // unit)
        # Between the largest full size that works and the next, a larger size may still do.
        steps = (self._bisect(below, above, of) or (below if below < above else 0)) if may_help else 0
        if steps:
            yield Quantity.of(steps * unit, BINARY_SI)
        if name != "memory":
            yield None

    def _full_sizes(self, place: str, name: str) -> Iterator[int]:
        """Return sizes at which a set of NUMA nodes is exactly full, alone or beside the pod's other containers."""
        tables = [(state.memory_map or {}).get(name) for _, state in sorted(self.node.memory.items())]
        amounts = {
            *_subset_sums(table.free if table else 0 for table in tables),
            *_subset_sums(table.allocatable if table else 0 for table in tables),
            *self._room_on_node(name),
        }
        others = [
            quantity.value()
            for other, resources in self._places
            if other not in (place, POD) and (quantity := request_of(resources, name)) is not None
        ]
        beside = {0, sum(others), *others}
        before = 0
        for other in others:
            before += other
            # Containers are placed in order: those before, or those after this one, may share its nodes.
            beside |= {before, sum(others) - before}
        return (size - used for size in amounts for used in beside)

    def _room_on_node(self, name: str) -> Iterator[int]:
        """Yield how much all running pods together leave of what the node has for pods."""
        if not self.node.predicates:
            return
        room = self._nodes.room(self.pod, name)
        yield room
        yield room - (self.pod.spec.overhead or {}).get(name, ZERO).value()

    def _bisect(self, lowest: int, before: int, make: Callable[[int], Amounts]) -> int:
        """Return the largest value below `before` that works if smaller always works better; 0 if `lowest` does not."""
        if before <= lowest or not self._works(with_amounts(self.pod, make(lowest))):
            return 0
        low, high = lowest, before
        while high - low > 1:
            middle = (low + high) // 2
            if self._works(with_amounts(self.pod, make(middle))):
                low = middle
            else:
                high = middle
        return low

    def _least(self, place: str, name: str) -> Quantity:
        """Return the least that a place must request: a pod as a whole for the sum of its containers."""
        own = {} if place != POD else aggregate(self.pod, lambda container: requests_of(container.resources))
        return own.get(name, ZERO)

    # Several amounts at once

    def _shrink_together(self) -> Iterator[Fix]:
        """Cap all containers at the same count, or shrink a container together with its pod."""
        owners = {
            place: integral_cpus(cpu)
            for place, resources in self._places
            if place != POD and (cpu := request_of(resources, "cpu")) is not None and integral_cpus(cpu)
        }
        total = sum(owners.values())
        budget = next((integral_cpus(request_of(r, "cpu")) for place, r in self._places if place == POD), 0)
        if len(owners) > 1 and not budget:
            found = self._first_that_works(
                {(place, "cpu"): Quantity.of(min(count, most)) for place, count in owners.items()}
                for most in range(max(owners.values()) - 1, 0, -1)
                if all(self._may_own(place, min(count, most)) for place, count in owners.items())
            )
            if found is not None:
                left = sum(quantity.value() for quantity in found.values() if quantity is not None)
                most = max(quantity.value() for quantity in found.values() if quantity is not None)
                words = f"Ask for at most {most} CPUs in every container"
                yield self._fix("shrink-together", words, found, shrink_cost("shrink-together", 1 - left / total))
        if budget:
            for place, count in owners.items():
                yield from self._shrink_with_budget(place, count, budget)

    def _shrink_with_budget(self, place: str, count: int, budget: int) -> Iterator[Fix]:
        found = self._first_that_works(
            {(place, "cpu"): Quantity.of(count - less), (POD, "cpu"): Quantity.of(budget - less)}
            for less in range(1, min(count, budget))
        )
        if found is not None:
            own, whole = found[place, "cpu"], found[POD, "cpu"]
            words = f"Ask for {text_of(own)} CPUs in container {place} and {text_of(whole)} in the pod as a whole"
            lost = 1 - (whole.value() if whole else 0) / budget
            yield self._fix("shrink-together", words, found, shrink_cost("shrink-together", lost))

    def _shrink_both(self, place: str, resources: ResourceRequirements) -> Iterator[Fix]:
        """Shrink CPUs and memory of one place by the same share."""
        cpu, memory = request_of(resources, "cpu"), request_of(resources, "memory")
        count = integral_cpus(cpu)
        if memory is None or cpu is None or not count:
            return
        found = self._first_that_works(
            {
                (place, "cpu"): Quantity.of(n),
                (place, "memory"): Quantity.of(max(_MI, memory.value() * n // count // _MI * _MI), BINARY_SI),
            }
            for n in range(count - 1, 0, -1)
        )
        if found is not None:
            after, size = found[place, "cpu"], found[place, "memory"]
            words = f"Ask for {text_of(after)} CPUs and {text_of(size)} memory in {self._place_name(place)}"
            lost = 1 - (after.value() if after else 0) / count
            yield self._fix("shrink-both", words, found, shrink_cost("shrink-both", lost))

    # Sharing instead of owning

    def _share(self, place: str, resources: ResourceRequirements) -> Iterator[Fix]:
        # The request stays, so that it does not help where the node has too little for all requests.
        if (resources.limits or {}).get("cpu") is not None and not self._lack.lacks_requests:
            pod = without_limit(self.pod, place, "cpu")
            if self._works(pod):
                words = (
                    f"Leave out the CPU limit of {self._place_name(place)}: the pod becomes Burstable and shares CPUs"
                )
                yield self._edit_fix("share", words, pod, COSTS["share"])
        managed = self.pod.spec.resources is not None
        if managed and place != POD and not (resources.requests or resources.limits):
            yield from self._add_resources(place)
        if managed and (resources.requests or resources.limits):
            pod = without_resources(self.pod, place)
            if self._works(pod):
                what = "spec.resources" if place == POD else f"the resources of {self._place_name(place)}"
                why = "" if place == POD else ": it shares the pod's"
                yield self._edit_fix("drop-resources", f"Leave out {what}{why}", pod, COSTS["drop-resources"])

    def _add_resources(self, place: str) -> Iterator[Fix]:
        """Give amounts of its own to a container that shares its pod's: a small share, or one CPU."""
        # A small share keeps the container sharing; one whole CPU makes it an owner beside its pod's pool.
        for cpu in (Quantity.milli(100), Quantity.of(1)):
            own: ResourceList = {"cpu": cpu, "memory": Quantity.of(_SMALL_MEMORY, BINARY_SI)}
            pod = with_resources(self.pod, place, ResourceRequirements(requests=own, limits=own))
            if self._works(pod):
                words = f"Give container {place} {text_of(cpu)} CPU and {text_of(own['memory'])} memory of its own"
                yield self._edit_fix("add-resources", words, pod, COSTS["add-resources"])
                return


def _subset_sums(amounts: Iterable[int]) -> set[int]:
    """Return the totals of all sets of NUMA nodes; on machines with very many different ones the largest totals."""
    totals = {0}
    for size in amounts:
        totals |= {total + size for total in totals}
        if len(totals) > _MOST_TOTALS:
            totals = set(sorted(totals)[-_MOST_TOTALS:])
    return totals
