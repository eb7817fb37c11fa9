"""The Node object that `kubectl describe node` printed."""

from __future__ import annotations

import re
from typing import Any

from podslice.values.errors import InputError

_SECTION = re.compile(r"([A-Z][A-Za-z ()-]*):\s*(.*)\Z")

_OF_NODES = re.compile(
    r"^(Roles|CreationTimestamp|Unschedulable|Lease|Capacity|Allocatable|System Info|Non-terminated Pods"
    r"|Allocated resources):",
    re.MULTILINE,
)
"""Sections that a description of a node has, and one of a pod has not."""


def is_node_description(text: str) -> bool:
    """Whether the text looks as if `kubectl describe node` had printed it."""
    return bool(re.match(r"\s*Name:\s+\S+\s*\n", text)) and "\nCapacity:" in text and "\nAllocatable:" in text


def check_description(text: str, source: str = "") -> None:
    """Raise `InputError` for what `kubectl describe node` printed without its beginning or its end."""
    if not is_node_description(text) and len(set(_OF_NODES.findall(text))) > 1:
        named = re.search(r"^Name:", text, re.MULTILINE) is not None
        problem = "breaks off before Allocatable:" if named else "does not begin with Name:"
        remedy = "give kubectl describe node from its first line to its last"
        raise InputError(f"is a description of a node that {problem}", source=source, remedy=remedy)


def parse_node_description(text: str) -> dict[str, Any]:
    """Return the Node with the fields that the description repeats: name, labels, amounts and system information."""
    sections = _sections(text)
    information = _entries(sections, "System Info")
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": next(iter(sections.get("Name", [])), ""),
            "labels": _entries(sections, "Labels"),
        },
        "status": {
            "capacity": _entries(sections, "Capacity"),
            "allocatable": _entries(sections, "Allocatable"),
            "nodeInfo": {
                "architecture": information.get("Architecture", ""),
                "operatingSystem": information.get("Operating System", "linux"),
                "kubeletVersion": information.get("Kubelet Version", ""),
            },
        },
    }


def _sections(text: str) -> dict[str, list[str]]:
    """Return the lines of each section: the rest of its first line, and the indented lines below."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in text.strip("\n").splitlines():
        if line[:1].strip() and (match := _SECTION.match(line)):
            title = match[1]
            found.setdefault(title, []).extend([match[2]] if match[2] else [])
        elif title and line.strip():
            found[title].append(line.strip())
    return found


def _entries(sections: dict[str, list[str]], title: str) -> dict[str, str]:
    return dict(filter(None, map(_entry, sections.get(title, []))))


def _entry(line: str) -> tuple[str, str] | None:
    """Return name and value of `name=value`, as labels are printed, or of `name: value`; None for another line."""
    if "=" in line.split(":")[0]:
        name, _, value = line.partition("=")
        return name, value
    name, colon, value = line.partition(":")
    return (name.strip(), value.strip()) if colon else None
