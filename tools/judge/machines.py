"""Random machines, regular and odd, with every feature for which upstream's code has a special case."""

from __future__ import annotations

from random import Random

from tools.judge.chance import GIB, Json, cpu_list, often, pick

PAGE_NAMES = {2048: "hugepages-2Mi", 1048576: "hugepages-1Gi"}


def draw_machine(r: Random, *, most_nodes: int = 8, most_cpus: int = 96, memory: bool = True) -> Json:
    """Draw a machine of at most `most_nodes` NUMA nodes and `most_cpus` CPUs (or one core for each node)."""
    sockets, per_socket = _packages(r, most_nodes)
    nodes = _processors(r, sockets, per_socket, most_cpus)
    _make_uneven(r, nodes, sockets)
    if memory:
        _add_memory(r, nodes, most_nodes)
    _renumber(r, nodes)
    _add_distances(r, nodes, per_socket)
    if often(r, 0.08):
        r.shuffle(nodes)
    machine: Json = {"nodes": nodes}
    if often(r, 0.02):
        machine["numSockets"] = sockets + 1
    return machine


def cpus_of(machine: Json) -> list[int]:
    """Return all CPU ids in the order of the machine."""
    return [cpu for node in machine["nodes"] for core in node.get("cores", ()) for cpu in core["threads"]]


def page_sizes(machine: Json) -> list[int]:
    """Return the huge page sizes, in KiB, that any NUMA node has."""
    return sorted({pool["pageSizeKi"] for node in machine["nodes"] for pool in node.get("hugepages", ())})


def _packages(r: Random, most_nodes: int) -> tuple[int, int]:
    sockets = pick(r, (3, 1), (5, 2), (1, 3), (1.5, 4), (0.3, 8))
    per_socket = pick(r, (5, 1), (4, 2), (1.2, 3), (1.5, 4), (0.3, 8))
    if most_nodes > 8 and often(r, 0.6):
        sockets, per_socket = pick(r, (2, (2, 8)), (2, (4, 4)), (1, (8, 2)), (1, (3, 4)), (1, (2, 6)), (1, (1, 10)))
    while sockets * per_socket > most_nodes:
        if per_socket > 1:
            per_socket -= 1
        else:
            sockets -= 1
    return sockets, per_socket


def _processors(r: Random, sockets: int, per_socket: int, most_cpus: int) -> list[Json]:
    count = sockets * per_socket
    threads = pick(r, (3, 1), (6, 2), (2.5, 3), (1, 4))
    room = max(1, most_cpus // (count * threads))
    cores = min(room, pick(r, (1, 1), (3, 2), (2, 3), (4, 4), (1, 5), (2, 6), (3, 8), (1, 16)))
    if most_cpus > 200:
        cores = min(room, r.choice([8, 12, 16, 24, 32, 64]))
    number = _numbering(r, count, cores, threads)
    straddling = often(r, 0.1)
    all_caches = _Caches(r, cores)
    nodes: list[Json] = []
    for node in range(count):
        listed = []
        for core in range(cores):
            socket = r.randrange(sockets) if straddling and often(r, 0.4) else node // per_socket
            one: Json = {
                "socket": socket,
                "core": r.choice([core, node * cores + core]),
                "threads": [number[node, core, thread] for thread in range(threads)],
            }
            caches = all_caches.of(r, node, core, socket)
            if caches:
                one["uncoreCaches"] = caches
            listed.append(one)
        nodes.append({"id": node, "cores": listed})
    return nodes


def _numbering(r: Random, nodes: int, cores: int, threads: int) -> dict[tuple[int, int, int], int]:
    style = pick(r, (3, "split"), (3, "adjacent"), (2, "interleaved"), (1, "random"))
    total = nodes * cores
    mixed = list(range(total * threads))
    r.shuffle(mixed)
    numbers = {}
    for node in range(nodes):
        for core in range(cores):
            place = node * cores + core
            for thread in range(threads):
                numbers[node, core, thread] = {
                    "split": thread * total + place,
                    "adjacent": place * threads + thread,
                    "interleaved": thread * total + core * nodes + node,
                    "random": mixed[place * threads + thread],
                }[style]
    return numbers


class _Caches:
    """Gives each core its uncore caches, all in one style."""

    def __init__(self, r: Random, cores: int) -> None:
        kinds = (2, "none"), (2, "node"), (4, "groups"), (1, "socket"), (1, "random"), (1, "cross"), (0.7, "partial")
        self._style = pick(r, *kinds)
        self._groups = r.choice([1, 2, 2, 3, 4])
        self._cores = cores

    def of(self, r: Random, node: int, core: int, socket: int) -> list[int]:
        """Return the ids of the caches of one core."""
        group = node * 8 + core * self._groups // self._cores
        cache = {
            "none": None,
            "node": node,
            "groups": group,
            "socket": socket,
            "random": r.randrange(6),
            "cross": (node // 2) * 4 + core % 2,
            "partial": group if often(r, 0.7) else None,
        }[self._style]
        if cache is None:
            return []
        return [cache] if often(r, 0.95) else [cache, cache + 1]


def _make_uneven(r: Random, nodes: list[Json], sockets: int) -> None:
    kind = pick(r, (75, "even"), (10, "nodes"), (10, "threads"), (5, "socket"))
    small = r.randrange(sockets)
    for node in nodes:
        cores = node["cores"]
        if kind == "nodes" and len(cores) > 1 and often(r, 0.5):
            node["cores"] = cores[: r.randint(1, len(cores))]
        elif kind == "threads":
            for core in cores:
                if len(core["threads"]) > 1 and often(r, 0.25):
                    core["threads"].pop(r.randrange(len(core["threads"])))
        elif kind == "socket":
            node["cores"] = [core for place, core in enumerate(cores) if core["socket"] != small or place == 0]


def _add_memory(r: Random, nodes: list[Json], most_nodes: int) -> None:
    base = r.choice([2, 4, 8, 16, 64]) * GIB
    pages: list[int] = pick(r, (5, []), (2, [2048]), (1, [1048576]), (3, [2048, 1048576]))
    overfull = often(r, 0.06)
    if 1048576 in pages and not overfull:
        base = max(base, 16 * GIB)
    missing = pick(r, (5, 0.0), (1, 0.2), (0.5, 0.5))
    for node in nodes:
        node["memory"] = base
        if often(r, 0.2):
            node["memory"] += r.choice([-4096 * 37, GIB, 12345 * 4096])
        pools = [_pool(r, size, node["memory"], overfull=overfull) for size in pages if not often(r, missing)]
        if often(r, 0.3):
            r.shuffle(pools)
        if pools:
            node["hugepages"] = pools
    if often(r, 0.12):
        for _ in range(min(r.choice([1, 1, 2]), most_nodes - len(nodes))):
            nodes.append({"id": len(nodes), "memory": base})
            if pages and not often(r, missing):
                nodes[-1]["hugepages"] = [{"pageSizeKi": size, "numPages": 2} for size in pages]
    if often(r, 0.04):
        bare = r.choice(nodes)
        bare["memory"] = 0
        bare.pop("hugepages", None)


def _pool(r: Random, size: int, memory: int, *, overfull: bool) -> Json:
    room = memory // 4 // (size * 1024)
    if size < 1 << 20:
        number = r.choice([0, 128, 256, 512, 1024])
    else:
        number = r.choice([0, 1, 2, 3, room, room // 2] if overfull else [0, 1, min(2, room), room, room // 2])
    return {"pageSizeKi": size, "numPages": number}


def _renumber(r: Random, nodes: list[Json]) -> None:
    if often(r, 0.1):
        ids = sorted(r.sample(range(min(62, len(nodes) + 4) if often(r, 0.75) else 62), len(nodes)))
        for node, number in zip(nodes, ids, strict=True):
            node["id"] = number


def _add_distances(r: Random, nodes: list[Json], per_socket: int) -> None:
    style = pick(r, (5, "normal"), (0.7, "none"), (1, "random"), (1, "near"))
    if style == "none":
        return
    near, far = r.choice([(11, 20), (12, 32), (16, 28), (20, 40)])
    by_id = often(r, 0.6)
    width = max(node["id"] for node in nodes) + 1 if by_id else len(nodes)
    for place, node in enumerate(nodes):
        own = node["id"] if by_id else place
        node["distances"] = [
            10
            if other == own
            else {
                "normal": near if place // per_socket == other // per_socket else far,
                "random": r.choice([11, 12, 20, 21, 32]),
                "near": 10 + abs(place - other),
            }[style]
            for other in range(width)
        ]


def draw_free_cpus(r: Random, machine: Json) -> list[int]:
    """Draw a set of free CPUs: all, some, those of some cores, or the higher ones."""
    everything = cpus_of(machine)
    how = pick(r, (15, "all"), (35, "any"), (30, "cores"), (20, "higher"))
    if how == "all":
        return everything
    share = r.random()
    if how == "any":
        return [cpu for cpu in everything if often(r, share)]
    if how == "higher":
        return sorted(everything)[r.randrange(len(everything) + 1) :]
    chosen: list[int] = []
    for node in machine["nodes"]:
        here = r.choice([share, share, 0, 1])
        for core in node.get("cores", ()):
            dice = r.random()
            if dice < here:
                chosen += core["threads"]
            elif dice < here + 0.1:
                chosen += core["threads"][: r.randint(0, len(core["threads"]))]
    return chosen


def draw_reserved_cpus(r: Random, machine: Json) -> str:
    """Draw a short list of CPUs reserved for the system."""
    everything = sorted(cpus_of(machine))
    number = min(max(1, len(everything) - 1), pick(r, (4, 1), (3, 2), (1, 3), (1, 4)))
    chosen = r.sample(everything, number) if often(r, 0.4) else everything[: min(number, max(1, len(everything) // 2))]
    return cpu_list(chosen)
