"""Read and write the kernel's files with the CPUs of interrupts and unbound work, and store their old values."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from podslice.guards.power import CPUPower
from podslice.host.state.statefile import write_atomically
from podslice.node.checkpoints.guard_files import GuardedFile, SavedFile
from podslice.node.checkpoints.guard_state import encode, load
from podslice.node.checkpoints.names import GUARD_STATE_FILE
from podslice.values.cpuset import Bits, iter_bits, parse_bits_or_empty
from podslice.values.go.gojson import CheckpointError

_LARGEST = 1 << 20
_WORKQUEUES, _NETWORKS = "sys/devices/virtual/workqueue", "sys/class/net"
_AFFINITY = re.compile(r"proc/(\d+)/affinity/(\d+)")
_ALLOWED = re.compile(r"^Cpus_allowed_list:\s*(\S+)$", re.MULTILINE)
# PF_KTHREAD and PF_NO_SETAFFINITY of the kernel's include/linux/sched.h.
_KERNEL_THREAD, _NO_AFFINITY = 0x00200000, 0x04000000
_FLAGS, _STARTED = 6, 19
"""Fields 9 and 22 of `/proc/PID/stat`, counted from behind the name."""
THERE = "there"
"""The text of a folder that exists."""


class KernelFiles:
    """Reads and writes files below a root. Raises `OSError`. Two more things are read and written like files: a path
    that ends with `/` is a folder, with the text `THERE` or none; and `proc/PID/affinity/START` the CPUs of a kernel
    thread with this start time, so that a later thread with the same PID is not taken for it."""

    def __init__(
        self, root: str | Path = "/", *, set_affinity: Callable[[int, Iterable[int]], None] | None = None
    ) -> None:
        self.root = Path(root)
        self._set_affinity = set_affinity or os.sched_setaffinity

    def path_of(self, folder: str | Path) -> str:
        """Return the path of a folder relative to the root."""
        return os.path.relpath(folder, self.root)

    def read(self, path: str) -> str:
        if path.endswith("/"):
            return THERE if (self.root / path).is_dir() else ""
        thread = _AFFINITY.fullmatch(path)
        if thread is not None:
            return self._affinity(int(thread[1]), int(thread[2]))
        with open(self.root / path, "rb") as file:
            return file.read(_LARGEST).decode("ascii", "replace")

    def write(self, path: str, text: str) -> None:
        if path.endswith("/"):
            (os.mkdir if text else os.rmdir)(self.root / path)
            return
        thread = _AFFINITY.fullmatch(path)
        if thread is not None:
            # Raises where the PID belongs to another thread by now.
            self._affinity(int(thread[1]), int(thread[2]))
            self._set_affinity(int(thread[1]), iter_bits(parse_bits_or_empty(text)))
            return
        descriptor = os.open(self.root / path, os.O_WRONLY | os.O_TRUNC)
        try:
            os.write(descriptor, f"{text}\n".encode())
        finally:
            os.close(descriptor)

    def _affinity(self, pid: int, started: int) -> str:
        """Return the CPU list of a thread. Raises `ProcessLookupError` where it has ended."""
        fields = self._fields(str(pid))
        allowed = _ALLOWED.search(self.read(f"proc/{pid}/status"))
        if not fields or int(fields[_STARTED]) != started or allowed is None:
            raise ProcessLookupError(f"no thread {pid} of that time")
        return allowed[1]

    def _fields(self, pid: str) -> list[str]:
        """Return the fields of `/proc/PID/stat` behind the name; empty where the process has ended."""
        # From the last parenthesis on: a name may contain blanks and parentheses itself.
        fields = (self._text(f"proc/{pid}/stat") or "").rpartition(")")[2].split()
        complete = len(fields) > _STARTED and fields[_FLAGS].isdecimal() and fields[_STARTED].isdecimal()
        return fields if complete else []

    def kernel_threads(self) -> Iterator[str | None]:
        """Yield the affinity paths of kernel threads that may be moved, and None for each other process, so that a
        caller can pause between two."""
        for name in self._processes():
            fields = self._fields(name)
            flags = int(fields[_FLAGS]) if fields else 0
            movable = flags & _KERNEL_THREAD and not flags & _NO_AFFINITY
            yield f"proc/{name}/affinity/{fields[_STARTED]}" if movable else None

    def commands(self, command: str) -> Iterator[tuple[int, dict[str, str]] | None]:
        """Yield PID and environment (as far as it can be read) of processes with this name; None for each other
        process."""
        for name in self._processes():
            if (self._text(f"proc/{name}/comm") or "").strip() != command:
                yield None
                continue
            pairs = (self._text(f"proc/{name}/environ") or "").split("\0")
            yield int(name), dict(one.split("=", 1) for one in pairs if "=" in one)

    def _processes(self) -> Iterator[str]:
        return (name for name in self.names("proc") if name.isdecimal())

    def names(self, path: str) -> list[str]:
        """Return the names in a folder; none where there is no such folder."""
        try:
            return sorted(os.listdir(self.root / path))
        except OSError:
            return []

    def masks(self, nodes: Mapping[int, Bits]) -> Iterator[GuardedFile]:
        """Yield every file with a CPU set that a guard may change, with its content; `nodes` are CPUs by NUMA node."""
        for name in self.names("proc/irq"):
            if name.isdecimal() and (text := self._text(f"proc/irq/{name}/smp_affinity_list")) is not None:
                node = (self._text(f"proc/irq/{name}/node") or "").strip()
                near = nodes.get(int(node), 0) if node.isdecimal() else 0
                yield GuardedFile(f"proc/irq/{name}/smp_affinity_list", "list", text, rest=near)
        for path in self._mask_paths():
            if (text := self._text(path)) is not None:
                yield GuardedFile(path, "mask", text)

    def _mask_paths(self) -> Iterator[str]:
        """Yield the paths of masks: of future interrupts, unbound workqueues, and of network queues whose packets other
        CPUs process (RPS)."""
        yield from ("proc/irq/default_smp_affinity", f"{_WORKQUEUES}/cpumask")
        yield from (f"{_WORKQUEUES}/{name}/cpumask" for name in self.names(_WORKQUEUES))
        yield "proc/sys/net/core/rps_default_mask"
        for device in self.names(_NETWORKS):
            queues = f"{_NETWORKS}/{device}/queues"
            yield from (f"{queues}/{name}/rps_cpus" for name in self.names(queues) if name.startswith("rx-"))

    def read_saved(self, files: Iterable[SavedFile]) -> Iterator[GuardedFile]:
        """Yield files that were changed, with their present content; those that no longer exist are left out."""
        for one in files:
            if (text := self._text(one.path)) is not None:
                yield GuardedFile(one.path, one.form, text, guard=one.guard)

    def texts(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the texts of those files that can be read, by path."""
        return {path: text for path in paths if (text := self._text(path)) is not None}

    def devices_of(self, number: str) -> list[str]:
        """Return the names of the devices of an interrupt."""
        folder = f"proc/irq/{number}"
        return [name for name in self.names(folder) if self._is_folder(folder, name)]

    def device_of(self, path: str) -> str:
        """Return a name of a file for messages: of an interrupt with its devices, of a kernel thread, else the path."""
        parts = path.split("/")
        if thread := _AFFINITY.fullmatch(path):
            return f"kernel thread {thread[1]} ({(self._text(f'proc/{thread[1]}/comm') or 'gone').strip()})"
        if len(parts) == 4 and parts[2].isdecimal():
            actions = self.devices_of(parts[2])
            return f"irq {parts[2]}" + (f" ({', '.join(actions)})" if actions else "")
        return f"/{path}"

    def _is_folder(self, folder: str, name: str) -> bool:
        return (self.root / folder / name).is_dir()

    def _text(self, path: str) -> str | None:
        try:
            return self.read(path)
        except OSError:
            return None


class SavedStore:
    """The file with the old values of kernel files. It is written before they are, so that an agent that is killed in
    between finds the values when it starts again. Values of another boot are ignored, since a kernel starts with its
    own. `cgroups` is the path of the cgroup tree below the root: entries outside of it, `proc` and `sys` are
    refused."""

    def __init__(self, directory: Path, boot_id: str, *, cgroups: str) -> None:
        self.path = directory / GUARD_STATE_FILE
        self._cgroups = cgroups
        self._boot = boot_id

    def load(self) -> dict[str, SavedFile]:
        """Return the old values by path. Raises `ValueError` where the file is damaged: it is then not known what was
        changed."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return {}
        try:
            found = load(data, self._cgroups)
        except CheckpointError as error:
            raise ValueError(f"{self.path} cannot be read: {error}") from None
        return {one.path: one for one in found.files} if found.boot_id == self._boot else {}

    def save(self, files: Mapping[str, SavedFile]) -> None:
        """Write the old values; they are on the disk when it returns. Raises `OSError`."""
        write_atomically(self.path, encode(self._boot, files.values()))


def node_cpus(files: KernelFiles) -> dict[int, Bits]:
    """Return the CPUs of each NUMA node."""
    found = {}
    for name in files.names("sys/devices/system/node"):
        if name.startswith("node") and name[4:].isdecimal():
            try:
                found[int(name[4:])] = parse_bits_or_empty(
                    files.read(f"sys/devices/system/node/{name}/cpulist").strip()
                )
            except OSError:
                continue
    return found


def online_cpus(files: KernelFiles) -> Bits:
    """Return the online CPUs; none where the file cannot be read."""
    try:
        return parse_bits_or_empty(files.read("sys/devices/system/cpu/online").strip())
    except OSError:
        return 0


CPUS: Final = "sys/devices/system/cpu"
_FREQUENCIES = {"min": "cpuinfo_min_freq", "base": "base_frequency", "turbo": "cpuinfo_max_freq"}


def read_power(files: KernelFiles, cpu: int) -> CPUPower:
    """Return the settings of a CPU; those without a file are empty, as often on virtual machines."""
    folder = f"{CPUS}/cpu{cpu}"
    clock, idle = f"{folder}/cpufreq", f"{folder}/cpuidle"
    states = [name for name in files.names(idle) if name.startswith("state")]
    names = (
        *(f"{clock}/{name}" for name in ("related_cpus", "scaling_available_governors", *_FREQUENCIES.values())),
        f"{clock}/energy_performance_preference",
        f"{folder}/power/pm_qos_resume_latency_us",
        *(f"{idle}/{state}/name" for state in states),
    )
    texts = {path: text.strip() for path, text in files.texts(names).items()}
    return CPUPower(
        parse_bits_or_empty(",".join(texts.get(f"{clock}/related_cpus", "").split())),
        tuple(texts.get(f"{clock}/scaling_available_governors", "").split()),
        f"{clock}/energy_performance_preference" in texts,
        {word: texts[f"{clock}/{name}"] for word, name in _FREQUENCIES.items() if f"{clock}/{name}" in texts},
        f"{folder}/power/pm_qos_resume_latency_us" in texts,
        {state: texts[f"{idle}/{state}/name"] for state in states if f"{idle}/{state}/name" in texts},
    )
