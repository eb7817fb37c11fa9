"""Single decisions: CPUs picked on a machine, CPU hints, and merges of hints."""

from __future__ import annotations

from itertools import combinations
from random import Random

from tools.judge.chance import Json, cpu_list, often, pick
from tools.judge.kubelets import cpu_options
from tools.judge.machines import cpus_of, draw_free_cpus, draw_machine

_MOST_CHOICES = 60_000


def draw_take(r: Random, name: str) -> Json:
    """Draw a case that takes `n` CPUs of the free ones (`takeByTopology`)."""
    most_nodes = pick(r, (8, 8), (1, 12), (0.5, 16))
    machine = draw_machine(r, most_nodes=most_nodes, most_cpus=pick(r, (8, 64), (2, 160), (0.5, 512)), memory=False)
    for node in machine["nodes"]:
        node.pop("distances", None)
    free = draw_free_cpus(r, machine)
    wanted = pick(
        r,
        (8, r.randint(0, max(1, len(free)))),
        (1, len(free)),
        (0.5, len(free) + 1),
        (2, r.randint(0, min(8, len(free)))),
    )
    case = {"name": name, "type": "takeByTopology", "machine": machine, "available": cpu_list(free), "n": wanted}
    return case | _options(r)


def draw_hints(r: Random, name: str) -> Json:
    """Draw a case that asks for the CPU Manager's hints for `n` CPUs."""
    machine = draw_machine(r, most_nodes=pick(r, (3, 4), (3, 6), (3, 8), (0.3, 12)), memory=often(r, 0.3))
    everything = cpus_of(machine)
    reusable = r.sample(everything, min(len(everything), r.choice([0, 0, 0, 1, 2, 4])))
    free = draw_free_cpus(r, machine)
    if often(r, 0.3):
        free = [cpu for cpu in free if cpu not in reusable]
    case: Json = {
        "name": name,
        "type": "cpuHints",
        "machine": machine,
        "available": cpu_list(free),
        "reusable": cpu_list(reusable),
        "n": r.randint(0, max(1, len(everything))),
    }
    return case | _options(r)


def _options(r: Random) -> Json:
    options, gates = cpu_options(r, legal=True)
    return {key: value for key, value in (("options", options), ("featureGates", gates)) if value}


def draw_merge(r: Random, name: str) -> Json:
    """Draw a case that merges the hints of several providers under a policy."""
    count = pick(r, (1, 1), (4, 2), (2, 3), (4, 4), (1, 5), (1, 6), (1, 8))
    ids = list(range(count))
    if often(r, 0.3):
        ids = sorted(r.sample(range(pick(r, (3, count + 3), (1, 63))), count))
    if often(r, 0.1):
        r.shuffle(ids)
    options: Json = {}
    if often(r, 0.45):
        options["prefer-closest-numa-nodes"] = r.choice(["true", "true", "1", "false"])
    if often(r, 0.2):
        options["max-allowable-numa-nodes"] = str(r.choice([8, 9, 16]))
    case: Json = {
        "name": name,
        "type": "mergeHints",
        "numa": _distances(r, ids),
        "policy": r.choice(["best-effort", "best-effort", "restricted", "restricted", "single-numa-node"]),
        "providers": _Providers(r, ids).draw(),
    }
    return case | ({"options": options} if options else {})


def _distances(r: Random, ids: list[int]) -> list[Json]:
    """Draw distances indexed by NUMA id, or by position as the kernel writes them. A list by position is too short for
    machines whose ids have gaps, which upstream indexes by id all the same."""
    by_id = not often(r, 0.3)
    places = range(max(ids) + 1) if by_id else range(len(ids))
    return [
        {
            "id": node,
            "distances": [
                10 if place == (node if by_id else ids.index(node)) else r.choice([11, 12, 20, 20, 21])
                for place in places
            ],
        }
        for node in ids
    ]


class _Providers:
    """Hints of several providers, no more than upstream can combine in a moment."""

    def __init__(self, r: Random, ids: list[int]) -> None:
        self._r = r
        self._ids = sorted(ids)
        self._masks = [list(mask) for size in range(1, len(ids) + 1) for mask in combinations(self._ids, size)]
        self._choices = 1

    def draw(self) -> list[Json | None]:
        r = self._r
        few = len(self._ids) <= 4
        number = pick(r, (1, 1), (4, 2), (4, 3), (1, 4), (0.5, 5)) if few else r.choice([1, 2])
        return [self._provider(i) for i in range(number)]

    def _provider(self, number: int) -> Json | None:
        r = self._r
        kind = pick(r, (8, "absent"), (5, "empty"), (87, "hints"))
        if kind != "hints":
            return None if kind == "absent" else {}
        return {f"r{number}{i}": self._resource() for i in range(pick(r, (6, 1), (2, 2), (1, 3)))}

    def _resource(self) -> list[Json] | None:
        r = self._r
        kind = pick(r, (6, "any"), (4, "none"), (90, "hints"))
        if kind != "hints":
            return None if kind == "any" else []
        hints = self._hints()
        if often(r, 0.1):
            r.shuffle(hints)
        while hints and self._choices * len(hints) > _MOST_CHOICES:
            hints.pop(r.randrange(len(hints)))
        self._choices *= max(1, len(hints))
        return hints

    def _hints(self) -> list[Json]:
        r = self._r
        style = pick(r, (40, "rule"), (35, "any"), (10, "unwanted"), (15, "odd"))
        if style == "rule":
            least = min(r.choice([1, 1, 2, 3]), len(self._ids))
            chosen = [mask for mask in self._masks if len(mask) >= least and often(r, 0.85)]
            return [{"mask": mask, "preferred": len(mask) == least} for mask in chosen]
        if style == "any":
            share = r.choice([0.2, 0.5, 0.9])
            return [{"mask": mask, "preferred": often(r, 0.35)} for mask in self._masks if often(r, share)]
        if style == "unwanted":
            return [{"mask": mask, "preferred": False} for mask in self._masks if often(r, 0.6)]
        elsewhere = [self._ids[-1] + 1 if self._ids[-1] < 62 else 3]
        odd = [*self._masks, None, [], self._ids, elsewhere]
        return [{"mask": r.choice(odd), "preferred": often(r, 0.5)} for _ in range(r.randint(1, 5))]
