"""A node that answers questions: `Node(machine, config).admit(pod)` says whether the pod is admitted, on which CPUs,
and why.

Wraps `node.kubelet` for callers that want decisions rather than histories: pods are admitted, their containers start,
and whatever a kubelet would clean up later is cleaned up at once.
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
from podslice.api.pod.spec import Pod, PodAllocation, allocation_of, apply_allocation
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
from podslice.node.checkpoints.names import ALLOCATED_STATE_FILE, STAND_IN_NAMESPACE
from podslice.node.checkpoints.restore import REMEDY
from podslice.node.context import ReleasedCPUs
from podslice.node.cpu.state import OWNING
from podslice.node.decision import ContainerDecision, Decision, ResizeDecision
from podslice.node.devices.plugin import DevicePlugin, RunOptions
from podslice.node.effects.huge_pages import page_sizes
from podslice.node.effects.settings import cgroup_settings
from podslice.node.effects.tree import Pin, PodEffects, pod_effects
from podslice.node.kubelet import Kubelet, NodeCache
from podslice.node.node_resize import prepare_resize, resize_decisions
from podslice.node.plugins.api import CPUEffects
from podslice.node.plugins.classes import CPUClasses, fallback_of
from podslice.node.refusal import explain_refusal
from podslice.node.resize.pending import PendingResize, RetryTrigger
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.node.topology.hint import Hint
from podslice.node.view import ContainerView, NodeView
from podslice.scheduling.pod_features import ignored_pod_level_events
from podslice.values.cpuset import CPUSet, format_bits
from podslice.values.errors import InputError, Refusal, StartError, StartKind, UpstreamDefectError
from podslice.values.gates import join_errors, with_pod_level
from podslice.values.go.gojson import CheckpointError
from podslice.values.quantity import plural
from podslice.values.quirks import PODSLICE, PROFILE_RELEASES, PROFILES, Quirks, profile_for
from podslice.values.reasons import CLASS_FALLBACK, INVALID_ANNOTATION, PLUGIN_ERROR
from podslice.values.releases.release import Release
from podslice.values.series import Series
from podslice.values.shown import show

__all__ = ["ContainerDecision", "Decision", "Node", "ResizeDecision"]

_UNCOUNTED: Mapping[Series, int] = MappingProxyType({})
_INVALID = StartKind("invalid-configuration", "{problems}")
_CRASH = StartKind("upstream-defect", "a v1.36.2 kubelet crashes here: {defect}", REMEDY)
_BROKEN_RECORD = StartKind("broken-record", "{error}")


class Node:
    """One simulated node: rules, and a current state that is a value. Raises `StartError` if a kubelet with this
    configuration would not start on this machine, and `InputError` for an unknown profile or an argument of another
    type.

    `kubernetes` is the release whose kubelet this is, such as 1.34 or v1.34.9; without it that of the profile.
    `devices` are the node's plugin devices. `predicates` adds the kubelet's general predicates (OutOfcpu and the like)
    and its check of pod features to the resource managers' decision; `cgroup_version` matters to the latter. `files`
    are state files by name as a kubelet left them, with `allocated_pods_state` if running pods were resized;
    `Node.files` are the current ones. `policy` is what podslice does beyond a kubelet.
    """

    __slots__ = ("__weakref__", "_cache", "_counters", "_kubelet", "_rules", "_state")

    def __init__(
        self,
        machine: Machine,
        config: KubeletConfig | None = None,
        *,
        profile: str = "podslice",
        kubernetes: str = "",
        devices: DeviceInventory | None = None,
        predicates: bool = True,
        files: Mapping[str, bytes] | None = None,
        cgroup_version: int = 2,
        policy: PodslicePolicy = NO_POLICY,
    ) -> None:
        _check_kind(machine, Machine, "machine", "load_machine(…) makes one")
        _check_kind(config or KubeletConfig(), KubeletConfig, "config", "load_kubelet_config(…).config is one")
        _check_kind(
            devices or DeviceInventory(), DeviceInventory, "devices", "DeviceInventory is made of DeviceResources"
        )
        _check_kind(policy, PodslicePolicy, "policy", "PodslicePolicy() is one that asks for nothing")
        if kubernetes:
            profile = profile_for(profile, kubernetes)
        self._start(
            machine,
            config or KubeletConfig(),
            quirks=PROFILES[profile],
            release=PROFILE_RELEASES[profile],
            devices=devices,
            predicates=predicates,
            files=files,
            cgroup_version=cgroup_version,
            policy=policy,
        )

    def _start(
        self,
        machine: Machine,
        config: KubeletConfig,
        *,
        quirks: Quirks,
        release: Release,
        devices: DeviceInventory | None,
        predicates: bool,
        files: Mapping[str, bytes] | None,
        cgroup_version: int,
        policy: PodslicePolicy,
    ) -> None:
        if policy is not NO_POLICY:
            check_policy(policy, quirks)
        kubelet = Kubelet(
            machine,
            config,
            quirks,
            devices=devices,
            predicates=predicates,
            files=files,
            cgroup_version=cgroup_version,
            policy=policy,
            release=release,
        )
        problems = validate(kubelet.config, release, cgroup_version=cgroup_version)
        if problems:
            raise StartError("configuration", _INVALID, problems=join_errors(list(dict.fromkeys(map(str, problems)))))
        kubelet.granted = _load_granted(files or {})
        try:
            kubelet.start()
        except UpstreamDefectError as defect:
            raise StartError("startMemoryManager", _CRASH, defect=str(defect)) from defect
        self._hold(kubelet.rules, kubelet.state, kubelet.cache, kubelet.manager.context.metrics)

    @classmethod
    def like(
        cls,
        rules: NodeRules,
        *,
        config: KubeletConfig,
        quirks: Quirks,
        release: Release,
        files: Mapping[str, bytes] | None = None,
    ) -> Node:
        """Return a node that starts on the machine of `rules`, with its devices, as another kubelet: of any release,
        which may have other facts and defects than a profile. Raises `StartError`."""
        node: Node = cls.__new__(cls)
        node._start(
            rules.machine,
            config,
            quirks=quirks,
            release=release,
            devices=rules.inventory,
            predicates=rules.predicates,
            files=files,
            cgroup_version=rules.cgroup_version,
            policy=rules.policy,
        )
        return node

    @classmethod
    def of(cls, rules: NodeRules, state: NodeState) -> Node:
        """Return the node with these rules and this state. Nodes with the same rules share them."""
        node: Node = cls.__new__(cls)
        node._hold(rules, state, None, _UNCOUNTED)
        return node

    def _hold(
        self, rules: NodeRules, state: NodeState, cache: NodeCache | None, counters: Mapping[Series, int]
    ) -> None:
        self._rules, self._state, self._cache, self._counters = rules, state, cache, counters
        self._kubelet: Kubelet | None = None

    def __repr__(self) -> str:
        name, free = self.machine.name or "machine", len(self.assignable_cpus)
        return f"<Node {name}: {plural(len(self.pods), 'pod')}, {free} of {plural(self.machine.cpu_count, 'CPU')} free>"

    def __reduce__(self) -> tuple[object, tuple[NodeRules, NodeState]]:
        return Node.of, (self.rules, self.state)

    def _repr_svg_(self) -> str | None:
        return show(self, "svg_of")

    @property
    def kubelet(self) -> Kubelet:
        """The kubelet that acts on the node's state; it is made at its first use."""
        if self._kubelet is None:
            self._kubelet = Kubelet.of(self._rules, self._state, self._cache)
            self._kubelet.manager.context.metrics = defaultdict(int, self._counters)
        return self._kubelet

    @property
    def rules(self) -> NodeRules:
        """The node's rules: equal nodes of one machine and configuration share them."""
        return self._rules if self._kubelet is None else self._kubelet.rules

    @property
    def state(self) -> NodeState:
        """All that changes on the node, as a value. Setting it puts the node into that state."""
        return self._state if self._kubelet is None else self._kubelet.state

    @state.setter
    def state(self, state: NodeState) -> None:
        if self._kubelet is None:
            self._state = state
        else:
            self._kubelet.state = state

    @property
    def view(self) -> NodeView:
        """The node as it is now, as a value: its rules, its pods, and their holdings."""
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
        """CPUs kept for the system: no container owns them; all containers may run there unless the reservation is
        strict."""
        return CPUSet.from_bits(self.kubelet.manager.cpu.reserved)

    @property
    def shared_cpus(self) -> CPUSet:
        """The node's shared pool, on which containers without CPUs of their own run. Empty with CPU manager policy
        none."""
        return CPUSet.from_bits(self.kubelet.manager.cpu.state.default)

    @property
    def assignable_cpus(self) -> CPUSet:
        """CPUs of the shared pool that a container may still get exclusively. A pod that requests more is always
        refused; one that requests fewer may be, for lack of alignment."""
        return CPUSet.from_bits(self.kubelet.manager.cpu.assignable)

    @property
    def files(self) -> Mapping[str, bytes]:
        """The state files as they would be on disk now: the managers' and `allocated_pods_state`. The other record,
        `actuated_pods_state`, belongs to the writer of the cgroups."""
        return {**self.manager_files, ALLOCATED_STATE_FILE: encode(self.kubelet.allocations())}

    @property
    def mixed_shares(self) -> Mapping[str, Mapping[str, MixedShare]]:
        """Shares of containers with exclusive and shared CPUs, by pod UID and name."""
        return self.kubelet.manager.mixed

    @property
    def manager_files(self) -> Mapping[str, bytes]:
        """The managers' state files alone; other files that the node began with are among them unchanged."""
        self.kubelet.save()
        return dict(self.kubelet.files)

    def admit(self, pod: Pod) -> Decision:
        """Admit a pod and start its containers. The node is unchanged when the pod is refused.

        The pod gets the API server's defaults, so a container with limits only requests them too; whether the API
        server would store it is checked by `api.server.validate`, which `load_pods` calls. A pod without UID gets
        `namespace.name` for one; one with the UID of a pod on the node is that pod, admitted again.

        Raises `InputError` for a pod with neither UID nor name, and `UpstreamDefectError` in profile `kubelet-1.36`
        where the kubelet itself would hang or crash.
        """
        pod = default_pod(with_default_uid(pod), self.rules.gates)
        admission = self.kubelet.admission(pod)
        refusal = self.kubelet.decide(admission)
        if refusal is not None:
            # What a refused pod of profile `kubelet-1.36` got stays until the next clean-up, which comes now.
            if not self.kubelet.undoes_refusals:
                self.kubelet.manager.remove_stale()
            return self._refusal_decision(admission, refusal)
        started = self.kubelet.start_containers(admission.uid)
        pod_cpus = self.kubelet.manager.cpu.state.pod_cpus.get(admission.uid)
        decision = self._decision(
            admission,
            preempted=self.kubelet.preempted,
            pod_cpus=None if pod_cpus is None else CPUSet.from_bits(pod_cpus),
            containers=tuple(
                self._container_decision(admission, c, started[c.name].holds, started[c.name].error)
                for c in admission.containers
            ),
            events=self._events(admission),
        )
        self.kubelet.manager.remove_stale()
        return decision

    def as_held(self, decision: Decision) -> Decision:
        """Return the decision about a pod of this node with what the pod holds by now."""
        pod = self.kubelet.active[decision.uid]
        pod_cpus = self.kubelet.manager.cpu.state.pod_cpus.get(pod.uid)
        return msgspec.structs.replace(
            decision,
            pod_cpus=None if pod_cpus is None else CPUSet.from_bits(pod_cpus),
            containers=tuple(self._container_decision(pod, c, self.kubelet.inspect(pod, c)) for c in pod.containers),
        )

    def _events(self, pod: AdmissionPod) -> tuple[PodEvent, ...]:
        """Return the events for the owner of an admitted pod."""
        passed_over: tuple[PodEvent, ...] = ()
        if pod.ignored:
            kubelet = self.kubelet
            passed_over = ignored_pod_level_events(
                pod, kubelet.config, self.rules.gates, kubelet.quirks, kubelet.release
            )
        policy, manager = self.rules.policy, self.kubelet.manager
        notes = manager.context.plugin_notes
        if notes:
            passed_over += tuple(PodEvent("Warning", PLUGIN_ERROR, one.text) for one in notes if one.remedy is None)
        classes = manager.cpu.rules.classes
        if classes is not None:
            passed_over += tuple(self._fallback_events(pod, classes))
        if policy.annotations.invalid != "ignore":
            return passed_over
        wrong = [*annotation_problems(policy, pod.spec)]
        if pod.mixed and (crowd := self.kubelet.explain_mixed_surplus(pod)):
            wrong.append(AnnotationProblem(MIXED, crowd))
        if pod.hides_smt and (problem := self.kubelet.explain_part_of_core(pod)):
            wrong.append(AnnotationProblem(SMT, problem))
        return (*passed_over, *(PodEvent("Warning", INVALID_ANNOTATION, one.message) for one in wrong))

    def _fallback_events(self, pod: AdmissionPod, classes: CPUClasses) -> Iterator[PodEvent]:
        """Yield an event for each container that shares CPUs of none of the classes it requests."""
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
        """Return the answer of `admit` without changing this node: it admits on a copy. Raises as `admit`."""
        return self.copy().admit(pod)

    def copy(self) -> Node:
        """Return an independent node with the same rules and pods."""
        other: Node = Node.__new__(Node)
        kubelet = self._kubelet
        if kubelet is None:
            other._hold(self._rules, self._state, self._cache, self._counters)
        else:
            other._hold(kubelet.rules, kubelet.state, kubelet.cache, {**kubelet.manager.context.metrics})
        return other

    def settle(self, pods: Iterable[Pod], *, restored: bool) -> list[Decision]:
        """Take pods that run already: on the state files the node began with (`restored`), else by admitting them one
        after the other. Returns the refused ones."""
        if restored:
            return self.readmit(pods)
        return [decision for pod in pods if not (decision := self.admit(pod)).admitted]

    def readmit(self, pods: Iterable[Pod]) -> list[Decision]:
        """Admit pods that run already, on state files they are in, before anything counts as gone.

        Every pod keeps what the files say. Returns the refused ones. Afterwards everything without a pod is freed. A
        pod that requests something else than `allocated_pods_state` says was granted runs with what was granted, and
        its resize waits (`pending_resizes`). Stand-ins request exactly what they own.
        """
        return self._restore_pods(pods, readmission.readmit)

    def resume(self, pods: Iterable[Pod]) -> list[Decision]:
        """Take pods that run under the kubelet whose state files the node began with. That kubelet goes on: it does not
        admit them again, as the next one would (`readmit`), which may refuse them.

        Their holdings in the files stay; pods that hold nothing are admitted. Otherwise as `readmit`.
        """
        return self._restore_pods(pods, readmission.resume)

    def _restore_pods(self, pods: Iterable[Pod], take: Callable[..., object]) -> list[Decision]:
        """Readmit or take over running pods with `take`, queue resizes that were not granted; return the refused
        ones."""
        kubelet, gates = self.kubelet, self.rules.gates
        wanted = [default_pod(with_default_uid(pod), gates) for pod in pods]
        allocated = [self._with_granted(pod) for pod in wanted]
        refused: list[Decision] = []
        take(kubelet, allocated, on_refusal=lambda pod, refusal: refused.append(self._refusal_decision(pod, refusal)))
        # From here on, what the files hold for pods that were not readmitted is free.
        kubelet.sources_ready()
        kubelet.manager.remove_stale()
        for desired, granted in zip(wanted, allocated, strict=True):
            if granted.metadata.uid in kubelet.active and _is_resized(desired, granted, gates):
                kubelet.resizes.submit(PendingResize(granted, desired, None), kubelet.sort_key)
        return refused

    def _with_granted(self, pod: Pod) -> Pod:
        """Return the pod with the resources that were granted to it last."""
        # Stand-ins have no record of a grant: they request what they own.
        if pod.metadata.namespace == STAND_IN_NAMESPACE:
            return pod
        return apply_allocation(pod, self.kubelet.granted.get(pod.metadata.uid), self.rules.gates)

    @property
    def counters(self) -> Mapping[Series, int]:
        """The managers' counts so far, under the kubelet's metric names."""
        return dict(self.kubelet.manager.context.metrics)

    # Device plugins

    def register_devices(self, resource: str, devices: Iterable[Device], plugin: DevicePlugin) -> None:
        """Register a plugin that serves the resource, with its first list."""
        self.kubelet.manager.device.register(resource, devices, plugin)

    def update_devices(self, resource: str, devices: Iterable[Device]) -> None:
        """Replace the plugin's list of devices, with their health."""
        self.kubelet.manager.device.update_devices(resource, devices)

    def disconnect_devices(self, resource: str, *, now: float) -> None:
        """Disconnect a plugin, at `now` in seconds of any clock: its devices are unhealthy, containers keep those they
        hold."""
        self.kubelet.manager.device.disconnect(resource, now=now)

    def run_options(self, uid: str, container: str) -> RunOptions:
        """Return what a container's devices add to it as it starts; plugins with PreStartContainer are called. Raises
        `KeyError` for pods that are not on the node, and `AdmissionError` where the container cannot start."""
        manager, pod = self.kubelet.manager, self.kubelet.active[uid]
        found = next((one for one in pod.containers if one.name == container), None)
        if found is None or not manager.device.devices_of(uid, container):
            return RunOptions()
        return manager.device.container_start(pod, found, manager.topology.affinity(uid, container))

    def effects(self, uid: str, *, swap_capacity: int = 0, running: Container[str] = ()) -> PodEffects:
        """Return cgroup files, OOM scores and the fields sent to the runtime for an admitted pod, with the CPUs it
        holds.

        `swap_capacity` in bytes is not part of a Machine. `running` names the pod's init containers that run: the CPUs
        they own are not in the pod's shared pool meanwhile. Raises `KeyError` for pods that are not on the node.
        """
        kubelet = self.kubelet
        now, gates = kubelet.active[uid], kubelet.manager.context.gates
        pod = self.view.as_admitted(now) if now.ignored else now
        # The pod's cgroups date from before the gate was turned off.
        if pod is not now:
            gates = with_pod_level(gates)
        memory = kubelet.node_resources().allocatable.get("memory")
        settings = cgroup_settings(
            kubelet.config,
            kubelet.release,
            memory_capacity=kubelet.machine.memory,
            huge_pages=page_sizes(kubelet.machine),
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
        return pod_effects(pod.spec, gates, settings, kubelet.quirks, pins, kubelet.release)

    def remove(self, uid: str) -> bool:
        """Remove a pod and free everything it held. Returns False, and changes nothing, when there is no pod with this
        UID."""
        known = uid in self.kubelet.active
        self.kubelet.remove_pod(uid)
        self.kubelet.manager.remove_stale()
        return known

    def cpu_effects(self, uid: str, container: str) -> Mapping[str, CPUEffects]:
        """Return the effects that plugins ask for on a container with CPUs, by plugin (docs/plugins.md)."""
        granted = self.kubelet.manager.cpu.state.grants.get(uid, {}).get(container)
        return {} if granted is None else dict(granted.effects)

    @property
    def released_cpus(self) -> tuple[ReleasedCPUs, ...]:
        """Effects that plugins ask for on CPUs released since the latest admission began."""
        return self.kubelet.manager.context.released

    def in_order(self, pods: Iterable[Pod]) -> list[Pod]:
        """Return pods that wait together in the order in which plugins want them tried; as given where no plugin
        sorts."""
        return readmission.in_order(self.kubelet, pods)

    # In-place resize

    def resize(self, pod: Pod, *, since: float | None = None, memory_stays: bool = False) -> ResizeDecision:
        """Resize a pod of this node in place. Only resources and resize policies of `pod` count, as for the API's
        subresource `resize`; the pod keeps what it has unless the answer is `Allocated`.

        `since`: when the resize was requested, in seconds of any clock; it orders those that wait. `memory_stays`:
        memory that shrinks stays on its NUMA nodes whatever the policy says. Raises `InputError` for a pod that is not
        on the node, or that the API server would not store.
        """
        pod = with_default_uid(pod)
        desired, context = (
            prepare_resize(self.kubelet.active, pod, self.rules, node_resize.api_server_allocatable(self.kubelet)),
            self.kubelet.manager.context,
        )
        context.memory_stays = memory_stays
        try:
            attempts = node_resize.resize(self.kubelet, desired, since)
        finally:
            context.memory_stays = False
        return resize_decisions(self.kubelet, attempts)[pod.metadata.uid]

    def retry_resizes(self, trigger: RetryTrigger = "periodic_retry") -> list[ResizeDecision]:
        """Try the waiting resizes again, for instance after a pod has left."""
        return list(resize_decisions(self.kubelet, node_resize.retry_resizes(self.kubelet, trigger)).values())

    @property
    def pending_resizes(self) -> list[str]:
        """UIDs of pods whose resize waits, in the order they are tried."""
        return self.kubelet.resizes.uids

    # The machine

    def change_machine(self, machine: Machine) -> tuple[MachineConsequence, ...]:
        """Change the machine under the running node: CPUs, memory or NUMA nodes came or went. Returns the consequences,
        by the policy's `hotplug` (docs/hotplug.md); empty where the machine is the same. Waiting resizes are not tried,
        `retry_resizes` does that.

        Raises `InputError` in a profile that predicts a kubelet, which does not look at its machine while it runs, and
        `StartError` for a machine on which nothing can run; then nothing changes.
        """
        if self.rules.quirks != PODSLICE:
            raise InputError("a kubelet does not look at its machine while it runs", remedy="start it again")
        return self.kubelet.change_machine(machine, self.rules.policy.hotplug or Hotplug())

    def replace_lost(self) -> tuple[MachineConsequence, ...]:
        """Replace CPUs that went offline while no kubelet ran, by the policy's `hotplug`; call it after `readmit` on
        state files. Does nothing without that section."""
        hotplug = self.rules.policy.hotplug
        return () if hotplug is None else self.kubelet.replace_lost(hotplug)

    # The policy

    def change_policy(self, policy: PodslicePolicy) -> None:
        """Replace the policy. No pod's holding changes, and waiting resizes are not tried, `retry_resizes` does that.

        Raises `InputError` for a policy in a profile that predicts a kubelet, and `StartError` for one with which the
        node would not start again on its present holdings; then nothing changes.
        """
        check_policy(policy, self.rules.quirks)
        self.kubelet.change_policy(policy)

    def _decision(self, pod: AdmissionPod, **fields: Any) -> Decision:
        metadata = pod.spec.metadata
        fields.setdefault("admitted", True)
        fields["ended_early"] = self.kubelet.manager.context.ended_early
        return Decision(name=metadata.name, namespace=metadata.namespace, uid=pod.uid, qos=pod.qos, **fields)

    def _refusal_decision(self, pod: AdmissionPod, refusal: Refusal) -> Decision:
        """Return the decision about a refused pod, with our explanation beside upstream's message."""
        context = self.kubelet.manager.context
        why = explain_refusal(self.view, pod, refusal, context.unaligned)
        if context.plugin_notes:
            why = " ".join(
                (why, *(f"{one.text[:1].upper()}{one.text[1:]}." for one in context.plugin_notes if one.remedy))
            )
        return self._decision(pod, admitted=False, reason=refusal.reason, message=refusal.message, why=why)

    def _container_decision(
        self, pod: AdmissionPod, container: AdmissionContainer, holds: ContainerView, error: str = ""
    ) -> ContainerDecision:
        """Return the decision about one container; `error`: why it did not start."""
        kubelet = self.kubelet
        hint: Hint = kubelet.manager.topology.affinity(pod.uid, container.name)
        placed = holds.exclusive_cpus if holds.isolation == "mixed" else holds.cpus
        return ContainerDecision(
            name=container.name,
            kind="sidecar" if container.restartable else "init" if container.init else "container",
            cpus=CPUSet.from_bits(holds.cpus),
            numa_nodes=CPUSet.from_bits(self.topology.numa_nodes_of(placed)),
            memory_nodes=CPUSet.from_bits(holds.memory_nodes),
            exclusive=holds.isolation == "container",
            exclusive_cpus=CPUSet.from_bits(holds.exclusive_cpus if holds.isolation in OWNING else 0),
            isolation=holds.isolation,
            cfs_quota=kubelet.config.cpu_cfs_quota and not holds.cpu_quota_disabled,
            affinity=None if hint.mask is None else CPUSet.from_bits(hint.mask),
            preferred=hint.preferred,
            memory={block.type: block.size for block in holds.blocks},
            devices={name: list(ids) for name, ids in holds.devices.items()},
            error=error,
            during_init=self._during_init(pod, container, holds),
            affinities=self._affinities(pod.uid, container.name) if kubelet.manager.context.parts else {},
            device_nodes=CPUSet.from_bits(kubelet.manager.device.nodes_of(holds.devices)),
        )

    def _affinities(self, uid: str, container: str) -> dict[str, CPUSet]:
        """Return the NUMA nodes of each resource of a container that was just admitted, where each has its own."""
        parts = self.kubelet.manager.context.parts
        mine = parts.get((uid, container)) or parts.get((uid, ""), {})
        return {name: CPUSet.from_bits(mask) for name, mask in mine.items()}

    def _during_init(self, pod: AdmissionPod, container: AdmissionContainer, holds: ContainerView) -> dict[str, CPUSet]:
        """Return the CPUs of a sidecar that are fewer while an init container after it runs, by that container's
        name."""
        if not container.restartable or holds.isolation not in ("pod", "mixed"):
            return {}
        later = pod.containers[pod.containers.index(container) + 1 :]
        beside = {
            init.name: self.kubelet.manager.cpu.affinity_beside(pod, container, (init.name,))
            for init in later
            if init.plain_init
        }
        return {name: CPUSet.from_bits(cpus) for name, cpus in beside.items() if cpus != holds.cpus}


def _check_kind(value: object, kind: type, path: str, remedy: str) -> None:
    """Raise `InputError` for a value of another type."""
    if not isinstance(value, kind):
        raise InputError(f"is a {type(value).__name__}, not a {kind.__name__}", path=path, remedy=remedy)


def check_pod(pod: Pod) -> None:
    """Raise `InputError` for a value that is not a `Pod`, such as a `LoadedPod`."""
    _check_kind(pod, Pod, "pod", "Pod.load(…) makes one; that of a LoadedPod is its .pod")


def with_default_uid(pod: Pod) -> Pod:
    """Return the pod with a UID: its own, else `namespace.name` as for pods from a manifest. Raises `InputError` for a
    value that is not a pod, or has neither UID nor name."""
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


def _load_granted(files: Mapping[str, bytes]) -> dict[str, PodAllocation]:
    """Return the granted resources by pod UID from `allocated_pods_state`. Raises `StartError` for a file that is
    broken."""
    data = files.get(ALLOCATED_STATE_FILE)
    if data is None:
        return {}
    try:
        return load(data)
    except CheckpointError as error:
        raise StartError("allocation", _BROKEN_RECORD, error=restore_failure(error, ALLOCATED_STATE_FILE)) from None


def _is_resized(desired: Pod, allocated: Pod, gates: Mapping[str, bool]) -> bool:
    return desired is not allocated and allocation_of(desired, gates) != allocation_of(allocated, gates)
