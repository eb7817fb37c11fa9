"""Campaigns of pods with real kubelets: what is played next, and who comes and goes (`tests.prediction.kubelets`)."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from tests.prediction import kubelets
from tests.prediction.kubelets import ALONE, OURS, Kubelets, Pieces, Told, next_piece, pieces_of, played, summary

REFUSED = "TopologyAffinityError"


def told(**changed: Any) -> Told:
    return Told(pods=500, alone=100, piece=200, at_once=2, seed=9, file=None)._replace(**changed)


def piece(scheduler: str, pods: int, *, refused: int = 0) -> Pieces:
    counts = {"Running": pods - refused} | ({REFUSED: refused} if refused else {})
    return Pieces(scheduler, 1, 3, counts, 1.0)


def test_pieces_follow_each_other() -> None:
    """The scheduler alone first, then the service, each piece with a seed of its own, the last one as small as it must
    be; nothing when all are there."""
    done = [piece(ALONE, 100, refused=9)]
    assert next_piece(told(), []) == (ALONE, 100, 9)
    assert next_piece(told(), done) == (OURS, 200, 9)
    assert next_piece(told(), [*done, piece(OURS, 200), piece(OURS, 200)]) == (OURS, 100, 11)
    assert next_piece(told(), [*done, piece(OURS, 500)]) is None


def test_a_file_is_gone_on_with(tmp_path: Path) -> None:
    """Lines are read as they were written; without a file nothing was played."""
    file = tmp_path / "pods.jsonl"
    assert pieces_of(None) == pieces_of(file) == []
    made = [piece(OURS, 200), piece(ALONE, 100, refused=9), piece(OURS, 50)]
    file.write_bytes(b"".join(msgspec.json.encode(one) + b"\n" for one in made))
    assert pieces_of(file) == made
    assert list(summary(made)) == [
        f"{OURS}: 250 pods, {{'Running': 250}}",
        f"{ALONE}: 100 pods, {{'Running': 91, '{REFUSED}': 9}}",
    ]
    assert [one.refused for one in made] == [0, 9, 0]


class Cluster:
    """One node: pods run where there is room for them, else they wait or, where `blind`, the node refuses them."""

    path = "/pods"

    def __init__(self, room: int, *, blind: bool = False) -> None:
        self.api, self.room, self.blind = self, room, blind
        self.there: dict[str, Any] = {}
        self.most = self.created = 0

    def create(self, made: Any) -> None:
        self.created += 1
        self.there[made["metadata"]["name"]] = {**made, "status": {}}

    def ask(self, method: str, path: str) -> None:
        assert method == "DELETE"
        del self.there[path.removeprefix("/pods/")]

    def call(self, method: str, path: str) -> Any:
        assert (method, path) == ("GET", self.path)
        used = sum(self.size(one) for one in self.there.values() if one["status"].get("phase") == "Running")
        for one in self.there.values():
            if one["status"].get("phase"):
                continue
            if used + self.size(one) <= self.room:
                used += self.size(one)
                one["status"] = {"phase": "Running"}
            elif self.blind:
                one["status"] = {"phase": "Failed", "reason": REFUSED}
            else:
                waits = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
                one["status"] = {"conditions": [waits]}
        self.most = max(self.most, used)
        return {"items": list(self.there.values())}

    @staticmethod
    def size(one: Any) -> int:
        return int(one["spec"]["containers"][0]["resources"]["limits"]["cpu"])


@pytest.mark.parametrize(("room", "blind"), [(12, False), (9, False), (9, True)])
def test_all_come_and_go(monkeypatch: pytest.MonkeyPatch, room: int, blind: bool) -> None:
    """So many pods come, and what became of each is counted once. Who waits for room gets it, because somebody leaves;
    a node that refuses is counted by its reason; nobody is there at the end."""
    monkeypatch.setattr(kubelets.time, "sleep", lambda _: None)
    cluster = Cluster(room, blind=blind)
    found = cast(Kubelets, SimpleNamespace(pods=cluster, running={"k0": None}))
    made = played(found, OURS, 60, 4, at_once=3)
    assert made.pods == cluster.created == 60
    assert cluster.there == {}
    assert 5 < cluster.most <= room
    assert bool(made.refused) == blind
    assert set(made.counts) == ({"Running", REFUSED} if blind else {"Running"})


def test_what_does_not_go_on_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that nothing becomes of ends it with its name."""
    monkeypatch.setattr(kubelets, "PATIENCE", 0.05)
    monkeypatch.setattr(kubelets, "_LOOK_SECONDS", 0.0)
    cluster = Cluster(12)
    monkeypatch.setattr(cluster, "call", lambda method, path: {"items": list(cluster.there.values())})
    found = cast(Kubelets, SimpleNamespace(pods=cluster, running={"k0": None}))
    with pytest.raises(AssertionError, match=r"nothing goes on: \['podslice-4-0'\] wait, 0 live"):
        played(found, OURS, 3, 4, at_once=1)
