"""What the CPU Manager asks its plugins, in their words: who asks, and the node as it is (docs/plugins.md)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.machine.cores import whole_cores_in
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


class PluginTalk:
    """One node's plugins and who tells them what."""

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
        of_bubble: bool = False,
    ) -> CPUAsk:
        """What a container, or the pod as a whole, asks for."""
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
            of_bubble,
            () if wish is None else (*wish.classes, *wish.overflow),
            wish is not None and wish.required,
            0 if container is None else container.remainder or 0,
        )

    def node(self, state: CPUState) -> CPUNode:
        """The node as its plugins see it."""
        owners = (state, self.context.active) if self.profile.sees_owners else (None, None)
        return CPUNode(
            self.profile.machine,
            free=assignable(state.default, self.rules.reserved),
            default=state.default,
            reserved=self.rules.reserved,
            state=owners[0],
            pods=owners[1],
            named=self.profile.sees_pods,
        )

    def allowed(self, ask: CPUAsk, cpus: Bits, state: CPUState) -> Bits:
        """Which of the CPUs the filters leave. Raises `AdmissionError`."""
        profile = self.profile
        left = profile.allowed(ask, cpus, self.node(state), self.broken, self.remedied) if profile.filters else cpus
        if ask.whole_cores and not self.rules.options.full_pcpus_only:
            held = left | ask.anchor
            left &= union(whole_cores_in(self.rules.topology, held))
        return left

    def propose(self, ask: CPUAsk, pool: Bits, mask: Bits | None, state: CPUState) -> Proposal:
        """The CPUs that a container would get from a pool that was filtered. Raises `AdmissionError`."""
        return self.profile.propose(
            ask,
            pool,
            mask,
            self.node(state),
            self.rules.picker,
            search_budget=self.context.search_budget,
            on_broken=self.broken,
        )

    def score(self, ask: CPUAsk, cpus: Bits, state: CPUState) -> int:
        """What the plugins think of a set."""
        return self.profile.score(ask, cpus, self.node(state), self.broken)

    def effects(self, ask: CPUAsk, cpus: Bits, state: CPUState, memos: Mapping[str, str]) -> Effects:
        """What else follows for a container that has got CPUs. Raises `AdmissionError`."""
        profile = self.profile
        return profile.effects(ask, cpus, self.node(state), self.broken, memos) if profile.allocates else ()

    def sort_key(self, pod: AdmissionPod) -> tuple[tuple[int, ...], ...]:
        """Where a pod stands among those that wait together."""
        return self.profile.sort_key(AskingPod.of(pod, named=self.profile.sees_pods), self.broken)

    def broken(self, plugin: str, point: str, problem: str) -> None:
        """A plugin broke its contract."""
        self.context.metrics[series("podslice_plugin_errors_total", plugin=plugin, point=point)] += 1
        self.context.tell(PluginNote(f'plugin "{plugin}" {point}: {problem}'))

    def remedied(self, plugin: str, remedy: Remedy) -> None:
        """A plugin says what would help where filters leave too little."""
        text = remedy.text if isinstance(remedy, Wait) else self._moves_text(remedy)
        self.context.tell(PluginNote(f'plugin "{plugin}": {text}', remedy))

    def _moves_text(self, remedy: Remedy) -> str:
        moves = []
        for move in remedy.moves if isinstance(remedy, Moves) else ():
            pod = self.context.active[move.uid].spec.metadata
            whose = f"{pod.namespace or 'default'}/{pod.name}"
            moves.append(f"{move.container} of {whose} moves to {format_bits(move.cpus)}")
        return f"it would do once {', and '.join(moves)}"


class Grant(NamedTuple):
    """What a container asked for when it got CPUs, and what plugins say follows."""

    ask: CPUAsk
    effects: Effects


class Manager(Protocol):
    """The CPU Manager, as far as its plugins matter."""

    rules: CPURules
    context: NodeContext
    state: CPUState

    @property
    def talk(self) -> PluginTalk | None: ...


def proposals(
    manager: Manager, pod: AdmissionPod, containers: Sequence[AdmissionContainer | None], affinity: Hint
) -> tuple[dict[str, Pick], int]:
    """What containers, or the pod as a whole (None), would get one after the other, by name, and how that scores.
    Raises `AdmissionError`; nothing changes."""
    talk, state = manager.talk, manager.state
    assert talk is not None
    found, total = dict[str, Pick](), 0
    for container in containers:
        name = "" if container is None else container.name
        count = pod.cpus if container is None else container.exclusive_cpus
        if not count or (container is not None and state.assignment(pod.uid, name) is not None):
            continue
        if container is None and pod.uid in state.bubbles:
            continue
        proposal = _proposal(talk, pod, container, count, affinity, state)
        found[name] = proposal.pick
        total += proposal.score
        if len(containers) > 1 and container is not None:
            state = _as_given(state, pod, container, proposal.pick.cpus)
    return found, total


def _proposal(
    talk: PluginTalk,
    pod: AdmissionPod,
    container: AdmissionContainer | None,
    count: int,
    affinity: Hint,
    state: CPUState,
) -> Proposal:
    free = assignable(state.default, talk.rules.reserved)
    pool = free | (state.reusable.get(pod.uid, 0) if container is not None else 0)
    ask = talk.ask(pod, container, count)
    left = talk.allowed(ask, pool, state)
    if left.bit_count() < count <= pool.bit_count():
        raise _kept_back(talk.rules.classes, ask, left, pool)
    proposal = talk.propose(ask, left, affinity.mask, state)
    if container is not None and container.hides_smt and not is_whole(talk.rules.topology, proposal.pick.cpus):
        near = left & talk.rules.topology.cpus_in_numa_nodes(affinity.mask) if affinity.mask else left
        proposal = Proposal(Pick(_whole_cores(talk.rules.topology, near, left & ~near, count), True))
    return proposal


def is_whole(topology: CPUTopology, cpus: Bits) -> bool:
    """These CPUs are whole cores."""
    return whole_objects(topology.cores, cpus) == cpus


def _whole_cores(topology: CPUTopology, near: Bits, away: Bits, count: int) -> Bits:
    """So many CPUs in whole cores, near ones first, and the larger cores first. Raises `AdmissionError`."""
    chosen = 0
    for place in (near, away):
        for core in sorted(whole_cores_in(topology, place), key=lambda one: (-one.bit_count(), one & -one)):
            if chosen.bit_count() + core.bit_count() <= count:
                chosen |= core
    if chosen.bit_count() < count:
        raise no_whole_cores(topology, count)
    return chosen


def _kept_back(classes: CPUClasses | None, ask: CPUAsk, left: Bits, pool: Bits) -> AdmissionError:
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
        others=f"; {', '.join(others)} {verb} not in the wish" if others else "",
    )


def _as_given(state: CPUState, pod: AdmissionPod, container: AdmissionContainer, cpus: Bits) -> CPUState:
    state = state.give(pod.uid, container.name, cpus)
    reusable = state.reusable.get(pod.uid, 0)
    left = reusable | cpus if container.plain_init else reusable & ~cpus
    return state.leave_reusable({pod.uid: left} if left else {})


def slicing(manager: Manager, pod: AdmissionPod) -> Callable[[Bits, int], Bits]:
    """Takes the slices of a pod's CPUs, one after the other in the order of its containers."""
    talk, asking = manager.talk, iter([one for one in pod.containers if one.exclusive_cpus])
    assert talk is not None

    def take(available: Bits, count: int) -> Bits:
        ask = talk.ask(pod, next(asking), count, of_bubble=True)
        pick = talk.propose(ask, available, None, manager.state).pick
        if not pick.proven:
            manager.context.end_early("the NUMA nodes to distribute CPUs over")
        return pick.cpus

    return take


def grant(manager: Manager, pod: AdmissionPod, container: AdmissionContainer, cpus: Bits) -> None:
    """A container has got CPUs, or has them since before a restart: plugins say what follows. Raises
    `AdmissionError`."""
    talk, state = manager.talk, manager.state
    if talk is None or not (talk.profile.allocates or talk.profile.deallocates):
        return
    operation: Operation = "admit" if manager.context.sources_ready else "restart"
    if manager.context.resizing:
        operation = "resize"
    ask = talk.ask(
        pod, container, container.exclusive_cpus, operation=operation, baseline=state.promised(pod.uid, container.name)
    )
    granted = Grant(ask, talk.effects(ask, cpus, state, state.memos.get(pod.uid, {}).get(container.name, {})))
    memos = {plugin: effects.memo for plugin, effects in granted.effects if effects.memo}
    state = replace(state, grants=put_in(state.grants, pod.uid, container.name, granted))
    if memos or container.name in state.memos.get(pod.uid, {}):
        left = put_in(state.memos, pod.uid, container.name, memos)
        state = replace(state, memos=left if memos else drop_in(state.memos, pod.uid, container.name))
    manager.state = state


def taken_back(manager: Manager, uid: str, before: CPUState) -> None:
    """Containers of a pod have fewer CPUs than before."""
    for name, granted in manager.state.grants.get(uid, {}).items():
        gone = (before.assignment(uid, name) or 0) & ~(manager.state.assignment(uid, name) or 0)
        _released(manager, uid, name, granted, gone)


def all_taken_back(manager: Manager, uid: str) -> None:
    """A pod gives back all it has."""
    for name, granted in manager.state.grants.get(uid, {}).items():
        _released(manager, uid, name, granted, manager.state.assignment(uid, name) or 0)


def count_fallback(manager: Manager, classes: CPUClasses, pod: AdmissionPod, name: str) -> None:
    """A container starts: that it shares CPUs of none of its classes is counted."""
    container = next((one for one in pod.containers if one.name == name), None)
    if container is not None and manager.state.assignment(pod.uid, name) is None:
        lacking = fallback_of(classes, pod, container, manager.state.default)
        if lacking:
            manager.context.metrics[series("podslice_class_fallbacks_total", **{"class": lacking})] += 1


def _released(manager: Manager, uid: str, container: str, granted: Grant, cpus: Bits) -> None:
    talk, ask = manager.talk, granted.ask
    if talk is None or not cpus or not talk.profile.deallocates:
        return
    try:
        memos = {plugin: effects.memo for plugin, effects in granted.effects}
        told = talk.profile.effects_after(ask, cpus, talk.node(manager.state), talk.broken, memos)
    except AdmissionError:
        return  # it was told as broken; what is given back stays given back
    manager.context.released += tuple(ReleasedCPUs(uid, container, cpus, plugin, effects) for plugin, effects in told)
