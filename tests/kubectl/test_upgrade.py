"""`kubectl podslice upgrade`: what another release changes on the nodes of a cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_daemon import api_pod
from tests.kubectl.conftest import Plugin
from tests.kubectl.fakeapi import FakeAPI
from tests.kubectl.liveagent import live_agent
from tests.read_documents import read_document

LEVEL = {"cpu": "4", "memory": "1Gi"}


def level_pod(name: str) -> dict[str, Any]:
    """A pod with pod-level resources, whose container asks for whole CPUs of its own."""
    made = api_pod(name, "4")
    made["spec"]["resources"] = {"requests": LEVEL, "limits": LEVEL}
    return made


@pytest.fixture(scope="module")
def ports(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, int]]:
    """Two equal nodes of 1.33, one of 1.36 that has other reservations, and one whose release is not known."""
    folder = tmp_path_factory.mktemp("agents")
    old = {"kubelet": "v1.33.4", "profile": "podslice-1.33"}
    with (
        live_agent(folder / "a", [level_pod("cache"), api_pod("web", "6")], node="a", **old) as a,
        live_agent(folder / "b", [api_pod("db", "6")], node="b", **{**old, "kubelet": "v1.33.9"}) as b,
        live_agent(folder / "c", [api_pod("ci", "4")], node="c", reserved_system_cpus="0-1") as c,
        live_agent(folder / "d", [], node="d", kubelet="v1.38.0") as d,
    ):
        yield {"a": a, "b": b, "c": c, "d": d}


@pytest.fixture
def cluster(api: FakeAPI, ports: dict[str, int]) -> FakeAPI:
    for node in "abc":
        api.add(node, ports[node])
    return api


def report(plugin: Plugin, *words: str) -> dict[str, Any]:
    return read_document(plugin("upgrade", *words, "-o", "json").stdout, "ClusterUpgradeReport")


def test_equal_nodes_are_one_pool(plugin: Plugin, cluster: FakeAPI) -> None:
    """By machine, configuration and release; the configuration is told once, changes of pods with their nodes."""
    found = report(plugin, "--to", "1.36")
    assert [[one["node"] for one in pool["nodes"]] for pool in found["pools"]] == [["a", "b"], ["c"]]
    old, new = found["pools"]
    assert [(one["kubelet"], one["pods"]) for one in old["nodes"]] == [("v1.33.4", 2), ("v1.33.9", 1)]
    assert (old["release"], new["release"], new["steps"]) == ("1.33", "1.36", [])
    (step,) = old["steps"]
    subjects = [one["subject"] for one in step["configuration"]]
    assert subjects.count("featureGates.PodLevelResources") == 1
    told = {(one["node"], one["subject"]): one["text"] for one in reversed(step["recreated"])}
    assert told["a", "default/cache"] == "container app gets no CPUs of its own, not 2-5"
    assert {node for node, _ in told} == {"a"}


def test_who_is_harmed(plugin: Plugin, cluster: FakeAPI) -> None:
    """Exit code 1, the pods in red and counted, as `walk` on each node says; each release on the way with `--all`."""
    said = plugin("upgrade", "--to", "1.32", "c")
    assert said.returncode == 1
    rows = [line.split() for line in said.stdout.splitlines()[:2]]
    assert rows == [["NODES", "KUBELET", "PODS", "CHANGED", "HARMED", "STARTS"], ["c", "v1.36.2", "1", "1", "1", "yes"]]
    assert "c default/ci: container app: cpu.max is 400000 100000, was max 100000 (it gets a CFS quota)" in said.stdout
    steps = report(plugin, "--to", "1.32", "--all", "c")["pools"][0]["steps"]
    assert [(one["before"], one["after"]) for one in steps] == [
        ("1.36", "1.35"), ("1.35", "1.34"), ("1.34", "1.33"), ("1.33", "1.32"),
    ]  # fmt: skip
    assert [bool(one["running"]) for one in steps] == [False, False, False, True]


def test_a_kubelet_that_does_not_start(plugin: Plugin, api: FakeAPI, tmp_path: Path) -> None:
    """A gate that is gone: exit code 1, STARTS says no, and the gate is named once."""
    gates = {"feature_gates": {"CPUManager": True}}
    with live_agent(tmp_path, [], node="e", kubelet="v1.32.4", profile="podslice-1.32", **gates) as port:
        api.add("e", port)
        said = plugin("upgrade", "--to", "1.33")
    assert said.returncode == 1
    assert said.stdout.splitlines()[1].split() == ["e", "v1.32.4", "0", "0", "0", "no"]
    assert said.stdout.count("featureGates.CPUManager") == 1


def test_the_release_that_runs(plugin: Plugin, cluster: FakeAPI, ports: dict[str, int]) -> None:
    """By the agent's word, or by `--from`; a node whose release is not known is told of, with exit code 2."""
    cluster.add("d", ports["d"])
    found = report(plugin, "--to", "1.37")
    (unknown,) = found["unknown"]
    assert unknown["node"] == "d"
    assert "Kubernetes 1.38 is not known here" in unknown["problem"]
    assert report(plugin, "--to", "1.37", "--from", "1.36", "d")["pools"][0]["release"] == "1.36"
    said = plugin("upgrade", "--to", "1.37", "d")
    assert said.returncode == 2
    assert "d: Kubernetes 1.38 is not known here" in said.stdout


def test_nodes_by_label(plugin: Plugin, cluster: FakeAPI) -> None:
    """`-l` asks the API server; a chosen node without an agent is told of, and no node is an error."""
    nodes = [{"metadata": {"name": name}} for name in ("b", "z")]
    cluster.objects["/api/v1/nodes"] = {"kind": "NodeList", "items": nodes}
    found = report(plugin, "--to", "1.36", "-l", "pool=latency")
    assert "/api/v1/nodes?labelSelector=pool%3Dlatency" in "".join(cluster.asked)
    assert [one["node"] for one in found["pools"][0]["nodes"]] == ["b"]
    assert found["unknown"] == [{"node": "z", "problem": "no agent runs on it"}]
    cluster.objects["/api/v1/nodes"]["items"] = []
    said = plugin("upgrade", "--to", "1.36", "-l", "pool=latency")
    assert (said.returncode, said.stdout) == (2, "")
    assert "--selector: no node has pool=latency (kubectl get nodes --show-labels)" in said.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--to", "1.99"), "--to: Kubernetes 1.99 is not known here"),
        (("--to", "1.36", "--from", "old"), "--from: 'old' is not a Kubernetes version"),
        (("--to", "1.36", "-l", "a=b", "n7"), "--selector: nodes are named too (give one of them)"),
        ((), "missing option '--to'"),
    ],
)
def test_bad_input(plugin: Plugin, api: FakeAPI, words: tuple[str, ...], error: str) -> None:
    """One line, before anything is asked."""
    said = plugin("upgrade", *words)
    assert said.returncode == 2
    assert error in said.stderr
    assert not api.asked


def test_long_lists_end(plugin: Plugin, api: FakeAPI, tmp_path: Path) -> None:
    """The table names ten changes of each part; `-o wide` names all."""
    pods = [api_pod(f"p{number}", str(number)) for number in range(1, 7)]
    with live_agent(tmp_path, pods, node="f") as port:
        api.add("f", port)
        said, wide = (plugin("upgrade", "--to", "1.32", *more).stdout for more in ((), ("-o", "wide")))
    assert "and 2 more such lines: -o wide" in said
    assert "f default/p6: container app: cpu.max" in " ".join(wide.split())
    assert "more such lines" not in wide


def test_explain_under_another_release(plugin: Plugin, cluster: FakeAPI, tmp_path: Path) -> None:
    """As the agent decides, as the kubelet beside it, or as a named release; the answer says which."""
    (tmp_path / "pod.json").write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **level_pod("new")}))
    words = ("explain", "-f", str(tmp_path / "pod.json"), "--node", "a", "-o", "json")
    owned = {}
    for named in ((), ("--kubernetes", "auto"), ("--kubernetes", "1.36")):
        found = read_document(plugin(*words, *named).stdout, "ExplanationList")
        owned[found["provenance"]["release"]] = "Container app gets CPUs" in json.dumps(found["items"][0])
    assert owned == {"1.33": True, "1.36": False}
    assert "--kubernetes: Kubernetes 1.99 is not known here" in plugin(*words, "--kubernetes", "1.99").stderr
