"""The lines in the picture of a refused pod are true: need, free, short, and who has the rest."""

from __future__ import annotations

import re

import pytest

from podslice.advise.explain.explain import explain_each
from podslice.advise.explain.obstacles import MOST_REFUSED, with_obstacles
from podslice.render.picture import picture_of
from tests.advise.explain.random_nodes import refusals

_CPUS = re.compile(r"Needs (\d+) CPUs?, (?:(\d+) free: (?:(\d+) short|enough)|has only (\d+) in all)$")
_TAKEN = re.compile(r"\((\d+)\)")


@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
def test_amounts_are_those_of_the_node(profile: str) -> None:
    """On random nodes: what is short is the need less what is free, and with what is taken that is the whole node."""
    seen = 0
    for setup, pod in (found for seed in range(80) for found in refusals(seed, profile)):
        (one,) = explain_each(setup.node(), [pod], fixes=False)
        view = one.before
        picture = with_obstacles(picture_of(view), view, [one.explanation])
        assert picture.refusals
        assert picture.refusals[0].startswith(f"{one.explanation.trace.namespace}/{one.explanation.trace.name} is ")
        for socket in picture.sockets:
            for node in socket.nodes:
                for place, want in enumerate(node.wants):
                    found = _CPUS.match(want.text)
                    if found is None:
                        continue
                    need, free, short, capacity = (int(part) if part else None for part in found.groups())
                    seen += short is not None
                    if capacity is not None:
                        assert need is not None
                        assert capacity < need
                        continue
                    assert free is not None
                    assert need is not None
                    assert (short or 0) == max(0, need - free)
                    assert want.short == (short is not None)
                    if free < need and place + 1 < len(node.wants) and "more" not in node.wants[place + 1].text:
                        taken = sum(map(int, _TAKEN.findall(node.wants[place + 1].text)))
                        assert taken + free == node.cpus.bit_count(), (want, node.wants[place + 1])
    assert seen > 20


def test_many_refused_pods_are_named() -> None:
    """The picture has lines about four pods at most; the others are named above it."""
    setup, pod = next(found for seed in range(80) for found in refusals(seed))
    node = setup.node()
    (one,) = explain_each(node, [pod], fixes=False)
    picture = with_obstacles(picture_of(one.before), one.before, [one.explanation] * (MOST_REFUSED + 2))
    assert len(picture.refusals) == MOST_REFUSED + 1
    assert picture.refusals[-1].startswith("Refused too: ")
