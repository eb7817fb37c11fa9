"""Kinds of nodes and classes of states, which share answers.

A kind is a machine, a configuration and its devices. Nodes of a kind in the same state, held pods included, are one
class (`node.answers`): one immutable object with a number. The answer of a class to a signature is remembered, refusals
too. So placing a pod and removing it again move a node between known classes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.cluster.model.needs import PodNeeds, needs_of
from podslice.config.mixed import make_admission_pod
from podslice.machine.memory import NUMANodeState
from podslice.node.answers import (
    AnswerMemo,
    FleetState,
    NamedAnswers,
    NodeAnswer,
    NodeAnswers,
    StateNumbers,
    ValueAnswers,
    is_plain,
)
from podslice.node.devices.pool import DevicePool
from podslice.node.kubelet import Kubelet
from podslice.node.rules import NodeRules
from podslice.node.state import NodeState
from podslice.replica.signature import Signature, Signatures
from podslice.scheduling.predicates import PODS, NodeObject, amounts
from podslice.values.cpuset import Bits

_MEMORY = "memory"
_MOST_SIGNATURES = 1 << 60
"""More than there can be."""
ANSWER_BYTES = 4096
"""Most bytes of a remembered answer, with the state that it keeps."""
KindKey: TypeAlias = "tuple[object, ...]"


class FreeCounts(NamedTuple):
    """Free resources of a state, for counted conditions: exclusive CPUs and bytes by NUMA node, devices by resource."""

    cpus: tuple[int, ...]
    memory: tuple[int, ...]
    devices: Mapping[str, int]


class NodeKind:
    """A kind of node. `nodes` counts its nodes, `number` is its place among all kinds, `room` the allocatable amounts
    by resource."""

    def __init__(self, key: KindKey, rules: NodeRules, state: NodeState, answers: NodeAnswers) -> None:
        self.key = key
        self.number = -1
        self.nodes = 0
        self.rules = rules
        self.pools = state.device.pools
        self.answers = answers
        resources = Kubelet.of(rules, state).node_resources()
        self.room = amounts(resources.allocatable)
        self._node = NodeObject(resources.allocatable, amounts=self.room)
        self._needs: dict[int, PodNeeds] = {}
        zones = rules.cpu.topology.numa_nodes if rules.cpu.static else {}
        self._ids = tuple(sorted({*zones, *state.memory.machine_state}))
        self._zones: tuple[Bits, ...] = tuple(zones.get(one, 0) for one in self._ids)

    def needs(self, signature: Signature) -> PodNeeds:
        """Return the least that such pods need of a node of this kind."""
        known = self._needs.get(signature.number)
        if known is None:
            rules = self.rules
            pod = make_admission_pod(
                rules.policy, default_pod(signature.pod, rules.gates), rules.gates, release=rules.release
            )
            known = self._needs[signature.number] = needs_of(self.rules, self.pools, self._node, pod)
        return known

    def forget(self, signature: Signature) -> None:
        """Drop what is remembered of a signature."""
        self._needs.pop(signature.number, None)
        if isinstance(self.answers, ValueAnswers):
            self.answers.forget(signature.number)

    def counts(self, state: FleetState) -> FreeCounts:
        """Count the free resources of a state."""
        free = state.cpus & ~self.rules.cpu.reserved
        cpus = tuple([(free & zone).bit_count() for zone in self._zones])
        memory: tuple[int, ...] = ()
        if self.rules.memory.static:
            memory = tuple([_free(state.machine.get(one)) for one in self._ids])
        devices = {
            name: (pool.healthy & ~used).bit_count()
            for (name, pool), used in zip(self.pools.items(), state.used, strict=True)
        }
        return FreeCounts(cpus, memory, devices)

    def sums(self, state: NodeState) -> dict[str, int]:
        """Return the requests of all pods of a node, by resource; empty without the scheduler's predicates."""
        if not self.rules.predicates:
            return {}
        seen = state.seen
        # The sums of `seen` hold as long as the pods are the same object.
        if seen.active is state.pods:
            return {**seen.used, PODS: len(seen.pods)}
        others = Kubelet.of(self.rules, state).others()
        return {**others.used, PODS: len(others.pods)}


def _free(ledger: NUMANodeState | None) -> int:
    """Return the free bytes of ordinary memory on a NUMA node."""
    table = None if ledger is None else (ledger.memory_map or {}).get(_MEMORY)
    return 0 if table is None else table.free


class StateClasses:
    """All kinds, their classes, and remembered answers. `memory`: most bytes of these; `signatures`: most
    signatures."""

    def __init__(self, *, memory: int, signatures: int) -> None:
        self.signatures = Signatures(signatures)
        self.kinds: dict[KindKey, NodeKind] = {}
        self._numbers = StateNumbers()
        self.numbered: list[NodeKind] = []
        """Kinds by number; one without nodes keeps its place until the number is used again."""
        self._answers: list[NodeAnswers] = []
        self._free: list[int] = []
        room = max(1024, memory // ANSWER_BYTES)
        self.answers = AnswerMemo(self._answers, _MOST_SIGNATURES, room=room, verify=0, queries_only=True)

    def join(self, rules: NodeRules, state: NodeState) -> NodeKind:
        """Count a node as one of its kind, and return the kind. Nodes with the same rules object and equal devices are
        of one kind."""
        plain = is_plain(rules, state)
        # By identity: the rulebook gives equal setups one rules object.
        key = (id(rules), plain, tuple((name, _pool_key(pool)) for name, pool in state.device.pools.items()))
        kind = self.kinds.get(key)
        if kind is None:
            made = ValueAnswers if plain else NamedAnswers
            answers: NodeAnswers = made(rules, state, self.signatures, self._numbers)
            kind = self.kinds[key] = NodeKind(key, rules, state, answers)
            self._place(kind)
        kind.nodes += 1
        return kind

    @property
    def binds_memory(self) -> bool:
        """Whether any node assigns memory by NUMA node (Memory Manager policy Static)."""
        return any(kind.rules.memory.static for kind in self.kinds.values())

    def _place(self, kind: NodeKind) -> None:
        if self._free:
            kind.number = self._free.pop()
            self._answers[kind.number], self.numbered[kind.number] = kind.answers, kind
            return
        kind.number = len(self._answers)
        self._answers.append(kind.answers)
        self.numbered.append(kind)

    def leave(self, kind: NodeKind) -> None:
        """Count a node as one of this kind no more."""
        kind.nodes -= 1
        if not kind.nodes:
            del self.kinds[kind.key]
            self._free.append(kind.number)

    def signature(self, pod: Pod) -> Signature:
        """Return the signature of a pod."""
        found = self.signatures.of(pod)
        for old in self.signatures.drop_surplus():
            for kind in self.kinds.values():
                kind.forget(old)
        return found

    def admit(self, kind: NodeKind, state: FleetState, signature: Signature) -> NodeAnswer:
        """Return the answer of a node of this kind in this state to such a pod."""
        return self.answers.admit(kind.number, state, signature.number, 0)


def _pool_key(pool: DevicePool) -> tuple[object, ...]:
    """Return the parts of a pool that decisions read."""
    plugin = None if pool.plugin is None else (type(pool.plugin), pool.plugin.options)
    listed = pool.ids, pool.known, pool.with_topology, pool.healthy, pool.unhealthy, pool.registered
    return (*listed, pool.machine_nodes, tuple(pool.numa.items()), plugin)
