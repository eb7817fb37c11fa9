"""Rules of a node's managers: all that decides and never changes while the kubelet runs (cpu-topology 3; memory-device
1.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from podslice.api.pod.demand import HUGEPAGES_PREFIX
from podslice.config.kubelet import DRIFT_TOLERANCE, KubeletConfig
from podslice.config.policy import ClaimRules, PodslicePolicy
from podslice.config.policy_options import check_node_ids
from podslice.config.reservation import NodeResources, parse_reserved_memory
from podslice.machine.devices import DeviceInventory
from podslice.machine.drift import LEGACY, DriftTolerance, parse_drift_tolerance, resolve
from podslice.machine.model import CPUTopology, Machine, bisect_sums, whole_objects
from podslice.node.cpu.picking.picker import Picker
from podslice.node.cpu.resize import ResizePicker
from podslice.node.devices.pool import DevicePool
from podslice.node.memory.reuse import OURS, UPSTREAMS, Reuse
from podslice.node.memory.static import check_reservation
from podslice.node.plugins.classes import CPUClasses, classes_for
from podslice.node.plugins.mixed import MixedPool, mixed_pool
from podslice.node.plugins.profile import PluginProfile
from podslice.node.plugins.resolve import profile_for
from podslice.node.topology.merge import Merger
from podslice.scheduling.predicates import NodeObject
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import Bits
from podslice.values.errors import InputError, StartError, StartKind
from podslice.values.golang import quote
from podslice.values.quantity import Quantity, QuantityError
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

_MEMORY_STAGE = "memoryManager"
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
    "claims.memory of the policy needs a memory ledger, memoryManagerPolicy is {policy}",
    "memoryManagerPolicy: Static, or leave claims.memory out",
)
_CLAIM_AMOUNT = StartKind("claims-memory", "{path} {problem}", "memory and huge pages of NUMA nodes of this machine")
_BAD_TOLERANCE = StartKind(
    "drift-tolerance", "memory-drift-tolerance {problem}", "auto, off, legacy or an amount such as 128Mi"
)


class CPURules(msgspec.Struct, frozen=True):
    """Policy `none` or `static` on one machine. `core_size`: average number of CPUs of a core when the node began.
    `reserved`: CPUs kept for the system; `reserved_physical`: all CPUs of their cores. `pod_level`: the gate
    PodLevelResourceManagers. `picker` picks CPUs, `resizer` those of a container that is resized; None: containers keep
    what they have. `withheld`: CPUs that no container gets, the reserved ones among them. `sums`: how many CPUs one,
    two, three … NUMA nodes could give on an empty machine at most. `plugins`, `classes`, `mixed`: None where the policy
    has none."""

    topology: CPUTopology
    policy: str
    options: CPUPolicyOptions
    reserved: Bits
    reserved_physical: Bits
    pod_level: bool
    picker: Picker
    static: bool
    resizer: ResizePicker | None
    sums: tuple[int, ...]
    withheld: Bits
    core_size: int = 1
    plugins: PluginProfile | None = None
    classes: CPUClasses | None = None
    mixed: MixedPool | None = None

    def with_policy(self, policy: PodslicePolicy, machine: Machine) -> CPURules:
        """Return these rules with the plugins, classes and mixed CPUs of a policy, if it has some. Raises
        `StartError`."""
        sections = policy.plugins.profile, policy.cpu_classes, policy.mixed is not None, policy.claims is not None
        if not self.static or not any(sections):
            return self
        classes = classes_for(
            policy,
            machine,
            self.topology,
            reserved=self.reserved,
            strict=self.options.strict_cpu_reservation,
            whole_cores=self.options.full_pcpus_only,
        )
        plugins = profile_for(policy, machine, self.topology, classes)
        offline = machine.offline.bits
        mixed = mixed_pool(policy.mixed, self.topology, reserved=self.reserved, classes=classes, offline=offline)
        return replace(self, plugins=plugins, classes=classes, mixed=mixed)

    def with_reserved(self, reserved: Bits) -> CPURules:
        """Return the same rules with other CPUs kept for the system."""
        physical = whole_objects(self.topology.cores, reserved)
        sums = self.topology.largest_sums(self.picker.ownable(reserved, physical))
        withheld = self.picker.withheld(reserved, physical)
        return replace(self, reserved=reserved, reserved_physical=physical, sums=sums, withheld=withheld)

    def fewest_numa_nodes(self, count: int) -> int:
        """Return the fewest NUMA nodes that could give `count` CPUs on an empty machine; the number of all nodes if
        even they could not."""
        return bisect_sums(self.sums, count)

    @classmethod
    def of(
        cls,
        topology: CPUTopology,
        policy: str = "none",
        *,
        options: CPUPolicyOptions | None = None,
        reserved: Bits = 0,
        pod_level: bool,
        elastic: bool = False,
        aligned: bool = False,
        quirks: Quirks,
        release: Release = DEFAULT,
    ) -> CPURules:
        """Return the rules of a policy. `elastic`: containers with exclusive CPUs can be resized; `aligned`: they then
        stay within the NUMA nodes of their affinity."""
        options = options or CPUPolicyOptions()
        physical = whole_objects(topology.cores, reserved)
        picker = Picker(topology, options, quirks, release)
        resizer = ResizePicker(topology, options, quirks, aligned=aligned) if elastic else None
        static = policy == "static"
        sums = topology.largest_sums(picker.ownable(reserved, physical))
        kept, per_core = picker.withheld(reserved, physical), topology.cpus_per_core
        return cls(
            topology, policy, options, reserved, physical, pod_level, picker, static, resizer, sums, kept, per_core
        )


class MemoryRules(msgspec.Struct, frozen=True):
    """Policy `None` or `Static` on one machine. `reserved`: bytes by NUMA node and resource. `pod_level`: the gate
    PodLevelResourceManagers. `reuse`: what init containers leave. `sums_wrap`: sums over nodes may exceed 64 bits.
    `tolerance`: how much memory may differ after a reboot. `crashes`: the kubelet crashes on a request for huge pages
    that some NUMA node lacks. `settles`: memory goes back to the NUMA nodes it came from. `elastic`: memory can be
    resized; `follows`: it then leaves NUMA nodes that it no longer needs."""

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
        """Return the rules of a configuration (memory-device 1.3); memory for `claims` is kept from pods. Raises
        `StartError`."""
        policy = config.memory_manager_policy
        reuse = UPSTREAMS if quirks.init_memory_reuse_drifts else OURS
        # Without a ledger, nothing would keep pods from the memory of claims.
        if policy != "Static" and claims is not None and claims.memory:
            raise StartError(_MEMORY_STAGE, _UNBOOKED_CLAIMS, policy=quote(policy))
        if policy == "None":
            return cls(machine, policy, {}, pod_level, reuse)
        if policy == "BestEffort":
            raise StartError(_MEMORY_STAGE, _OTHER_PLATFORM, policy=quote(policy))
        if policy != "Static":
            raise StartError(_MEMORY_STAGE, _UNKNOWN_POLICY, policy=quote(policy))
        reserved = parse_reserved_memory(config, machine, reservation)
        # The kubelet requires plain memory; huge pages alone are not enough.
        if not sum(amounts.get("memory", 0) for amounts in reserved.values()) > 0:
            raise StartError(_MEMORY_STAGE, _NOTHING_RESERVED)
        if claims is not None:
            reserved = _with_claims(reserved, claims)
        # Upstream subtracts unsigned numbers, so a reservation beyond a node's memory wraps around there.
        if not quirks.memory_reservation_wraps:
            check_reservation(machine, reserved)
        check_node_ids(machine, _MEMORY_STAGE)
        return cls(
            machine,
            policy,
            reserved,
            pod_level,
            reuse,
            static=True,
            crashes=quirks.missing_hugepages_crash,
            settles=not quirks.group_ledger_drift,
            tolerance=_tolerance(config, drift),
            elastic=elastic,
            follows=follows,
        )


def claim_memory(claims: ClaimRules) -> dict[int, dict[str, int]]:
    """Return the bytes kept for claims, by NUMA node and resource. Raises `StartError`."""
    kept: dict[int, dict[str, int]] = {}
    for place, one in enumerate(claims.memory):
        for name, text in one.limits.items():
            path = f"claims.memory[{place}].limits[{name}]"
            if name != "memory" and not name.startswith(HUGEPAGES_PREFIX):
                raise StartError(_MEMORY_STAGE, _CLAIM_AMOUNT, path=path, problem="is not memory")
            try:
                size = Quantity.parse(text).as_int64()
            except QuantityError as error:
                raise StartError(_MEMORY_STAGE, _CLAIM_AMOUNT, path=path, problem=str(error)) from None
            if size is None or size < 0:
                raise StartError(_MEMORY_STAGE, _CLAIM_AMOUNT, path=path, problem="is not a number of bytes")
            own = kept.setdefault(one.numa_node, {})
            own[name] = own.get(name, 0) + size
    return kept


def _with_claims(reserved: Mapping[int, Mapping[str, int]], claims: ClaimRules) -> dict[int, dict[str, int]]:
    """Return the reserved bytes by NUMA node and resource, with those kept for claims. Raises `StartError`."""
    together = {node: dict(amounts) for node, amounts in reserved.items()}
    for node, amounts in claim_memory(claims).items():
        if node not in together:
            raise StartError(_MEMORY_STAGE, _CLAIM_AMOUNT, path="claims.memory", problem=f"names NUMA node {node}")
        for name, size in amounts.items():
            together[node][name] = together[node].get(name, 0) + size
    return together


def _tolerance(config: KubeletConfig, otherwise: str) -> DriftTolerance:
    """Return how much memory may differ after a reboot: the KubeletConfiguration's option (KEP-6232), else the
    policy's."""
    try:
        return resolve(
            parse_drift_tolerance(config.memory_manager_policy_options.get(DRIFT_TOLERANCE, otherwise)), None
        )
    except InputError as error:
        raise StartError(_MEMORY_STAGE, _BAD_TOLERANCE, problem=error.problem) from None


class NodeCounts(NamedTuple):
    """A node's resources while its device plugins list `pools`, and the node as the predicates see it."""

    pools: dict[str, DevicePool]
    resources: NodeResources
    node: NodeObject


class NodeRules(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """All rules of a node. Made once, by a start; nodes of the same machine and configuration share them. Rules are
    equal only when they are the same object.

    `restored`: the state files that were there at the start.
    """

    machine: Machine
    config: KubeletConfig
    policy: PodslicePolicy
    release: Release
    quirks: Quirks
    inventory: DeviceInventory
    gates: Mapping[str, bool]
    reservation: Mapping[str, Quantity]
    restored: frozenset[str]
    cpu: CPURules
    memory: MemoryRules
    machine_nodes: tuple[int, ...]
    merger: Merger | None
    predicates: bool
    cgroup_version: int
    counted: NodeCounts


def carry_over(old: NodeRules, started: NodeRules) -> NodeRules:
    """Return the rules of another start for a running node. Its reserved CPUs stay reserved, and what it has learnt of
    its machine since it began still counts."""
    # The CPUs were reserved when the node began, and pods have been placed around them; a reload does not move them.
    cpu = started.cpu.with_reserved(old.cpu.reserved)
    return replace(
        started,
        machine=old.machine,
        restored=old.restored,
        cpu=replace(cpu, core_size=max(old.cpu.core_size, cpu.core_size)),
        memory=replace(started.memory, sums_wrap=old.memory.sums_wrap or started.memory.sums_wrap),
        counted=old.counted,
    )
