"""The Topology Manager: collects hints, merges them, decides, and lets the providers allocate.

This module is the admission pipeline of a node (cpu-topology 9.2). For each container, or once for the pod: hints from
every provider, merge, verdict, store the affinity, allocate with every provider in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.config.policy_options import SCOPES
from podslice.node.context import NodeContext
from podslice.node.topology.endless import may_be_endless, refuse_endless
from podslice.node.topology.hint import NO_AFFINITY, Hint, SplitHint
from podslice.node.topology.hintset import HintSet, ProviderHints
from podslice.node.topology.merge import Merger
from podslice.values.cpuset import Bits
from podslice.values.errors import AdmissionError, RefusalKind
from podslice.values.reasons import TOPOLOGY_AFFINITY, UNEXPECTED_ADMISSION
from podslice.values.series import series
from podslice.values.tables import ContainerIds, drop, drop_in, put_in

NOT_ALIGNED, ALLOCATION_FAILED = "not-aligned", "allocation-failed"
_NOT_ALIGNED = RefusalKind(NOT_ALIGNED, "Resources cannot be allocated with Topology locality", TOPOLOGY_AFFINITY)
_POD_LEVEL_NOT_ALIGNED = {
    scope: RefusalKind(NOT_ALIGNED, f"Pod Scope pod with pod-level resources failed {said}", TOPOLOGY_AFFINITY)
    for scope, said in (
        ("container", "admission with a container-level topology manager"),
        ("pod", "admission under pod-scope topology manager"),
    )
}
_NOT_ALLOCATED = RefusalKind(
    ALLOCATION_FAILED, "Allocate failed due to {problem}, which is unexpected", UNEXPECTED_ADMISSION
)
_REQUESTS = series("topology_manager_admission_requests_total")
_ERRORS = series("topology_manager_admission_errors_total")
_ALIGNED, _MISALIGNED = (
    {
        scope: series(f"container_aligned_compute_resources_{kind}", boundary="numa_node", scope=scope)
        for scope in SCOPES
    }
    for kind in ("count", "failure_count")
)
SCORED_MERGES = {agrees: series("podslice_scored_merges_total", agrees=str(agrees).lower()) for agrees in (True, False)}
_MOST_STRUCK = 8
"""Sets of NUMA nodes that plugins may reject in one admission."""
_MOST_TIED = 16
"""Equally good sets of NUMA nodes that plugins score in one admission."""


class HintProvider(Protocol):
    """A resource manager as the Topology Manager sees it; called in the order device, cpu, memory."""

    name: str

    def container_hints(self, pod: AdmissionPod, container: AdmissionContainer) -> ProviderHints: ...
    def pod_hints(self, pod: AdmissionPod) -> ProviderHints: ...
    def allocate(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None: ...
    def allocate_pod(self, pod: AdmissionPod, affinity: Hint) -> None: ...
    def holds(self, pod: AdmissionPod, container: AdmissionContainer) -> bool: ...
    def remove_stale(self) -> None: ...


class RecordedHints:
    """One provider's hints in one admission, kept when hints are recorded."""

    __slots__ = ("container", "hints", "provider")

    def __init__(self, provider: str, container: str | None, hints: ProviderHints) -> None:
        self.provider = provider
        self.container = container
        self.hints = hints


def explain_failed_hints(hints: Sequence[ProviderHints], container: str | None, *, single: bool) -> tuple[str, ...]:
    """Return the resources whose hints no merge can satisfy, each with what is wrong; all of them where each by itself
    could be aligned. Searches nothing: it reads what the merge has already computed on the hints."""
    named = {name: answer for given in hints for name, answer in (given or {}).items() if answer is not None}
    found = []
    for name, answer in named.items():
        if not answer:
            found.append(f"{name}: no set of NUMA nodes has enough free")
        elif single and _nodes_needed(answer) > 1:
            found.append(f"{name}: no NUMA node has enough free alone")
        elif not single and not _has_preferred(answer):
            found.append(f"{name}: free only on more NUMA nodes than it needs")
    # Each resource alone could be aligned; only together they cannot.
    if not found and named:
        found.append(f"{' and '.join(named)}: enough, but not on the same NUMA nodes")
    return tuple(found if container is None else (f"container {container}: {text}" for text in found))


def _part_for(affinity: Hint, provider: str) -> Hint:
    """Return the part of an affinity that concerns one provider."""
    return affinity.of(provider) if isinstance(affinity, SplitHint) else affinity


def strike(hints: list[ProviderHints], provider: str, mask: Bits | None) -> bool:
    """Remove a set of nodes from one provider's hints; return False where it is not there, or that provider gave
    none."""
    for place, answer in enumerate(hints):
        given = None if answer is None else answer.get(provider)
        if given is None:
            continue
        left = [hint for hint in given if hint.mask != mask]
        if len(left) == len(list(given)):
            return False
        hints[place] = {**(answer or {}), provider: left}
        return True
    return False


def _nodes_needed(answer: HintSet | list[Hint]) -> int:
    if isinstance(answer, HintSet):
        return 1 if answer.singles else 2
    return min((hint.mask or 0).bit_count() for hint in answer)


def _has_preferred(answer: HintSet | list[Hint]) -> bool:
    if isinstance(answer, HintSet):
        return answer.alignment is not None or answer.narrowest.nodes <= answer.smallest
    return any(hint.preferred for hint in answer)


class TopologyState(msgspec.Struct, frozen=True):
    """Affinities by pod and container, and the runtime's container ids."""

    affinities: dict[str, dict[str, Hint]] = {}
    containers: ContainerIds = {}

    def store(self, uid: str, container: str, affinity: Hint) -> TopologyState:
        """Store a container's affinity; where each resource has one, that of the CPUs."""
        if isinstance(affinity, SplitHint):
            affinity = Hint(affinity.mask, affinity.preferred)
        return TopologyState(put_in(self.affinities, uid, container, affinity), self.containers)

    def add_container(self, uid: str, container: str, container_id: str) -> TopologyState:
        """Add a runtime id (cpu-topology 9.6)."""
        return TopologyState(self.affinities, put_in(self.containers, uid, container_id, container))

    def remove_container(self, uid: str, container_id: str) -> TopologyState:
        """Remove a runtime id, and with the last id of a container its affinity (cpu-topology 9.6)."""
        name = self.containers.get(uid, {}).get(container_id)
        if name is None:
            return self
        containers = drop_in(self.containers, uid, container_id)
        if name in containers.get(uid, {}).values():
            return TopologyState(self.affinities, containers)
        return TopologyState(drop_in(self.affinities, uid, name), containers)

    def forget(self, uid: str) -> TopologyState:
        """Remove a pod; upstream keeps the affinities of refused pods (cpu-topology 11.13)."""
        return TopologyState(drop(self.affinities, uid), drop(self.containers, uid))


class Proposer(Protocol):
    """A provider whose plugins choose a container's CPUs before any provider allocates; `propose` returns their
    score."""

    name: str

    @property
    def hint_scores(self) -> bool: ...
    def propose(self, pod: AdmissionPod, containers: Sequence[AdmissionContainer | None], affinity: Hint) -> int: ...


class TopologyManager:
    """Admits pods and stores one affinity per container. `merger` None is policy `none`: no hints, no verdict.
    `proposer` None: no plugin chooses beforehand."""

    __slots__ = ("context", "merger", "proposer", "providers", "recorded", "scope", "state")

    def __init__(
        self,
        context: NodeContext,
        providers: Sequence[HintProvider],
        merger: Merger | None,
        scope: str,
        state: TopologyState | None = None,
        proposer: Proposer | None = None,
    ) -> None:
        self.proposer = proposer
        self.context = context
        self.providers = providers
        self.merger = merger
        self.scope = scope
        self.state = state or TopologyState()
        self.recorded: list[RecordedHints] | None = None

    def affinity(self, uid: str, container: str) -> Hint:
        """Return the stored affinity; `NO_AFFINITY` where there is none (cpu-topology 9.6)."""
        return self.state.affinities.get(uid, {}).get(container, NO_AFFINITY)

    def admit(self, pod: AdmissionPod) -> None:
        """Admit a pod and allocate its resources. Raises `AdmissionError` with the reason the kubelet reports."""
        self.context.metrics[_REQUESTS] += 1
        try:
            # A stand-in for a claim of devices holds what the claim already has: there is nothing to align.
            if self.merger is None or pod.holds_claim:
                for container in pod.containers:
                    self._allocate(pod, container, NO_AFFINITY)
            elif self.scope == "pod":
                self._admit_pod(pod, self.merger)
            else:
                for container in pod.containers:
                    self._admit_container(pod, container, self.merger)
        except AdmissionError as error:
            if self.merger is not None:
                self.context.metrics[_ERRORS] += 1
            kind, facts = error.refusal
            # An error of a provider that upstream gives no reason gets the generic one, with the provider's text
            # inside.
            if kind.reason:
                raise
            raise AdmissionError(_NOT_ALLOCATED, **{**facts, "cause": kind.code, "problem": error.message}) from error

    def _admit_container(self, pod: AdmissionPod, container: AdmissionContainer, merger: Merger) -> None:
        """Admit one container: hints, merge, verdict, allocation. Raises `AdmissionError`."""
        hints = [provider.container_hints(pod, container) for provider in self.providers]
        if self.proposer is None:
            affinity = self._merge(merger, pod, container.name, hints)
        else:
            affinity = self._settle_with_plugins(merger, pod, (container,), hints)
        self.state = self.state.store(pod.uid, container.name, affinity)
        self._allocate(pod, container, affinity)
        if merger.single_numa_node:
            self.context.metrics[_ALIGNED["container"]] += 1

    def _admit_pod(self, pod: AdmissionPod, merger: Merger) -> None:
        """Admit a pod with one affinity for all its containers. Raises `AdmissionError`."""
        hints = [provider.pod_hints(pod) for provider in self.providers]
        if self.proposer is None:
            affinity = self._merge(merger, pod, None, hints)
        else:
            affinity = self._settle_with_plugins(merger, pod, (None,) if pod.managed else pod.containers, hints)
        # Every container has the pod's affinity, and the resources are given once, for the whole pod.
        if pod.managed:
            for container in pod.containers:
                self.state = self.state.store(pod.uid, container.name, affinity)
            for provider in self.providers:
                provider.allocate_pod(pod, _part_for(affinity, provider.name))
        else:
            for container in pod.containers:
                self.state = self.state.store(pod.uid, container.name, affinity)
                self._allocate(pod, container, affinity)
        if merger.single_numa_node:
            self.context.metrics[_ALIGNED["pod"]] += 1

    def _merge(self, merger: Merger, pod: AdmissionPod, container: str | None, hints: list[ProviderHints]) -> Hint:
        """Merge hints and give the verdict; return the affinity. Raises `AdmissionError` where it is negative."""
        endless = self.context.quirks.searches_take_any_time
        if endless and may_be_endless(merger.policy, self.context.listed, hints):
            names = (provider.name for provider in self.providers)
            refuse_endless(self.context.listed, zip(names, hints, strict=True))
        if self.recorded is not None:
            for provider, answer in zip(self.providers, hints, strict=True):
                self.recorded.append(RecordedHints(provider.name, container, answer))
        merged = merger.merge(hints, self.context.search_budget)
        if merged.agrees is not None:
            self.context.metrics[SCORED_MERGES[merged.agrees]] += 1
        if not merged.proven:
            self.context.end_early("the best NUMA nodes for the pod's resources together")
        # A running pod keeps its resources whatever its hints merge to; upstream may refuse it (cpu-topology 11.20).
        if not merged.admitted and not self._runs_already(pod, container):
            if merger.single_numa_node and self.context.release.counts_misalignment:
                self.context.metrics[_MISALIGNED[self.scope]] += 1
            self.context.unaligned = explain_failed_hints(hints, container, single=merger.single_numa_node)
            raise AdmissionError(_POD_LEVEL_NOT_ALIGNED[self.scope] if pod.managed else _NOT_ALIGNED)
        if not merged.parts:
            return merged.hint
        self.context.parts = {**self.context.parts, (pod.uid, container or ""): merged.parts}
        return SplitHint(merged.hint.mask, merged.hint.preferred, merged.parts)

    def _settle_with_plugins(
        self,
        merger: Merger,
        pod: AdmissionPod,
        containers: Sequence[AdmissionContainer | None],
        hints: list[ProviderHints],
    ) -> Hint:
        """Return an affinity under which the plugins can choose CPUs for every container. A set of nodes for which they
        cannot is removed from the CPU hints, and everything is merged again. Raises `AdmissionError`."""
        assert self.proposer is not None
        named = containers[0].name if self.scope == "container" and containers[0] is not None else None
        first: AdmissionError | None = None
        for _ in range(_MOST_STRUCK):
            try:
                affinity = self._merge(merger, pod, named, hints)
            except AdmissionError as error:
                raise first or error from None
            try:
                if self.proposer.hint_scores and not isinstance(affinity, SplitHint):
                    affinity = self._pick_by_score(merger, pod, containers, hints, affinity)
                self.proposer.propose(pod, containers, affinity)
                return affinity
            except AdmissionError as error:
                # The first refusal is about the NUMA nodes that upstream would take, so it is the one to report.
                first = first or error
                if not strike(hints, self.proposer.name, affinity.mask):
                    raise
        raise first or AdmissionError(_NOT_ALIGNED)

    def _pick_by_score(
        self,
        merger: Merger,
        pod: AdmissionPod,
        containers: Sequence[AdmissionContainer | None],
        hints: list[ProviderHints],
        winner: Hint,
    ) -> Hint:
        """Return, of the sets of nodes that differ from the winner only in their numbers, the one with the best
        score."""
        assert self.proposer is not None
        tied = merger.list_tied(hints, winner)
        if len(tied) > _MOST_TIED:
            self.context.end_early("the NUMA nodes that the plugins like best")
        best, best_score = winner, -1
        # Strictly better only: among equal scores the first mask stays.
        for mask in tied[:_MOST_TIED]:
            hint = Hint(mask, winner.preferred)
            try:
                score = self.proposer.propose(pod, containers, hint)
            except AdmissionError:
                continue
            if score > best_score:
                best, best_score = hint, score
        return best

    def _runs_already(self, pod: AdmissionPod, container: str | None) -> bool:
        """Whether this is readmitted after a restart, or for a resize, and holds everything it requests."""
        again = self.context.resizing or not self.context.sources_ready
        if not again or self.context.quirks.running_pods_can_be_refused:
            return False
        asked = [c for c in pod.containers if container is None or c.name == container]
        return all(provider.holds(pod, one) for provider in self.providers for one in asked)

    def _allocate(self, pod: AdmissionPod, container: AdmissionContainer, affinity: Hint) -> None:
        """Let every provider allocate for one container, in order. Raises `AdmissionError`."""
        if isinstance(affinity, SplitHint):
            for provider in self.providers:
                provider.allocate(pod, container, affinity.of(provider.name))
            return
        for provider in self.providers:
            provider.allocate(pod, container, affinity)

    def add_container(self, uid: str, container: str, container_id: str) -> None:
        """Add a runtime id (cpu-topology 9.6)."""
        self.state = self.state.add_container(uid, container, container_id)

    def remove_container(self, uid: str, container_id: str) -> None:
        """Remove a runtime id, and with the last id of a container its affinity (cpu-topology 9.6)."""
        self.state = self.state.remove_container(uid, container_id)
