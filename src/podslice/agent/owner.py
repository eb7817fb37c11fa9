"""The one owner of the node's state.

Everything that happens on the node becomes a call of `Owner`, one after the other on the event loop's thread (other
threads hand theirs over with `call_soon_threadsafe`); nothing else touches the `NodeStore`. The owner decides and
keeps books, it neither waits nor talks: answers go back to the caller, what other containers must get is collected by
`updates`, news for people go to a `contract.Reporter`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from podslice.agent.books import ISOLATION_ENV, ContainerRecord, Placement, PodRecord, SandboxRecord
from podslice.agent.claims import check_claims
from podslice.agent.contract import Listed, RefusedError, RegisteringInventory, Reporter
from podslice.agent.derived import ANY_CONTAINER, pod_from_container, unit_uid
from podslice.agent.identity import Identity
from podslice.agent.placing import Placing
from podslice.agent.podfiles import PodFiles
from podslice.agent.translate import applied_of, kept_of, limits_of, update_of, variables_of
from podslice.agent.updates import Updates
from podslice.core.config.kubelet import KubeletConfig
from podslice.core.errors import PodsliceError
from podslice.core.machine.model import Machine
from podslice.core.node import Node
from podslice.core.pod.defaults import default_pod
from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.pod.spec import Pod
from podslice.core.values.gates import FeatureGates
from podslice.host.store import NodeStore, StateWriteError
from podslice.wire.proto import nri_pb2 as nri

UNEXPECTED = "UnexpectedAdmissionError"


class Owner:
    """State, books and decisions of one node. `safe_mode` says why the state cannot be trusted, empty when it can:
    existing sets are then kept and no exclusive CPUs given away. `find` knows pods, `told` what a container was
    told: its environment could come from whoever wrote its pod, so it is better known from elsewhere."""

    def __init__(
        self,
        directory: Path,
        machine: Machine,
        config: KubeletConfig,
        *,
        reporter: Reporter,
        profile: str = "podslice",
        move_strangers: bool = True,
        real_devices: bool = False,
        find: Callable[[Identity], Pod | None] = lambda identity: None,
        clock: Callable[[], float] = time.perf_counter,
        told: Callable[[nri.Container], Mapping[str, str]] = variables_of,
    ) -> None:
        self.directory = directory
        self.machine = machine
        self.config = config
        self.reporter = reporter
        self.store: NodeStore | None = None
        self.safe_mode = ""
        self.pods: dict[str, PodRecord] = {}
        self.sandboxes: dict[str, SandboxRecord] = {}
        self.containers: dict[str, ContainerRecord] = {}
        self.placing = Placing(machine, self.containers, move_strangers=move_strangers)
        self.updates = Updates(self.placing, self.containers)
        self.on_open: Callable[[Node], None] = lambda node: None
        self._find = find
        self._told = told
        self._clock = clock
        self._profile = profile
        self._devices = RegisteringInventory() if real_devices else None
        self._files = PodFiles(directory)
        self._unsaved = False

    @property
    def node(self) -> Node | None:
        """The decisions' side of the store; None in safe mode and before the first synchronization."""
        return None if self.store is None else self.store.node

    # Synchronization

    def synchronize(self, listed: Listed) -> list[nri.ContainerUpdate]:
        """The runtime says what there is: open the state on the first time, afterwards take in the differences.
        Nobody's exclusive CPUs move."""
        self.sandboxes = {sandbox.id: sandbox for sandbox in listed.sandboxes}
        live: dict[str, PodRecord] = {}
        for sandbox in listed.sandboxes:
            if not sandbox.stopped:
                pod = live.setdefault(sandbox.identity.uid, PodRecord(sandbox.identity))
                pod.sandboxes.add(sandbox.id)
        if self.store is None:
            self._open(live, listed)
        else:
            self._take_in(live, listed)
        self.pods = live
        self._list_containers(listed)
        self.updates.recheck()
        return self.updates.take()

    def _open(self, live: Mapping[str, PodRecord], listed: Listed) -> None:
        """Bring up the store on the pods that run, or go into safe mode."""
        known, problems = self._files.load()
        for problem in problems:
            self.reporter.trouble("podFile", problem)
        running = []
        for uid, pod in known.items():
            owner = live.get(uid.partition("/")[0])
            if owner is None:
                self._files.drop(uid)
            else:
                owner.units.add(uid)
                running.append(pod)
        try:
            self.store = NodeStore(
                self.directory,
                self.machine,
                self.config,
                running=running,
                profile=self._profile,
                devices=self._devices,
                accept=lambda node: check_claims(node, self.sandboxes, listed.containers, self._told),
                predicates=False,
            )
        except (PodsliceError, OSError) as error:
            self._enter_safe_mode(str(error))
            return
        self.containers.clear()
        self.placing.left.clear()
        self.safe_mode = ""
        self.placing.node = self.store.node
        self.on_open(self.store.node)
        for decision in self.store.refused:
            owner = live[decision.uid.partition("/")[0]]
            owner.units.discard(decision.uid)
            owner.refused = True
            self._files.drop(decision.uid)
            self.reporter.refused(owner.identity, decision.reason, decision.message)
        for pod_record in live.values():
            self._adopt(pod_record, listed)

    def _take_in(self, live: dict[str, PodRecord], listed: Listed) -> None:
        for uid, known in self.pods.items():
            if uid in live:
                live[uid].units, live[uid].refused = known.units, known.refused
            else:
                self._release(known)
        for uid, pod in live.items():
            if uid not in self.pods:
                self._adopt(pod, listed)

    def _adopt(self, pod: PodRecord, listed: Listed) -> None:
        """A pod that came while we were not there: admit it now, or leave its containers strangers. A pod whose
        containers have all ended, a finished job for example, gets nothing any more."""
        states = [one.state for one in listed.containers if one.pod_sandbox_id in pod.sandboxes]
        ended = bool(states) and all(state == nri.CONTAINER_STOPPED for state in states)
        if pod.units or pod.refused or ended:
            return
        try:
            spec = self._find(pod.identity)
            if spec is not None:
                self._admit(pod, spec)
        except PodsliceError as error:
            pod.refused = True
            self.reporter.trouble("adopt", f"{pod.identity}: {error}")

    def _enter_safe_mode(self, why: str) -> None:
        self.safe_mode = why
        self.reporter.trouble("safeMode", f"{why}; existing sets are kept, new exclusive requests are refused")

    def _list_containers(self, listed: Listed) -> None:
        before = dict(self.containers)
        self.containers.clear()
        self.placing.forget_inits()
        for message in listed.containers:
            sandbox = self.sandboxes.get(message.pod_sandbox_id)
            if sandbox is None or message.state == nri.CONTAINER_STOPPED:
                continue
            record = self._record(sandbox, message)
            record.applied = applied_of(message)
            record.started = message.state != nri.CONTAINER_CREATED
            known = before.get(record.id)
            self.containers[record.id] = record
            if known is not None:
                record.unit, record.member, record.kept = known.unit, known.member, known.kept
                record.stranger = known.stranger
                self.placing.created(record)
                continue
            if ISOLATION_ENV not in self._told(message):
                record.stranger = True
                self.reporter.stranger(sandbox.identity, record.name, "it was created without the agent")
            self._place(sandbox.identity, message, record, adopt=True)
            self.placing.created(record)

    # Pods

    def run_pod(self, sandbox: str, identity: Identity, spec: Pod | None) -> None:
        """A sandbox is about to be created. Raises `RefusedError`; the pod is then unknown again."""
        known = self.pods.get(identity.uid)
        pod = known or PodRecord(identity)
        if spec is not None and not pod.units:
            self._admit(pod, spec)
        self.pods[identity.uid] = pod
        pod.sandboxes.add(sandbox)
        self.sandboxes[sandbox] = SandboxRecord(sandbox, identity)

    def _admit(self, pod: PodRecord, spec: Pod) -> None:
        """Admit a pod or a part of one. Raises `RefusedError`."""
        uid = spec.metadata.uid
        if self.store is None:
            self._admit_without_state(pod.identity, spec)
            pod.units.add(uid)
            return
        try:
            self._files.keep(spec)
            before, started = self.placing.pool(), self._clock()
            decision = self.store.admit(spec)
            self.reporter.decided(self._clock() - started)
        except (StateWriteError, OSError) as error:
            self._files.drop(uid)
            self._refuse(pod.identity, UNEXPECTED, f"the decision cannot be kept: {error}")
        if not decision.admitted:
            self._files.drop(uid)
            self._refuse(pod.identity, decision.reason, decision.message)
        pod.units.add(uid)
        self.reporter.admitted(pod.identity, decision)
        if self.placing.pool() != before:
            self.updates.pool_changed()

    def _admit_without_state(self, identity: Identity, spec: Pod) -> None:
        gates = FeatureGates.from_overrides(self.config.feature_gates)
        pod = AdmissionPod.of(default_pod(spec, gates), gates)
        owns = pod.cpus or any(container.exclusive_cpus for container in pod.containers)
        if owns and self.config.cpu_manager_policy == "static":
            why = self.safe_mode or "the runtime has not told what runs yet"
            self._refuse(identity, UNEXPECTED, f"no exclusive CPUs while the state cannot be trusted: {why}")

    def _refuse(self, identity: Identity, reason: str, message: str) -> None:
        self.reporter.refused(identity, reason, message)
        raise RefusedError(reason, message)

    def stop_pod(self, sandbox: str) -> None:
        """A sandbox has stopped: with the pod's last one everything it held is free."""
        record = self.sandboxes.get(sandbox)
        if record is None or record.stopped:
            return
        record.stopped = True
        for container in [c for c in self.containers.values() if c.sandbox == sandbox]:
            del self.containers[container.id]
            self.placing.ended(container)
        pod = self.pods.get(record.identity.uid)
        if pod is not None:
            pod.sandboxes.discard(sandbox)
            if not pod.sandboxes:
                del self.pods[record.identity.uid]
                self._release(pod)
                for key in [key for key in self.placing.left if key[0] == record.identity.uid]:
                    del self.placing.left[key]

    def remove_pod(self, sandbox: str) -> None:
        """A sandbox is gone."""
        self.stop_pod(sandbox)
        self.sandboxes.pop(sandbox, None)

    def _release(self, pod: PodRecord) -> None:
        if self.store is None:
            return
        before = self.placing.pool()
        for unit in pod.units:
            self._remove_unit(unit)
        if self.placing.pool() != before:
            self.updates.pool_changed()

    def _remove_unit(self, unit: str) -> None:
        assert self.store is not None
        try:
            self.store.remove(unit)
        except StateWriteError as error:
            self._unsaved = True
            self.reporter.trouble("stateWrite", str(error))
        self._files.drop(unit)

    def save(self) -> None:
        """Write what could not be written before."""
        if self._unsaved and self.store is not None:
            try:
                self.store.save()
                self._unsaved = False
            except StateWriteError as error:
                self.reporter.trouble("stateWrite", str(error))

    # Containers

    def create_container(
        self, sandbox: str, identity: Identity, message: nri.Container, spec: Pod | None = None
    ) -> ContainerRecord:
        """A container is about to be created; its record says what it gets. `spec` is used if its pod's sandbox came
        while we were away. Raises `RefusedError`."""
        pod = self.pods.get(identity.uid)
        known = self.sandboxes.get(sandbox)
        if pod is None or known is None or known.stopped:
            self.run_pod(sandbox, identity, spec)
        record = self._record(self.sandboxes[sandbox], message)
        self._place(identity, message, record, adopt=False)
        if self.placing.created(record):
            self.updates.unit_changed(record.unit)
        record.applied = self.placing.wanted(record)
        record.on_pool = record.applied == Placement(cpus=self.placing.pool())
        self.containers[record.id] = record
        return record

    def _record(self, sandbox: SandboxRecord, message: nri.Container) -> ContainerRecord:
        return ContainerRecord(
            id=message.id,
            name=message.name,
            pod_uid=sandbox.identity.uid,
            sandbox=sandbox.id,
            cgroups_path=message.linux.cgroups_path,
            limits=limits_of(message),
        )

    def _place(self, identity: Identity, message: nri.Container, record: ContainerRecord, *, adopt: bool) -> None:
        """Find out under which decision a container runs; `adopt`: it runs already, without our having been asked.
        Raises `RefusedError`, never when adopting."""
        pod = self.pods[identity.uid]
        if self.store is None:
            left = self.placing.left.pop((identity.uid, message.name), None)
            record.kept = kept_of(message, self._told(message)) or left
        if pod.refused:
            return
        unit = unit_uid(identity.uid, message.name)
        if identity.uid in pod.units:
            record.unit, record.member = identity.uid, self._member(identity.uid, message.name)
        elif unit in pod.units or (record.kept is None and self._admit_alone(pod, message, adopt)):
            record.unit, record.member = unit, message.name

    def _admit_alone(self, pod: PodRecord, message: nri.Container, adopt: bool) -> bool:
        """Admit one container of a pod nobody knows; False if it shares. Raises `RefusedError` unless adopting."""
        spec = pod_from_container(pod.identity, message)
        try:
            if spec is not None:
                self._admit(pod, spec)
        except RefusedError:
            if not adopt:
                raise
            return False
        return spec is not None

    def _member(self, uid: str, name: str) -> str:
        """The container of the specification that stands for this one; empty for one that only shares."""
        node = self.node
        active = None if node is None else node.kubelet.active.get(uid)
        names = {container.name for container in active.containers} if active is not None else set()
        return name if name in names else ANY_CONTAINER if ANY_CONTAINER in names else ""

    def start_container(self, container_id: str) -> ContainerRecord | None:
        """A container is about to start; its record, None for one nobody told us of."""
        record = self.containers.get(container_id)
        if record is not None:
            record.started = True
        return record

    def update_container(self, container_id: str, resources: nri.LinuxResources) -> list[nri.ContainerUpdate]:
        """The kubelet changes a container's resources; our sets win, its limits are its own."""
        record = self.containers.get(container_id)
        if record is None:
            return []
        if record.limits is not None:
            record.limits = record.limits.updated(resources)
        wanted = self.placing.wanted(record)
        record.applied = wanted
        return [update_of(record, wanted)] if wanted.cpus or wanted.mems or wanted.quota_off else []

    def stop_container(self, container_id: str) -> None:
        """The container no longer runs; what it holds stays with its pod, which may start it again."""
        record = self.containers.pop(container_id, None)
        if record is not None and self.placing.ended(record):
            self.updates.unit_changed(record.unit)
        if record is not None and record.kept is not None:
            self.placing.left[record.pod_uid, record.name] = record.kept
