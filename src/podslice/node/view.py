"""A node's rules and holdings as one value to read and keep.

Everything that asks about a node (explain, defrag, what-if, lint, pictures, the agent's reports) reads a `NodeView`;
only `node` itself reaches into the managers. A view shows the node as it was when it was taken, whatever happens to the
node later.

Sets of CPUs and of NUMA nodes are bits of an `int`, as in `CPUTopology`, so `view.assignable & topology.numa_nodes[0]`
is what is left on NUMA node 0; `CPUSet.from_bits` prints one. The names of sets of CPUs are those of `node.cpu.state`.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

import msgspec

from podslice.api.pod.eligibility import NO_MIXED_SHARES, AdmissionContainer, AdmissionPod
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.config.mixed import make_admission_pod
from podslice.config.policy import PodslicePolicy
from podslice.config.policy_options import SINGLE_NUMA_NODE
from podslice.config.reservation import NodeResources
from podslice.machine.cores import free_cores
from podslice.machine.devices import DeviceInventory
from podslice.machine.memory import Block, NUMANodeState
from podslice.machine.model import CPUTopology, Machine, bisect_sums
from podslice.node.container import ContainerManager
from podslice.node.cpu import state as model
from podslice.node.cpu.pod_pool import EmptyPool, find_empty_pool
from podslice.node.cpu.state import assignable
from podslice.node.plugins.classes import CPUClasses, shared_cpus_of
from podslice.node.plugins.mixed import MixedPool, Sharing
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import Bits, bits_of, union
from podslice.values.gates import with_pod_level
from podslice.values.quantity import Quantity
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release

_MANAGED = "PodLevelResourceManagers"


class ContainerView(NamedTuple):
    """One container's holding. `cpus`: those it runs on; `exclusive_cpus`: those of them that are its own or its pod's.
    `memory_nodes`: NUMA nodes its memory is bound to, 0 for none. `blocks` of memory; `devices`: ids by resource.
    `shared_cpus`: those of a mixed container that are not its own."""

    cpus: Bits
    exclusive_cpus: Bits
    memory_nodes: Bits
    isolation: model.Isolation
    has_exclusive_cpus: bool
    cpu_quota_disabled: bool
    blocks: tuple[Block, ...]
    devices: Mapping[str, tuple[str, ...]]
    shared_cpus: Bits = 0


class NodeView(msgspec.Struct, frozen=True):
    """A node at one moment. `pods` are those on it by UID, in order of admission; `reservation` is what the
    configuration keeps from pods by resource; `cpu_options` are those of the CPU Manager's policy, `cpu_classes` and
    `mixed_pool` those of the PodslicePolicy. `unmanaged`: pods that run since before the gate PodLevelResourceManagers
    was on, and are treated as if it were off. `predicates`: the kubelet's general predicates decide too;
    `undoes_refusals`: a refused pod leaves nothing behind.

    Of CPUs: `reserved`, `withheld` (those that no container gets, the reserved ones among them), `sums` (how many one,
    two, three … NUMA nodes could give at most on an empty machine), `shared` (DEFAULT, the node's shared pool),
    `owners` (the assignments by pod UID and container) and `pod_cpus` (the pod CPUs by pod UID); `loans` and
    `pod_loans` are those of them beyond the ones promised at the admission; `offline` went offline while the node ran,
    and owners may have some. Of memory: `memory`, the ledger of each NUMA node, `blocks` that containers hold and
    `pod_blocks` that pods with pod-level resources hold as a whole. `devices` are those the node was made with,
    `device_ids` the ones that containers hold: by pod UID, container, resource and NUMA node (-1: none).
    """

    machine: Machine
    config: KubeletConfig
    policy: PodslicePolicy
    quirks: Quirks
    release: Release
    gates: Mapping[str, bool]
    topology: CPUTopology
    devices: DeviceInventory
    predicates: bool
    undoes_refusals: bool
    cgroup_version: int
    resources: NodeResources
    reservation: Mapping[str, Quantity]
    pods: Mapping[str, AdmissionPod]
    unmanaged: frozenset[str]
    cpu_options: CPUPolicyOptions
    cpu_classes: CPUClasses | None
    mixed_pool: MixedPool | None
    reserved: Bits
    withheld: Bits
    sums: tuple[int, ...]
    shared: Bits
    owners: Mapping[str, Mapping[str, Bits]]
    pod_cpus: Mapping[str, Bits]
    offline: Bits
    loans: Mapping[str, Mapping[str, tuple[int, ...]]]
    pod_loans: Mapping[str, Bits]
    memory: Mapping[int, NUMANodeState]
    blocks: Mapping[str, Mapping[str, tuple[Block, ...]]]
    pod_blocks: Mapping[str, tuple[Block, ...]]
    device_ids: Mapping[str, Mapping[str, Mapping[str, Mapping[int, tuple[str, ...]]]]]

    # Rules

    def fewest_numa_nodes(self, count: int) -> int:
        """Return the fewest NUMA nodes that could give `count` exclusive CPUs on an empty machine; all where even they
        could not."""
        return bisect_sums(self.sums, count)

    @property
    def pins_cpus(self) -> bool:
        """Whether the CPU Manager's policy is static: containers may own CPUs."""
        return self.config.cpu_manager_policy == "static"

    @property
    def binds_memory(self) -> bool:
        """Whether the Memory Manager's policy is Static: memory is counted by NUMA node."""
        return self.config.memory_manager_policy == "Static"

    @property
    def aligns(self) -> bool:
        """Whether the Topology Manager has a policy other than none."""
        return self.config.aligns

    @property
    def aligns_pods(self) -> bool:
        """Whether the Topology Manager aligns pods as a whole (scope pod)."""
        return self.config.aligns_pods

    @property
    def single_numa_node(self) -> bool:
        """Whether everything aligned must be on one NUMA node."""
        return self.config.topology_manager_policy == SINGLE_NUMA_NODE

    @property
    def allocatable(self) -> dict[str, Quantity]:
        """Amounts that pods may request in all, by resource, as in the Node's status."""
        return self.resources.allocatable

    @property
    def quota_can_be_disabled(self) -> bool:
        """Whether exclusive CPUs disable the CFS quota."""
        return self.gates["DisableCPUQuotaWithExclusiveCPUs"]

    def admission(self, pod: Pod) -> AdmissionPod:
        """Return a pod as the managers of this node see it."""
        uid = pod.metadata.uid
        there = self.pods.get(uid)
        known = NO_MIXED_SHARES if there is None else there.mixed_shares
        unmanaged = uid in self.unmanaged
        return make_admission_pod(self.policy, pod, self.gates, unmanaged=unmanaged, known=known, release=self.release)

    def as_admitted(self, pod: AdmissionPod) -> AdmissionPod:
        """Return a pod of the node as it was at its admission. Turning gates off changes nothing for a running pod with
        pod-level resources (KEP-2837, KEP-5526): it is ignored now, and its CPUs can only date from before."""
        if not pod.ignored or self.quirks.gate_moves_running_pods or not self.owners.get(pod.uid):
            return pod
        return AdmissionPod.of(pod.spec, with_pod_level(self.gates))

    def places_whole(self, pod: AdmissionPod) -> bool:
        """Whether the pod's budget is allocated as a whole and divided: pod-level resources, pod scope, some policy."""
        return pod.managed and not pod.ignored and self.aligns_pods

    def empty_pool(self, pod: AdmissionPod) -> EmptyPool | None:
        """Return the resource that a pod's exclusive containers use up, where pods are placed as a whole; such a pod is
        refused even on an empty node. None where there is none."""
        if not self.places_whole(pod) or pod.uid in self.pod_cpus:
            return None
        return find_empty_pool(pod, self.quirks, cpus=self.pins_cpus, memory=self.binds_memory)

    # CPUs

    @property
    def assignable(self) -> Bits:
        """ASSIGNABLE: CPUs that can still be given away exclusively."""
        return assignable(self.shared, self.reserved)

    @property
    def ownable_next(self) -> Bits:
        """CPUs that the next container can own: with full-pcpus-only those of whole cores."""
        free = self.assignable
        return union(free_cores(self.topology, free)) if self.cpu_options.full_pcpus_only else free

    @property
    def allocatable_cpus(self) -> Bits:
        """CPUs that can be given away exclusively on an empty node; none with CPU Manager policy none."""
        return self.topology.all_cpus & ~self.reserved if self.pins_cpus else 0

    @property
    def assigned(self) -> Bits:
        """All CPUs assigned to containers."""
        return union(cpus for named in self.owners.values() for cpus in named.values())

    @property
    def owned(self) -> Bits:
        """All CPUs with an owner: every assignment and all pod CPUs."""
        return self.assigned | union(self.pod_cpus.values())

    def assigned_to(self, uid: str) -> Bits:
        """Return the CPUs assigned to a pod's containers."""
        return union(self.owners.get(uid, {}).values())

    def owned_by(self, uid: str) -> Bits:
        """Return the CPUs that belong to a pod: its pod CPUs, and those assigned to its containers."""
        return self.pod_cpus.get(uid, 0) | self.assigned_to(uid)

    def assignment(self, uid: str, container: str) -> Bits | None:
        """Return the CPUs assigned to a container, None where it has no assignment."""
        return self.owners.get(uid, {}).get(container)

    def loaned(self, uid: str) -> Bits:
        """Return the CPUs of a pod beyond those promised to it and its containers."""
        return self.pod_loans.get(uid, 0) | bits_of(cpu for came in self.loans.get(uid, {}).values() for cpu in came)

    def promised(self, uid: str, container: str) -> Bits:
        """Return the CPUs of a container that were promised at its admission."""
        return (self.assignment(uid, container) or 0) & ~bits_of(self.loans.get(uid, {}).get(container, ()))

    def affinity(self, uid: str, container: str) -> Bits:
        """Return the CPUs a container runs on: its assignment, else the shared pool; both for a mixed container."""
        assigned = self.online(uid, container).cpus
        if assigned is not None:
            return self._used_cpus(uid, container) | self.shared_part(uid, container)
        if self.cpu_classes is None:
            return self.shared
        return shared_cpus_of(self.cpu_classes, self.pods.get(uid), container, self.shared)

    def _used_cpus(self, uid: str, container: str) -> Bits:
        own, pod = self.online(uid, container), self.pods.get(uid)
        if pod is None or not pod.hides_smt:
            return own.cpus or 0
        return self._sharing.used_cpus(pod, container, own)

    def hidden_siblings(self, uid: str, container: str) -> Bits:
        """Return the threads of a container's own cores that it does not run on."""
        return (self.online(uid, container).cpus or 0) & ~self.affinity(uid, container)

    @property
    def _sharing(self) -> Sharing:
        return Sharing(self.mixed_pool, self.cpu_classes, self.topology, self.shared, self.offline)

    def shared_part(self, uid: str, container: str) -> Bits:
        """Return the CPUs that a mixed container shares beside its own ones; 0 for other containers."""
        pod = self.pods.get(uid)
        if pod is None or not pod.mixed:
            return 0
        own, held = self.online(uid, container), self.owners.get(uid, {})
        return self._sharing.shared_part(pod, container, own, held, self.pod_cpus.get(uid))

    def online(self, uid: str, container: str) -> model.OwnCPUs:
        """Return the online CPUs that are the container's own or its pod's."""
        return model.own_cpus(self.assignment(uid, container), self.pod_cpus.get(uid, 0), self.offline)

    def lost(self, uid: str, container: str) -> Bits:
        """Return the CPUs assigned to a container that are offline."""
        return (self.assignment(uid, container) or 0) & self.offline

    def affinity_beside(self, pod: AdmissionPod, container: AdmissionContainer, running: Container[str]) -> Bits:
        """Return the CPUs a container runs on while the named containers of its pod run (see `model.cpus_beside`)."""
        own = self.affinity(pod.uid, container.name)
        held = self.owners.get(pod.uid, {})
        pod_cpus = self.pod_cpus.get(pod.uid)
        cpus = model.cpus_beside(pod, container, running, self.quirks, own=own, held=held, pod_cpus=pod_cpus)
        return cpus & ~self.offline or own

    def isolation(self, pod: AdmissionPod, container: AdmissionContainer) -> model.Isolation:
        """Return the kind of CPUs a container runs on: its own (`container`), these and shared ones (`mixed`), its
        pod's (`pod`) or the node's shared pool (`host`)."""
        own = self.online(pod.uid, container.name)
        return model.isolation(pod, container, own.cpus, borrowed=own.borrowed)

    def pod_has_exclusive_cpus(self, pod: AdmissionPod) -> bool:
        """Whether the cgroup of the whole pod has no CFS quota, where exclusive CPUs disable it."""
        return model.pod_has_exclusive_cpus(pod, model.online_parts(self.owners.get(pod.uid, {}), self.offline))

    # Memory

    def numa_nodes(self, uid: str, container: str) -> Bits:
        """Return the NUMA nodes a container's memory is bound to; 0 for no binding."""
        return model.remaining_nodes(model.numa_nodes(self.blocks_of(uid, container)), self.memory)

    def blocks_of(self, uid: str, container: str) -> tuple[Block, ...]:
        """Return the memory that a container holds."""
        return self.blocks.get(uid, {}).get(container, ())

    def booked(self, uid: str, containers: Iterable[str]) -> tuple[Block, ...]:
        """Return the memory that the ledgers count for containers of a pod: what the pod holds as a whole, if anything,
        in place of theirs."""
        whole = self.pod_blocks.get(uid, ()) if self.gates[_MANAGED] else ()
        return whole or tuple(block for name in containers for block in self.blocks_of(uid, name))

    # Containers

    def devices_of(self, uid: str, container: str) -> dict[str, tuple[str, ...]]:
        """Return the ids of the devices a container holds by resource, in byte order."""
        held = self.device_ids.get(uid, {}).get(container, {})
        return {
            resource: tuple(sorted({device for ids in held[resource].values() for device in ids}))
            for resource in sorted(held)
        }

    def container(self, pod: AdmissionPod, container: AdmissionContainer) -> ContainerView:
        """Return the holding of a container of a pod on the node."""
        own = self.online(pod.uid, container.name)
        exclusive = model.has_exclusive_cpus(
            pod, container, own.cpus, pod_level=self.gates[_MANAGED], borrowed=own.borrowed
        )
        return ContainerView(
            cpus=self.affinity(pod.uid, container.name),
            exclusive_cpus=own.cpus or 0,
            memory_nodes=self.numa_nodes(pod.uid, container.name),
            isolation=model.isolation(pod, container, own.cpus, borrowed=own.borrowed),
            has_exclusive_cpus=exclusive,
            cpu_quota_disabled=exclusive and self.quota_can_be_disabled and not container.is_throttled(self.mixed_pool),
            blocks=self.blocks_of(pod.uid, container.name),
            devices=self.devices_of(pod.uid, container.name),
            shared_cpus=self.shared_part(pod.uid, container.name),
        )


def view_of(
    manager: ContainerManager,
    resources: NodeResources,
    unmanaged: Iterable[str],
    *,
    predicates: bool,
    undoes_refusals: bool,
    cgroup_version: int,
) -> NodeView:
    """Return the view of a node whose managers have started."""
    cpu, memory = manager.cpu, manager.memory
    return NodeView(
        machine=manager.machine,
        config=manager.config,
        policy=manager.policy,
        quirks=manager.quirks,
        release=manager.release,
        gates=manager.context.gates,
        topology=cpu.topology,
        devices=manager.inventory,
        predicates=predicates,
        undoes_refusals=undoes_refusals,
        cgroup_version=cgroup_version,
        resources=resources,
        reservation=manager.reservation or {},
        pods=manager.context.active,
        unmanaged=frozenset(unmanaged),
        cpu_options=cpu.options,
        cpu_classes=cpu.rules.classes,
        mixed_pool=cpu.rules.mixed,
        reserved=cpu.reserved,
        withheld=cpu.rules.withheld,
        sums=cpu.rules.sums,
        shared=cpu.state.default,
        owners=cpu.state.assignments,
        pod_cpus=cpu.state.pod_cpus,
        offline=cpu.state.offline,
        loans=cpu.state.loans,
        pod_loans=cpu.state.pod_loans,
        memory=memory.machine_state,
        blocks=memory.assignments,
        pod_blocks=memory.pod_assignments,
        device_ids=manager.device.ids_by_node(),
    )
