"""Answers of a node as frozen values: to an admission and to a resize."""

from __future__ import annotations

import msgspec

from podslice.api.pod.event import PodEvent
from podslice.node.resize.events import ResizeCondition
from podslice.values.cpuset import CPUSet
from podslice.values.shown import Shown


class ContainerDecision(msgspec.Struct, frozen=True, rename="camel"):
    """Grant of one container of an admitted pod.

    `cpus`: the set it runs on; for isolation `host` the shared pool at the admission, which changes with later pods.
    `exclusive_cpus`: those of them that it owns. `isolation`: `container` (it owns all), `mixed` (it owns some), `pod`
    (the pod's shared pool) or `host` (the node's shared pool). `numa_nodes`: those of its CPUs, for `mixed` of the
    owned ones. `cfs_quota`: whether CPU limits are enforced with CFS quota. `memory_nodes`: NUMA nodes its memory is
    bound to, empty for no binding. `memory`: bytes it holds there by resource, `devices`: ids by resource, on
    `device_nodes`. `error`: why the container could not start although its pod was admitted. `affinity`: the Topology
    Manager's mask as NUMA ids, None for none; `affinities`: that of each resource, where each has its own.
    `during_init`: for a sidecar on its pod's shared pool, the CPUs it runs on while the named init container runs,
    which owns some of them meanwhile.
    """

    name: str
    kind: str
    cpus: CPUSet
    numa_nodes: CPUSet
    memory_nodes: CPUSet
    exclusive: bool
    isolation: str
    cfs_quota: bool
    affinity: CPUSet | None
    preferred: bool
    memory: dict[str, int] = {}
    devices: dict[str, list[str]] = {}
    error: str = ""
    during_init: dict[str, CPUSet] = {}
    exclusive_cpus: CPUSet = msgspec.field(default=CPUSet(), name="exclusiveCPUs")
    affinities: dict[str, CPUSet] = {}
    device_nodes: CPUSet = CPUSet()

    @property
    def aligned(self) -> bool:
        """Whether it owns CPUs, memory of NUMA nodes or devices, and all of them are on one NUMA node."""
        nodes = self.memory_nodes | self.device_nodes
        if self.exclusive_cpus:
            nodes |= self.numa_nodes
        return len(nodes) == 1

    def linux_resources(self) -> dict[str, str]:
        """Return the fields of the CRI request that creates the container, as a kubelet sets them: `cpuset_cpus` as a
        CPU list, `cpuset_mems` as ids without ranges; empty ones are left out (memory-device 3.6)."""
        request = {"cpuset_cpus": str(self.cpus), "cpuset_mems": ",".join(map(str, self.memory_nodes))}
        return {name: text for name, text in request.items() if text}


class Decision(Shown, msgspec.Struct, frozen=True, rename="camel"):
    """The answer for one pod. `reason` and `message` are upstream's; `why` is podslice's own explanation.

    `pod_cpus` are the CPUs of a pod with pod-level resources, None otherwise. `preempted` are the UIDs of pods that a
    critical pod preempted. `events` are for the owner of an admitted pod. `ended_early` names searches whose result is
    not proven to be the best, on machines with more than 8 NUMA nodes (docs/development/merge.md).
    """

    name: str
    namespace: str
    uid: str
    qos: str
    admitted: bool
    reason: str = ""
    message: str = ""
    why: str = ""
    pod_cpus: CPUSet | None = None
    preempted: tuple[str, ...] = ()
    containers: tuple[ContainerDecision, ...] = ()
    events: tuple[PodEvent, ...] = ()
    ended_early: tuple[str, ...] = ()

    @property
    def aligned(self) -> bool:
        """Whether the pod is admitted, a container of it owns CPUs, memory of NUMA nodes or devices, and each that does
        has all of them on one NUMA node. A pod that owns nothing is not aligned."""
        owning = [one for one in self.containers if one.exclusive_cpus or one.memory_nodes or one.device_nodes]
        return self.admitted and bool(owning) and all(one.aligned for one in owning)

    def __repr__(self) -> str:
        verdict = f"admitted, {self.qos}" if self.admitted else f"refused, {self.reason}"
        owned = "".join(f", {one.name} {one.exclusive_cpus}" for one in self.containers if one.exclusive_cpus)
        return f"<Decision {self.namespace or 'default'}/{self.name}: {verdict}{owned}>"


class ResizeDecision(Shown, msgspec.Struct, frozen=True, rename="camel"):
    """The answer to one in-place resize (pod-level-resources 15.4, 15.5).

    `outcome`: `Allocated`, `Deferred` (waits and is retried), `Infeasible` (not before the pod changes again) or
    `Unchanged`. `message` is upstream's, `detail` the label of its metric for an infeasible resize. `condition` is the
    resulting pod condition. `others` are waiting pods that were tried in the same pass. `restarts` names the containers
    that restart with a granted resize, as their resizePolicy says.
    """

    name: str
    namespace: str
    uid: str
    outcome: str
    message: str = ""
    detail: str = ""
    trigger: str = ""
    condition: ResizeCondition | None = None
    events: tuple[PodEvent, ...] = ()
    others: tuple[ResizeDecision, ...] = ()
    restarts: tuple[str, ...] = ()
