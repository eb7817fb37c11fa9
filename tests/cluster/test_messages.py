"""The extender's messages: golden requests as kube-scheduler wrote them, exact answers, and what is not a message."""

from __future__ import annotations

import json

import pytest

from podslice.cluster.extender.messages import (
    BindRequest,
    FilterAnswer,
    MessageError,
    NodeVictims,
    read_bind,
    read_filter,
    read_preempt,
    write_bind,
    write_filter,
    write_scores,
    write_victims,
)

UID = "e2b9541b-47a7-4641-97f6-d6775313430b"
POD = b'{"metadata":{"name":"a","namespace":"default","uid":"%s"},"spec":{},"status":{}}' % UID.encode()
FILTER = b'{"Pod":%s,"Nodes":null,"NodeNames":["n2","n0","n1"]}' % POD
BIND = b'{"PodName":"a","PodNamespace":"default","PodUID":"e2b9541b-47a7-4641-97f6-d6775313430b","Node":"n2"}'
PREEMPT = b'{"Pod":%s,"NodeNameToVictims":null,"NodeNameToMetaVictims":%s}' % (
    POD,
    b'{"n0":{"Pods":[{"UID":"u1"},{"UID":"u2"}],"NumPDBViolations":1},"n1":{"Pods":null,"NumPDBViolations":0}}',
)


def test_requests() -> None:
    """Requests of v1.36.2 are read as they are; the pod stays bytes."""
    found = read_filter(FILTER)
    assert (bytes(found.pod), found.nodes) == (POD, ["n2", "n0", "n1"])
    assert read_bind(BIND) == BindRequest("a", "default", "e2b9541b-47a7-4641-97f6-d6775313430b", "n2")
    preempt = read_preempt(PREEMPT)
    assert (bytes(preempt.pod), preempt.victims) == (POD, {"n0": NodeVictims(("u1", "u2"), 1), "n1": NodeVictims(())})


def test_answers() -> None:
    """Answers have the members that kube-scheduler reads, `Nodes` is null, and no text has a second line."""
    answer = FilterAnswer(["n0"], {"n1": "no room"}, {"n2": "never"})
    assert json.loads(write_filter(answer)) == {
        "NodeNames": ["n0"], "Nodes": None, "FailedNodes": {"n1": "no room"},
        "FailedAndUnresolvableNodes": {"n2": "never"}, "Error": "",
    }  # fmt: skip
    assert json.loads(write_filter(FilterAnswer(error="a\nb" + "x" * 2000)))["Error"] == "a b" + "x" * 897
    assert json.loads(write_bind()) == {"Error": ""}
    assert json.loads(write_scores([("a", 3), ("b", 99), ("c", -1)])) == [
        {"Host": "a", "Score": 3}, {"Host": "b", "Score": 10}, {"Host": "c", "Score": 0},
    ]  # fmt: skip
    assert json.loads(write_victims({"a": NodeVictims(("u",), 2), "b": NodeVictims(())})) == {
        "NodeNameToMetaVictims": {"a": {"Pods": [{"UID": "u"}], "NumPDBViolations": 2}}
    }


@pytest.mark.parametrize(
    ("body", "text"),
    [
        pytest.param(b"", "the request is not JSON", id="empty"),
        pytest.param(b'{"Pod":', "the request is not JSON", id="half"),
        pytest.param(b"[]", "expected an object, got a list", id="list"),
        pytest.param(b'{"NodeNames":[]}', "missing required field `Pod`", id="no-pod"),
        pytest.param(b'{"Pod":[],"NodeNames":[]}', "Pod: is not an object", id="pod-list"),
        pytest.param(b'{"Pod":{},"NodeNames":"a"}', "NodeNames: expected a list", id="names-text"),
        pytest.param(b'{"Pod":{},"NodeNames":[1]}', "NodeNames[0]: expected text", id="names-numbers"),
        pytest.param(b'{"Pod":{},"Nodes":{"items":[]}}', "set nodeCacheCapable: true", id="whole-nodes"),
        pytest.param(b'{"Pod":{"a":"\xff"},"NodeNames":[]}', "the request is not JSON", id="bytes"),
        pytest.param(b'{"Pod":' + b"[" * 100_000, "the request is not JSON", id="deep"),
        pytest.param(b'{"Pod":{},"NodeNames":[%s]}' % b",".join([b'"n"'] * 20_001), "NodeNames: ", id="many"),
    ],
)
def test_no_filter_request(body: bytes, text: str) -> None:
    """A malformed request is one line with the reason."""
    with pytest.raises(MessageError) as error:
        read_filter(body)
    assert text in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("member", "value"),
    [("PodName", "../x"), ("PodNamespace", "a/b"), ("Node", ""), ("PodUID", "a b"), ("Node", "n" * 300)],
)
def test_no_bind_request(member: str, value: str) -> None:
    """Names that would lead elsewhere in a path are refused."""
    with pytest.raises(MessageError, match=member):
        read_bind(json.dumps(json.loads(BIND) | {member: value}).encode())


@pytest.mark.parametrize(
    "body",
    [
        b'{"Pod":{},"NodeNameToVictims":{}}',
        b'{"Pod":{},"NodeNameToMetaVictims":{"a":{"NumPDBViolations":-1}}}',
        b"null",
    ],
)
def test_no_preempt_request(body: bytes) -> None:
    """ToldVictims as whole pods, negative counts and nothing are refused."""
    with pytest.raises(MessageError):
        read_preempt(body)
