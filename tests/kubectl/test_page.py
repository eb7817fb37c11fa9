"""`pending`, `fit` and `fragmentation`, of the plugin and of `podslice cluster`: the same answers on every road."""

from __future__ import annotations

import base64
import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from podslice.cluster.page.history import measure_room_now
from podslice.cluster_view import client as page
from podslice.kubectl.client import Reply
from podslice.reading.yaml import load_documents
from tests.cluster.bench import pod_object
from tests.cluster.pagebench import PageCluster, serve
from tests.kubectl.conftest import Plugin
from tests.kubectl.fakeapi import FakeAPI
from tests.read_documents import read_document
from tests.shell import Answer, podslice

TOKEN = "0123456789abcdef-page"
Run = Callable[..., Answer]


def crowded_cluster() -> PageCluster:
    """Return two nodes, one scattered, one full, with two pending pods that no node takes, and one that fits."""
    cluster = PageCluster()
    cluster.node("n7", 4, 4)
    cluster.node("n8", 7, 7)
    for node in ("n7", "n8"):
        for number in range(2):
            cluster.runs(f"{node}-{number}", node)
    for name in ("a", "b"):
        cluster.wait(name, 6)
    cluster.wait("small", 2, priority=5)
    for step in range(10):
        cluster.queries.history.take(measure_room_now(cluster.placing.model), 1_700_000_000 + 30.0 * step)
    return cluster


@pytest.fixture(params=["service", "plugin"])
def run(request: pytest.FixtureRequest, api: FakeAPI, plugin: Plugin) -> Iterator[Run]:
    """`podslice cluster` with an address, and `kubectl podslice` through the API server."""
    with serve(crowded_cluster()) as site:
        if request.param == "service":
            yield lambda command, *words: podslice(
                "cluster", command, "--url", site.url, *words, stdin=sys.stdin.read() if "-" in words else ""
            )
        else:
            api.add_service("podslice-cluster-0", int(site.url.rsplit(":", 1)[1].strip("/")))
            yield plugin


@pytest.fixture
def manifest(tmp_path: Path) -> Callable[[int], str]:
    def write(cpus: int) -> str:
        spec = pod_object("p", str(cpus))["spec"]
        path = tmp_path / f"{cpus}.yaml"
        path.write_text(
            yaml.safe_dump({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{cpus}"}, "spec": spec})
        )
        return str(path)

    return write


def documents(run: Run, kind: str, code: int, *words: str) -> dict[str, Any]:
    answers = [run(*words, "-o", form) for form in ("json", "yaml")]
    assert [one.returncode for one in answers] == [code, code], answers[0].stderr
    found = read_document(answers[0].stdout, kind)
    assert load_documents(answers[1].stdout, "yaml") == [found]
    return found


def test_pending(run: Run) -> None:
    """A row for each pod, the most important first, and what would help, once for equal pods; exit code 1, because no
    node takes some."""
    answer = run("pending")
    assert answer.returncode == 1
    lines = answer.stdout.splitlines()
    assert lines[0].split() == "POD STATE PRIORITY ALIKE WHY".split()
    assert [line.split()[:4] for line in lines[1:4]] == [
        ["default/small", "waiting", "5", "0"], ["default/a", "refused", "0", "1"], ["default/b", "refused", "0", "1"]
    ]  # fmt: skip
    assert lines[2].endswith("0/2 nodes take it: 2 no NUMA node has 6 exclusive CPUs free")
    assert answer.stdout.count("  default/a: ") == 1
    assert "  default/b: " not in answer.stdout
    assert "What would help" not in run("pending", "--no-ways").stdout
    found = documents(run, "PendingPodList", 1, "pending")
    assert [bool(one["way"]) for one in found["items"]] == [False, True, True]


def test_fit(run: Run, manifest: Callable[[int], str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes that take the pod with the CPUs it would own, the others by reason, and what would help; from files,
    standard input and by the name of one that waits."""
    answer = run("fit", "-f", manifest(3))
    assert answer.returncode == 0
    assert "default/p3: 1 of 2 nodes take it" in answer.stdout
    assert next(line for line in answer.stdout.splitlines() if line.startswith("n7")).split()[0] == "n7"
    assert "no NUMA node has 3 exclusive CPUs free" in answer.stdout
    refused = run("fit", "-f", manifest(6), "-f", manifest(1))
    assert refused.returncode == 1
    assert "default/p6: none of 2 nodes takes it" in refused.stdout
    assert "  1. " in refused.stdout
    assert "  3. " in refused.stdout
    assert "default/p1: 2 of 2 nodes take it" in refused.stdout
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(manifest(2)).read_bytes())))
    assert "default/p2: 1 of 2 nodes take it" in run("fit", "-f", "-").stdout
    assert "default/small: 1 of 2 nodes take it" in run("fit", "--pod", "small").stdout
    (one,) = documents(run, "PodFitList", 1, "fit", "--pod", "default/a", "--no-ways")["items"]
    assert one["ways"] is None


def test_fragmentation(run: Run) -> None:
    """Sizes with the pods that find room, the most scattered node, and how it was, thinned out."""
    answer = run("fragmentation")
    assert answer.returncode == 0
    first = answer.stdout.splitlines()[0]
    assert first.startswith("2 nodes: 30 CPUs, 22 owned or promised, 8 free; 38 % of the free ones are not on")
    assert answer.stdout.count("2023-11-14T") == 8
    assert run("fragmentation", "-o", "wide").stdout.count("2023-11-14T") == 11
    found = documents(run, "ClusterFragmentation", 0, "fragmentation")
    assert found["scattered"] == [{"node": "n7", "free": 7, "largest": 4}]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("fit",), "names no pod"),
        (("fit", "--pod", "nobody"), "no pod 'default/nobody' waits for a node"),
        (("fit", "-f", "/nowhere"), "cannot be read"),
        (("fit", "-f", __file__), "test_page.py document 2: is not valid YAML"),
    ],
)
def test_bad_questions(run: Run, words: tuple[str, ...], text: str) -> None:
    """One line says what is wrong, and the exit code is 2."""
    answer = run(*words)
    assert answer.returncode == 2
    assert text in answer.stderr
    assert answer.stdout == ""


def test_through_the_proxy(plugin: Plugin, api: FakeAPI) -> None:
    """A page with a token is asked over the API server's proxy with the token of its Secret, over TLS; --via
    port-forward is refused there, and --via proxy where there is no token."""
    with serve(crowded_cluster(), token=lambda: TOKEN) as site:
        port = int(site.url.rsplit(":", 1)[1].strip("/"))
        api.add_service("podslice-cluster-1", port, secret="page")
        data = {"token": base64.b64encode(TOKEN.encode()).decode()}
        api.objects["/api/v1/namespaces/podslice/secrets/page"] = {"kind": "Secret", "data": data}
        assert plugin("fragmentation").returncode == 0
        assert any("/pods/https:podslice-cluster-1:9101/proxy/fragmentation" in path for path in api.asked)
        assert (
            "--via: the page of podslice-cluster-1 has a token"
            in plugin("fragmentation", "--via", "port-forward").stderr
        )
        data["token"] = base64.b64encode(b"wrong-wrong-wrong-wrong").decode()
        assert "give the token" in plugin("fragmentation").stderr
    api.agents.clear()
    api.add_service("podslice-cluster-0", 9)
    assert "has no token" in plugin("fragmentation", "--via", "proxy").stderr


def test_replicas(plugin: Plugin, api: FakeAPI) -> None:
    """The first replica that answers will do; where none does the first one's error is reported, and without any where
    they were searched."""
    assert "podslice cluster does not run in namespace podslice" in plugin("pending").stderr
    api.add_service("podslice-cluster-0", 9)
    api.add_service("podslice-cluster-1", 9, phase="Pending")
    answer = plugin("pending")
    assert answer.returncode == 2
    assert "port 9101 is not forwarded" in answer.stderr
    with serve(crowded_cluster()) as site:
        api.add_service("podslice-cluster-2", int(site.url.rsplit(":", 1)[1].strip("/")))
        assert plugin("pending").returncode == 1


def test_nobody_there(tmp_path: Path) -> None:
    """An address without listener, one that is none, and one where something else answers."""
    for url, text in (
        ("http://127.0.0.1:1", "cannot be reached: Connection refused"),
        ("ftp://x", "'ftp://x' is not an address"),
        ("http://127.0.0.1:9101/elsewhere", "is not an address"),
        ("http://me@127.0.0.1:9101", "is not an address"),
        ("http://[", "is not an address"),
    ):
        answer = podslice("cluster", "pending", "--url", url)
        assert (answer.returncode, text in answer.stderr) == (2, True), answer.stderr
    token = tmp_path / "token"
    token.write_text("short")
    assert "--token-file" in podslice("cluster", "pending", "--token-file", str(token)).stderr


def test_with_a_token(tmp_path: Path) -> None:
    """`podslice cluster` reads the token from a file, and reports where it is missing."""
    token = tmp_path / "token"
    token.write_text(TOKEN + "\n")
    with serve(crowded_cluster(), token=lambda: TOKEN) as site:
        assert podslice("cluster", "pending", "--url", site.url, "--token-file", str(token)).returncode == 1
        answer = podslice("cluster", "pending", "--url", site.url)
        assert (answer.returncode, "give the token" in answer.stderr) == (2, True)


@pytest.mark.parametrize("body", [b"[]", b"7", b'{"kind":"PendingPodList","items":7}', b'{"kind":"Other"}', b"<html>"])
def test_answers_that_are_none(plugin: Plugin, api: FakeAPI, body: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever answers in the service's place, one line says so."""
    api.add_service("podslice-cluster-0", 9)
    monkeypatch.setattr(page, "forward_request", lambda *asked, **how: Reply(200, "application/json", body))
    for command in (["pending"], ["fragmentation"], ["fit", "--pod", "x"]):
        answer = plugin(*command)
        assert (answer.returncode, answer.stderr.count("\n"), answer.stdout) == (2, 1, "")
