"""A node you can ask: `Node(machine, config).admit(pod)` says whether the pod lands here, on which CPUs, and why.

The friendly face of `node.kubelet` for people and programs that want decisions rather than histories: pods are
admitted, their containers start, everything a kubelet would clean up later is cleaned up at once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.event import PodEvent
from podslice.api.pod.mixed import MixedShare
from podslice.api.pod.spec import Pod, PodAllocation, allocated_pod, allocation_of
from podslice.api.server.defaults import default_pod
from podslice.config.annotations import MIXED, SMT, AnnotationProblem, annotation_problems
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, Hotplug, PodslicePolicy, check_policy
from podslice.config.validation import validate
from podslice.machine.delta import MachineConsequence
from podslice.machine.devices import Device, DeviceInventory
from podslice.machine.model import CPUTopology, Machine
from podslice.node import node_resize, readmission
from podslice.node.checkpoints.allocation import encode, load, restore_failure
from podslice.node.checkpoints.names import ALLOCATED_STATE_FILE
from podslice.node.checkpoints.restore import REMEDY
from podslice.node.checkpoints.stand_ins import STAND_IN_NAMESPACE
from podslice.node.context import ReleasedCPUs
from podslice.node.cpu.state import OWNING
from podslice.node.decision import ContainerDecision, Decision, ResizeDecision
from podslice.node.devices.plugin import DevicePlugin, RunOptions
from podslice.node.effects.settings import cgroup_settings
from podslice.node.effects.tree import Pin, PodEffects, pod_effects
from podslice.node.kubelet import Kept, Kubelet, StartedContainer
from podslice.node.node_resize import resize_decisions, resize_wish
from podslice.node.plugins.api import CPUEffects
from podslice.node.plugins.classes import CPUClasses, fallback_of
from podslice.node.refusal import explain_refusal
from podslice.node.resize.pending import PendingResize, RetryTrigger
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.node.topology.hint import Hint
from podslice.node.view import NodeView
from podslice.scheduling.pod_features import ignored_pod_level_events
from podslice.values.cpuset import CPUSet, format_bits
from podslice.values.errors import InputError, Refusal, StartError, StartKind, UpstreamDefectError
from podslice.values.gates import join_errors, with_pod_level
from podslice.values.go.gojson import CheckpointError
from podslice.values.quirks import PODSLICE, PROFILES
from podslice.values.reasons import CLASS_FALLBACK, INVALID_ANNOTATION, PLUGIN_ERROR
from podslice.values.series import Series

__all__ = ["ContainerDecision", "Decision", "Node", "ResizeDecision"]

_UNCOUNTED: Mapping[Series, int] = MappingProxyType({})
_INVALID = StartKind("invalid-configuration", "{problems}")
_CRASH = StartKind("upstream-defect", "a v1.36.2 kubelet crashes here: {defect}", REMEDY)
_BROKEN_RECORD = StartKind("broken-record", "{error}")


class Node:
    """One simulated node: rules, and a current state that is a value. Raises `StartError` if a kubelet with this
    configuration would not start on this machine, and `InputError` for an unknown profile or something else than is
    meant.

    `devices` are the node's plugin devices. `predicates` adds the kubelet's general predicates (OutOfcpu and the
    like) and its check of pod features to the resource managers' decision; `cgroup_version` matters to the latter.
    `files` are state files by name as a kubelet left them, `allocated_pods_state` among them if the pods that run were
    resized; `Node.files` are the current ones. `policy` is what podslice does beyond a kubelet.
    """

    __slots__ = ("__weakref__", "_counters", "_kept", "_kubelet", "_rules", "_state")

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
        policy: PodslicePolicy = NO_POLICY,
    ) -> None:
        _meant(machine, Machine, "machine", "load_machine(…) makes one")
        _meant(config or KubeletConfig(), KubeletConfig, "config", "load_kubelet_config(…).config is one")
        _meant(devices or DeviceInventory(), DeviceInventory, "devices", "DeviceInventory is made of DeviceResources")
        _meant(policy, PodslicePolicy, "policy", "PodslicePolicy() is one that asks for nothing")
        quirks = PROFILES[profile]
        if policy is not NO_POLICY:
            check_policy(policy, quirks)
        kubelet = Kubelet(
            machine,
            config or KubeletConfig(),
            quirks,
            devices=devices,
            predicates=predicates,
            files=files,
            cgroup_version=cgroup_version,
            policy=policy,
        )
        problems = validate(kubelet.config)
        if problems:
            raise StartError("configuration", _INVALID, problems=join_errors(list(dict.fromkeys(map(str, problems)))))
        kubelet.granted = _granted(files or {})
        try:
            kubelet.start()
        except UpstreamDefectError as defect:
            raise StartError("startMemoryManager", _CRASH, defect=str(defect)) from defect
        self._hold(kubelet.rules, kubelet.state, kubelet.kept, kubelet.manager.context.metrics)

    @classmethod
    def of(cls, rules: NodeRules, state: NodeState) -> Node:
        """The node that these rules and this state describe. Nodes of the same rules share them."""
        node: Node = cls.__new__(cls)
        node._hold(rules, state, None, _UNCOUNTED)
        return node

    def _hold(self, rules: NodeRules, state: NodeState, kept: Kept | None, counters: Mapping[Series, int]) -> None:
        self._rules, self._state, self._kept, self._counters = rules, state, kept, counters
        self._kubelet: Kubelet | None = None

    def __repr__(self) -> str:
        return f"<Node {self.machine.name or 'machine'}: {self.machine.cpu_count} CPUs, pods: {len(self.pods)}>"

    @property
    def kubelet(self) -> Kubelet:
        """What acts on the node's state; it is made when it is first needed."""
        if self._kubelet is None:
            self._kubelet = Kubelet.of(self._rules, self._state, self._kept)
            self._kubelet.manager.context.metrics = defaultdict(int, self._counters)
        return self._kubelet

    @property
    def rules(self) -> NodeRules:
        """What the node decides by: equal nodes of one machine and configuration share it."""
        return self._rules if self._kubelet is None else self._kubelet.rules

    @property
    def state(self) -> NodeState:
        """All that changes on the node, as a value. Setting it takes the node there, whatever happened since."""
        return self._state if self._kubelet is None else self._kubelet.state

    @state.setter
    def state(self, state: NodeState) -> None:
        if self._kubelet is None:
            self._state = state
        else:
            self._kubelet.state = state

    @property
    def view(self) -> NodeView:
        """The node as it is now, as a value: its rules, its pods, and who holds what."""
        return self.kubelet.view

    @property
    def machine(self) -> Machine:
        """The machine the kubelet runs on."""
        return self.kubelet.machine

    @property
    def topology(self) -> CPUTopology:
        """The machine's CPUs as the CPU Manager sees them."""
        return self.kubelet.manager.cpu.topology

    @property
    def pods(self) -> tuple[str, ...]:
        """UIDs of the pods on the node, in order of admission."""
        return tuple(self.kubelet.active)

    @property
    def reserved_cpus(self) -> CPUSet:
        """CPUs kept for the system: no container owns them, all may run there unless the reservation is strict."""
        return CPUSet.from_bits(self.kubelet.manager.cpu.reserved)

    @property
    def shared_cpus(self) -> CPUSet:
        """The node's shared pool: where containers run that own no CPUs. Empty with CPU manager policy none."""
        return CPUSet.from_bits(self.kubelet.manager.cpu.state.default)

    @property
    def assignable_cpus(self) -> CPUSet:
        """CPUs of the shared pool that a container may still get for itself. A pod that wants more is refused for
        certain; one that wants fewer may be, for their place."""
        return CPUSet.from_bits(self.kubelet.manager.cpu.assignable)

    @property
    def files(self) -> Mapping[str, bytes]:
        """The state files as they would be on disk now: the managers' and `allocated_pods_state`. The other record,
        `actuated_pods_state`, belongs to whoever writes cgroups."""
        return {**self.manager_files, ALLOCATED_STATE_FILE: encode(self.kubelet.allocations())}

    @property
    def mixed_shares(self) -> Mapping[str, Mapping[str, MixedShare]]:
        """Containers with exclusive and shared CPUs, by pod UID and name, and how much of each."""
        return self.kubelet.manager.mixed

    @property
    def manager_files(self) -> Mapping[str, bytes]:
        """The managers' state files alone; whatever else the node began with is among them as it was."""
        self.kubelet.save()
        return dict(self.kubelet.files)

    def admit(self, pod: Pod) -> Decision:
        """Admit a pod and start its containers. The node is unchanged when the pod is refused.

        The pod is defaulted as the API server would, so a container with limits only requests them too; whether the
        API server would store it is for `api.server.validate` to say, which `load_pods` asks. A pod without UID gets
        `namespace.name` for one; one with the UID of a pod on the node is that pod, admitted again.

        Raises `InputError` for a pod with neither UID nor name, and `UpstreamDefectError` in profile `kubelet-1.36`
        where the kubelet itself would hang or crash.
        """
        pod = default_pod(identified(pod), self.rules.gates)
        admission = self.kubelet.admission(pod)
        refusal = self.kubelet.decide(admission)
        if refusal is not None:
            if not self.kubelet.undoes_refusals:
                self.kubelet.manager.remove_stale()
            return self._refused(admission, refusal)
        started = self.kubelet.start_containers(admission.uid)
        bubble = self.kubelet.manager.cpu.state.bubbles.get(admission.uid)
        decision = self._decision(
            admission,
            preempted=self.kubelet.preempted,
            pod_cpus=None if bubble is None else CPUSet.from_bits(bubble),
            containers=tuple(self._container(admission, c, started[c.name]) for c in admission.containers),
            events=self._events(admission),
        )
        self.kubelet.manager.remove_stale()
        return decision

    def as_held(self, decision: Decision) -> Decision:
        """The decision about a pod of this node with what it has by now, whoever moved it since."""
        pod = self.kubelet.active[decision.uid]
        bubble = self.kubelet.manager.cpu.state.bubbles.get(pod.uid)
        return msgspec.structs.replace(
            decision,
            pod_cpus=None if bubble is None else CPUSet.from_bits(bubble),
            containers=tuple(
                self._container(pod, c, self.kubelet.inspect(pod, c, started=True)) for c in pod.containers
            ),
        )

    def _events(self, pod: AdmissionPod) -> tuple[PodEvent, ...]:
        passed_over: tuple[PodEvent, ...] = ()
        if pod.ignored:
            passed_over = ignored_pod_level_events(pod, self.kubelet.config, self.rules.gates, self.kubelet.quirks)
        policy, manager = self.rules.policy, self.kubelet.manager
        notes = manager.context.plugin_notes
        if notes:
            passed_over += tuple(PodEvent("Warning", PLUGIN_ERROR, one.text) for one in notes if one.remedy is None)
        classes = manager.cpu.rules.classes
        if classes is not None:
            passed_over += tuple(self._fallbacks(pod, classes))
        if policy.annotations.invalid != "ignore":
            return passed_over
        wrong = [*annotation_problems(policy, pod.spec)]
        if pod.mixed and (crowd := self.kubelet.mixed_surplus(pod)):
            wrong.append(AnnotationProblem(MIXED, crowd))
        if pod.hides_smt and (problem := self.kubelet.part_of_core(pod)):
            wrong.append(AnnotationProblem(SMT, problem))
        return (*passed_over, *(PodEvent("Warning", INVALID_ANNOTATION, one.message) for one in wrong))

    def _fallbacks(self, pod: AdmissionPod, classes: CPUClasses) -> Iterator[PodEvent]:
        """Containers that share CPUs of none of the classes that they wish for."""
        cpu = self.kubelet.manager.cpu
        for container in pod.containers if cpu.static else ():
            if cpu.state.assignment(pod.uid, container.name) is not None:
                continue
            lacking = fallback_of(classes, pod, container, cpu.state.default)
            if lacking:
                runs_on = format_bits(cpu.affinity(pod.uid, container.name))
                text = f"no CPUs of class {lacking} are shared: container {container.name} runs on {runs_on}"
                yield PodEvent("Warning", CLASS_FALLBACK, text)

    def try_admit(self, pod: Pod) -> Decision:
        """What `admit` would answer, on a copy of the node: this one stays as it is. Raises as `admit`."""
        return self.copy().admit(pod)

    def copy(self) -> Node:
        """Another node like this one with the same pods, which goes its own way from now on."""
        other: Node = Node.__new__(Node)
        kubelet = self._kubelet
        if kubelet is None:
            other._hold(self._rules, self._state, self._kept, self._counters)
        else:
            other._hold(kubelet.rules, kubelet.state, kubelet.kept, {**kubelet.manager.context.metrics})
        return other

    def settle(self, pods: Iterable[Pod], *, restored: bool) -> list[Decision]:
        """Pods that run already: on the state files the node began with (`restored`), else admitted one after the
        other. Returns the refused ones."""
        if restored:
            return self.readmit(pods)
        return [decision for pod in pods if not (decision := self.admit(pod)).admitted]

    def readmit(self, pods: Iterable[Pod]) -> list[Decision]:
        """Admit pods that run already, on state files they are in, before anything counts as gone.

        Every one keeps what the files say. Returns the refused ones. Afterwards what belongs to no pod is freed. A pod
        that asks for something else than `allocated_pods_state` says was granted runs with what was granted, and its
        resize waits (`pending_resizes`). Stand-ins ask for what they own and nothing else.
        """
        return self._bring_back(pods, readmission.readmit)

    def resume(self, pods: Iterable[Pod]) -> list[Decision]:
        """Pods that run under the kubelet whose state files the node began with. It goes on: it does not admit them
        again, as the next one would (`readmit`), which may refuse them.

        What they hold in the files stays theirs; those that hold nothing are admitted. Otherwise as `readmit`.
        """
        return self._bring_back(pods, readmission.resume)

    def _bring_back(self, pods: Iterable[Pod], take: Callable[..., object]) -> list[Decision]:
        kubelet, gates = self.kubelet, self.rules.gates
        wanted = [default_pod(identified(pod), gates) for pod in pods]
        allocated = [self._as_granted(pod) for pod in wanted]
        refused: list[Decision] = []
        take(kubelet, allocated, on_refusal=lambda pod, refusal: refused.append(self._refused(pod, refusal)))
        kubelet.sources_ready()
        kubelet.manager.remove_stale()
        for desired, granted in zip(wanted, allocated, strict=True):
            if granted.metadata.uid in kubelet.active and _differs(desired, granted, gates):
                kubelet.resizes.submit(PendingResize(granted, desired, None), kubelet.sort_key)
        return refused

    def _as_granted(self, pod: Pod) -> Pod:
        if pod.metadata.namespace == STAND_IN_NAMESPACE:
            return pod
        return allocated_pod(pod, self.kubelet.granted.get(pod.metadata.uid), self.rules.gates)

    @property
    def counters(self) -> Mapping[Series, int]:
        """What the managers have counted so far, under the kubelet's names of metrics."""
        return dict(self.kubelet.manager.context.metrics)

    # Device plugins

    def register_devices(self, resource: str, devices: Iterable[Device], plugin: DevicePlugin) -> None:
        """A plugin serves the resource from now on and has sent its first list."""
        self.kubelet.manager.device.register(resource, devices, plugin)

    def update_devices(self, resource: str, devices: Iterable[Device]) -> None:
        """The plugin's complete list of devices, with their health."""
        self.kubelet.manager.device.update_devices(resource, devices)

    def disconnect_devices(self, resource: str, *, now: float) -> None:
        """The plugin is gone, at `now` in seconds of any clock: its devices are unhealthy, what is held stays so."""
        self.kubelet.manager.device.disconnect(resource, now=now)

    def run_options(self, uid: str, container: str) -> RunOptions:
        """What a container's devices add to it as it starts; plugins that want to be told are told. Raises `KeyError`
        for pods that are not on the node, and `AdmissionError` where the container cannot start."""
        manager, pod = self.kubelet.manager, self.kubelet.active[uid]
        found = next((one for one in pod.containers if one.name == container), None)
        if found is None or not manager.device.devices_of(uid, container):
            return RunOptions()
        return manager.device.container_start(pod, found, manager.topology.affinity(uid, container))

    def effects(self, uid: str, *, swap_capacity: int = 0, running: Container[str] = ()) -> PodEffects:
        """Cgroup files, OOM scores and what the runtime is told about an admitted pod, with the CPUs it holds.

        `swap_capacity` in bytes is what a Machine does not say. `running` names the pod's init containers that run:
        what they own is not in the pod's shared pool meanwhile. Raises `KeyError` for pods that are not on the node.
        """
        kubelet = self.kubelet
        now, gates = kubelet.active[uid], kubelet.manager.context.gates
        pod = self.view.as_admitted(now) if now.ignored else now
        if pod is not now:
            gates = with_pod_level(gates)
        memory = kubelet.node_resources().allocatable.get("memory")
        settings = cgroup_settings(
            kubelet.config,
            kubelet.machine,
            memory_allocatable=None if memory is None else memory.value(),
            swap_capacity=swap_capacity,
            cgroup_version=kubelet.cgroup_version,
        )
        cpu = kubelet.manager.cpu
        pins = {
            container.name: Pin(
                format_bits(cpu.affinity_beside(pod, container, running)),
                format_bits(kubelet.manager.memory.numa_nodes(uid, container.name)),
                cpu.container_has_exclusive_cpus(pod, container),
                container.is_throttled(cpu.rules.mixed),
            )
            for container in pod.containers
        }
        return pod_effects(pod.spec, gates, settings, kubelet.quirks, pins)

    def remove(self, uid: str) -> bool:
        """The pod is gone: everything it held is free again. False when there is no pod with this UID; then nothing
        changes."""
        known = uid in self.kubelet.active
        self.kubelet.remove_pod(uid)
        self.kubelet.manager.remove_stale()
        return known

    def cpu_effects(self, uid: str, container: str) -> Mapping[str, CPUEffects]:
        """What plugins say follows for a container with CPUs, by plugin (docs/plugins.md)."""
        granted = self.kubelet.manager.cpu.state.grants.get(uid, {}).get(container)
        return {} if granted is None else dict(granted.effects)

    @property
    def released_cpus(self) -> tuple[ReleasedCPUs, ...]:
        """What plugins say follows for CPUs that were given back since the latest admission began."""
        return self.kubelet.manager.context.released

    def in_order(self, pods: Iterable[Pod]) -> list[Pod]:
        """Pods that wait together in the order in which plugins want them tried; as given where none says."""
        return readmission.in_order(self.kubelet, pods)

    # In-place resize

    def resize(self, pod: Pod, *, since: float | None = None, memory_stays: bool = False) -> ResizeDecision:
        """Resize a pod of this node in place. Only resources and resize policies of `pod` count, as for the API's
        subresource `resize`; the pod keeps what it has unless the answer is `Allocated`.

        `since`: when the resize was asked for, in seconds of any clock; it orders those that wait. `memory_stays`:
        memory that shrinks stays on its NUMA nodes whatever the policy says. Raises `InputError` for a pod that is not
        here, or that the API server would not store.
        """
        pod = identified(pod)
        wish, context = (
            resize_wish(self.kubelet.active, pod, self.rules.gates, node_resize.api_server_allocatable(self.kubelet)),
            self.kubelet.manager.context,
        )
        context.memory_stays = memory_stays
        try:
            attempts = node_resize.resize(self.kubelet, wish, since)
        finally:
            context.memory_stays = False
        return resize_decisions(self.kubelet, attempts)[pod.metadata.uid]

    def retry_resizes(self, trigger: RetryTrigger = "periodic_retry") -> list[ResizeDecision]:
        """Try the resizes that wait again, for instance after a pod has left."""
        return list(resize_decisions(self.kubelet, node_resize.retry_resizes(self.kubelet, trigger)).values())

    @property
    def pending_resizes(self) -> list[str]:
        """UIDs of pods whose resize waits, in the order they are tried."""
        return self.kubelet.resizes.uids

    # The machine

    def change_machine(self, machine: Machine) -> tuple[MachineConsequence, ...]:
        """The node runs on and its machine is another from now on: CPUs, memory or NUMA nodes came or went. Says what
        follows, by the policy's `hotplug` (docs/hotplug.md); nothing where the machine is the same. Resizes that wait
        are not tried, `retry_resizes` does.

        Raises `InputError` in a profile that predicts a kubelet, which does not look at its machine while it runs, and
        `StartError` for a machine on which nothing can run; then nothing changes.
        """
        if self.rules.quirks != PODSLICE:
            raise InputError("a kubelet does not look at its machine while it runs", remedy="start it again")
        return self.kubelet.change_machine(machine, self.rules.policy.hotplug or Hotplug())

    def replace_lost(self) -> tuple[MachineConsequence, ...]:
        """Owners whose CPUs went offline while nobody looked get others, by the policy's `hotplug`; after `readmit` on
        state files. Nothing without that section."""
        hotplug = self.rules.policy.hotplug
        return () if hotplug is None else self.kubelet.replace_lost(hotplug)

    # The policy

    def change_policy(self, policy: PodslicePolicy) -> None:
        """Decide by another policy from now on. Nobody gains or loses anything by it, and resizes that wait are not
        tried, `retry_resizes` does.

        Raises `InputError` for a policy in a profile that predicts a kubelet, and `StartError` for one with which the
        node would not start again on what it holds; then nothing changes.
        """
        check_policy(policy, self.rules.quirks)
        self.kubelet.change_policy(policy)

    def _decision(self, pod: AdmissionPod, **fields: Any) -> Decision:
        metadata = pod.spec.metadata
        fields.setdefault("admitted", True)
        fields["ended_early"] = self.kubelet.manager.context.ended_early
        return Decision(name=metadata.name, namespace=metadata.namespace, uid=pod.uid, qos=pod.qos, **fields)

    def _refused(self, pod: AdmissionPod, refusal: Refusal) -> Decision:
        context = self.kubelet.manager.context
        why = explain_refusal(self.view, pod, refusal, context.unaligned)
        if context.plugin_notes:
            why = " ".join(
                (why, *(f"{one.text[:1].upper()}{one.text[1:]}." for one in context.plugin_notes if one.remedy))
            )
        return self._decision(pod, admitted=False, reason=refusal.reason, message=refusal.message, why=why)

    def _container(
        self, pod: AdmissionPod, container: AdmissionContainer, started: StartedContainer
    ) -> ContainerDecision:
        kubelet = self.kubelet
        hint: Hint = kubelet.manager.topology.affinity(pod.uid, container.name)
        placed = started.exclusive_cpus if started.isolation == "mixed" else started.cpus
        return ContainerDecision(
            name=container.name,
            kind="sidecar" if container.restartable else "init" if container.init else "container",
            cpus=CPUSet.from_bits(started.cpus),
            numa_nodes=CPUSet.from_bits(self.topology.numa_nodes_of(placed)),
            memory_nodes=CPUSet.from_bits(started.memory_nodes),
            exclusive=started.isolation == "container",
            exclusive_cpus=CPUSet.from_bits(started.exclusive_cpus if started.isolation in OWNING else 0),
            isolation=started.isolation,
            cfs_quota=kubelet.config.cpu_cfs_quota and not started.cpu_quota_disabled,
            affinity=None if hint.mask is None else CPUSet.from_bits(hint.mask),
            preferred=hint.preferred,
            memory={block.type: block.size for block in started.memory_blocks},
            devices=dict(started.devices),
            error=started.error,
            during_init=self._during_init(pod, container, started),
            affinities=self._affinities(pod.uid, container.name) if kubelet.manager.context.parts else {},
        )

    def _affinities(self, uid: str, container: str) -> dict[str, CPUSet]:
        """The NUMA nodes of each resource of a container that was just admitted, where each has its own."""
        parts = self.kubelet.manager.context.parts
        mine = parts.get((uid, container)) or parts.get((uid, ""), {})
        return {name: CPUSet.from_bits(mask) for name, mask in mine.items()}

    def _during_init(
        self, pod: AdmissionPod, container: AdmissionContainer, started: StartedContainer
    ) -> dict[str, CPUSet]:
        """The CPUs of a sidecar that are fewer while an init container after it runs, by that container's name."""
        if not container.restartable or started.isolation not in ("pod", "mixed"):
            return {}
        later = pod.containers[pod.containers.index(container) + 1 :]
        beside = {
            init.name: self.kubelet.manager.cpu.affinity_beside(pod, container, (init.name,))
            for init in later
            if init.plain_init
        }
        return {name: CPUSet.from_bits(cpus) for name, cpus in beside.items() if cpus != started.cpus}


def _meant(value: object, kind: type, path: str, remedy: str) -> None:
    """Raises `InputError` for what is something else than is meant."""
    if not isinstance(value, kind):
        raise InputError(f"is a {type(value).__name__}, not a {kind.__name__}", path=path, remedy=remedy)


def check_pod(pod: Pod) -> None:
    """Raises `InputError` for what is none, such as a `LoadedPod`."""
    _meant(pod, Pod, "pod", "pod_from_dict(data) makes one")


def identified(pod: Pod) -> Pod:
    """The pod with a UID: its own, else `namespace.name` as for pods from a manifest. Raises `InputError` for what is
    not a pod, or has neither UID nor name."""
    check_pod(pod)
    metadata = pod.metadata
    if metadata.uid:
        return pod
    if not metadata.name:
        raise InputError(
            "is empty, and so is metadata.name", path="metadata.uid", remedy="give the pod a name or a UID"
        )
    uid = f"{metadata.namespace or 'default'}.{metadata.name}"
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(metadata, uid=uid))


def _granted(files: Mapping[str, bytes]) -> dict[str, PodAllocation]:
    """What was granted by pod UID, from `allocated_pods_state`. Raises `StartError` for a file that is broken."""
    data = files.get(ALLOCATED_STATE_FILE)
    if data is None:
        return {}
    try:
        return load(data)
    except CheckpointError as error:
        raise StartError("allocation", _BROKEN_RECORD, error=restore_failure(error, ALLOCATED_STATE_FILE)) from None


def _differs(desired: Pod, allocated: Pod, gates: Mapping[str, bool]) -> bool:
    return desired is not allocated and allocation_of(desired, gates) != allocation_of(allocated, gates)
