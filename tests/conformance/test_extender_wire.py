"""kube-scheduler v1.36.2's requests to an extender, and its reaction to each answer: the facts on which `podslice
cluster` stands (docs/development/cluster-service.md)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from e2e.controlplane import MERGE, Api, ControlPlane, Json
from e2e.programs import find_programs
from e2e.recordingextender import Answerer, Call, RecordingExtender, Reply
from e2e.scheduling import Pods, create_node, eventually, extender, pod, start_scheduler_named
from e2e.sharedplane import prepare_namespace

NODES = {"n0", "n1", "n2"}
CAPABLE, WHOLE, IGNORED = "capable", "whole", "ignored"
PLAN = {"podslice.io/plan": "p"}
ROOM = "no NUMA node has 16 exclusive CPUs free"
HELPLESS = "3 Preemption is not helpful for scheduling."


class Bench(NamedTuple):
    """A control plane with three schedulers: names, whole nodes, and one whose extender may fail."""

    plane: ControlPlane
    api: Api
    pods: Pods
    extender: RecordingExtender

    def wanted(self, name: str, answer: Answerer, scheduler: str = CAPABLE, **options: Any) -> str:
        """A pod about which `answer` is said is there; returns its name."""
        self.extender.answers[name] = answer
        self.pods.create(pod(name, scheduler, **options))
        return name

    def bound(self, name: str) -> str:
        """The node it is bound to, once it is."""
        return eventually(lambda: self.pods.node(name), f"{name} is not bound: {self.pods.unscheduled(name)}")

    def refused(self, name: str) -> tuple[str, str]:
        """Reason and message of the condition PodScheduled, once it is False; the pod goes afterwards."""
        found = eventually(lambda: self.pods.unscheduled(name), f"{name} is not refused")
        self.pods.delete(name)
        return found["reason"], found["message"]

    def shown(self, name: str) -> list[tuple[str, Any]]:
        """Verbs about a pod with the nodes that were named."""
        return [(call.verb, call.body.get("NodeNames") or call.body.get("Node")) for call in self.extender.of(name)]


def names(call: Call) -> list[str]:
    if call.body["NodeNames"] is not None:
        return list(call.body["NodeNames"])
    return [node["metadata"]["name"] for node in call.body["Nodes"]["items"]]


def binding(plane: ControlPlane) -> Answerer:
    """Binds as an extender must, with an annotation."""

    def bind(call: Call) -> Reply:
        body = call.body
        metadata = {"name": body["PodName"], "uid": body["PodUID"], "annotations": PLAN}
        path = f"/api/v1/namespaces/{body['PodNamespace']}/pods/{body['PodName']}/binding"
        target = {"kind": "Node", "name": body["Node"]}
        with plane.api() as api:
            answer = api.ask("POST", path, {"metadata": metadata, "target": target})
        return Reply({"Error": "" if answer.code < 300 else answer.message})

    return bind


def passing(plane: ControlPlane) -> Answerer:
    """Every node passes, n2 has the best score, candidates of preemption stay as they are."""
    bind = binding(plane)

    def answer(call: Call) -> Reply:
        match call.verb:
            case "filter" if call.body["NodeNames"] is None:
                return Reply({"Nodes": call.body["Nodes"]})
            case "filter":
                return Reply({"NodeNames": names(call)})
            case "prioritize":
                return Reply([{"Host": name, "Score": 10 if name == "n2" else 0} for name in names(call)])
            case "preempt" if call.body["NodeNameToMetaVictims"] is None:
                whole = call.body["NodeNameToVictims"]
                return Reply({"NodeNameToMetaVictims": {node: _meta(found) for node, found in whole.items()}})
            case "preempt":
                return Reply({"NodeNameToMetaVictims": call.body["NodeNameToMetaVictims"]})
        return bind(call)

    return answer


def _meta(victims: Json) -> Json:
    return {"Pods": [{"UID": one["metadata"]["uid"]} for one in victims["Pods"]], "NumPDBViolations": 0}


@pytest.fixture(scope="module")
def bench(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    folder: Path = tmp_path_factory.mktemp("wire")
    with (
        ControlPlane(find_programs(), folder / "plane") as plane,
        plane.api() as api,
        RecordingExtender(passing(plane)) as recorder,
    ):
        prepare_namespace(api, "default")
        for node in sorted(NODES):
            create_node(api, node, cpus=64)
        verbs = {"preemptVerb": "preempt"}
        start_scheduler_named(plane, CAPABLE, {"extenders": [extender(recorder.url, **verbs)]})
        start_scheduler_named(plane, WHOLE, {"extenders": [extender(recorder.url, nodeCacheCapable=False, **verbs)]})
        start_scheduler_named(plane, IGNORED, {"extenders": [extender(recorder.url, ignorable=True, httpTimeout="5s")]})
        yield Bench(plane, api, Pods(api), recorder)


def saying(bench: Bench, **verbs: Any) -> Answerer:
    """These answers to these verbs, each a reply, a document or a function of the call; all others as always."""
    otherwise = passing(bench.plane)

    def answer(call: Call) -> Reply:
        said = verbs.get(call.verb, otherwise)
        found = said(call) if callable(said) else said
        return found if isinstance(found, Reply) else Reply(found)

    return answer


def each(reason: str, member: str) -> Callable[[Call], Json]:
    """Refuses every node for one reason."""
    return lambda call: {"NodeNames": [], member: dict.fromkeys(names(call), reason)}


# Requests


def test_requests_with_names(bench: Bench) -> None:
    """Filter and prioritize get the pod as it is stored, without managed fields, and names; bind gets four texts."""
    name = bench.wanted("golden", saying(bench))
    assert bench.bound(name) == "n2"
    stored = bench.pods.get(name)
    filtered, prioritized, bound = bench.extender.of(name)
    assert (filtered.path, prioritized.path, bound.path) == ("/v1/filter", "/v1/prioritize", "/v1/bind")
    assert filtered.body == prioritized.body
    assert list(filtered.body) == ["Pod", "Nodes", "NodeNames"]
    assert filtered.body["Nodes"] is None
    assert set(filtered.body["NodeNames"]) == NODES
    sent = filtered.body["Pod"]
    assert list(sent) == ["metadata", "spec", "status"]
    assert set(sent["metadata"]) == {"name", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"}
    assert sent["metadata"]["uid"] == stored["metadata"]["uid"]
    assert sent["spec"] == {key: value for key, value in stored["spec"].items() if key != "nodeName"}
    assert sent["status"] == {"phase": "Pending", "qosClass": "Guaranteed"}
    assert bound.body == {
        "PodName": name, "PodNamespace": "default", "PodUID": stored["metadata"]["uid"], "Node": "n2",
    }  # fmt: skip
    headers = {key.lower(): value for key, value in filtered.headers.items()}
    assert headers["content-type"] == "application/json"
    assert headers["accept-encoding"] == "gzip"
    assert "authorization" not in headers


def test_requests_with_nodes(bench: Bench) -> None:
    """Without `nodeCacheCapable` whole Node objects come, and NodeNames is null."""
    name = bench.wanted("whole", saying(bench), WHOLE)
    bench.bound(name)
    for call in bench.extender.of(name)[:2]:
        assert list(call.body) == ["Pod", "Nodes", "NodeNames"]
        assert call.body["NodeNames"] is None
        assert {node["metadata"]["name"] for node in call.body["Nodes"]["items"]} == NODES
        assert all(set(node) == {"metadata", "spec", "status"} for node in call.body["Nodes"]["items"])


def test_annotations_of_a_binding(bench: Bench) -> None:
    """Annotations of the extender's Binding are on the bound pod."""
    name = bench.wanted("annotated", saying(bench))
    bench.bound(name)
    assert bench.pods.get(name)["metadata"]["annotations"] == PLAN


# Answers to filter


@pytest.mark.parametrize("member", ["NodeNames", "nodenames", "nodeNames"])
def test_case_of_answers(bench: Bench, member: str) -> None:
    """Members of answers are matched without regard to case, and unknown ones are passed over."""
    name = bench.wanted(f"case-{member.lower()}-{member[0].lower()}", saying(bench, filter={member: ["n1"], "More": 1}))
    assert bench.bound(name) == "n1"
    bench.pods.delete(name)


def test_one_survivor(bench: Bench) -> None:
    """Where one node is left, prioritize is not called."""
    name = bench.wanted("one", saying(bench, filter={"NodeNames": ["n0"]}))
    assert bench.bound(name) == "n0"
    assert [verb for verb, _ in bench.shown(name)] == ["filter", "bind"]


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({"NodeNames": None}, id="null"),
        pytest.param({}, id="missing"),
        pytest.param({"NodeNames": []}, id="empty"),
        pytest.param(None, id="nothing"),
        pytest.param({"Nodes": {"items": []}}, id="nodes-instead"),
    ],
)
def test_no_names(bench: Bench, answer: Any, request: pytest.FixtureRequest) -> None:
    """An answer without names is not a node at all, and the nodes are refused without a reason; nobody is told why."""
    name = bench.wanted(f"none-{request.node.callspec.id}", saying(bench, filter=Reply(answer)))
    reason, message = bench.refused(name)
    assert reason == "Unschedulable"
    assert message.startswith("0/3 nodes are available: no new claims to deallocate, preemption:")
    assert message.endswith(HELPLESS)


def test_refused_nodes(bench: Bench) -> None:
    """Equal reasons are counted; FailedNodes are looked at for preemption, FailedAndUnresolvableNodes are not."""
    name = bench.wanted("failed", saying(bench, filter=each(ROOM, "FailedNodes")))
    reason, message = bench.refused(name)
    assert (reason, message) == (
        "Unschedulable",
        f"0/3 nodes are available: 3 {ROOM}. no new claims to deallocate, preemption: 0/3 nodes are available: "
        "3 No preemption victims found for incoming pod.",
    )
    name = bench.wanted("unresolvable", saying(bench, filter=each(ROOM, "FailedAndUnresolvableNodes")))
    assert bench.refused(name) == (
        "Unschedulable",
        f"0/3 nodes are available: 3 {ROOM}. no new claims to deallocate, preemption: "
        f"0/3 nodes are available: {HELPLESS}",
    )


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(Reply({"NodeNames": ["n0"], "Error": "boom"}), "boom", id="error"),
        pytest.param(Reply({"NodeNames": ["n0"]}, 500), "/v1/filter, code 500", id="status-500"),
        pytest.param(Reply({"NodeNames": ["n0"]}, 201), "/v1/filter, code 201", id="status-201"),
        pytest.param(Reply(b'{"NodeNames":'), "unexpected EOF", id="half"),
        pytest.param(Reply({"NodeNames": "n0"}), "cannot unmarshal string", id="type"),
        pytest.param(
            Reply({"NodeNames": ["nope"]}),
            'claims a filtered node "nope" which is not found in the input node list',
            id="unknown-node",
        ),
    ],
)
def test_failures_of_filter(bench: Bench, answer: Reply, message: str, request: pytest.FixtureRequest) -> None:
    """An invalid answer fails the attempt with its text, reason SchedulerError; an ignorable extender is passed
    over and its nodes pass unchecked."""
    id = request.node.callspec.id
    reason, said = bench.refused(bench.wanted(f"fails-{id}", saying(bench, filter=answer)))
    assert reason == "SchedulerError"
    assert message in said
    name = bench.wanted(f"ignored-{id}", saying(bench, filter=answer), IGNORED)
    assert bench.bound(name) == "n2"


def test_late_answer(bench: Bench) -> None:
    """An ignorable extender that answers after `httpTimeout` is passed over; what it says later counts for nothing."""
    free = threading.Event()

    def late(call: Call) -> Json:
        free.wait(30)
        return {"NodeNames": ["n0"]}

    name = bench.wanted("late", saying(bench, filter=late), IGNORED)
    node = bench.bound(name)
    free.set()
    assert node == "n2"


def test_late_answer_that_counts(bench: Bench) -> None:
    """One that may not be ignored fails the attempt where it answers after `httpTimeout`."""
    hasty, free = "hasty", threading.Event()

    def late(call: Call) -> Json:
        free.wait(30)
        return {"NodeNames": ["n0"]}

    bench.extender.answers[hasty] = saying(bench, filter=late)
    start_scheduler_named(bench.plane, hasty, {"extenders": [extender(bench.extender.url, httpTimeout="1s")]})
    bench.pods.create(pod(hasty, hasty))
    reason, message = bench.refused(hasty)
    bench.plane.stop(hasty)
    free.set()
    assert reason == "SchedulerError"
    assert "Client.Timeout exceeded while awaiting headers" in message


def test_unreachable(bench: Bench) -> None:
    """A scheduler whose extender does not listen schedules nothing, and says which address does not answer."""
    start_scheduler_named(bench.plane, "lonely", {"extenders": [extender("http://127.0.0.1:1/v1")]})
    bench.pods.create(pod("lonely", "lonely"))
    reason, message = bench.refused("lonely")
    bench.plane.stop("lonely")
    assert reason == "SchedulerError"
    assert 'Post "http://127.0.0.1:1/v1/filter": dial tcp 127.0.0.1:1: connect: connection refused' in message


def test_ignorable_may_refuse(bench: Bench) -> None:
    """An ignorable extender that answers is obeyed: it may refuse every node."""
    assert bench.refused(bench.wanted("obeyed", saying(bench, filter={"NodeNames": []}), IGNORED))[0] == "Unschedulable"


# Prioritize


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Reply({}, 500), id="status-500"),
        pytest.param(Reply(b"["), id="half"),
        pytest.param(Reply(None), id="null"),
        pytest.param(Reply([{"Host": "nope", "Score": 10}]), id="unknown-node"),
    ],
)
def test_failures_of_prioritize(bench: Bench, answer: Reply, request: pytest.FixtureRequest) -> None:
    """Without usable scores the pod is scheduled all the same."""
    assert bench.bound(bench.wanted(f"scores-{request.node.callspec.id}", saying(bench, prioritize=answer))) in NODES


@pytest.mark.parametrize("score", [10, 1_000_000_000, 0])
def test_scores(bench: Bench, score: int) -> None:
    """Scores count as they are, below 0 and above 10 too: nothing clamps them."""

    def scores(call: Call) -> list[Json]:
        return [{"Host": name, "Score": score if name == "n1" else score - 10} for name in names(call)]

    assert bench.bound(bench.wanted(f"score-{score}", saying(bench, prioritize=scores))) == "n1"


# Bind


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        pytest.param(Reply({"Error": "model changed"}), "model changed", id="error"),
        pytest.param(Reply({}, 500), "/v1/bind, code 500", id="status-500"),
    ],
)
def test_failures_of_bind(bench: Bench, answer: Reply, message: str, request: pytest.FixtureRequest) -> None:
    """A bind that fails is an attempt that fails: the pod is filtered again. Ignorable: kube-scheduler binds itself."""
    id = request.node.callspec.id
    name = bench.wanted(f"bind-{id}", saying(bench, bind=answer))
    eventually(lambda: len(bench.extender.of(name, "bind")) > 1)
    reason, said = bench.refused(name)
    assert (reason, message in said) == ("SchedulerError", True)
    name = bench.wanted(f"ignored-bind-{id}", saying(bench, bind=answer), IGNORED)
    assert bench.bound(name) == "n2"
    assert "annotations" not in bench.pods.get(name)["metadata"]


def test_bind_that_lies(bench: Bench) -> None:
    """An extender that says bound and has not bound leaves the pod pending and the scheduler content: it never asks
    again. So bind answers only what the API server answered."""
    name = bench.wanted("lie", saying(bench, bind={"Error": ""}))
    eventually(lambda: any(event["reason"] == "Scheduled" for event in bench.pods.events(name)))
    following = bench.wanted("after-lie", saying(bench))
    bench.bound(following)
    assert (bench.pods.node(name), bench.shown(name)[-1][0]) == ("", "bind")
    assert len(bench.extender.of(name)) == 3
    bench.pods.delete(name)


# Nominations


def nominated(bench: Bench, name: str, node: str, answer: Answerer) -> str:
    """A pod that was nominated before the scheduler saw it."""
    document = pod(name, CAPABLE)
    document["spec"]["schedulingGates"] = [{"name": "podslice.io/test"}]
    bench.extender.answers[name] = answer
    bench.pods.create(document)
    bench.pods.nominate(name, node)
    bench.api.call("PATCH", f"{bench.pods.path}/{name}", {"spec": {"schedulingGates": None}}, MERGE)
    return name


def test_nominated_node_first(bench: Bench) -> None:
    """A nominated pod is filtered with that one name, and without prioritize; binding clears the nomination."""
    name = nominated(bench, "nominated", "n0", saying(bench))
    assert bench.bound(name) == "n0"
    assert bench.shown(name) == [("filter", ["n0"]), ("bind", "n0")]
    eventually(lambda: not bench.pods.nominated(name))


def test_nominated_node_refused(bench: Bench) -> None:
    """Where the extender refuses the nominated node, the same attempt goes on with all nodes."""

    def others(call: Call) -> Json:
        return {"NodeNames": [name for name in names(call) if name == "n1"]}

    name = nominated(bench, "elsewhere", "n0", saying(bench, filter=others))
    assert bench.bound(name) == "n1"
    (first, one), (second, every), (third, node) = bench.shown(name)
    assert (first, second, third) == ("filter", "filter", "bind")
    assert (one, set(every), node) == (["n0"], NODES, "n1")


def test_nomination_of_no_node(bench: Bench) -> None:
    """A nomination of a node that is not there counts for nothing."""
    name = nominated(bench, "nowhere", "nope", saying(bench))
    assert bench.bound(name) == "n2"
    assert set(bench.shown(name)[0][1]) == NODES


@pytest.mark.parametrize("failing", ["refused", "error", "bind"])
def test_nominations_are_cleared(bench: Bench, failing: str) -> None:
    """A nomination by others does not outlive an attempt that fails, in filter or in bind: it has to be made again."""
    answers: Json = {
        "refused": {"filter": each(ROOM, "FailedAndUnresolvableNodes")},
        "error": {"filter": {"Error": "boom"}},
        "bind": {"bind": {"Error": "boom"}},
    }[failing]
    name = nominated(bench, f"cleared-{failing}", "n0", saying(bench, **answers))
    eventually(lambda: bench.pods.unscheduled(name))
    eventually(lambda: not bench.pods.nominated(name))
    asked = [nodes for verb, nodes in bench.shown(name) if verb == "filter"]
    assert asked[0] == ["n0"]
    eventually(lambda: set([nodes for verb, nodes in bench.shown(name) if verb == "filter"][-1]) == NODES)
    bench.pods.delete(name)


class Turn:
    """Refuses until it is `open`, and then too unless it is asked about `only` these nodes, where it has some."""

    def __init__(self, only: list[str] | None = None) -> None:
        self.open, self.only = False, only

    def __call__(self, call: Call) -> Json:
        if self.open and self.only in (None, names(call)):
            return {"NodeNames": names(call)}
        return each(ROOM, "FailedAndUnresolvableNodes")(call)


def quiet(bench: Bench, name: str) -> None:
    """The scheduler asks no more about a pod: it lies among the unschedulable ones and waits for an event."""

    def look() -> bool:
        before = len(bench.extender.of(name))
        time.sleep(3)
        return before > 0 and len(bench.extender.of(name)) == before

    eventually(look)


@pytest.mark.parametrize("event", ["nomination", "node annotation", "pod annotation"])
def test_what_wakes_a_refused_pod(bench: Bench, event: str) -> None:
    """A refused pod rests until something happens: a nomination of it, an annotation of it or of a node is enough, and
    after a nomination filter has the one name."""
    turn, name = Turn(["n1"] if event == "nomination" else None), f"wakes-{event.replace(' ', '-')}"
    bench.wanted(name, saying(bench, filter=turn))
    eventually(lambda: bench.pods.unscheduled(name))
    quiet(bench, name)
    turn.open = True
    match event:
        case "nomination":
            bench.pods.nominate(name, "n1")
        case "node annotation":
            bench.api.call("PATCH", "/api/v1/nodes/n0", {"metadata": {"annotations": {"test/wake": name}}}, MERGE)
        case _:
            bench.api.call("PATCH", f"{bench.pods.path}/{name}", {"metadata": {"annotations": {"t/w": "1"}}}, MERGE)
    node = bench.bound(name)
    if event == "nomination":
        assert (node, bench.shown(name)[-2:]) == ("n1", [("filter", ["n1"]), ("bind", "n1")])


# Preemption


@pytest.fixture(scope="module")
def crowded(bench: Bench) -> dict[str, str]:
    """Two nodes x0 and x1 that are full of unimportant pods, and x2 with room; UIDs by name."""
    for name, value in (("low", -10), ("high", 1000)):
        bench.api.call(
            "POST", "/apis/scheduling.k8s.io/v1/priorityclasses", {"metadata": {"name": name}, "value": value}
        )
    for node in ("x0", "x1", "x2"):
        create_node(bench.api, node, cpus=4, labels={"pool": "x"})
    found = {}
    for number, cpus in enumerate(("3", "3", "1")):
        node, name = f"x{number}", f"low-{number}"
        only = saying(bench, filter={"NodeNames": [node]})
        bench.wanted(name, only, cpus=cpus, priorityClassName="low", nodeSelector={"pool": "x"})
        assert bench.bound(name) == node
        found[name] = bench.pods.get(name)["metadata"]["uid"]
    return found


def preempting(bench: Bench, name: str, scheduler: str = CAPABLE, **verbs: Any) -> str:
    """An important pod of 3 CPUs for which x2 is refused by the extender only."""

    def filtered(call: Call) -> Json:
        with bench.plane.api() as api:
            gone = api.ask("GET", f"{bench.pods.path}/low-2").code == 404
        passed = [node for node in names(call) if node != "x2" or gone]
        return {"NodeNames": passed, "FailedNodes": dict.fromkeys(set(names(call)) - set(passed), ROOM)}

    answer = saying(bench, **({"filter": filtered} | verbs))
    return bench.wanted(name, answer, scheduler, cpus="3", priorityClassName="high", nodeSelector={"pool": "x"})


def preempted(bench: Bench, name: str) -> Json:
    """The first request of preempt about a pod."""
    return eventually(lambda: bench.extender.of(name, "preempt"))[0].body


def test_request_of_preempt(bench: Bench, crowded: dict[str, str]) -> None:
    """Candidates come as UIDs by node; a node that only the extender refused is none of them. An answer without nodes
    ends the attempt, and an answer with a node that has no victim, or one that is not there, fails it."""
    name = preempting(bench, "none-goes", preempt={})
    body = preempted(bench, name)
    assert list(body) == ["Pod", "NodeNameToVictims", "NodeNameToMetaVictims"]
    assert body["NodeNameToVictims"] is None
    assert body["NodeNameToMetaVictims"] == {
        f"x{number}": {"Pods": [{"UID": crowded[f"low-{number}"]}], "NumPDBViolations": 0} for number in (0, 1)
    }
    assert bench.refused(name)[1].endswith("preemption: no candidate node for preemption")
    for answer, text in (
        ({"x0": {"Pods": [], "NumPDBViolations": 0}}, 'expected at least one victim pod on node "x0"'),
        ({"x0": {"Pods": [{"UID": "nope"}]}}, "on node: x0, but the pod is not found on that node"),
    ):
        name = preempting(bench, f"wrong-{len(text)}", preempt={"NodeNameToMetaVictims": answer})
        assert text in bench.refused(name)[1]


def test_whole_victims(bench: Bench, crowded: dict[str, str]) -> None:
    """Without `nodeCacheCapable` victims come as whole pods, and the answer is UIDs all the same."""
    name = preempting(bench, "whole-victims", WHOLE, filter=lambda call: {"Nodes": {"items": []}}, preempt={})
    body = preempted(bench, name)
    bench.pods.delete(name)
    assert body["NodeNameToMetaVictims"] is None
    (victim,) = body["NodeNameToVictims"]["x0"]["Pods"]
    assert victim["metadata"]["uid"] == crowded["low-0"]
    assert victim["spec"]["nodeName"] == "x0"


def test_another_node_is_preempted(bench: Bench, crowded: dict[str, str]) -> None:
    """The extender may name a node that was not a candidate: its victims go, the pod is nominated there, filtered with
    that one name and bound; nobody else goes."""
    instead = {"x2": {"Pods": [{"UID": crowded["low-2"]}], "NumPDBViolations": 0}}
    name = preempting(bench, "instead", preempt={"NodeNameToMetaVictims": instead})
    assert bench.bound(name) == "x2"
    assert bench.shown(name)[-2:] == [("filter", ["x2"]), ("bind", "x2")]
    assert [bench.api.ask("GET", f"{bench.pods.path}/low-{number}").code for number in range(3)] == [200, 200, 404]
