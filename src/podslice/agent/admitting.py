"""Decides about pods, and remembers the decisions.

The state files say what was given away, `pods/` to whom. A refusal is kept in the pod's record until something changes
that could lead to another answer, so a runtime that asks again and again costs nothing. `safe_mode` says why the state
cannot be trusted; it is empty when it can.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from podslice.agent.contract import RefusedError, RegisteringInventory, Reporter
from podslice.agent.journal import NodeJournal
from podslice.agent.records import PodRecord, ReportedRefusal
from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy
from podslice.host.boot import Boot
from podslice.host.state.podfiles import PodFiles
from podslice.host.state.resize_store import ResizeStore
from podslice.host.state.statefile import write_atomically
from podslice.host.state.store import StateWriteError
from podslice.machine.delta import MachineConsequence
from podslice.machine.model import Machine
from podslice.node.cpu.state import Intent
from podslice.node.decision import Decision
from podslice.node.node import Node
from podslice.service.identity import Identity
from podslice.service.pacing import BackOff
from podslice.values.errors import PodsliceError, StartError
from podslice.values.gates import FeatureGates
from podslice.values.quantity import Quantity
from podslice.values.quirks import PROFILE_RELEASES
from podslice.values.reasons import POD_TOO_LARGE, UNEXPECTED_ADMISSION

MOST_BITS = 256
MOST_CONTAINERS = 200
MOST_RESOURCES = 32
MOST_AMOUNTS = 2000
LARGEST_SPECIFICATION = 256 << 10
"""Bounds of a pod, so that a decision takes a small part of the time a runtime waits. Kubernetes bounds only the size
of its object; no pod of a real node comes near these."""
_DEVICES_REMEMBERED = 2.0
"""Seconds for which a refusal is repeated where devices come from plugins, which may change at any time."""
_MOST_REFUSALS = 100
"""Limit of kept refusals for the parts of one pod."""


class NodeSetup(NamedTuple):
    """The values a node starts with. `directory` holds its state files. `real_devices`: devices come from plugins that
    register. `move_strangers` False leaves containers alone that were created without the agent."""

    directory: Path
    machine: Machine
    config: KubeletConfig
    policy: PodslicePolicy = NO_POLICY
    profile: str = "podslice"
    boot: Boot | None = None
    real_devices: bool = False
    move_strangers: bool = True


class Admitting:
    """Admits and removes pods. `store` is None until `open` succeeds. `clock` returns seconds, `now` Unix time."""

    def __init__(
        self,
        setup: NodeSetup,
        reporter: Reporter,
        journal: NodeJournal,
        *,
        clock: Callable[[], float] = time.perf_counter,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.journal = journal
        self.directory = setup.directory
        self.machine = setup.machine
        self.config = setup.config
        self.store: ResizeStore | None = None
        self.safe_mode = ""
        self.may_heal = False
        self.files = PodFiles(setup.directory)
        self._reporter = reporter
        self.profile = setup.profile
        self.policy = setup.policy
        self._boot = setup.boot
        self._clock = clock
        self.now = now
        self._devices = RegisteringInventory() if setup.real_devices else None
        self._moment = 0
        self._unsaved = False

    def open(self, running: Iterable[Pod], accept: Callable[[Node, Mapping[str, Intent]], None]) -> ResizeStore:
        """Open the store for the running pods. Raises `PodsliceError` or `OSError`."""
        self._moment += 1
        try:
            store = ResizeStore(
                self.directory,
                self.machine,
                self.config,
                running=running,
                profile=self.profile,
                policy=self.policy,
                boot=self._boot,
                devices=self._devices,
                accept=accept,
                predicates=False,
            )
        except StartError as error:
            raise error.but(restarted="the agent") from None
        for uid in store.waiting:
            self.files.replace(store.node.view.pods[uid].spec)
        self.store = store
        self.safe_mode = ""
        self.may_heal = False
        return store

    def disk_works(self) -> bool:
        """Return whether a file can be written and read in the state directory."""
        probe = self.directory / "agent.probe"
        try:
            write_atomically(probe, b"probe")
            probe.unlink()
        except OSError:
            return False
        return True

    def distrust(self, why: str, *, disk: bool) -> None:
        """Enter safe mode. `disk`: the only reason is that a file could not be read or written."""
        self.safe_mode = why
        self.may_heal = disk
        self._moment += 1

    def invalidate_refusals(self) -> None:
        """Have refused pods decided about again: something became free or moved."""
        self._moment += 1

    def decide(self, pod: PodRecord, spec: Pod) -> None:
        """Admit a pod or a part of one. Raises `RefusedError`, the remembered one where nothing has changed since."""
        uid = spec.metadata.uid
        known = pod.refusals.get(uid)
        # A kubelet retries a refused container every few seconds; deciding anew each time would cost a full admission.
        if known is not None and self.holds(known) and known.spec == spec:
            raise RefusedError(known)
        try:
            self._admit(pod, spec)
        except RefusedError as error:
            self.refuse(pod, uid, error.refusal)
            raise
        pod.refusals.pop(uid, None)

    def holds(self, refusal: ReportedRefusal) -> bool:
        """Return whether nothing has changed since the refusal."""
        # Plugins change what is free without any event that the agent would see.
        fresh = self._devices is None or self._clock() - refusal.at < _DEVICES_REMEMBERED
        return fresh and refusal.moment == self._moment

    def refuse(self, pod: PodRecord, unit: str, refusal: ReportedRefusal) -> None:
        """Keep a refusal with its pod, and report it unless it repeats the previous one."""
        known = pod.refusals.get(unit)
        if known is refusal:
            return
        is_new = known is None or (known.reason, known.message) != (refusal.reason, refusal.message)
        if known is None:
            refusal = replace(refusal, since=self.now())
        else:
            kept = {} if is_new else {"waits_for": known.waits_for, "fix": known.fix}
            refusal = replace(refusal, since=known.since, **kept)
        # Without a bound a hostile pod's containers would fill the memory.
        if unit in pod.refusals or len(pod.refusals) < _MOST_REFUSALS:
            pod.refusals[unit] = refusal
        if is_new:
            self._reporter.refused(pod.identity, refusal)
            self.journal.record_refusal(unit, refusal.reason, refusal.message)

    def _admit(self, pod: PodRecord, spec: Pod) -> None:
        uid = spec.metadata.uid
        large = reason_too_large(spec)
        if large:
            raise RefusedError(
                ReportedRefusal(
                    POD_TOO_LARGE, f"the pod is too large: {large}", spec=spec, moment=self._moment, final=True
                )
            )
        if self.store is None:
            self._admit_without_state(spec)
            pod.units.add(uid)
            return
        decision = self._decision(self.store, pod.identity, spec)
        if not decision.admitted:
            self.files.drop(uid)
            refusal = refusal_of(decision)
            raise RefusedError(replace(refusal, spec=spec, moment=self._moment, at=self._clock(), final=True))
        self._moment += 1
        pod.units.add(uid)
        self._reporter.admitted(pod.identity, decision, self.store.node)

    def _decision(self, store: ResizeStore, identity: Identity, spec: Pod) -> Decision:
        """Decide about a pod, and write the decision to disk before returning it.

        After an error half-way nothing is left behind.
        """
        started = self._clock()
        try:
            # The pod file comes first: a restart between both writes finds a pod without CPUs, never CPUs without a
            # pod.
            self.files.keep(spec)
            before = store.node.state
            decision = store.admit(spec, self.journal.admission_for(spec))
            self.journal.record_decision(before, spec, decision)
        except (StateWriteError, OSError) as error:
            self._unsaved = True
            self.files.drop(spec.metadata.uid)
            raise RefusedError(ReportedRefusal(UNEXPECTED_ADMISSION, f"the decision cannot be kept: {error}")) from None
        except PodsliceError as error:
            self.remove(spec.metadata.uid)
            raise RefusedError(ReportedRefusal(UNEXPECTED_ADMISSION, str(error))) from None
        except Exception:
            self.remove(spec.metadata.uid)
            raise
        self._reporter.decided(self._clock() - started)
        return decision

    def hold(self, holder: Pod) -> None:
        """Give a claim the CPUs that its holder pod asks for. Raises `RefusedError`.

        The write need not be durable: after a power failure no container runs on these CPUs, and the claim's own record
        restores them; so the disk is waited for only once, with that record.
        """
        store = self.store
        if store is None:
            raise RefusedError(ReportedRefusal(UNEXPECTED_ADMISSION, f"the state cannot be trusted: {self.safe_mode}"))
        before = store.node.state
        try:
            decision = store.admit(holder, settled=False)
        except StateWriteError as error:
            raise RefusedError(ReportedRefusal(UNEXPECTED_ADMISSION, f"the decision cannot be kept: {error}")) from None
        except PodsliceError as error:
            store.node.state = before
            raise RefusedError(ReportedRefusal(UNEXPECTED_ADMISSION, str(error))) from None
        if not decision.admitted:
            raise RefusedError(replace(refusal_of(decision), final=True))
        self.journal.record_decision(before, holder, decision)
        self._moment += 1

    def _admit_without_state(self, spec: Pod) -> None:
        release = PROFILE_RELEASES[self.profile]
        gates = FeatureGates.from_overrides(self.config.feature_gates, release=release)
        pod = AdmissionPod.of(default_pod(spec, gates), gates, release=release)
        owns = pod.cpus or any(container.exclusive_cpus for container in pod.containers)
        if owns and self.config.cpu_manager_policy == "static":
            why = self.safe_mode or "the runtime has not reported what runs yet"
            message = f"no exclusive CPUs while the state cannot be trusted: {why}"
            raise RefusedError(ReportedRefusal(UNEXPECTED_ADMISSION, message, spec=spec, moment=self._moment))

    def release(self, holder: str) -> None:
        """Free what a claim held. The write need not be durable: after a power failure a leftover belongs to no
        claim."""
        self.remove(holder, settled=False)

    def remove(self, unit: str, *, settled: bool = True) -> None:
        """Free what was admitted under this UID. Unless `settled`, the write need not survive a power failure."""
        if self.store is None:
            return
        self._moment += 1
        before = self.store.node.state
        try:
            self.store.remove(unit, settled=settled)
        except StateWriteError as error:
            self._unsaved = True
            self._reporter.trouble("stateWrite", str(error))
        self.journal.record_removal(before, unit)
        self.files.drop(unit)

    def change_machine(self, machine: Machine) -> tuple[MachineConsequence, ...]:
        """Use another machine from now on, even if the state file cannot be written yet. Raises `StartError` for a
        machine on which nothing can run."""
        found = () if self.store is None else self.store.node.change_machine(machine)
        self.machine = machine
        if found:
            self._moment += 1
            self._unsaved = True
            self.save()
        return found

    def change_policy(self, policy: PodslicePolicy) -> None:
        """Decide by another policy from now on. Raises `StartError` for one with which the node would not start; then
        nothing changes."""
        try:
            if self.store is None:
                Node(self.machine, self.config, profile=self.profile, predicates=False, policy=policy)
            else:
                self.store.change_policy(policy)
        except StateWriteError as error:
            self._unsaved = True
            self._reporter.trouble("stateWrite", str(error))
        except StartError as error:
            raise error.but(restarted="the agent") from None
        self.policy = policy
        self.invalidate_refusals()
        self.journal.record_changes()

    def save(self) -> None:
        """Write the state again if an earlier write failed."""
        if self._unsaved and self.store is not None:
            try:
                self.store.save()
                self._unsaved = False
            except StateWriteError as error:
                self._reporter.trouble("stateWrite", str(error))


def refusal_of(decision: Decision) -> ReportedRefusal:
    """Return a refused decision as a refusal to keep."""
    return ReportedRefusal(decision.reason, decision.message, decision.why)


def reason_too_large(pod: Pod) -> str:
    """Return why a pod is too large to decide about; an empty string for one that is not."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    if len(containers) > MOST_CONTAINERS:
        return f"it has {len(containers)} containers, and the limit is {MOST_CONTAINERS}"
    listed = [one.resources for one in containers]
    listed += [pod.spec.resources] if pod.spec.resources is not None else []
    names: set[str] = set()
    amounts = 0
    for resources in listed:
        for quantities in (resources.requests or {}, resources.limits or {}):
            names.update(quantities)
            amounts += len(quantities)
            odd = next((name for name, amount in quantities.items() if _is_odd(amount)), None)
            if odd is not None:
                return f"its quantity of {odd[:80]} is beyond any machine"
    if len(names) > MOST_RESOURCES:
        return f"it names {len(names)} resources, and the limit is {MOST_RESOURCES}"
    if amounts > MOST_AMOUNTS:
        return f"it has {amounts} requests and limits, and the limit is {MOST_AMOUNTS}"
    size = len(msgspec.json.encode(pod, enc_hook=str))
    if size > LARGEST_SPECIFICATION:
        return f"its names and resources take {size} bytes, and the limit is {LARGEST_SPECIFICATION}"
    return ""


def _is_odd(amount: Quantity) -> bool:
    """Return whether an amount is so far beyond 64 bits that its sums would be slow."""
    return amount.nano.bit_length() > MOST_BITS


LONGEST = 60.0


async def heal(
    admitting: Admitting,
    reconnect: Callable[[], None],
    *,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    back_off: BackOff | None = None,
) -> None:
    """Try the disk again and again, less and less often. Once it works, reconnect: the runtime then lists what runs,
    which opens the state."""
    back_off = back_off or BackOff(1.0, LONGEST)
    while True:
        await sleep(back_off.next())
        if not admitting.may_heal:
            back_off.reset()
        elif admitting.disk_works():
            # The state can be opened only against the runtime's list, which comes with a new connection.
            reconnect()
