"""A kernel's cgroups in memory, which remember what was written and watch what must hold at every moment."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.values.cpuset import Bits, format_bits, parse_bits

SHARED = "shared"


class KilledError(BaseException):
    """The process is gone; nothing after this moment happens."""


class Kernel(CgroupTree):
    """`owners` says by cgroup who it belongs to, SHARED for nobody. `lag`: how often `cpuset.cpus.effective` is read
    before it shows what was written. `before` is called before every write, `broken` cgroups refuse theirs, and of
    `shown` ones the kernel has another set than was written: by that."""

    def __init__(self, online: str) -> None:
        super().__init__("/kernel")
        self.online = parse_bits(online)
        self.files: dict[str, dict[str, str]] = {}
        self.owners: dict[str, str] = {}
        self.history: list[tuple[str, str, str]] = []
        self.lag = 0
        self.broken: dict[str, OSError] = {}
        self.shown: dict[str, dict[str, str]] = {}
        self.before: Callable[[], None] = lambda: None
        self._behind: dict[str, tuple[int, str]] = {}

    def catch_up(self) -> None:
        """Time has passed: all that was written holds."""
        self._behind.clear()

    def add(self, path: str, owner: str, cpus: str = "") -> None:
        """A cgroup; without CPUs of its own it is on all of them, as one that the runtime has just made."""
        self.files[path] = {"cpuset.cpus": cpus, "cpuset.mems": "", "cpu.max": "max 100000", "memory.max": "max"}
        self.owners[path] = owner

    def owner_of(self, path: str) -> str:
        """Return the present owner of a cgroup's CPUs."""
        return self.owners[path]

    def exists(self, path: str) -> bool:
        return path in self.files

    def on(self, path: str) -> Bits:
        """The CPUs that tasks of a cgroup can run on. Where none of its own is online, the kernel would take its
        parent's: it is for the agent to be quicker."""
        text = self.files[path]["cpuset.cpus"]
        behind = self._behind.get(path)
        old = parse_bits(behind[1]) if behind is not None and behind[1] else 0
        return (parse_bits(text) & self.online if text else self.online) | old & self.online

    def _read(self, path: str, name: str) -> str | None:
        if path not in self.files:
            return None
        if name != "cpuset.cpus.effective":
            return self.files[path].get(name)
        count, old = self._behind.get(path, (0, ""))
        if count > 1:
            self._behind[path] = count - 1, old
        else:
            self._behind.pop(path, None)
        found = format_bits(self.on(path))
        return self.shown.get(path, {}).get(found, found)

    def let_go(self) -> None:
        """Let writes that were held back take effect."""
        self._behind.clear()

    def _write(self, path: str, name: str, text: str) -> None:
        self.before()
        if path not in self.files:
            raise FileNotFoundError(2, "No such file or directory", f"{path}/{name}")
        if path in self.broken:
            raise self.broken[path]
        if name == "cpuset.cpus" and self.lag:
            self._behind[path] = self.lag, self.files[path][name]
        self.files[path][name] = text
        self.history.append((path, name, text))
        self.check()

    def check(self) -> None:
        """Invariant I: a CPU is effective for one owner's cgroups at most, or for shared ones; invariant L: a pod may
        use as much as each of its containers."""
        owners = {path: self.owner_of(path) for path in self.files}
        for one, other in combinations(self.files, 2):
            if owners[one] != owners[other] and owners[one] and owners[other]:
                both = self.on(one) & self.on(other)
                assert not both, f"{one} and {other} both run on {format_bits(both)} after {self.history[-1:]}"
        for path in self.files:
            for below in self._below(path):
                assert self._limit(path) >= self._limit(below), f"{below} may use more than {path}"

    def _below(self, path: str) -> Iterator[str]:
        return (one for one in self.files if one.startswith(f"{path}/"))

    def _limit(self, path: str) -> float:
        quota, period = self.files[path]["cpu.max"].split()
        return float("inf") if quota == "max" else int(quota) / int(period)
