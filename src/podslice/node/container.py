"""The Container Manager: brings the resource managers of one node up, in upstream's order, and holds them.

Everything that can keep a kubelet from starting with these managers happens in `start`, step by step. A `StartError`
names the step. The attributes set until then stay readable, so that a failed start can be explained (cpu-topology 2.1,
3.1; memory-device 3.1).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, MutableMapping
from functools import partial

import msgspec

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.mixed import MixedShare
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy
from podslice.config.policy_options import (
    BEST_EFFORT,
    RESTRICTED,
    SINGLE_NUMA_NODE,
    OptionError,
    TopologyManagerOptions,
    check_cpu_policy_options,
    check_machine,
    check_node_ids,
    parse_cpu_policy_options,
    parse_topology_options,
    refuse_options_of_none_policy,
)
from podslice.config.reservation import (
    Reservations,
    prepare_reservations,
    refuse_soft_thresholds,
    validate_node_allocatable,
)
from podslice.machine.delta import without_cpus
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import CPUTopology, Machine, TopologyError, cpu_topology
from podslice.node.checkpoints import policy_state
from podslice.node.checkpoints.names import (
    CPU_STATE_FILE,
    DEVICE_STATE_FILE,
    MEMORY_STATE_FILE,
    POLICY_STATE_FILE,
    STATE_DIRECTORY,
)
from podslice.node.checkpoints.restore import restore_cpu_state, validate_cpu_state
from podslice.node.context import NodeContext
from podslice.node.cpu.checkpoint import load as load_cpu
from podslice.node.cpu.manager import CPUManager
from podslice.node.cpu.picking.picker import Picker
from podslice.node.cpu.state import Remembered
from podslice.node.devices.checkpoint import load as load_devices
from podslice.node.devices.manager import DeviceManager
from podslice.node.devices.plugin import SimulatedPlugin
from podslice.node.devices.records import DeviceContent, content_from
from podslice.node.hotplug.offline_ledger import ledger_at_start, reserved_by_number
from podslice.node.memory.manager import MemoryManager
from podslice.node.rules import CPURules, MemoryRules, NodeRules
from podslice.node.state import NodeState
from podslice.node.topology.manager import TopologyManager
from podslice.node.topology.merge import Merger
from podslice.node.topology.scored import ScoredMerge
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import Bits, bits_of, format_bits, parse_bits_or_empty, union
from podslice.values.errors import AdmissionError, StartError, StartKind
from podslice.values.gates import FeatureGates, GateError, later_gates
from podslice.values.go.gojson import CheckpointError
from podslice.values.golang import quote
from podslice.values.quantity import Quantity
from podslice.values.quirks import PODSLICE, Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT
from podslice.values.tables import container_ids

STATE_FILE_OF_STAGE = {"startCPUManager": CPU_STATE_FILE, "startMemoryManager": MEMORY_STATE_FILE}
"""The state file that keeps a kubelet from starting, by the stage of the error."""
_UNKNOWN_POLICY = StartKind("unknown-policy", "unknown policy: {policy}", "cpuManagerPolicy is none or static")
_NOTHING_RESERVED = StartKind(
    "nothing-reserved",
    "[cpumanager] unable to determine reserved CPU resources for static policy",
    "reserve CPUs for the system, for example reservedSystemCPUs: 0-1",
)
_NOT_BEST_EFFORT = StartKind(
    "not-best-effort",
    "topology.bestEffort of the policy has no effect under topologyManagerPolicy {policy}",
    "topologyManagerPolicy: best-effort, or leave the section out",
)
_NOTHING: Remembered = {}, {}, {}, {}
_NO_TOPOLOGY = StartKind("no-topology", "{error}")
_REFUSED_GATES = StartKind("refused-gates", "{error}", "{hint}")


def refused_gates_error(error: GateError) -> StartError:
    """Return the error with which a kubelet does not start on feature gates that it refuses."""
    return StartError("featureGates", _REFUSED_GATES, error=str(error), hint=error.hint)


class ContainerManager:
    """One node's managers. After a successful `start`, `device`, `cpu`, `memory` and `topology` are ready.

    While a start is under way or has failed, `cpu` and `memory` are not set and `reservation` (node allocatable
    reservation) is None until their step is reached.
    """

    __slots__ = (
        "config",
        "context",
        "cpu",
        "device",
        "filed_mixed",
        "inventory",
        "machine",
        "memory",
        "policy",
        "quirks",
        "release",
        "remembered",
        "reservation",
        "restored",
        "topology",
    )
    cpu: CPUManager
    memory: MemoryManager
    topology: TopologyManager

    def __init__(
        self,
        machine: Machine,
        config: KubeletConfig,
        quirks: Quirks,
        devices: DeviceInventory | None = None,
        policy: PodslicePolicy = NO_POLICY,
        release: Release = DEFAULT,
    ) -> None:
        self.machine = machine
        self.release = release
        self.policy = policy
        self.remembered: Remembered = _NOTHING
        """The content of the policy's state file."""
        self.filed_mixed: dict[str, Mapping[str, MixedShare]] = {}
        """And of containers with exclusive and shared CPUs."""
        self.inventory = DeviceInventory() if devices is None else devices
        self.config = config
        self.quirks = quirks
        gates = FeatureGates.from_overrides({}, fixes=later_gates(quirks), release=release)
        self.context = NodeContext(gates, quirks, release=release)
        self.reservation: Mapping[str, Quantity] | None = None
        self.device = DeviceManager((), self.context)
        self.restored: frozenset[str] = frozenset()
        """State files that were there at the start."""

    @classmethod
    def of(cls, rules: NodeRules, state: NodeState) -> ContainerManager:
        """Return the managers of these rules in this state."""
        made = cls.__new__(cls)
        made.machine, made.inventory, made.config = rules.machine, rules.inventory, rules.config
        made.release, made.quirks = rules.release, rules.quirks
        made.reservation, made.restored = rules.reservation, rules.restored
        made.policy, made.remembered, made.filed_mixed = rules.policy, _NOTHING, {}
        context = made.context = NodeContext(rules.gates, rules.quirks, state.pods, state.leftovers, rules.release)
        context.sources_ready, context.pending = state.sources_ready, state.pending
        device = made.device = DeviceManager(rules.machine_nodes, context, state.device)
        cpu = made.cpu = CPUManager(rules.cpu, context, state.cpu)
        memory = made.memory = MemoryManager(rules.memory, context, state.memory)
        scope = rules.config.topology_manager_scope
        proposer = None if rules.cpu.plugins is None else cpu
        made.topology = TopologyManager(context, (device, cpu, memory), rules.merger, scope, state.topology, proposer)
        return made

    def set_state(self, state: NodeState) -> None:
        """Put all managers into this state."""
        self.device.state, self.cpu.state, self.memory.state = state.device, state.cpu, state.memory
        self.topology.state = state.topology
        context = self.context
        context.active, context.leftovers, context.sources_ready = state.pods, state.leftovers, state.sources_ready
        context.pending = state.pending

    @property
    def cpu_manager(self) -> CPUManager | None:
        """`cpu`, None where the start did not come so far."""
        return getattr(self, "cpu", None)

    @property
    def memory_manager(self) -> MemoryManager | None:
        """`memory`, None where the start failed before it was made."""
        return getattr(self, "memory", None)

    @property
    def pod_level(self) -> bool:
        """Gate PodLevelResourceManagers."""
        return self.context.gates["PodLevelResourceManagers"]

    @property
    def elastic(self) -> bool:
        """Whether containers with exclusive CPUs can be resized: gate InPlacePodVerticalScalingExclusiveCPUs, or the
        policy."""
        enabled = self.context.gates["InPlacePodVerticalScalingExclusiveCPUs"] or self.policy.resize.exclusive
        return enabled and not self.quirks.resize_keeps_old_cpus

    @property
    def elastic_memory(self) -> bool:
        """Whether memory on NUMA nodes can be resized: gate InPlacePodVerticalScalingExclusiveMemory, or the policy."""
        enabled = self.context.gates["InPlacePodVerticalScalingExclusiveMemory"] or self.policy.resize.exclusive
        return enabled and not self.quirks.resize_keeps_old_memory

    @property
    def quota_can_be_disabled(self) -> bool:
        """Gate DisableCPUQuotaWithExclusiveCPUs: exclusive CPUs disable the CFS quota."""
        return self.context.gates["DisableCPUQuotaWithExclusiveCPUs"]

    # Start

    def start(
        self,
        files: MutableMapping[str, bytes],
        containers: Mapping[str, tuple[str, str]] | None = None,
        *,
        devices: DeviceContent | None = None,
        running: Iterable[tuple[str, str]] = (),
    ) -> None:
        """Start everything on the given state files; new or changed files are put into `files`.

        `containers` maps the runtime's container ids to (pod UID, name), `devices` is the content of the device
        checkpoint, `running` names the containers that run. Call `register_plugins` when the device plugins are there.
        Raises `StartError`.
        """
        containers = containers or {}
        self.restored = frozenset(files)
        # The order of the steps is upstream's: the first one that fails gives the error a kubelet stops with.
        self.context.gates = self._read_gates()
        hotplug = self.policy.hotplug
        if hotplug is not None and hotplug.new_cpus == "ignore":
            self.machine = without_cpus(self.machine, self.machine.cpus.bits & ~self._cpus_on_file(files))
        allow_offline = not self.quirks.reserved_cpus_offline
        reservations = prepare_reservations(self.config, self.machine, allow_offline=allow_offline)
        self.reservation = reservations.total
        options = topology_options(self.config, self.context.gates, self.release)
        merger = make_merger(self.machine, self.config, options, self.quirks, self.policy)
        cpu = self._build_cpu_manager(reservations)
        memory = self._build_memory_manager(reservations)
        refuse_soft_thresholds(self.config)
        self.cpu = cpu
        self._start_cpu_manager(cpu, files, containers)
        self._start_memory_manager(memory, files, containers)
        validate_node_allocatable(reservations.total, self.machine)
        # Upstream starts the Device Manager last.
        self.device = DeviceManager((node.id for node in self.machine.nodes), self.context)
        self.device.start(devices or self._device_content(files.get(DEVICE_STATE_FILE)), running)
        self.memory = memory
        providers = self.device, cpu, memory
        proposer = None if cpu.rules.plugins is None else cpu
        scope = self.config.topology_manager_scope
        self.topology = TopologyManager(self.context, providers, merger, scope, proposer=proposer)

    def _read_gates(self) -> FeatureGates:
        try:
            return FeatureGates.from_overrides(
                self.config.feature_gates,
                fixes=later_gates(self.quirks),
                other_gates_allowed=False,
                release=self.release,
            )
        except GateError as error:
            raise refused_gates_error(error) from None

    def _build_cpu_manager(self, reservations: Reservations) -> CPUManager:
        """Make the CPU Manager from the configuration. Raises `StartError`."""
        stage = "cpuManager"
        policy = self.config.cpu_manager_policy
        try:
            topology = cpu_topology(self.machine)
            if policy == "none":
                refuse_options_of_none_policy(self.config.cpu_manager_policy_options)
                return CPUManager(CPURules.of(topology, pod_level=self.pod_level, quirks=self.quirks), self.context)
            if policy != "static":
                raise StartError(stage, _UNKNOWN_POLICY, policy=quote(policy))
            cpu = reservations.total.get("cpu")
            if cpu is None:
                raise StartError(stage, _NOTHING_RESERVED)
            return self._build_static_policy(topology, reservations.cpus, -(-cpu.milli_value() // 1000))
        except TopologyError as error:
            raise StartError(stage, _NO_TOPOLOGY, error=str(error)) from None
        except OptionError as error:
            raise error.at_start("" if policy == "none" else "new static policy error: ") from None

    def _build_static_policy(self, topology: CPUTopology, explicit: Bits, count: int) -> CPUManager:
        """Make the CPU Manager of policy static: check its options and choose the reserved CPUs. Raises
        `OptionError`."""
        options = parse_cpu_policy_options(self.config.cpu_manager_policy_options, self.context.gates, self.release)
        check_cpu_policy_options(options, topology, self.config.topology_manager_policy)
        reserved = explicit or self._pick_reserved(topology, count, options)
        if (reserved & topology.all_cpus).bit_count() != count:
            raise OptionError(
                "[cpumanager] unable to reserve the required amount of CPUs "
                f"(size of {format_bits(reserved)} did not equal {count})"
            )
        rules = CPURules.of(
            topology,
            "static",
            options=options,
            reserved=reserved,
            pod_level=self.pod_level,
            elastic=self.elastic,
            aligned=self.config.topology_manager_policy in (RESTRICTED, SINGLE_NUMA_NODE),
            quirks=self.quirks,
            release=self.release,
        )
        return CPUManager(rules.with_policy(self.policy, self.machine), self.context)

    def _build_memory_manager(self, reservations: Reservations) -> MemoryManager:
        """Make the Memory Manager from the configuration. Raises `StartError`."""
        config = self.config
        if not self.context.gates["MemoryManager"]:
            config = msgspec.structs.replace(config, memory_manager_policy="None")
        rules = MemoryRules.of(
            self.machine,
            config,
            reservations.total,
            quirks=self.quirks,
            pod_level=self.pod_level,
            elastic=self.elastic_memory,
            follows=self.policy.resize.memory_nodes == "follow",
            drift="legacy" if self.policy.hotplug is None else self.policy.hotplug.drift_tolerance,
            claims=self.policy.claims,
        )
        return MemoryManager(rules, self.context)

    def _pick_reserved(self, topology: CPUTopology, count: int, options: CPUPolicyOptions) -> Bits:
        """Choose `count` CPUs for the system as the policy picks them, 0 where it cannot (cpu-topology 2.3)."""
        try:
            return Picker(topology, options, self.quirks, self.release).take(topology.all_cpus, count).cpus
        except AdmissionError:
            return 0

    def _start_cpu_manager(
        self, cpu: CPUManager, files: MutableMapping[str, bytes], containers: Mapping[str, tuple[str, str]]
    ) -> None:
        """Restore and validate the CPU state from `files`, and write back what changed. Raises `StartError`."""
        data = files.get(CPU_STATE_FILE)
        cpu.state = restore_cpu_state(
            data,
            policy_name=cpu.policy,
            pod_level=self.pod_level,
            containers=containers,
            path=f"{STATE_DIRECTORY}/{CPU_STATE_FILE}",
            trust_zero=self.quirks.zero_checksum_is_trusted,
            formats=self.release.state_files,
        )
        cpu.filed = None if data is None else cpu.file_content
        if cpu.static and self.policy.hotplug is not None and data is not None:
            self._follow_machine(cpu)
        if cpu.static:
            try:
                valid = validate_cpu_state(
                    cpu.state,
                    cpu.topology,
                    reserved=cpu.reserved & cpu.topology.all_cpus,
                    strict=cpu.options.strict_cpu_reservation and not self._lends_reserved(cpu),
                    pod_level=self.pod_level,
                    offline=cpu.state.offline,
                )
                if valid is not cpu.state:
                    cpu.state, cpu.filed = valid, None
            finally:
                files.update(self.changed_files())
        if self.elastic:
            cpu.state = policy_state.with_loans(cpu.state, files.get(POLICY_STATE_FILE))
        if POLICY_STATE_FILE in files and self.quirks == PODSLICE:
            self.filed_mixed = {**policy_state.read_mixed(files[POLICY_STATE_FILE], cpu.state.assignments)}
            cpu.state = policy_state.with_classes(cpu.state, files[POLICY_STATE_FILE])
            cpu.state = policy_state.with_memos(cpu.state, files[POLICY_STATE_FILE])
        self.remembered = cpu.state.loans, cpu.state.pod_loans, cpu.state.classes, cpu.state.memos
        cpu.start(cpu.state, container_ids(containers))
        files.update(self.changed_files())

    def _follow_machine(self, cpu: CPUManager) -> None:
        """Adapt the restored state to CPUs that came or went while no kubelet ran."""
        if not self.config.reserved_system_cpus:
            cpu.rules = cpu.rules.with_reserved(reserved_by_number(cpu.state, cpu.rules))
        cpu.state = ledger_at_start(cpu.state, cpu.rules, self.machine.offline.bits)

    def _lends_reserved(self, cpu: CPUManager) -> bool:
        """Whether all shared CPUs are offline, so that containers on the shared pool run on the reserved ones."""
        return self.policy.hotplug is not None and bool(cpu.state.default) and not cpu.assignable

    def _cpus_on_file(self, files: Mapping[str, bytes]) -> Bits:
        """Return the CPUs that the state file or the reservation names; all of the machine's without a readable
        file."""
        try:
            checkpoint = load_cpu(files[CPU_STATE_FILE], pod_level=True, containers={})
        except (KeyError, CheckpointError):
            return self.machine.cpus.bits
        texts = [text for named in (checkpoint.entries or {}).values() for text in (named or {}).values()]
        named = union(map(parse_bits_or_empty, (checkpoint.default_cpuset, self.config.reserved_system_cpus, *texts)))
        return named | union((checkpoint.pod_entries or {}).values()) or self.machine.cpus.bits

    def _start_memory_manager(
        self, memory: MemoryManager, files: MutableMapping[str, bytes], containers: Mapping[str, tuple[str, str]]
    ) -> None:
        path = f"{STATE_DIRECTORY}/{MEMORY_STATE_FILE}"
        hotplug = self.policy.hotplug
        # Where the gate is off there is no Memory Manager, so its file is neither read nor written.
        exists = self.context.gates["MemoryManager"]
        data = files.get(MEMORY_STATE_FILE) if exists else None
        memory.start(data, containers, path, tracks=hotplug is not None and hotplug.memory == "track")
        if exists:
            files.update(_changed_file(MEMORY_STATE_FILE, memory))

    def register_plugins(self) -> None:
        """Register the plugins of the machine's devices with their lists, unless they are registered already."""
        for resource in self.inventory.resources:
            if self.device.is_served(resource.resource):
                continue
            plugin = SimulatedPlugin(preferred_allocation=resource.preferred_allocation)
            self.device.register(resource.resource, resource.devices, plugin)

    # State files

    def changed_files(self) -> dict[str, bytes]:
        """Return the state files whose content changed since the last call, as a kubelet of this release writes
        them."""
        files: dict[str, bytes] = {}
        if self.cpu_manager is not None:
            files |= _changed_file(CPU_STATE_FILE, self.cpu_manager)
        if self.memory_manager is not None and self.context.gates["MemoryManager"]:
            files |= _changed_file(MEMORY_STATE_FILE, self.memory_manager)
        if self.inventory.resources or self.inventory.grows:
            files |= _changed_file(DEVICE_STATE_FILE, self.device)
        if self.cpu_manager is not None and self._note_policy_content():
            files[POLICY_STATE_FILE] = policy_state.encode(self.cpu.state, mixed=self.filed_mixed)
        return files

    def _note_policy_content(self) -> bool:
        """Remember the content of the policy's state file; return whether it differs from what was remembered."""
        state, mixed = self.cpu.state, self.mixed
        now = state.loans, state.pod_loans, state.classes, state.memos
        changed = (self.elastic and now[:2] != self.remembered[:2]) or now[2:] != self.remembered[2:]
        if changed or mixed != self.filed_mixed:
            self.remembered, self.filed_mixed = now, mixed
            return True
        return False

    @property
    def mixed(self) -> dict[str, Mapping[str, MixedShare]]:
        """Shares of containers with exclusive and shared CPUs, by pod UID and name; after a start also those of pods
        that are not readmitted yet."""
        known = self.filed_mixed
        if self.policy.mixed is None and not known:
            return known
        active, assigned = self.context.active, self.cpu.state.assignments
        waiting = {uid: shares for uid, shares in known.items() if uid not in active and uid in assigned}
        return waiting | {uid: pod.mixed_shares for uid, pod in active.items() if pod.mixed and uid in assigned}

    @staticmethod
    def _device_content(data: bytes | None) -> DeviceContent | None:
        """Return the records of a device checkpoint; without a readable one None, on which a kubelet goes on as well
        (memory-device 2.11)."""
        if data is None:
            return None
        try:
            return content_from(load_devices(data))
        except CheckpointError:
            return None

    # Pods and containers

    def shrink(self, pod: AdmissionPod, was: AdmissionPod) -> None:
        """Free what containers hold beyond what the pod requests now, where it requested more and can be resized.
        Raises `AdmissionError`."""
        if self.cpu.rules.resizer is not None or self.memory.rules.elastic:
            self.cpu.shrink(pod, was)
            self.memory.shrink(pod, partial(self.cpu.own_numa_nodes, pod.uid))

    def remove_stale(self) -> None:
        """Free what pods that are gone held."""
        if self.context.leftovers:
            self.device.remove_stale()
            self.cpu.remove_stale()
            self.memory.remove_stale()

    def add_container(self, pod: AdmissionPod, container: AdmissionContainer, container_id: str) -> None:
        """Record a container that is about to start (memory-device 3.6)."""
        self.cpu.add_container(pod.uid, container.name, container_id)
        self.memory.add_container(pod, container, container_id)
        self.topology.add_container(pod.uid, container.name, container_id)

    def note_container(self, uid: str, container: str, container_id: str) -> None:
        """Record a container that the runtime had before the kubelet started."""
        self.cpu.note_container(uid, container, container_id)
        self.memory.note_container(uid, container, container_id)

    def remove_container(self, uid: str, container_id: str) -> None:
        """Remove a container from all managers by its runtime id."""
        self.cpu.remove_container(uid, container_id)
        self.memory.remove_container(uid, container_id)
        self.topology.remove_container(uid, container_id)


def topology_options(config: KubeletConfig, gates: Mapping[str, bool], release: Release) -> TopologyManagerOptions:
    """Parse the options of the Topology Manager, which its policy none does not read. Raises `StartError`."""
    if not config.aligns:
        return TopologyManagerOptions()
    return parse_topology_options(config.topology_manager_policy_options, gates, release)


def make_merger(
    machine: Machine, config: KubeletConfig, options: TopologyManagerOptions, quirks: Quirks, extra: PodslicePolicy
) -> Merger | None:
    """Return the merger of hints for a machine and configuration, None with Topology Manager policy none. Raises
    `StartError`."""
    scores = extra.topology.best_effort == "scored"
    if scores and config.topology_manager_policy != BEST_EFFORT:
        raise StartError("policy", _NOT_BEST_EFFORT, policy=config.topology_manager_policy)
    if not config.aligns:
        return None
    policy, scope = config.topology_manager_policy, config.topology_manager_scope
    check_machine(machine, policy, scope, options, limited=quirks.numa_node_limit)
    check_node_ids(machine)
    scored = None
    if scores:
        apart = extra.topology.mode == "perResource"
        distances = {node.id: node.distances for node in machine.nodes if node.distances is not None}
        every = bits_of(node.id for node in machine.nodes)
        scored = ScoredMerge(extra.topology.weights, every, distances if apart else None)
    return Merger(
        policy,
        [(node.id, node.distances) for node in machine.nodes],
        closest=options.prefer_closest_numa_nodes,
        distances_by_id=quirks.distances_by_node_id,
        scored=scored,
    )


def _changed_file(name: str, manager: CPUManager | MemoryManager | DeviceManager) -> dict[str, bytes]:
    """Return the manager's state file by name if its content changed since the last call; a content that changed and
    changed back counts too."""
    content = manager.file_content
    if manager.filed is not None and all(map(_is_same, content, manager.filed)):
        return {}
    manager.filed = content
    return {name: manager.encode()}


def _is_same(one: object, other: object) -> bool:
    return one is other or (isinstance(one, int) and one == other)
