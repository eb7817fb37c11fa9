"""What `kubectl describe node` prints, as the Node object it was printed from."""

from __future__ import annotations

import re
from typing import Any

_ENTRY = re.compile(r"(\S+)[=:]\s*(.*)\Z")
_SECTION = re.compile(r"([A-Z][A-Za-z ()-]*):\s*(.*)\Z")


def is_node_description(text: str) -> bool:
    """Whether the text looks as if `kubectl describe node` had printed it."""
    return bool(re.match(r"\s*Name:\s+\S+\s*\n", text)) and "\nCapacity:" in text and "\nAllocatable:" in text


def parse_node_description(text: str) -> dict[str, Any]:
    """Return the Node with what the description repeats of it: name, labels, amounts, and facts of its system."""
    sections = _sections(text)
    information = dict(filter(None, map(_entry, sections.get("System Info", []))))
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": " ".join(sections.get("Name", [])),
            "labels": dict(filter(None, map(_entry, sections.get("Labels", [])))),
        },
        "status": {
            "capacity": dict(filter(None, map(_entry, sections.get("Capacity", [])))),
            "allocatable": dict(filter(None, map(_entry, sections.get("Allocatable", [])))),
            "nodeInfo": {
                "architecture": information.get("Architecture", ""),
                "operatingSystem": information.get("Operating System", "linux"),
                "kubeletVersion": information.get("Kubelet Version", ""),
            },
        },
    }


def _sections(text: str) -> dict[str, list[str]]:
    """The lines of each section: what stands behind its title, and the indented lines below."""
    found: dict[str, list[str]] = {}
    title = ""
    for line in text.strip("\n").splitlines():
        if line[:1].strip() and (match := _SECTION.match(line)):
            title = match[1]
            found.setdefault(title, []).extend([match[2]] if match[2] else [])
        elif title and line.strip():
            found[title].append(line.strip())
    return found


def _entry(line: str) -> tuple[str, str] | None:
    """`name=value` of a label or `name: value`; names of system facts have blanks."""
    if "=" in line.split(":")[0]:
        name, _, value = line.partition("=")
        return name, value
    name, colon, value = line.partition(":")
    return (name.strip(), value.strip()) if colon else None
