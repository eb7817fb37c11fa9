"""One pod at a time: it is tried, bound or refused, waits or loops, ends.

The scheduler binds, the kubelet decides at the same moment. A pod that fits on no node waits until a pod leaves a node
it might fit on; a refused one is replaced by its owner (`refusals`).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Sequence

import numpy as np

from podslice.fleet.engine.alignment import Alignment
from podslice.fleet.engine.budgets import BudgetBook
from podslice.fleet.engine.clock import Clock, EventKind
from podslice.fleet.engine.live import LiveNodes, Pushed
from podslice.fleet.engine.nodes import Fleet, NodeEvent
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.pods import FAILED, LOOPING, PENDING, PREEMPTED, RAN, PodTable
from podslice.fleet.engine.refusals import Loops, replacement_delay
from podslice.fleet.engine.streams import IndexedStream, shuffle, stream
from podslice.fleet.engine.workload import NEVER, Workload
from podslice.fleet.scheduler.fragmentation import GPUFragmentation, popular_shapes
from podslice.fleet.scheduler.loads import Ints
from podslice.fleet.scheduler.nrt import NRTView
from podslice.fleet.scheduler.policies import policy_named
from podslice.fleet.scheduler.preemption import Questions, RoomFinder, RunningPod
from podslice.fleet.scheduler.scheduler import FleetScheduler
from podslice.fleet.scheduler.watch import LoopWatch
from podslice.node.answers import NodeAnswer
from podslice.values.reasons import is_out_of


class PodQueue:
    """The pods of a cell and what becomes of them."""

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
        self.policy = policy_named(
            options, self.live.columns.loads, fragmentation=self.fragmentation, models=of_class, draws=draws
        )
        self.scheduler = self._scheduler(seed, draws)
        self.loops = Loops(options.delay_ms)
        self.waiting: dict[int, list[int]] = {}
        self.loop_ms = self.first_refused = 0
        plain = all(one.start.named is None for one in self.live.classes)
        self._rooms = RoomFinder(self.live.columns, remembers=plain)
        self._budgets = BudgetBook(options.budgets, workload.shapes)
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

    def begin(self) -> None:
        """Pods that are on nodes from the beginning are bound before anything happens."""
        for pod, uid in self.workload.there.items():
            node, shape = self.workload.node[pod], self.workload.shape[pod]
            self.pods.node[pod] = node
            self._bind(pod, shape, node, self.live.there(node, uid))

    @property
    def looped(self) -> int:
        """Pods that have ever looped."""
        return len(self._ever_looped)

    # Events

    def arrive(self, pod: int) -> None:
        """A pod comes, unless it was there before."""
        self.arrived += 1
        self.pods.first_try[pod] = self.clock.now.at
        if pod not in self.workload.there:
            self._try(pod)

    def retry(self, pod: int) -> None:
        """A replacement comes, or pods of a shape that loops look again. Of replacements that were due before their pod
        came to loop, or to run, nothing comes."""
        if pod not in self.loops:
            if self._due.get(pod) == self.clock.now.at:
                del self._due[pod]
                self._try(pod)
            return
        shape = self.workload.shape[pod]
        if self._would_be_refused(shape):
            self.loops.rest(shape)
            return
        self._leave_loop(pod, self.clock.now.at - 1)
        self._try(pod)
        if self.loops.waits(shape):
            self._look_again(*self.loops.next_attempt(shape, self.clock.reached))

    def end(self, pod: int) -> None:
        """A pod has run, if it still runs since its end was set."""
        if self.pods.runs(pod) and self.pods.end_due[pod] == self.clock.now.at:
            self.pods.ended[pod] = self.clock.now.at
            self._release(pod)

    def happen(self, event: NodeEvent) -> None:
        """Something happens to nodes."""
        for node in event.nodes:
            if event.what in ("add", "fail"):
                self.live.columns.domains.come(node, there=event.what == "add")
            if event.what == "add":
                self.live.columns.close(node, closed=False)
                self._changed(node, room=True)
            elif event.what in ("drain", "fail"):
                self.live.columns.close(node, closed=True)
                self._evict(list(self._on_node[node]), FAILED)
            elif event.kind != NEVER:
                self._restart(node, event.kind)
        self._wake(self.loops.idle)

    def _restart(self, node: int, kind: int) -> None:
        """A kubelet starts with another configuration, which a kubelet does only without its state files, and admits
        the pods that run again in the order in which they came. With the same configuration all keep what they have."""
        pods = self.pods
        running = list(self._on_node[node])
        for pod in running:
            self._release(pod)
        self.live.restart(node, kind)
        lost = []
        for pod in running:
            shape = self.workload.shape[pod]
            answer, victims = self._decide(node, shape, pod, again=True)
            if answer.holding is None:
                pods.refuse(pod, kind, answer.reason)
                self.refused_attempts += 1
                lost.append(pod)
            else:
                self._hold(pod, shape, node, answer)
                self._make_leave(victims)
        self.lost_in_restarts += len(lost)
        self._come_back(lost, FAILED)

    def _evict(self, gone: Sequence[int], verdict: int) -> None:
        """Pods leave their nodes; those whose owners make new ones come again."""
        for pod in gone:
            self._release(pod)
        self._come_back(gone, verdict)

    def _come_back(self, gone: Sequence[int], verdict: int) -> None:
        for pod in gone:
            if self.workload.shapes[self.workload.shape[pod]].owner in ("deployment", "job"):
                self._come_again(pod, self.clock.now.at)
            else:
                self.pods.verdict[pod] = verdict
                self.pods.ended[pod] = self.clock.now.at

    # One pod

    def _ties(self, shape: int) -> Ints:
        """The nodes one of which a pod of this shape goes to."""
        if self.options.filter == "exact":
            return self.scheduler.best_that_admits(shape, self._admits, self.live.columns.state)
        if self.nrt is not None:
            self.nrt.pass_time(self.clock.now.at)
            return self.scheduler.best_that_admits(shape, self.nrt.passes, self.nrt.numbers)
        return self.scheduler.best(shape)

    def _admits(self, shape: int, node: int) -> bool:
        live = self.live
        if live.refuses_always(live.kinds[node], shape):
            return False
        return self._decide(node, shape, NEVER).answer.holding is not None

    def _decide(self, node: int, shape: int, pod: int, *, again: bool = False) -> Pushed:
        """What the kubelet answers, and which pods leave for a critical one. `again` as in `LiveNodes.ask`."""
        live = self.live
        answer = live.ask(node, shape, pod, again=again)
        if not live.is_critical(shape):
            return Pushed(answer)
        if answer.holding is None:
            return live.push(node, shape, pod, self._running(node)) if is_out_of(answer.reason) else Pushed(answer)
        named = answer.state.named
        if named is None:
            return Pushed(answer)
        return Pushed(answer, tuple(one for one in self._on_node[node] if self.pods.holding[one].uid not in named.pods))

    def _make_leave(self, victims: tuple[int, ...]) -> None:
        """Pods leave their node for another one; their owners make them again."""
        self.preempted += len(victims)
        self._evict(victims, PREEMPTED)

    def _try(self, pod: int) -> None:
        shape = self.workload.shape[pod]
        own = self.workload.node[pod]
        ties = self._ties(shape) if own == NEVER else self._own_node(shape, own)
        if not len(ties):
            may_preempt = self.options.preemption and own == NEVER and self.pods.refused[pod] < self.options.limit
            if not (may_preempt and self._preempt(pod, shape)):
                self._wait(pod, shape)
        elif self.options.retry == "next-node":
            self._try_nodes(pod, shape)
        elif not self._try_node(pod, shape, self.scheduler.choose(ties, pod, self.pods.attempts[pod])):
            self._replace(pod, shape)

    def _own_node(self, shape: int, node: int) -> Ints:
        return np.array([node] if self.scheduler.fits(shape, node) else [], dtype=np.int64)

    def _try_node(self, pod: int, shape: int, node: int) -> bool:
        """Bind it there; whether the kubelet takes it."""
        pods = self.pods
        answer, victims = self._decide(node, shape, pod)
        pods.attempts[pod] += 1
        self.attempts += 1
        pods.node[pod] = node
        if answer.holding is None:
            if pods.attempts[pod] == 1:
                self.first_refused += 1
            pods.refuse(pod, self.live.kinds[node], answer.reason)
            self.refused_attempts += 1
            self.live.refused(node, answer)
            return False
        self._bind(pod, shape, node, answer)
        self._make_leave(victims)
        return True

    def _preempt(self, pod: int, shape: int) -> bool:
        """Pods of lower priority leave a node for it, if that helps; it goes there at once."""
        allowed = self._disruptions_allowed()
        ask = Questions(
            self._running,
            lambda node, gone: self._would_admit(shape, node, gone),
            lambda leaving: self._budgets.broken(allowed, [one.shape for one in leaving]),
        )
        found = self._rooms.find(shape, ask)
        if found is None:
            return False
        self._make_leave(found.pods)
        if not self._try_node(pod, shape, found.node):
            self._replace(pod, shape)
        return True

    def _disruptions_allowed(self) -> list[int]:
        """How many pods of each budget may go now."""
        if not self._budgets.budgets:
            return []
        pods, shape = self.pods, np.array(self.workload.shape, dtype=np.int64)
        verdict, ended = np.array(pods.verdict, dtype=np.int64), np.array(pods.ended, dtype=np.int64)
        there = np.isin(verdict, (RAN, PENDING, LOOPING)) & (ended == NEVER)
        count = len(self.workload.shapes)
        running = np.bincount(shape[list(pods.holding)], minlength=count)
        return self._budgets.allowed(np.bincount(shape[there], minlength=count).tolist(), running.tolist())

    def _running(self, node: int) -> list[RunningPod]:
        pods, shape = self.pods, self.workload.shape
        return [RunningPod(pod, shape[pod], pods.bound[pod], pods.gpus[pod]) for pod in self._on_node[node]]

    def _would_admit(self, shape: int, node: int, gone: Sequence[RunningPod]) -> bool:
        if self.options.filter != "exact":
            return True
        kind, state, answers = self.live.kinds[node], self.live.states[node], self.live.answers
        for one in gone:
            state = answers.release(kind, state, self.pods.holding[one.pod])
        return answers.admit(kind, state, shape, NEVER).holding is not None

    def _hold(self, pod: int, shape: int, node: int, answer: NodeAnswer) -> None:
        assert answer.holding is not None
        gpus = self.policy.gpus(shape, int(self.live.columns.load[node]), (pod, node))
        self.live.bind(node, shape, answer, gpus)
        self.pods.holding[pod], self.pods.gpus[pod] = answer.holding, gpus
        self._on_node[node][pod] = None
        self.alignment.note(self.live.kinds[node], pod, answer.holding)
        self._changed(node, room=False)

    def _bind(self, pod: int, shape: int, node: int, answer: NodeAnswer) -> None:
        pods, now = self.pods, self.clock.now.at
        self._hold(pod, shape, node, answer)
        pods.verdict[pod], pods.bound[pod] = RAN, now
        if pods.first_bound[pod] == NEVER:
            pods.first_bound[pod] = now
        length = self.workload.length[pod]
        if length != NEVER:
            pods.end_due[pod] = now + length
            self.clock.put(now + length, EventKind.END, pod)

    def _release(self, pod: int) -> None:
        pods, node, shape = self.pods, self.pods.node[pod], self.workload.shape[pod]
        self.live.release(node, shape, pods.holding.pop(pod), pods.gpus.pop(pod))
        del self._on_node[node][pod]
        self._changed(node, room=True)

    # Refusals

    def _try_nodes(self, pod: int, shape: int) -> None:
        """One node after the other, the best first, until one takes it."""
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
        """Its owner makes another one, if it does."""
        pods, now = self.pods, self.clock.now.at
        owner = self.workload.shapes[shape].owner
        pods.verdict[pod] = LOOPING
        if self.options.retry == "owner" and owner == "deployment" and self._is_in_vain(shape):
            self._ever_looped[pod] = None
            self.loops.park(pod, shape, now)
            return
        delay = None
        if self.options.retry == "owner":
            delay = replacement_delay(owner, pods.refused[pod], self.options.delay_ms)
        if delay is None:
            pods.verdict[pod] = FAILED
        elif owner != "daemonset" or self.clock.alive:
            self._come_again(pod, now + delay)

    def _may_take(self, shape: int) -> Ints:
        """Nodes one of which a pod of this shape goes to, wherever its search begins."""
        if self.nrt is None:
            return self.scheduler.may_take(shape)
        if not self.scheduler.looks_everywhere:
            return self.scheduler.fitting(shape)
        ties = self._ties(shape)
        return self.scheduler.possible(ties) if len(ties) else ties

    def _is_in_vain(self, shape: int) -> bool:
        """True when the owner's next pods will be refused too, as long as nothing changes that matters to them."""
        if self.nrt is None and self._refused_everywhere(shape) and self.watch.begin_everywhere(shape):
            return True
        nodes = self._may_take(shape)
        if not self._loops(shape, nodes):
            return False
        if self.nrt is None and self.live.states[int(nodes[0])].named is None:
            self.watch.begin(shape, nodes)
        return True

    def _refused_everywhere(self, shape: int) -> bool:
        """True for pods that no node takes, in whatever state."""
        return all(self.live.refuses_always(kind, shape) for kind in range(len(self.live.classes)))

    def _would_be_refused(self, shape: int) -> bool:
        """True when a pod that tries now is refused for certain."""
        if self.nrt is not None and not self.scheduler.looks_everywhere:
            return False
        return self._is_in_vain(shape)

    def _loops(self, shape: int, nodes: Ints) -> bool:
        """True when all nodes that a pod could go to refuse it as they are."""
        if not len(nodes):
            return False
        states = self.live.columns.state
        seen: set[int] = set()
        for node in nodes.tolist():
            state = int(states[node])
            if state not in seen:
                seen.add(state)
                if self._admits(shape, node):
                    return False
        return True

    def _leave_loop(self, pod: int, until: int) -> None:
        parked = self.loops.take(pod)
        times = min(self.loops.attempts(parked, until), self.options.limit)
        self.loop_ms += until + 1 - parked.since
        if times > 0:
            self.pods.attempts[pod] += times
            self.attempts += times
            self.refused_attempts += times
            kind = self.live.kinds[self.pods.node[pod]]
            self.pods.refuse(pod, kind, self.pods.reasons[self.pods.reason[pod]], times)

    def stop(self, at: int) -> None:
        """Nothing happens any more: what loops has looped until now."""
        for pod, _ in self.loops.items():
            self._leave_loop(pod, at)

    # Waiting

    def _wait(self, pod: int, shape: int) -> None:
        self.pods.verdict[pod] = PENDING
        self.waiting_pods += 1
        insort(self.waiting.setdefault(shape, []), pod)

    def _changed(self, node: int, *, room: bool) -> None:
        """A node has another state: pods that loop look again, and pods that wait come if there is more room."""
        now = self.clock.now.at
        if self.loops.idle:
            self._wake(self.watch.concerned(self.loops.idle, node))
        if self.nrt is not None:
            self.nrt.changed(now, node, self.live.states[node])
            self.clock.put(now + self.options.nrt_delay_ms, EventKind.ROOM, node)
        if room and self.waiting:
            self.clock.put(now, EventKind.ROOM, node)
        if self._served != now and not self._constrained.isdisjoint(self.waiting):
            self._served = now
            self.clock.put(now, EventKind.ROOM, self.live.columns.count)

    def _wake(self, shapes: Iterable[int]) -> None:
        for at, pod in self.loops.wake(shapes, self.clock.reached):
            self._look_again(at, pod)

    def _look_again(self, at: int, pod: int) -> None:
        self.clock.put(at, EventKind.RETRY, pod)

    def _come_again(self, pod: int, at: int) -> None:
        """It is tried again then, after all that ends then."""
        self._due[pod] = at
        self.clock.put(at, EventKind.RETRY, pod)

    def serve(self, node: int) -> None:
        """Pods that wait and fit on a node are tried: higher priority first, then the one that came first."""
        if self.nrt is not None:
            self._wake(self.loops.idle)
        if node == self.live.columns.count:
            self._serve_anywhere()
            return
        shapes, columns = self.workload.shapes, self.live.columns

        def turn(shape: int) -> tuple[int, int]:
            return -shapes[shape].priority, self.waiting[shape][0]

        for shape in sorted([one for one in columns.might_fit(node) if one in self.waiting], key=turn):
            while shape in self.waiting and self.scheduler.fits(shape, node):
                pod = self._call(shape)
                self._try(pod)
                if self.pods.verdict[pod] == PENDING:
                    break

    def _serve_anywhere(self) -> None:
        """Pods that wait for other pods to come or to go may fit on any node now."""
        self._served = NEVER
        shapes = self.workload.shapes
        waiting = [shape for shape in self.waiting if shape in self._constrained]
        for shape in sorted(waiting, key=lambda one: (-shapes[one].priority, self.waiting[one][0])):
            while shape in self.waiting and len(self._ties(shape)):
                pod = self._call(shape)
                self._try(pod)
                if self.pods.verdict[pod] == PENDING:
                    break

    def _call(self, shape: int) -> int:
        """The first pod of a shape that waits waits no more."""
        self.waiting_pods -= 1
        pod = self.waiting[shape].pop(0)
        if not self.waiting[shape]:
            del self.waiting[shape]
        return pod
