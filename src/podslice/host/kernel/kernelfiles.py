"""The kernel's files that say where interrupts and unbound work run; and where their old values are kept."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

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
_KERNEL_THREAD, _NO_AFFINITY = 0x00200000, 0x04000000
_FLAGS, _STARTED = 6, 19
"""Fields 9 and 22 of `/proc/PID/stat`, counted from behind the name."""
THERE = "there"
"""What a folder says that there is."""


class KernelFiles:
    """Reads and writes below a root. Raises `OSError`. Two more things are read and written like files: a path that
    ends with `/` is a folder, there or not, and `proc/PID/affinity/START` the CPUs of a kernel thread that started
    then, so that another thread that gets its number later is not it."""

    def __init__(
        self, root: str | Path = "/", *, set_affinity: Callable[[int, Iterable[int]], None] = os.sched_setaffinity
    ) -> None:
        self.root = Path(root)
        self._set_affinity = set_affinity

    def path_of(self, folder: str | Path) -> str:
        """A folder of the machine as it is called below the root."""
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
            self._affinity(int(thread[1]), int(thread[2]))
            self._set_affinity(int(thread[1]), iter_bits(parse_bits_or_empty(text)))
            return
        descriptor = os.open(self.root / path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
        try:
            os.write(descriptor, f"{text}\n".encode())
        finally:
            os.close(descriptor)

    def _affinity(self, pid: int, started: int) -> str:
        """Raises `OSError` where no such thread is left."""
        fields = self._fields(str(pid))
        allowed = _ALLOWED.search(self.read(f"proc/{pid}/status"))
        if not fields or int(fields[_STARTED]) != started or allowed is None:
            raise ProcessLookupError(f"no thread {pid} of that time")
        return allowed[1]

    def _fields(self, pid: str) -> list[str]:
        """Those of a process behind its name; none where it is gone."""
        fields = (self._text(f"proc/{pid}/stat") or "").rpartition(")")[2].split()
        complete = len(fields) > _STARTED and fields[_FLAGS].isdecimal() and fields[_STARTED].isdecimal()
        return fields if complete else []

    def kernel_threads(self) -> Iterator[str | None]:
        """Paths of the affinities of kernel threads that may be moved; None for each other process."""
        for name in self._processes():
            fields = self._fields(name)
            flags = int(fields[_FLAGS]) if fields else 0
            movable = flags & _KERNEL_THREAD and not flags & _NO_AFFINITY
            yield f"proc/{name}/affinity/{fields[_STARTED]}" if movable else None

    def commands(self, command: str) -> Iterator[tuple[int, dict[str, str]] | None]:
        """Processes of a name, with their environment as far as it can be read; None for each other process."""
        for name in self._processes():
            if (self._text(f"proc/{name}/comm") or "").strip() != command:
                yield None
                continue
            pairs = (self._text(f"proc/{name}/environ") or "").split("\0")
            yield int(name), dict(one.split("=", 1) for one in pairs if "=" in one)

    def _processes(self) -> Iterator[str]:
        return (name for name in self.names("proc") if name.isdecimal())

    def names(self, path: str) -> list[str]:
        """Names in a folder; none where there is no such folder."""
        try:
            return sorted(os.listdir(self.root / path))
        except OSError:
            return []

    def masks(self, nodes: Mapping[int, Bits]) -> Iterator[GuardedFile]:
        """Every file with a set of CPUs that a guard may change, as it is now; `nodes` are CPUs by NUMA node."""
        for name in self.names("proc/irq"):
            if name.isdecimal() and (text := self._text(f"proc/irq/{name}/smp_affinity_list")) is not None:
                node = (self._text(f"proc/irq/{name}/node") or "").strip()
                near = nodes.get(int(node), 0) if node.isdecimal() else 0
                yield GuardedFile(f"proc/irq/{name}/smp_affinity_list", "list", text, rest=near)
        for path in self._mask_paths():
            if (text := self._text(path)) is not None:
                yield GuardedFile(path, "mask", text)

    def _mask_paths(self) -> Iterator[str]:
        """Of interrupts to come, unbound workqueues, and of network queues whose packets other CPUs take (RPS)."""
        yield from ("proc/irq/default_smp_affinity", f"{_WORKQUEUES}/cpumask")
        yield from (f"{_WORKQUEUES}/{name}/cpumask" for name in self.names(_WORKQUEUES))
        yield "proc/sys/net/core/rps_default_mask"
        for device in self.names(_NETWORKS):
            queues = f"{_NETWORKS}/{device}/queues"
            yield from (f"{queues}/{name}/rps_cpus" for name in self.names(queues) if name.startswith("rx-"))

    def saved(self, files: Iterable[SavedFile]) -> Iterator[GuardedFile]:
        """Files that were changed, as they are now; without those that are gone."""
        for one in files:
            if (text := self._text(one.path)) is not None:
                yield GuardedFile(one.path, one.form, text, guard=one.guard)

    def texts(self, paths: Iterable[str]) -> dict[str, str]:
        """What files say that can be read."""
        return {path: text for path in paths if (text := self._text(path)) is not None}

    def devices_of(self, number: str) -> list[str]:
        """Names of the devices of an interrupt."""
        folder = f"proc/irq/{number}"
        return [name for name in self.names(folder) if self._is_folder(folder, name)]

    def device_of(self, path: str) -> str:
        """The name of the device of an interrupt's file, or what else the file is called."""
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
    """Old values of kernel files, written before the files are: whoever is killed in between finds them at the next
    start. Those of another boot are forgotten, since a kernel that starts has its own. `cgroups` is where they are,
    below the root of all files: no path elsewhere is taken but in `proc` and `sys`."""

    def __init__(self, directory: Path, boot_id: str, *, cgroups: str) -> None:
        self.path = directory / GUARD_STATE_FILE
        self._cgroups = cgroups
        self._boot = boot_id

    def load(self) -> dict[str, SavedFile]:
        """By path. Raises `ValueError` where the file is damaged: nothing is known of what was changed then."""
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
        """Durable when it returns. Raises `OSError`."""
        write_atomically(self.path, encode(self._boot, files.values()))


def node_cpus(files: KernelFiles) -> dict[int, Bits]:
    """CPUs by NUMA node."""
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
    """All CPUs that are online; none where the kernel does not say."""
    try:
        return parse_bits_or_empty(files.read("sys/devices/system/cpu/online").strip())
    except OSError:
        return 0
