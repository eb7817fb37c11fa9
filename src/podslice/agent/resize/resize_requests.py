"""What the runtime's calls and the specifications of pods ask for a pod that runs, and which of them counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from podslice.agent.admitting import Admitting
from podslice.agent.kubelet.sources import unit_uid
from podslice.agent.records import ContainerRecord, Limits, NodeRecords, PodRecord
from podslice.agent.resize.resize_in_progress import ResizeInProgress, ResizeRefusedError
from podslice.agent.resize.unapplied_resizes import limit_milli_cpu
from podslice.agent.resize.update_calls import apply_container_update, apply_pod_update, is_intermediate
from podslice.agent.runtime.translate import limits_of
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.config.policy import ExclusiveResize
from podslice.host.state.resize_store import ResizeStore
from podslice.service.identity import RESOURCES_ANNOTATION, Identity
from podslice.service.proto import nri_pb2 as nri
from podslice.values.errors import InputError


class Specifications(Protocol):
    """Who knows pods' specifications."""

    def find(self, identity: Identity) -> Pod | None: ...
    async def wait_until(self, identity: Identity, holds: Callable[[], bool]) -> None:
        """Give them time to tell about a pod, until this holds."""


class NoSpecifications:
    """For a node without `Resizing`: no resize is carried out, and each is reported."""

    def find(self, identity: Identity) -> Pod | None:
        return None

    async def wait_until(self, identity: Identity, holds: Callable[[], bool]) -> None:
        return None


class ResizeRequests:
    """Of one node, which decides by `admitting`."""

    def __init__(self, admitting: Admitting, records: NodeRecords, specifications: Specifications) -> None:
        self.in_progress: dict[str, ResizeInProgress] = {}
        """Resizes that are being carried out, by the UID their pod was admitted under."""
        self._admitting = admitting
        self._pods = records.pods
        self._specifications = specifications

    @property
    def store(self) -> ResizeStore:
        """The state. Raises `ResizeRefusedError` where it cannot be trusted."""
        store = self._admitting.store
        if store is None:
            raise ResizeRefusedError("deferred", f"the state cannot be trusted: {self._admitting.safe_mode}")
        return store

    @property
    def policy(self) -> ExclusiveResize:
        """What the node's policy says about resizes by now."""
        return self._admitting.policy.resize

    def active(self, unit: str) -> AdmissionPod | None:
        """The pod that was admitted under this unit, None for one that is gone."""
        store = self._admitting.store
        return None if store is None else store.node.view.pods.get(unit)

    def of_container(self, record: ContainerRecord, resources: nri.LinuxResources) -> Pod | None:
        """The pod once a container has what a call asks for; None where that is nothing new."""
        target = self.target(record.unit)
        if target is None or not record.member or record.limits is None:
            return None
        return apply_container_update(
            target, record.member, record.limits.updated(resources), resources.cpu.shares.value
        )

    def says(self, spec: Pod, record: ContainerRecord, resources: nri.LinuxResources) -> bool:
        """True when a specification asks for a container what the call does."""
        asked = (record.limits or Limits()).updated(resources)
        return apply_container_update(spec, record.member, asked, resources.cpu.shares.value) is None

    def target(self, unit: str) -> Pod | None:
        """What a pod has or is about to have; None for one that has no CPUs to resize."""
        active = self.active(unit)
        if not self.policy.exclusive or active is None or not active.guaranteed:
            return None
        ongoing = self.in_progress.get(unit)
        return active.spec if ongoing is None else ongoing.desired

    async def container(self, pod: PodRecord, wish: Pod, record: ContainerRecord, resources: nri.LinuxResources) -> Pod:
        """What a pod is to have whose container was asked about: its specification, if that is new enough, else what
        the call says."""
        return await self._settled(pod, record.unit, wish, lambda spec: self.says(spec, record, resources))

    async def pod(self, pod: PodRecord, wish: Pod, resources: nri.LinuxResources) -> Pod:
        """The same where the pod as a whole was asked about."""
        milli = limit_milli_cpu(Limits().updated(resources)) or 0
        return await self._settled(pod, pod.identity.uid, wish, lambda spec: apply_pod_update(spec, milli) is None)

    async def _settled(self, pod: PodRecord, unit: str, wish: Pod, says: Callable[[Pod], bool]) -> Pod:
        target = self.target(unit)
        found = self.find(pod.identity) if unit == pod.identity.uid else None
        if found is None or target is None:
            return wish
        gates = self.store.node.rules.gates
        if says(found):
            return found
        if is_intermediate(wish, found, target, gates):
            return wish
        await self._specifications.wait_until(pod.identity, lambda: self._holds(pod.identity, says))
        found = self.find(pod.identity)
        return found if found is not None and says(found) else wish

    def _holds(self, identity: Identity, says: Callable[[Pod], bool]) -> bool:
        found = self.find(identity)
        return found is not None and says(found)

    def find(self, identity: Identity) -> Pod | None:
        """The pod's specification with defaults, None where nobody knows it."""
        try:
            found = self._specifications.find(identity)
        except InputError:
            return None
        return None if found is None else default_pod(found, self.store.node.rules.gates)

    def newcomer(self, identity: Identity, message: nri.Container) -> ContainerRecord | None:
        """A container that is about to be created in a pod that was admitted with it, None for others."""
        pod, own = self._pods.get(identity.uid), unit_uid(identity.uid, message.name)
        if pod is None or pod.rejected or RESOURCES_ANNOTATION in identity.annotations:
            return None
        unit = identity.uid if identity.uid in pod.units else own if own in pod.units else ""
        active = self.active(unit)
        if active is None or message.name not in {one.name for one in active.containers}:
            return None
        limits = limits_of(message)
        return ContainerRecord(
            message.id, message.name, identity.uid, "", unit=unit, member=message.name, limits=limits
        )

    def missed(self, record: ContainerRecord) -> Pod | None:
        """A resize that the runtime carried out and we did not, because nobody was asked or there was no room: as the
        specification says it."""
        pod, nothing = self._pods.get(record.pod_uid), nri.LinuxResources()
        if pod is None or record.unit != record.pod_uid or record.limits is None or record.limits.quota is None:
            return None
        found = None if self.of_container(record, nothing) is None else self.find(pod.identity)
        return found if found is not None and self.says(found, record, nothing) else None

    def of_pod(self, pod: PodRecord, resources: nri.LinuxResources) -> Pod | None:
        """The same of a call for a pod as a whole."""
        target = self.target(pod.identity.uid)
        milli = limit_milli_cpu(Limits().updated(resources))
        if target is None or milli is None or pod.identity.uid not in self.store.node.view.bubbles:
            return None
        return apply_pod_update(target, milli)


def restarts(spec: Pod, record: ContainerRecord) -> bool:
    """True when the container wants to be restarted where one of its resources changes."""
    containers = (*spec.spec.init_containers, *spec.spec.containers)
    policies = next((one.resize_policy for one in containers if one.name == record.member), ())
    return any(one.restart_policy == "RestartContainer" for one in policies)
