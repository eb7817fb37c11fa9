"""What the agent knows about the runtime's pods and containers, and what each container should have."""

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
    """What a container should have. `cpus` 0: left alone; `mems` 0: no memory binding. `quota_off`: CPU limits are
    not enforced with CFS quota, because the CPUs are its own. `isolation`: `container`, `mixed`, `pod` or `host`;
    `own`: which of them are its own where it is mixed. `siblings`: threads of its cores that nobody runs on."""

    cpus: Bits = 0
    mems: Bits = 0
    isolation: str = "host"
    quota_off: bool = False
    own: Bits = 0
    siblings: Bits = 0

    @property
    def exclusive(self) -> Bits:
        """The CPUs that are the container's own."""
        return self.cpus if self.isolation == "container" else self.own

    @property
    def shared(self) -> Bits:
        """Those that others run on too."""
        return self.cpus & ~self.exclusive

    @property
    def owned(self) -> Bits:
        """The CPUs that are the container's own or its pod's."""
        return {"host": 0, "mixed": self.own}.get(self.isolation, self.cpus)

    @property
    def cpu_list(self) -> str:
        return format_bits(self.cpus)

    @property
    def mem_list(self) -> str:
        return ",".join(map(str, iter_bits(self.mems)))

    def write(self, resources: nri.LinuxResources) -> None:
        """Set what is to be set, and nothing else."""
        if self.cpus:
            resources.cpu.cpus = self.cpu_list
        if self.mems:
            resources.cpu.mems = self.mem_list
        if self.quota_off:
            resources.cpu.quota.value = -1


class Limits(msgspec.Struct, frozen=True):
    """What the kubelet allows a container, as it told the runtime: CFS quota and period in microseconds, memory in
    bytes. None: no limit."""

    quota: int | None = None
    period: int = 100_000
    memory: int | None = None

    def updated(self, resources: nri.LinuxResources) -> Limits:
        """After a kubelet's update, in which 0 leaves a value as it is and -1 lifts the limit."""
        cpu, memory = resources.cpu, resources.memory.limit.value
        return Limits(
            quota=self.quota if cpu.quota.value == 0 else _limit(cpu.quota.value),
            period=cpu.period.value or self.period,
            memory=self.memory if memory == 0 else _limit(memory),
        )


def _limit(value: int) -> int | None:
    return value if value > 0 else None


class ClaimedDevice(msgspec.Struct, frozen=True):
    """A device of a claim, by its place in the allocation; `claim` is the UID with `_` for `-`, as in variables."""

    claim: str
    index: int


class ContainerRecord(msgspec.Struct):
    """A container of the runtime. `unit` is the UID it was admitted under and `member` its name there; both empty for
    one that runs on the node's shared pool. `applied` is what we last gave it; `on_pool`:
    it is the node's shared pool and nothing else. `started`: its cgroup is complete. `stranger`: it was created
    without us. `kept`: what it had when the state could not be trusted. `limits`: what the kubelet asks for, None where
    the runtime does not say; `created`: what it asked for at first, None for one we did not see created. `resized`:
    they ask for another number of CPUs than it owns, `said` what people were told of that. `claims` are the devices of
    prepared claims that it was created with."""

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
    `spec` is what was asked, `moment` and `at` the state of things and the time of the answer; without `moment` it
    does not last. `since` is the Unix time of the first refusal. `final`: the node has decided so, as a kubelet would
    have rejected the pod; otherwise it is the agent that cannot know, read or keep something. `waits_for`: pods on
    their way out after which there is room; `fix`: the best change that would help."""

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
        """UID of the pod, or the part of one, that was asked for; empty where it is not known."""
        return "" if self.spec is None else self.spec.metadata.uid

    def __str__(self) -> str:
        text = f"{self.reason}: {self.message}"
        text = f"{text}; {self.why}" if self.why else text
        return f"{text}; {waiting_text(self.waits_for)}" if self.waits_for else text


class PodRecord(msgspec.Struct):
    """A pod with at least one live sandbox, or one that is to run here and has none yet. `units` are the UIDs its parts
    are admitted under: its own, or one per container for a pod nobody knows; `refusals` those of parts the node did not
    take. `decided`: nothing has to be asked before its next container; False for a pod that was refused or that nobody
    has decided about yet. `tolerated`: it ran before it was refused, so its containers stay, on the shared pool;
    `rejected`: its refusal is final, whatever becomes free; `turned_away`: when a container of it was last refused, in
    Unix time, 0 for never. `resize` says that a resize waits or is on its
    way. In thousandths of CPUs: `resized`: what a resize of the whole pod asked for that was not carried out; `limit`:
    what it may use, if known."""

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
    """What the agent remembers of its node: pods by UID, containers by ID, and prepared claims by UID. The owner and
    the ledger of claims change them in place; the parts that they are given to read them."""

    pods: dict[str, PodRecord] = msgspec.field(default_factory=dict)
    containers: dict[str, ContainerRecord] = msgspec.field(default_factory=dict)
    claims: dict[str, PreparedClaim] = msgspec.field(default_factory=dict)
