"""The machine file: YAML (or JSON) that people write, as plain data.

Two forms. The full form lists nodes, cores and threads and carries every fact of a `Machine`; it is also the form of
the machines in recorded decisions. The short form describes a regular machine in a few lines:

    sockets: 2
    numaPerSocket: 4
    coresPerNuma: 24
    threadsPerCore: 2
    numbering: linux        # threads of a core are n and n + all cores; or consecutive: 2n and 2n + 1
    coresPerL3: 8
    memoryPerNuma: 96Gi
    hugepages: {2Mi: 512}   # on each NUMA node with CPUs
    distances: {local: 10, sameSocket: 12, otherSocket: 32}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from podslice.machine.build import MAX_CPUS, MAX_NODES, CPUFacts, NUMANodeFacts, build_nodes, check_machine, number_l3
from podslice.machine.model import Cache, Core, CoreType, HugePages, Machine, NUMANode
from podslice.values.cpuset import Bits, CPUSet, CPUSetError, bits_of, iter_bits, parse_bits
from podslice.values.decoding import MAP_KEY, abbreviate, decoding_problem
from podslice.values.document import without_header
from podslice.values.errors import InputError
from podslice.values.quantity import BINARY_SI, Quantity, QuantityError

Json = dict[str, Any]


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
    cores_per_numa: int = 0
    threads_per_core: int = 1
    core_kinds: tuple[CoreKind, ...] = ()
    numbering: str = "linux"
    cores_per_l3: int = msgspec.field(default=0, name="coresPerL3")
    l3: str | int = 0
    l2: str | int = 0
    memory_per_numa: str | int = 0
    hugepages: dict[str, int] = {}
    distances: dict[str, int] | tuple[tuple[int, ...], ...] = {}
    node_ids: tuple[int, ...] = ()
    socket_ids: tuple[int, ...] = ()
    memory_only_nodes: tuple[MemoryOnly, ...] = ()
    name: str = ""
    description: str = ""
    source: str = ""
    architecture: str = ""


NUMBERINGS = ("linux", "consecutive")
_DISTANCES = {"local": 10, "sameSocket": 20, "otherSocket": 20, "memoryOnly": 20}


def from_data(data: Any, source: str = "") -> Machine:
    """Return a machine from plain data in either form. Raises `InputError` with the field's path."""
    if not isinstance(data, dict):
        raise InputError("is not a mapping", source=source, remedy="write sockets: … or nodes: …")
    try:
        data = without_header("Machine", data)
        if "nodes" in data:
            return check_machine(_from_full(data))
        if "sockets" in data:
            return check_machine(_Expansion(_convert(_keys_to_text(data), ShortForm)).machine())
    except InputError as error:
        raise error.at(source=source) from None
    raise InputError("has neither sockets nor nodes", source=source, remedy="write sockets: … or nodes: …")


def _keys_to_text(data: Json) -> Json:
    """Return the data with page sizes as text: those written without a unit arrive as numbers."""
    pages = data.get("hugepages")
    return {**data, "hugepages": {str(k): v for k, v in pages.items()}} if isinstance(pages, dict) else data


def parse_bytes(value: object, path: str) -> int:
    """Return the bytes of a quantity such as `64Gi`. Raises `InputError`."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if not isinstance(value, str):
        raise InputError(f"{str(value)[:40]!r} is not a size", path=path, remedy="write a size such as 64Gi")
    try:
        quantity = Quantity.parse(value)
    except QuantityError as error:
        problem = f"{abbreviate(value)} is not a size: {error}"
        raise InputError(problem, path=path, remedy="write a size such as 64Gi") from None
    if quantity.overflows():
        raise InputError(f"{abbreviate(value)} is beyond 64 bits", path=path, remedy="write a size such as 64Gi")
    return quantity.value()


def _convert(data: Any, kind: Any, hook: Callable[[type, Any], Any] | None = None) -> Any:
    try:
        return msgspec.convert(data, kind, strict=True, dec_hook=hook)
    except msgspec.ValidationError as error:
        found = decoding_problem(str(error))
        remedy = f"known are {', '.join(_names(kind))}" if found.unknown else found.remedy
        raise InputError(found.problem, path=found.path.replace(MAP_KEY, ""), remedy=remedy) from None


@cache
def _names(kind: Any) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(kind))


# The full form


def _from_full(data: Json) -> Machine:
    _refuse_unknown(data, Machine, "")
    prepared = {**data, "nodes": [_prepare_node(n, i) for i, n in enumerate(_list(data["nodes"], "nodes"))]}
    if "hugepages" in data:
        prepared["hugepages"] = _prepare_hugepages(data["hugepages"], "hugepages")
    if "memoryCapacity" in data and data["memoryCapacity"] is not None:
        prepared["memoryCapacity"] = parse_bytes(data["memoryCapacity"], "memoryCapacity")
    if "kernelNodes" in data:
        prepared["kernelNodes"] = [
            _prepare_memory(n, f"kernelNodes[{i}]") for i, n in enumerate(_list(data["kernelNodes"], "kernelNodes"))
        ]
    if "caches" in data:
        prepared["caches"] = [
            {**c, "size": parse_bytes(c.get("size", 0), f"caches[{i}].size")}
            for i, c in enumerate(_list(data["caches"], "caches"))
        ]
    machine = _convert(prepared, Machine, _decode_cpuset)
    assert isinstance(machine, Machine)
    return machine


def _list(value: Any, path: str) -> list[Any]:
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise InputError("is not a list of mappings", path=path)
    return value


def _refuse_unknown(data: Mapping[Any, Any], kind: Any, path: str) -> None:
    known = _names(kind)
    for key in data:
        if key not in known:
            where = f"{path}.{key}" if path else str(key)
            raise InputError("unknown field", path=where, remedy=f"known are {', '.join(known)}")


def _prepare_node(node: Json, index: int) -> Json:
    path = f"nodes[{index}]"
    _refuse_unknown(node, NUMANode, path)
    for c, core in enumerate(_list(node.get("cores") or [], f"{path}.cores")):
        _refuse_unknown(core, Core, f"{path}.cores[{c}]")
    return _prepare_memory(node, path)


def _prepare_memory(node: Json, path: str) -> Json:
    prepared = {**node, "memory": parse_bytes(node.get("memory") or 0, f"{path}.memory")}
    prepared["hugepages"] = _prepare_hugepages(node.get("hugepages"), f"{path}.hugepages")
    if "cores" in node:
        prepared["cores"] = node["cores"] or []
    return prepared


def _prepare_hugepages(value: Any, path: str) -> Any:
    """Return `{2Mi: 512}` as the list of the model; a list stays as it is."""
    if not isinstance(value, dict):
        return value or []
    return [{"pageSizeKi": pool.page_size_ki, "numPages": pool.num_pages} for pool in _pools(value, path)]


def _pools(pages: Mapping[Any, Any], path: str) -> Iterator[HugePages]:
    for size, count in pages.items():
        where = f"{path}[{size}]"
        in_bytes = parse_bytes(str(size), where)
        if in_bytes < 1024 or in_bytes % 1024:
            raise InputError(f"{size} is not a page size", path=where, remedy="write whole KiB, such as 2Mi or 1Gi")
        if isinstance(count, bool) or not isinstance(count, int) or count < 0:
            raise InputError(f"{count!r} is not a number of pages", path=where, remedy="write a whole number")
        yield HugePages(in_bytes // 1024, count)


def _decode_cpuset(kind: type, value: Any) -> Any:
    if kind is not CPUSet:
        raise NotImplementedError
    try:
        return CPUSet.parse(str(value))
    except CPUSetError as error:
        raise ValueError(f"not a CPU list: {error.problem}") from None


def to_data(machine: Machine) -> Json:
    """Return the full form, with every fact that differs from its default; `from_data` restores the same machine."""
    data: Json = {}
    for field in _fields(Machine):
        value = getattr(machine, field.name)
        if field.name == "nodes" or value != field.default:
            data[field.encode_name] = _plain(value)
    data["nodes"] = data.pop("nodes")
    return data


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    return msgspec.structs.fields(kind)


def _plain(value: Any) -> Any:
    if isinstance(value, CPUSet):
        return str(value)
    if isinstance(value, tuple):
        if value and isinstance(value[0], HugePages) and len({pool.page_size_ki for pool in value}) == len(value):
            return {format_bytes(pool.page_size_ki * 1024): pool.num_pages for pool in value}
        return [_plain(item) for item in value]
    if isinstance(value, msgspec.Struct):
        plain = {}
        for field in _fields(type(value)):
            item = getattr(value, field.name)
            if item != field.default:
                is_size = field.name in ("memory", "size")
                plain[field.encode_name] = format_bytes(item) if is_size else _plain(item)
        return plain
    return value


def format_bytes(value: int) -> str:
    """Return a size as a canonical binary quantity (`64Gi`)."""
    return Quantity.of(value, BINARY_SI).canonical()


# The short form


class _Expansion:
    """Expands a short form into a machine."""

    def __init__(self, form: ShortForm) -> None:
        self.form = form
        self.kinds = form.core_kinds or (CoreKind("", form.cores_per_numa, form.threads_per_core),)
        self._check_counts()
        self.cpu_nodes = form.sockets * form.numa_per_socket
        self.cores_per_numa = sum(kind.cores for kind in self.kinds)
        self.node_ids = self._ids(form.node_ids, self.cpu_nodes, "nodeIds")
        self.socket_ids = self._ids(form.socket_ids, form.sockets, "socketIds")
        self.threads = self._number_threads()

    def _check_counts(self) -> None:
        form = self.form
        counts = {"sockets": form.sockets, "numaPerSocket": form.numa_per_socket}
        for i, kind in enumerate(self.kinds):
            prefix = f"coreKinds[{i}]." if form.core_kinds else ""
            counts[f"{prefix}cores" if prefix else "coresPerNuma"] = kind.cores
            counts[f"{prefix}threadsPerCore"] = kind.threads_per_core
        for path, value in counts.items():
            if value < 1:
                raise InputError(f"{value} is too small", path=path, remedy="write a number of 1 or more")
        cpus = form.sockets * form.numa_per_socket * sum(kind.cores * kind.threads_per_core for kind in self.kinds)
        if cpus > MAX_CPUS:
            raise InputError(f"{cpus} CPUs are more than Linux supports", path="sockets", remedy=f"at most {MAX_CPUS}")
        if form.sockets * form.numa_per_socket > MAX_NODES:
            problem = f"{form.sockets * form.numa_per_socket} NUMA nodes are more than Linux supports"
            raise InputError(problem, path="sockets", remedy=f"at most {MAX_NODES}")
        if form.numbering not in NUMBERINGS:
            remedy = f"one of {', '.join(NUMBERINGS)}"
            raise InputError(f"unknown numbering {form.numbering!r}", path="numbering", remedy=remedy)

    def _ids(self, given: tuple[int, ...], expected: int, path: str) -> tuple[int, ...]:
        if given and (len(given) != expected or len(set(given)) != expected):
            raise InputError(
                f"{len(set(given))} ids for {expected}", path=path, remedy=f"write {expected} different ids"
            )
        return given or tuple(range(expected))

    def _number_threads(self) -> list[list[int]]:
        """Return the logical CPUs of every core; all cores of the machine in order of socket, node and kind."""
        counts = [
            kind.threads_per_core for _ in range(self.cpu_nodes) for kind in self.kinds for _ in range(kind.cores)
        ]
        threads: list[list[int]] = [[] for _ in counts]
        numbers = iter(range(sum(counts)))
        if self.form.numbering == "consecutive":
            for core, count in enumerate(counts):
                threads[core] = [next(numbers) for _ in range(count)]
        else:
            # Linux numbers the first threads of all cores first, then the second ones; a hybrid machine's small cores
            # have none.
            for thread in range(max(counts)):
                for core, count in enumerate(counts):
                    if thread < count:
                        threads[core].append(next(numbers))
        return threads

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
        for core, threads in enumerate(self.threads):
            node, in_node = divmod(core, self.cores_per_numa)
            socket, node_in_socket = divmod(node, self.form.numa_per_socket)
            # Core ids count within the socket, as the kernel's do.
            core_id = node_in_socket * self.cores_per_numa + in_node
            for cpu in threads:
                yield CPUFacts(cpu, core_id, self.socket_ids[socket], self.node_ids[node])

    def _l3_masks(self) -> list[Bits]:
        # A size without a number of cores means one cache per NUMA node.
        size = self.form.cores_per_l3 or self.cores_per_numa
        per_socket = self.cores_per_numa * self.form.numa_per_socket
        if size < 1 or per_socket % size:
            remedy = f"write a divisor of the {per_socket} cores of a socket"
            raise InputError(f"{size} cores do not fit a socket evenly", path="coresPerL3", remedy=remedy)
        groups = range(0, len(self.threads), size)
        return [bits_of(cpu for core in self.threads[first : first + size] for cpu in core) for first in groups]

    def _l3_caches(self) -> list[Cache]:
        if not self.form.cores_per_l3 and not self.form.l3:
            return []
        size = parse_bytes(self.form.l3, "l3")
        return [Cache(3, "Unified", size, CPUSet.from_bits(mask)) for mask in self._l3_masks()]

    def _caches(self) -> tuple[Cache, ...]:
        size = parse_bytes(self.form.l2, "l2")
        l2 = [Cache(2, "Unified", size, CPUSet(threads)) for threads in self.threads] if size else []
        return (*l2, *self._l3_caches())

    def _nodes(self) -> list[NUMANodeFacts]:
        memory = parse_bytes(self.form.memory_per_numa, "memoryPerNuma")
        pools = tuple(_pools(self.form.hugepages, "hugepages"))
        nodes = [NUMANodeFacts(number, memory, pools) for number in self.node_ids]
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
        kind_of_core = [kind for _ in range(self.cpu_nodes) for kind in self.kinds for _ in range(kind.cores)]
        return tuple(
            CoreType(
                kind.name,
                CPUSet(
                    c for owner, cpus in zip(kind_of_core, self.threads, strict=True) if owner is kind for c in cpus
                ),
                kind.capacity,
            )
            for kind in self.kinds
        )


def _relation(one: int, other: int, socket_of: Mapping[int, int]) -> str:
    if one == other:
        return "local"
    if one not in socket_of or other not in socket_of:
        return "memoryOnly"
    return "sameSocket" if socket_of[one] == socket_of[other] else "otherSocket"
