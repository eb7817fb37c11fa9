"""What a node's kernel says about exclusive CPUs, read twice: plain facts that can be kept and graded later.

Counters that could not be read are None, never 0: what nobody has seen is not good.
"""

from __future__ import annotations

import msgspec


class ThreadFacts(msgspec.Struct, frozen=True, rename="camel"):
    """A thread that does not belong to the container and may run on its CPUs. `seen`: it ran there in between.
    `kernel`: a thread of the kernel; `fixed`: one that stays on its CPU whatever anybody does."""

    id: int
    name: str
    cgroup: str
    allowed: str
    seen: bool
    kernel: bool = False
    fixed: bool = False


class InterruptFacts(msgspec.Struct, frozen=True, rename="camel"):
    """How often an interrupt came, by CPU; `number` is its line (`131`, `LOC`), `name` its device. `affinity`: where it
    may go, None where the kernel does not say."""

    number: str
    name: str
    counts: dict[int, int]
    affinity: str | None = None

    @property
    def is_device(self) -> bool:
        """A device's, not the CPU's own timer or another CPU's call."""
        return self.number.isdecimal()


class SetFacts(msgspec.Struct, frozen=True, rename="camel"):
    """Another cgroup that may run on a container's CPUs. `kind`: container, sandbox, or other (system services)."""

    path: str
    cpus: str
    kind: str


class OwnedFacts(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A container with CPUs of its own, over `IsolationFacts.seconds`. Times in seconds.

    `effective` is what it runs on, `partition` the state of its cgroup; `used`, `throttled` and `waited` are its CPU
    time, how many periods it was throttled, and the pressure that it felt; `run_delay` is how long its threads waited
    for a CPU, `migrations` how often they changed it; `memory` bytes by NUMA node; `siblings` the other threads of its
    cores, by whose they are; `first_threads`: the lowest thread of each core, where that is not all of them.
    `cache_used`: bytes of the last level cache, None where nobody counts; `moved`: bytes from and to memory, `total`
    and those within their own domain (`local`).
    """

    pod: str
    container: str
    cpus: str
    effective: str | None = None
    partition: str = ""
    used: float | None = None
    throttled: int | None = None
    waited: float | None = None
    run_delay: float | None = None
    migrations: int | None = None
    memory: dict[int, int] | None = None
    local_nodes: str = ""
    siblings: dict[str, str] = {}
    first_threads: str = ""
    others: tuple[SetFacts, ...] = ()
    threads: tuple[ThreadFacts, ...] | None = None
    cache_used: int | None = None
    moved: dict[str, int] = {}


class IsolationFacts(msgspec.Struct, frozen=True, rename="camel"):
    """All that was seen of a node within `seconds`. `busy` and `stolen` are seconds by CPU, `interrupts` counts,
    `tick` how long the kernel's clock counts at the least, in seconds. `nohz_full`: CPUs without a regular tick."""

    seconds: float
    containers: tuple[OwnedFacts, ...]
    busy: dict[int, float] = {}
    stolen: dict[int, float] = {}
    interrupts: tuple[InterruptFacts, ...] | None = None
    tick: float = 0.01
    nohz_full: str = ""
