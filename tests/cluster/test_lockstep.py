"""Lives of clusters in lockstep: a short part of the campaign in `e2e.lockstep`."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.lockstep import Life, campaign, summary


@pytest.mark.slow
@pytest.mark.parametrize("seed", [7, 8, 10, 1000039, 26113013])
def test_no_promise_is_broken(seed: int) -> None:
    """Whatever fails in a life, digests meet after every event, no node refuses a pod and nothing is held at last."""
    told = Life(seed).run(150)
    assert told.problems == []
    assert told.placements >= 150
    verdicts = sum(told.binding_outcomes.get(name, 0) for name in ("agreed", "honoured", "disputed"))
    elsewhere = (
        told.binding_outcomes.get("told by a whole state", 0) + told.binding_outcomes["gone before anybody heard"]
    )
    assert verdicts + elsewhere == told.placements


@pytest.mark.slow
def test_every_fault_is_survived() -> None:
    """Each kind of fault, one after the other in the middle of a life, breaks no promise."""
    life = Life(9)
    for kind in life.acts:
        while life.placed < 20 * (1 + len(life.faults)):
            life.step()
        life.acts[kind]()
        life.faults[kind] += 1
    life.end()
    assert life.problems == []


def test_a_broken_promise_is_seen() -> None:
    """A replica that is not its node any more, and a pod without verdict, are reported as problems."""
    life = Life(8)
    while not life.running:
        life.step()
    uid, pod = next(iter(life.running.items()))
    life.unheard.add(uid)
    life.nodes[pod.node].node.remove(uid)
    life.end()
    assert any("is not the node" in one for one in life.problems)
    assert any("no verdict" in one for one in life.problems)


@pytest.mark.slow
def test_a_campaign_goes_on_where_its_file_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The lives of the file count, and the next one has the next seed."""
    monkeypatch.setattr("e2e.lockstep.PLACEMENTS", 20)
    file = tmp_path / "lives.jsonl"
    assert [one.seed for one in campaign(20, 7, file)] == [7]
    lives = campaign(60, 7, file)
    assert [one.seed for one in lives][:2] == [7, 8]
    assert "0 broken promises" in summary(lives)
