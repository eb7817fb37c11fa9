"""The extender's verbs over HTTP's bodies: exact answers, bind as the API server answered, and hostile input."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from podslice.cluster.apiclient import Binding
from podslice.cluster.extender.extender import MOST_BINDING, Extender, plan_text
from podslice.machine.memory import Block
from podslice.node.answers import PodHolding
from podslice.node.holding import Holding, holding_of
from podslice.replica.stream_messages import PlanGiven, PlanWithdrawn
from podslice.service.http.post_server import PostAnswer
from podslice.values.cpuset import format_bits
from tests import clock
from tests.cluster.bench import Bench, filter_body, pod_object, shared_pod
from tests.cluster.fake_api import FakeClusterApi, Json


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
            ahead={},
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
    asked.bench.watch_pod(pod_object("p"))
    answer = json.loads(asked.ask("filter", filter_body(pod_object("p"), ["a", "b"])).body)
    (node,) = answer["NodeNames"]
    assert answer == {
        "NodeNames": [node], "Nodes": None, "FailedNodes": {}, "FailedAndUnresolvableNodes": {}, "Error": "",
    }  # fmt: skip
    assert asked.bind("p", node) == {"Error": ""}
    (bound,) = asked.api.bound
    assert (bound.namespace, bound.name, bound.uid, bound.node) == ("default", "p", "uid-p", node)
    assert list(bound.annotations) == ["podslice.io/plan"]
    assert asked.calls == [("filter", "one"), ("bind", "bound")]
    ((to, plan),) = asked.plans
    replica = asked.bench.journals.nodes[node].replica
    assert isinstance(plan, PlanGiven)
    assert (to, plan.uid, plan.epoch, plan.sequence) == (node, "uid-p", replica.epoch, replica.sequence)
    (container,) = plan.holding.containers
    assert json.loads(bound.annotations["podslice.io/plan"]) == {
        "cpus": format_bits(container.cpus), "epoch": plan.epoch, "sequence": plan.sequence, "digest": plan.allocation,
    }  # fmt: skip
    asked.bench.watch_pod(pod_object("p", node=node))
    assert holding_of(asked.bench.nodes.nodes[node].node.state, "uid-p") == plan.holding


def test_the_plan_for_people() -> None:
    """CPUs and the NUMA nodes of the memory; what is too long stays JSON."""
    blocks = (Block((0, 2), "memory", 1 << 30), Block((3,), "hugepages-2Mi", 1 << 21))
    holding = PodHolding(0b1111_0000, (blocks, ()), ())
    told = PlanGiven("uid-p", Holding((), None, None), 5, 12, "ab")
    assert json.loads(plan_text(holding, told)) == {
        "cpus": "4-7", "memoryNodes": "0,2-3", "epoch": 5, "sequence": 12, "digest": "ab",
    }  # fmt: skip
    assert json.loads(plan_text(holding._replace(blocks=()), None)) == {"cpus": "4-7"}
    every_second = sum(1 << cpu for cpu in range(0, 4096, 2))
    text = json.loads(plan_text(PodHolding(every_second, (), ()), None))["cpus"]
    assert (len(text), text[:6], text[-1]) == (2048, "0,2,4,", "…")


def test_pods_that_want_nothing() -> None:
    """They are echoed and bound without a plan."""
    asked = Asked()
    asked.bench.watch_pod(shared_pod("p"))
    names = ["x", "a", "b"]
    assert json.loads(asked.ask("filter", filter_body(shared_pod("p"), names)).body)["NodeNames"] == names
    assert json.loads(asked.ask("prioritize", filter_body(shared_pod("p"), names)).body) == [
        {"Host": name, "Score": 0} for name in names
    ]
    assert asked.bind("p", "x") == {"Error": ""}
    assert asked.api.bound[0].annotations == {}


def test_full_nodes() -> None:
    """Where no node takes the pod each has its reason, in the field that spares a useless preemption."""
    asked = Asked()
    answer = json.loads(asked.ask("filter", filter_body(pod_object("p", "9"), ["a", "b"])).body)
    assert answer["NodeNames"] == []
    (text,) = set(answer["FailedAndUnresolvableNodes"].values())
    assert set(answer["FailedAndUnresolvableNodes"]) == {"a", "b"}
    assert "9 exclusive CPUs" in text


@pytest.mark.parametrize("broken", ["refused", "conflict", "away"])
def test_bind_that_fails(broken: str) -> None:
    """A refusal by the API server is the error, and the hold ends; where the outcome is unknown, or the pod is bound
    already, the hold stays until the watch shows it."""
    asked = Asked()
    asked.bench.watch_pod(pod_object("p"))
    (node,) = json.loads(asked.ask("filter", filter_body(pod_object("p"), ["a", "b"])).body)["NodeNames"]
    if broken == "away":
        asked.api.broken = "no answer in time"
    else:
        asked.api.refuse = 403 if broken == "refused" else 409
    assert asked.bind("p", node) == {"Error": "podslice: no answer in time" if broken == "away" else "refused"}
    assert len(asked.bench.placing.model.holds()) == (0 if broken == "refused" else 1)
    withdrawn = [plan for _, plan in asked.plans if isinstance(plan, PlanWithdrawn)]
    assert len(withdrawn) == (1 if broken == "refused" else 0)


def test_asked_again_after_an_unknown_bind() -> None:
    """A pod that may be bound already is sent to the same node again, whatever else would do, and once the watch shows
    it bound it is filtered and bound nowhere else; the room it has stays its own."""
    asked = Asked()
    asked.bench.watch_pod(pod_object("p"))
    (node,) = json.loads(asked.ask("filter", filter_body(pod_object("p"), ["a", "b"])).body)["NodeNames"]
    other = "b" if node == "a" else "a"
    asked.api.broken = "no answer in time"
    asked.bind("p", node)
    for names in ([other, node], [node]):
        answer = json.loads(asked.ask("filter", filter_body(pod_object("p"), names)).body)
        assert (answer["NodeNames"], answer["FailedNodes"]) == ([node], {})
    asked.api.broken = ""
    asked.bench.watch_pod(pod_object("p", node=node))
    held = asked.bench.placing.model.holds()
    answer = json.loads(asked.ask("filter", filter_body(pod_object("p"), [other, node])).body)
    assert answer["Error"] == f"the pod is bound already, to node {node}"
    assert asked.bind("p", other)["Error"] == f"the pod is bound already, to node {node}"
    assert asked.bench.placing.model.holds() == held


def test_too_many_bindings() -> None:
    """While more Bindings are on their way than the API server keeps up with, a filter waits until one is through."""
    asked = Asked()
    asked.bench.watch_pod(pod_object("p"))

    async def main() -> None:
        gate = asyncio.Event()

        async def bind(binding: Binding) -> None:
            await gate.wait()

        asked.api.bind = bind  # type: ignore[method-assign]
        body = json.dumps({"PodName": "p", "PodNamespace": "default", "PodUID": "uid-p", "Node": "a"}).encode()
        binds = [asyncio.ensure_future(asked.extender.bind(body)) for _ in range(MOST_BINDING)]
        await asyncio.sleep(0)
        later = asked.extender.filter(filter_body(pod_object("q"), ["a", "b"]))
        assert not isinstance(later, PostAnswer)
        waiting = asyncio.ensure_future(later)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        gate.set()
        await asyncio.gather(*binds)
        assert json.loads((await waiting).body)["NodeNames"]
        assert isinstance(asked.extender.filter(filter_body(pod_object("q"), ["a", "b"])), PostAnswer)

    clock.run(main())


def test_bind_without_room() -> None:
    """A pod whose hold is gone is let in again only where the node still takes it."""
    asked = Asked()
    for name, node in (("p", ""), ("x", "a"), ("y", "b")):
        asked.bench.watch_pod(pod_object(name, "8", node))
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
    assert asked.bench.placing.model.holds() == ()
