"""The single owner of the node's state.

Everything that happens on the node becomes a call of `Owner`, one after the other on the event loop's thread (other
threads hand theirs over with `call_soon_threadsafe`); nothing else touches the `ResizeStore`. The owner decides (by
`admitting`) and keeps records; it never awaits and sends nothing itself. Answers go back to the caller,
`updates` collects what other containers must get, and a `contract.Reporter` gets what people should know.
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
"""A pod's specification, the reason why there is none that counts, or None for a pod that no source knows."""


class Owner:
    """State, records and decisions of one node. In safe mode containers keep their CPUs and no exclusive CPUs are given
    away.

    `admitting` decides, `records` is what the owner and its parts remember, `facts` what is known from elsewhere.
    `claims` is None on a node without claims; `requests` knows the resizes that are yet to be carried out. `clock`
    returns seconds.
    """

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
        self.updates = Updates(self.placing, self.containers, partial(self.attempt, "update"), events, clock)
        self.claims = claims
        self._events = events
        self._facts = facts
        self._requests = requests
        self._stopwatch = Stopwatch(time.perf_counter)

    @property
    def store(self) -> ResizeStore | None:
        """The store; None in safe mode and before the first synchronization."""
        return self.admitting.store

    @property
    def safe_mode(self) -> str:
        """Why the state cannot be trusted; empty when it can."""
        return self.admitting.safe_mode

    @property
    def node(self) -> Node | None:
        """The node of the store, which decides."""
        return None if self.store is None else self.store.node

    def attempt(self, step: str, record: ContainerRecord, work: Callable[[], T]) -> T | None:
        """Run a step for a container; None when it failed, which is then a failure of its pod only."""
        sandbox = self.sandboxes.get(record.sandbox)
        identity = sandbox.identity if sandbox is not None else Identity(record.pod_uid, "", record.name, {})
        done = self.seam.attempt(step, identity, work)
        return None if isinstance(done, PodFailure) else done

    # Synchronization

    def synchronize(self, listed: Listed) -> list[nri.ContainerUpdate]:
        """Compare the records with the runtime's list: open the state the first time, afterwards apply differences.

        Exclusive CPUs do not move.
        """
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
        """Open the store for the running pods, or enter safe mode."""
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
        self._stopwatch = Stopwatch(time.perf_counter)
        self._time_plugins()
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
        self._report_changes(store.followed)

    def _remember(self, live: dict[str, PodRecord]) -> None:
        """Replace the pods in place: other parts hold the same mapping."""
        self.pods.clear()
        self.pods.update(live)

    def check_pool(self, before: Bits) -> None:
        """Announce a changed shared pool after a claim was prepared or given back; `before` is the pool of before."""
        if self.placing.pool() != before:
            self.updates.pool_changed()
            self._events.admissions_changed()
            self._events.room_freed()

    def _cpus_of_claims(self, node: Node, message: nri.Container) -> Bits | None:
        """Return the CPUs that a running container has by claims, as this node has them."""
        if self.claims is None:
            return None
        sandbox = self.sandboxes.get(message.pod_sandbox_id)
        devices = self._claims_of(sandbox.identity.uid, message, adopt=True) if sandbox is not None else ()
        found = self.claims.pinning(devices, node.view)
        return None if found is None else found.cpus

    def _claims_of(self, pod: str, message: nri.Container, *, adopt: bool) -> tuple[ClaimedDevice, ...]:
        """Return the devices of claims that a container is created with. Raises `RefusedError` for those of other pods,
        never when adopting."""
        if self.claims is None:
            return ()
        try:
            return self.claims.uses(pod, read_claimed_devices(message.env))
        except RefusedError:
            if adopt:
                return ()
            raise

    def _awaited(self, live: dict[str, PodRecord], uid: str) -> PodRecord | None:
        """Return the record of an admitted pod that is to get a sandbox, and count it as live; None for other UIDs."""
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
        """Admit a pod that was started while the agent was down; if it is refused, its containers stay on the shared
        pool.

        A pod without running containers is decided about when its next one is created.
        """
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
            self._check_resized(record)
            return
        # The agent sets this variable in every container that it sees created.
        if ISOLATION_ENV not in self._facts.environment(message):
            record.stranger = True
            self.reporter.stranger(sandbox.identity, record.name, "it was created without the agent")
        self._place(sandbox.identity, message, record, adopt=True)
        self.placing.created(record)
        self._check_resized(record)

    # The machine

    def change_machine(self, machine: Machine) -> None:
        """Use another machine from now on, and report what follows for pods. Raises `StartError` for a machine on which
        nothing can run."""
        found = self.admitting.change_machine(machine)
        self._time_plugins()
        self.machine = machine
        self.placing.on_machine(machine)
        self._report_changes(found)
        self.updates.machine_changed()
        self._events.admissions_changed()

    def change_policy(self, policy: PodslicePolicy) -> None:
        """Decide by another policy from now on; no pod gains or loses anything by that alone. Raises `StartError` for
        one with which the node would not start; then nothing changes."""
        self.admitting.change_policy(policy)
        self._time_plugins()
        self._events.policy_changed()
        self._events.admissions_changed()
        self._events.room_freed()

    def _time_plugins(self) -> None:
        """Have slow plugins left out. Another machine or policy makes the plugins anew, and those that were left out
        stay so until the next start."""
        plugins = None if self.node is None else self.node.rules.cpu.plugins
        if plugins is not None:
            plugins.time_calls(self._stopwatch)

    def _report_changes(self, found: Iterable[MachineConsequence]) -> None:
        for consequence in found:
            pod = self.pods.get(consequence.pod.partition("/")[0])
            if pod is not None or not consequence.pod:
                self.reporter.machine_changed(None if pod is None else pod.identity, consequence)

    # Pods

    def undecided(self, uid: str) -> bool:
        """Return whether a pod's specification is needed before its next container."""
        pod = self.pods.get(uid)
        return pod is None or not (pod.decided or pod.rejected)

    def arrive(self, identity: Identity, found: Found) -> None:
        """Decide about a pod that is to run here and has no sandbox yet, so that its CPUs are reserved.

        A pod with claims is skipped: what it gets is known once these are prepared, which happens before its sandbox
        exists.
        """
        if self.claims is not None and isinstance(found, Pod) and found.spec.resource_claims:
            return
        pod = self.pods.setdefault(identity.uid, PodRecord(identity))
        if not pod.units:
            self._consider(pod, found)

    def leave(self, uid: str) -> None:
        """Forget a pod that will get no sandbox any more, and free everything it held."""
        pod = self.pods.pop(uid, None)
        if pod is None:
            return
        self._release(pod)
        for key in [key for key in self.placing.left if key[0] == uid]:
            del self.placing.left[key]

    def _stays(self, pod: PodRecord) -> bool:
        """Return whether a pod without sandbox is to get another one and keeps its CPUs meanwhile."""
        decided = (pod.units or pod.refusals) and not pod.tolerated
        return bool(decided) and self._facts.awaited(pod.identity.uid) is not None

    def run_pod(self, sandbox: str, identity: Identity, found: Found) -> None:
        """Record a new sandbox and decide about its pod. Never refuses the sandbox: a refused pod holds nothing, and
        its containers are refused instead (docs/development/agent-behaviour.md: a refused sandbox harms containerd)."""
        pod = self.pods.setdefault(identity.uid, PodRecord(identity))
        pod.identity = identity
        pod.sandboxes.add(sandbox)
        self.sandboxes[sandbox] = SandboxRecord(sandbox, identity)
        if not pod.units:
            self._consider(pod, found)

    def _consider(self, pod: PodRecord, found: Found) -> None:
        """Decide about a pod as a whole, and keep a refusal in its record."""
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
        """Record that a sandbox has stopped. With the pod's last one everything it held is freed, unless it is to get
        another."""
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
        """Forget a removed sandbox."""
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
        """Have refused pods decided about again: a pod that stays gave something up or moved, or the machine
        changed."""
        self.admitting.invalidate_refusals()
        self._events.admissions_changed()
        self._events.room_freed()

    # Containers

    def decide_ahead(self, sandbox: str, identity: Identity, message: nri.Container, found: Found) -> None:
        """Decide what `create_container` would, so that it finds the decision made. Raises `RefusedError`."""
        pod = self._decided_pod(sandbox, identity, found)
        # A container is admitted with its whole pod, or alone where no source knows the pod.
        known = {identity.uid, unit_uid(identity.uid, message.name)} & set(pod.units)
        if self.store is not None and not pod.tolerated and not known:
            self._admit_alone(pod, message, adopt=False)

    def _decided_pod(self, sandbox: str, identity: Identity, found: Found) -> PodRecord:
        """Return the record of a new container's pod, after deciding about it. Raises `RefusedError`."""
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
        """Place a container that is being created, and return its record. Raises `RefusedError`.

        `found` is used if its pod is undecided: its sandbox came while the agent was down, or it was refused and asks
        again.
        """
        self._decided_pod(sandbox, identity, found)
        record = self._record(self.sandboxes[sandbox], message)
        # Kept apart from `limits`, which later updates change: only a difference between both is a resize.
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
        """Find the admission under which a container runs. `adopt`: it runs already, and the agent was not asked.

        Raises `RefusedError`, never when adopting.
        """
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
        """Admit one container of an unknown pod; return False if it shares. Raises `RefusedError` unless adopting."""
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
        """Return whether the pod's containers then own no more CPUs than the pod may use.

        A kubelet with pod-level resources gives a container without limits those of its whole pod. Containers that have
        ended make room.
        """
        if pod.limit is None:
            pod.limit = pod.identity.cpu_limit or self._facts.pod_limit(pod.identity)
        asked = limit_milli_cpu(limits_of(message))
        # Fractions share the pool and need no budget of whole CPUs.
        if pod.limit is None or asked is None or asked % 1000:
            return True
        running = {record.name for record in self.containers.values() if record.pod_uid == pod.identity.uid}
        ended = [unit for unit in sorted(pod.units) if unit.partition("/")[2] not in running and not adopt]
        # Containers that ended keep their CPUs for a restart, but only as long as no other container needs the budget.
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
        """Return the container of the specification that this one is; empty for one that only shares."""
        node = self.node
        active = None if node is None else node.view.pods.get(uid)
        names = {container.name for container in active.containers} if active is not None else set()
        return name if name in names else ANY_CONTAINER if ANY_CONTAINER in names else ""

    def start_container(self, container_id: str) -> ContainerRecord | None:
        """Note that a container starts; return its record, None for an unknown one."""
        record = self.containers.get(container_id)
        if record is not None:
            record.started = True
        return record

    def update_container(self, container_id: str, resources: nri.LinuxResources) -> list[nri.ContainerUpdate]:
        """Answer a kubelet's update of a container's resources: the limits are the kubelet's, the CPU sets ours."""
        record = self.containers.get(container_id)
        if record is None:
            return []
        if record.limits is not None:
            record.limits = record.limits.updated(resources)
        wanted = self.placing.wanted(record)
        record.applied = wanted
        self._check_resized(record)
        self.updates.answered()
        if not (wanted.cpus or wanted.mems or wanted.quota_off):
            return []
        update = update_of(record, wanted)
        add_claimed(self.placing.claimed_limits(record), resources.cpu.shares.value, update.linux.resources)
        return [update]

    def _check_resized(self, record: ContainerRecord) -> None:
        """Report a resize that is not carried out, once for each requested size."""
        waits = self.placing.resized(record) and self._requests.unapplied(record) is None
        text = resize_text(record) if waits else ""
        record.resized = bool(text)
        sandbox = self.sandboxes.get(record.sandbox)
        if text and text != record.said and sandbox is not None:
            self.reporter.resized(sandbox.identity, record.name, text)
        record.said = text

    def carried_out(self, record: ContainerRecord) -> None:
        """Clear the report of a resize that is done, also of one the agent was not asked about."""
        if not self.placing.resized(record):
            record.resized, record.said = False, ""

    def stop_container(self, container_id: str) -> None:
        """Note that a container has ended; what it holds stays with its pod, which may start it again."""
        record = self.containers.pop(container_id, None)
        if record is not None and self.placing.ended(record):
            self.updates.unit_changed(record.unit)
        if record is not None and record.kept is not None:
            self.placing.left[record.pod_uid, record.name] = record.kept


def _runs(pod: PodRecord, listed: Listed) -> bool:
    """Return whether one of the pod's containers exists and has not ended."""
    return any(one.state != nri.CONTAINER_STOPPED and one.pod_sandbox_id in pod.sandboxes for one in listed.containers)
