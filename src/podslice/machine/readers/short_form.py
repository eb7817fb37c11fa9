"""The short form of the machine file: a regular machine in a few lines.

sockets: 2
numaPerSocket: 4
coresPerNuma: 24        # or a list, such as [43, 43, 42], whose counts take turns
threadsPerCore: 2
numbering: linux        # threads of a core are n and n + all cores; or consecutive: 2n and 2n + 1; or numa:core
coresPerL3: 8
memoryPerNuma: 96Gi     # or a list
hugepages: {2Mi: 512}   # on each NUMA node with CPUs
distances: {local: 10, sameSocket: 12, otherSocket: 32}
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import TypeVar

import msgspec

from podslice.machine.build import MAX_CPUS, MAX_NODES, CPUFacts, NUMANodeFacts, build_nodes, number_l3
from podslice.machine.model import Cache, CoreType, Machine
from podslice.machine.readers.form_sizes import parse_bytes, parse_pools
from podslice.machine.readers.synthetic_indexes import number_objects
from podslice.machine.readers.synthetic_levels import Attributes, Level, Tree
from podslice.values.cpuset import Bits, CPUSet, CPUSetError, bits_of, iter_bits, parse_bits
from podslice.values.errors import InputError

T = TypeVar("T")


class CoreKind(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A number of equal cores in each NUMA node of a hybrid machine."""

    name: str
    cores: int
    threads_per_core: int = 1
    capacity: int = 0


class MemoryOnly(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """NUMA nodes without CPUs: a CPU-list of node ids, and the memory of each."""

    ids: str | int
    memory: str | int = 0


class ShortForm(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A regular machine; see the module. `coreKinds` replaces `coresPerNuma` and `threadsPerCore` on hybrid machines,
    `distances` is a matrix in order of node id or the four distances that occur, `nodeIds` and `socketIds` are given
    where they are not 0, 1, 2 …, `l3` and `l2` are cache sizes."""

    sockets: int
    numa_per_socket: int = 1
    cores_per_numa: int | tuple[int, ...] = 0
    threads_per_core: int = 1
    core_kinds: tuple[CoreKind, ...] = ()
    numbering: str = "linux"
    cores_per_l3: int = msgspec.field(default=0, name="coresPerL3")
    l3: str | int = 0
    l2: str | int = 0
    memory_per_numa: str | int | tuple[str | int, ...] = 0
    hugepages: dict[str, int] = {}
    distances: dict[str, int] | tuple[tuple[int, ...], ...] = {}
    node_ids: tuple[int, ...] = ()
    socket_ids: tuple[int, ...] = ()
    memory_only_nodes: tuple[MemoryOnly, ...] = ()
    name: str = ""
    description: str = ""
    source: str = ""
    architecture: str = ""


_TURNS = {"linux": "core", "consecutive": "pu"}
"""Names of numberings, and the levels that take turns in them."""
_DISTANCES = {"local": 10, "sameSocket": 20, "otherSocket": 20, "memoryOnly": 20}


def expand_short_form(form: ShortForm) -> Machine:
    """Return the machine of a short form. Raises `InputError` with the field's path."""
    return _Expansion(form).machine()


class _Expansion:
    """Expands a short form into a machine."""

    def __init__(self, form: ShortForm) -> None:
        self.form = form
        self.cpu_nodes = form.sockets * form.numa_per_socket
        self._check_numbers()
        self.kinds = self._kinds_of_nodes()
        self.threads_of_cores = [
            kind.threads_per_core for node in self.kinds for kind in node for _ in range(kind.cores)
        ]
        self.cores_of_nodes = [sum(kind.cores for kind in node) for node in self.kinds]
        self.first_cores = [0, *accumulate(self.cores_of_nodes)]
        self.node_ids = self._ids(form.node_ids, self.cpu_nodes, "nodeIds")
        self.socket_ids = self._ids(form.socket_ids, form.sockets, "socketIds")
        self.threads = self._number_threads()

    def _check_numbers(self) -> None:
        form = self.form
        cores = form.cores_per_numa if isinstance(form.cores_per_numa, tuple) else (form.cores_per_numa,)
        if not cores:
            raise InputError("has no count", path="coresPerNuma", remedy="write 43, or a list such as [43, 43, 42]")
        counts = {"sockets": [form.sockets], "numaPerSocket": [form.numa_per_socket]}
        if form.core_kinds:
            for i, kind in enumerate(form.core_kinds):
                counts[f"coreKinds[{i}].cores"] = [kind.cores]
                counts[f"coreKinds[{i}].threadsPerCore"] = [kind.threads_per_core]
        else:
            counts |= {"coresPerNuma": list(cores), "threadsPerCore": [form.threads_per_core]}
        for path, values in counts.items():
            for value in values:
                if value < 1:
                    raise InputError(f"{value} is too small", path=path, remedy="write a number of 1 or more")
        threads = sum(kind.cores * kind.threads_per_core for kind in form.core_kinds)
        total = self.cpu_nodes * threads or self.cpu_nodes * sum(cores) // len(cores) * form.threads_per_core
        if total > MAX_CPUS:
            raise InputError(f"{total} CPUs are more than Linux supports", path="sockets", remedy=f"at most {MAX_CPUS}")
        if self.cpu_nodes > MAX_NODES:
            problem = f"{self.cpu_nodes} NUMA nodes are more than Linux supports"
            raise InputError(problem, path="sockets", remedy=f"at most {MAX_NODES}")

    def _kinds_of_nodes(self) -> list[tuple[CoreKind, ...]]:
        """Return the kinds of cores of each NUMA node."""
        form = self.form
        if form.core_kinds:
            return [form.core_kinds] * self.cpu_nodes
        counts = self._take_turns(form.cores_per_numa, "coresPerNuma")
        return [(CoreKind("", cores, form.threads_per_core),) for cores in counts]

    def _take_turns(self, value: T | tuple[T, ...], path: str) -> list[T]:
        """Return a value for each NUMA node with CPUs; those of a list take turns."""
        values = value if isinstance(value, tuple) else (value,)
        if not values or self.cpu_nodes % len(values):
            problem = f"{len(values)} values for {self.cpu_nodes} NUMA nodes"
            raise InputError(problem, path=path, remedy=f"write {self.cpu_nodes}, or a number that divides it")
        return [values[node % len(values)] for node in range(self.cpu_nodes)]

    def _ids(self, given: tuple[int, ...], expected: int, path: str) -> tuple[int, ...]:
        if given and (len(given) != expected or len(set(given)) != expected):
            raise InputError(
                f"{len(set(given))} ids for {expected}", path=path, remedy=f"write {expected} different ids"
            )
        return given or tuple(range(expected))

    def _number_threads(self) -> list[list[int]]:
        """Return the logical CPUs of every core; all cores of the machine in order of socket, node and kind."""
        numbering = self.form.numbering
        if numbering not in _TURNS and not set(numbering.split(":")) <= {"socket", "numa", "core"}:
            remedy = "one of linux, consecutive, or what takes turns: numa:core, socket:core, socket:numa:core"
            raise InputError(f"unknown numbering {numbering!r}", path="numbering", remedy=remedy)
        tree = Tree([_level("machine", [1]), _level("package", [self.form.sockets]),
                     _level("numa", [self.form.numa_per_socket]), _level("core", self.cores_of_nodes),
                     _level("pu", self.threads_of_cores)], "")  # fmt: skip
        try:
            numbers = iter(number_objects(tree, 4, _TURNS.get(numbering, numbering)))
        except InputError as error:
            raise error.at(path="numbering") from None
        return [[next(numbers) for _ in range(count)] for count in self.threads_of_cores]

    def machine(self) -> Machine:
        form = self.form
        caches = self._caches()
        return Machine(
            nodes=build_nodes(self._cpus(), self._nodes(), number_l3(self._l3_caches())),
            name=form.name,
            description=form.description,
            source=form.source,
            architecture=form.architecture,
            caches=caches,
            core_types=self._core_types(),
        )

    def _cpus(self) -> Iterator[CPUFacts]:
        for node, count in enumerate(self.cores_of_nodes):
            socket = node // self.form.numa_per_socket
            for core in range(self.first_cores[node], self.first_cores[node] + count):
                # Core ids count within the socket, as the kernel's do.
                core_id = core - self.first_cores[socket * self.form.numa_per_socket]
                for cpu in self.threads[core]:
                    yield CPUFacts(cpu, core_id, self.socket_ids[socket], self.node_ids[node])

    def _l3_masks(self) -> list[Bits]:
        size = self.form.cores_per_l3
        if not size:
            # A size without a number of cores means one cache per NUMA node.
            ends: Iterable[tuple[int, int]] = pairwise(self.first_cores)
        else:
            sockets = self.first_cores[:: self.form.numa_per_socket]
            for first, end in pairwise(sockets):
                if size < 1 or (end - first) % size:
                    remedy = f"write a divisor of the {end - first} cores of a socket"
                    raise InputError(f"{size} cores do not fit a socket evenly", path="coresPerL3", remedy=remedy)
            ends = ((first, first + size) for first in range(0, len(self.threads), size))
        return [bits_of(cpu for core in self.threads[first:end] for cpu in core) for first, end in ends]

    def _l3_caches(self) -> list[Cache]:
        if not self.form.cores_per_l3 and not self.form.l3:
            return []
        size = parse_bytes(self.form.l3, "l3")
        return [Cache(3, "Unified", size, CPUSet.from_bits(mask)) for mask in self._l3_masks()]

    def _caches(self) -> tuple[Cache, ...]:
        size = parse_bytes(self.form.l2, "l2")
        l2 = [Cache(2, "Unified", size, CPUSet(threads)) for threads in self.threads] if size else []
        return tuple(sorted((*l2, *self._l3_caches()), key=lambda cache: (cache.level, min(cache.cpus))))

    def _nodes(self) -> list[NUMANodeFacts]:
        memory = [
            parse_bytes(value, "memoryPerNuma")
            for value in self._take_turns(self.form.memory_per_numa, "memoryPerNuma")
        ]
        pools = tuple(parse_pools(self.form.hugepages, "hugepages"))
        nodes = [NUMANodeFacts(number, memory[place], pools) for place, number in enumerate(self.node_ids)]
        for i, extra in enumerate(self.form.memory_only_nodes):
            path = f"memoryOnlyNodes[{i}]"
            try:
                ids = parse_bits(str(extra.ids))
            except CPUSetError as error:
                raise InputError(error.problem, path=f"{path}.ids", remedy="write ids such as 2 or 2-9") from None
            if len(nodes) + ids.bit_count() > MAX_NODES:
                raise InputError(
                    "more NUMA nodes than Linux supports", path=f"{path}.ids", remedy=f"at most {MAX_NODES}"
                )
            nodes += [NUMANodeFacts(number, parse_bytes(extra.memory, f"{path}.memory")) for number in iter_bits(ids)]
        rows = self._distances(sorted(node.id for node in nodes))
        return [msgspec.structs.replace(node, distances=rows[node.id]) for node in nodes]

    def _distances(self, ids: list[int]) -> dict[int, tuple[int, ...]]:
        given = self.form.distances
        if isinstance(given, tuple):
            if len(given) != len(ids) or any(len(row) != len(ids) for row in given):
                remedy = f"write {len(ids)} rows of {len(ids)} distances"
                raise InputError(f"{len(given)} rows for {len(ids)} nodes", path="distances", remedy=remedy)
            return dict(zip(ids, given, strict=True))
        for key in given:
            if key not in _DISTANCES:
                raise InputError(
                    "unknown distance", path=f"distances.{key}", remedy=f"known are {', '.join(_DISTANCES)}"
                )
        socket_of = {number: i // self.form.numa_per_socket for i, number in enumerate(self.node_ids)}
        values = {**_DISTANCES, **given}
        return {one: tuple(values[_relation(one, other, socket_of)] for other in ids) for one in ids}

    def _core_types(self) -> tuple[CoreType, ...]:
        if not self.form.core_kinds:
            return ()
        kind_of_core = [kind for node in self.kinds for kind in node for _ in range(kind.cores)]
        return tuple(
            CoreType(
                kind.name,
                CPUSet(
                    c for owner, cpus in zip(kind_of_core, self.threads, strict=True) if owner is kind for c in cpus
                ),
                kind.capacity,
            )
            for kind in self.form.core_kinds
        )


def _level(kind: str, counts: Sequence[int]) -> Level:
    return Level(kind, tuple(counts), Attributes(), [])


def _relation(one: int, other: int, socket_of: Mapping[int, int]) -> str:
    if one == other:
        return "local"
    if one not in socket_of or other not in socket_of:
        return "memoryOnly"
    return "sameSocket" if socket_of[one] == socket_of[other] else "otherSocket"
