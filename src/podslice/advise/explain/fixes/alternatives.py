"""What a node could become: without some pods, with another configuration or machine, empty, drained and filled again.

Each alternative is built once, when it is first asked for, and serves all pods after that: explaining a hundred refused
pods restarts a kubelet as often as explaining one. Whoever changes the node itself must make new alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import msgspec

from podslice.advise.explain.fixes.bench import Asking, Bench, Load
from podslice.advise.explain.fixes.changes import Remove, admits
from podslice.advise.trial.trial import Trial
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.machine.model import Machine
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, union
from podslice.values.errors import PodsliceError
from podslice.values.quantity import ZERO

_MOST_KEPT = 512


class GivenUpError(PodsliceError):
    """Nobody waits for fixes any more."""


class Alternatives:
    """The alternatives of one node, which must stay as it is while they are used. `node` is a copy of it, which
    nobody may change. `given_up` is asked before every trial; once it is true there are no more."""

    def __init__(self, node: Trial, given_up: Callable[[], bool] | None = None) -> None:
        self.node = node.copy()
        self._given_up = given_up
        self._recorder: Trial | None = None
        self._without: dict[frozenset[str], Bench] = {}
        self._kept: dict[tuple[str, bytes, int], Bench | None] = {}
        self._machines: dict[object, Machine | None] = {}
        self._loads: dict[int, Load] = {}
        self._held: dict[frozenset[str], Bits] = {}

    def asking(self, pod: Pod) -> Asking:
        """A pod as the benches take it. Raises `GivenUpError`."""
        if self._given_up is not None and self._given_up():
            raise GivenUpError
        return Asking.of(pod, self.view)

    @cached_property
    def view(self) -> NodeView:
        """The node."""
        return self.node.view

    @cached_property
    def here(self) -> Bench:
        """The node as it is."""
        return Bench(self.node.copy())

    @cached_property
    def running(self) -> tuple[Asking, ...]:
        """The pods on the node."""
        return tuple(Asking.of(pod.spec, self.view) for pod in self.view.pods.values())

    @property
    def recorder(self) -> Trial:
        """A copy to admit pods on for real; one that refused a pod is as good as new."""
        if self._recorder is None:
            self._recorder = self.node.copy()
        return self._recorder

    def forget_recorder(self) -> None:
        """The copy has admitted a pod: the next one needs another."""
        self._recorder = None

    def room(self, pod: Pod, name: str) -> int:
        """What the whole node has left for a pod as the general predicates count it, in bytes or pieces: allocatable
        less what the other pods request; negative where they request more."""
        allocatable = self.view.allocatable.get(name, ZERO).value()
        return allocatable - self.node.others(pod.metadata.uid).used.get(name, 0)

    # Other pods

    def without(self, uids: Sequence[str], asking: Asking) -> bool:
        """True when the pod is admitted once these pods have left."""
        key = frozenset(uids)
        bench = self._without.get(key)
        if bench is None:
            if self._frees_too_little(key, asking):
                return False
            bench = self._without_pods(key)
        return bench.admits(asking)

    def comes_back(self, uids: Sequence[str], asking: Asking) -> bool:
        """True when the pods are admitted again after the pod, in order."""
        return admits(self.node, asking.pod, Remove(tuple(uids), back=True))

    def together(self, asking: Asking) -> bool:
        """False when the node is too small for the pod and all that runs here, wherever they are."""
        empty = self._other("empty", self.view.config, self.view.machine)
        return empty is None or not empty.lacks(asking, self._load(empty))

    def _without_pods(self, uids: frozenset[str]) -> Bench:
        copy = self.node.copy()
        copy.remove(*uids)
        if len(self._without) >= _MOST_KEPT:
            self._without.clear()
        bench = self._without[uids] = Bench(copy)
        return bench

    def _frees_too_little(self, uids: frozenset[str], asking: Asking) -> bool:
        """True when the pods own too few CPUs, or on the wrong NUMA nodes, for the pod to have enough without them."""
        return self.here.misplaces(asking, self._freed(uids))

    def _freed(self, uids: frozenset[str]) -> Bits:
        """CPUs that these pods own."""
        known = self._held.get(uids)
        if known is None:
            known = self._held[uids] = union(self.view.owned_by(uid) for uid in uids)
        return known

    # Other nodes

    def machine(self, key: object, make: Callable[[], Machine | None]) -> Machine | None:
        """A machine like this node's with something changed; the same object for the same key."""
        if key not in self._machines:
            self._machines[key] = make()
        return self._machines[key]

    def empty(self, asking: Asking, config: KubeletConfig, machine: Machine) -> bool:
        """True when an empty node with this configuration and machine admits the pod."""
        bench = self._other("empty", config, machine)
        return bench is not None and bench.admits(asking)

    def drained(self, asking: Asking, config: KubeletConfig, machine: Machine) -> bool:
        """True when the pod is admitted after this node's pods came back to it in order, drained and restarted."""
        return self._tried("drained", asking, config, machine)

    def restarted(self, asking: Asking, config: KubeletConfig, machine: Machine) -> bool:
        """True when the pod is admitted after a restart of the kubelet that all running pods survived."""
        return self._tried("restarted", asking, config, machine)

    def _tried(self, how: str, asking: Asking, config: KubeletConfig, machine: Machine) -> bool:
        empty = self._other("empty", config, machine)
        if empty is None or empty.lacks(asking, self._load(empty)):
            return False
        bench = self._other(how, config, machine)
        return bench is not None and bench.admits(asking)

    def _load(self, empty: Bench) -> Load:
        """What the running pods hold at least on an alternative."""
        known = self._loads.get(id(empty))
        if known is None:
            known = self._loads[id(empty)] = empty.load(self.running)
        return known

    def _other(self, how: str, config: KubeletConfig, machine: Machine) -> Bench | None:
        key = (how, msgspec.json.encode(config), id(machine))
        if key not in self._kept:
            self._kept[key] = self._built(how, config, machine)
        return self._kept[key]

    def _built(self, how: str, config: KubeletConfig, machine: Machine) -> Bench | None:
        if how == "restarted":
            node = self.node.restarted(machine, config)
        else:
            pods = [one.pod for one in self.running] if how == "drained" else ()
            node = self.node.fresh(machine, config, pods)
        return None if node is None else Bench(node)
