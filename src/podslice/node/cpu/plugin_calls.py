"""Calls of the CPU Manager to its plugins: their requests, and the node as plugins see it (docs/plugins.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.machine.cores import free_cores
from podslice.machine.model import CPUTopology, whole_objects
from podslice.node.context import NodeContext, PluginNote, ReleasedCPUs
from podslice.node.cpu.picking.distribute import Pick
from podslice.node.cpu.picking.picker import no_whole_cores
from podslice.node.cpu.state import CPUState, MadeUnder, assignable
from podslice.node.plugins.api import AskingPod, CPUAsk, CPUEffects, CPUNode, Moves, Operation, Remedy, Wait, kind_of
from podslice.node.plugins.classes import CPUClasses, Wish, fallback_of
from podslice.node.plugins.profile import PluginProfile, Proposal
from podslice.node.rules import CPURules
from podslice.node.topology.hint import Hint
from podslice.values.cpuset import Bits, format_bits, union
from podslice.values.errors import AdmissionError, RefusalKind
from podslice.values.reasons import CPU_CLASS_UNAVAILABLE
from podslice.values.series import series
from podslice.values.tables import drop_in, put_in

FILTERED = RefusalKind(
    "cpus-filtered",
    "not enough cpus available to satisfy request: requested={requested}, available={available}, plugins keep it from "
    "{free} free ones",
)
CLASS_FULL = RefusalKind(
    "cpu-class-full",
    "not enough exclusive CPUs of {word} {classes}: requested {requested}, free {free} (of {all}){others}",
    CPU_CLASS_UNAVAILABLE,
)
Effects = tuple[tuple[str, CPUEffects], ...]


class PluginCalls:
    """One node's plugins with everything their calls need."""

    __slots__ = ("context", "made_under", "profile", "rules")

    def __init__(self, profile: PluginProfile, rules: CPURules, context: NodeContext, made_under: MadeUnder) -> None:
        self.profile = profile
        self.rules = rules
        self.context = context
        self.made_under = made_under

    def ask(
        self,
        pod: AdmissionPod,
        container: AdmissionContainer | None,
        count: int,
        *,
        anchor: Bits = 0,
        baseline: Bits = 0,
        operation: Operation = "admit",
        of_pod_cpus: bool = False,
    ) -> CPUAsk:
        """Return the request of a container, or of the pod as a whole (None), as plugins get it."""
        classes = self.rules.classes
        wish = None if classes is None else classes.to_own(pod, container, self.made_under, anchor)
        return CPUAsk(
            AskingPod.of(pod, named=self.profile.sees_pods),
            container.name if container is not None and self.profile.sees_pods else "",
            "bubble" if container is None else kind_of(container),
            operation,
            count,
            anchor,
            baseline,
            self.rules.options.full_pcpus_only or (container is not None and container.hides_smt),
            of_pod_cpus,
            () if wish is None else (*wish.classes, *wish.overflow),
            wish is not None and wish.required,
            0 if container is None else container.remainder or 0,
        )

    def node(self, state: CPUState) -> CPUNode:
        """Return the node as plugins see it. Owners and pods are left out where no plugin reads them: only then can
        answers be shared between nodes."""
        # Nodes that differ only in names or owners must look the same to plugins that read neither.
        owners = (state, self.context.active) if self.profile.sees_owners else (None, None)
        return CPUNode(
            self.profile.machine,
            free=assignable(state.default, self.rules.withheld),
            default=state.default,
            reserved=self.rules.reserved,
            state=owners[0],
            pods=owners[1],
            named=self.profile.sees_pods,
        )

    def filter(self, ask: CPUAsk, cpus: Bits, state: CPUState) -> Bits:
        """Return those of `cpus` that the filters leave. Raises `AdmissionError`."""
        profile = self.profile
        left = (
            profile.filter(ask, cpus, self.node(state), self.note_broken, self.note_remedy) if profile.filters else cpus
        )
        # A container that hides SMT needs whole cores without the node's option, and filters may split them.
        if ask.whole_cores and not self.rules.options.full_pcpus_only:
            held = left | ask.anchor
            left &= union(free_cores(self.rules.topology, held))
        return left

    def propose(self, ask: CPUAsk, pool: Bits, mask: Bits | None, state: CPUState, reusable: Bits = 0) -> Proposal:
        """Return the CPUs that a container would get from a filtered pool; without plugins that choose, those that are
        `reusable` first. Raises `AdmissionError`."""
        return self.profile.propose(
            ask,
            pool,
            mask,
            self.node(state),
            self.rules.picker,
            search_budget=self.context.search_budget,
            on_broken=self.note_broken,
            reusable=reusable,
        )

    def score(self, ask: CPUAsk, cpus: Bits, state: CPUState) -> int:
        """Return the plugins' score of a set of CPUs."""
        return self.profile.score(ask, cpus, self.node(state), self.note_broken)

    def effects(self, ask: CPUAsk, cpus: Bits, state: CPUState, memos: Mapping[str, str]) -> Effects:
        """Return the plugins' effects on a container that got these CPUs. Raises `AdmissionError`."""
        profile = self.profile
        return profile.effects(ask, cpus, self.node(state), self.note_broken, memos) if profile.allocates else ()

    def sort_key(self, pod: AdmissionPod) -> tuple[tuple[int, ...], ...]:
        """Return the key that orders pods which wait together."""
        return self.profile.sort_key(AskingPod.of(pod, named=self.profile.sees_pods), self.note_broken)

    def note_broken(self, plugin: str, point: str, problem: str) -> None:
        """Count and note that a plugin broke its contract at this extension point."""
        self.context.metrics[series("podslice_plugin_errors_total", plugin=plugin, point=point)] += 1
        self.context.add_note(PluginNote(f'plugin "{plugin}" {point}: {problem}'))

    def note_remedy(self, plugin: str, remedy: Remedy) -> None:
        """Note the remedy that a plugin offers where filters leave too few CPUs."""
        text = remedy.text if isinstance(remedy, Wait) else self._moves_text(remedy)
        self.context.add_note(PluginNote(f'plugin "{plugin}": {text}', remedy))

    def _moves_text(self, remedy: Remedy) -> str:
        moves = []
        for move in remedy.moves if isinstance(remedy, Moves) else ():
            pod = self.context.active[move.uid].spec.metadata
            whose = pod.full_name
            moves.append(f"{move.container} of {whose} moves to {format_bits(move.cpus)}")
        return f"it would do once {', and '.join(moves)}"


class Grant(NamedTuple):
    """The request with which a container got CPUs, and the plugins' effects on it."""

    ask: CPUAsk
    effects: Effects


class Manager(Protocol):
    """The part of the CPU Manager that plugin calls need."""

    rules: CPURules
    context: NodeContext
    state: CPUState

    @property
    def calls(self) -> PluginCalls | None: ...


def propose_all(
    manager: Manager, pod: AdmissionPod, containers: Sequence[AdmissionContainer | None], affinity: Hint
) -> tuple[dict[str, Pick], int]:
    """Return by container name the picks that containers, or the pod as a whole (None), would get one after the other,
    and their total score. Raises `AdmissionError`; nothing changes."""
    calls, state = manager.calls, manager.state
    assert calls is not None
    found, total = dict[str, Pick](), 0
    for container in containers:
        name = "" if container is None else container.name
        count = pod.cpus if container is None else container.exclusive_cpus
        if not count or (container is not None and state.assignment(pod.uid, name) is not None):
            continue
        if container is None and pod.uid in state.pod_cpus:
            continue
        proposal = _proposal(calls, pod, container, count, affinity, state)
        found[name] = proposal.pick
        total += proposal.score
        # Later containers of the pod are picked from what the earlier ones leave.
        if len(containers) > 1 and container is not None:
            state = _give(state, pod, container, proposal.pick.cpus)
    return found, total


def _proposal(
    calls: PluginCalls,
    pod: AdmissionPod,
    container: AdmissionContainer | None,
    count: int,
    affinity: Hint,
    state: CPUState,
) -> Proposal:
    """Return the proposal for one container or for the pod as a whole (None). Raises `AdmissionError`."""
    free = assignable(state.default, calls.rules.withheld)
    reusable = state.reusable.get(pod.uid, 0) if container is not None else 0
    pool = free | reusable
    ask = calls.ask(pod, container, count)
    left = calls.filter(ask, pool, state)
    # The pool would suffice, so the filters are the reason; otherwise the pick refuses with upstream's text.
    if left.bit_count() < count <= pool.bit_count():
        raise _filtered_error(calls.rules.classes, ask, left, pool)
    proposal = calls.propose(ask, left, affinity.mask, state, reusable)
    if container is not None and container.hides_smt and not is_whole(calls.rules.topology, proposal.pick.cpus):
        near = left & calls.rules.topology.cpus_in_numa_nodes(affinity.mask) if affinity.mask else left
        proposal = Proposal(Pick(_whole_cores(calls.rules.topology, near, left & ~near, count), True))
    return proposal


def is_whole(topology: CPUTopology, cpus: Bits) -> bool:
    """Whether these CPUs are whole cores."""
    return whole_objects(topology.cores, cpus) == cpus


def _whole_cores(topology: CPUTopology, near: Bits, away: Bits, count: int) -> Bits:
    """Return `count` CPUs in whole cores, near cores and larger cores first. Raises `AdmissionError`."""
    chosen = 0
    for place in (near, away):
        for core in sorted(free_cores(topology, place), key=lambda one: (-one.bit_count(), one & -one)):
            if chosen.bit_count() + core.bit_count() <= count:
                chosen |= core
    if chosen.bit_count() < count:
        raise no_whole_cores(topology, count)
    return chosen


def _filtered_error(classes: CPUClasses | None, ask: CPUAsk, left: Bits, pool: Bits) -> AdmissionError:
    """Return the refusal where filters leave too few CPUs: of the classes where these are the reason, else of any
    filter."""
    if classes is None or (pool & classes.own(Wish(ask.classes))).bit_count() >= ask.count:
        return AdmissionError(FILTERED, requested=ask.count, available=left.bit_count(), free=pool.bit_count())
    wish = Wish(ask.classes)
    others = [name for name, cpus in classes.cpus.items() if name not in ask.classes and cpus & pool]
    verb = "is" if len(others) == 1 else "are"
    return AdmissionError(
        CLASS_FULL,
        word="class" if len(ask.classes) == 1 else "classes",
        classes=", ".join(ask.classes),
        requested=ask.count,
        free=left.bit_count(),
        all=classes.all_of(wish).bit_count(),
        others=f"; {', '.join(others)} {verb} not requested" if others else "",
    )


def _give(state: CPUState, pod: AdmissionPod, container: AdmissionContainer, cpus: Bits) -> CPUState:
    """Return the state in which the container has these CPUs and its pod's reusable ones are updated."""
    state = state.give(pod.uid, container.name, cpus)
    reusable = state.reusable.get(pod.uid, 0)
    left = reusable | cpus if container.plain_init else reusable & ~cpus
    return state.with_reusable({pod.uid: left} if left else {})


def slice_picker(manager: Manager, pod: AdmissionPod) -> Callable[[Bits, int], Bits]:
    """Return a function that picks the slices of a pod's CPUs, called once for each container with exclusive CPUs in
    order."""
    calls, asking = manager.calls, iter([one for one in pod.containers if one.exclusive_cpus])
    assert calls is not None

    def take(available: Bits, count: int) -> Bits:
        ask = calls.ask(pod, next(asking), count, of_pod_cpus=True)
        pick = calls.propose(ask, available, None, manager.state).pick
        if not pick.proven:
            manager.context.end_early("the NUMA nodes to distribute CPUs over")
        return pick.cpus

    return take


def grant(manager: Manager, pod: AdmissionPod, container: AdmissionContainer, cpus: Bits) -> None:
    """Ask plugins for their effects on a container that got CPUs, or has had them since before a restart. Raises
    `AdmissionError`."""
    calls, state = manager.calls, manager.state
    if calls is None or not (calls.profile.allocates or calls.profile.deallocates):
        return
    operation: Operation = "admit" if manager.context.sources_ready else "restart"
    if manager.context.resizing:
        operation = "resize"
    ask = calls.ask(
        pod, container, container.exclusive_cpus, operation=operation, baseline=state.promised(pod.uid, container.name)
    )
    granted = Grant(ask, calls.effects(ask, cpus, state, state.memos.get(pod.uid, {}).get(container.name, {})))
    memos = {plugin: effects.memo for plugin, effects in granted.effects if effects.memo}
    state = replace(state, grants=put_in(state.grants, pod.uid, container.name, granted))
    # An empty note replaces an old one too.
    if memos or container.name in state.memos.get(pod.uid, {}):
        left = put_in(state.memos, pod.uid, container.name, memos)
        state = replace(state, memos=left if memos else drop_in(state.memos, pod.uid, container.name))
    manager.state = state


def release_lost(manager: Manager, uid: str, before: CPUState) -> None:
    """Inform plugins of the CPUs that containers of a pod lost in a resize."""
    for name, granted in manager.state.grants.get(uid, {}).items():
        gone = (before.assignment(uid, name) or 0) & ~(manager.state.assignment(uid, name) or 0)
        _release(manager, uid, name, granted, gone)


def release_pod(manager: Manager, uid: str) -> None:
    """Inform plugins that a pod releases all its CPUs."""
    for name, granted in manager.state.grants.get(uid, {}).items():
        _release(manager, uid, name, granted, manager.state.assignment(uid, name) or 0)


def count_fallback(manager: Manager, classes: CPUClasses, pod: AdmissionPod, name: str) -> None:
    """Count a starting container that shares CPUs of none of its classes."""
    container = next((one for one in pod.containers if one.name == name), None)
    if container is not None and manager.state.assignment(pod.uid, name) is None:
        lacking = fallback_of(classes, pod, container, manager.state.default)
        if lacking:
            manager.context.metrics[series("podslice_class_fallbacks_total", **{"class": lacking})] += 1


def _release(manager: Manager, uid: str, container: str, granted: Grant, cpus: Bits) -> None:
    """Inform the plugins that a container, or the pod as a whole, releases CPUs, and keep the effects they ask for."""
    calls, ask = manager.calls, granted.ask
    if calls is None or not cpus or not calls.profile.deallocates:
        return
    try:
        memos = {plugin: effects.memo for plugin, effects in granted.effects}
        found = calls.profile.effects_after(ask, cpus, calls.node(manager.state), calls.note_broken, memos)
    except AdmissionError:
        # The plugin's fault is noted already, and a release must not fail: the CPUs are free.
        return
    manager.context.released += tuple(ReleasedCPUs(uid, container, cpus, plugin, effects) for plugin, effects in found)
