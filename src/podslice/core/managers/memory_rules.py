"""What a Memory Manager is told once, and the state it comes up with (memory-device 1.3, 1.13, 1.14)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from podslice.core.allocate.memory_static import check_reservation
from podslice.core.config.kubelet import DRIFT_TOLERANCE, KubeletConfig
from podslice.core.config.policy import ClaimRules
from podslice.core.config.policy_options import check_node_ids
from podslice.core.config.reservation import reserved_memory_bytes
from podslice.core.errors import InputError, StartError, StartKind
from podslice.core.hints.memory import sums_wrap
from podslice.core.machine.drift import LEGACY, OFF, DriftTolerance, drift_tolerance, resolved
from podslice.core.machine.memory_accounts import default_machine_state, settle
from podslice.core.machine.model import Machine
from podslice.core.managers.memory_rebooked import rebooked
from podslice.core.managers.memory_reuse import Reuse, reuse
from podslice.core.managers.memory_state import MemoryState
from podslice.core.pod.demand import HUGEPAGES_PREFIX
from podslice.core.quirks import Quirks
from podslice.core.state.tables import container_ids
from podslice.core.values.golang import quote
from podslice.core.values.quantity import Quantity, QuantityError
from podslice.statefiles.formats.checkpoint_memory import MemoryCheckpoint
from podslice.statefiles.formats.restore import restore_memory_state, validate_memory_state

_STAGE = "memoryManager"
_POLICIES = "memoryManagerPolicy is None or Static"
_UNKNOWN_POLICY = StartKind("unknown-policy", "unknown policy: {policy}", _POLICIES)
_OTHER_PLATFORM = StartKind("other-platform", 'policy {policy} is not available for platform "linux"', _POLICIES)
_NOTHING_RESERVED = StartKind(
    "nothing-reserved",
    "[memorymanager] you should specify the system reserved memory",
    "reservedMemory names memory of some NUMA node: as much as is reserved altogether",
)


_UNBOOKED_CLAIMS = StartKind(
    "claims-unbooked",
    "claims.memory of the policy needs books of memory, memoryManagerPolicy is {policy}",
    "memoryManagerPolicy: Static, or leave claims.memory out",
)
_CLAIM_AMOUNT = StartKind("claims-memory", "{path} {problem}", "memory and huge pages of NUMA nodes of this machine")
_BAD_TOLERANCE = StartKind(
    "drift-tolerance", "memory-drift-tolerance {problem}", "auto, off, legacy or an amount such as 128Mi"
)


class MemoryRules(msgspec.Struct, frozen=True):
    """Policy `None` or `Static` on one machine. `reserved` are bytes by NUMA node and resource, `pod_level` is the gate
    PodLevelResourceManagers, `reuse` says what init containers leave, `sums_wrap` that sums of nodes may exceed 64
    bits, `tolerance` how much memory may have moved over a reboot. `crashes`: so does the kubelet when huge pages are
    asked for that some NUMA node lacks. `settles`: memory goes back to the NUMA nodes it came from. `elastic`: memory
    that containers hold can be resized; `follows`: it leaves NUMA nodes that it does not need any more.
    """

    machine: Machine
    policy: str
    reserved: Mapping[int, Mapping[str, int]]
    pod_level: bool
    reuse: Reuse
    static: bool = False
    sums_wrap: bool = False
    crashes: bool = False
    settles: bool = True
    tolerance: DriftTolerance = LEGACY
    elastic: bool = False
    follows: bool = False

    @classmethod
    def of(
        cls,
        machine: Machine,
        config: KubeletConfig,
        reservation: Mapping[str, Quantity],
        *,
        quirks: Quirks,
        pod_level: bool,
        elastic: bool = False,
        follows: bool = False,
        drift: str = "legacy",
        claims: ClaimRules | None = None,
    ) -> MemoryRules:
        """What a configuration asks for (memory-device 1.3); what `claims` may have is kept from pods. Raises
        `StartError`."""
        policy = config.memory_manager_policy
        if policy != "Static" and claims is not None and claims.memory:
            raise StartError(_STAGE, _UNBOOKED_CLAIMS, policy=quote(policy))
        if policy == "None":
            return cls(machine, policy, {}, pod_level, reuse(quirks))
        if policy == "BestEffort":
            raise StartError(_STAGE, _OTHER_PLATFORM, policy=quote(policy))
        if policy != "Static":
            raise StartError(_STAGE, _UNKNOWN_POLICY, policy=quote(policy))
        reserved = reserved_memory_bytes(config, machine, reservation)
        if not sum(amounts.get("memory", 0) for amounts in reserved.values()) > 0:
            raise StartError(_STAGE, _NOTHING_RESERVED)
        if claims is not None:
            reserved = _with_claims(reserved, claims)
        if not quirks.memory_reservation_wraps:
            check_reservation(machine, reserved)
        check_node_ids(machine, _STAGE)
        return cls(
            machine,
            policy,
            reserved,
            pod_level,
            reuse(quirks),
            static=True,
            crashes=quirks.missing_hugepages_crash,
            settles=not quirks.group_books_drift,
            tolerance=_tolerance(config, drift),
            elastic=elastic,
            follows=follows,
        )


def claim_memory(claims: ClaimRules) -> dict[int, dict[str, int]]:
    """Bytes that only claims get, by NUMA node and resource. Raises `StartError`."""
    kept: dict[int, dict[str, int]] = {}
    for place, one in enumerate(claims.memory):
        for name, text in one.limits.items():
            path = f"claims.memory[{place}].limits[{name}]"
            if name != "memory" and not name.startswith(HUGEPAGES_PREFIX):
                raise StartError(_STAGE, _CLAIM_AMOUNT, path=path, problem="is no memory")
            try:
                size = Quantity.parse(text).as_int64()
            except QuantityError as error:
                raise StartError(_STAGE, _CLAIM_AMOUNT, path=path, problem=str(error)) from None
            if size is None or size < 0:
                raise StartError(_STAGE, _CLAIM_AMOUNT, path=path, problem="is no number of bytes")
            own = kept.setdefault(one.numa_node, {})
            own[name] = own.get(name, 0) + size
    return kept


def _with_claims(reserved: Mapping[int, Mapping[str, int]], claims: ClaimRules) -> dict[int, dict[str, int]]:
    together = {node: dict(amounts) for node, amounts in reserved.items()}
    for node, amounts in claim_memory(claims).items():
        if node not in together:
            raise StartError(_STAGE, _CLAIM_AMOUNT, path="claims.memory", problem=f"names NUMA node {node}")
        for name, size in amounts.items():
            together[node][name] = together[node].get(name, 0) + size
    return together


def _tolerance(config: KubeletConfig, otherwise: str) -> DriftTolerance:
    """How much memory may have moved over a reboot: what the KubeletConfiguration says wins (KEP-6232)."""
    try:
        return resolved(drift_tolerance(config.memory_manager_policy_options.get(DRIFT_TOLERANCE, otherwise)), None)
    except InputError as error:
        raise StartError(_STAGE, _BAD_TOLERANCE, problem=error.problem) from None


class Restored(NamedTuple):
    """The state a manager starts with, the rules with what the state says about the machine, and whether the state is
    that of the file."""

    state: MemoryState
    rules: MemoryRules
    as_filed: bool


def restored(
    rules: MemoryRules,
    data: bytes | None,
    containers: Mapping[str, tuple[str, str]],
    path: str,
    quirks: Quirks,
    *,
    tracks: bool = False,
) -> Restored:
    """Restore or create the state, and check it against the machine (memory-device 1.13.2, 1.14); where it `tracks`
    and the machine has other memory, it is booked anew. Raises `StartError`."""
    checkpoint = MemoryCheckpoint(policy_name=rules.policy)
    if data is not None:
        checkpoint = restore_memory_state(
            data,
            policy_name=rules.policy,
            pod_level=rules.pod_level,
            path=path,
            trust_zero=quirks.zero_checksum_is_trusted,
        )
    before = dict(checkpoint.machine_state or {})
    if rules.static and tracks and before:
        return _tracked(rules, checkpoint, containers)
    if rules.static:
        validate_memory_state(
            checkpoint,
            default_machine_state(rules.machine, rules.reserved),
            pod_level=rules.pod_level,
            tolerance=OFF if quirks.memory_drift_blocks_start else rules.tolerance,
            tables_may_miss=not rules.crashes,
        )
        if rules.settles:
            settle(checkpoint.machine_state or {})
    state = MemoryState.of(checkpoint, container_ids(containers))
    as_filed = data is not None and before == state.machine_state
    if not quirks.refused_pods_leave_state:
        # Left by an interrupted admission; nothing is booked for them (memory-device 4.9).
        for uid in [uid for uid in state.pod_assignments if not state.assignments.get(uid)]:
            state, as_filed = state.unassign_pod(uid), False
    if rules.static:
        rules = msgspec.structs.replace(rules, sums_wrap=sums_wrap(state.machine_state))
    return Restored(state, rules, as_filed)


def _tracked(rules: MemoryRules, checkpoint: MemoryCheckpoint, containers: Mapping[str, tuple[str, str]]) -> Restored:
    state = MemoryState.of(checkpoint, container_ids(containers))
    for uid in [uid for uid in state.pod_assignments if not state.assignments.get(uid)]:
        state = state.unassign_pod(uid)
    now = rebooked(rules.machine, rules.reserved, state, pod_level=rules.pod_level)
    wraps = sums_wrap(now.machine_state)
    return Restored(now, msgspec.structs.replace(rules, sums_wrap=wraps), now.machine_state == checkpoint.machine_state)
