"""Records of the runtime's pods and containers, and of what each container should have."""

from __future__ import annotations

import msgspec

from podslice.api.pod.spec import Pod
from podslice.dra.prepared import PreparedClaim
from podslice.service.identity import Identity
from podslice.service.proto import nri_pb2 as nri
from podslice.status.status import waiting_text
from podslice.values.cpuset import Bits, format_bits, iter_bits

ISOLATION_ENV = "PODSLICE_ISOLATION"
CPUS_ENV = "PODSLICE_CPUS"
MEMS_ENV = "PODSLICE_MEMS"
FILE_ENV = "PODSLICE_FILE"
EXCLUSIVE_ENV = "PODSLICE_EXCLUSIVE_CPUS"
SHARED_ENV = "PODSLICE_SHARED_CPUS"
SIBLINGS_ENV = "PODSLICE_RESERVED_SIBLINGS"


class Pinning(msgspec.Struct, frozen=True):
    """The CPUs, NUMA nodes and quota that a container should have.

    `cpus` 0: not set; `mems` 0: memory is not bound. `quota_off`: no CFS quota, because the CPUs are the container's
    own. `isolation`: `container`, `mixed`, `pod` or `host`; `own`: its exclusive CPUs where it is `mixed`. `siblings`:
    hyperthreads of its cores that stay idle.
    """

    cpus: Bits = 0
    mems: Bits = 0
    isolation: str = "host"
    quota_off: bool = False
    own: Bits = 0
    siblings: Bits = 0

    @property
    def exclusive(self) -> Bits:
        """The container's exclusive CPUs."""
        return self.cpus if self.isolation == "container" else self.own

    @property
    def shared(self) -> Bits:
        """The CPUs that other containers run on too."""
        return self.cpus & ~self.exclusive

    @property
    def owned(self) -> Bits:
        """The CPUs that belong to the container or to its pod."""
        return {"host": 0, "mixed": self.own}.get(self.isolation, self.cpus)

    @property
    def cpu_list(self) -> str:
        return format_bits(self.cpus)

    @property
    def mem_list(self) -> str:
        return ",".join(map(str, iter_bits(self.mems)))

    def write(self, resources: nri.LinuxResources) -> None:
        """Set the values that are to be set, and leave all others out."""
        if self.cpus:
            resources.cpu.cpus = self.cpu_list
        if self.mems:
            resources.cpu.mems = self.mem_list
        if self.quota_off:
            resources.cpu.quota.value = -1


def quota_returns(applied: Pinning, wanted: Pinning, limits: Limits | None) -> bool:
    """Whether a container that had no quota, because its CPUs were its own, gets the kubelet's again: it shares now."""
    return applied.quota_off and not wanted.quota_off and limits is not None and limits.quota is not None


class Limits(msgspec.Struct, frozen=True):
    """Limits that the kubelet passed to the runtime: CFS quota and period in microseconds, memory in bytes. None: no
    limit."""

    quota: int | None = None
    period: int = 100_000
    memory: int | None = None

    def updated(self, resources: nri.LinuxResources) -> Limits:
        """Return the limits after a kubelet's update, in which 0 leaves a value as it is and -1 lifts the limit."""
        cpu, memory = resources.cpu, resources.memory.limit.value
        return Limits(
            quota=self.quota if cpu.quota.value == 0 else _limit(cpu.quota.value),
            period=cpu.period.value or self.period,
            memory=self.memory if memory == 0 else _limit(memory),
        )

    def write_quota(self, resources: nri.LinuxResources) -> None:
        """Set the quota, where there is one."""
        if self.quota is not None:
            resources.cpu.quota.value, resources.cpu.period.value = self.quota, self.period


def _limit(value: int) -> int | None:
    return value if value > 0 else None


class ClaimedDevice(msgspec.Struct, frozen=True):
    """A device of a claim, by its index in the allocation; `claim` is the UID with `_` for `-`, as in variables."""

    claim: str
    index: int


class ContainerRecord(msgspec.Struct):
    """A container of the runtime.

    `unit`: UID under which it was admitted, `member`: its name there; both empty for a container on the node's shared
    pool. `applied`: the pinning it was last given; `on_pool`: that is the node's shared pool and nothing else.
    `started`: its cgroup is complete. `stranger`: it was created without the agent. `kept`: its pinning when safe mode
    began. `limits`: what the kubelet asks for, None where the runtime does not report it; `created`: what it asked for
    at the creation, None for a container that the agent did not see created. `resized`: these differ from the CPUs it
    owns; `said`: the text in which that was reported. `claims`: devices of prepared claims that it was created with.
    """

    id: str
    name: str
    pod_uid: str
    sandbox: str
    cgroups_path: str = ""
    unit: str = ""
    member: str = ""
    applied: Pinning = Pinning()
    on_pool: bool = False
    started: bool = False
    stranger: bool = False
    kept: Pinning | None = None
    limits: Limits | None = None
    created: Limits | None = None
    resized: bool = False
    said: str = ""
    claims: tuple[ClaimedDevice, ...] = ()


class SandboxRecord(msgspec.Struct):
    """A pod sandbox of the runtime."""

    id: str
    identity: Identity
    stopped: bool = False


class ReportedRefusal(msgspec.Struct, frozen=True):
    """Why the node does not take a pod or a container: the kubelet's reason and message, and ours in plain words.

    `spec`: the refused specification. `moment`: counter of changes at the decision; without it the refusal is not
    repeated. `at`: time of the decision in seconds of the agent's clock; `since`: Unix time of the first refusal.
    `final`: the node decided so, as a kubelet would reject the pod; otherwise the agent cannot know, read or keep
    something. `waits_for`: terminating pods that will leave enough room; `fix`: the best change that would help.
    """

    reason: str
    message: str
    why: str = ""
    spec: Pod | None = None
    moment: int | None = None
    at: float = 0.0
    final: bool = False
    since: float = 0.0
    waits_for: tuple[str, ...] = ()
    fix: str = ""

    @property
    def of(self) -> str:
        """UID of the refused pod or part of a pod; empty where it is not known."""
        return "" if self.spec is None else self.spec.metadata.uid

    def __str__(self) -> str:
        text = f"{self.reason}: {self.message}"
        text = f"{text}; {self.why}" if self.why else text
        return f"{text}; {waiting_text(self.waits_for)}" if self.waits_for else text


class PodRecord(msgspec.Struct):
    """A pod with at least one live sandbox, or one that is to run here and has none yet.

    `units`: UIDs under which its parts are admitted: its own, or one per container for an unknown pod. `refusals`:
    those of refused parts, by the same UIDs. `decided`: no source has to be asked before its next container; False for
    a pod that was refused or not yet decided about. `tolerated`: it ran before it was refused, so its containers stay,
    on the shared pool. `rejected`: its refusal is final, whatever becomes free. `turned_away`: Unix time of the latest
    refusal of a container, 0 for none. `resize`: text about a resize that waits or runs. In thousandths of a CPU:
    `resized`: limit of a resize of the whole pod that was not carried out; `limit`: what the pod may use, None if
    unknown.
    """

    identity: Identity
    sandboxes: set[str] = msgspec.field(default_factory=set)
    units: set[str] = msgspec.field(default_factory=set)
    refusals: dict[str, ReportedRefusal] = msgspec.field(default_factory=dict)
    decided: bool = False
    tolerated: bool = False
    resized: int | None = None
    resize: str = ""
    limit: int | None = None
    rejected: bool = False
    turned_away: float = 0.0


class NodeRecords(msgspec.Struct, frozen=True):
    """Records of the node's pods by UID, containers by id, and prepared claims by UID. The owner and its parts share
    them."""

    pods: dict[str, PodRecord] = msgspec.field(default_factory=dict)
    containers: dict[str, ContainerRecord] = msgspec.field(default_factory=dict)
    claims: dict[str, PreparedClaim] = msgspec.field(default_factory=dict)
