"""A node you can ask: `Node(machine, config).admit(pod)` says whether the pod lands here, on which CPUs, and why.

The friendly face of `core.kubelet` for people and programs that want decisions rather than histories: pods are
admitted, their containers start, everything a kubelet would clean up later is cleaned up at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from podslice.core.config.kubelet import KubeletConfig
from podslice.core.effects.settings import cgroup_settings
from podslice.core.effects.tree import Pin, PodEffects, pod_effects
from podslice.core.explain import explain_refusal
from podslice.core.hints.hint import Hint
from podslice.core.kubelet import Kubelet, StartedContainer
from podslice.core.machine.devices import DeviceInventory
from podslice.core.machine.model import Machine
from podslice.core.machine.topology import CPUTopology
from podslice.core.pod.defaults import default_pod
from podslice.core.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.core.pod.spec import Pod
from podslice.core.quirks import profile as quirks_of
from podslice.core.scheduling.predicates import Refusal
from podslice.core.values.cpuset import CPUSet, format_bits


class ContainerDecision(msgspec.Struct, frozen=True, rename="camel"):
    """What one container of an admitted pod gets.

    `cpus`: the set it runs on. `isolation`: `container` (its own CPUs), `pod` (the pod's shared pool) or `host` (the
    node's shared pool). `cfs_quota`: whether CPU limits are enforced with CFS quota. `memory_nodes`: NUMA nodes its
    memory is bound to, empty for no binding. `memory`: bytes it holds there by resource, `devices`: ids by resource.
    `error` says why the container could not start although its pod was admitted. `affinity`: the Topology Manager's
    mask as NUMA ids, None for none.
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

    def linux_resources(self) -> dict[str, str]:
        """What a kubelet writes into the CRI request that creates the container: `cpuset_cpus` as a CPU list,
        `cpuset_mems` as ids without ranges; what is not written is left out (spec memory-device 3.6)."""
        request = {"cpuset_cpus": str(self.cpus), "cpuset_mems": ",".join(map(str, self.memory_nodes))}
        return {name: text for name, text in request.items() if text}


class Decision(msgspec.Struct, frozen=True, rename="camel"):
    """The answer for one pod. `reason` and `message` are upstream's; `why` is ours, in plain words.

    `pod_cpus` is the bubble of a pod with pod-level resources, None otherwise. `preempted` are the UIDs of pods that a
    critical pod pushed off the node.
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


class Node:
    """One simulated node. Raises `StartError` if a kubelet with this configuration would not start on this machine,
    and `InputError` for an unknown profile.

    `devices` are the node's plugin devices. `predicates` adds the kubelet's general predicates (OutOfcpu and the
    like) to the resource managers' decision. `files` are state files by name as a kubelet left them; `Node.files` are
    the current ones. On `cgroup_version` 1, `predicates` also refuse pods with pod-level resources.
    """

    def __init__(
        self,
        machine: Machine,
        config: KubeletConfig | None = None,
        *,
        profile: str = "podslice",
        devices: DeviceInventory | None = None,
        predicates: bool = True,
        files: Mapping[str, bytes] | None = None,
        cgroup_version: int = 2,
    ) -> None:
        self.kubelet = Kubelet(
            machine,
            config or KubeletConfig(),
            quirks_of(profile),
            devices=devices,
            predicates=predicates,
            files=files,
            cgroup_version=cgroup_version,
        )
        self.kubelet.start()

    @property
    def machine(self) -> Machine:
        return self.kubelet.machine

    @property
    def topology(self) -> CPUTopology:
        return self.kubelet.manager.cpu.topology

    @property
    def files(self) -> Mapping[str, bytes]:
        """The state files as they would be on disk now."""
        self.kubelet.save()
        return self.kubelet.files

    def admit(self, pod: Pod) -> Decision:
        """Admit a pod and start its containers. The node is unchanged when the pod is refused.

        The pod is defaulted as the API server would, so a container with limits only requests them too.
        Raises `UpstreamDefectError` in profile `kubelet-1.36` where the kubelet itself would hang or crash.
        """
        pod = default_pod(pod, self.kubelet.manager.context.gates)
        refusal = self.kubelet.admit(pod)
        admission = self.kubelet.admission(pod)
        if refusal is not None:
            self.kubelet.collect()
            return self._refused(admission, refusal)
        started = self.kubelet.start_containers(admission.uid)
        bubble = self.kubelet.manager.cpu.state.bubbles.get(admission.uid)
        decision = self._decision(
            admission,
            preempted=self.kubelet.preempted,
            pod_cpus=None if bubble is None else CPUSet.from_bits(bubble),
            containers=tuple(self._container(admission, c, started[c.name]) for c in admission.containers),
        )
        self.kubelet.collect()
        return decision

    def readmit(self, pods: Iterable[Pod]) -> list[Decision]:
        """Admit pods that run already, on state files they are in, before anything counts as gone.

        Every one keeps what the files say. Returns the refused ones. Afterwards what belongs to no pod is freed.
        """
        context = self.kubelet.manager.context
        context.sources_ready = False
        defaulted = [default_pod(pod, context.gates) for pod in pods]
        for pod in defaulted:
            context.activate(self.kubelet.admission(pod))
        refused = []
        for pod in defaulted:
            refusal = self.kubelet.admit(pod)
            if refusal is None:
                self.kubelet.start_containers(pod.metadata.uid)
            else:
                refused.append(self._refused(self.kubelet.admission(pod), refusal))
        context.sources_ready = True
        context.epoch += 1
        self.kubelet.collect()
        return refused

    def effects(self, uid: str, *, swap_capacity: int = 0) -> PodEffects:
        """Cgroup files, OOM scores and what the runtime is told about an admitted pod, with the CPUs it holds.

        `swap_capacity` in bytes is what a Machine does not say. Raises `KeyError` for pods that are not on the node.
        """
        kubelet = self.kubelet
        pod = kubelet.active[uid]
        memory = kubelet.node_resources().allocatable.get("memory")
        settings = cgroup_settings(
            kubelet.config,
            kubelet.machine,
            memory_allocatable=None if memory is None else memory.value(),
            swap_capacity=swap_capacity,
            cgroup_version=kubelet.cgroup_version,
        )
        held = {container.name: kubelet.inspect(pod, container, True) for container in pod.containers}
        pins = {
            name: Pin(format_bits(one.cpus), format_bits(one.memory_nodes), one.has_exclusive_cpus)
            for name, one in held.items()
        }
        return pod_effects(pod.spec, kubelet.manager.context.gates, settings, kubelet.quirks, pins)

    def remove(self, uid: str) -> None:
        """The pod is gone: everything it held is free again. Unknown UIDs are ignored."""
        self.kubelet.remove_pod(uid)
        self.kubelet.collect()

    def _decision(self, pod: AdmissionPod, **fields: Any) -> Decision:
        metadata = pod.spec.metadata
        fields.setdefault("admitted", True)
        return Decision(name=metadata.name, namespace=metadata.namespace, uid=pod.uid, qos=pod.qos, **fields)

    def _refused(self, pod: AdmissionPod, refusal: Refusal) -> Decision:
        why = explain_refusal(self.kubelet.manager, pod, refusal)
        return self._decision(pod, admitted=False, reason=refusal.reason, message=refusal.message, why=why)

    def _container(
        self, pod: AdmissionPod, container: AdmissionContainer, started: StartedContainer
    ) -> ContainerDecision:
        hint: Hint = self.kubelet.manager.topology.affinity(pod.uid, container.name)
        return ContainerDecision(
            name=container.name,
            kind="sidecar" if container.restartable else "init" if container.init else "container",
            cpus=CPUSet.from_bits(started.cpus),
            numa_nodes=CPUSet.from_bits(self.topology.numa_nodes_of(started.cpus)),
            memory_nodes=CPUSet.from_bits(started.memory_nodes),
            exclusive=started.isolation == "container",
            isolation=started.isolation,
            cfs_quota=self.kubelet.config.cpu_cfs_quota and not started.cpu_quota_disabled,
            affinity=None if hint.mask is None else CPUSet.from_bits(hint.mask),
            preferred=hint.preferred,
            memory={block.type: block.size for block in started.memory_blocks},
            devices=dict(started.devices),
            error=started.error,
        )
