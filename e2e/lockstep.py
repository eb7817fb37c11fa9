"""A cluster in lockstep, without an API server: the service's own core and real nodes, event by event, with faults.

    nice python -m e2e.lockstep --placements 1000000 --seed 7 --file lives.jsonl

What kube-scheduler, the API server and the agents would do is drawn: pods come, are nominated, filtered, bound, started
in any order, deleted and removed; watches lag; Bindings are lost on the way there or back; events are lost and doubled;
the service is killed, agents begin new epochs, everything is listed again, clocks jump. Promised in every life, and
looked at after **every** event: the replica's digests are its node's. No node refuses a pod that the service sent, no
CPU has two owners, every pod that started has a verdict or is known to have been reported otherwise, and at last
nothing is held and the model is the nodes.

Each life is a line of the file; a campaign goes on where its file ends.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import msgspec

from e2e.hollow_nodes import Fault, HollowJournals, HollowNode
from podslice.cluster.extender.messages import BindRequest, FilterRequest
from podslice.cluster.model.holds import PlanPolicy
from podslice.cluster.model.model import ClusterModel, ModelLimits
from podslice.cluster.placements import NodeReport, PlacementEvents, Placements
from podslice.config.kubelet import KubeletConfig, MemoryReservation
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node
from podslice.replica.events import Stamped, WholeState, encode
from podslice.replica.replica import ApplyResult
from podslice.replica.stream_messages import PlanGiven
from podslice.service.clusterobjects import ScheduledNode, ScheduledPod, read_pod

POLICIES: tuple[PlanPolicy, ...] = ("compare", "honour")
PLACEMENTS = 2000
"""Of a life."""
SCHEDULER = "podslice"
_SIZES = (1, 2, 2, 3, 4, 4, 6, 8, 8, 10, 12, 14)
_MOST_WAITING = 24


class LifeTold(msgspec.Struct, frozen=True):
    """The result of a life. `placements`: pods of the service that started; `binding_outcomes`: its verdicts on them,
    and the reasons for having none; `events`: those after which digests were compared."""

    seed: int
    policy: str
    placements: int
    events: int
    binding_outcomes: dict[str, int]
    faults: dict[str, int]
    problems: list[str]


_RESERVED = {
    "memory_manager_policy": "Static",
    "system_reserved": {"memory": "2Gi"},
    "reserved_memory": (MemoryReservation(0, {"memory": "1Gi"}), MemoryReservation(1, {"memory": "1Gi"})),
}
_SPREAD = {"cpu_manager_policy_options": {"distribute-cpus-across-numa": "true"}}


def _config(policy: str, scope: str, more: Mapping[str, Any] = MappingProxyType({})) -> KubeletConfig:
    return KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy=policy,
        topology_manager_scope=scope,
        eviction_hard={},
        max_pods=250,
        **more,
    )


def kinds() -> list[Node]:
    """Return the nodes that all others are copies of."""
    four = from_synthetic("pack:2 numa:2(memory=64GiB) core:8 pu:2")
    two = from_synthetic("pack:2 numa:1(memory=96GiB) core:8 pu:2")
    return [
        Node(four, _config("single-numa-node", "pod")),
        Node(two, _config("single-numa-node", "container", _RESERVED)),
        Node(four, _config("restricted", "container")),
        Node(two, _config("best-effort", "pod", _SPREAD)),
    ]


class LivingPod:
    """A pod as the API server has it, and its progress on its node."""

    __slots__ = ("body", "name", "node", "plan", "service", "started", "uid")

    def __init__(self, number: int, cpus: list[int], *, service: bool) -> None:
        self.uid = f"{number:08x}-0000-4000-8000-000000000000"
        self.name = f"pod-{number}"
        self.node = ""
        self.started = False
        self.service = service
        self.plan: PlanGiven | None = None
        self.body = ",".join(
            f'{{"name":"c{at}","resources":{{"requests":{amounts},"limits":{amounts}}}}}'
            for at, amounts in enumerate(f'{{"cpu":"{one}","memory":"{one}Gi"}}' for one in cpus)
        )

    def data(self) -> bytes:
        """The object."""
        who = SCHEDULER if self.service else "default-scheduler"
        place = f'"nodeName":"{self.node}",' if self.node else ""
        return (
            f'{{"metadata":{{"uid":"{self.uid}","namespace":"default","name":"{self.name}","generation":1}},'
            f'"spec":{{{place}"schedulerName":"{who}","containers":[{self.body}]}},'
            f'"status":{{"phase":"Pending","qosClass":"Guaranteed"}}}}'
        ).encode()


class Life:
    """One cluster's life, drawn from a seed. `restless`: pods leave nodes on which others are about to start, which may
    change where those go, so a dispute is no broken promise there."""

    def __init__(self, seed: int, *, nodes: int = 12) -> None:
        self.r = Random(seed)
        self.seed = seed
        self.policy: PlanPolicy = POLICIES[seed % len(POLICIES)]
        self.restless = seed % 5 == 0
        likes = self.r.sample(kinds(), self.r.choice((1, 1, 2)))
        sizes = [self.r.choice(_SIZES) for _ in range(6)]
        self.shapes = [[size] for size in sizes] + [self.r.choices(sizes, k=2)]
        self.nodes = {f"n{at}": HollowNode(f"n{at}", likes[at % len(likes)], at + 1) for at in range(nodes)}
        self.pods: dict[str, LivingPod] = {}
        self.seen: dict[str, ScheduledPod] = {}
        """Pods as the service's watch last reported them."""
        self.waiting: dict[str, LivingPod] = {}
        self.bound: dict[str, LivingPod] = {}
        """Pods that are bound and not started yet."""
        self.running: dict[str, LivingPod] = {}
        self.watch_events: deque[tuple[str, bytes | None]] = deque()
        """Events that the service's watch has not delivered yet: UID and pod, None where it is gone."""
        self.now, self.count, self.placed, self.events = 0.0, 0, 0, 0
        self.binding_outcomes: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.problems: list[str] = []
        self.unheard: set[str] = set()
        """Started pods of the service without a verdict so far."""
        self.journals = HollowJournals(self._source)
        self._begin_service()

    def _source(self, name: str, epoch: int, sequence: int, whole: bool) -> Iterator[bytes]:
        journal = self.nodes[name].journal
        yield from map(encode, (journal.whole_state(),) if whole else journal.events_after(epoch, sequence))

    def _look(self, name: str, stamped: Stamped, applied: ApplyResult) -> None:
        """Compare digests, after every event."""
        self.events += 1
        replica = self.journals.nodes[name].replica
        if applied.outcome == "mismatch":
            self.problems.append(f"{name}: {applied.why}")
        if applied.outcome in ("equal", "adopted") and replica.digest != stamped.digest:
            self.problems.append(f"{name}: digests differ after {stamped.sequence}")

    # The service

    def _begin_service(self) -> None:
        """Restart the service: nodes, pods and journals are sent again, in any order."""
        limits = ModelLimits(best=self.r.choice((1, 1, 16)), hold=30.0)
        self.placing = Placements(
            ClusterModel(limits), PlacementEvents(), schedulers=frozenset({SCHEDULER}), clock=lambda: self.now,
            policy=self.policy, advise=limits.best > 1,
        )  # fmt: skip
        self.placing.events.binding_outcome.add(self._take_report)
        self.journals.restart()
        self.journals.events.applied.add(self._take_result)
        for name in self.nodes:
            self.placing.node_changed(None, ScheduledNode(name))
        if self.r.random() < 0.5:
            self._list()
            self.journals.catch_up(self.nodes)
        else:
            self.journals.catch_up(self.nodes)
            self._list()

    def _take_result(self, name: str, stamped: Stamped, applied: ApplyResult) -> None:
        self._look(name, stamped, applied)
        replica = self.journals.nodes[name].replica
        self.placing.apply_event(name, stamped, applied, replica)
        if isinstance(stamped.event, WholeState) and replica.state is not None:
            for uid in self.unheard & replica.state.pods.keys():
                self.unheard.discard(uid)
                self.binding_outcomes["told by a whole state"] += 1

    def _take_report(self, report: NodeReport) -> None:
        if report.uid in self.unheard:
            self.unheard.discard(report.uid)
            self.binding_outcomes[report.outcome.kind] += 1
            if report.outcome.kind == "disputed" and not self.restless:
                self.problems.append(f"{report.uid} on {report.node}: {report.outcome}")

    def _list(self) -> None:
        """Restart the watch."""
        self.watch_events.clear()
        self.seen.clear()
        for uid in sorted(self.placing.pods.keys() - self.pods.keys()):
            self.placing.pod_changed(self.placing.pods[uid], None)
        for pod in self.pods.values():
            self._see(pod.uid, pod.data())
        self.placing.drop_missed(self.now)

    def _see(self, uid: str, data: bytes) -> None:
        new, old = read_pod(data), self.seen.get(uid) or self.placing.pods.get(uid)
        if old is not None and new.has_same_spec(old):
            new.adopt(old)
        self.seen[uid] = new
        self.placing.pod_changed(old, new)

    # What happens

    def step(self) -> None:
        """Take one random step."""
        self.now += self.r.choice((0.001, 0.01, 0.1))
        self.r.choices(
            (self.arrive, self.schedule, self.start, self.watch, self.leave, self.delete, self.foreign, self.fail),
            (6, 8, 8, 24, 5, 0.3, 0.2, 0.05),
        )[0]()

    def arrive(self) -> None:
        """Create a pod."""
        if len(self.waiting) < _MOST_WAITING:
            pod = self._new(service=True)
            self.waiting[pod.uid] = pod
            self.watch_events.append((pod.uid, pod.data()))

    def _new(self, *, service: bool) -> LivingPod:
        self.count += 1
        pod = LivingPod(self.count, self.r.choice(self.shapes), service=service)
        self.pods[pod.uid] = pod
        return pod

    def watch(self) -> None:
        """Deliver the next event of the service's watch."""
        if self.watch_events:
            uid, data = self.watch_events.popleft()
            if data is not None:
                self._see(uid, data)
            elif uid in self.seen:
                self.placing.pod_changed(self.seen.pop(uid), None)

    def schedule(self) -> None:
        """Take kube-scheduler's step: filter the nominated node alone, or all of them, then bind."""
        if not self.waiting:
            return
        pod = self.r.choice(list(self.waiting.values()))
        data, ahead = msgspec.Raw(pod.data()), ""
        if pod.uid in self.seen and self.r.random() < 0.7:
            ahead = self.placing.choose(self.seen[pod.uid])
        names = [ahead] if ahead else self.r.sample(list(self.nodes), self.r.choice((3, len(self.nodes))))
        found = self.placing.filter(FilterRequest(data, list(names)), {pod.uid: ahead})
        if not found.nodes:
            return
        node = found.nodes[0]
        if len(found.nodes) > 1:
            scores = self.placing.prioritize(FilterRequest(data, list(found.nodes)))
            node = self.r.choice([name for name in found.nodes if scores[name]])
        if self.r.random() < 0.97:
            self.bind(pod, node)

    def bind(self, pod: LivingPod, node: str) -> None:
        """Send a Binding, whose request or answer may be lost."""
        request = BindRequest(pod.name, "default", pod.uid, node)
        if self.placing.bind(request).error:
            self.binding_outcomes["bind refused"] += 1
            return
        plan, luck = self.placing.plan(request), self.r.random()
        if luck < 0.01:
            self.placing.model.unbind(pod.uid)
        elif luck > 0.02:
            pod.node, pod.plan = node, plan
            self.bound[pod.uid] = self.waiting.pop(pod.uid)
            self.watch_events.append((pod.uid, pod.data()))

    def start(self) -> None:
        """Let a kubelet start a random one of the pods bound to it."""
        if self.bound:
            pod = self.bound.pop(self.r.choice(list(self.bound)))
            node, read = self.nodes[pod.node], read_pod(pod.data()).pod
            plan = pod.plan if self.policy == "honour" else None
            why, stamped = node.admit(read) if plan is None else node.admit_as_planned(read, plan.holding)
            self.running[pod.uid] = pod
            if pod.service:
                self._note_start(pod, why)
            if why:
                del self.running[pod.uid]
                self._note_end(pod)
            self.journals.feed(pod.node, encode(stamped))

    def _note_start(self, pod: LivingPod, why: str) -> None:
        self.placed += 1
        if why:
            self.binding_outcomes["refused"] += 1
            if not self.restless:
                self.problems.append(f"{pod.name} on {pod.node}: {why}")
        else:
            self.unheard.add(pod.uid)

    def leave(self) -> None:
        """Delete and end a running pod."""
        busy = set() if self.restless else {one.node for one in self.bound.values()}
        ready = [one for one in self.running.values() if one.node not in busy]
        if ready:
            self._end(self.r.choice(ready))

    def _end(self, pod: LivingPod) -> None:
        del self.running[pod.uid]
        self._note_end(pod)
        self.journals.feed(pod.node, encode(self.nodes[pod.node].remove(pod.uid)))

    def _note_end(self, pod: LivingPod) -> None:
        del self.pods[pod.uid]
        self.watch_events.append((pod.uid, None))

    def delete(self) -> None:
        """Delete a pod before it starts."""
        ready = [*self.waiting.values(), *self.bound.values()]
        if ready:
            pod = self.r.choice(ready)
            self.waiting.pop(pod.uid, None)
            self.bound.pop(pod.uid, None)
            self._note_end(pod)

    def foreign(self) -> None:
        """Let another scheduler bind a pod to a node for which none of ours is under way; its kubelet may refuse it."""
        busy = {one.node for one in self.placing.model.holds()} | {one.node for one in self.bound.values()}
        free = [name for name in self.nodes if name not in busy]
        if free:
            pod = self._new(service=False)
            pod.node = self.r.choice(free)
            self._see(pod.uid, pod.data())
            self.bound[pod.uid] = pod

    # Faults

    def fail(self) -> None:
        """Inject a random fault."""
        kind = self.r.choice(list(self.acts))
        self.faults[kind] += 1
        self.acts[kind]()

    @property
    def acts(self) -> dict[str, Callable[[], None]]:
        """The faults, by name."""
        return {
            "kill": self._begin_service,
            "restart an agent": self._restart,
            "list again": self._list,
            "clock jumps": self._jump,
            "line breaks": self._break,
            "agent silent": self._silence,
        }

    def _restart(self) -> None:
        name = self.r.choice(list(self.nodes))
        self.nodes[name].restart()
        self.journals.catch_up([name])

    def _jump(self) -> None:
        self.now += 3600.0
        self.placing.expire()

    def _break(self) -> None:
        """Lose and duplicate events for a while; then beats find the replicas that are behind."""
        self.journals.fault = Fault(lose=self.r.choice((2, 3, 7)), double=self.r.choice((2, 5)))
        for _ in range(self.r.randrange(100)):
            self.step_quietly()
        self.mend()

    def _silence(self) -> None:
        name = self.r.choice(list(self.nodes))
        self.placing.confirm(name, confirmed=False)
        for _ in range(self.r.randrange(50)):
            self.step_quietly()
        self.placing.confirm(name, confirmed=not self.journals.find_unproven(name))

    def step_quietly(self) -> None:
        """Take a random step that is not a fault."""
        self.r.choices((self.arrive, self.schedule, self.start, self.watch, self.leave), (6, 8, 8, 24, 5))[0]()

    def mend(self) -> None:
        """Send every agent's beat: replicas that are behind get the missing events."""
        self.journals.fault = Fault()
        self.journals.catch_up(self.nodes)
        for name, node in self.nodes.items():
            line = self.journals.nodes[name]
            if not line.replica.proven or line.replica.digest != node.journal.digest:
                self.problems.append(f"{name}: the replica is not the node")

    # The end

    def run(self, placements: int) -> LifeTold:
        """Run until `placements` pods of the service have started, or nothing progresses; then settle and end."""
        steps = 0
        while self.placed < placements and steps < 100 * placements:
            self.step()
            steps += 1
        self.end()
        binding_outcomes, faults = dict(sorted(self.binding_outcomes.items())), dict(sorted(self.faults.items()))
        return LifeTold(self.seed, self.policy, self.placed, self.events, binding_outcomes, faults, self.problems[:5])

    def end(self) -> None:
        """Settle: no pod waits, all bound pods start, all events are delivered; then the model must equal the nodes."""
        self.mend()
        for pod in list(self.waiting.values()):
            self._note_end(self.waiting.pop(pod.uid))
        while self.bound:
            self.start()
        while self.watch_events:
            self.watch()
        self.mend()
        self.now += 10_000.0
        self.placing.expire()
        self.problems += self._wrong()

    def _wrong(self) -> Iterator[str]:
        if self.placing.model.holds():
            yield f"{len(self.placing.model.holds())} holds are left"
        for name, node in self.nodes.items():
            if node.doubly_owned():
                yield f"{name}: CPUs {node.doubly_owned()} have two owners"
            mine = self.placing.model.node(name)
            if mine.state is not mine.base or mine.base.cpus != node.node.state.cpu.default:
                yield f"{name}: the model is not the node"
        running = {uid for uid, pod in self.running.items() if pod.service}
        if self.unheard & running:
            yield f"{len(self.unheard & running)} pods that run have no verdict"
        self.binding_outcomes["gone before anybody heard"] += len(self.unheard - running)


def campaign(placements: int, seed: int, file: Path | None = None) -> list[LifeTold]:
    """Run lives, after those of the file, until `placements` pods were placed."""
    known = file.read_bytes().splitlines() if file is not None and file.exists() else []
    lives = [msgspec.json.decode(line, type=LifeTold) for line in known]
    done = sum(one.placements for one in lives)
    while done < placements:
        life = Life(seed + len(lives)).run(PLACEMENTS)
        lives.append(life)
        done += life.placements
        if life.problems:
            print(f"seed {life.seed}, {life.policy}: {life.problems[0]}", flush=True)
        if file is not None:
            with file.open("ab") as out:
                out.write(msgspec.json.encode(life) + b"\n")
    return lives


def summary(lives: list[LifeTold]) -> str:
    """Summarise a campaign in a line."""
    binding_outcomes: Counter[str] = Counter()
    faults: Counter[str] = Counter()
    for one in lives:
        binding_outcomes.update(one.binding_outcomes)
        faults.update(one.faults)
    broken = [f"seed {one.seed}: {problem}" for one in lives for problem in one.problems]
    return (
        f"{len(lives)} lives, {sum(one.placements for one in lives)} placements, {sum(one.events for one in lives)} "
        f"events with equal digests, {sum(faults.values())} faults; {dict(binding_outcomes)}; "
        f"{len(broken)} broken promises{': ' + broken[0] if broken else ''}"
    )


def main() -> int:
    """Exit 1 for a broken promise."""
    parser = argparse.ArgumentParser(prog="python -m e2e.lockstep", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--placements", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--file", type=Path, help="a line for each life; goes on where it ends")
    arguments = parser.parse_args()
    lives = campaign(arguments.placements, arguments.seed, arguments.file)
    print(summary(lives))
    return int(any(one.problems for one in lives))


if __name__ == "__main__":
    sys.exit(main())
