"""`nvidia-smi topo -m`: the NUMA node of each GPU."""

from __future__ import annotations

import re

from podslice.machine.build import MAX_NODES
from podslice.machine.devices import Device, DeviceInventory, DeviceResource
from podslice.machine.listings.facts import WHOLE
from podslice.values.cpuset import CPUSetError, ids_of, parse_bits
from podslice.values.errors import InputError

GPU_RESOURCE = "nvidia.com/gpu"
_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")
_HEADER = re.compile(r"\s*GPU\d+\b.*\bCPU Affinity\b")
_ROW = re.compile(r"\s*(GPU\d+)\s+(.*\S)\s*\Z")
_HEADINGS = ("CPU Affinity", "NUMA Affinity", "GPU NUMA ID")
_REMEDY = "give all of nvidia-smi topo -m, of a driver that prints NUMA Affinity"


def is_nvidia_topo(text: str) -> bool:
    """Whether the text looks as if `nvidia-smi topo -m` had printed it."""
    return any(map(_HEADER.match, _ESCAPES.sub("", text[:65536]).splitlines()[:3]))


def from_nvidia_topo(text: str, source: str = "") -> DeviceInventory:
    """Return the GPUs, each on the NUMA node that the table says; one without a node has no topology. Raises
    `InputError`."""
    lines = _ESCAPES.sub("", text).splitlines()
    start, header = next((number, line) for number, line in enumerate(lines) if _HEADER.match(line))
    if "NUMA Affinity" not in header:
        raise InputError("has no column NUMA Affinity", source=source, remedy=_REMEDY)
    headings = sum(heading in header for heading in _HEADINGS)
    header = header.expandtabs()
    columns = len(header.split("CPU Affinity")[0].split())
    devices = []
    for line in lines[start + 1 :]:
        match = _ROW.match(line.expandtabs())
        if match is None:
            continue
        # A job whose cgroup leaves a GPU without near CPUs has a blank for them: the cells move up by one.
        cells = list(re.finditer(r"\S+", match[0]))[columns + 1 :]
        blank = 0 < len(cells) < headings and cells[0].start() > header.index("CPU Affinity")
        numa = 0 if blank else 1
        if len(cells) <= numa:
            raise InputError(f"breaks off at {match[1]}", source=source, remedy=_REMEDY)
        devices.append(Device(match[1].lower(), _numa_nodes(cells[numa][0], source)))
    if not devices:
        raise InputError("lists no GPU", source=source, remedy=_REMEDY)
    return DeviceInventory((DeviceResource(GPU_RESOURCE, tuple(devices)),))


def _numa_nodes(text: str, source: str) -> tuple[int, ...] | None:
    """Return the ids of a list such as `0` or `0-1`, None for `N/A`. Raises `InputError`."""
    if not text[0].isdigit():
        return None
    try:
        nodes = parse_bits(text)
    except CPUSetError as error:
        problem = f"{text[:20]!r} is not a list of NUMA nodes: {error.problem}"
        raise InputError(problem, source=source, remedy=WHOLE) from None
    if nodes >> MAX_NODES:
        problem = f"{text[:20]!r} has NUMA nodes that Linux does not support"
        raise InputError(problem, source=source, remedy=f"ids below {MAX_NODES}")
    return tuple(ids_of(nodes))
