"""The CPUs, NUMA nodes and limits that every container should have, read from the node's state.

Nothing is decided or changed here. Without a node, in safe mode, containers keep what they had, and the others share
the CPUs that are not known to be owned.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from msgspec.structs import replace

from podslice.agent.records import ClaimedDevice, ContainerRecord, Pinning
from podslice.agent.resize.unapplied_resizes import is_resized
from podslice.agent.runtime.exposure import ContainerResources, Upcoming, describe_container, describe_pinning
from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.api.pod.memory_demand import container_memory
from podslice.api.pod.spec import Pod
from podslice.dra.cgroups import NOTHING, ClaimedLimits
from podslice.machine.model import CPUTopology, Machine
from podslice.node.devices.plugin import RunOptions
from podslice.node.node import Node
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, union


class ClaimSets(Protocol):
    """CPUs, memory and limits that containers get from prepared claims."""

    def pinning(self, devices: Iterable[ClaimedDevice]) -> Pinning | None:
        """Return the CPUs and NUMA nodes of these devices, None where they have none."""

    def limits(self, pod: Pod | None, container: str, devices: Iterable[ClaimedDevice]) -> ClaimedLimits | None:
        """Return what these devices of a container add to its cgroup's limits, None while that is not known."""


class Placing:
    """Computes what each of `containers` should have. `node` is None in safe mode.

    `move_strangers` False leaves containers alone that were created without the agent. `created` and `ended` keep track
    of running init containers, which own CPUs of their pod's later containers meanwhile.
    """

    def __init__(
        self,
        machine: Machine,
        containers: Mapping[str, ContainerRecord],
        *,
        move_strangers: bool,
        claims: ClaimSets | None = None,
    ) -> None:
        self.node: Node | None = None
        self.all_cpus = CPUTopology(machine).all_cpus
        self.left: dict[tuple[str, str], Pinning] = {}
        """Pinning of containers that ended in safe mode, by pod UID and name; their successors get it."""
        self.withheld: dict[str, Bits] = {}
        """CPUs that are changing hands in a resize, by the UID their pod was admitted under; it does not run on
        them."""
        self.upcoming: dict[str, Upcoming] = {}
        """The CPUs that containers will soon be left with, by container id."""
        self.running_move: dict[str, NodeView] = {}
        """The node's view that counts for each pod that is being moved, by the UID it was admitted under."""
        self._claims = claims
        self._inits: dict[str, set[str]] = {}
        self._containers = containers
        self._move_strangers = move_strangers

    def on_machine(self, machine: Machine) -> None:
        """Use another machine from now on."""
        self.all_cpus = CPUTopology(machine).all_cpus

    def wanted(self, record: ContainerRecord) -> Pinning:
        """Return the pinning that the container should have now.

        A container whose resize is not carried out keeps its CPUs, but gets the quota that was asked for.
        """
        claimed = self._of_claims(record)
        if claimed is not None:
            return claimed
        decided = self._decided(record)
        withheld = self.withheld.get(record.unit, 0)
        # A container that would be left without any CPU keeps what it has until the resize is done.
        if withheld and (left := decided.cpus & ~withheld):
            decided = replace(decided, cpus=left, own=decided.own & left)
        return replace(decided, quota_off=False) if self._is_unapplied(record, decided) else decided

    def _of_claims(self, record: ContainerRecord) -> Pinning | None:
        """Return the pinning by claims. Claims for memory alone leave the CPUs as decided."""
        if self._claims is None or not record.claims or self.node is None:
            return None
        claimed = self._claims.pinning(record.claims)
        if claimed is None or claimed.cpus:
            return claimed
        return replace(self._decided(record), mems=claimed.mems)

    def claimed_limits(self, record: ContainerRecord) -> ClaimedLimits | None:
        """Return what claims add to the limits the kubelet asks for, None while that is not known."""
        if not record.claims or self._claims is None:
            return NOTHING
        if self.node is None:
            return None
        active, _ = self._admitted(record)
        return self._claims.limits(None if active is None else active.spec, record.name, record.claims)

    def resized(self, record: ContainerRecord) -> bool:
        """Return whether the container has exclusive CPUs and is asked to have another number of them."""
        return self._is_unapplied(record, self._decided(record))

    def _is_unapplied(self, record: ContainerRecord, decided: Pinning) -> bool:
        """Return whether the requested number differs. Offline CPUs count as owned; CPUs of claims are not resized."""
        if record.claims:
            return False
        return is_resized(record, replace(decided, cpus=decided.cpus | self.lost(record)))

    def lost(self, record: ContainerRecord) -> Bits:
        """Return the container's own CPUs that are offline."""
        return 0 if self.node is None else self.node.view.lost(record.unit, record.member)

    def _decided(self, record: ContainerRecord) -> Pinning:
        node = self.node
        if node is None:
            return record.kept or Pinning(cpus=self._safe_pool())
        if record.stranger and not self._move_strangers:
            return Pinning()
        active, container = self._admitted(record)
        if active is None or container is None:
            return Pinning(cpus=self.pool())
        # During a move the state names both sets; the view of the move says on which the container runs now.
        view = self.running_move.get(active.uid, node.view)
        if view.assignment(active.uid, container.name) is None:
            view = node.view
        got = view.container(active, container)
        entitled = active.managed or bool(container.exclusive_cpus) or got.isolation != "container"
        mixed = got.isolation == "mixed"
        return Pinning(
            cpus=view.affinity_beside(active, container, self._inits.get(active.uid, ())) if view.pins_cpus else 0,
            mems=got.memory_nodes or _nodes_of_successors(view, active, container),
            isolation=got.isolation if entitled else "pod",
            quota_off=got.cpu_quota_disabled and entitled,
            own=got.exclusive_cpus & got.cpus if mixed else 0,
            siblings=view.hidden_siblings(active.uid, container.name) if active.hides_smt and entitled else 0,
        )

    def describe_container(self, record: ContainerRecord) -> ContainerResources:
        """Return the content of the container's resource file."""
        placement = self.wanted(record)
        active, container = self._admitted(record)
        if self.node is None or active is None or container is None or placement == Pinning():
            return describe_pinning(placement)
        return describe_container(self.node.view, active, container, placement, self.upcoming.get(record.id))

    def created(self, record: ContainerRecord) -> bool:
        """Note that a container will run: all plain init containers before it have ended.

        Return whether the pod's shared pool changes, because an init container with own CPUs runs or has ended.
        """
        active, container = self._admitted(record)
        if active is None or container is None:
            return False
        before = self._inits.get(active.uid, set())
        names = [one.name for one in active.containers]
        place = names.index(container.name)
        now = {name for name in before if names.index(name) > place}
        if container.plain_init and container.exclusive_cpus and active.managed:
            now.add(container.name)
        return self._set_inits(active.uid, before, now)

    def ended(self, record: ContainerRecord) -> bool:
        """Note that a container has ended; return whether the pod's shared pool changes."""
        before = self._inits.get(record.unit, set())
        return self._set_inits(record.unit, before, before - {record.member})

    def forget_inits(self) -> None:
        """Forget which init containers run, before the runtime lists its containers again."""
        self._inits.clear()

    def _set_inits(self, uid: str, before: set[str], now: set[str]) -> bool:
        if now:
            self._inits[uid] = now
        else:
            self._inits.pop(uid, None)
        return before != now

    def run_options(self, record: ContainerRecord) -> RunOptions:
        """Return what device plugins add to the container. Raises `AdmissionError`."""
        active, container = self._admitted(record)
        if self.node is None or active is None or container is None:
            return RunOptions()
        return self.node.run_options(active.uid, container.name)

    def _admitted(self, record: ContainerRecord) -> tuple[AdmissionPod | None, AdmissionContainer | None]:
        """Return the admitted pod and container that a record stands for."""
        if self.node is None or not record.unit or not record.member:
            return None, None
        active = self.node.view.pods.get(record.unit)
        if active is None:
            return None, None
        if active.ignored:
            active = self.node.view.as_admitted(active)
        return active, next((one for one in active.containers if one.name == record.member), None)

    def pod_quota_off(self, units: Iterable[str]) -> bool:
        """Return whether the pod's cgroup must not enforce a CPU quota because a part of it owns CPUs."""
        if self.node is None or not self.node.view.quota_can_be_disabled:
            return False
        view = self.node.view
        there = [view.pods[unit] for unit in units if unit in view.pods]
        parts = [view.as_admitted(one) if one.ignored else one for one in there]
        return any(part.containers and view.pod_has_exclusive_cpus(part) for part in parts)

    def has_pod_cpus(self, uid: str) -> bool:
        """Return whether a pod owns CPUs as a whole."""
        return self.node is not None and uid in self.node.view.pod_cpus

    def owned_by(self, units: Iterable[str]) -> Bits:
        """Return the CPUs owned by these parts of a pod."""
        if self.node is None:
            return 0
        view = self.node.view
        return union(view.assigned_to(unit) for unit in units)

    def exclusive(self) -> Bits:
        """Return all owned CPUs: those of containers, and pod CPUs."""
        return self.all_cpus & ~self._safe_pool() if self.node is None else self.node.view.owned

    def pool(self) -> Bits:
        """Return the node's shared pool; 0 where CPUs are not pinned, and in safe mode."""
        node = self.node
        return node.shared_cpus.bits if node is not None and node.rules.cpu.static else 0

    def _safe_pool(self) -> Bits:
        """Return all CPUs without those known to be owned, or all CPUs where nothing would be left."""
        owned = 0
        for kept in (*(record.kept for record in self._containers.values()), *self.left.values()):
            if kept is not None:
                owned |= kept.owned
        # An empty set would mean "do not touch", and a container needs some CPU to run on.
        return self.all_cpus & ~owned or self.all_cpus


def _nodes_of_successors(view: NodeView, pod: AdmissionPod, container: AdmissionContainer) -> Bits:
    """Return the NUMA nodes of a plain init container whose memory was already handed to later containers."""
    if not container.plain_init or not pod.guaranteed:
        return 0
    if not container_memory(pod, container) and not view.pod_blocks.get(pod.uid):
        return 0
    return union(view.numa_nodes(pod.uid, other.name) for other in pod.containers)
