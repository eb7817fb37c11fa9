"""Nodes that refused such pods and take them now: all of them are returned, each once, and no others."""

from __future__ import annotations

from random import Random

import pytest

from podslice import Node
from podslice.cluster.model.model import ClusterModel, ModelLimits
from podslice.cluster.model.openings import Openings
from podslice.replica.signature import Signature
from tests.cluster.model.test_holds import single
from tests.conftest import make_pod

NAMES = [f"n{number}" for number in range(6)]
WANTED = make_pod("wanted", ("c", "6"))


class Life:
    """A model that changes in every way, and the nodes that refused as far as they were asked."""

    def __init__(self, seed: int) -> None:
        self.draw, self.now = Random(seed), 0.0
        self.model = ClusterModel(ModelLimits(columns=1, hold=5.0))
        self.nodes: dict[str, Node] = {}
        self.signature: Signature = self.model.classes.signature(WANTED)
        self.openings = Openings(self.model.verdicts, self.signature)
        self.refusing: set[str] = set()
        self.pods = 0

    def takes(self) -> set[str]:
        """Those that take such a pod, one asked after the other."""
        return {name for name, cause in self.model.verdicts.ask_each(self.signature, NAMES) if not cause}

    def ask(self) -> None:
        """Have the scheduler filter some nodes, and record those that refuse."""
        asked = self.draw.sample(NAMES, self.draw.randint(1, len(NAMES)))
        refused = [name for name in asked if name not in self.takes()]
        self.refusing.update(refused)
        self.openings.record_refusals(refused)

    def step(self) -> None:
        """Anything that may happen to a node, and nothing sometimes."""
        self.now += 1.0
        name, model = self.draw.choice(NAMES), self.model
        if not model.has_node(name):
            node = self.nodes[name] = single()
            model.add_node(name, node.rules, node.state)
            return
        node = self.nodes[name]
        self.pods += 1
        match self.draw.randrange(7):
            case 0:
                model.remove_node(name)
                self.refusing.discard(name)
            case 1 | 2:
                node.admit(make_pod(f"p{self.pods}", ("c", str(self.draw.choice((3, 5, 7))))))
                model.apply_change(name, node.state)
            case 3 if node.state.cpu.assignments:
                node.remove(self.draw.choice(list(node.state.cpu.assignments)))
                model.apply_change(name, node.state)
            case 4:
                model.confirm_node(name, confirmed=not model.node(name).confirmed)
            case 5:
                model.filter(make_pod(f"h{self.pods}", ("c", "6")), [name], self.now)
            case 6:
                model.verdicts.distrust(self.signature, model.node(name), self.now - 57.0)
        model.expire(self.now)

    def look(self) -> set[str]:
        """Return the changed nodes that take such a pod; all of them must have refused before."""
        told = self.openings.take_changed()
        assert len(set(told)) == len(told)
        assert set(told) <= self.refusing
        found = {name for name, cause in self.model.verdicts.ask_each(self.signature, told) if not cause}
        self.openings.record_refusals([name for name in told if name not in found])
        return found


@pytest.mark.parametrize("seed", range(8))
def test_all_that_opened(seed: int) -> None:
    life = Life(seed)
    seen = 0
    for _ in range(300):
        life.step()
        if life.draw.random() < 0.4:
            life.ask()
        if life.draw.random() < 0.5:
            found = life.look()
            assert found == life.takes() & life.refusing
            life.refusing -= found
            seen += len(found)
    assert seen > 20


def test_nodes_put_back_come_again() -> None:
    """Nodes that were put back are returned again, though they have not changed since."""
    life = Life(0)
    node = life.nodes["n0"] = single()
    life.openings.record_refusals(NAMES)
    assert life.openings.take_changed() == []
    life.model.add_node("n0", node.rules, node.state)
    assert life.openings.has_changes
    assert life.openings.take_changed() == ["n0"]
    assert (life.openings.has_changes, life.openings.take_changed()) == (False, [])
    life.openings.retry(["n0"])
    assert life.openings.take_changed() == ["n0"]
