"""A machine for people: a few lines of facts, a row for each NUMA node, the distances.

The rows show the kubelet's view, since that decides where pods land; facts of the hardware alone (offline CPUs, core
types, caches) stand beside it. Everything fits a terminal, with 8 CPUs and with 512.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from podslice.machine.model import Cache, Core, HugePages, KernelNode, Machine, NUMANode
from podslice.render.ansi import style
from podslice.render.prose import fold
from podslice.render.table import format_bytes, format_table, terminal_width
from podslice.values.cpuset import Bits, bits_of, format_bits, iter_bits
from podslice.values.quantity import plural

_LONG_LIST = 36
_LARGEST_MATRIX = 16
_LABEL = 11


def to_text(machine: Machine, *, wide: bool = False, colour: bool = False) -> str:
    """Return the summary; `wide` adds every core with its threads and caches and writes all CPU lists in full."""
    paint = _Paint(colour=colour)
    # Where the kubelet's view has no NUMA node, those of the kernel are shown.
    nodes = sorted(machine.nodes, key=lambda node: node.id) or [_as_node(node) for node in machine.kernel_nodes]
    parts = [
        _heading(machine, paint),
        _facts(machine, nodes, paint),
        _node_table(machine, nodes, paint, wide=wide),
        _distances(nodes, paint),
    ]
    if wide:
        parts.append(_core_table(nodes, paint))
    parts.append([paint.warning(f"! {warning}") for warning in machine.warnings])
    return "\n\n".join("\n".join(part) for part in parts if part)


def cpus_text(cpus: Bits, *, full: bool = False) -> str:
    """Return a CPU list; a long one with a constant step as `0,4,…,108`, any other long one cut off."""
    text = format_bits(cpus)
    if full or len(text) <= _LONG_LIST:
        return text or "-"
    members = list(iter_bits(cpus))
    if len(set(_steps(members))) == 1:
        return f"{members[0]},{members[1]},…,{members[-1]}"
    return text[: text.rindex(",", 0, _LONG_LIST - 1) + 1] + "…"


def table(header: Sequence[str], rows: Iterable[Sequence[str]], *, left: Iterable[int] = (0,)) -> list[str]:
    """Return aligned lines, the header first. Columns are right-aligned except those in `left`."""
    lefts = set(left)
    right = [column for column in range(len(header)) if column not in lefts]
    return format_table(header, [tuple(row) for row in rows], right=right).splitlines()


class _Paint:
    def __init__(self, *, colour: bool) -> None:
        self.colour = colour

    def _style(self, text: str, *, fg: str | None = None, bold: bool = False, dim: bool = False) -> str:
        if not self.colour:
            return text

        return style(text, fg=fg, bold=bold or None, dim=dim or None)

    def title(self, text: str) -> str:
        return self._style(text, fg="cyan", bold=True)

    def header(self, text: str) -> str:
        return self._style(text, bold=True)

    def label(self, text: str) -> str:
        return self._style(text, dim=True)

    def warning(self, text: str) -> str:
        return self._style(text, fg="yellow")


def _as_node(node: KernelNode) -> NUMANode:
    return NUMANode(node.id, node.memory, node.hugepages, node.distances)


def _steps(numbers: Sequence[int]) -> list[int]:
    return [second - first for first, second in pairwise(numbers)]


def _node_cpus(machine: Machine, node: NUMANode) -> Bits:
    listed = bits_of(cpu for core in node.cores for cpu in core.threads)
    if listed or machine.nodes:
        return listed
    return next((kernel.cpus.bits for kernel in machine.kernel_nodes if kernel.id == node.id), 0)


def _heading(machine: Machine, paint: _Paint) -> list[str]:
    title = paint.title(machine.name or "machine")
    return [f"{title} ({machine.architecture})" if machine.architecture else title]


def _facts(machine: Machine, nodes: Sequence[NUMANode], paint: _Paint) -> list[str]:
    facts = [
        ("Machine", machine.description),
        ("CPUs", _cpu_fact(machine)),
        ("Sockets", str(machine.socket_count)),
        ("Cores", _core_fact(machine)),
        ("NUMA nodes", _numa_fact(nodes)),
        ("Memory", format_bytes(machine.memory) if machine.memory else "unknown"),
        ("Huge pages", _hugepage_fact(machine.all_hugepages)),
        ("Caches", _cache_fact(machine.caches)),
        ("Uncore", _uncore_fact(machine)),
        ("Offline", cpus_text(machine.offline.bits) if machine.offline else ""),
        ("Not seen", _unseen_fact(machine)),
        ("Isolated", cpus_text(machine.isolated.bits) if machine.isolated else ""),
        ("nohz_full", cpus_text(machine.nohz_full.bits) if machine.nohz_full else ""),
        ("rcu_nocbs", cpus_text(machine.rcu_nocbs.bits) if machine.rcu_nocbs else ""),
        ("Core types", "; ".join(f"{t.name} {cpus_text(t.cpus.bits)}" for t in machine.core_types)),
        ("Clocks", "; ".join(f"{f.khz / 1e6:g} GHz {cpus_text(f.cpus.bits)}" for f in machine.max_frequencies)),
        ("Source", machine.source if machine.source not in ("/", "") else ""),
    ]
    width = terminal_width()
    lines = []
    for label, value in facts:
        first, *more = [value] if width is None else fold(value, max(12, width - _LABEL - 1))
        lines += (
            [f"{paint.label(f'{label:<{_LABEL}}')} {first}", *(" " * (_LABEL + 1) + one for one in more)]
            if value
            else []
        )
    return lines


def _cpu_fact(machine: Machine) -> str:
    cpus = machine.cpus.bits
    if not cpus:
        return "none that a kubelet can see" if machine.cpu_count == 0 else str(machine.cpu_count)
    # A kubelet counts a CPU once for each NUMA node that lists it.
    twice = machine.cpu_count - cpus.bit_count()
    if (
        twice > 0
        and twice == sum(len(core.threads) for node in machine.nodes for core in node.cores) - cpus.bit_count()
    ):
        return f"{cpus.bit_count()} ({cpus_text(cpus)}); NUMA nodes overlap: the kubelet counts {machine.cpu_count}"
    return f"{machine.cpu_count} ({cpus_text(cpus)})"


def _core_fact(machine: Machine) -> str:
    widths: dict[int, int] = {}
    for node in machine.nodes:
        for core in node.cores:
            widths[len(core.threads)] = widths.get(len(core.threads), 0) + 1
    if not widths:
        return ""
    kinds = [f"{count} with {plural(threads, 'thread')}" for threads, count in sorted(widths.items(), reverse=True)]
    if len(kinds) > 1:
        return f"{sum(widths.values())}: {', '.join(kinds)}"
    (threads,) = widths
    each = "no SMT" if threads == 1 else f"{threads} threads each"
    return f"{widths[threads]}, {each}"


def _numa_fact(nodes: Sequence[NUMANode]) -> str:
    ids = cpus_text(bits_of(node.id for node in nodes if node.id >= 0))
    return f"{len(nodes)} ({ids})" if nodes else ""


def _hugepage_fact(pools: Iterable[HugePages]) -> str:
    pools = sorted(pools, key=lambda pool: pool.page_size_ki)
    reserved = [f"{pool.num_pages} × {format_bytes(pool.page_size_ki * 1024)}" for pool in pools if pool.num_pages]
    sizes = ", ".join(format_bytes(pool.page_size_ki * 1024) for pool in pools)
    return ", ".join(reserved) if reserved else f"none reserved (sizes {sizes})" if sizes else ""


def _cache_fact(caches: Sequence[Cache]) -> str:
    groups: dict[tuple[int, str, int], int] = {}
    for cache in caches:
        groups[cache.level, cache.type, cache.size] = groups.get((cache.level, cache.type, cache.size), 0) + 1
    return ", ".join(
        f"L{level}{_LETTERS.get(kind, '')} {count} {f'× {format_bytes(size)}' if size else 'of unknown size'}"
        for (level, kind, size), count in groups.items()
    )


_LETTERS = {"Data": "d", "Instruction": "i"}


def _unseen_fact(machine: Machine) -> str:
    """Return the online CPUs that a kubelet's discovery misses."""
    online = bits_of(cpu for group in machine.groups_of("core") for cpu in group.cpus)
    unseen = online & ~machine.cpus.bits
    return f"{cpus_text(unseen)} (online, but a kubelet does not list them)" if unseen else ""


def _uncore_fact(machine: Machine) -> str:
    """Return the kubelet's groups of CPUs by uncore cache; empty where no core has one."""
    groups: dict[int, int] = {}
    cores = [core for node in machine.nodes for core in node.cores]
    if not any(core.uncore_caches for core in cores):
        return ""
    for core in cores:
        groups[_uncore_group(core)] = groups.get(_uncore_group(core), 0) + len(core.threads)
    sizes = sorted(set(groups.values()))
    each = str(sizes[0]) if len(sizes) == 1 else f"{sizes[0]} to {sizes[-1]}"
    return f"{plural(len(groups), 'group')} of {each} CPUs"


def _uncore_group(core: Core) -> int:
    """Return the group in which the kubelet puts a core: its first uncore cache, or the id of its socket where it has
    none."""
    return core.uncore_caches[0] if core.uncore_caches else core.socket


def _node_table(machine: Machine, nodes: Sequence[NUMANode], paint: _Paint, *, wide: bool) -> list[str]:
    if not nodes:
        return []
    sizes = sorted({pool.page_size_ki for node in nodes for pool in node.hugepages if pool.num_pages})
    header = ["NUMA", "SOCKET", "CORES", "CPUS", "CPU LIST", "MEMORY", *(format_bytes(s * 1024) for s in sizes), "L3"]
    rows = [(str(node.id), *_node_cells(machine, node, sizes, wide=wide)) for node in nodes]
    lines = table(header, _collapse(rows), left=(0, 1, 4, len(header) - 1))
    return [paint.header(lines[0]), *lines[1:]]


def _node_cells(machine: Machine, node: NUMANode, sizes: Sequence[int], *, wide: bool) -> list[str]:
    cpus = _node_cpus(machine, node)
    pages = {pool.page_size_ki: pool.num_pages for pool in node.hugepages}
    return [
        ",".join(map(str, sorted({core.socket for core in node.cores}))) or "-",
        str(len(node.cores) or "-"),
        str(cpus.bit_count() or "-"),
        cpus_text(cpus, full=wide),
        format_bytes(node.memory) if node.memory else "-",
        *(str(pages.get(size, "-")) for size in sizes),
        _l3_cell(machine, cpus),
    ]


def _l3_cell(machine: Machine, cpus: Bits) -> str:
    caches = [cache for cache in machine.caches if cache.level == 3 and cache.cpus.bits & cpus]
    if not caches:
        return "-"
    sizes = sorted({cache.size for cache in caches})
    size = "/".join(format_bytes(s) if s else "?" for s in sizes)
    shared = any(cache.cpus.bits & ~cpus for cache in caches)
    return f"{len(caches)} × {size}{' (shared with other nodes)' if shared else ''}"


def _collapse(rows: Sequence[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Merge runs of nodes without CPUs that differ only by their id into one row."""
    merged: list[tuple[list[int], tuple[str, ...]]] = []
    for number, *cells in rows:
        same = merged and merged[-1][1] == tuple(cells) and cells[2] == "-"
        if same and merged[-1][0][-1] + 1 == int(number):
            merged[-1][0].append(int(number))
        else:
            merged.append(([int(number)], tuple(cells)))
    return [(str(ids[0]) if len(ids) == 1 else f"{ids[0]}-{ids[-1]}", *cells) for ids, cells in merged]


def _distances(nodes: Sequence[NUMANode], paint: _Paint) -> list[str]:
    if len(nodes) < 2 or any(node.distances is None or len(node.distances) != len(nodes) for node in nodes):
        return []
    shown = list(range(len(nodes)))
    footer = []
    # Machines with GPU memory have dozens of nodes without CPUs, often all equally far.
    if len(nodes) > _LARGEST_MATRIX:
        far = _uniform_distance(nodes)
        if far is not None:
            shown = [place for place, node in enumerate(nodes) if node.cores]
            footer = [f"Nodes without CPUs: {far} to and from every other node."]
    header = ["DISTANCE", *(str(nodes[place].id) for place in shown)]
    rows = [(str(nodes[row].id), *(_distance(nodes[row], column) for column in shown)) for row in shown]
    lines = table(header, rows) if shown else []
    return [*(paint.header(line) if i == 0 else line for i, line in enumerate(lines)), *footer]


def _distance(node: NUMANode, column: int) -> str:
    return str(node.distances[column]) if node.distances is not None else "-"


def _uniform_distance(nodes: Sequence[NUMANode]) -> int | None:
    """Return the one distance between any node without CPUs and any other node; None if they differ."""
    found = {
        distance
        for row, node in enumerate(nodes)
        for column, distance in enumerate(node.distances or ())
        if row != column and not (node.cores and nodes[column].cores)
    }
    return found.pop() if len(found) == 1 else None


def _core_table(nodes: Sequence[NUMANode], paint: _Paint) -> list[str]:
    cores = sorted(((min(core.threads), node, core) for node in nodes for core in node.cores), key=lambda c: c[0])
    grouped = any(core.uncore_caches for _, _, core in cores)
    rows = [
        (
            str(first),
            str(core.core),
            str(core.socket),
            str(node.id),
            ",".join(map(str, core.uncore_caches)) or (str(_uncore_group(core)) if grouped else "-"),
            format_bits(bits_of(core.threads)),
        )
        for first, node, core in cores
    ]
    lines = table(("CORE", "HARDWARE ID", "SOCKET", "NUMA", "UNCORE", "THREADS"), rows, left=(0, 5))
    return [paint.header(lines[0]), *lines[1:]] if rows else []
