"""`kubectl podslice` beside an agent: what it shows, in words and as documents."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from podslice.kubectl.agents import AgentPod, Agents
from podslice.reading.yaml import load_documents
from tests.agent.test_daemon import api_pod
from tests.kubectl.conftest import Plugin, stored
from tests.kubectl.fakeapi import FakeAPI
from tests.kubectl.liveagent import NODE, live_agent
from tests.read_documents import check_document, read_document
from tests.shell import Answer


@pytest.fixture
def node(api: FakeAPI, agent_port: int) -> FakeAPI:
    """The cluster with its one agent and its pods."""
    api.add(NODE, agent_port)
    api.add_pod(stored("web"))
    message = "Pod was rejected: Resources cannot be allocated with Topology locality"
    api.add_pod(stored("big", phase="Failed", reason="TopologyAffinityError", message=message))
    api.events.append(
        {"type": "Warning", "reason": "TopologyAffinityError", "message": "too\nlarge", "count": 3,
         "lastTimestamp": "2026-11-22T06:00:00Z", "source": {"component": "podslice"}}
    )  # fmt: skip
    return api


def documents(plugin: Plugin, kind: str, *arguments: str, code: int = 0) -> dict[str, object]:
    """Return the documents that it prints for programs; YAML is the same as JSON."""
    answers: list[Answer] = [plugin(*arguments, "-o", form) for form in ("json", "yaml")]
    assert [answer.returncode for answer in answers] == [code, code]
    document = read_document(answers[0].stdout, kind)
    assert load_documents(answers[1].stdout, "yaml") == [document]
    return document


def test_top(plugin: Plugin, node: FakeAPI) -> None:
    """Owned and free CPUs in all and on each NUMA node, aligned; a node that cannot be asked says why."""
    node.add("n8", 9, phase="Pending")
    answer = plugin("top")
    assert answer.returncode == 0
    lines = answer.stdout.splitlines()
    assert lines[0].split() == "NODE CPUS OWNED FREE FREE BY NUMA NODE ON ONE FRAGMENTED".split()
    assert lines[1].split() == ["n7", "31", "15", "16", "0:0", "1:16", "16", "0%"]
    assert "the agent on n8 is Pending" in lines[2]
    (row, pending) = documents(plugin, "NodeUsageList", "top")["items"]  # type: ignore[misc]
    assert row["numa"] == [{"id": 0, "cpus": 15, "free": 0}, {"id": 1, "cpus": 16, "free": 16}]
    assert (pending["free"], bool(pending["problem"])) == (None, True)


def test_fragmentation(plugin: Plugin, api: FakeAPI, tmp_path: Path) -> None:
    """Eleven free CPUs could be together, and six are: 45 % are not; whole cores count where only whole cores are given
    away; a node that gives none away has no figures."""
    halves = [api_pod("a", "10"), api_pod("b", "10")]
    whole = {"cpu_manager_policy_options": {"full-pcpus-only": "true"}, "reserved_system_cpus": "0-1"}
    with (
        live_agent(tmp_path / "a", halves, node="a") as scattered,
        live_agent(tmp_path / "b", [], node="b", **whole) as cores,
        live_agent(tmp_path / "c", [], node="c", cpu_manager_policy="none", reserved_system_cpus="") as none,
    ):
        for name, port in (("a", scattered), ("b", cores), ("c", none)):
            api.add(name, port)
        found = documents(plugin, "NodeUsageList", "top")["items"]
    rows = {row["node"]: (row["free"], row["largest"], row["fragmentation"]) for row in found}  # type: ignore[attr-defined]
    assert rows == {"a": (11, 6, 45), "b": (30, 16, 0), "c": (None, None, None)}


def test_node(plugin: Plugin, node: FakeAPI, tmp_path: Path) -> None:
    """Pods, refusals and the map; as a picture in a file; as the agent's own documents for programs."""
    answer = plugin("node", NODE)
    assert answer.returncode == 0
    for part in ("default/web", "2-5", "TopologyAffinityError", "NUMA 1", "thread 0", "shared 0,16-31"):
        assert part in answer.stdout
    assert "thread 0" not in plugin("node", NODE, "--no-map").stdout
    assert plugin("node", NODE, "--out", str(tmp_path / "n.svg")).returncode == 0
    assert "<svg" in (tmp_path / "n.svg").read_text()
    assert documents(plugin, "AgentStatus", "node", NODE)["node"] == NODE
    assert documents(plugin, "LiveNode", "node", NODE, "--live")["node"] == NODE
    assert plugin("node", NODE, "--live").stderr == "podslice: error: --live: is for programs (-o json or -o yaml)\n"


def test_a_pod_that_runs(plugin: Plugin, node: FakeAPI) -> None:
    """Its CPUs, and where it would land if it came again, which is where it is."""
    answer = plugin("pod", "default/web")
    assert answer.returncode == 0
    for part in ("default/web  on n7, Running, Guaranteed", "2-5", "If it came to n7 again:", "CPUs 2-5"):
        assert part in answer.stdout
    document = documents(plugin, "PodPlacement", "pod", "-n", "default", "web")
    assert document["containers"][0]["cpus"] == "2-5"  # type: ignore[index]
    assert document["now"]["admitted"]  # type: ignore[index]
    assert document["problem"] == ""


def test_a_refused_pod(plugin: Plugin, node: FakeAPI) -> None:
    """The status' reason, our why, the Events, and the changes that would make it fit now."""
    answer = plugin("pod", "default/big")
    for part in (
        "default/big  on n7, Failed", "Pod was rejected: Resources", "restricted requires each container",
        "2026-11-22T06:00:00Z", "too large (x3)", "If it came to n7 now:", "Ask for 16 instead of 20 CPUs",
    ):  # fmt: skip
        assert part in answer.stdout
    assert "too large" not in plugin("pod", "default/big", "--no-events").stdout
    document = documents(plugin, "PodPlacement", "pod", "default/big")
    assert (document["phase"], document["reason"]) == ("Failed", "TopologyAffinityError")
    assert document["refusals"][0]["reason"] == "TopologyAffinityError"  # type: ignore[index]
    assert document["now"]["fixes"]  # type: ignore[index]


def test_a_pod_that_was_marked_failed(plugin: Plugin, node: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """An agent that has let go of a pod it rejected still says why, and what would have helped."""
    gone = {"namespace": "default", "name": "big", "uid": "big", "reason": "TopologyAffinityError", "message": "no",
            "why": "too many", "fix": "Ask for less", "since": 0.0}  # fmt: skip
    ask = Agents.ask

    def forgetful(agents: Agents, agent: AgentPod, target: str) -> Any:
        told = ask(agents, agent, target)
        return {**told, "pods": [], "rejected": [gone]} if target == "/status" else told

    monkeypatch.setattr(Agents, "ask", forgetful)
    out = plugin("pod", "default/big").stdout
    assert "too many" in out
    assert "What would help: Ask for less" in out
    assert "does not have it" in plugin("pod", "default/web").stdout


def test_a_pod_without_node(plugin: Plugin, node: FakeAPI) -> None:
    """A pending pod shows what the scheduler says, and can be tried on a node."""
    pod = stored("big", phase="Pending")
    del pod["spec"]["nodeName"]
    pod["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"}
    ]
    node.add_pod(pod)
    out = plugin("pod", "default/big").stdout
    assert "on no node, Pending" in out
    assert "Unschedulable: 0/1 nodes are available" in out
    assert "If it came" not in out
    assert "If it came to n7 now:" in plugin("pod", "default/big", "--node", NODE).stdout


def test_a_pod_whose_agent_is_gone(plugin: Plugin, node: FakeAPI) -> None:
    """The API server's part is shown all the same, and a missing right to read Events is reported in their place."""
    node.agents.clear()
    node.forbidden = ("/api/v1/namespaces/default/events",)
    answer = plugin("pod", "default/web")
    assert answer.returncode == 0
    assert "no agent runs on node n7" in answer.stdout
    assert "forbidden" in answer.stdout


def test_explain(plugin: Plugin, node: FakeAPI, tmp_path: Path) -> None:
    """A pod that fits exits 0, one that does not exits 1 with what would help; nothing is created."""
    file = tmp_path / "pod.yaml"
    for cpus, code, part in (("16", 0, "would be admitted"), ("17", 1, "Ask for 16 instead of 17 CPUs")):
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **_complete(api_pod("new", cpus))}))
        answer = plugin("explain", "-f", str(file), "--node", NODE)
        assert (answer.returncode, part in answer.stdout) == (code, True)
        document = documents(plugin, "ExplanationList", "explain", "-f", str(file), "--node", NODE, code=code)
        assert document["items"][0]["admitted"] is (code == 0)  # type: ignore[index]
    assert all("portforward" in path or "/pods?" in path for path in node.asked)


def _complete(pod: dict[str, object]) -> dict[str, object]:
    pod["spec"]["containers"][0]["image"] = "i"  # type: ignore[index]
    return pod


def test_audit(plugin: Plugin, node: FakeAPI) -> None:
    """Findings name pods, not UIDs, and make exit 1; a node that cannot be asked makes exit 2."""
    answer = plugin("audit")
    assert answer.returncode == 1
    assert [line.split()[:3] for line in answer.stdout.splitlines()[1:3]] == [["n7", "missing", "pod"]] * 2
    assert "default/db" in answer.stdout
    report = read_document(plugin("audit", NODE, "-o", "json").stdout, "NodeAuditList")["items"][0]["report"]
    assert len(report["findings"]) == 2
    node.add("n8", 9, phase="Failed")
    assert plugin("audit").returncode == 2


def test_options_before_the_command_count(plugin: Plugin, node: FakeAPI, monkeypatch: pytest.MonkeyPatch) -> None:
    """`kubectl podslice --kubeconfig F top` is `kubectl podslice top --kubeconfig F`; the later one wins."""
    path = os.environ["KUBECONFIG"]
    monkeypatch.delenv("KUBECONFIG")
    assert plugin("--kubeconfig", path, "top").returncode == 0
    assert plugin("--kubeconfig", "/nope", "top", "--kubeconfig", path).returncode == 0
    assert plugin("--agent-namespace", "elsewhere", "--kubeconfig", path, "top").returncode == 2


@pytest.mark.parametrize("via", ["proxy", "port-forward", ""])
def test_a_token_goes_every_way(plugin: Plugin, api: FakeAPI, tmp_path: Path, via: str) -> None:
    """Behind a Secret's token the status is read through the proxy or a port-forward, with that token and no other."""
    file = tmp_path / "token"
    file.write_text("0123456789abcdef")
    with live_agent(tmp_path / "agent", [], token_file=str(file)) as port:
        name = api.add(NODE, port, secret="status")
        secret = {"kind": "Secret", "data": {"token": "MDEyMzQ1Njc4OWFiY2RlZg=="}}
        api.objects["/api/v1/namespaces/podslice/secrets/status"] = secret
        answer = plugin("node", NODE, "-o", "json", *(["--via", via] if via else []))
        assert answer.returncode == 0
        way = "portforward" if via == "port-forward" else "proxy"
        assert any(name in path and way in path for path in api.asked)
        api.objects["/api/v1/namespaces/podslice/secrets/status"] = {"data": {"token": "d3Jvbmd3cm9uZ3dyb25n"}}
        wrong = plugin("node", NODE)
        assert (wrong.returncode, wrong.stderr.count("\n"), "the token is missing or wrong" in wrong.stderr) == (
            2,
            1,
            True,
        )


def test_without_the_proxy_right_a_port_is_forwarded(plugin: Plugin, api: FakeAPI, tmp_path: Path) -> None:
    """Without the right to the proxy, but to port-forward, the answer is the same."""
    file = tmp_path / "token"
    file.write_text("0123456789abcdef")
    with live_agent(tmp_path / "agent", [], token_file=str(file)) as port:
        name = api.add(NODE, port, secret="status")
        secret = {"kind": "Secret", "data": {"token": "MDEyMzQ1Njc4OWFiY2RlZg=="}}
        api.objects["/api/v1/namespaces/podslice/secrets/status"] = secret
        api.forbidden = (f"/api/v1/namespaces/podslice/pods/{name}:9096/proxy",)
        assert plugin("node", NODE).returncode == 0
        assert any("portforward" in path for path in api.asked)


def test_documents_are_of_known_kinds(plugin: Plugin, node: FakeAPI) -> None:
    """Every answer for programs has a kind with a schema."""
    for words in (("top",), ("audit",), ("node", NODE), ("pod", "default/web")):
        check_document(json.loads(plugin(*words, "-o", "json").stdout))
