"""One door to every form a machine may come in: this host, a snapshot, or a text in any format we read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from podslice.core.errors import InputError
from podslice.core.machine.hwloc_xml import from_hwloc_xml
from podslice.core.machine.machineinfo import from_machineinfo
from podslice.core.machine.model import Machine
from podslice.core.machine.shape import expand, shape_from_dict
from podslice.core.machine.synthetic import from_synthetic
from podslice.core.values.cpuset import CPUSet, CPUSetError
from podslice.host.filesystem import DirectoryRoot, open_root
from podslice.host.sysfs import discover
from podslice.k8s.yaml import load_documents

_LARGEST_TEXT = 64 << 20


def this_machine() -> Machine:
    """The machine we run on."""
    return msgspec.structs.replace(discover(DirectoryRoot(Path("/"))), name="this machine")


def load_snapshot(path: str) -> Machine:
    """A captured machine: a directory or tar with sys and proc. Raises `InputError`."""
    if not Path(path).exists():
        raise InputError("does not exist", source=path)
    machine = discover(open_root(Path(path)))
    return msgspec.structs.replace(machine, name=Path(path).name.split(".")[0])


def load_machine(source: str) -> Machine:
    """A machine from a snapshot path, a file in any format we read, or a synthetic string. Raises `InputError`."""
    path = Path(source)
    try:
        exists = path.exists()
    except OSError:
        exists = False
    if not exists:
        if ":" in source or source.replace(" ", "").isdigit():
            return from_synthetic(source)
        raise InputError("does not exist", source=source, remedy="give a file, a snapshot or a synthetic string")
    if path.is_dir() or ".tar" in path.name or path.suffix in (".tgz", ".txz"):
        return load_snapshot(source)
    if path.stat().st_size > _LARGEST_TEXT:
        raise InputError("is too large for a machine description", source=source)
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError("is not a text file", source=source) from None
    try:
        return parse_machine(text)
    except InputError as error:
        raise error.at(source=source) from None


def parse_machine(text: str) -> Machine:
    """A machine from the text of hwloc XML, MachineInfo JSON, a synthetic string, or our YAML (short or full)."""
    stripped = text.lstrip()
    if stripped.startswith("<"):
        return from_hwloc_xml(text)
    documents = load_documents(text)
    if len(documents) == 1 and isinstance(documents[0], str):
        return from_synthetic(documents[0])
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError("is no machine description", remedy="see podslice topology --help for the formats")
    return _from_dict(documents[0])


def _from_dict(data: dict[str, Any]) -> Machine:
    if isinstance(data.get("machineinfo"), dict):
        data = data["machineinfo"]
    if "topology" in data:
        return from_machineinfo(data)
    if "nodes" in data:
        return machine_from_dict(data)
    return expand(shape_from_dict({key: _sizes_as_text(key, value) for key, value in data.items()}))


def _sizes_as_text(key: str, value: Any) -> Any:
    return str(value) if key == "memoryPerNuma" and isinstance(value, int) else value


def machine_from_dict(data: dict[str, Any]) -> Machine:
    """Our full form: nodes with cores and threads. Raises `InputError` with the field path."""
    try:
        machine = msgspec.convert(data, Machine, dec_hook=_decode)
    except msgspec.ValidationError as error:
        text, _, place = str(error).partition(" - at `$.")
        raise InputError(text[:1].lower() + text[1:], path=place.rstrip("`")) from None
    ids = [node.id for node in machine.nodes]
    if len(set(ids)) != len(ids):
        raise InputError("two NUMA nodes have the same id", path="nodes")
    return machine


def _decode(kind: type, value: Any) -> Any:
    if kind is CPUSet:
        try:
            return CPUSet.parse(str(value))
        except CPUSetError as error:
            raise ValueError(str(error)) from None
    raise NotImplementedError


def machine_to_dict(machine: Machine) -> dict[str, Any]:
    """Our full form as plain data, without empty fields."""
    data = msgspec.to_builtins(machine, enc_hook=str)
    assert isinstance(data, dict)
    data.pop("logicalCpus", None)
    kept = {key: value for key, value in data.items() if value not in (None, "", [], ())}
    order = ["name", "description", "source", "architecture", "numCores", "numSockets", "memoryCapacity"]
    return {**{key: kept[key] for key in order if key in kept}, **kept}
