"""The agent's journal: what its owner does arrives in a replica event by event, with equal digests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from podslice.agent.admitting import NodeSetup
from podslice.agent.contract import Listed
from podslice.agent.journal import NodeJournal
from podslice.agent.node_wiring import wire_node
from podslice.agent.records import SandboxRecord
from podslice.api.pod.spec import Pod
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.decide import decide
from podslice.node.holding import Holding, digest, holding_of
from podslice.replica.events import PodAdmitted, PodRefused, PodRemoved, Stamped, WholeState
from podslice.replica.replica import Replica
from podslice.replica.rulebook import Rulebook
from podslice.replica.stream_messages import PlanGiven
from podslice.service.identity import Identity
from tests.agent.helpers import MACHINE, Notes, agent_config
from tests.conftest import make_pod


class Followed:
    """An owner whose journal somebody follows."""

    def __init__(self, folder: Path, **options: Any) -> None:
        self.now = 1000
        self.journal = NodeJournal(version="test", now=lambda: self.now, **options)
        self.folder = folder
        self.live: dict[str, Identity] = {}
        self.replica = Replica(Rulebook(), {"test"})
        self.start()

    def start(self) -> None:
        """A new owner on the same state."""
        setup = NodeSetup(self.folder, from_synthetic(MACHINE), agent_config())
        self.owner = wire_node(setup, Notes(), journal=self.journal).owner
        self.owner.synchronize(Listed([SandboxRecord(f"sandbox-{one.uid}", one) for one in self.live.values()], []))

    def run(self, pod: Pod) -> None:
        uid = pod.metadata.uid
        self.live[uid] = Identity(uid, "default", uid, {})
        self.owner.run_pod(f"sandbox-{uid}", self.live[uid], pod)

    def stop(self, uid: str) -> None:
        del self.live[uid]
        self.owner.stop_pod(f"sandbox-{uid}")
        self.owner.remove_pod(f"sandbox-{uid}")

    def news(self) -> list[Stamped]:
        """Return the messages since the last call, after the replica has applied them."""
        self.journal.record_changes()
        assert self.journal.journal is not None
        events = list(self.journal.journal.events_after(self.replica.epoch, self.replica.sequence))
        for stamped in events:
            applied = self.replica.apply(stamped)
            assert applied.outcome in ("equal", "adopted"), applied
        assert self.owner.node is not None
        assert self.replica.proven
        assert self.replica.digest == digest(self.owner.node.state)
        return events

    def planned(self, pod: Pod) -> Holding:
        node = self.owner.node
        assert node is not None
        return holding_of(decide(node.rules, node.state, pod).state, pod.metadata.uid)


def test_what_the_owner_does_is_followed(tmp_path: Path) -> None:
    """Pods that come, are refused and go are events of these kinds, and the replica is the node after each."""
    node = Followed(tmp_path)
    assert [type(one.event) for one in node.news()] == [WholeState]
    node.run(make_pod("a", ("c", "4")))
    node.run(make_pod("b", ("c", "8")))
    node.run(make_pod("large", ("c", "64")))
    node.run(make_pod("small", ("c", "500m")))
    node.stop("a")
    kinds = [type(one.event) for one in node.news()]
    assert kinds == [PodAdmitted, PodAdmitted, PodRefused, PodAdmitted, PodRemoved]


def test_each_start_is_an_epoch(tmp_path: Path) -> None:
    """After a restart of the agent the whole state is told under another epoch, also where the clock went back."""
    node = Followed(tmp_path)
    node.run(make_pod("a", ("c", "4")))
    node.news()
    first = node.replica.epoch
    node.now -= 500
    node.start()
    assert [type(one.event) for one in node.news()] == [WholeState]
    assert node.replica.epoch > first
    assert node.replica.proven


def test_a_changed_machine_and_a_silent_change_are_told(tmp_path: Path) -> None:
    """A change that is neither an admission nor a removal is sent as a state, before the next event and without
    one."""
    node = Followed(tmp_path)
    node.news()
    assert node.owner.node is not None
    node.owner.node.admit(make_pod("silent", ("c", "2")))
    node.run(make_pod("a", ("c", "4")))
    assert [type(one.event) for one in node.news()] == [WholeState, PodAdmitted]


@pytest.mark.slow
def test_what_the_agent_refuses_by_itself_is_told(tmp_path: Path) -> None:
    """A pod that is too large to be asked about is told as refused, once, and changes nothing."""
    node = Followed(tmp_path)
    node.news()
    many = tuple((f"c{i}", "1") for i in range(2000))
    node.run(make_pod("huge", *many))
    events = node.news()
    assert [(type(one.event), one.event.pod) for one in events if isinstance(one.event, PodRefused)] == [
        (PodRefused, None)
    ]


@pytest.mark.parametrize(("honours", "fate"), [(False, "differs"), (True, "honoured")])
def test_a_plan_is_compared_or_honoured(tmp_path: Path, honours: bool, fate: str) -> None:
    """Two pods start in the other order: an agent that compares says that it differs, one that honours gives them what
    was planned, on disk too; the replica follows both."""
    node = Followed(tmp_path, honours=honours)
    node.news()
    model = node.owner.node
    assert model is not None
    pods = [make_pod("a", ("c", "4")), make_pod("b", ("c", "4"))]
    state, plans = model.state, {}
    for pod in pods:
        state = decide(model.rules, state, pod).state
        plans[pod.metadata.uid] = holding_of(state, pod.metadata.uid)
        node.journal.plan(PlanGiven(pod.metadata.uid, plans[pod.metadata.uid]))
    for pod in reversed(pods):
        node.run(pod)
    binding_outcomes = [one.event.plan for one in node.news() if isinstance(one.event, PodAdmitted)]
    assert binding_outcomes[0] == fate
    assert (node.journal.binding_outcomes.get("honoured", 0) == 0) is not honours
    held = {uid: holding_of(model.state, uid) for uid in plans}
    assert (held == plans) is honours
    node.start()
    assert node.owner.node is not None
    assert {uid: holding_of(node.owner.node.state, uid) for uid in held} == held


def test_a_plan_that_fits_is_agreed_on(tmp_path: Path) -> None:
    """A pod that is alone on its way gets what was planned, by the node's own decision."""
    node = Followed(tmp_path)
    pod = make_pod("a", ("c", "4"))
    node.journal.plan(PlanGiven("a", node.planned(pod)))
    node.run(pod)
    assert node.journal.binding_outcomes == {"agreed": 1}


def test_plans_that_nobody_takes_are_forgotten(tmp_path: Path) -> None:
    """However many plans come, only the latest are kept, and a withdrawn one is gone."""
    node = Followed(tmp_path)
    plan = node.planned(make_pod("a", ("c", "4")))
    for number in range(3000):
        node.journal.plan(PlanGiven(f"p{number}", plan))
    assert len(node.journal._plans) == 1024
    node.journal.withdraw("p2999")
    assert len(node.journal._plans) == 1023


def test_without_followers_nothing_is_kept(tmp_path: Path) -> None:
    """An agent that nobody follows has no journal."""
    owner = wire_node(NodeSetup(tmp_path, from_synthetic(MACHINE), agent_config()), Notes()).owner
    assert owner.admitting.journal.journal is None
