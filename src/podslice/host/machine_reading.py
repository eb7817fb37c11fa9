"""Read the few files of a machine that change with hotplug, to see cheaply whether discovery must run again."""

from __future__ import annotations

from podslice.host.filesystem import FileSystem

_CPU, _NODE = "sys/devices/system/cpu", "sys/devices/system/node"
Reading = tuple[tuple[str, str], ...]
"""Pairs of path and text. Equal readings mean that the machine has not changed."""


def read_machine(fs: FileSystem) -> Reading:
    """Read the online CPUs and NUMA nodes, and each node's memory and huge pages."""
    found = [(path, _text(fs, path)) for path in (f"{_CPU}/online", f"{_CPU}/present", f"{_NODE}/online")]
    for name in fs.entries(_NODE):
        if not (name.startswith("node") and name[4:].isdecimal()):
            continue
        folder = f"{_NODE}/{name}"
        # Of meminfo the total only: the other lines change all the time.
        found.append((f"{folder}/meminfo", _total(_text(fs, f"{folder}/meminfo"))))
        for size in fs.entries(f"{folder}/hugepages"):
            path = f"{folder}/hugepages/{size}/nr_hugepages"
            found.append((path, _text(fs, path)))
    return tuple(found)


def _total(meminfo: str) -> str:
    return next((line for line in meminfo.splitlines() if "MemTotal:" in line), "")


def _text(fs: FileSystem, path: str) -> str:
    try:
        return fs.read(path).strip()
    except OSError:
        return ""
