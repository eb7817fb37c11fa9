"""podslice's prediction of a kubelet, step by step: admitted pods, files, and messages to the runtime."""

from __future__ import annotations

from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from podslice import Node, load_kubelet_config, load_machine
from podslice.agent.kubelet.podresources import allocatable_devices, allocatable_memory, container_resources
from podslice.api.pod.demand import BEST_EFFORT, BURSTABLE
from podslice.api.pod.event import PodEvent
from podslice.api.pod.spec import Pod, PodAllocation, allocation_of, pod_from_dict
from podslice.api.server.defaults import default_pod
from podslice.config.validation import validate
from podslice.machine.devices import DeviceInventory
from podslice.node import readmission
from podslice.node.checkpoints.allocation import encode
from podslice.node.checkpoints.names import ALLOCATED_STATE_FILE, CPU_STATE_FILE, DEVICE_STATE_FILE, MEMORY_STATE_FILE
from podslice.node.decision import ResizeDecision
from podslice.node.devices.plugin import RunOptions
from podslice.node.effects.cgroup import pod_cgroup_path, pod_quota_disabled
from podslice.node.effects.huge_pages import page_sizes
from podslice.node.effects.qos_cgroup import QOSCgroup, qos_cgroups
from podslice.node.effects.resize_actions import Actuation, Observed
from podslice.node.effects.resize_plan import LinuxValues
from podslice.node.effects.settings import cgroup_settings
from podslice.node.effects.tree import PodEffects
from podslice.node.kubelet import Kubelet, StartedContainer
from podslice.node.resize.events import resize_event
from podslice.service.proto import podresources_pb2 as podresources
from podslice.values.cpuset import iter_bits
from podslice.values.errors import Refusal, StartError, StartKind
from podslice.values.quantity import ZERO
from podslice.values.quirks import KUBELET_1_36
from tools.prediction.plugins import AllocatingPlugin

Json = dict[str, Any]
FILES = (CPU_STATE_FILE, MEMORY_STATE_FILE, ALLOCATED_STATE_FILE)
_CLAIMS = "nodeAllocatableResourceClaimStatuses", "extendedResourceClaimStatus"
_INVALID = StartKind("invalid-configuration", "{problems}")


class Model:
    """One node in profile kubelet-1.36. `start` comes first. Between any two steps its CPU Manager looks after its
    state, which a kubelet does every so often. Its Memory Manager does so at the next admission. What was granted to
    pods stays until the API server forgets them, and in the file until the next pod is admitted."""

    def __init__(self, machine: Path, cgroup_version: int, inventory: DeviceInventory | None = None) -> None:
        self._machine = load_machine(machine)
        self._inventory = inventory or DeviceInventory()
        self._cgroup_version = cgroup_version
        self._files: dict[str, bytes] = {}
        self._granted = b""
        self._ended: dict[str, PodAllocation] = {}
        self.actuated: dict[str, PodAllocation] = {}
        """Resources written last, by pod UID."""
        self._ended_record: dict[str, PodAllocation] = {}
        self._gone_record: dict[str, PodAllocation] = {}
        self._kubelet: Kubelet
        self.started: dict[str, StartedContainer] = {}
        """The containers of the pod that was admitted last, as each one started."""

    def start(self, config: Path, pods: Iterable[Json], running: Iterable[tuple[str, str]] = ()) -> dict[str, Refusal]:
        """Start a kubelet on the files of the last one, while these pods run, the oldest first, and of their containers
        those that are `running` (UID, name). Returns the refused ones by UID. Raises `StartError`."""
        loaded = load_kubelet_config(str(config)).config
        problems = validate(loaded)
        if problems:
            raise StartError("configuration", _INVALID, problems="; ".join(map(str, problems)))
        kubelet = Kubelet(
            self._machine,
            loaded,
            KUBELET_1_36,
            files={**self._files},
            predicates=True,
            cgroup_version=self._cgroup_version,
            devices=self._inventory,
        )
        try:
            self._begin(kubelet, running)
        finally:
            self._files = dict(kubelet.files)
        self._kubelet = kubelet
        wanted = {pod["metadata"]["uid"]: _default(kubelet, pod) for pod in pods}
        answers = readmission.readmit(kubelet, wanted.values())
        for resource in self._inventory.resources:
            kubelet.manager.device.register(resource.resource, resource.devices, AllocatingPlugin(resource))
        kubelet.sources_ready()
        refused = {uid: refusal for uid, refusal in answers if refusal is not None}
        self._ended_record |= {uid: self.actuated.pop(uid) for uid in refused if uid in self.actuated}
        self._ended |= {uid: allocation_of(wanted[uid], kubelet.manager.context.gates) for uid in refused}
        return refused

    def _begin(self, kubelet: Kubelet, running: Iterable[tuple[str, str]]) -> None:
        """Start as `Kubelet.start`, but before plugins register."""
        manager = kubelet.manager
        manager.start(kubelet.files, running=running)
        if not manager.restored:
            manager.remove_stale()
        kubelet.save()
        kubelet.running = True

    def change_devices(self, inventory: DeviceInventory, resource: str) -> None:
        """Apply the list in `inventory` that the plugin of a resource has sent."""
        self._inventory = inventory
        (listed,) = [own for own in inventory.resources if own.resource == resource]
        self._kubelet.manager.device.update_devices(resource, listed.devices)

    def holds_vanished(self, uid: str) -> bool:
        """Whether a pod has devices that their plugin does not list any more."""
        listed = {own.resource: {one.id for one in own.devices} for own in self._inventory.resources}
        held = self._kubelet.manager.device.assignments().get(uid, {})
        return any(set(ids) - listed.get(name, set()) for own in held.values() for name, ids in own.items())

    @property
    def has_devices(self) -> bool:
        """Whether plugins serve any devices."""
        return bool(self._inventory)

    def run_options(self, uid: str, container: str) -> RunOptions:
        """Return what a container's devices add to it."""
        return Node.of(self._kubelet.rules, self._kubelet.state).run_options(uid, container)

    def admit(self, pod: Json) -> Refusal | None:
        """Admit and start a new pod, as the API server stores it, or return its refusal."""
        kubelet = self._kubelet
        admission = kubelet.admission(_default(kubelet, pod))
        refusal = kubelet.decide(admission)
        if refusal is None:
            self._granted = encode({**self._ended, **kubelet.allocations()})
            self.started = kubelet.start_containers(admission.uid)
            self.record_write(admission.uid)
        return refusal

    def resize(self, pod: Json) -> ResizeDecision:
        """Resize a running pod, given as the API server stores it."""
        given = {key: own for key, own in pod.items() if key != "status"}
        node = Node.of(self._kubelet.rules, self._kubelet.state)
        decision = node.resize(pod_from_dict(given))
        self._kubelet.state = node.state
        if decision.outcome == "Allocated":
            self._granted = encode({**self._ended, **self._kubelet.allocations()})
        return decision

    def record_write(self, uid: str, resize: Actuation | None = None) -> None:
        """Record that the kubelet has written the granted resources into the pod's cgroups: at the start of the
        containers, or with a resize. A running container that got other values is recorded with the limits that its pod
        implies."""
        record = _as_started(self._kubelet.allocations()[uid])
        if resize is not None:
            record = _with_implied(record, self.actuated.get(uid, record), resize)
            for one in resize.resize().containers:
                if one.restart:
                    self._kubelet.start_container(uid, one.name)
        self.actuated[uid] = record

    def make_actuated_file(self, found: Container[str]) -> bytes:
        """Return `actuated_pods_state`. Removed pods stay in it for a while: those in `found`, the kubelet's own
        file."""
        gone = {uid: record for uid, record in self._gone_record.items() if uid in found}
        return encode({**gone, **self._ended_record, **self.actuated})

    def events(self, decision: ResizeDecision) -> list[PodEvent]:
        """Return the events of a resize; for a granted one also that of its completion."""
        found = list(decision.events)
        if decision.outcome == "Allocated":
            kubelet = self._kubelet
            pod = kubelet.active[decision.uid].spec
            found.append(resize_event("Completed", pod, kubelet.manager.context.gates, kubelet.quirks))
        return found

    def cgroup_path(self, uid: str) -> str:
        """Return the path of a pod's cgroup."""
        return pod_cgroup_path(uid, self._kubelet.active[uid].qos, systemd=False)

    def actuation(
        self, uid: str, actuated: PodAllocation | None, cgroup: LinuxValues, running: Container[str]
    ) -> Actuation:
        """Return how a granted resize is written, from what was written last, with no memory in use."""
        kubelet = self._kubelet
        pod, gates, cpu = kubelet.active[uid], kubelet.manager.context.gates, kubelet.manager.cpu
        names = [own.name for own in pod.containers]
        owners = {own.name for own in pod.containers if cpu.container_has_exclusive_cpus(pod, own)}
        settings = cgroup_settings(
            kubelet.config,
            kubelet.release,
            memory_capacity=self._machine.memory,
            huge_pages=page_sizes(self._machine),
            cgroup_version=self._cgroup_version,
        )
        return Actuation(
            pod.spec,
            actuated or PodAllocation(),
            Observed(cgroup, 0, dict.fromkeys(names, 0), [name for name in names if name in running], owners),
            gates,
            settings,
            enforce_cpu_limits=settings.cfs_quota and not pod_quota_disabled(pod.spec, gates, owners),
            quirks=kubelet.quirks,
        )

    def remove(self, uid: str, *, listed: bool = False) -> None:
        """Remove a pod that was deleted, or has ended and is still `listed` by the API server."""
        if listed:
            self._ended[uid] = self._kubelet.allocations()[uid]
        self._kubelet.remove_pod(uid)
        record = self.actuated.pop(uid, None)
        if record is not None:
            (self._ended_record if listed else self._gone_record)[uid] = record

    def restart_container(self, uid: str, container: str) -> None:
        """Record that a container ended and was started again."""
        self._kubelet.start_container(uid, container)
        own = _as_started(self._kubelet.allocations()[uid]).containers[container]
        record = self.actuated[uid]
        self.actuated[uid] = replace(record, containers={**record.containers, container: own})

    def files(self) -> dict[str, bytes]:
        """Return the current state files."""
        kubelet = self._kubelet
        kubelet.manager.cpu.reconcile(())
        kubelet.save()
        self._files = {**kubelet.files, ALLOCATED_STATE_FILE: self._granted}
        return {name: self._files.get(name, b"") for name in FILES}

    def device_file(self) -> bytes:
        """Return `kubelet_internal_checkpoint`."""
        self._kubelet.save()
        return self._kubelet.files.get(DEVICE_STATE_FILE, b"")

    def effects(self, uid: str) -> PodEffects:
        """Return the cgroups of a pod and the resources of its containers at the runtime."""
        return Node.of(self._kubelet.rules, self._kubelet.state).effects(uid)

    def classes(self) -> dict[str, QOSCgroup]:
        """Return the cgroups of the Burstable and BestEffort classes."""
        kubelet = self._kubelet
        pods = [pod.spec for pod in kubelet.active.values()]
        found = qos_cgroups(pods, kubelet.manager.context.gates)
        return {qos: found[qos] for qos in (BURSTABLE, BEST_EFFORT)}

    def list_pods(self) -> list[Any]:
        """Return the answer of the PodResources API's List, in order of the pods' names. The call makes the kubelet
        forget what pods that are gone had of its devices, which its file shows when it is written next (memory-device
        2.16).
        """
        self._kubelet.manager.device.remove_stale()
        view = self._kubelet.view
        return [
            podresources.PodResources(
                name=pod.spec.metadata.name,
                namespace=pod.spec.metadata.namespace,
                containers=container_resources(view, pod),
            )
            for pod in sorted(view.pods.values(), key=lambda pod: pod.spec.metadata.name)
        ]

    def allocatable(self) -> Any:
        """Return the answer of GetAllocatableResources."""
        view = self._kubelet.view
        return podresources.AllocatableResourcesResponse(
            cpu_ids=iter_bits(view.allocatable_cpus),
            memory=allocatable_memory(view),
            devices=allocatable_devices({own.resource: own.devices for own in self._inventory.resources}),
        )


def _default(kubelet: Kubelet, pod: Json) -> Pod:
    """Decode a pod as the kubelet does: of its status only what the scheduler wrote about claims."""
    claims = {key: own for key, own in pod.get("status", {}).items() if key in _CLAIMS}
    return default_pod(pod_from_dict({**pod, "status": claims}), kubelet.manager.context.gates)


def _as_started(granted: PodAllocation) -> PodAllocation:
    """Return the record of started containers, with the limits that the pod's imply."""
    limits = (granted.pod_level.limits if granted.pod_level else None) or {}
    implied = {name: limits[name] for name in ("cpu", "memory") if name in limits}
    return replace(granted, containers={
        name: replace(own, limits={**implied, **(own.limits or {})}) if implied else own
        for name, own in granted.containers.items()
    })  # fmt: skip


def _with_implied(record: PodAllocation, before: PodAllocation, resize: Actuation) -> PodAllocation:
    """Return `record`, except that containers without an update keep what was written `before`; those with an update
    name all values: the pod's limit where there is no own one, else zero."""
    limits = (resize.allocated.spec.resources.limits if resize.allocated.spec.resources else None) or {}
    changed = {one.name: one for one in resize.resize().containers}
    containers = dict(record.containers)
    for name, own in record.containers.items():
        if name not in changed:
            containers[name] = before.containers.get(name, own)
        elif not changed[name].restart:
            implied = {key: limits.get(key, ZERO) for key in ("cpu", "memory")}
            nothing = dict.fromkeys(("cpu", "memory"), ZERO)
            containers[name] = replace(
                own, requests={**nothing, **(own.requests or {})}, limits={**implied, **(own.limits or {})}
            )
    return replace(record, containers=containers)
