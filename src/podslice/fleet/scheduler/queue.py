"""The queue of a cell: one pod at a time is tried, bound or refused, waits or loops, ends.

The scheduler binds and the kubelet decides at the same moment. A pod that fits on no node waits until a pod leaves a
node it might fit on; a refused one is replaced by its owner (`refusals`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

import numpy as np

from podslice.fleet.engine.alignment import Alignment
from podslice.fleet.engine.budgets import BudgetIndex
from podslice.fleet.engine.clock import Clock, EventKind
from podslice.fleet.engine.live import EvictingAnswer, LiveNodes
from podslice.fleet.engine.nodes import Fleet, NodeEvent
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.pods import FAILED, LOOPING, PENDING, PREEMPTED, RAN, PodTable
from podslice.fleet.engine.refusals import Loops, replacement_delay
from podslice.fleet.engine.streams import IndexedStream, shuffle, stream
from podslice.fleet.engine.workload import NEVER, Workload
from podslice.fleet.scheduler.fragmentation import GPUFragmentation, popular_shapes
from podslice.fleet.scheduler.loads import Ints
from podslice.fleet.scheduler.nrt import NRTView
from podslice.fleet.scheduler.policies import make_policy
from podslice.fleet.scheduler.preemption import NodeQueries, RunningPod, VictimFinder
from podslice.fleet.scheduler.scheduler import FleetScheduler
from podslice.fleet.scheduler.watch import LoopWatch
from podslice.node.answers import NodeAnswer
from podslice.values.reasons import is_out_of


class PodQueue:
    """The pods of a cell and what happens to them."""

    def __init__(self, fleet: Fleet, workload: Workload, options: CellOptions, seed: int, clock: Clock) -> None:
        self.fleet, self.workload, self.options, self.clock = fleet, workload, options, clock
        self.live = LiveNodes(fleet, workload.shapes, memory=options.memory, verify=options.verify)
        self.pods = PodTable(workload)
        counts = np.bincount(np.array(workload.shape, dtype=np.int64), minlength=len(workload.shapes)).tolist()
        self.popular = popular_shapes(workload.shapes, options.usual or counts, options.popular)
        models = sorted({one.gpu_model for one in fleet.classes})
        self.fragmentation = GPUFragmentation(workload.shapes, self.popular, models)
        of_class = np.array([models.index(one.gpu_model) for one in fleet.classes], dtype=np.int64)
        self.models: Ints = of_class[self.live.columns.kind]
        draws = IndexedStream(seed, "ties")
        self.policy = make_policy(
            options, self.live.columns.loads, fragmentation=self.fragmentation, models=of_class, draws=draws
        )
        self.scheduler = self._scheduler(seed, draws)
        self.loops = Loops(options.delay_ms)
        self.waiting: dict[int, list[int]] = {}
        self.loop_ms = self.first_refused = 0
        # Complete states differ between nodes that look alike, so what was found for one cannot be remembered for
        # others.
        plain = all(one.start.named is None for one in self.live.classes)
        self._rooms = VictimFinder(self.live.columns, remembers=plain)
        self._budgets = BudgetIndex(options.budgets, workload.shapes)
        self.arrived = self.attempts = self.refused_attempts = self.waiting_pods = 0
        self.alignment = Alignment(fleet)
        self._on_node: list[dict[int, None]] = [{} for _ in fleet.nodes]
        self.watch = LoopWatch(self.scheduler, self._admits)
        self._due: dict[int, int] = {}
        self._ever_looped: dict[int, None] = {}
        self._constrained = self.live.columns.domains.constrained
        self._served = NEVER
        self.preempted = self.lost_in_restarts = 0
        live = self.live
        self.nrt = (
            NRTView(fleet.classes, live.kinds, live.states, workload.shapes, options.nrt_delay_ms)
            if options.filter == "kube-nrt"
            else None
        )

    def _scheduler(self, seed: int, draws: IndexedStream) -> FleetScheduler:
        """Return the scheduler with the options' tie rule; the order of nodes for `permuted` is drawn once for each
        seed."""
        options, columns = self.options, self.live.columns
        ties = {"first-fit": "first", "random": "random"}.get(options.policy, options.ties)
        if options.policy == "first-fit" and options.ties == "permuted":
            ties = "permuted"
        order = list(range(columns.count))
        shuffle(stream(seed, "nodes"), order)
        ranks = np.empty(columns.count, dtype=np.int64)
        ranks[order] = np.arange(columns.count)
        return FleetScheduler(
            columns,
            self.policy,
            ties=ties,  # type: ignore[arg-type]
            percentage=options.percentage,
            draws=draws,
            order=ranks,
        )

    def bind_initial_pods(self) -> None:
        """Bind the pods that are on nodes from the beginning."""
        for pod, uid in self.workload.initial.items():
            node, shape = self.workload.node[pod], self.workload.shape[pod]
            self.pods.node[pod] = node
            self._bind(pod, shape, node, self.live.initial_answer(node, uid))

    @property
    def loop_count(self) -> int:
        """Number of pods that have ever looped."""
        return len(self._ever_looped)

    # Events

    def arrive(self, pod: int) -> None:
        """Try a pod that arrives, unless it is on its node from the beginning."""
        self.arrived += 1
        self.pods.first_try[pod] = self.clock.now.at
        if pod not in self.workload.initial:
            self._try(pod)

    def retry(self, pod: int) -> None:
        """Try the replacement of a pod, or check looping pods of its shape again.

        Replacements that were scheduled before their pod began to loop, or was bound, are void.
        """
        if pod not in self.loops:
            if self._due.get(pod) == self.clock.now.at:
                del self._due[pod]
                self._try(pod)
            return
        shape = self.workload.shape[pod]
        if self._is_certainly_refused(shape):
            self.loops.set_idle(shape)
            return
        # The attempt of this moment is made below, not counted.
        self._leave_loop(pod, self.clock.now.at - 1)
        self._try(pod)
        if self.loops.is_scheduled(shape):
            self._schedule_check(*self.loops.next_attempt(shape, self.clock.reached))

    def end(self, pod: int) -> None:
        """End a pod, if it still runs since its end was scheduled."""
        # A pod that was evicted and bound again has a later end; its old event stays in the heap.
        if self.pods.is_running(pod) and self.pods.end_due[pod] == self.clock.now.at:
            self.pods.ended[pod] = self.clock.now.at
            self._release(pod)

    def apply_node_event(self, event: NodeEvent) -> None:
        """Apply a change of nodes."""
        for node in event.nodes:
            if event.what in ("add", "fail"):
                self.live.columns.domains.set_present(node, present=event.what == "add")
            if event.what == "add":
                self.live.columns.set_closed(node, closed=False)
                self._node_changed(node, room=True)
            elif event.what in ("drain", "fail"):
                self.live.columns.set_closed(node, closed=True)
                self._evict(list(self._on_node[node]), FAILED)
            elif event.kind != NEVER:
                self._restart(node, event.kind)
        # Nodes that come, go or restart may change the answer for any shape, whatever it is watched for.
        self._requeue(self.loops.idle)

    def _restart(self, node: int, kind: int) -> None:
        """Restart a kubelet with another configuration. A kubelet does that only without its state files, and admits
        the running pods again in the order of their binding; with the same configuration all pods keep their
        resources."""
        pods = self.pods
        # All pods leave before the node changes its class, because a load belongs to a class.
        running = list(self._on_node[node])
        for pod in running:
            self._release(pod)
        self.live.restart(node, kind)
        lost = []
        for pod in running:
            shape = self.workload.shape[pod]
            answer, victims = self._decide(node, shape, pod, readmit=True)
            if answer.holding is None:
                pods.count_refusal(pod, kind, answer.reason)
                self.refused_attempts += 1
                lost.append(pod)
            else:
                self._hold(pod, shape, node, answer)
                self._preempt_victims(victims)
        self.lost_in_restarts += len(lost)
        self._recreate(lost, FAILED)

    def _evict(self, leaving: Sequence[int], verdict: int) -> None:
        """Remove pods from their nodes; owners that recreate pods do so."""
        for pod in leaving:
            self._release(pod)
        self._recreate(leaving, verdict)

    def _recreate(self, leaving: Sequence[int], verdict: int) -> None:
        """Schedule the replacements of lost pods; pods of other owners end with this verdict."""
        for pod in leaving:
            if self.workload.shapes[self.workload.shape[pod]].owner in ("deployment", "job"):
                self._schedule_replacement(pod, self.clock.now.at)
            else:
                self.pods.verdict[pod] = verdict
                self.pods.ended[pod] = self.clock.now.at

    # One pod

    def _best_nodes(self, shape: int) -> Ints:
        """Return the best nodes as the scheduler sees them, one of which a pod of this shape goes to."""
        if self.options.filter == "exact":
            return self.scheduler.best_admitting(shape, self._admits, self.live.columns.state)
        if self.nrt is not None:
            self.nrt.deliver_until(self.clock.now.at)
            return self.scheduler.best_admitting(shape, self.nrt.passes, self.nrt.numbers)
        return self.scheduler.best_nodes(shape)

    def _admits(self, shape: int, node: int) -> bool:
        """Whether the node would admit a pod of this shape now."""
        live = self.live
        if live.refuses_always(live.kinds[node], shape):
            return False
        return self._decide(node, shape, NEVER).answer.holding is not None

    def _decide(self, node: int, shape: int, pod: int, *, readmit: bool = False) -> EvictingAnswer:
        """Return the kubelet's answer, and the pods that it evicts for a critical one. `readmit` as in
        `LiveNodes.ask`."""
        live = self.live
        answer = live.ask(node, shape, pod, readmit=readmit)
        if not live.is_critical(shape):
            return EvictingAnswer(answer)
        if answer.holding is None:
            return (
                live.ask_critical(node, shape, pod, self._running(node))
                if is_out_of(answer.reason)
                else EvictingAnswer(answer)
            )
        # With a complete state (profile kubelet-1.36) the answer has already evicted: victims are missing in its state.
        named = answer.state.named
        if named is None:
            return EvictingAnswer(answer)
        return EvictingAnswer(
            answer, tuple(one for one in self._on_node[node] if self.pods.holding[one].uid not in named.pods)
        )

    def _preempt_victims(self, victims: tuple[int, ...]) -> None:
        """Evict pods for another one; their owners create them again."""
        self.preempted += len(victims)
        self._evict(victims, PREEMPTED)

    def _try(self, pod: int) -> None:
        """Send a pod to a node, or let it preempt others, or let it wait."""
        shape = self.workload.shape[pod]
        own = self.workload.node[pod]
        ties = self._best_nodes(shape) if own == NEVER else self._own_node(shape, own)
        if not len(ties):
            # Bounded by `limit`: a pod whose kubelet refuses it all the same and its victims would take turns for ever.
            may_preempt = self.options.preemption and own == NEVER and self.pods.refused[pod] < self.options.limit
            if not (may_preempt and self._preempt(pod, shape)):
                self._wait(pod, shape)
        elif self.options.retry == "next-node":
            self._try_nodes(pod, shape)
        elif not self._try_node(pod, shape, self.scheduler.choose(ties, pod, self.pods.attempts[pod])):
            self._replace(pod, shape)

    def _own_node(self, shape: int, node: int) -> Ints:
        """Return the node that the pod is for, if it fits there."""
        return np.array([node] if self.scheduler.fits(shape, node) else [], dtype=np.int64)

    def _try_node(self, pod: int, shape: int, node: int) -> bool:
        """Bind the pod to a node; return whether the kubelet admits it."""
        pods = self.pods
        answer, victims = self._decide(node, shape, pod)
        pods.attempts[pod] += 1
        self.attempts += 1
        pods.node[pod] = node
        if answer.holding is None:
            if pods.attempts[pod] == 1:
                self.first_refused += 1
            pods.count_refusal(pod, self.live.kinds[node], answer.reason)
            self.refused_attempts += 1
            # With upstream's defects a refused pod leaves state behind, which the next pod meets.
            self.live.apply_refusal(node, answer)
            return False
        self._bind(pod, shape, node, answer)
        self._preempt_victims(victims)
        return True

    def _preempt(self, pod: int, shape: int) -> bool:
        """Evict pods of lower priority for this one, if that helps; return whether it did. The pod is bound at once."""
        allowed = self._disruptions_allowed()
        ask = NodeQueries(
            self._running,
            lambda node, leaving: self._admits_without(shape, node, leaving),
            lambda leaving: self._budgets.find_violations(allowed, [one.shape for one in leaving]),
        )
        found = self._rooms.find(shape, ask)
        if found is None:
            return False
        self._preempt_victims(found.pods)
        if not self._try_node(pod, shape, found.node):
            self._replace(pod, shape)
        return True

    def _disruptions_allowed(self) -> list[int]:
        """Return for each budget how many of its pods may be disrupted now."""
        if not self._budgets.budgets:
            return []
        pods, shape = self.pods, np.array(self.workload.shape, dtype=np.int64)
        verdict, ended = np.array(pods.verdict, dtype=np.int64), np.array(pods.ended, dtype=np.int64)
        # A budget counts the pods that its owners want, whether they run or not: one that is down uses the allowance
        # up.
        expected = np.isin(verdict, (RAN, PENDING, LOOPING)) & (ended == NEVER)
        count = len(self.workload.shapes)
        running = np.bincount(shape[list(pods.holding)], minlength=count)
        return self._budgets.disruptions_allowed(
            np.bincount(shape[expected], minlength=count).tolist(), running.tolist()
        )

    def _running(self, node: int) -> list[RunningPod]:
        pods, shape, shapes = self.pods, self.workload.shape, self.workload.shapes
        return [
            RunningPod(pod, shape[pod], shapes[shape[pod]].priority, pods.bound[pod], pods.gpus[pod])
            for pod in self._on_node[node]
        ]

    def _admits_without(self, shape: int, node: int, leaving: Sequence[RunningPod]) -> bool:
        """Whether the node would admit the shape without these pods; only the exact filter can know, others assume
        it."""
        if self.options.filter != "exact":
            return True
        kind, state, answers = self.live.kinds[node], self.live.states[node], self.live.answers
        for one in leaving:
            state = answers.release(kind, state, self.pods.holding[one.uid])
        return answers.admit(kind, state, shape, NEVER).holding is not None

    def _hold(self, pod: int, shape: int, node: int, answer: NodeAnswer) -> None:
        """Give a pod its resources on a node."""
        assert answer.holding is not None
        gpus = self.policy.choose_gpus(shape, int(self.live.columns.load[node]), (pod, node))
        self.live.bind(node, shape, answer, gpus)
        self.pods.holding[pod], self.pods.gpus[pod] = answer.holding, gpus
        self._on_node[node][pod] = None
        self.alignment.record(self.live.kinds[node], pod, answer.holding)
        self._node_changed(node, room=False)

    def _bind(self, pod: int, shape: int, node: int, answer: NodeAnswer) -> None:
        """Bind a pod, and schedule its end."""
        pods, now = self.pods, self.clock.now.at
        self._hold(pod, shape, node, answer)
        pods.verdict[pod], pods.bound[pod] = RAN, now
        if pods.first_bound[pod] == NEVER:
            pods.first_bound[pod] = now
        length = self.workload.length[pod]
        # Lengths run from the binding: a pod that waited ends as much later.
        if length != NEVER:
            pods.end_due[pod] = now + length
            self.clock.schedule(now + length, EventKind.END, pod)

    def _release(self, pod: int) -> None:
        """Take a pod off its node."""
        pods, node, shape = self.pods, self.pods.node[pod], self.workload.shape[pod]
        self.live.release(node, shape, pods.holding.pop(pod), pods.gpus.pop(pod))
        del self._on_node[node][pod]
        self._node_changed(node, room=True)

    # Refusals

    def _try_nodes(self, pod: int, shape: int) -> None:
        """Try one node after the other, the best first, until one admits the pod."""
        nodes, scores = self.scheduler.candidates(shape)
        for _ in range(self.options.tries):
            if not len(nodes):
                break
            ties = nodes[scores == scores.max()]
            node = self.scheduler.choose(ties, pod, self.pods.attempts[pod])
            if self._try_node(pod, shape, node):
                return
            left = nodes != node
            nodes, scores = nodes[left], scores[left]
        self.pods.verdict[pod] = FAILED

    def _replace(self, pod: int, shape: int) -> None:
        """Schedule the replacement of a refused pod, or park it where it would loop."""
        pods, now = self.pods, self.clock.now.at
        owner = self.workload.shapes[shape].owner
        pods.verdict[pod] = LOOPING
        if self.options.retry == "owner" and owner == "deployment" and self._will_loop(shape):
            self._ever_looped[pod] = None
            self.loops.park(pod, shape, now)
            return
        delay = None
        if self.options.retry == "owner":
            delay = replacement_delay(owner, pods.refused[pod], self.options.delay_ms)
        if delay is None:
            pods.verdict[pod] = FAILED
        # A DaemonSet's controller never gives up: without this check its retries would keep an otherwise finished run
        # going.
        elif owner != "daemonset" or self.clock.alive:
            self._schedule_replacement(pod, now + delay)

    def _possible_nodes(self, shape: int) -> Ints:
        """Return the nodes one of which a pod of this shape goes to, wherever its search begins."""
        if self.nrt is None:
            return self.scheduler.possible_nodes(shape)
        if not self.scheduler.scans_all_nodes:
            return self.scheduler.feasible_nodes(shape)
        ties = self._best_nodes(shape)
        return self.scheduler.possible_ties(ties) if len(ties) else ties

    def _will_loop(self, shape: int) -> bool:
        """Whether the owner's next pods will be refused too, until a change that affects them; the shape is watched for
        such a change."""
        if self.nrt is None and self._is_always_refused(shape) and self.watch.watch_everywhere(shape):
            return True
        nodes = self._possible_nodes(shape)
        if not self._is_refused_by(shape, nodes):
            return False
        # With delayed sums, or complete states that a refusal changes, no change can be ruled out: the shape is not
        # watched.
        if self.nrt is None and self.live.states[int(nodes[0])].named is None:
            self.watch.watch(shape, nodes)
        return True

    def _is_always_refused(self, shape: int) -> bool:
        """Whether no class of nodes admits the shape in any state."""
        return all(self.live.refuses_always(kind, shape) for kind in range(len(self.live.classes)))

    def _is_certainly_refused(self, shape: int) -> bool:
        """Whether a pod of this shape that tries now is refused for certain."""
        if self.nrt is not None and not self.scheduler.scans_all_nodes:
            return False
        return self._will_loop(shape)

    def _is_refused_by(self, shape: int, nodes: Ints) -> bool:
        """Whether all these nodes, of which there is at least one, refuse the shape in their present states."""
        if not len(nodes):
            return False
        states = self.live.columns.state
        # Nodes in the same state give the same answer, and most nodes of a large cluster share a few states.
        seen: set[int] = set()
        for node in nodes.tolist():
            state = int(states[node])
            if state not in seen:
                seen.add(state)
                if self._admits(shape, node):
                    return False
        return True

    def _leave_loop(self, pod: int, until: int) -> None:
        """Unpark a pod, and add the refused attempts until this moment."""
        parked = self.loops.take(pod)
        # The limit caps the count of attempts, not the looped time.
        times = min(self.loops.count_attempts(parked, until), self.options.limit)
        self.loop_ms += until + 1 - parked.since
        if times > 0:
            self.pods.attempts[pod] += times
            self.attempts += times
            self.refused_attempts += times
            kind = self.live.kinds[self.pods.node[pod]]
            self.pods.count_refusal(pod, kind, self.pods.reasons[self.pods.reason[pod]], times)

    def finish(self, at: int) -> None:
        """Add the attempts of all looping pods at the end of the run."""
        for pod, _ in self.loops.items():
            self._leave_loop(pod, at)

    # Waiting

    def _wait(self, pod: int, shape: int) -> None:
        """Let a pod wait that fits on no node."""
        self.pods.verdict[pod] = PENDING
        self.waiting_pods += 1
        # Pods are numbered by arrival, so the list stays in the order "first come, first served".
        insort(self.waiting.setdefault(shape, []), pod)

    def _node_changed(self, node: int, *, room: bool) -> None:
        """Check affected looping pods again after a change of a node, and schedule the trial of waiting pods if there
        is more room."""
        now = self.clock.now.at
        if self.loops.idle:
            self._requeue(self.watch.find_affected(self.loops.idle, node))
        if self.nrt is not None:
            # The scheduler acts on the change only when it sees it, so the trial of waiting pods comes with the delay.
            self.nrt.record(now, node, self.live.states[node])
            self.clock.schedule(now + self.options.nrt_delay_ms, EventKind.ROOM, node)
        if room and self.waiting:
            self.clock.schedule(now, EventKind.ROOM, node)
        # One event serves all nodes that change at this moment.
        if self._served != now and not self._constrained.isdisjoint(self.waiting):
            self._served = now
            self.clock.schedule(now, EventKind.ROOM, self.live.columns.count)

    def _requeue(self, shapes: Iterable[int]) -> None:
        """Schedule the next attempt of looping shapes."""
        for at, pod in self.loops.requeue(shapes, self.clock.reached):
            self._schedule_check(at, pod)

    def _schedule_check(self, at: int, pod: int) -> None:
        self.clock.schedule(at, EventKind.RETRY, pod)

    def _schedule_replacement(self, pod: int, at: int) -> None:
        """Schedule the next try of a pod, after all ends of that moment."""
        self._due[pod] = at
        self.clock.schedule(at, EventKind.RETRY, pod)

    def try_waiting(self, node: int) -> None:
        """Try waiting pods on a node where they fit: higher priority first, then first come. The number after the last
        node stands for all nodes."""
        if self.nrt is not None:
            self._requeue(self.loops.idle)
        if node == self.live.columns.count:
            self._try_constrained()
            return
        shapes, columns = self.workload.shapes, self.live.columns

        def order(shape: int) -> tuple[int, int]:
            return -shapes[shape].priority, self.waiting[shape][0]

        # A pod that waits again blocks only its own shape: smaller ones behind it may still fit.
        for shape in sorted([one for one in columns.shapes_with_room(node) if one in self.waiting], key=order):
            while shape in self.waiting and self.scheduler.fits(shape, node):
                pod = self._pop_waiting(shape)
                self._try(pod)
                if self.pods.verdict[pod] == PENDING:
                    break

    def _try_constrained(self) -> None:
        """Try pods that wait for other pods to come or to leave: they may now fit on any node."""
        self._served = NEVER
        shapes = self.workload.shapes
        waiting = [shape for shape in self.waiting if shape in self._constrained]
        for shape in sorted(waiting, key=lambda one: (-shapes[one].priority, self.waiting[one][0])):
            while shape in self.waiting and len(self._best_nodes(shape)):
                pod = self._pop_waiting(shape)
                self._try(pod)
                if self.pods.verdict[pod] == PENDING:
                    break

    def _pop_waiting(self, shape: int) -> int:
        """Take the first waiting pod of a shape out of the queue."""
        self.waiting_pods -= 1
        pod = self.waiting[shape].pop(0)
        if not self.waiting[shape]:
            del self.waiting[shape]
        return pod
