"""The machine file: YAML (or JSON) that people write, as plain data.

Two forms. The full form lists nodes, cores and threads and carries every fact of a `Machine`; it is also the form of
the machines in recorded decisions. The short form (`short_form`) describes a regular machine in a few lines.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import msgspec

from podslice.machine.build import check_machine
from podslice.machine.model import Core, HugePages, Machine, NUMANode
from podslice.machine.readers.form_sizes import parse_bytes, parse_pools
from podslice.machine.readers.short_form import ShortForm, expand_short_form
from podslice.values.cpuset import CPUSet, CPUSetError
from podslice.values.decoding import MAP_KEY, abbreviate, decoding_problem
from podslice.values.document import without_header
from podslice.values.errors import InputError
from podslice.values.quantity import BINARY_SI, Quantity

Json = dict[str, Any]


def from_data(data: Any, source: str = "") -> Machine:
    """Return a machine from plain data in either form. Raises `InputError` with the field's path."""
    if not isinstance(data, dict):
        raise InputError("is not a mapping", source=source, remedy="write sockets: … or nodes: …")
    try:
        data = without_header("Machine", data)
        if "nodes" in data:
            return check_machine(_from_full(data))
        if "sockets" in data:
            return check_machine(expand_short_form(_convert(_keys_to_text(data), ShortForm)))
    except InputError as error:
        raise error.at(source=source) from None
    raise InputError("has neither sockets nor nodes", source=source, remedy="write sockets: … or nodes: …")


def _keys_to_text(data: Json) -> Json:
    """Return the data with page sizes as text: those written without a unit arrive as numbers."""
    pages = data.get("hugepages")
    return {**data, "hugepages": {str(k): v for k, v in pages.items()}} if isinstance(pages, dict) else data


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
        problem = f"{abbreviate(value)} is not a list of mappings"
        raise InputError(problem, path=path, remedy="docs/machines.md shows the full form")
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
    return [{"pageSizeKi": pool.page_size_ki, "numPages": pool.num_pages} for pool in parse_pools(value, path)]


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
