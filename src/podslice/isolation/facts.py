"""Facts about exclusive CPUs between two samples of a node's kernel, which can be kept and graded later.

A counter that could not be read is None, never 0: what was not seen does not count as good.
"""

from __future__ import annotations

import msgspec


class ThreadFacts(msgspec.Struct, frozen=True, rename="camel"):
    """A thread that does not belong to the container and may run on its CPUs.

    `seen`: it ran there between the samples. `kernel`: a kernel thread. `fixed`: the kernel does not let it be moved.
    """

    id: int
    name: str
    cgroup: str
    allowed: str
    seen: bool
    kernel: bool = False
    fixed: bool = False


class InterruptFacts(msgspec.Struct, frozen=True, rename="camel"):
    """Counts of an interrupt by CPU. `number`: its line (`131`, `LOC`). `name`: its device. `affinity`: the CPUs that
    it may go to, None where the kernel does not say."""

    number: str
    name: str
    counts: dict[int, int]
    affinity: str | None = None

    @property
    def is_device(self) -> bool:
        """Whether it comes from a device, and not from the CPU's own timer or another CPU."""
        return self.number.isdecimal()


class SetFacts(msgspec.Struct, frozen=True, rename="camel"):
    """A foreign cgroup that may run on a container's CPUs. `kind`: container, sandbox, or other (system services)."""

    path: str
    cpus: str
    kind: str


class OwnedFacts(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A container with CPUs of its own, over `IsolationFacts.seconds`. Times in seconds.

    `effective`: the CPUs it runs on. `partition`: state of its cgroup.
    `used`: CPU time. `throttled`: periods. `waited`: CPU pressure (some).
    `run_delay`: time that its threads waited for a CPU. `migrations`: how often they changed it.
    `memory`: bytes by NUMA node.
    `siblings`: other hardware threads of its cores, by owner (`owner`: a container, `shared`).
    `first_threads`: the lowest hardware thread of each core, empty where these are all its CPUs.
    `cache_used`: bytes of the last level cache, None where no group of resctrl has its CPUs.
    `moved`: bytes from and to memory, `total` and within their own domain (`local`).
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
    """All facts of a node within `seconds`. `busy`, `stolen`: seconds by CPU. `interrupts`: counts. `tick`: unit of the
    kernel's CPU times in seconds. `nohz_full`: CPUs without a regular tick."""

    seconds: float
    containers: tuple[OwnedFacts, ...]
    busy: dict[int, float] = {}
    stolen: dict[int, float] = {}
    interrupts: tuple[InterruptFacts, ...] | None = None
    tick: float = 0.01
    nohz_full: str = ""
