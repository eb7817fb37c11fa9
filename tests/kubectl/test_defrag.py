"""`kubectl podslice defrag`: plans for a node of the cluster, and its agent that carries them out."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.agent.test_daemon import api_pod
from tests.cli.test_defrag_apply import DONE, FAILED, agent, result_of
from tests.kubectl.conftest import Plugin
from tests.kubectl.fakeapi import FakeAPI
from tests.kubectl.liveagent import live_agent
from tests.read_documents import read_document

ROOT = Path(__file__).parents[2]
Said = tuple[list[tuple[bool, bytes]], int]


@pytest.fixture(scope="module")
def scattered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """15 and 16 CPUs on two NUMA nodes, of which 3 and 7 are free."""
    pods = [api_pod("web", "7"), api_pod("db", "5"), api_pod("dc", "9")]
    folder = tmp_path_factory.mktemp("n8")
    with live_agent(folder, pods, node="n8", topology_manager_policy="single-numa-node") as port:
        yield port


@pytest.fixture
def cluster(api: FakeAPI, scattered: int) -> FakeAPI:
    api.add("n8", scattered)
    return api


def pod(folder: Path, cpus: str) -> str:
    path = folder / "pod.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", **api_pod("big", cpus)}))
    return str(path)


class Container:
    """Runs the command line as it is in the agent's container; the socket there is a file here."""

    def __init__(self, socket: Path) -> None:
        self.socket, self.commands = socket, list[list[str]]()

    def __call__(self, command: list[str], given: bytes) -> Said:
        self.commands.append(command)
        here = [str(self.socket) if one == "/run/podslice/agent.sock" else one for one in command[1:]]
        done = subprocess.run(
            [sys.executable, "-m", "podslice", *here], input=given, capture_output=True, cwd=ROOT, check=False
        )
        halves = [done.stdout[: len(done.stdout) // 2], done.stdout[len(done.stdout) // 2 :]]
        return [(True, done.stderr), *((False, half) for half in halves if half)], done.returncode


@pytest.mark.slow
def test_a_plan_is_carried_out(plugin: Plugin, cluster: FakeAPI, tmp_path: Path) -> None:
    """The plan is shown, goes through the agent's container to its socket with the digest of the node it was made on,
    and what the agent says of each move is shown, with its exit code."""
    cluster.runs = container = Container(tmp_path / "s")
    progress = {"step": 1, "of": 1, "text": "default/db app: 16-19 -> 2-5", "result": "done", "problem": ""}
    planned = plugin("defrag", "-f", pod(tmp_path, "8"), "--node", "n8", "-o", "json")
    (plan,) = read_document(planned.stdout, "DefragmentationPlanList")["items"]
    assert len(plan["plan"]["moves"]) == 1
    assert container.commands == []
    with agent(tmp_path, {"progress": progress}, {"answer": result_of(DONE)}) as asked:
        done = plugin("defrag", "-f", pod(tmp_path, "8"), "--node", "n8", "--apply", "--yes")
    assert (done.returncode, done.stdout.splitlines()[-2]) == (0, "1 of 1: done: default/db app: 16-19 -> 2-5")
    assert "default/big" in done.stdout
    assert done.stderr == "warning: the policy of n8 says defrag.carryOut: never, its agent will refuse\n"
    (request,) = asked
    assert (request["moves"]["state"], request["moves"]["moves"]) == (plan["state"], plan["plan"]["moves"])
    (asked_for,) = [one for one in cluster.asked if "/exec?" in one]
    assert parse_qs(urlsplit(asked_for).query)["command"][:4] == ["podslice", "defrag", "--apply", "-"]


@pytest.mark.slow
def test_a_kept_plan_and_the_way_back(plugin: Plugin, cluster: FakeAPI, tmp_path: Path) -> None:
    """--plan carries out what was printed before, --undo takes back the agent's last one; exit code 1 where it stopped,
    and documents are the agent's."""
    cluster.runs = Container(tmp_path / "s")
    kept = tmp_path / "plan.json"
    kept.write_text(plugin("defrag", "-f", pod(tmp_path, "8"), "--node", "n8", "-o", "json").stdout)
    with agent(tmp_path, {"answer": result_of(FAILED, problem="busy")}):
        stopped = plugin("defrag", "--plan", str(kept), "--node", "n8", "--apply", "--yes", "-o", "json")
    assert (stopped.returncode, read_document(stopped.stdout, "DefragmentationResult")["problem"]) == (1, "busy")
    (tmp_path / "s").unlink()
    with agent(tmp_path, {"answer": result_of(DONE, undo=True)}) as asked:
        back = plugin("defrag", "--undo", "--node", "n8", "--yes")
    assert (back.returncode, back.stdout, asked) == (0, "1 move undone.\n", [{"request": "undo"}])


def test_nothing_moves_by_itself(plugin: Plugin, cluster: FakeAPI, tmp_path: Path) -> None:
    """Without --apply, without a yes, with --dry-run, and where no move is needed or none helps, no command runs."""
    here = ("defrag", "-f", pod(tmp_path, "8"), "--node", "n8")
    assert plugin(*here).returncode == 0
    unasked = plugin(*here, "--apply")
    assert (unasked.returncode, unasked.stderr.splitlines()[-1]) == (
        2, "podslice: error: --yes: there is no terminal to ask at (add --yes, or look at the plan first)",
    )  # fmt: skip
    dry = plugin(*here, "--apply", "--dry-run")
    assert (dry.returncode, dry.stderr.splitlines()[-1]) == (0, "Nothing was moved on n8: --dry-run.")
    small = plugin("defrag", "-f", pod(tmp_path, "2"), "--node", "n8", "--apply", "--yes")
    assert small.returncode == 0
    large = plugin("defrag", "-f", pod(tmp_path, "30"), "--node", "n8", "--apply", "--yes")
    assert large.returncode == 1
    assert not [one for one in cluster.asked if "/exec" in one]


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ((), "-f: for which pod?"),
        (("-f", "POD", "--plan", "POD", "--apply"), "-f: for which pod?"),
        (("--plan", "POD"), "--plan: is there to be carried out"),
        (("--undo", "--apply"), "--undo: goes alone"),
        (("-f", "POD", "--dry-run"), "--dry-run: goes with --apply"),
    ],
)
def test_commands_that_make_no_sense(
    plugin: Plugin, cluster: FakeAPI, tmp_path: Path, arguments: tuple[str, ...], problem: str
) -> None:
    """One line, exit code 2, and no question."""
    path = pod(tmp_path, "8")
    answer = plugin("defrag", "--node", "n8", *(path if one == "POD" else one for one in arguments))
    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith(f"podslice: error: {problem}")
    assert cluster.asked == []


def test_what_may_go_wrong_on_the_way(plugin: Plugin, cluster: FakeAPI) -> None:
    """The missing right is named with its role, a container without podslice says so, and what a node says does not
    steer the terminal."""
    cluster.forbidden = ("/api/v1/namespaces/podslice/pods/podslice-agent-n8/exec",)
    refused = plugin("defrag", "--undo", "--node", "n8", "--yes")
    assert refused.returncode == 2
    assert "podslice-kubectl-move" in refused.stderr
    cluster.forbidden = ()
    missing = plugin("defrag", "--undo", "--node", "n8", "--yes")
    assert missing.returncode == 2
    assert "the command did not run: executable file not found in $PATH" in missing.stderr
    cluster.runs = lambda command, given: ([(False, "a\x1b[2Jé".encode()[:6]), (False, "é".encode()[1:] + b"\n")], 1)
    told = plugin("defrag", "--undo", "--node", "n8", "--yes")
    assert (told.returncode, told.stdout) == (1, "a\\x1b[2Jé\n")
