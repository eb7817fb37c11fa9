"""Alternatives of a node: without some pods, with another configuration or machine, empty, drained and filled again.

Each alternative is built on first use and serves all later pods: explaining a hundred refused pods restarts a kubelet
as often as explaining one. A node that changes needs new alternatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from math import inf
from typing import TypeAlias

from podslice.advise.explain.fixes.bench import Bench, Load, PodNeeds, disruption
from podslice.advise.explain.fixes.fix import Edit
from podslice.advise.explain.fixes.shortages import Lack, Shortages
from podslice.advise.trial.trial import Trial
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.machine.model import Machine
from podslice.node.shared_pool import idle_cpus
from podslice.node.view import NodeView
from podslice.values.cpuset import Bits, union
from podslice.values.errors import PodsliceError
from podslice.values.quantity import ZERO
from podslice.values.releases.release import Release

Describe: TypeAlias = Callable[[KubeletConfig, KubeletConfig], tuple[tuple[Edit, ...], str]]
_MOST_KEPT = 512
_WHOLE_NODE = 10
"""Trials that one on a new copy of the node counts for."""


class GivenUpError(PodsliceError):
    """Raised when the caller no longer waits for fixes."""


class SearchEndedError(PodsliceError):
    """Raised when the trials for one pod are used up."""


class Alternatives:
    """The alternatives of one node, which must stay as it is while they are used. `node` is a copy of it, which must
    not be changed either. `given_up` is called before every trial; once it returns True, `GivenUpError` is raised.
    Once the trials that `begin` allows are used up, `SearchEndedError` is."""

    def __init__(self, node: Trial, given_up: Callable[[], bool] | None = None) -> None:
        self._most_tries: float = inf
        self._tries = 0
        self.node = node.copy()
        self._given_up = given_up
        self._recorder: Trial | None = None
        self._without: dict[frozenset[str], Bench] = {}
        self._kept: dict[tuple[str, int, int], Bench | None] = {}
        self._configs: dict[str, list[KubeletConfig]] = {}
        self._machines: dict[object, Machine | None] = {}
        self._loads: dict[int, Load] = {}
        self._held: dict[frozenset[str], Bits] = {}
        self._steps: dict[str, list[list[KubeletConfig]]] = {}
        self._edits: dict[int, tuple[tuple[Edit, ...], str]] = {}
        self._needs: dict[int, tuple[Pod, PodNeeds]] = {}
        self._lack: tuple[PodNeeds, Lack] | None = None
        self._in_release: dict[tuple[int, bool], Bench | None] = {}
        self._stale: dict[tuple[int, int], tuple[str, ...]] = {}

    def begin(self, most_tries: int) -> None:
        """Allow so many trials from now on."""
        self._most_tries, self._tries = most_tries, 0
        self._needs.clear()

    def _count(self, tries: int = 1) -> None:
        self._tries += tries
        if self._tries > self._most_tries:
            raise SearchEndedError

    def needs(self, pod: Pod) -> PodNeeds:
        """Return what a pod needs, as the benches take it. Raises `GivenUpError` and `SearchEndedError`."""
        if self._given_up is not None and self._given_up():
            raise GivenUpError
        self._count()
        # Edits of one pod are asked about again when their losses are found; the pod is kept with its id.
        known = self._needs.get(id(pod))
        if known is None:
            if len(self._needs) >= _MOST_KEPT:
                self._needs.clear()
            known = self._needs[id(pod)] = pod, PodNeeds.of(pod, self.view)
        return known[1]

    @cached_property
    def view(self) -> NodeView:
        """The node."""
        return self.node.view

    @cached_property
    def here(self) -> Bench:
        """A bench with the node as it is."""
        return Bench(self.node.copy())

    @cached_property
    def running(self) -> tuple[PodNeeds, ...]:
        """The pods on the node."""
        return tuple(PodNeeds.of(pod.spec, self.view) for pod in self.view.pods.values())

    @cached_property
    def least_disruptive(self) -> tuple[str, ...]:
        """The pods on the node, those first whose CPUs nothing uses any more, then by what losing them costs."""
        idle = {one.pod for one in idle_cpus(self.view)}
        pods = sorted((one.admission for one in self.running), key=disruption)
        return tuple(pod.uid for pod in sorted(pods, key=lambda pod: pod.uid not in idle))

    def lack(self, needs: PodNeeds) -> Lack:
        """Return what a pod lacks here; the sums are made once for a pod. They tell nothing of one that is here."""
        if needs.admission.uid in self.view.pods:
            return Lack({}, None)
        if self._lack is None or self._lack[0] is not needs:
            self._lack = needs, self.shortages.lack(needs)
        return self._lack[1]

    @cached_property
    def shortages(self) -> Shortages:
        """What the pods on the node would free."""
        return Shortages(self.view, self.running)

    @property
    def recorder(self) -> Trial:
        """A copy of the node to admit pods on; a copy that refused a pod is used again."""
        if self._recorder is None:
            self._recorder = self.node.copy()
        return self._recorder

    def forget_recorder(self) -> None:
        """Drop the copy, because it has admitted a pod: the next pod needs another."""
        self._recorder = None

    def room(self, pod: Pod, name: str) -> int:
        """Return how much the whole node has left for a pod as the general predicates count it, in bytes or pieces:
        allocatable minus what the other pods request; negative where they request more."""
        allocatable = self.view.allocatable.get(name, ZERO).value()
        return allocatable - self.node.others(pod.metadata.uid).used.get(name, 0)

    # Other pods

    def admits_without(self, uids: Sequence[str], needs: PodNeeds) -> bool:
        """Whether the pod is admitted once these pods have left."""
        self._count()
        key = frozenset(uids)
        bench = self._without.get(key)
        if bench is None:
            if self._frees_too_little(key, needs):
                return False
            bench = self._without_pods(key)
        return bench.admits(needs)

    def readmit(self, uids: Sequence[str], needs: PodNeeds) -> NodeView | None:
        """Return the node after the pods left and were admitted again after the pod, in order; None where one of them
        is not."""
        if len(uids) == 1 and not self._may_return(uids[0], needs):
            return None
        self._count(_WHOLE_NODE)
        copy = self.node.copy()
        leaving = [self.view.pods[uid].spec for uid in uids]
        copy.remove(*uids)
        return copy.view if all(map(copy.try_run, (needs.pod, *leaving))) else None

    def _may_return(self, uid: str, needs: PodNeeds) -> bool:
        """Whether the sums leave a place for the pod beside the one that needs this."""
        back = next((one for one in self.running if one.admission.uid == uid), None)
        sums = self.shortages
        return back is None or sums.may_return(uid, back, self.lack(needs))

    def has_room_for_all(self, needs: PodNeeds) -> bool:
        """Whether the sums leave room for the pod beside all that runs here, wherever it lies. True proves nothing."""
        empty = self._bench("empty", self.view.config, self.view.machine)
        return empty is None or not empty.is_too_small(needs, self._least_load(empty))

    def _without_pods(self, uids: frozenset[str]) -> Bench:
        copy = self.node.copy()
        copy.remove(*uids)
        # Each bench holds a copy of the node, so their number is bounded.
        if len(self._without) >= _MOST_KEPT:
            self._without.clear()
        bench = self._without[uids] = Bench(copy)
        return bench

    def _frees_too_little(self, uids: frozenset[str], needs: PodNeeds) -> bool:
        """Whether the pods own too few CPUs, or on the wrong NUMA nodes, for the pod to have enough without them."""
        return self.here.is_too_scattered(needs, self._owned_cpus(uids))

    def _owned_cpus(self, uids: frozenset[str]) -> Bits:
        """Return the CPUs that these pods own."""
        known = self._held.get(uids)
        if known is None:
            known = self._held[uids] = union(self.view.owned_by(uid) for uid in uids)
        return known

    # Other nodes

    def machine(self, key: object, make: Callable[[], Machine | None]) -> Machine | None:
        """Return a machine like this node's with something changed; the same object for the same key."""
        if key not in self._machines:
            self._machines[key] = make()
        return self._machines[key]

    def configs(self, key: str, make: Callable[[], Iterable[KubeletConfig]]) -> list[KubeletConfig]:
        """Return other configurations of this node; the same objects for the same key."""
        if key not in self._configs:
            self._configs[key] = list(make())
        return self._configs[key]

    def config_steps(self, key: str, make: Callable[[], Iterable[list[KubeletConfig]]]) -> list[list[KubeletConfig]]:
        """Return lists of ever larger changes of the configuration; the same objects for the same key."""
        if key not in self._steps:
            self._steps[key] = list(make())
        return self._steps[key]

    def edits(self, config: KubeletConfig, describe: Describe) -> tuple[tuple[Edit, ...], str]:
        """Return how a configuration of `configs` differs from this node's, in fields and words."""
        if id(config) not in self._edits:
            self._edits[id(config)] = describe(self.view.config, config)
        return self._edits[id(config)]

    def admits_empty(self, needs: PodNeeds, config: KubeletConfig, machine: Machine) -> bool:
        """Whether an empty node with this configuration and machine admits the pod."""
        bench = self._bench("empty", config, machine)
        return bench is not None and bench.admits(needs)

    def admits_drained(self, needs: PodNeeds, config: KubeletConfig, machine: Machine) -> bool:
        """Whether the pod is admitted after this node was drained and restarted, and its pods came back in order."""
        return self._admits_after("drained", needs, config, machine)

    def admits_restarted(self, needs: PodNeeds, config: KubeletConfig, machine: Machine) -> bool:
        """Whether the pod is admitted after a restart of the kubelet that all running pods survived."""
        return self._admits_after("restarted", needs, config, machine)

    def _admits_after(self, how: str, needs: PodNeeds, config: KubeletConfig, machine: Machine) -> bool:
        if (how, id(config), id(machine)) not in self._kept:
            empty = self._bench("empty", config, machine)
            # The sums on the empty node refuse most changes before a kubelet is restarted or pods come back to it.
            if empty is None or empty.is_too_small(needs, self._least_load(empty)):
                return False
        bench = self._bench(how, config, machine)
        return bench is not None and bench.admits(needs)

    def admits_in_release(self, needs: PodNeeds, release: Release) -> bool:
        """Whether the pod is admitted by a kubelet of another release, after the node's pods came back to it in
        order."""
        for pods in dict.fromkeys((False, bool(self.view.pods))):
            key = release.minor, pods
            if key not in self._in_release:
                running = [one.pod for one in self.running] if pods else ()
                node = self.node.fresh(self.view.machine, self.view.config, running, release)
                self._in_release[key] = None if node is None else Bench(node)
            bench = self._in_release[key]
            # Whom the empty node refuses, the one with all pods refuses too: it need not be filled.
            if bench is None or not bench.admits(needs):
                return False
        return True

    def stale_files(self, config: KubeletConfig, machine: Machine) -> tuple[str, ...]:
        """Return the state files on which a kubelet with this configuration and machine does not start once the node
        is drained."""
        key = id(config), id(machine)
        if key not in self._stale:
            self._stale[key] = self.node.stale_files(machine, config)
        return self._stale[key]

    def _least_load(self, empty: Bench) -> Load:
        """Return the least that the running pods hold on an alternative."""
        known = self._loads.get(id(empty))
        if known is None:
            known = self._loads[id(empty)] = empty.least_load(self.running)
        return known

    def _bench(self, how: str, config: KubeletConfig, machine: Machine) -> Bench | None:
        # Machines and configurations are compared by identity, which `machine` and `configs` guarantee; comparing
        # thousands of CPUs would cost more than a trial.
        key = (how, id(config), id(machine))
        self._count()
        if key not in self._kept:
            self._kept[key] = self._build(how, config, machine)
        return self._kept[key]

    def _build(self, how: str, config: KubeletConfig, machine: Machine) -> Bench | None:
        if how == "restarted":
            node = self.node.restart(machine, config)
        else:
            pods = [one.pod for one in self.running] if how == "drained" else ()
            node = self.node.fresh(machine, config, pods)
        return None if node is None else Bench(node)
