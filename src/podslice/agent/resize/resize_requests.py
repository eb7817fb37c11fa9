"""Resizes that the runtime's calls and the pods' specifications ask for, and which of the two counts."""

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
    """Source of pod specifications."""

    def find(self, identity: Identity) -> Pod | None: ...
    async def wait_until(self, identity: Identity, holds: Callable[[], bool]) -> None:
        """Wait a bounded time until `holds` returns True for the pod."""


class NoSpecifications:
    """For a node without `Resizing`: no resize is carried out, and each is reported."""

    def find(self, identity: Identity) -> Pod | None:
        return None

    async def wait_until(self, identity: Identity, holds: Callable[[], bool]) -> None:
        return None


class ResizeRequests:
    """Reads the resizes requested for the pods of one node; `actuator` carries them out."""

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
        """The resize rules of the policy in force."""
        return self._admitting.policy.resize

    def active(self, unit: str) -> AdmissionPod | None:
        """Return the pod admitted under this unit, None where it has gone."""
        store = self._admitting.store
        return None if store is None else store.node.view.pods.get(unit)

    def of_container(self, record: ContainerRecord, resources: nri.LinuxResources) -> Pod | None:
        """Return the pod with the resources a call asks for; None where the call changes nothing."""
        target = self.target(record.unit)
        if target is None or not record.member or record.limits is None:
            return None
        return apply_container_update(
            target, record.member, record.limits.updated(resources), resources.cpu.shares.value
        )

    def agrees(self, spec: Pod, record: ContainerRecord, resources: nri.LinuxResources) -> bool:
        """Return whether a specification asks for the same resources as the call."""
        asked = (record.limits or Limits()).updated(resources)
        return apply_container_update(spec, record.member, asked, resources.cpu.shares.value) is None

    def target(self, unit: str) -> Pod | None:
        """Return the specification that a pod has or is being resized to; None for a pod that cannot be resized."""
        active = self.active(unit)
        if not self.policy.exclusive or active is None or not active.guaranteed:
            return None
        ongoing = self.in_progress.get(unit)
        return active.spec if ongoing is None else ongoing.desired

    async def container(
        self, pod: PodRecord, requested: Pod, record: ContainerRecord, resources: nri.LinuxResources
    ) -> Pod:
        """Return the specification to resize to after a call for one container.

        It is the pod's own specification if that agrees with the call, else what the call says.
        """
        return await self._choose_specification(
            pod, record.unit, requested, lambda spec: self.agrees(spec, record, resources)
        )

    async def pod(self, pod: PodRecord, requested: Pod, resources: nri.LinuxResources) -> Pod:
        """Return the specification to resize to after a call for the pod cgroup."""
        milli = limit_milli_cpu(Limits().updated(resources)) or 0
        return await self._choose_specification(
            pod, pod.identity.uid, requested, lambda spec: apply_pod_update(spec, milli) is None
        )

    async def _choose_specification(
        self, pod: PodRecord, unit: str, requested: Pod, agrees: Callable[[Pod], bool]
    ) -> Pod:
        """Return the pod's specification where it `agrees` with the call, `requested` otherwise."""
        target = self.target(unit)
        found = self.find(pod.identity) if unit == pod.identity.uid else None
        if found is None or target is None:
            return requested
        gates = self.store.node.rules.gates
        if agrees(found):
            return found
        # The kubelet writes a resize in several calls; waiting for the specification would delay each of them.
        if is_intermediate(requested, found, target, gates):
            return requested
        await self._specifications.wait_until(pod.identity, lambda: self._holds(pod.identity, agrees))
        found = self.find(pod.identity)
        return found if found is not None and agrees(found) else requested

    def _holds(self, identity: Identity, agrees: Callable[[Pod], bool]) -> bool:
        found = self.find(identity)
        return found is not None and agrees(found)

    def find(self, identity: Identity) -> Pod | None:
        """Return the pod's specification with defaults; None where no source has it."""
        try:
            found = self._specifications.find(identity)
        except InputError:
            return None
        return None if found is None else default_pod(found, self.store.node.rules.gates)

    def new_container(self, identity: Identity, message: nri.Container) -> ContainerRecord | None:
        """Return a record for a container that is being created in an admitted pod; None for other containers."""
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

    def unapplied(self, record: ContainerRecord) -> Pod | None:
        """Return the specification of a resize that the runtime applied and the agent did not; None where there is
        none.

        This happens while the agent is down, or where there was no room.
        """
        pod, nothing = self._pods.get(record.pod_uid), nri.LinuxResources()
        if pod is None or record.unit != record.pod_uid or record.limits is None or record.limits.quota is None:
            return None
        found = None if self.of_container(record, nothing) is None else self.find(pod.identity)
        return found if found is not None and self.agrees(found, record, nothing) else None

    def of_pod(self, pod: PodRecord, resources: nri.LinuxResources) -> Pod | None:
        """Return the pod with the pod-level resources a call asks for; None where the call changes nothing."""
        target = self.target(pod.identity.uid)
        milli = limit_milli_cpu(Limits().updated(resources))
        if target is None or milli is None or pod.identity.uid not in self.store.node.view.pod_cpus:
            return None
        return apply_pod_update(target, milli)


def restarts(spec: Pod, record: ContainerRecord) -> bool:
    """Return whether the container's resize policy restarts it when one of its resources changes."""
    containers = (*spec.spec.init_containers, *spec.spec.containers)
    policies = next((one.resize_policy for one in containers if one.name == record.member), ())
    return any(one.restart_policy == "RestartContainer" for one in policies)
