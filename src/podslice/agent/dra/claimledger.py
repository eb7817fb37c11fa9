"""The ledger of claims: prepared, used by containers, unprepared.

Preparing writes the claim's record, then the state with its CPUs, then its CDI file, and answers the kubelet only then;
unpreparing undoes this in the other order. So an agent that is killed in between leaves a claim that is known, whose
CPUs are its own, and which is prepared or unprepared once more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

from msgspec.structs import replace

from podslice.agent.admitting import Admitting
from podslice.agent.contract import RefusedError, Reporter
from podslice.agent.dra.cdi import CDIFiles, short
from podslice.agent.dra.claimfiles import ClaimFiles, is_uid
from podslice.agent.records import ClaimedDevice, NodeRecords, Pinning, ReportedRefusal
from podslice.api.pod.claim_holder import holder_cpu_class
from podslice.api.pod.spec import Pod
from podslice.dra.cgroups import NOTHING, ClaimedLimits, claimed_limits, counted_memory
from podslice.dra.names import device_name, numa_part
from podslice.dra.prepared import ClaimError, ImpossibleClaimError, PreparedClaim, PreparedDevice, check_memory
from podslice.node.rules import claim_memory
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, bits_of, format_bits, union


class ClaimLedger:
    """Prepared claims by UID, kept among the node's `records`.

    `users`: returns the UIDs of the pods that may use a claim, by the claim's UID. `changed`: is called with the shared
    pool as it was before a claim was prepared or given back.
    """

    def __init__(
        self,
        admitting: Admitting,
        files: ClaimFiles,
        cdi: CDIFiles,
        reporter: Reporter,
        records: NodeRecords,
        *,
        users: Callable[[str], frozenset[str]],
        changed: Callable[[Bits], None],
    ) -> None:
        self.claims = records.claims
        self.kubelet_adds: bool | None = None
        """Whether the kubelet counts claims in its cgroups itself; None while its version is not known."""
        self._users = users
        self._containers = records.containers
        self._changed = changed
        self._admitting = admitting
        self._files = files
        self._cdi = cdi
        self._reporter = reporter
        self._short: dict[str, str] = {}

    # Start

    def load(self) -> list[Pod]:
        """Load the claims that were prepared before. Return the pods that hold their CPUs, for a node that starts.
        Raises `OSError`."""
        claims, problems = self._files.load()
        for problem in problems:
            self._reporter.trouble("claims", problem)
        # The node may start more than once in one process, so what an earlier start found is dropped.
        self.claims.clear()
        self._short.clear()
        for claim in claims.values():
            self._put(claim)
        return [pod for claim in claims.values() if (pod := claim.holder_pod()) is not None]

    def forget(self, claim_uid: str, why: str) -> None:
        """Forget a claim whose CPUs a starting node could not restore, as if it had never been prepared."""
        claim = self._drop(claim_uid)
        self._reporter.trouble("claims", f"claim {claim or claim_uid} lost its CPUs: {why}")
        self._remove_files(claim_uid)

    def write_files(self) -> None:
        """Write the CDI files of all claims, and remove all others, once the node runs."""
        for uid in self._cdi.list_uids() - self.claims.keys():
            self._attempt("a CDI file without claim", partial(self._cdi.remove, uid))
        for claim in self.claims.values():
            self._attempt(f"the CDI file of claim {claim}", partial(self._write, claim))

    def _attempt(self, what: str, work: Callable[[], object]) -> None:
        try:
            work()
        except OSError as error:
            self._reporter.trouble("claims", f"{what}: {error.strerror or error}")

    # Prepare and unprepare

    def prepare(self, claim: PreparedClaim) -> PreparedClaim:
        """Prepare a claim as it was allocated; one that is prepared keeps its CPUs. Raises `ClaimError`."""
        if not is_uid(claim.uid):
            raise ClaimError(f"claim {claim} has a UID that is none")
        known = self.claims.get(claim.uid)
        if known is not None and known.devices == claim.devices:
            # The kubelet may repeat any call, and containers may run on these very CPUs by then.
            return self._prepare_again(known, claim)
        if known is not None:
            # The same UID with other devices: the old CPUs must be free of containers before they are given away.
            self._check_unused(known, f"claim {claim} is allocated anew while")
            self.unprepare(claim.uid)
        # The order is the promise of this module: record, state, CDI file, answer.
        self._check_room(claim)
        self._keep(claim)
        try:
            self._hold(claim)
            self._put(claim)
            self._publish(claim)
        except ClaimError:
            self._remove_files(claim.uid)
            raise
        except OSError as error:
            raise ClaimError(f"the files of claim {claim} cannot be written: {error.strerror or error}") from None
        return claim

    def _prepare_again(self, known: PreparedClaim, claim: PreparedClaim) -> PreparedClaim:
        """Prepare a known claim again: another pod may use it by now."""
        try:
            # Nothing is held anew: the CPUs are the claim's, and only the pod that may use them is another one.
            if claim.pods and claim.pods != known.pods:
                self._files.keep(claim)
                self._put(claim)
                known = claim
            self._publish(known)
        except OSError as error:
            raise ClaimError(f"claim {claim} cannot be written: {error.strerror or error}") from None
        return known

    def _check_room(self, claim: PreparedClaim) -> None:
        policy = self._admitting.policy.claims
        # A policy without claims stays so until it is changed; safe mode passes. Only the first goes into the claim's
        # status.
        if self._admitting.store is not None and policy is None:
            raise ImpossibleClaimError("NotOffered", f"claim {claim}: the policy of this node has nothing for claims")
        if self._admitting.store is None or policy is None:
            why = self._admitting.safe_mode or "the runtime has not reported what runs yet"
            raise ClaimError(f"claim {claim} cannot be prepared while the state of the node cannot be trusted: {why}")
        check_memory(claim, self.claims.values(), claim_memory(policy))

    def _keep(self, claim: PreparedClaim) -> None:
        try:
            self._files.keep(claim)
        except OSError as error:
            raise ClaimError(f"claim {claim} cannot be written down: {error.strerror or error}") from None

    def _hold(self, claim: PreparedClaim) -> None:
        pod = claim.holder_pod()
        # A claim of memory alone holds no CPUs, so the state has no pod for it.
        if pod is None:
            return
        before = self._shared_pool()
        try:
            self._admitting.hold(pod)
        except RefusedError as error:
            raise self._refusal(claim, error.refusal) from None
        self._changed(before)

    def _refusal(self, claim: PreparedClaim, refusal: ReportedRefusal) -> ClaimError:
        """Return the error for a claim that got no CPUs: the amount, the place, the free CPUs and the owners of the
        others.

        It is an `ImpossibleClaimError` where all CPUs for claims would not be enough.
        """
        view = self._view()
        if view is None or view.cpu_classes is None or not refusal.final:
            return ClaimError(f"claim {claim}: {refusal.message}")
        parts = []
        for place, device in enumerate(claim.devices):
            claimable = view.cpu_classes.grantable.get(holder_cpu_class(claim.container(place)), 0)
            if device.cpus > claimable.bit_count():
                return ImpossibleClaimError(
                    "NotOffered",
                    f"claim {claim} wants {device.cpus} CPUs {_where(device)}, where {claimable.bit_count()} are for "
                    "claims",
                )
            free = (claimable & view.shared).bit_count()
            if device.cpus > free:
                owners = ", ".join(_holders(view, claimable)) or "no one"
                parts.append(
                    f"{device.cpus} CPUs {_where(device)}, where {free} of {claimable.bit_count()} for "
                    f"claims are free (held by {owners})"
                )
        return ClaimError(
            f"claim {claim} wants {' and '.join(parts)}" if parts else f"claim {claim}: {refusal.message}"
        )

    def unprepare(self, uid: str) -> None:
        """Free a claim's resources; an unknown claim has none. Raises `ClaimError` where that cannot be written; then
        the kubelet calls again."""
        if not is_uid(uid):
            return
        claim = self.claims.get(uid)
        try:
            # In the reverse order of preparing, so that a kill in between leaves a claim that is unprepared once more.
            self._cdi.remove(uid)
            if claim is not None:
                before = self._shared_pool()
                self._admitting.release(claim.holder)
                self._changed(before)
            self._files.drop(uid)
        except OSError as error:
            raise ClaimError(f"claim {claim or uid} cannot be given back: {error.strerror or error}") from None
        self._drop(uid)

    def _check_unused(self, claim: PreparedClaim, what: str) -> None:
        users = self.in_use(claim.uid)
        if users:
            raise ClaimError(f"{what} container {users[0]} runs on its CPUs")

    # Containers

    def of_pod(self, pod: str) -> list[PreparedClaim]:
        """Return the claims that a pod may use."""
        return [claim for claim in self.claims.values() if pod in claim.pods]

    def in_use(self, uid: str) -> list[str]:
        """Return the names of the containers that run on the CPUs of the claim of this UID."""
        return [one.name for one in self._containers.values() if self.is_used_by(uid, one.claims)]

    def is_used_by(self, uid: str, devices: Iterable[ClaimedDevice]) -> bool:
        """Whether one of the devices is the claim's."""
        return any(self._short.get(one.claim) == uid for one in devices)

    def uses(self, pod: str, devices: Iterable[ClaimedDevice]) -> tuple[ClaimedDevice, ...]:
        """Return the devices that a container's environment names and its pod may use.

        Raises `RefusedError` for a claim of ours that is another pod's: the pod's author can write the environment.
        """
        found = []
        for one in devices:
            claim = self.claim_of(one.claim)
            if claim is None or one.index >= len(claim.devices):
                continue
            # The environment is written by the pod's author; the claim's own record says whose it is.
            if pod not in claim.pods and not self._pass_on(claim, pod):
                raise RefusedError(ReportedRefusal("ClaimOfAnotherPod", f"claim {claim} is not reserved for this pod"))
            found.append(one)
        return tuple(found)

    def _pass_on(self, claim: PreparedClaim, pod: str) -> bool:
        """Give a claim to the next pod that may use it, which the kubelet does not report for a claim that it keeps
        prepared. Return whether the pod may use it."""
        # Two pods at once would share CPUs that each takes for its own.
        if self.in_use(claim.uid) or pod not in self._users(claim.uid):
            return False
        self._attempt(f"claim {claim}", partial(self._prepare_again, claim, replace(claim, pods=(pod,))))
        return True

    def pinning(self, devices: Iterable[ClaimedDevice], view: NodeView | None = None) -> Pinning | None:
        """Return the CPUs and NUMA nodes that a container gets with these devices, None for none."""
        view = view or self._view()
        held = [part for one in devices if (part := self._part(one, view)) is not None]
        if not held:
            return None
        cpus = union(one.cpus for one in held)
        mems = union(one.mems for one in held)
        return Pinning(cpus, mems, "container" if cpus else "host", quota_off=bool(cpus))

    def _part(self, one: ClaimedDevice, view: NodeView | None) -> Pinning | None:
        claim = self.claim_of(one.claim)
        if claim is None or one.index >= len(claim.devices):
            return None
        return _device_pinnings(claim, view)[one.index]

    def limits(self, pod: Pod | None, container: str, devices: Iterable[ClaimedDevice]) -> ClaimedLimits | None:
        """Return the limits that a container gets with these devices; none where the kubelet adds them itself, None
        while its version is not known."""
        # Adding on top of a kubelet that adds would double the limit, so an unknown version adds nothing.
        if self.kubelet_adds is not False:
            return NOTHING if self.kubelet_adds else None
        known = [(self.claim_of(one.claim), one.index) for one in devices]
        parts = [(claim, claim.devices[index]) for claim, index in known if claim and index < len(claim.devices)]
        return claimed_limits(pod, container, parts)

    def added_memory(self, pod: Pod) -> int:
        """Return the bytes by which all claims of a pod, each once, raise its limit."""
        claims = self.of_pod(pod.metadata.uid) if self.kubelet_adds is False else []
        return counted_memory(pod, ((claim, device) for claim in claims for device in claim.devices))

    def device_pinnings(self, claim: PreparedClaim) -> list[Pinning]:
        """Return the CPUs and NUMA nodes of each device of the claim."""
        return _device_pinnings(claim, self._view())

    def claim_of(self, short_uid: str) -> PreparedClaim | None:
        """Return the claim by its UID as variables spell it."""
        return self.claims.get(self._short.get(short_uid, ""))

    def _publish(self, claim: PreparedClaim) -> None:
        """Write the claim's CDI file, once its record is on the disk."""
        self._files.settle()
        self._write(claim)

    def _write(self, claim: PreparedClaim) -> None:
        self._cdi.write(claim, self.device_pinnings(claim))

    def _remove_files(self, uid: str) -> None:
        # The reverse order of preparing here too: a CDI file must never outlive its record.
        def both() -> None:
            self._cdi.remove(uid)
            self._files.drop(uid)

        self._attempt(f"files of claim {uid}", both)

    def _put(self, claim: PreparedClaim) -> None:
        self.claims[claim.uid] = claim
        self._short[short(claim.uid)] = claim.uid

    def _drop(self, uid: str) -> PreparedClaim | None:
        self._short.pop(short(uid), None)
        return self.claims.pop(uid, None)

    def _view(self) -> NodeView | None:
        store = self._admitting.store
        return None if store is None else store.node.view

    def _shared_pool(self) -> Bits:
        view = self._view()
        return 0 if view is None else view.shared


def _device_pinnings(claim: PreparedClaim, view: NodeView | None) -> list[Pinning]:
    """Return the CPUs and NUMA nodes of each device of the claim."""
    own: Mapping[str, Bits] = {} if view is None else view.owners.get(claim.holder, {})
    offline = 0 if view is None else view.offline
    return [
        Pinning(own.get(claim.container(index), 0) & ~offline, bits_of([device.numa_node]) if device.memory else 0)
        for index, device in enumerate(claim.devices)
    ]


def _where(device: PreparedDevice) -> str:
    numa = device.device == device_name(numa_part(device.numa_node))
    return f"on NUMA node {device.numa_node}" if numa else f"of {device.device}"


def _holders(view: NodeView, claimable: Bits) -> Iterator[str]:
    """Yield the owners of these CPUs, each with its own."""
    for uid, named in view.owners.items():
        cpus = union(named.values()) & claimable
        if cpus:
            pod = view.pods.get(uid)
            name = uid if pod is None else pod.spec.metadata.name
            yield f"{name}: {format_bits(cpus)}"
