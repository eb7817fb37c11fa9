"""The model places every pod that first fit places, which sees every node."""

from __future__ import annotations

from random import Random

import pytest
from e2e.lockstep import kinds

from podslice.api.pod.spec import Pod
from podslice.cluster.model.model import ClusterModel, ModelLimits
from podslice.node.node import Node
from tests.conftest import make_pod

NODES = 5
SIZES = (1, 2, 2, 3, 4, 4, 6, 8, 8, 10, 12, 14)


def fitting(like: Node, r: Random) -> list[tuple[str, Pod]]:
    """Pods that first fit places, one after the other, up to 85 % of all CPUs."""
    nodes = [Node.of(like.rules, like.state) for _ in range(NODES)]
    left, found = 0.85 * NODES * len(like.assignable_cpus), []
    while True:
        size, uid = r.choice(SIZES), f"p{len(found)}"
        pod = make_pod(uid, ("c", str(size)))
        left -= size
        if left < 0 or not any(node.admit(pod).admitted for node in nodes):
            return found
        found.append((uid, pod))


@pytest.mark.parametrize("kind", range(4))
def test_what_first_fit_places(kind: int) -> None:
    """Every pod of loads that first fit places, up to 85 % of all CPUs, is sent to a node that takes it. (To the
    last CPU neither is always the better one.)"""
    like = kinds()[kind]
    for seed in range(5):
        model = ClusterModel(ModelLimits(best=1))
        nodes = {f"n{number}": Node.of(like.rules, like.state) for number in range(NODES)}
        for name, node in nodes.items():
            model.add_node(name, node.rules, node.state)
        load = fitting(like, Random(seed))
        assert len(load) > 10
        for uid, pod in load:
            name = model.choose(pod, 0.0)
            assert name, (seed, uid)
            assert not model.bind(uid, name, 0.0, pod).error
            assert nodes[name].admit(pod).admitted
            assert model.apply_admission(name, uid, nodes[name].state, 0.0).kind == "agreed"
