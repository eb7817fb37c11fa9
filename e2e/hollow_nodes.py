"""Nodes without machines: each decides with the real core, keeps a real journal and writes the status of its pods.

There is no kubelet, no runtime and no cgroup. One watch of all pods serves all nodes of a process; a pod that is bound
to one of them is admitted or refused by its core, and marked Running or Failed as a kubelet would. Events reach the
service as bytes over a line that can be made to lose and double them.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import msgspec

from podslice.api.pod.spec import Pod
from podslice.cluster.apiclient import STRATEGIC_MERGE
from podslice.cluster.journal.sources import JournalEvents, Unproven
from podslice.config.kubelet import KubeletConfig
from podslice.machine.model import Machine
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.decision import Decision
from podslice.node.holding import Holding, holding_of
from podslice.node.node import Node
from podslice.node.state import NodeState
from podslice.replica.events import PlanOutcome, Stamped, decode, encode
from podslice.replica.journal import Journal
from podslice.replica.planned_admission import admit_as_planned
from podslice.replica.replica import Replica
from podslice.replica.rulebook import Rulebook
from podslice.service.answers import ApiError
from podslice.service.clusterobjects import ScheduledPod
from podslice.service.http.apiconnection import AnswerError, ApiConnection
from podslice.values.cpuset import CPUSet

VERSION = "hollow"
_RUNS = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
"""Without being ready a pod would not count for budgets of disruption."""
_TRIES = 20
"""Of a status, as a kubelet tries again."""
MACHINE = "pack:2 numa:2(memory=64GiB) core:8 pu:2"
"""64 CPUs on four NUMA nodes."""


def node_rules(machine: Machine | None = None) -> Node:
    """Return the node that all others are copies of."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy="single-numa-node",
        topology_manager_scope="pod",
        eviction_hard={},
        max_pods=250,
    )
    return Node(machine or from_synthetic(MACHINE), config)


class Fault(NamedTuple):
    """Faults of the connection: every n-th event is lost, or delivered twice. 0 for none."""

    lose: int = 0
    double: int = 0


class NodeLine:
    """One node's replica at the service; `agrees` after the latest event or look."""

    def __init__(self, replica: Replica) -> None:
        self.replica = replica


class HollowJournals:
    """The service's side: replicas fed by `feed`. A replica requests missing events from `source`."""

    def __init__(self, source: Callable[[str, int, int, bool], Iterable[bytes]]) -> None:
        self.nodes: dict[str, NodeLine] = {}
        self.events = JournalEvents()
        self.fault = Fault()
        self.outcomes: Counter[str] = Counter()
        self._source = source
        self._rulebook = Rulebook()
        self._count = 0

    def restart(self) -> None:
        """Forget every node and every listener, as when the service ends."""
        self.nodes.clear()
        self.events = JournalEvents()

    def find_unproven(self, node: str) -> Unproven:
        """Return why the digests do not match."""
        line = self.nodes.get(node)
        if line is None:
            return "noStream"
        return "" if line.replica.proven else "outOfStep"

    def silence(self) -> float:
        """Deliver events at once."""
        return 0.0

    def send_plan(self, node: str, plan: object) -> bool:
        """Let these nodes decide on their own."""
        return node in self.nodes

    def forget(self, node: str) -> None:
        self.nodes.pop(node, None)

    def feed(self, name: str, data: bytes) -> None:
        """Deliver an event, or lose it, or deliver it twice."""
        self._count += 1
        if self.fault.lose and self._count % self.fault.lose == 0:
            self.outcomes["lost on the way"] += 1
            return
        self._take(name, data)
        if self.fault.double and self._count % self.fault.double == 0:
            self._take(name, data)

    def _take(self, name: str, data: bytes) -> None:
        line = self.nodes.get(name)
        if line is None:
            line = self.nodes[name] = NodeLine(Replica(self._rulebook, {VERSION}))
        stamped = decode(data)
        applied = line.replica.apply(stamped)
        self.outcomes[applied.outcome] += 1
        self.events.applied(name, stamped, applied)

    def catch_up(self, names: Iterable[str]) -> None:
        """Handle an agent's beat: a replica that is behind gets the missing events."""
        for name in names:
            line = self.nodes.get(name)
            epoch, sequence, whole = (0, -1, True)
            if line is not None:
                wanted = line.replica.missing
                epoch, sequence, whole = wanted or (line.replica.epoch, line.replica.sequence, False)
            for data in self._source(name, epoch, sequence, whole):
                self._take(name, data)


class HollowNode:
    """One node's core and journal."""

    def __init__(self, name: str, like: Node, epoch: int) -> None:
        self.name = name
        self.node = Node.of(like.rules, like.state)
        self.journal = Journal(self.node.rules, self.node.state, epoch=epoch, version=VERSION)

    def admit(self, pod: Pod) -> tuple[str, Stamped]:
        """Decide on a pod. Returns why the core refuses it (empty: admitted), and the event."""
        before = self.node.state
        decision = self.node.admit(pod)
        if decision.admitted:
            return "", self.journal.record_admission(self.node.rules, before, self.node.state, pod)
        return self._record_refusal(before, pod, decision)

    def admit_as_planned(self, pod: Pod, plan: Holding) -> tuple[str, Stamped]:
        """Decide with a plan, which is followed where that keeps every promise."""
        before = self.node.state
        found = admit_as_planned(self.node, pod, plan)
        if not found.decision.admitted:
            return self._record_refusal(before, pod, found.decision)
        same = holding_of(self.node.state, pod.metadata.uid) == plan
        plan_outcome: PlanOutcome = "honoured" if found.moved else "agreed" if same else "declined"
        return "", self.journal.record_admission(self.node.rules, before, self.node.state, pod, plan=plan_outcome)

    def _record_refusal(self, before: NodeState, pod: Pod, decision: Decision) -> tuple[str, Stamped]:
        reason, message = decision.reason, decision.message
        stamped = self.journal.record_refusal(
            self.node.rules, before, self.node.state, pod, reason=reason, message=message
        )
        return f"{reason}: {message}", stamped

    def remove(self, uid: str) -> Stamped:
        """Remove a pod."""
        before = self.node.state
        self.node.remove(uid)
        return self.journal.record_removal(self.node.rules, before, self.node.state, uid)

    def restart(self) -> None:
        """Begin another epoch, as a restarted agent does."""
        old = self.journal
        self.journal = Journal(self.node.rules, self.node.state, epoch=old.epoch + 1_000_000, version=VERSION)

    @property
    def free(self) -> int:
        """CPUs that could still be given to containers."""
        return len(self.node.assignable_cpus)

    def doubly_owned(self) -> CPUSet:
        """Return CPUs with more than one owner, of which there must be none."""
        seen = twice = 0
        for containers in self.node.state.cpu.assignments.values():
            for cpus in containers.values():
                twice |= seen & cpus
                seen |= cpus
        return CPUSet.from_bits(twice | seen & self.node.state.cpu.default)


class HollowNodes:
    """All nodes of this process. `send` takes each event as bytes; `refused` are the nodes' own refusals."""

    def __init__(self, names: Iterable[str], connection: ApiConnection | None, *, like: Node | None = None) -> None:
        like = like or node_rules()
        self.nodes = {name: HollowNode(name, like, number + 1) for number, name in enumerate(names)}
        self.send: Callable[[str, bytes], None] = lambda name, data: None
        self.admitted = 0
        self.refused: list[str] = []
        self.seconds = 0.0
        """Processor seconds of the nodes' decisions and journals."""
        self._connection = connection
        self.runs: dict[str, str] = {}
        """Nodes by UID of the pods that run."""
        self._writes = asyncio.Semaphore(8)
        self._tasks: set[asyncio.Task[None]] = set()

    def source(self, name: str, epoch: int, sequence: int, whole: bool) -> list[bytes]:
        """Return the events that a replica with this position misses."""
        journal = self.nodes[name].journal
        events = (journal.whole_state(),) if whole else journal.events_after(epoch, sequence)
        return [encode(stamped) for stamped in events]

    def pod_changed(self, old: ScheduledPod | None, new: ScheduledPod | None) -> None:
        """Take a change of a pod from the watch of all pods."""
        if new is None or new.ended or new.deleting:
            gone = new or old
            name = "" if gone is None else self.runs.pop(gone.uid, "")
            if gone is not None and name:
                began = time.thread_time()
                data = encode(self.nodes[name].remove(gone.uid))
                self.seconds += time.thread_time() - began
                self.send(name, data)
            return
        node = self.nodes.get(new.node)
        if node is None or new.uid in self.runs or (old is not None and old.node):
            return
        began = time.thread_time()
        why, stamped = node.admit(new.pod)
        data = encode(stamped)
        self.seconds += time.thread_time() - began
        self.send(node.name, data)
        if not why:
            self.admitted += 1
            self.runs[new.uid] = node.name
        else:
            self.refused.append(f"{new.name} on {node.name}: {why}")
        self._write(new, _RUNS if not why else {"phase": "Failed", "reason": why.partition(":")[0]})

    def _write(self, pod: ScheduledPod, status: dict[str, Any]) -> None:
        if self._connection is not None:
            task = asyncio.ensure_future(self._patch(self._connection, pod, status))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _patch(self, connection: ApiConnection, pod: ScheduledPod, status: dict[str, Any]) -> None:
        path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/status"
        body = msgspec.json.encode({"metadata": {"uid": pod.uid}, "status": status})
        for _ in range(_TRIES):
            async with self._writes:
                try:
                    return await connection.send("PATCH", path, body, kind=STRATEGIC_MERGE)
                except AnswerError:
                    return None
                except ApiError:
                    await asyncio.sleep(0.5)
        raise ApiError(f"{path}: no answer, {_TRIES} times")

    async def settle(self) -> None:
        """Wait until every pending status is written."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
