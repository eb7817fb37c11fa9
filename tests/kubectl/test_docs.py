"""docs/kubectl.md: the commands it shows, on the cluster it describes, print what it shows."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_DNS, uuid5

import pytest

from podslice.cluster.page.history import measure_room_now
from tests.agent.test_daemon import api_pod
from tests.cluster.bench import pod_object, scheduled_pod
from tests.cluster.pagebench import PageCluster, serve
from tests.kubectl.conftest import Plugin
from tests.kubectl.fakeapi import fake_api, kubeconfig
from tests.kubectl.liveagent import live_agent

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "kubectl.md"


def pod(name: str, cpus: str, node: str, **status: Any) -> dict[str, Any]:
    """A pod of the namespace shop."""
    made = api_pod(name, cpus)
    made["metadata"] |= {"namespace": "shop", "uid": str(uuid5(NAMESPACE_DNS, name))}
    made["spec"]["nodeName"] = node
    return {**made, "status": {"phase": "Running", "qosClass": "Guaranteed", **status}}


@contextlib.contextmanager
def documented_cluster(folder: Path) -> Iterator[Path]:
    """Two nodes with agents: n7 is nearly full and has refused a pod, n8 is scattered; yields a kubeconfig."""
    refused = {
        "phase": "Failed",
        "reason": "TopologyAffinityError",
        "message": "Pod was rejected: Resources cannot be allocated with Topology locality",
    }
    full = [pod("web-0", "4", "n7"), pod("db-0", "11", "n7"), pod("trainer", "20", "n7", **refused)]
    half = [pod("web-1", "10", "n8"), pod("db-1", "10", "n8")]
    with (
        live_agent(folder / "n7", full, node="n7") as n7,
        live_agent(folder / "n8", half, node="n8", cpusets={"db-1": "16-31"}) as n8,
        fake_api() as api,
    ):
        api.add("n7", n7)
        api.add("n8", n8)
        for one in (*full, *half):
            api.add_pod(one)
        api.events.append(
            {"type": "Warning", "reason": "TopologyAffinityError", "lastTimestamp": "2026-11-22T06:41:07Z",
             "message": "Resources cannot be allocated with Topology locality; ask for 16 instead of 20 CPUs"}
        )  # fmt: skip
        with serve(documented_service()) as site:
            api.add_service("podslice-cluster-0", int(site.url.rsplit(":", 1)[1].strip("/")))
            yield kubeconfig(folder, f"http://127.0.0.1:{api.server_address[1]}")


def documented_service() -> PageCluster:
    """The same two nodes as the service knows them, a pod that no node takes, and two looks at the room there was."""
    cluster = PageCluster("pack:2 numa:1(memory=64GiB) core:8 pu:2(indexes=pu)", unix=1_795_337_900.0)
    cluster.node("n7", 4, 11)
    cluster.queries.history.take(measure_room_now(cluster.placing.model), 1_795_334_400)
    cluster.node("n8", 10, 10)
    cluster.queries.history.take(measure_room_now(cluster.placing.model), 1_795_336_200)
    trainer = pod_object("trainer", "20")
    trainer["metadata"]["namespace"] = "shop"
    cluster.placing.pod_changed(None, scheduled_pod(trainer))
    return cluster


def shown() -> list[tuple[str, str]]:
    blocks = re.findall(r"```text\n\$ (kubectl podslice .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return [(line, output) for line, _, output in (block.partition("\n") for block in blocks)]


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with documented_cluster(tmp_path_factory.mktemp("docs")) as path:
        yield path


@pytest.mark.parametrize(("line", "output"), shown(), ids=lambda value: value[:50])
def test_documented_output_is_what_is_printed(
    line: str, output: str, plugin: Plugin, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every line shown is printed, in that order; a line that ends in … is the beginning of one, one that is … stands
    for some."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("KUBECONFIG", str(config))
    monkeypatch.setenv("COLUMNS", "100")
    answer = plugin(*shlex.split(line)[2:])
    printed = [re.sub(r"\(\d+s ago\)", "(2m ago)", one) for one in (answer.stdout + answer.stderr).splitlines()]
    place = 0
    for wanted in output.splitlines():
        if wanted.strip() in ("", "…"):
            continue
        begin = wanted.partition("…")[0].rstrip()
        found = [at for at in range(place, len(printed)) if printed[at].startswith(begin)]
        assert found, f"{wanted!r} is not printed there: " + "\n".join(printed)
        place = found[0] + 1


def test_something_is_shown() -> None:
    """Every command of the plugin is shown with its output."""
    assert {line.split()[2] for line, _ in shown()} == {
        "audit", "explain", "fit", "fragmentation", "node", "pending", "pod", "top", "upgrade",
    }  # fmt: skip
