"""Memory of the service for an agent that sends ever other machines and pods, with the real bounds."""

from __future__ import annotations

import gc
import json
import tracemalloc
import weakref

import msgspec
import pytest
from e2e.hollow_nodes import HollowNode, node_rules

from podslice.machine.readers.synthetic import from_synthetic
from podslice.replica.events import WholeState
from podslice.replica.rulebook import Rulebook
from podslice.replica.shared_values import SharedValues
from podslice.replica.stream_messages import encode_message

_MACHINE = "pack:4 numa:2(memory={}kiB) core:16 pu:2"


@pytest.mark.slow
def test_rules_go_with_their_replica() -> None:
    """Of a hundred machines that were sent the rules of the last few are kept, and those that a replica uses."""
    rulebook = Rulebook(kept=4)
    seen = []
    for number in range(12):
        node = HollowNode("n", node_rules(from_synthetic(_MACHINE.format((8 << 20) + 4 * (number + 1)))), 7)
        event = rulebook.common.decode(encode_message(node.journal.whole_state())).event
        assert isinstance(event, WholeState)
        rules = rulebook.rules(event.setup)
        seen.append(weakref.ref(rules))
        if number == 0:
            held = rules
        del rules, node, event
    gc.collect()
    alive = [number for number, one in enumerate(seen) if one() is not None]
    assert alive == [0, 8, 9, 10, 11]
    assert held is seen[0]()


@pytest.mark.slow
def test_specifications_have_a_budget() -> None:
    """Many specifications of nearly 64 KiB leave no more than the budget of them."""
    common = SharedValues()
    tracemalloc.start()
    for number in range(80):
        spec = {"containers": [
            {"name": f"c{at}", "resources": {"limits": {"cpu": f"{at + number * 1000}m"}}} for at in range(900)
        ]}  # fmt: skip
        common._spec(msgspec.Raw(json.dumps(spec, separators=(",", ":")).encode()))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(common._by_id) == len(common._specs._known) < 50
    assert kept < 40 << 20
