"""The agent's status, as its socket returns it to `podslice status` and to programs."""

from __future__ import annotations

import msgspec

_MOST_NAMED = 3


class Drift(msgspec.Struct, frozen=True, rename="camel"):
    """One difference. `kind`: `cpus`, `mems`, `quota` or `memory`. `repaired` False: it could not be written, for the
    reason `why`; in a dry run nothing is written."""

    pod: str
    container: str
    kind: str
    wanted: str
    found: str
    repaired: bool = False
    why: str = ""


class Pools(msgspec.Struct, frozen=True):
    """The node's sets of CPUs as CPU lists: the shared pool, reserved for the system, owned by containers."""

    shared: str
    reserved: str
    exclusive: str


class ContainerReport(msgspec.Struct, frozen=True, rename="camel"):
    """The assignment of a container: CPU and memory node lists (empty: not pinned), isolation, and whether its CFS
    quota is `on` or `off`. `stranger`: it runs although the agent has not placed it. `cgroup_path` is as the runtime
    names it. `baseline`: those of its own CPUs that were promised at its admission; the others came with a resize."""

    name: str
    id: str
    cpus: str
    memory_nodes: str
    isolation: str
    quota: str
    stranger: bool
    cgroup_path: str = ""
    baseline: str = ""


class RefusalStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The reason why the node does not take a pod, or one container of an unknown pod (`container`, else empty): the
    kubelet's reason and message, and `why` in plain words. `since` is the Unix time of the first refusal, `fix` the
    best change that would help, if one is known. `waits_for` are terminating pods that make room; `rejected`: the pod
    is marked Failed, or will be when the API server can be reached."""

    container: str
    reason: str
    message: str
    why: str
    since: float = 0.0
    fix: str = ""
    waits_for: tuple[str, ...] = ()
    rejected: bool = False


class PodReport(msgspec.Struct, frozen=True):
    """A pod of this node. `refused`: the node does not take it, or a part of it, for the reasons in `refusals`. Its
    containers are refused until there is room; those that ran before run on the shared pool. `findings` are lines about
    differences from what the kubelet asked for."""

    namespace: str
    name: str
    uid: str
    admitted: bool
    refused: bool
    containers: tuple[ContainerReport, ...]
    refusals: tuple[RefusalStatus, ...] = ()
    findings: tuple[str, ...] = ()


class RejectedPod(msgspec.Struct, frozen=True):
    """A pod that was marked Failed: the kubelet's reason and message, ours in plain words, the best change that would
    have helped, and the Unix time of the refusal."""

    namespace: str
    name: str
    uid: str
    reason: str
    message: str
    why: str
    fix: str
    since: float


class ClaimedDeviceReport(msgspec.Struct, frozen=True, rename="camel"):
    """One device of a prepared claim: its request, its CPUs as a list, and bytes of its NUMA node's memory by
    resource."""

    request: str
    device: str
    cpus: str
    numa_node: int
    memory: dict[str, int] = {}


class ClaimReport(msgspec.Struct, frozen=True):
    """A claim that is prepared on this node, with the UIDs of the pods that may use it, and the containers that do."""

    namespace: str
    name: str
    uid: str
    devices: tuple[ClaimedDeviceReport, ...]
    pods: tuple[str, ...] = ()
    containers: tuple[str, ...] = ()


class AgentStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Pods, sets, pools and drift of the agent on this node.

    `ready` and `safe_mode` are problems, empty if there are none; `warnings` name known bugs of the runtime;
    `started_at` is Unix time; `pools` is null until the managers have started; `map` is the CPU map as text. `rejected`
    are the last pods that were marked Failed, oldest first. `conditions` name what the machine lacks: CPUs that are
    offline, shared CPUs, memory that pods hold; and why the kubelet may decide by another release than the agent.
    `claims` are the claims of devices that are prepared. `kubernetes` is the release that decides, such as 1.34, and
    `kubelet` the version of the kubelet by its Node object, empty while that is not known.
    """

    node: str
    machine: str
    runtime: str
    connected: bool
    observe: bool
    started_at: float
    ready: str
    safe_mode: str
    pools: Pools | None
    pods: tuple[PodReport, ...]
    drift: tuple[Drift, ...]
    map: str
    warnings: tuple[str, ...] = ()
    rejected: tuple[RejectedPod, ...] = ()
    conditions: tuple[str, ...] = ()
    claims: tuple[ClaimReport, ...] = ()
    kubernetes: str = ""
    kubelet: str = ""


def waiting_text(waits_for: tuple[str, ...]) -> str:
    """Return in words for which pods a pod waits."""
    more = f" and {len(waits_for) - _MOST_NAMED} more" if len(waits_for) > _MOST_NAMED else ""
    return f"it waits for {', '.join(waits_for[:_MOST_NAMED])}{more} to end"
