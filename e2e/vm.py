"""The virtual machine: QEMU in software emulation, started once, then resumed from a snapshot for every scenario."""

from __future__ import annotations

import fcntl
import json
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

from e2e.packages import FetchError


class Shape(NamedTuple):
    """A machine: QEMU's topology, CPUs by NUMA node (empty: memory only), and distances between different nodes."""

    name: str
    smp: str
    nodes: tuple[str, ...]
    distance: int = 20
    near: tuple[tuple[int, int], ...] = ()
    cpu: str = "Nehalem"
    mib: int = 512
    """Memory of each NUMA node."""


NEW_KERNEL = "1x2-linux-6.12"
"""Only its kernel has partitions of cpusets for containers."""
SHAPES = {
    shape.name: shape
    for shape in (
        Shape(
            "2x2x4x2",
            "16,sockets=2,cores=4,threads=2",
            ("0-3", "4-7", "8-11", "12-15"),
            distance=21,
            near=((0, 1), (2, 3)),
        ),
        Shape("1x4-l3", "16,sockets=1,dies=4,cores=4,threads=1", ("0-3", "4-7", "8-11", "12-15"), 12),
        Shape("1x4-8l3", "16,sockets=1,dies=8,cores=2,threads=1", ("0-3", "4-7", "8-11", "12-15"), 12),
        Shape(
            "8-two-memory-only",
            "12,sockets=2,cores=3,threads=2",
            ("0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "", ""),
            distance=21,
            near=((0, 1), (0, 2), (1, 2), (3, 4), (3, 5), (4, 5)),
        ),
        Shape(NEW_KERNEL, "8,sockets=1,cores=4,threads=2", ("0-3", "4-7")),
    )
}
KERNELS = {NEW_KERNEL: "trixie"}
"""Debian's release whose kernel a machine has, where it is another one."""
_NEAR = 12
_KERNEL_LINE = (
    "console=ttyS0 quiet panic=-1 mitigations=off nokaslr tsc=nowatchdog audit=0 apparmor=0 ipv6.disable=1 "
    "random.trust_cpu=on systemd.unified_cgroup_hierarchy=1 cgroup_no_v1=all"
)


_QUOTA = "mkdir -p /sys/fs/cgroup/quota && echo 100000 >/sys/fs/cgroup/quota/cpu.max"


class GuestError(Exception):
    """Raised when a call in the guest failed; the text is the guest's."""


class StoppedError(GuestError):
    """Raised when the guest stops answering. An emulated machine as a whole may stop (docs/development/e2e.md)."""


class VirtualMachine:
    """A running guest. Use as a context; the guest and its disk's changes are gone afterwards. `devices` are more
    options of QEMU: those a snapshot was made with, whatever is behind them; `words` are more of the kernel's line."""

    def __init__(
        self,
        shape: Shape,
        folder: Path,
        kernel: Path,
        initramfs: Path,
        root: Path,
        checkout: Path,
        snapshot: Path,
        devices: tuple[str, ...] = (),
        words: str = "",
    ) -> None:
        self.shape = shape
        self._folder = folder
        self._snapshot = snapshot
        self._console = folder / "console.log"
        folder.mkdir(parents=True, exist_ok=True)
        self._command = [
            "qemu-system-x86_64", "-nodefaults", "-no-reboot", "-display", "none",
            "-machine", "q35", "-accel", "tcg,thread=multi", "-cpu", shape.cpu,
            "-m", f"{shape.mib * len(shape.nodes)}M", "-smp", shape.smp, *_numa_options(shape),
            "-kernel", str(kernel), "-initrd", str(initramfs), "-append", f"{_KERNEL_LINE} {words}",
            "-drive", f"file={root},if=none,id=root,format=raw,readonly=on", "-device", "virtio-blk-pci,drive=root",
            "-drive", f"file={checkout},if=none,id=src,format=raw,readonly=on", "-device", "virtio-blk-pci,drive=src",
            "-serial", f"file:{self._console}",
            "-device", "virtio-serial-pci",
            "-chardev", f"socket,id=rpc,path={folder}/rpc.sock,server=on,wait=off",
            "-device", "virtserialport,chardev=rpc,name=podslice",
            "-qmp", f"unix:{folder}/qmp.sock,server=on,wait=off",
            *devices,
        ]  # fmt: skip
        self._process: subprocess.Popen[bytes] | None = None
        self._rpc: socket.socket | None = None
        self._buffer = b""
        self._number = 0

    def __enter__(self) -> VirtualMachine:
        with self._snapshot.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._snapshot.exists():
                self._make_snapshot()
        self._start("-incoming", f"exec:cat {self._snapshot}")
        self._qmp_until_running()
        self._connect()
        self.keep_a_quota()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def boot_again(self) -> None:
        """Cut the power and restore it: the guest loses its memory, and writes that had not reached a disk. Returns
        when its first process answers."""
        self._stop()
        self._start()
        self._connect()

    def keep_a_quota(self) -> None:
        """From now on there is always a cgroup with a quota. With the first one and after the last one the kernel
        patches its scheduler's code, and QEMU 7.2 may go on with what it translated before: then all CPUs take the same
        trap for ever."""
        self.call("shell", command=_QUOTA)

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Pause the machine inside the block; it continues afterwards."""
        with _QMP(self._folder / "qmp.sock") as qmp:
            qmp.execute("stop")
        try:
            yield
        finally:
            with _QMP(self._folder / "qmp.sock") as qmp:
                qmp.execute("cont")

    def _make_snapshot(self) -> None:
        """Boot, wait until containerd answers, and save the machine."""
        self._start()
        try:
            self._connect()
            self.call("wait_ready", timeout=600)
            self.save(self._snapshot)
        finally:
            self._stop()

    def save(self, target: Path) -> None:
        """Write the machine as it is now, to resume from. It stands still afterwards. Raises `FetchError`."""
        with _QMP(self._folder / "qmp.sock") as qmp:
            qmp.execute("stop")
            partial = target.with_suffix(f".part-{os.getpid()}")
            qmp.execute("migrate", uri=f"exec:cat > {partial}")
            while (status := qmp.execute("query-migrate").get("status")) not in ("completed", "failed"):
                time.sleep(0.2)
        if status == "failed":
            raise FetchError("the virtual machine cannot be saved")
        partial.rename(target)

    def _start(self, *more: str) -> None:
        for name in ("rpc.sock", "qmp.sock"):
            (self._folder / name).unlink(missing_ok=True)
        try:
            self._process = subprocess.Popen(
                [*self._command, *more], stdin=subprocess.DEVNULL, stderr=(self._folder / "qemu.log").open("wb")
            )
        except FileNotFoundError:
            raise FetchError(f"{self._command[0]} is not installed (Debian: apt-get install qemu-system-x86)") from None

    def _stop(self) -> None:
        if self._rpc is not None:
            self._rpc.close()
            self._rpc = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _qmp_until_running(self) -> None:
        with _QMP(self._folder / "qmp.sock") as qmp:
            while qmp.execute("query-status")["status"] == "inmigrate":
                time.sleep(0.05)
            qmp.execute("cont")

    def _connect(self) -> None:
        self._rpc = _connect(self._folder / "rpc.sock")
        self._buffer = b""

    def call(self, function: str, timeout: float = 300, **arguments: Any) -> Any:
        """Call a function of the guest's runner. Raises `GuestError`, `StoppedError` after `timeout` seconds."""
        assert self._rpc is not None
        self._number += 1
        request = {"id": self._number, "call": function, "arguments": arguments}
        self._rpc.settimeout(timeout)
        self._rpc.sendall(json.dumps(request).encode() + b"\n")
        try:
            while True:
                while b"\n" not in self._buffer:
                    data = self._rpc.recv(65536)
                    if not data:
                        raise GuestError(f"the guest is gone: {self._last_words()}")
                    self._buffer += data
                line, self._buffer = self._buffer.split(b"\n", 1)
                answer = json.loads(line)
                if answer.get("id") == self._number:
                    break
        except TimeoutError:
            raise StoppedError(f"{function}: no answer in {timeout:.0f} s: {self._last_words()}") from None
        if "error" in answer:
            raise GuestError(f"{function}: {answer['error']}")
        return answer["result"]

    def last_output(self) -> str:
        """Return the last output of QEMU itself, about its network for example."""
        return "\n".join((self._folder / "qemu.log").read_text(errors="replace").splitlines()[-8:])

    def _last_words(self) -> str:
        words = self._console.read_text(errors="replace").strip().splitlines()[-3:] if self._console.exists() else []
        return " | ".join(words) or "its console is empty"


def _numa_options(shape: Shape) -> list[str]:
    options = []
    count = len(shape.nodes)
    for node, cpus in enumerate(shape.nodes):
        options += ["-object", f"memory-backend-ram,id=m{node},size={shape.mib}M"]
        options += ["-numa", f"node,nodeid={node},memdev=m{node}" + (f",cpus={cpus}" if cpus else "")]
    for one in range(count):
        for other in range(count):
            if one != other:
                near = (one, other) in shape.near or (other, one) in shape.near
                options += ["-numa", f"dist,src={one},dst={other},val={_NEAR if near else shape.distance}"]
    return options


def _connect(path: Path, seconds: float = 30) -> socket.socket:
    deadline = time.monotonic() + seconds
    while True:
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.connect(str(path))
            return connection
        except OSError as error:
            connection.close()
            if time.monotonic() > deadline:
                raise GuestError(f"{path.name}: {error}") from None
            time.sleep(0.05)


class _QMP:
    """QEMU's monitor."""

    def __init__(self, path: Path) -> None:
        self._file = _connect(path).makefile("rw")
        self._file.readline()
        self.execute("qmp_capabilities")

    def __enter__(self) -> _QMP:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def execute(self, command: str, **arguments: Any) -> dict[str, Any]:
        self._file.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._file.flush()
        while True:
            answer = json.loads(self._file.readline())
            if "error" in answer:
                raise GuestError(f"QEMU {command}: {answer['error']['desc']}")
            if "return" in answer:
                result: dict[str, Any] = answer["return"]
                return result
