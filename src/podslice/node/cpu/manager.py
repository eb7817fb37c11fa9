"""The CPU Manager: hints, allocation, release and reconciliation of exclusive CPUs (cpu-topology 6 and 7).

It holds the CPU state of one node and is the only one that replaces it; a state itself never changes. The algorithms
are in `picking` and `hints`. This module keeps upstream's order: clean up, decide, write, count.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.machine.cores import whole_core_sums
from podslice.machine.model import CPUTopology, bisect_sums
from podslice.node.checkpoints.data import add_data
from podslice.node.context import (
    EXCLUSIVE,
    SHARED_POOL,
    NodeContext,
    allocation_error_series,
    allocation_series,
    assignment_series,
)
from podslice.node.cpu import elastic as cpu_elastic
from podslice.node.cpu import plugin_calls as cpu_plugins
from podslice.node.cpu import pod_level
from podslice.node.cpu import state as model
from podslice.node.cpu.checkpoint import CPUStateEncoder
from podslice.node.cpu.hints import cpu_hints_of_cores, cpu_topology_hints
from podslice.node.cpu.picking.distribute import Pick
from podslice.node.cpu.picking.picker import check_smt_alignment, no_whole_cores
from podslice.node.cpu.plugin_calls import PluginCalls
from podslice.node.cpu.state import CPUState, assignable
from podslice.node.plugins.classes import shared_cpus_of
from podslice.node.plugins.mixed import Sharing
from podslice.node.rules import CPURules
from podslice.node.topology.hint import Hint
from podslice.node.topology.hintset import ProviderHints, ResourceHints
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import Bits, union
from podslice.values.errors import AdmissionError, RefusalKind
from podslice.values.reasons import EMPTY_NODE_SHARED_POOL
from podslice.values.series import series
from podslice.values.tables import ContainerIds

NOTHING_LEFT = RefusalKind(
    "node-pool-empty",
    "the last CPU of the node's shared pool would become exclusive, and strict-cpu-reservation lends none",
    EMPTY_NODE_SHARED_POOL,
)
_REQUESTS = series("cpu_manager_pinning_requests_total")
_ERRORS = series("cpu_manager_pinning_errors_total")
_ALIGNED = "container_aligned_compute_resources_count"
_ALIGNED_UNCORE = series(_ALIGNED, boundary="uncore_cache", scope="container")
_ALIGNED_SMT = series(_ALIGNED, boundary="physical_cpu", scope="container")
_MISALIGNED_SMT = series(
    "container_aligned_compute_resources_failure_count", boundary="physical_cpu", scope="container"
)
_FROM_NODE = allocation_series("cpu", "node")
_FROM_POD = allocation_series("cpu", "pod")
_NODE_ERRORS = allocation_error_series("cpu", "node")
_POD_ERRORS = allocation_error_series("cpu", "pod")
_NODE_EXCLUSIVE = assignment_series("cpu", "node_exclusive")
_PICK_EVENTS = {
    "request": _REQUESTS,
    "exclusive": assignment_series("cpu", "pod_exclusive"),
    "shared": assignment_series("cpu", "pod_shared"),
}
Content = tuple[Bits, dict[str, dict[str, Bits]], dict[str, Bits]]
"""Content of the state file: the shared pool, CPUs by pod and container, pod CPUs by pod."""


class ReconciledContainer(NamedTuple):
    """A container as the pod status reports it to the reconcile pass; `id` None: the runtime has no such container."""

    pod: str
    container: str
    id: str | None
    running: bool


class CPUManager:
    """Policies `none` and `static`; the second hint provider that the Topology Manager asks.

    `filed` is the content of the state file as last written, None where there is no file yet.
    """

    __slots__ = ("_encoder", "context", "filed", "proposed", "rules", "state")
    name = "cpu"

    def __init__(self, rules: CPURules, context: NodeContext, state: CPUState | None = None) -> None:
        self.rules = rules
        self.context = context
        self.state = state or CPUState()
        self.filed: Content | None = self.file_content if state is None else None
        self._encoder: CPUStateEncoder | None = None
        self.proposed: tuple[str, dict[str, Pick]] | None = None
        """Pod UID, and by container the pick that plugins proposed in this admission; allocation takes it from here."""

    @property
    def file_content(self) -> Content:
        """Content of the state file for the current state."""
        return self.state.default, self.state.assignments, self.state.pod_cpus

    def encode(self) -> bytes:
        """Return the state file as a kubelet of this release writes it: V3 with PodLevelResourceManagers, else V2; from
        1.37 on V4."""
        if self._encoder is None:
            self._encoder = CPUStateEncoder()
        newest = self._encoder.encode(self.state, self.policy, "v3" if self.rules.pod_level else "v2")
        if self.context.release.state_files != "v4":
            return newest
        return add_data(self._encoder.encode(self.state, self.policy, "v2"), newest)

    def start(self, state: CPUState, containers: ContainerIds) -> None:
        """Begin with a state that was restored and validated (cpu-topology 8.6)."""
        self.state = replace(state, containers=containers)
        if self.rules.static:
            metrics = self.context.metrics
            metrics[SHARED_POOL] = 1000 * self.assignable.bit_count()
            metrics[EXCLUSIVE] = self._count_exclusive(state)

    def _count_exclusive(self, state: CPUState) -> int:
        """Return the number of exclusive CPUs as the metric of a start has it."""
        if self.context.release.exclusive_cpus_are_counted_once:
            return state.assigned().bit_count()
        return sum(cpus.bit_count() for named in state.assignments.values() for cpus in named.values())

    # Rules

    @property
    def topology(self) -> CPUTopology:
        return self.rules.topology

    @property
    def policy(self) -> str:
        return self.rules.policy

    @property
    def static(self) -> bool:
        return self.rules.static

    @property
    def options(self) -> CPUPolicyOptions:
        return self.rules.options

    @property
    def reserved(self) -> Bits:
        """CPUs kept for the system."""
        return self.rules.reserved

    @property
    def allocatable(self) -> Bits:
        """CPUs that can be given away exclusively on an empty node."""
        return self.rules.topology.all_cpus & ~self.reserved if self.static else 0

    # Hints

    def container_hints(self, pod: AdmissionPod, container: AdmissionContainer) -> ProviderHints:
        """Return the hints for one container (cpu-topology 7.1)."""
        if not self.rules.static:
            return None
        # Upstream cleans up before it looks for free CPUs, so a hint already counts what stale containers held.
        if self.context.leftovers:
            self.remove_stale()
        count = container.exclusive_cpus
        if not count or pod.ignored:
            return None
        assigned = self.state.assignment(pod.uid, container.name)
        if assigned is None:
            free = assignable(self.state.default, self.rules.withheld)
            reusable = self._reusable(pod) if self.state.reusable else 0
            if self.rules.plugins is not None:
                left = self._filter(pod, container, count, free | reusable)
                free, reusable = free & left, reusable & left
            return {"cpu": self._hints(free, reusable, count, self._class_cpus(pod, (container,)))}
        if assigned.bit_count() == count:
            return self._hints_for_held(assigned, self._class_cpus(pod, (container,), assigned))
        if self.rules.resizer is None:
            # An empty list, unlike None, means that no NUMA nodes will do: a kubelet refuses another size than the one
            # it gave.
            return {"cpu": []}
        free = self._filter(pod, container, count, self.free | self._reusable(pod), anchor=assigned)
        return {"cpu": self._hints(free, assigned, count, self._class_cpus(pod, (container,), assigned))}

    def pod_hints(self, pod: AdmissionPod) -> ProviderHints:
        """Return the hints for the pod as a whole (cpu-topology 7.2)."""
        if not self.rules.static:
            return None
        if self.context.leftovers:
            self.remove_stale()
        if not pod.cpus or pod.ignored:
            return None
        if pod.managed:
            pod_cpus = self._running_pod_cpus(pod)
            if pod_cpus is None and self.rules.resizer is not None:
                pod_cpus = self.state.pod_cpus.get(pod.uid)
            if pod_cpus is not None:
                own = self._class_cpus(pod, (None,), pod_cpus)
                if pod_cpus.bit_count() == pod.cpus:
                    return self._hints_for_held(pod_cpus, own)
                free = self._filter(pod, None, pod.cpus, self.free, anchor=pod_cpus)
                return {"cpu": self._hints(free, pod_cpus, pod.cpus, own)}
            if self._has_run(pod):
                return None
            try:
                self._check_shared_pool(pod)
            except AdmissionError:
                # Upstream does not report the reason here: the pod is refused as not aligned (cpu-topology 7.2, step
                # 4).
                return {"cpu": []}
        held = 0
        for container in pod.containers:
            assigned = self.state.assignment(pod.uid, container.name)
            if assigned is not None:
                if assigned.bit_count() != container.exclusive_cpus and self.rules.resizer is None:
                    return {"cpu": []}
                held |= assigned
        asking = (None,) if pod.managed else tuple(one for one in pod.containers if one.exclusive_cpus)
        own = self._class_cpus(pod, asking, held)
        if held.bit_count() == pod.cpus:
            return self._hints_for_held(held, own)
        reusable = self.state.reusable.get(pod.uid, 0) | held
        return {"cpu": self._hints(self._available_to(pod), reusable, pod.cpus, own)}

    def _class_cpus(
        self, pod: AdmissionPod, containers: Iterable[AdmissionContainer | None], held: Bits = 0
    ) -> Bits | None:
        """Return the CPUs of the classes that containers, or the pod as a whole (None), may own on an empty machine;
        None where the policy has no classes."""
        classes = self.rules.classes
        if classes is None:
            return None
        asked = (classes.to_own(pod, one, self.state.classes, held) for one in containers)
        return union(classes.own(wish) for wish in asked) & ~self.rules.withheld

    def _hints_for_held(self, held: Bits, own: Bits | None) -> ProviderHints:
        """Return hints for CPUs that a container or pod holds already. CPUs that are offline have no NUMA node any
        more."""
        there = held & ~self.state.offline
        return {"cpu": self._hints(there, 0, there.bit_count(), own)} if there else None

    def _hints(self, available: Bits, reusable: Bits, count: int, own: Bits | None) -> ResourceHints:
        """Return the hints for `count` CPUs; an empty list where no set of NUMA nodes has as many. `own`: the CPUs that
        it could be on an empty machine, where CPU classes say so."""
        # Offline CPUs stay assigned but count for no NUMA node, so hints are for the CPUs that remain.
        gone = reusable & self.state.offline
        if gone:
            reusable, count = reusable & ~gone, count - gone.bit_count()
        self.context.note_listing("cpu", len(self.rules.topology.numa_nodes))
        if self.rules.picker.uneven:
            empty = self.rules.picker.ownable(self.rules.reserved, self.rules.reserved_physical)
            empty = empty if own is None else empty & own
            return cpu_hints_of_cores(self.topology, available, reusable, count, empty)
        hints = cpu_topology_hints(
            self.rules.topology,
            available,
            reusable,
            count,
            align_by_socket=self.rules.options.align_by_socket,
            sockets_first=self.rules.picker.sockets_first,
            smallest=bisect_sums(self.rules.sums if own is None else self.topology.largest_sums(own), count),
        )
        return hints or []

    # Allocation

    def allocate(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        """Give a container its exclusive CPUs, if it is entitled to any (cpu-topology 6.2). Raises `AdmissionError`."""
        if not self.rules.static:
            return
        if self.context.leftovers:
            self.remove_stale()
        if not container.exclusive_cpus or pod.ignored:
            return
        metrics = self.context.metrics
        metrics[_REQUESTS] += 1
        try:
            cpus = self._allocate_container(pod, container, affinity)
        except AdmissionError:
            metrics[_ERRORS] += 1
            if self.rules.pod_level:
                metrics[_NODE_ERRORS] += 1
            if self.rules.options.full_pcpus_only and self.context.release.counts_misalignment:
                metrics[_MISALIGNED_SMT] += 1
            raise
        if self.rules.options.full_pcpus_only:
            metrics[_ALIGNED_SMT] += 1
        if container.plain_init or self.state.reusable:
            self._update_reusable(pod.uid, container, cpus)
        if self.rules.plugins is not None:
            self._note_classes(pod, container, cpus)
            cpu_plugins.grant(self, pod, container, cpus)

    def _allocate_container(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> Bits:
        """Return the CPUs of a container, which are assigned here unless it has some. Raises `AdmissionError`."""
        held = self.state.assignment(pod.uid, container.name)
        reusable = self._reusable(pod) if self.state.reusable else 0
        # Upstream checks SMT alignment even for CPUs that the container holds already (quirk `smt_check_before_state`).
        if self.rules.options.full_pcpus_only and (held is None or self.context.quirks.smt_check_before_state):
            self._check_smt(container.exclusive_cpus, reusable)
        # Upstream returns an assignment as it is, whatever the container requests now (cpu-topology 6.2, step 5).
        if held is not None:
            resizer = self.rules.resizer
            if resizer is None or held.bit_count() >= container.exclusive_cpus:
                return held
            free = self._filter(pod, container, container.exclusive_cpus, self.free | reusable, anchor=held)
            resized = cpu_elastic.grow(self.state, resizer, pod, container, free=free, affinity=affinity)
            self._check_hides_smt(pod, resized)
            self._replace_state(resized)
            return self.state.assignments[pod.uid][container.name]
        cpus = self._pick(pod, container, affinity, reusable)
        self.state = self.state.give(pod.uid, container.name, cpus)
        if self.rules.pod_level:
            self.context.metrics[_FROM_NODE] += 1
            self.context.metrics[_NODE_EXCLUSIVE] += 1
        return cpus

    # Plugins

    @property
    def hint_scores(self) -> bool:
        """Whether plugins choose among equally good sets of NUMA nodes."""
        return self.rules.plugins is not None and self.rules.plugins.hint_scores

    @property
    def calls(self) -> PluginCalls | None:
        """The node's plugins, None where the policy has none."""
        plugins = self.rules.plugins
        return None if plugins is None else PluginCalls(plugins, self.rules, self.context, self.state.classes)

    def _filter(
        self, pod: AdmissionPod, container: AdmissionContainer | None, count: int, cpus: Bits, *, anchor: Bits = 0
    ) -> Bits:
        """Return those of `cpus` that the plugins' filters leave to a container, or to the pod as a whole (None).
        Raises `AdmissionError`."""
        calls = self.calls
        if calls is None:
            return cpus
        ask = calls.ask(pod, container, count, anchor=anchor, operation="resize" if anchor else "admit")
        return calls.filter(ask, cpus, self.state)

    def _note_classes(self, pod: AdmissionPod, container: AdmissionContainer | None, cpus: Bits) -> None:
        """Record the CPU classes under which a container, or the pod as a whole (None), got CPUs; the first record
        stays."""
        classes, name = self.rules.classes, "" if container is None else container.name
        if classes is not None and name not in self.state.classes.get(pod.uid, {}):
            words = classes.to_note(pod, container, cpus)
            if words:
                self.state = self.state.note_classes(pod.uid, name, words)

    def eligible_cpus(self, pod: AdmissionPod, names: Container[str]) -> Bits:
        """Return the CPUs that every named container of a pod may own, free or not; for a pod with pod CPUs, those that
        the pod may own. Raises `AdmissionError`."""
        left = self.allocatable
        if pod.uid in self.state.pod_cpus:
            return self._filter(pod, None, pod.cpus, left)
        for container in pod.containers:
            if container.name in names and container.exclusive_cpus:
                left = self._filter(pod, container, container.exclusive_cpus, left)
        return left

    def _available_to(self, pod: AdmissionPod) -> Bits:
        """Return the free CPUs that the pod as a whole, or any container of it, may get."""
        free = self.free
        if self.rules.plugins is None:
            return free
        if pod.managed:
            return self._filter(pod, None, pod.cpus, free)
        asking = [one for one in pod.containers if one.exclusive_cpus]
        return union(self._filter(pod, one, one.exclusive_cpus, free) for one in asking)

    def propose(self, pod: AdmissionPod, containers: Sequence[AdmissionContainer | None], affinity: Hint) -> int:
        """Choose the CPUs that containers, or the pod as a whole (None), would get under this affinity, and return
        their score. `allocate` uses the choice; until then nothing else changes. Raises `AdmissionError`."""
        found, score = cpu_plugins.propose_all(self, pod, containers, affinity)
        self.proposed = pod.uid, found
        return score

    def _take_proposal(self, pod: AdmissionPod, container: AdmissionContainer | None, affinity: Hint) -> Pick:
        """Return the pick proposed for a container and forget it; propose one now where none is stored."""
        name = "" if container is None else container.name
        settled = {} if self.proposed is None or self.proposed[0] != pod.uid else self.proposed[1]
        self.proposed = pod.uid, {other: pick for other, pick in settled.items() if other != name}
        if name not in settled:
            settled, _ = cpu_plugins.propose_all(self, pod, (container,), affinity)
        return settled[name]

    def _check_pool_keeps_cpus(self) -> None:
        """Refuse to give the last shared CPU away, which upstream does."""
        if not self.context.quirks.strict_reservation_empties_pool:
            raise AdmissionError(NOTHING_LEFT)

    def _reusable(self, pod: AdmissionPod) -> Bits:
        """Return the CPUs that init containers leave to the pod's next container."""
        reusable = self.state.reusable.get(pod.uid, 0)
        if not reusable or self.rules.resizer is None:
            return reusable
        # After a resize a container that runs on may own CPUs that an init container has left.
        held = self.state.assignments.get(pod.uid, {})
        return reusable & ~union(held.get(one.name, 0) for one in pod.containers if not one.plain_init)

    def shrink(self, pod: AdmissionPod, was: AdmissionPod) -> None:
        """Free what containers own beyond what the pod requests now, where it requested more before. Raises
        `AdmissionError`."""
        if self.rules.resizer is not None:
            before = self.state
            after = cpu_elastic.shrink(before, self.rules.resizer, pod, was)
            self._check_hides_smt(pod, after)
            if after is not before:
                self._replace_state(after)
            if self.state.grants:
                cpu_plugins.release_lost(self, pod.uid, before)

    def _check_hides_smt(self, pod: AdmissionPod, state: CPUState) -> None:
        """Check that containers which use one thread of each core still own whole cores. Raises `AdmissionError`."""
        for one in pod.containers if pod.hides_smt else ():
            held = state.assignment(pod.uid, one.name) or 0
            if one.hides_smt and not cpu_plugins.is_whole(self.topology, held):
                raise no_whole_cores(self.topology, one.exclusive_cpus)

    def _replace_state(self, state: CPUState) -> None:
        """Take the state after a resize, and count the CPUs that changed between shared and exclusive."""
        taken, freed = self.state.default & ~state.default, state.default & ~self.state.default
        if taken and not state.default:
            self._check_pool_keeps_cpus()
        self._count_release(freed.bit_count() - taken.bit_count())
        self.state = state

    def _check_smt(self, count: int, reusable: Bits) -> None:
        """Check a request under `full-pcpus-only` against the free CPUs of cores without reserved ones. Raises
        `AdmissionError`."""
        # A core with a reserved CPU can never be given away as a whole.
        free = self.state.default & ~self.rules.reserved_physical
        if not self.context.quirks.smt_check_ignores_reusable:
            free |= reusable
        if self.rules.picker.uneven:
            if not whole_core_sums(self.topology, free, count) >> count & 1:
                raise no_whole_cores(self.topology, count)
            return
        check_smt_alignment(count, free.bit_count(), self.rules.core_size, self.context.release)

    def _pick(self, pod: AdmissionPod, container: AdmissionContainer | None, affinity: Hint, reusable: Bits) -> Bits:
        """Return CPUs for a container, or for the pod as a whole (None), and count them; those in DEFAULT leave it."""
        if self.rules.plugins is None:
            count = pod.cpus if container is None else container.exclusive_cpus
            pool = assignable(self.state.default, self.rules.withheld) | reusable
            budget = self.context.search_budget
            pick = self.rules.picker.take_near(pool, count, affinity.mask, budget, reusable=reusable)
        else:
            pick = self._take_proposal(pod, container, affinity)
        cpus = self._note_search(pick)
        if not self.state.default & ~cpus:
            self._check_pool_keeps_cpus()
        if self.context.release.counts_misalignment and self.rules.topology.is_uncore_aligned(cpus):
            self.context.metrics[_ALIGNED_UNCORE] += 1
        self.context.metrics[SHARED_POOL] -= 1000 * cpus.bit_count()
        self.context.metrics[EXCLUSIVE] += cpus.bit_count()
        return cpus

    def _update_reusable(self, uid: str, container: AdmissionContainer, cpus: Bits) -> None:
        """Add the CPUs of a plain init container to the reusable ones, or take away those of any other."""
        reusable = self.state.reusable.get(uid, 0)
        left = reusable | cpus if container.plain_init else reusable & ~cpus
        # Reuse is within one pod, and pods are admitted one at a time: other pods' entries are dropped.
        self.state = self.state.with_reusable({uid: left} if left else {})

    def allocate_pod(self, pod: AdmissionPod, affinity: Hint) -> None:
        """Give a pod with pod-level resources its CPUs and divide them (cpu-topology 6.4). Raises `AdmissionError`."""
        if not self.rules.static:
            return
        if self.context.leftovers:
            self.remove_stale()
        if pod.uid in self.state.pod_cpus:
            self._note_classes(pod, None, self.state.pod_cpus[pod.uid])
        if self.rules.resizer is not None and pod.uid in self.state.pod_cpus:
            if self._running_pod_cpus(pod) is None or not all(self.holds(pod, one) for one in pod.containers):
                self._check_shared_pool(pod)
                had = self.state.pod_cpus[pod.uid]
                free, resizer = self._filter(pod, None, pod.cpus, self.free, anchor=had), self.rules.resizer
                self._replace_state(cpu_elastic.resize_pod(self.state, resizer, pod, free=free, affinity=affinity))
            return
        if not pod.cpus or self._has_run(pod):
            return
        try:
            self._allocate_pod_cpus(pod, affinity)
        except AdmissionError:
            self.context.metrics[_ERRORS] += 1
            if self.rules.pod_level:
                self.context.metrics[_POD_ERRORS] += 1
            raise

    def _allocate_pod_cpus(self, pod: AdmissionPod, affinity: Hint) -> None:
        """Assign CPUs to a pod as a whole and slices of them to its containers. Raises `AdmissionError`."""
        self._check_shared_pool(pod)
        if self.rules.options.full_pcpus_only:
            self._check_smt(pod.cpus, 0)
        pod_cpus = self._pick(pod, None, affinity, 0)
        self._note_classes(pod, None, pod_cpus)
        self.state = self.state.with_default(self.state.default & ~pod_cpus).assign_pod(pod.uid, pod_cpus)
        take = self._take if self.rules.plugins is None else cpu_plugins.slice_picker(self, pod)
        slices = pod_level.partition(pod, pod_cpus, take, self._count_pick)
        for part in slices:
            self.state = self.state.assign(pod.uid, part.container, part.cpus)
        if self.rules.pod_level:
            # Upstream counts the containers on the pod's shared pool as assignments too.
            shared_too = self.context.quirks.assignment_metrics_drift
            self.context.metrics[_FROM_POD] += sum(part.exclusive or shared_too for part in slices)

    def _check_shared_pool(self, pod: AdmissionPod) -> None:
        pod_level.check_shared_pool(pod, self.context.quirks)

    def _take(self, available: Bits, count: int) -> Bits:
        return self._note_search(self.rules.picker.take_near(available, count, None, self.context.search_budget))

    def _note_search(self, pick: Pick) -> Bits:
        """Report a pick that a search cut short, and return its CPUs."""
        if not pick.proven:
            self.context.end_early("the NUMA nodes to distribute CPUs over")
        return pick.cpus

    def _count_pick(self, event: str) -> None:
        if self.rules.pod_level or event == "request":
            self.context.metrics[_PICK_EVENTS[event]] += 1

    def _has_run(self, pod: AdmissionPod) -> bool:
        """Whether a pod got CPUs in an earlier admission, in either scope; upstream allocates again (quirk
        `pod_allocation_repeats`)."""
        return not self.context.quirks.pod_allocation_repeats and pod.uid in self.state.assignments

    def _running_pod_cpus(self, pod: AdmissionPod) -> Bits | None:
        """Return the pod CPUs of a pod that was admitted before and still fits them, else None; upstream does not look
        (quirk `pod_allocation_repeats`)."""
        if not self._has_run(pod):
            return None
        pod_cpus = self.state.pod_cpus.get(pod.uid)
        if pod_cpus is None or pod_cpus.bit_count() != pod.cpus:
            return None
        held = self.state.assignments.get(pod.uid, {})
        return pod_cpus if all(container.name in held for container in pod.containers) else None

    def rebuild_pod_entry(self, pod: AdmissionPod) -> None:
        """Restore the pod CPUs of a running pod from its containers' assignments, if these are what the pod
        requests."""
        held = self.state.assignments.get(pod.uid, {})
        if not self.static or pod.uid in self.state.pod_cpus or any(one.name not in held for one in pod.containers):
            return
        pod_cpus = 0
        for container in pod.containers:
            if container.exclusive_cpus not in (0, held[container.name].bit_count()):
                return
            pod_cpus |= held[container.name]
        if pod_cpus.bit_count() == pod.cpus:
            self.state = self.state.assign_pod(pod.uid, pod_cpus)

    # Release

    def remove_stale(self) -> None:
        """Release what containers that are no longer active hold (cpu-topology 6.1)."""
        # While pod sources are still reporting, pods that run may be missing from the active ones.
        if self.name not in self.context.leftovers or not self.context.sources_ready:
            return
        if self.state.reusable:
            self.state = self.state.with_reusable(self.context.keep_reusable(self.state.reusable))
        for uid, name in self.context.find_stale(self.name, self.state.assignments, self.state.containers):
            if name is None:
                self._remove_pod(uid)
            else:
                self._remove(uid, name)
        # Upstream finds stale pods by their container assignments, so pod CPUs without any would stay taken
        # (cpu-topology 11.2).
        if self.state.pod_cpus and not self.context.quirks.refused_pods_leave_state:
            for uid in self.state.pod_cpus.keys() - self.context.active.keys():
                self.state = self.state.free_pod_cpus(uid)

    def remove_container(self, uid: str, container_id: str) -> None:
        """Release a container by its runtime id; unknown ids are ignored. The 1.36 kubelet never calls this."""
        name = self.state.containers.get(uid, {}).get(container_id)
        if name is not None:
            self._remove(uid, name)

    def _remove(self, uid: str, name: str) -> None:
        if self.rules.static:
            self._release(uid, name)
        self.state = self.state.stop(uid, name)

    def _remove_pod(self, uid: str) -> None:
        """Release all containers of a pod at once: no release depends on another one's order."""
        if self.state.grants:
            cpu_plugins.release_pod(self, uid)
        pod_level = self.rules.pod_level
        freed = self.state.cpus_to_free(uid, pod_level=pod_level) if self.rules.static else None
        if freed is not None:
            self._count_release(freed.bit_count())
        self.state = self.state.forget(uid, freed, pod_level=pod_level)

    def _release(self, uid: str, name: str) -> None:
        """Release one container's CPUs (cpu-topology 6.5); pod CPUs go back as a whole with the pod's last
        container."""
        removed = self.state.assignment(uid, name)
        if removed is None:
            return
        state = self.state.unassign(uid, name)
        pod_cpus = state.pod_cpus.get(uid) if self.rules.pod_level else None
        if pod_cpus is None:
            released = removed
            # An init container may share its CPUs with a container that runs on.
            for other in state.assignments.get(uid, {}).values():
                released &= ~other
            state = state.with_default(state.default | released)
            self._count_release(released.bit_count())
        elif uid not in state.assignments:
            state = state.free_pod_cpus(uid)
            self._count_release(pod_cpus.bit_count())
        self.state = state

    def _count_release(self, cpus: int) -> None:
        self.context.metrics[SHARED_POOL] += 1000 * cpus
        self.context.metrics[EXCLUSIVE] -= cpus

    # Containers at run time

    def add_container(self, uid: str, container: str, container_id: str) -> None:
        """Record that a container is about to start under this runtime id (cpu-topology 6.7)."""
        self.state = self.state.start(uid, container, container_id)
        pod = self.context.active.get(uid)
        if pod is not None and self.rules.classes is not None:
            cpu_plugins.count_fallback(self, self.rules.classes, pod, container)
        # Such a container does not start on its assignment, so what was written differs from it.
        if pod is not None and (pod.mixed or pod.hides_smt) and self.state.assignment(uid, container) is not None:
            self.state = self.state.write(uid, container, self.affinity(uid, container))

    def note_container(self, uid: str, container: str, container_id: str) -> None:
        """Record a container that the runtime had before the kubelet started."""
        self.state = self.state.note_container(uid, container, container_id)

    def reconcile(self, containers: Iterable[ReconciledContainer]) -> list[tuple[str, Bits]]:
        """Return the (container id, CPUs) updates to send to the runtime, in order: one reconcile pass (cpu-topology
        6.7)."""
        if not self.rules.static:
            return []
        if self.context.leftovers:
            self.remove_stale()
        updates = []
        for status in containers:
            if not status.running or status.id is None:
                continue
            self.note_container(status.pod, status.container, status.id)
            wanted = self.affinity(status.pod, status.container)
            # Compared with what was last sent, so that an unchanged container costs no call to the runtime.
            if wanted and wanted != self.state.written.get(status.pod, {}).get(status.container, 0):
                updates.append((status.id, wanted))
                self.state = self.state.write(status.pod, status.container, wanted)
        return updates

    # Queries

    @property
    def assignable(self) -> Bits:
        """ASSIGNABLE: CPUs that can still be given away exclusively."""
        return assignable(self.state.default, self.rules.reserved)

    @property
    def free(self) -> Bits:
        """CPUs that the next container can get: ASSIGNABLE, without the siblings of reserved CPUs where only whole
        cores are given away."""
        return assignable(self.state.default, self.rules.withheld)

    def own_numa_nodes(self, uid: str, container: str = "") -> Bits:
        """Return the NUMA nodes of the CPUs that a container, or without `container` the whole pod, owns."""
        if container:
            return self.topology.numa_nodes_of(self.state.assignment(uid, container) or 0)
        return self.topology.numa_nodes_of(self.state.of_pod(uid).cpus)

    def affinity(self, uid: str, container: str) -> Bits:
        """Return the CPUs a container runs on: its assignment, else the shared pool (cpu-topology 6.7); both for a
        mixed container."""
        classes, pod = self.rules.classes, self.context.active.get(uid)
        mixed = pod is not None and (pod.mixed or pod.hides_smt)
        if classes is None and not mixed:
            return self.state.affinity(uid, container)
        own = self.state.online(uid, container)
        if own.cpus is None:
            default = self.state.default
            return default if classes is None else shared_cpus_of(classes, pod, container, default)
        if pod is None or not mixed:
            return own.cpus
        held = self.state.assignments.get(uid, {})
        return self._sharing.runs_on(pod, container, own, held, self.state.pod_cpus.get(uid))

    @property
    def _sharing(self) -> Sharing:
        rules, state = self.rules, self.state
        return Sharing(rules.mixed, rules.classes, rules.topology, state.default, state.offline)

    def affinity_beside(self, pod: AdmissionPod, container: AdmissionContainer, running: Container[str]) -> Bits:
        """Return the CPUs a container runs on while the named init containers of its pod run. A running init container
        owns its CPUs alone, so the pod's shared pool is smaller meanwhile; upstream runs both on the same CPUs."""
        own = self.affinity(pod.uid, container.name)
        held = self.state.assignments.get(pod.uid, {})
        quirks, pod_cpus = self.context.quirks, self.state.pod_cpus.get(pod.uid)
        cpus = model.cpus_beside(pod, container, running, quirks, own=own, held=held, pod_cpus=pod_cpus)
        return cpus & ~self.state.offline or own

    def exclusive_cpus(self, uid: str, container: str) -> Bits:
        """Return the CPUs that the pod-resources API reports, pod shared pools included (cpu-topology 6.8)."""
        return self.state.online(uid, container).cpus or 0

    def holds(self, pod: AdmissionPod, container: AdmissionContainer) -> bool:
        """Whether the container owns as many exclusive CPUs as it is entitled to."""
        if not container.exclusive_cpus or not self.static:
            return True
        held = self.state.assignment(pod.uid, container.name)
        if held is None or self.rules.resizer is None:
            return held is not None
        pod_cpus = self.state.pod_cpus.get(pod.uid)
        return held.bit_count() == container.exclusive_cpus and (pod_cpus is None or pod_cpus.bit_count() == pod.cpus)

    def isolation(self, pod: AdmissionPod, container: AdmissionContainer) -> model.Isolation:
        """Return the kind of CPUs a container runs on: its own, mixed, its pod's or the node's."""
        own = self.state.online(pod.uid, container.name)
        return model.isolation(pod, container, own.cpus, borrowed=own.borrowed)

    def container_has_exclusive_cpus(self, pod: AdmissionPod, container: AdmissionContainer) -> bool:
        """Whether the container's CFS quota can be disabled (cpu-topology 6.9)."""
        own = self.state.online(pod.uid, container.name)
        pod_level = self.rules.pod_level
        return model.has_exclusive_cpus(pod, container, own.cpus, pod_level=pod_level, borrowed=own.borrowed)

    def pod_has_exclusive_cpus(self, pod: AdmissionPod) -> bool:
        """Whether the CFS quota of the pod cgroup and sandbox can be disabled (cpu-topology 6.9)."""
        held = self.state.assignments.get(pod.uid, {})
        return model.pod_has_exclusive_cpus(pod, model.online_parts(held, self.state.offline))
