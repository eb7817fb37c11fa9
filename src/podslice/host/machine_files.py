"""Loading and writing machines in every form we know.

`load_machine` takes what a user has at hand (a file, a folder, a text) and finds out what it is, so that no command
needs an option per format.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
import yaml

from podslice.machine.build import ReadMachine
from podslice.machine.gallery import gallery_names, load_gallery, similar_names
from podslice.machine.model import Machine
from podslice.machine.readers.form import from_data, to_data
from podslice.machine.readers.synthetic_text import looks_synthetic
from podslice.node_objects.described import DescribedNode
from podslice.node_objects.evidence import DeviceEvidence, Evidence, NodeEvidence, combine_evidence
from podslice.reading.files import MAX_TEXT_BYTES, read_stream, read_text
from podslice.reading.yaml import Dumper, load_documents
from podslice.values.assumption import Assumption
from podslice.values.document import with_header
from podslice.values.errors import InputError

Format = Literal["auto", "snapshot", "yaml", "json", "machineinfo", "hwloc-xml", "synthetic"]
DumpFormat = Literal["yaml", "json", "machineinfo", "synthetic"]

_ARCHIVE_MAGIC = (b"\xfd7zXZ\x00", b"\x1f\x8b", b"BZh")
_USTAR_OFFSET = 257
_USTAR = b"ustar"
_REMEDY = (
    "give a snapshot (folder or tar with sys/ and proc/), YAML, MachineInfo JSON, hwloc XML, a Node object, what "
    "lscpu -e and numactl -H print, a name that podslice topology --list shows, or one line such as pack:2 core:8 pu:2"
)


def load_machine(source: str | Path, format: Format = "auto") -> Machine:
    """Return the ready-made machine of a name, or the machine that a file, a folder or a text describes. Raises a
    one-line `InputError`."""
    return load_described(source, format=format).machine


def load_described(*sources: str | Path, format: Format = "auto") -> DescribedNode:
    """Return the node that the sources describe: the machine, and the configuration and devices of a Node or a
    NodeResourceTopology. Several sources are of one node, and are merged. Raises a one-line `InputError`."""
    return _node_of([evidence for source in sources for evidence in _load(source, format)])


def is_machine_source(text: str) -> bool:
    """Whether `load_machine` takes the text: a ready-made name, a path that exists, a description, or - for stdin."""
    return text == "-" or text in gallery_names() or _is_path(text) or _is_text(text)


def _load(source: str | Path, format: Format) -> list[Evidence]:
    if source == "-":
        return parse_evidence(read_text("-"), format, "stdin")
    # A ready-made name wins over a file of that name, so that scripts work in every folder.
    if isinstance(source, str) and format == "auto" and source in gallery_names():
        return [NodeEvidence(source, DescribedNode(load_gallery(source)), whole=True)]
    if isinstance(source, Path) or _is_path(source):
        return _load_path(Path(source), format)
    if format == "auto" and not _is_text(source):
        similar = [] if re.search(r"[/.]", source) else similar_names(source)
        raise InputError(
            "does not exist, and is neither a ready-made machine nor a description of one",
            source=str(source)[:80],
            remedy=f"did you mean {', '.join(similar)}?" if similar else _REMEDY,
        )
    return parse_evidence(source, format)


def _node_of(found: Sequence[Evidence]) -> DescribedNode:
    return _keep_assumptions(combine_evidence(found))


def parse_machine(text: str, format: Format = "auto", source: str = "") -> Machine:
    """Return the machine that a text describes; `source` names it in messages. Raises `InputError`."""
    return parse_described(text, format, source).machine


def parse_described(text: str, format: Format = "auto", source: str = "") -> DescribedNode:
    """Parse one text as `load_described` does. Raises `InputError`."""
    return _node_of(parse_evidence(text, format, source))


def parse_evidence(text: str, format: Format = "auto", source: str = "") -> list[Evidence]:
    """Return the facts about a node in one text, one for each command that printed a part of it. Raises
    `InputError`."""
    from podslice.machine.listings.ticket import split_ticket

    text = text.removeprefix("\ufeff").replace("\r\n", "\n")
    parts = split_ticket(text, source) if format == "auto" else []
    if len(parts) < 2:
        return [_parse_one(parts[0].text if parts else text, format, source)]
    name = f"{source}, " if source else ""
    return [_parse_one(part.text, format, f"{name}line {part.line} ({part.command})") for part in parts]


def _parse_one(text: str, format: Format, source: str) -> Evidence:
    # Readers are loaded with the first text: a ready-made machine needs none of them.
    from podslice.machine.listings.nvidia_topo import from_nvidia_topo, is_nvidia_topo
    from podslice.machine.listings.reading import read_listing
    from podslice.machine.readers.hwloc_xml import read_hwloc_xml
    from podslice.machine.readers.synthetic import read_synthetic
    from podslice.node_objects.describe_text import check_description, is_node_description, parse_node_description
    from podslice.node_objects.read_object import describes_node, read_described_node

    title = source or "the text"
    if format == "auto":
        if is_nvidia_topo(text):
            return DeviceEvidence(title, from_nvidia_topo(text, source))
        if is_node_description(text):
            return NodeEvidence(title, read_described_node([parse_node_description(text)], source), whole=False)
        if (listing := read_listing(text, source)) is not None:
            return listing
        check_description(text, source)
    kind = _sniff(text) if format == "auto" else format
    if kind == "hwloc-xml":
        return _whole(title, read_hwloc_xml(text, source))
    if kind == "synthetic":
        return _whole(title, read_synthetic(" ".join(text.split()), source))
    if kind == "snapshot":
        raise InputError("a snapshot is a folder or an archive, not text", source=source, remedy=_REMEDY)
    documents = _decode(text, source)
    if kind != "machineinfo" and describes_node(documents[0]):
        return NodeEvidence(title, read_described_node(documents, source), whole=False)
    machine = _from_documents(documents[0], kind, source)
    assumed = (*machine.assumptions, *_unlisted_cpus(machine))
    unit = _printed_unit(machine) if any(one.about == "memory-rounding" for one in assumed) else 1
    return NodeEvidence(title, DescribedNode(machine, assumed=assumed, memory_unit=unit), whole=True)


def _printed_unit(machine: Machine) -> int:
    """Return the largest unit, in bytes, of which all amounts of memory are whole numbers."""
    amounts = [node.memory for node in machine.nodes]
    return max(unit for unit in (1, 1 << 10, 1 << 20, 1 << 30) if not any(amount % unit for amount in amounts))


def _unlisted_cpus(machine: Machine) -> Iterator[Assumption]:
    """Yield a line about CPUs that are counted, but listed on no NUMA node, so that their ids are unknown."""
    counted, listed = machine.cpu_count, machine.cpus
    if counted > len(listed) > 0:
        text = f"a kubelet counts {counted} CPUs and gives out {listed}, because no NUMA node lists the others"
        yield Assumption("cpus", text)


def _whole(title: str, read: ReadMachine) -> NodeEvidence:
    return NodeEvidence(
        title, DescribedNode(read.machine, assumed=read.assumed, memory_unit=read.memory_unit), whole=True
    )


def _from_documents(data: Any, kind: Format, source: str) -> Machine:
    """Return the machine of a MachineInfo, or of our own form."""
    if isinstance(data, dict) and isinstance(data.get("machineinfo"), dict):
        data = data["machineinfo"]
    if kind == "machineinfo" or (isinstance(data, dict) and "topology" in data):
        if not isinstance(data, dict):
            raise InputError("is not a mapping", source=source, remedy="give cAdvisor's MachineInfo as JSON")
        from podslice.machine.readers.machineinfo import from_machineinfo

        return from_machineinfo(data, source)
    return from_data(data, source)


def _keep_assumptions(found: DescribedNode) -> DescribedNode:
    """Return the node with its assumptions in the machine, so that they stay with it where it is written and read."""
    # What follows from the machine itself is found again wherever it is read: with it, a written form would give
    # another machine than the one that was written.
    evident = set(_unlisted_cpus(found.machine))
    assumptions = tuple(one for one in found.assumed if one not in evident)
    return found._replace(machine=msgspec.structs.replace(found.machine, assumptions=assumptions))


def dump_machine(machine: Machine, format: DumpFormat) -> str:
    """Return the machine as text that `load_machine` reads back. Raises `InputError` where the form cannot carry it."""
    if format == "synthetic":
        from podslice.machine.readers.synthetic_writing import to_synthetic

        return to_synthetic(machine) + "\n"
    if format == "machineinfo":
        from podslice.machine.readers.machineinfo import to_machineinfo

        return json.dumps(to_machineinfo(machine), indent=1) + "\n"
    if format == "json":
        return json.dumps(with_header("Machine", to_data(machine)), indent=1, ensure_ascii=False) + "\n"
    if format not in get_args(DumpFormat):
        raise InputError(f"unknown format {format!r}", remedy=f"one of {', '.join(get_args(DumpFormat))}")
    return _dump_yaml(with_header("Machine", to_data(machine)))


def _is_path(source: str) -> bool:
    try:
        return 0 < len(source) < 4096 and "\n" not in source and Path(source).exists()
    except (OSError, ValueError):
        return False


def _is_text(source: str) -> bool:
    stripped = source.lstrip()
    return "\n" in stripped or stripped[:1] in ("<", "{") or looks_synthetic(stripped) or ": " in stripped


def _load_path(path: Path, format: Format) -> list[Evidence]:
    if path.is_dir():
        return [_captured(path)]
    try:
        with path.open("rb") as file:
            start = file.read(_USTAR_OFFSET + len(_USTAR))
            if format == "snapshot" or start.startswith(_ARCHIVE_MAGIC) or start.endswith(_USTAR):
                return [_captured(path)]
            content = start + read_stream(file, str(path), MAX_TEXT_BYTES, text=True)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(path), remedy=_REMEDY) from None
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        raise InputError(f"is not UTF-8 text (byte {error.start})", source=str(path), remedy=_REMEDY) from None
    return parse_evidence(text, format, str(path))


def _captured(path: Path) -> Evidence:
    from podslice.host.discover import discover_snapshot

    return NodeEvidence(str(path), DescribedNode(discover_snapshot(path), measured=True), whole=True)


def _sniff(text: str) -> Format:
    if text.lstrip()[:1] == "<":
        return "hwloc-xml"
    return "synthetic" if looks_synthetic(text) else "yaml"


def _decode(text: str, source: str) -> list[Any]:
    """Return the documents of a JSON or YAML text as plain data."""
    documents = load_documents(text, source)
    if not documents or isinstance(documents[0], str):
        raise InputError("describes no machine", source=source, remedy=_REMEDY)
    return documents


class _Line(dict[str, Any]):
    """A mapping written on one line."""


class _Dumper(Dumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


_Dumper.add_representer(
    _Line, lambda dumper, data: dumper.represent_mapping("tag:yaml.org,2002:map", data.items(), flow_style=True)
)


def _dump_yaml(data: dict[str, Any]) -> str:
    """Cores, caches and groups on a line each, everything else as usual."""
    data = {**data, "nodes": [{**node} for node in data["nodes"]]}
    for node in data["nodes"]:
        node["cores"] = list(map(_Line, node.get("cores", ())))
        _flatten(node)
    for node in data.get("kernelNodes", ()):
        _flatten(node)
    for key in ("caches", "coreTypes", "maxFrequencies", "groups", "pciDevices"):
        if key in data:
            data[key] = list(map(_Line, data[key]))
    if "hugepages" in data:
        _flatten(data)
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000, default_flow_style=False)


class _Row(list[Any]):
    """A list written on one line."""


_Dumper.add_representer(
    _Row, lambda dumper, data: dumper.represent_sequence("tag:yaml.org,2002:seq", data, flow_style=True)
)


def _flatten(mapping: dict[str, Any]) -> None:
    if isinstance(mapping.get("hugepages"), dict):
        mapping["hugepages"] = _Line(mapping["hugepages"])
    if isinstance(mapping.get("distances"), list):
        mapping["distances"] = _Row(mapping["distances"])
    if mapping.get("cores") == []:
        del mapping["cores"]
