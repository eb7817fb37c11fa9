"""The documents of `kubectl podslice` about a whole cluster, or about a pod in it."""

from __future__ import annotations

from typing import Any

import msgspec

from podslice.advise.explain.documents import ExplainedPod
from podslice.advise.upgrade.engine import Upgrade
from podslice.advise.why.reported import PodEventLine
from podslice.audit.report import AuditReport
from podslice.machine.documents import FileResource
from podslice.machine.model import Machine
from podslice.status.status import ContainerReport, RefusalStatus


class PodPlacement(msgspec.Struct, frozen=True, rename="camel"):
    """The placement of a pod and its reasons. `phase`, `qos_class`, `reason` and `message` are the API server's;
    `containers`, `refusals` and `findings` the node's agent's; `problem` is why the agent did not answer or does not
    know the pod. `now` is the decision if the pod came now (a pod that runs there is removed first)."""

    namespace: str
    name: str
    uid: str
    node: str
    phase: str
    qos_class: str
    reason: str
    message: str
    problem: str
    containers: tuple[ContainerReport, ...]
    refusals: tuple[RefusalStatus, ...]
    findings: tuple[str, ...]
    events: tuple[PodEventLine, ...]
    now: ExplainedPod | None


class NUMANodeUsage(msgspec.Struct, frozen=True):
    """CPUs of a NUMA node, and how many of them a container could still get for itself."""

    id: int
    cpus: int
    free: int


class NodeUsage(msgspec.Struct, frozen=True, rename="camel"):
    """A node's exclusive CPUs. `cpus` can be owned or are, `exclusive` are owned, `free` are not (under full-pcpus-only
    those of cores of which no part is owned). `largest` is the most that is free on one NUMA node, `fragmentation` the
    percentage by which that is less than the free CPUs would be together. `problem`: why the node could not be looked
    at, or what is wrong with its agent. Numbers are null where they are unknown, and where no CPUs are exclusive."""

    node: str
    cpu_manager_policy: str
    topology_manager_policy: str
    topology_manager_scope: str
    cpus: int | None
    exclusive: int | None
    free: int | None
    numa: tuple[NUMANodeUsage, ...]
    largest: int | None
    fragmentation: int | None
    problem: str


class NodeUsageList(msgspec.Struct, frozen=True):
    """The nodes with an agent, by name."""

    items: tuple[NodeUsage, ...]


class NodeAudit(msgspec.Struct, frozen=True):
    """The audit of a node; `problem` is the reason why there is none."""

    node: str
    problem: str
    report: AuditReport | None


class NodeAuditList(msgspec.Struct, frozen=True):
    """The nodes that were audited, by name."""

    items: tuple[NodeAudit, ...]


class UpgradedNode(msgspec.Struct, frozen=True):
    """A node of a pool: the version of its kubelet (empty where only the release is known), its running pods, and how
    many of them change or are harmed on the way to the new release."""

    node: str
    kubelet: str
    pods: int
    changed: int
    harmed: int


class UpgradedPool(msgspec.Struct, frozen=True):
    """Nodes with equal machines, configurations and releases. `release` is that of their kubelets; `steps` are those to
    the new release, none where they are of it already. Changes of pods, and of state files, name their `node`."""

    nodes: tuple[UpgradedNode, ...]
    machine: str
    configuration: str
    release: str
    harms: bool
    steps: tuple[Upgrade, ...]


class UnknownUpgrade(msgspec.Struct, frozen=True):
    """A node that could not be looked at, and the reason."""

    node: str
    problem: str


class ClusterUpgradeReport(msgspec.Struct, frozen=True):
    """What the upgrade of kubelets to the release `to` does with the nodes of a cluster, pool by pool. `harms`: a step
    refuses a running pod, takes CPUs or memory from it, or its kubelet does not start."""

    to: str
    harms: bool
    pools: tuple[UpgradedPool, ...]
    unknown: tuple[UnknownUpgrade, ...]


class LivePod(msgspec.Struct, frozen=True):
    """A pod on the node: the fields of `metadata` and `spec` of a v1 Pod that decide about resources, and the
    `annotations` that a PodslicePolicy reads."""

    metadata: dict[str, str]
    spec: dict[str, Any]
    annotations: dict[str, str] = {}


class LiveNode(msgspec.Struct, frozen=True):
    """All that decides on a node: the machine, the managers' configuration (fields of a KubeletConfiguration), the pods
    in order of admission, the managers' state files by name, and plugin devices. `problem` is the reason why nothing
    can be decided, empty where it can. `policy` is the `spec` of the agent's PodslicePolicy. `kubernetes` is the
    release that decides, such as 1.34, and `kubelet` the version of the kubelet beside the agent, empty where that is
    not known."""

    node: str
    profile: str
    problem: str
    machine: Machine
    configuration: dict[str, Any]
    pods: tuple[LivePod, ...]
    files: dict[str, str]
    devices: tuple[FileResource, ...]
    policy: dict[str, Any] = {}
    kubernetes: str = ""
    kubelet: str = ""
