"""Lives of small drawn clusters: pods are chosen, filtered, bound, started in any order, deleted and removed.

`nice python -m tests.cluster.model.lives --placements 100000 --seed 7` lives as many more as you like. It prints what
nodes said of the pods that were placed, and the seed of every life in which one said something else than was expected.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from random import Random

from podslice import Pod
from podslice.cluster.model.holds import PlanPolicy
from podslice.cluster.model.model import ClusterModel
from podslice.node.holding import Holding
from podslice.replica.planned_admission import admit_as_planned
from tests.cluster.model.drawn import DrawnCluster, named_pod

POLICIES: tuple[PlanPolicy, ...] = ("compare", "honour", "observe")


class Life:
    """A life of a cluster: pods are chosen, filtered, bound, started in any order, deleted and removed. Kubelets decide
    by themselves (`compare`), with one pod at a time on its way (`observe`), or follow plans (`honour`)."""

    def __init__(self, seed: int, policy: PlanPolicy, profile: str) -> None:
        self.r = Random(seed)
        self.cluster = DrawnCluster(self.r, profile, nodes=3, policy=policy, fill=4)
        self.model = self.cluster.model
        self.policy = policy
        self.waiting: dict[str, Pod] = {}
        self.plans: dict[str, Holding] = {}
        self.bound: dict[str, tuple[str, Pod]] = {}
        self.binding_outcomes: Counter[str] = Counter()
        self.now = 0.0

    def step(self) -> None:
        self.now += self.r.choice([0.1, 1.0, 5.0])
        self.r.choices(
            [self.arrive, self.try_again, self.bind, self.start, self.remove, self.delete, self.restart],
            [8, 3, 8, 8, 3, 1, 0.3],
        )[0]()

    def arrive(self) -> None:
        pod = self.cluster.pod()
        if self.model.wants_exclusive(pod):
            self.waiting[pod.metadata.uid] = pod
            if self.r.random() < 0.5:
                self.model.choose(pod, self.now)
            self.ask(pod)

    def ask(self, pod: Pod) -> None:
        names = self.r.sample(list(self.cluster.nodes), self.r.randint(1, len(self.cluster.nodes)))
        found = self.model.filter(pod, names, self.now)
        if len(found.nodes) > 1:
            self.model.prioritize(pod, found.nodes, self.now)

    def try_again(self) -> None:
        if self.waiting:
            self.ask(self.r.choice(list(self.waiting.values())))

    def bind(self) -> None:
        held = [one for one in self.model.holds() if not one.bound]
        if held:
            one = self.r.choice(held)
            pod = self.waiting[one.uid]
            if not self.model.bind(one.uid, one.node, self.now, pod).error:
                self.bound[one.uid] = one.node, self.waiting.pop(one.uid)
                plan = self.model.plan(one.uid)
                assert plan is not None
                self.plans[one.uid] = plan

    def start(self) -> None:
        if not self.bound:
            return
        uid = self.r.choice(list(self.bound))
        name, pod = self.bound.pop(uid)
        node = self.cluster.nodes[name]
        plan = self.plans.pop(uid, None) if self.policy == "honour" else None
        told = (node.admit(pod) if plan is None else admit_as_planned(node, pod, plan).decision).admitted
        heard = self.model.apply_admission if told else self.model.apply_refusal
        self.binding_outcomes[heard(name, uid, node.state, self.now).kind] += 1

    def remove(self) -> None:
        """Remove a pod. Freed CPUs can change where a kubelet puts the next pods, so in these lives no pod leaves while
        others that are bound have yet to start."""
        name, node = self.r.choice(list(self.cluster.nodes.items()))
        if node.pods and not any(other == name for other, _ in self.bound.values()):
            uid = self.r.choice(node.pods)
            node.remove(uid)
            self.model.apply_removal(name, uid, node.state)

    def delete(self) -> None:
        if self.bound:
            uid = self.r.choice(list(self.bound))
            del self.bound[uid]
            self.model.apply_deletion(uid, self.now)

    def restart(self) -> None:
        """Restart the node's agent, which sends its state."""
        name, node = self.r.choice(list(self.cluster.nodes.items()))
        self.model.add_node(name, node.rules, node.state, policy=self.model.node(name).policy)

    def check(self) -> None:
        """Compare the model with one that is built from scratch."""
        truth = ClusterModel(self.model.limits)
        for name, node in self.cluster.nodes.items():
            truth.add_node(name, node.rules, node.state, policy=self.model.node(name).policy)
        for one in self.model.holds():
            truth.apply_assignment(named_pod(one.signature.pod, one.uid), one.node, self.now)
            truth.holds()[-1].plan = one.plan
            truth.apply_change(one.node, self.cluster.nodes[one.node].state)
        for name in self.cluster.nodes:
            mine, true = self.model.node(name), truth.node(name)
            assert list(mine.holds) == list(true.holds)
            assert mine.kind.counts(mine.base) == true.kind.counts(true.base)
            assert mine.kind.counts(mine.state) == true.kind.counts(true.state)
            assert (mine.state.cpus, mine.state.used) == (true.state.cpus, true.state.used)
            assert (self.model.verdicts.table.used[:, mine.row] >= 0).all()

    def end(self) -> None:
        """All that is bound starts, all that is held falls: the model is the nodes, and nothing is held."""
        while self.bound:
            self.start()
        self.now += 1000.0
        self.model.expire(self.now)
        assert self.model.holds() == ()
        for name, node in self.cluster.nodes.items():
            mine = self.model.node(name)
            assert mine.state is mine.base
            assert mine.state.cpus == node.state.cpu.default


def campaign(placements: int, seed: int) -> tuple[Counter[str], int]:
    """Lives until so many pods were placed: what nodes said of them, and how many lives it took."""
    binding_outcomes: Counter[str] = Counter()
    begun = seed
    while sum(binding_outcomes.values()) < placements:
        life = Life(seed, POLICIES[seed % len(POLICIES)], "podslice")
        for _ in range(200):
            life.step()
        life.check()
        life.end()
        binding_outcomes += life.binding_outcomes
        bad = life.binding_outcomes.keys() - {"agreed", "honoured"}
        if bad:
            print(f"seed {seed}, {life.policy}: {dict(life.binding_outcomes)}", flush=True)
        seed += 1
    return binding_outcomes, seed - begun


def main() -> int:
    """Exit 1 where any node said something else than was expected."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.model.lives", description=__doc__)
    parser.add_argument("--placements", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    told = parser.parse_args()
    binding_outcomes, lives = campaign(told.placements, told.seed)
    print(f"{sum(binding_outcomes.values())} placements in {lives} lives: {dict(binding_outcomes)}")
    return 0 if set(binding_outcomes) <= {"agreed", "honoured"} else 1


if __name__ == "__main__":
    sys.exit(main())
