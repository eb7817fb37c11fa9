"""The extender's verbs over HTTP's bodies: exact answers, bind as the API server answered, and hostile input."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from podslice.cluster.extender import Extender
from podslice.cluster.http import PostAnswer
from podslice.core.cluster.talk import PlanGiven, PlanWithdrawn
from podslice.core.holding import holding_of
from tests.clusterservice.bench import Bench, filter_body, pod_object, shared_pod
from tests.clusterservice.fake_api import FakeClusterApi, Json


class Asked:
    """An extender beside two nodes; `calls` are verbs with what came of them."""

    def __init__(self) -> None:
        self.bench = Bench("a", "b")
        self.api = FakeClusterApi()
        self.calls: list[tuple[str, str]] = []
        self.plans: list[tuple[str, PlanGiven | PlanWithdrawn]] = []
        self.extender = Extender(
            self.bench.placing,
            self.api,
            send=lambda *plan: self.plans.append(plan),
            watch=lambda verb, seconds, result: self.calls.append((verb, result)),
        )
        self.verbs = self.extender.handlers()

    def ask(self, verb: str, body: bytes) -> PostAnswer:
        found = self.verbs[f"/v1/{verb}"](body)
        if isinstance(found, PostAnswer):
            return found

        async def main() -> PostAnswer:
            return await found

        return asyncio.run(main())

    def bind(self, name: str, node: str) -> Json:
        body = {"PodName": name, "PodNamespace": "default", "PodUID": f"uid-{name}", "Node": node}
        return dict(json.loads(self.ask("bind", json.dumps(body).encode()).body))


def test_filter_and_bind() -> None:
    """The one node that is chosen, a Binding with the UID and the plan, and every other node without a word."""
    asked = Asked()
    asked.bench.tell(pod_object("p"))
    answer = json.loads(asked.ask("filter", filter_body(pod_object("p"), ["a", "b"])).body)
    (node,) = answer["NodeNames"]
    assert answer == {
        "NodeNames": [node], "Nodes": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": "",
    }  # fmt: skip
    assert asked.bind("p", node) == {"Error": ""}
    (bound,) = asked.api.bound
    assert (bound.namespace, bound.name, bound.uid, bound.node) == ("default", "p", "uid-p", node)
    assert list(bound.annotations) == ["podslice.io/plan"]
    assert len(json.loads(bound.annotations["podslice.io/plan"])["cpus"]) > 0
    assert asked.calls == [("filter", "one"), ("bind", "bound")]
    ((to, plan),) = asked.plans
    replica = asked.bench.journals.nodes[node].replica
    assert isinstance(plan, PlanGiven)
    assert (to, plan.uid, plan.epoch, plan.sequence) == (node, "uid-p", replica.epoch, replica.sequence)
    asked.bench.tell(pod_object("p", node=node))
    assert holding_of(asked.bench.nodes.nodes[node].node.state, "uid-p") == plan.holding


def test_pods_that_want_nothing() -> None:
    """They are echoed and bound without a plan."""
    asked = Asked()
    asked.bench.tell(shared_pod("p"))
    names = ["x", "a", "b"]
    assert json.loads(asked.ask("filter", filter_body(shared_pod("p"), names)).body)["NodeNames"] == names
    assert json.loads(asked.ask("prioritize", filter_body(shared_pod("p"), names)).body) == [
        {"Host": name, "Score": 0} for name in names
    ]
    assert asked.bind("p", "x") == {"Error": ""}
    assert asked.api.bound[0].annotations == {}


def test_full_nodes() -> None:
    """Where no node takes the pod each has its reason, in the half that spares a useless preemption."""
    asked = Asked()
    answer = json.loads(asked.ask("filter", filter_body(pod_object("p", "9"), ["a", "b"])).body)
    assert answer["NodeNames"] == []
    (text,) = set(answer["FailedAndUnresolvableNodes"].values())
    assert set(answer["FailedAndUnresolvableNodes"]) == {"a", "b"}
    assert "9 exclusive CPUs" in text


@pytest.mark.parametrize("broken", ["refused", "away"])
def test_bind_that_fails(broken: str) -> None:
    """What the API server refuses is the error, and nothing is held for the pod any more; where nobody knows what it
    did, the pod stays held."""
    asked = Asked()
    asked.bench.tell(pod_object("p"))
    (node,) = json.loads(asked.ask("filter", filter_body(pod_object("p"), ["a", "b"])).body)["NodeNames"]
    if broken == "refused":
        asked.api.refuse = 409
    else:
        asked.api.broken = "no answer in time"
    assert asked.bind("p", node) == {"Error": "refused" if broken == "refused" else "podslice: no answer in time"}
    assert len(asked.bench.placing.model.held()) == (0 if broken == "refused" else 1)
    withdrawn = [plan for _, plan in asked.plans if isinstance(plan, PlanWithdrawn)]
    assert len(withdrawn) == (1 if broken == "refused" else 0)


def test_bind_without_room() -> None:
    """A pod whose hold is gone is let in again only where the node still takes it."""
    asked = Asked()
    for name, node in (("p", ""), ("x", "a"), ("y", "b")):
        asked.bench.tell(pod_object(name, "8", node))
    assert asked.bind("p", "a")["Error"].startswith("the node held for the pod is gone, and it does not fit any more: ")
    assert asked.api.bound == []


@pytest.mark.parametrize("body", [b"", b"{}", b"null", b'{"Pod":{}', b"\xff" * 100, b"[" * 100_000])
def test_hostile_bodies(body: bytes) -> None:
    """Whatever is sent, every verb answers: filter and bind with an error of one line, the others with status 400."""
    asked = Asked()
    for verb in ("filter", "bind"):
        answer = asked.ask(verb, body)
        error = json.loads(answer.body)["Error"]
        assert (answer.status, error[:10], "\n" in error) == (200, "podslice: ", False)
    for verb in ("prioritize", "preempt"):
        assert asked.ask(verb, body).status == 400


@pytest.mark.parametrize(
    "pod",
    [
        {"metadata": {"name": "p", "namespace": "default", "uid": "../../x"}},
        {"metadata": {"name": "p"}},
        {"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"containers": 7}},
        {"metadata": {"name": "p", "namespace": "d", "uid": "u"}, "spec": {"containers": [{"name": "c", "resources":
            {"limits": {"cpu": "lots"}}}]}},
    ],
)  # fmt: skip
def test_hostile_pods(pod: Any) -> None:
    """A pod that cannot be read is refused with what is wrong, and goes nowhere."""
    asked = Asked()
    answer = json.loads(asked.ask("filter", filter_body(pod, ["a"])).body)
    assert answer["NodeNames"] == []
    assert answer["Error"].startswith("podslice: ")
    assert asked.bench.placing.model.held() == ()
