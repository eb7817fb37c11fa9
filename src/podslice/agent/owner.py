"""The one owner of the node's state.

Everything that happens on the node becomes a call of `Owner`, one after the other on the event loop's thread (other
threads hand theirs over with `call_soon_threadsafe`); nothing else touches the `ResizeStore`. The owner decides (by
`admitting`) and keeps records; it neither waits nor talks. Answers go back to the caller, `updates` collects what other
containers must get, and news for people goes to a `contract.Reporter`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TypeVar

from msgspec.structs import replace

from podslice.agent.admitting import Admitting, NodeSetup, refusal_of
from podslice.agent.claims import check_claims
from podslice.agent.contract import Listed, NodeEvents, PodFacts, PodFailure, RefusedError, Reporter
from podslice.agent.dra.cdi import read_claimed_devices
from podslice.agent.dra.claimledger import ClaimLedger
from podslice.agent.kubelet.sources import ANY_CONTAINER, pod_from_container, unit_uid
from podslice.agent.placing import Placing
from podslice.agent.records import (
    ISOLATION_ENV,
    ClaimedDevice,
    ContainerRecord,
    NodeRecords,
    Pinning,
    PodRecord,
    ReportedRefusal,
    SandboxRecord,
)
from podslice.agent.resize.resize_requests import ResizeRequests
from podslice.agent.resize.unapplied_resizes import limit_milli_cpu, resize_text
from podslice.agent.runtime.translate import add_claimed, applied_pinning, limits_of, restored_pinning, update_of
from podslice.agent.seam import Seam
from podslice.agent.updates import Updates
from podslice.api.pod.claim_holder import claim_uid_of_holder, is_holder
from podslice.api.pod.spec import Pod
from podslice.config.policy import PodslicePolicy
from podslice.dra.prepared import annotate_claimed
from podslice.host.state.resize_store import ResizeStore
from podslice.host.state.statefile import StateReadError
from podslice.machine.delta import MachineConsequence
from podslice.machine.model import Machine
from podslice.node.cpu.state import Intent
from podslice.node.node import Node
from podslice.node.plugins.contract import Stopwatch
from podslice.service.identity import Identity
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import Bits
from podslice.values.errors import PodsliceError
from podslice.values.reasons import INVALID_POD, UNEXPECTED_ADMISSION

T = TypeVar("T")
Found = Pod | ReportedRefusal | None
"""What is known about a pod when it is asked for: its specification, why there is none that counts, or nothing."""


class Owner:
    """State, ledgers and decisions of one node. In safe mode existing sets are kept and no exclusive CPUs given away.
    `admitting` decides, `records` is what the owner and its parts remember, `facts` what is known from elsewhere.
    `claims` is None on a node without claims; `requests` knows the resizes that are yet to be carried out. `clock`
    counts seconds."""

    def __init__(
        self,
        setup: NodeSetup,
        admitting: Admitting,
        records: NodeRecords,
        reporter: Reporter,
        events: NodeEvents,
        facts: PodFacts,
        *,
        claims: ClaimLedger | None,
        requests: ResizeRequests,
        clock: Callable[[], float],
    ) -> None:
        self.directory = setup.directory
        self.machine = setup.machine
        self.config = setup.config
        self.reporter = reporter
        self.seam = Seam(reporter)
        self.admitting = admitting
        self.pods = records.pods
        self.sandboxes: dict[str, SandboxRecord] = {}
        self.containers = records.containers
        self.placing = Placing(setup.machine, self.containers, move_strangers=setup.move_strangers, claims=claims)
        self.updates = Updates(self.placing, self.containers, partial(self.contained, "update"), events, clock)
        self.claims = claims
        self._events = events
        self._facts = facts
        self._requests = requests

    @property
    def store(self) -> ResizeStore | None:
        """None in safe mode and before the first synchronization."""
        return self.admitting.store

    @property
    def safe_mode(self) -> str:
        """Why the state cannot be trusted, empty when it can."""
        return self.admitting.safe_mode

    @property
    def node(self) -> Node | None:
        """The decisions' side of the store."""
        return None if self.store is None else self.store.node

    def contained(self, step: str, record: ContainerRecord, work: Callable[[], T]) -> T | None:
        """Do a step for a container; None when it failed, which is then its pod's failure only."""
        sandbox = self.sandboxes.get(record.sandbox)
        identity = sandbox.identity if sandbox is not None else Identity(record.pod_uid, "", record.name, {})
        done = self.seam.attempt(step, identity, work)
        return None if isinstance(done, PodFailure) else done

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
        self._remember(live)
        self._list_containers(listed)
        self.updates.recheck()
        self._events.admissions_changed()
        return self.updates.take()

    def _open(self, live: dict[str, PodRecord], listed: Listed) -> None:
        """Bring up the store on the pods that run, or go into safe mode."""
        try:
            known, problems = self.admitting.files.load()
            holders = [] if self.claims is None else self.claims.load()
        except OSError as error:
            self._enter_safe_mode(str(error), disk=True)
            return
        for problem in problems:
            self.reporter.trouble("podFile", problem)
        running = holders
        for uid, pod in known.items():
            owner = live.get(uid.partition("/")[0]) or self._awaited(live, uid)
            if owner is None:
                self.admitting.files.drop(uid)
            else:
                owner.units.add(uid)
                owner.decided = True
                running.append(pod)

        def accept(node: Node, intents: Mapping[str, Intent]) -> None:
            by_claims = partial(self._cpus_of_claims, node)
            check_claims(node, self.sandboxes, listed.containers, self._facts.environment, intents, by_claims)

        try:
            store = self.admitting.open(running, accept)
        except (PodsliceError, OSError) as error:
            self._enter_safe_mode(str(error), disk=isinstance(error, (OSError, StateReadError)))
            return
        self.containers.clear()
        self.placing.left.clear()
        self.placing.node = store.node
        if store.node.rules.cpu.plugins is not None:
            store.node.rules.cpu.plugins.watch = Stopwatch(time.perf_counter)
        self._events.state_opened(store.node)
        self.admitting.journal.begin(store.node)
        for decision in store.refused:
            if self.claims is not None and is_holder(decision.uid):
                self.claims.forget(claim_uid_of_holder(decision.uid), decision.message)
                continue
            owner = live[decision.uid.partition("/")[0]]
            owner.units.discard(decision.uid)
            self.admitting.files.drop(decision.uid)
            self.admitting.refuse(owner, decision.uid, refusal_of(decision))
            if decision.uid == owner.identity.uid:
                owner.decided = owner.tolerated = _runs(owner, listed)
        if self.claims is not None:
            self.claims.write_files()
        self._adopt_all(live.values(), listed)
        self._remember(live)
        self._tell_changes(store.followed)

    def _remember(self, live: dict[str, PodRecord]) -> None:
        """Replace the pods in place: other parts hold the same mapping."""
        self.pods.clear()
        self.pods.update(live)

    def check_pool(self, before: Bits) -> None:
        """A claim was prepared or given back: announce it where the shared pool is not `before` any more."""
        if self.placing.pool() != before:
            self.updates.pool_changed()
            self._events.admissions_changed()
            self._events.room_freed()

    def _cpus_of_claims(self, node: Node, message: nri.Container) -> Bits | None:
        """The CPUs that a running container has by claims, as this node has them."""
        if self.claims is None:
            return None
        sandbox = self.sandboxes.get(message.pod_sandbox_id)
        devices = self._claims_of(sandbox.identity.uid, message, adopt=True) if sandbox is not None else ()
        found = self.claims.pinning(devices, node.view)
        return None if found is None else found.cpus

    def _claims_of(self, pod: str, message: nri.Container, *, adopt: bool) -> tuple[ClaimedDevice, ...]:
        """The devices of claims that a container is created with. Raises `RefusedError` for those of other pods, never
        when adopting."""
        if self.claims is None:
            return ()
        try:
            return self.claims.uses(pod, read_claimed_devices(message.env))
        except RefusedError:
            if adopt:
                return ()
            raise

    def _awaited(self, live: dict[str, PodRecord], uid: str) -> PodRecord | None:
        """A pod that was decided about and is to have a sandbox, if it is one; it is then among the live ones."""
        identity = self._facts.awaited(uid)
        if identity is not None:
            live[uid] = PodRecord(identity)
        return live.get(uid)

    def _take_in(self, live: dict[str, PodRecord], listed: Listed) -> None:
        for uid, known in self.pods.items():
            if uid in live:
                known.sandboxes, known.identity = live[uid].sandboxes, live[uid].identity
                live[uid] = known
            elif self._stays(known):
                known.sandboxes = set()
                live[uid] = known
            else:
                self._release(known)
        self._adopt_all((pod for uid, pod in live.items() if uid not in self.pods), listed)

    def _adopt_all(self, pods: Iterable[PodRecord], listed: Listed) -> None:
        for pod in pods:
            if not pod.units and not pod.refusals and _runs(pod, listed):
                self.seam.attempt("adopt", pod.identity, partial(self._adopt, pod))

    def _adopt(self, pod: PodRecord) -> None:
        """A pod that came while we were not there, and runs: admit it now, or leave its containers strangers. One
        without containers that run is decided about at its next one, if it gets any."""
        pod.decided = pod.tolerated = True
        try:
            spec = self._facts.find(pod.identity)
            if spec is not None:
                self._decide(pod, spec)
            pod.tolerated = False
        except RefusedError:
            return
        except PodsliceError as error:
            pod.refusals[pod.identity.uid] = ReportedRefusal(INVALID_POD, str(error))
            self.reporter.trouble("adopt", f"{pod.identity}: {error}")

    def _enter_safe_mode(self, why: str, *, disk: bool) -> None:
        self.admitting.distrust(why, disk=disk)
        self.reporter.trouble("safeMode", f"{why}; existing sets are kept, new exclusive requests are refused")

    def _list_containers(self, listed: Listed) -> None:
        before = dict(self.containers)
        self.containers.clear()
        self.placing.forget_inits()
        for message in listed.containers:
            sandbox = self.sandboxes.get(message.pod_sandbox_id)
            if sandbox is not None and not sandbox.stopped and message.state != nri.CONTAINER_STOPPED:
                list_one = partial(self._list_container, sandbox, message, before.get(message.id))
                self.seam.attempt("list", sandbox.identity, list_one)

    def _list_container(self, sandbox: SandboxRecord, message: nri.Container, known: ContainerRecord | None) -> None:
        record = self._record(sandbox, message)
        record.applied = applied_pinning(message)
        found = self._facts.runs_on(record)
        cpus, mems = found.cpus or record.applied.cpus, found.mems or record.applied.mems
        record.applied = replace(record.applied, cpus=cpus, mems=mems)
        record.started = message.state != nri.CONTAINER_CREATED
        self.containers[record.id] = record
        if known is not None:
            record.unit, record.member, record.kept = known.unit, known.member, known.kept
            record.stranger, record.created, record.said = known.stranger, known.created, known.said
            record.claims = known.claims
            self.placing.created(record)
            self._check_size(record)
            return
        if ISOLATION_ENV not in self._facts.environment(message):
            record.stranger = True
            self.reporter.stranger(sandbox.identity, record.name, "it was created without the agent")
        self._place(sandbox.identity, message, record, adopt=True)
        self.placing.created(record)
        self._check_size(record)

    # The machine

    def change_machine(self, machine: Machine) -> None:
        """CPUs, memory or NUMA nodes came or went: the node's ledgers follow, and people hear of it. Raises
        `StartError` for a machine on which nothing can run."""
        found = self.admitting.change_machine(machine)
        self.machine = machine
        self.placing.on_machine(machine)
        self._tell_changes(found)
        self.updates.machine_changed()
        self._events.admissions_changed()

    def change_policy(self, policy: PodslicePolicy) -> None:
        """Decide by another policy from now on; nobody gains or loses anything by that alone. Raises `StartError` for
        one with which the node would not start; then nothing changes."""
        self.admitting.change_policy(policy)
        self._events.policy_changed()
        self._events.admissions_changed()
        self._events.room_freed()

    def _tell_changes(self, found: Iterable[MachineConsequence]) -> None:
        for consequence in found:
            pod = self.pods.get(consequence.pod.partition("/")[0])
            if pod is not None or not consequence.pod:
                self.reporter.machine_changed(None if pod is None else pod.identity, consequence)

    # Pods

    def undecided(self, uid: str) -> bool:
        """True when a pod's specification is needed before its next container."""
        pod = self.pods.get(uid)
        return pod is None or not (pod.decided or pod.rejected)

    def arrive(self, identity: Identity, found: Found) -> None:
        """A pod is to run here and has no sandbox yet: what it gets is its own from now on. What one with claims gets
        is known once these are prepared, which they are before its sandbox is there."""
        if self.claims is not None and isinstance(found, Pod) and found.spec.resource_claims:
            return
        pod = self.pods.setdefault(identity.uid, PodRecord(identity))
        if not pod.units:
            self._consider(pod, found)

    def leave(self, uid: str) -> None:
        """A pod without sandbox will not get one any more: everything it held is free, and nothing is remembered."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self._release(pod)
        for key in [key for key in self.placing.left if key[0] == uid]:
            del self.placing.left[key]

    def _stays(self, pod: PodRecord) -> bool:
        """True for a pod without sandbox that is to have another one: its place is nobody else's meanwhile."""
        decided = (pod.units or pod.refusals) and not pod.tolerated
        return bool(decided) and self._facts.awaited(pod.identity.uid) is not None

    def run_pod(self, sandbox: str, identity: Identity, found: Found) -> None:
        """A sandbox is about to be created. It always may: a pod the node does not take holds nothing, and its
        containers are refused (a refused sandbox harms containerd, see docs/agent-behaviour.md)."""
        pod = self.pods.setdefault(identity.uid, PodRecord(identity))
        pod.identity = identity
        pod.sandboxes.add(sandbox)
        self.sandboxes[sandbox] = SandboxRecord(sandbox, identity)
        if not pod.units:
            self._consider(pod, found)

    def _consider(self, pod: PodRecord, found: Found) -> None:
        """Decide about a pod as a whole; a refusal is kept in its record."""
        if pod.rejected:
            return
        before = pod.refusals.get(pod.identity.uid)
        self._decide_whole(pod, found)
        after = pod.refusals.get(pod.identity.uid)
        if after is not None and after is not before and after.final:
            self._events.admissions_changed()

    def _decide_whole(self, pod: PodRecord, found: Found) -> None:
        pod.decided, pod.tolerated = False, False
        if isinstance(found, ReportedRefusal):
            self.admitting.refuse(pod, pod.identity.uid, found)
            return
        if found is not None:
            tried = self.seam.attempt("admit", pod.identity, partial(self._admitted, pod, found))
            if isinstance(tried, PodFailure):
                self.admitting.refuse(pod, pod.identity.uid, ReportedRefusal(UNEXPECTED_ADMISSION, str(tried)))
            if tried is not True:
                return
        pod.refusals.pop(pod.identity.uid, None)
        pod.decided = True

    def _admitted(self, pod: PodRecord, spec: Pod) -> bool:
        try:
            self._decide(pod, spec)
        except RefusedError:
            return False
        return True

    def _decide(self, pod: PodRecord, spec: Pod) -> None:
        """Admit a pod or a part of one. Raises `RefusedError`."""
        before = self.placing.pool()
        if self.claims is not None:
            spec = annotate_claimed(spec, self.claims.of_pod(pod.identity.uid))
        try:
            self.admitting.decide(pod, spec)
        finally:
            if self.placing.pool() != before:
                self.updates.pool_changed()

    def stop_pod(self, sandbox: str) -> None:
        """A sandbox has stopped: with the pod's last one everything it held is free, unless it is to have another."""
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
            if not pod.sandboxes and not self._stays(pod):
                self.leave(record.identity.uid)

    def remove_pod(self, sandbox: str) -> None:
        """A sandbox is gone."""
        self.stop_pod(sandbox)
        self.sandboxes.pop(sandbox, None)

    def _release(self, pod: PodRecord) -> None:
        before = self.placing.pool()
        for unit in pod.units:
            self.admitting.remove(unit)
        if self.placing.pool() != before:
            self.updates.pool_changed()
        self._events.admissions_changed()
        self._events.room_freed()

    def made_room(self) -> None:
        """A pod that stays has given something up or is elsewhere, or the machine has changed: who was refused may ask
        again."""
        self.admitting.look_again()
        self._events.admissions_changed()
        self._events.room_freed()

    # Containers

    def foresee(self, sandbox: str, identity: Identity, message: nri.Container, found: Found) -> None:
        """Decide beforehand what `create_container` would, so that it finds it decided. Raises `RefusedError`."""
        pod = self._known(sandbox, identity, found)
        known = {identity.uid, unit_uid(identity.uid, message.name)} & set(pod.units)
        if self.store is not None and not pod.tolerated and not known:
            self._admit_alone(pod, message, adopt=False)

    def _known(self, sandbox: str, identity: Identity, found: Found) -> PodRecord:
        """The pod of a container that is to be created, decided about. Raises `RefusedError`."""
        pod, known = self.pods.get(identity.uid), self.sandboxes.get(sandbox)
        if pod is None or known is None or known.stopped:
            self.run_pod(sandbox, identity, found)
        elif not pod.decided:
            self._consider(pod, found)
        self._check_taken(self.pods[identity.uid])
        return self.pods[identity.uid]

    def create_container(
        self, sandbox: str, identity: Identity, message: nri.Container, found: Found = None
    ) -> ContainerRecord:
        """A container is about to be created; its record says what it gets. `found` is used if its pod is undecided:
        its sandbox came while we were away, or it was refused and asks again. Raises `RefusedError`."""
        self._known(sandbox, identity, found)
        record = self._record(self.sandboxes[sandbox], message)
        record.created = record.limits
        self._place(identity, message, record, adopt=False)
        if self.placing.created(record):
            self.updates.unit_changed(record.unit)
        record.applied = self.placing.wanted(record)
        record.on_pool = record.applied == Pinning(cpus=self.placing.pool())
        self.containers[record.id] = record
        return record

    def _check_taken(self, pod: PodRecord) -> None:
        refusal = pod.refusals.get(pod.identity.uid)
        if refusal is not None and not pod.tolerated:
            pod.turned_away = self.admitting.now()
            raise RefusedError(refusal)

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
        record.claims = self._claims_of(identity.uid, message, adopt=adopt)
        if self.store is None:
            left = self.placing.left.pop((identity.uid, message.name), None)
            record.kept = restored_pinning(message, self._facts.environment(message)) or left
        if pod.tolerated or (adopt and identity.uid in pod.refusals):
            return
        unit = unit_uid(identity.uid, message.name)
        if identity.uid in pod.units:
            record.unit, record.member = identity.uid, self._member(identity.uid, message.name)
        elif unit in pod.units or (record.kept is None and self._admit_alone(pod, message, adopt=adopt)):
            record.unit, record.member = unit, message.name

    def _admit_alone(self, pod: PodRecord, message: nri.Container, *, adopt: bool) -> bool:
        """Admit one container of a pod nobody knows; False if it shares. Raises `RefusedError` unless adopting."""
        spec = pod_from_container(pod.identity, message)
        if spec is None or not self._in_budget(pod, message, adopt=adopt):
            return False
        try:
            self._decide(pod, spec)
        except RefusedError:
            if not adopt:
                raise
            return False
        return True

    def _in_budget(self, pod: PodRecord, message: nri.Container, *, adopt: bool) -> bool:
        """True when the pod's containers then own no more CPUs than the pod may use: a kubelet with pod-level resources
        gives a container without limits those of its whole pod. Containers that have ended make room."""
        if pod.limit is None:
            pod.limit = pod.identity.cpu_limit or self._facts.pod_limit(pod.identity)
        asked = limit_milli_cpu(limits_of(message))
        if pod.limit is None or asked is None or asked % 1000:
            return True
        running = {record.name for record in self.containers.values() if record.pod_uid == pod.identity.uid}
        ended = [unit for unit in sorted(pod.units) if unit.partition("/")[2] not in running and not adopt]
        while self.placing.owned_by(pod.units).bit_count() * 1000 + asked > pod.limit:
            if not ended:
                return False
            self._release_unit(pod, ended.pop())
        return True

    def _release_unit(self, pod: PodRecord, unit: str) -> None:
        pod.units.discard(unit)
        self.admitting.remove(unit)
        self.updates.pool_changed()
        self._events.room_freed()

    def _member(self, uid: str, name: str) -> str:
        """The container of the specification that stands for this one; empty for one that only shares."""
        node = self.node
        active = None if node is None else node.view.pods.get(uid)
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
        self._check_size(record)
        self.updates.answered()
        if not (wanted.cpus or wanted.mems or wanted.quota_off):
            return []
        update = update_of(record, wanted)
        add_claimed(self.placing.claimed_limits(record), resources.cpu.shares.value, update.linux.resources)
        return [update]

    def _check_size(self, record: ContainerRecord) -> None:
        """Tell people of a resize that is not carried out, each time another size is asked for."""
        waits = self.placing.resized(record) and self._requests.unapplied(record) is None
        text = resize_text(record) if waits else ""
        record.resized = bool(text)
        sandbox = self.sandboxes.get(record.sandbox)
        if text and text != record.said and sandbox is not None:
            self.reporter.resized(sandbox.identity, record.name, text)
        record.said = text

    def carried_out(self, record: ContainerRecord) -> None:
        """A resize of the container is done, maybe one that nobody was asked about: nothing is left to tell of it."""
        if not self.placing.resized(record):
            record.resized, record.said = False, ""

    def stop_container(self, container_id: str) -> None:
        """The container no longer runs; what it holds stays with its pod, which may start it again."""
        record = self.containers.pop(container_id, None)
        if record is not None and self.placing.ended(record):
            self.updates.unit_changed(record.unit)
        if record is not None and record.kept is not None:
            self.placing.left[record.pod_uid, record.name] = record.kept


def _runs(pod: PodRecord, listed: Listed) -> bool:
    """True when one of the pod's containers is there and has not ended."""
    return any(one.state != nri.CONTAINER_STOPPED and one.pod_sandbox_id in pod.sandboxes for one in listed.containers)
