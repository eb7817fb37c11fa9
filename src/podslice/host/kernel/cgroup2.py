"""Read and write CPUs, memory nodes, quota and memory of cgroups (v2) below a root path.

Paths are relative to the root and never leave it. The tree is the kernel's (`/sys/fs/cgroup`) or, in tests, plain
files in the same places.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

from podslice.values.cpuset import Bits, CPUSetError, format_bits, parse_bits

_CHUNK = 1 << 16
_DEEPEST = 24
_MOST_CGROUPS = 50_000


class CgroupValues(NamedTuple):
    """The values of a cgroup's files. None stands for a file that does not exist (the controller is off) and, for
    `quota` and `memory_max`, for no limit (`max`). Times in microseconds, memory in bytes."""

    cpus: Bits | None
    cpus_effective: Bits | None
    mems: Bits | None
    mems_effective: Bits | None
    quota: int | None
    period: int
    memory_max: int | None


@lru_cache(maxsize=4096)
def cgroup_path(cgroups_path: str) -> str | None:
    """Return the folder of an OCI `cgroupsPath`, which is a plain path, or `slice:prefix:name` of the systemd driver.
    None where it is not below the root: a runtime may keep a container where we cannot look."""
    parts = cgroups_path.split(":")
    if len(parts) == 3:
        above = slice_path(parts[0])
        return None if above is None or "/" in cgroups_path else f"{above}/{parts[1]}-{parts[2]}.scope"
    if cgroups_path.endswith(".slice") and "/" not in cgroups_path.strip("/"):
        return slice_path(cgroups_path.strip("/"))
    names = [name for name in cgroups_path.split("/") if name]
    return "/".join(names) if names and not {".", ".."} & set(names) else None


def slice_path(name: str) -> str | None:
    """Return the path of a systemd slice: `a-b.slice` is in `a.slice`. None for other names."""
    stem = name.removesuffix(".slice")
    if not name.endswith(".slice") or not stem or "/" in stem:
        return None
    steps = stem.split("-")
    return "/".join("-".join(steps[: count + 1]) + ".slice" for count in range(len(steps)))


class CgroupTree:
    """The cgroup v2 hierarchy mounted at `root`."""

    def __init__(self, root: str | Path = "/sys/fs/cgroup") -> None:
        self.root = Path(root)

    @property
    def usable(self) -> bool:
        """Whether this is a cgroup v2 mount with the controllers that we need."""
        controllers = (self._read("", "cgroup.controllers") or "").split()
        return "cpuset" in controllers and "cpu" in controllers

    def exists(self, path: str) -> bool:
        return (self.root / path).is_dir()

    def read(self, path: str) -> CgroupValues | None:
        """Return the values of a cgroup; None if it does not exist."""
        if not self.exists(path):
            return None
        quota, period = _quota(self._read(path, "cpu.max"))
        memory = self._read(path, "memory.max")
        return CgroupValues(
            cpus=_bits(self._read(path, "cpuset.cpus")),
            cpus_effective=_bits(self._read(path, "cpuset.cpus.effective")),
            mems=_bits(self._read(path, "cpuset.mems")),
            mems_effective=_bits(self._read(path, "cpuset.mems.effective")),
            quota=quota,
            period=period,
            memory_max=int(memory) if memory is not None and memory.isdecimal() else None,
        )

    def children(self, path: str) -> list[str]:
        """Return the names of the cgroups directly below one."""
        try:
            with os.scandir(self.root / path) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
        except OSError:
            return []

    def walk(self, path: str = "") -> Iterator[str]:
        """Yield a cgroup and all below it, depth first, down to `_DEEPEST` levels and `_MOST_CGROUPS` cgroups."""
        pending, seen = [path], 0
        while pending and seen < _MOST_CGROUPS:
            current = pending.pop()
            seen += 1
            yield current
            if current.count("/") < _DEEPEST:
                pending += [f"{current}/{name}" if current else name for name in reversed(self.children(current))]

    def processes(self, path: str) -> list[int]:
        """Return the ids of the processes directly in a cgroup."""
        return [int(line) for line in (self._read(path, "cgroup.procs") or "").split() if line.isdecimal()]

    def weight(self, path: str) -> int | None:
        """Return the CPU weight of a cgroup; None where it cannot be read."""
        text = self._read(path, "cpu.weight") or ""
        return int(text) if text.isdecimal() else None

    def memory_current(self, path: str) -> int:
        """Return the bytes that a cgroup uses; 0 where the memory controller is off."""
        text = self._read(path, "memory.current") or ""
        return int(text) if text.isdecimal() else 0

    def memory_by_node(self, path: str) -> dict[int, int]:
        """Return the bytes that a cgroup's processes use by NUMA node (anonymous memory and page cache); empty where
        the kernel does not report them."""
        found: dict[int, int] = {}
        for line in (self._read(path, "memory.numa_stat") or "").splitlines():
            kind, *counts = line.split()
            for node, _, count in (one.partition("=") for one in counts if kind in ("anon", "file")):
                if node[1:].isdecimal() and count.isdecimal():
                    found[int(node[1:])] = found.get(int(node[1:]), 0) + int(count)
        return found

    def cpus(self, path: str) -> Bits | None:
        """Return the CPUs that were set for a cgroup; None where they cannot be read."""
        return _bits(self._read(path, "cpuset.cpus"))

    def mems(self, path: str) -> Bits | None:
        """Return the NUMA nodes that were set for a cgroup; None where they cannot be read."""
        return _bits(self._read(path, "cpuset.mems"))

    def effective_cpus(self, path: str) -> Bits | None:
        """Return the CPUs on which a cgroup's tasks can run; None where they cannot be read."""
        return _bits(self._read(path, "cpuset.cpus.effective"))

    def write_cpus(self, path: str, cpus: Bits) -> None:
        """Write the CPUs of a cgroup. Raises `OSError`."""
        self._write(path, "cpuset.cpus", _cpu_list(cpus))

    def write_mems(self, path: str, mems: Bits) -> None:
        """Write the NUMA nodes of a cgroup. Raises `OSError`."""
        self._write(path, "cpuset.mems", format_bits(mems))

    def write_quota(self, path: str, quota: int | None, period: int) -> None:
        """Write the quota in microseconds per period; None for no limit. Raises `OSError`."""
        self._write(path, "cpu.max", f"{'max' if quota is None else quota} {period}")

    def write_weight(self, path: str, weight: int) -> None:
        """Write the CPU weight of a cgroup. Raises `OSError`."""
        self._write(path, "cpu.weight", str(weight))

    def write_memory_max(self, path: str, limit: int | None) -> None:
        """Write the memory limit in bytes; None for no limit. Raises `OSError`."""
        self._write(path, "memory.max", "max" if limit is None else str(limit))

    def _read(self, path: str, name: str) -> str | None:
        try:
            descriptor = os.open(f"{self.root}/{path}/{name}", os.O_RDONLY)
        except OSError:
            return None
        try:
            data = b""
            while chunk := os.read(descriptor, _CHUNK):
                data += chunk
            return data.decode("ascii").strip()
        except (OSError, UnicodeDecodeError):
            return None
        finally:
            os.close(descriptor)

    def _write(self, path: str, name: str, text: str) -> None:
        # One write: the kernel takes each write to such a file as a whole new value.
        descriptor = os.open(f"{self.root}/{path}/{name}", os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


_cpu_list = lru_cache(maxsize=256)(format_bits)
"""`format_bits` with a cache: a hundred containers that share the same CPUs have the same text."""


@lru_cache(maxsize=256)
def _bits(text: str | None) -> Bits | None:
    try:
        return None if text is None else parse_bits(text)
    except CPUSetError:
        return None


def _quota(text: str | None) -> tuple[int | None, int]:
    # The kernel's default: no limit, a period of 100 ms.
    first, _, second = (text or "max 100000").partition(" ")
    return int(first) if first.isdecimal() else None, int(second) if second.isdecimal() else 100_000
