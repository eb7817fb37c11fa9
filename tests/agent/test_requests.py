"""Requests over the agent's local socket, and `podslice defrag --apply` through it."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import msgspec
import pytest

from podslice.advise.defrag.moves import LARGEST_REQUEST
from podslice.agent.moves.move_rules import ThreadReader, kernel_release
from podslice.agent.process.daemon import Agent
from podslice.agent.process.exclusive import SocketFile
from podslice.agent.records import ContainerRecord
from podslice.agent.status.requests import Send, check_peer, serve_local
from podslice.host.filesystem import MemoryFileSystem
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.status.agent_socket import ask
from podslice.status.status import AgentStatus
from podslice.values.cpuset import parse_bits
from podslice.values.errors import InputError
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.fakenode import FakeTree
from tests.agent.test_daemon import RESOURCES, api_pod, with_agent
from tests.clock import until
from tests.read_documents import read_document
from tests.service.fake_runtime import FakeRuntime
from tests.shell import podslice_process as command

STATUS = AgentStatus("n", "m", "r", True, False, 0.0, "", "", None, (), (), "")


def served(folder: Path, test: Callable[[str], Awaitable[None]], **handlers: Any) -> None:
    async def main() -> None:
        server = await serve_local(SocketFile(folder / "s"), lambda: STATUS, handlers)
        async with server:
            await test(str(folder / "s"))

    asyncio.run(main())


async def said(path: str, data: bytes, *, eof: bool = False) -> Any:
    """The answer to these bytes."""
    reader, writer = await asyncio.open_unix_connection(path)
    writer.write(data)
    if eof:
        writer.write_eof()
    answer = msgspec.json.decode(await reader.read())
    writer.close()
    return answer


async def echoed(request: Mapping[str, Any], send: Send) -> dict[str, Any]:
    send({"progress": {"step": 1}})
    return {"got": request["what"]}


def test_who_says_nothing_reads_the_status(tmp_path: Path) -> None:
    """At once where the writing end is closed, after a moment where an older command leaves it open."""

    async def test(path: str) -> None:
        for eof in (True, False):
            assert (await said(path, b"", eof=eof))["kind"] == "AgentStatus"

    served(tmp_path, test)


@pytest.mark.parametrize(
    ("line", "error"),
    [
        (b"GET / HTTP/1.1\r\n", "a request is one line of JSON"),
        (b"[]\n", "a request is one line of JSON"),
        (b"[" * 100_000 + b"\n", "a request is one line of JSON"),
        (b"\xff\n", "a request is one line of JSON"),
        (b"x" * (LARGEST_REQUEST + 2) + b"\n", "a request is one line of JSON"),
        (b'{"request": "more"}\n', "request: 'more' is none of echo"),
        (b"{}\n", "request: 'None' is none of echo"),
    ],
    ids=["http", "list", "deep", "bytes", "long", "unknown", "nothing"],
)
def test_what_makes_no_sense_is_answered_with_an_error(tmp_path: Path, line: bytes, error: str) -> None:
    """Whatever comes, the answer is one line with an error, and the next one is served."""

    async def test(path: str) -> None:
        try:
            assert (await said(path, line))["error"].startswith(error)
        except ConnectionResetError:
            assert len(line) > LARGEST_REQUEST, "only what was never read may be cut off"
        lines = await asyncio.to_thread(lambda: list(ask(path, {"request": "echo", "what": 1})))
        assert lines == [{"progress": {"step": 1}}, {"answer": {"got": 1}}]

    served(tmp_path, test, echo=echoed)


def test_an_error_of_ours_is_an_answer(tmp_path: Path) -> None:
    """An internal error is answered and logged, and the next request is served."""
    troubles = list[tuple[str, str]]()

    async def broken(request: Mapping[str, Any], send: Send) -> dict[str, Any]:
        raise KeyError("x")

    async def main() -> None:
        path = str(tmp_path / "s")
        served = serve_local(
            SocketFile(tmp_path / "s"),
            lambda: STATUS,
            {"broken": broken, "echo": echoed},
            trouble=lambda what, message: troubles.append((what, message)),
        )
        async with await served:
            assert (await said(path, b'{"request": "broken"}\n'))["error"].startswith("KeyError: 'x' at ")
            assert len(await asyncio.to_thread(lambda: list(ask(path, {"request": "echo", "what": 1})))) == 2

    asyncio.run(main())
    assert [what for what, _ in troubles] == ["request"]


def test_an_older_agent_knows_no_requests(tmp_path: Path) -> None:
    """It says its status and hangs up, which is not an answer."""

    async def test(path: str) -> None:
        with pytest.raises(InputError, match="takes no requests"):
            await asyncio.to_thread(lambda: list(ask(path, {"request": "echo"})))

    async def older(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b'{"kind": "AgentStatus"}')
        await writer.drain()
        writer.close()

    async def main() -> None:
        async with await asyncio.start_unix_server(older, path=str(tmp_path / "s")):
            await test(str(tmp_path / "s"))

    asyncio.run(main())


def test_who_hangs_up_is_noticed(tmp_path: Path) -> None:
    """A handler that tells of its work hears that nobody listens."""
    heard = list[type[Exception]]()

    async def long(request: Mapping[str, Any], send: Send) -> dict[str, Any]:
        try:
            await until(lambda: _fails(send))
        finally:
            heard.append(ConnectionResetError)
        return {}

    def _fails(send: Send) -> bool:
        try:
            send({"progress": {}})
        except ConnectionResetError:
            return True
        return False

    async def test(path: str) -> None:
        _, writer = await asyncio.open_unix_connection(path)
        writer.write(b'{"request": "long"}\n')
        await writer.drain()
        writer.close()
        await until(lambda: heard)

    served(tmp_path, test, long=long)


class Peer(socket.socket):
    """Somebody of another user at the other end."""

    uid = 0

    def getsockopt(self, *arguments: int) -> Any:
        return struct.pack("3i", 1, self.uid, 0)


@pytest.mark.parametrize(("uid", "good"), [(0, True), (os.geteuid(), True), (65534, False)])
def test_only_root_and_the_agents_user_may_ask(uid: int, good: bool) -> None:
    """The kernel says who is at the other end, whatever became of the socket's mode."""
    with Peer(socket.AF_UNIX) as peer:
        peer.uid = uid
        if good:
            check_peer(peer)
            return
        with pytest.raises(InputError, match="user 65534 may not ask for this"):
            check_peer(peer)


def test_threads_are_read_where_they_can_be_seen(tmp_path: Path) -> None:
    """Those of all processes in the container's cgroup and below it; a process of another namespace, or none that can
    be seen, is not an answer."""
    tree = FakeTree(tmp_path)
    tree.add("k/c", procs="7\n")
    tree.add("k/c/inner", procs="8\n")
    files = {
        "7/task/7/status": "Name:\tx\nCpus_allowed_list:\t2-5\n",
        "7/task/9/status": "Cpus_allowed_list:\t3\n",
        "8/task/8/status": "Cpus_allowed_list:\t2-5\n",
    }
    record = ContainerRecord("c", "app", "a", "s", cgroups_path="/k/c")
    reader = ThreadReader(CgroupTree(tmp_path), MemoryFileSystem(files))
    assert reader(record) == ((parse_bits("2-5"), parse_bits("3"), parse_bits("2-5")), True)
    assert not ThreadReader(CgroupTree(tmp_path), None)(record).seen
    tree.add("k/c/inner", procs="0\n")
    assert not reader(record).seen
    assert [kernel_release(text) for text in ("6.2.0-39-generic", "5.15", "?")] == [(6, 2), (5, 15), (0, 0)]


POLICY = {
    "apiVersion": "podslice.io/v1alpha1",
    "kind": "PodslicePolicy",
    "spec": {"defrag": {"carryOut": "onRequest", "movable": "annotated"}},
}
MOVABLE = {"annotations": {"podslice.io/movable": "true"}}
BIG = """
apiVersion: v1
kind: Pod
metadata: {name: big, uid: big}
spec:
  containers:
  - name: app
    resources: {limits: {cpu: "14", memory: 1Gi}}
"""


async def _run(folder: Path, fake: FakeRuntime, api: FakeApiServer, uid: str, cpu: str) -> str:
    """A pod that may be moved, with the cgroup that its runtime makes; where that is."""
    pod = api_pod(uid, cpu)
    await api.apply({**pod, "metadata": {**pod["metadata"], **MOVABLE}})
    container = await fake.create_container(await fake.run_pod(uid), "app")
    path = container.message.linux.cgroups_path.strip("/")
    made = FakeTree(folder / "cgroup").add(path, cpuset_cpus=container.cpus)
    (made / "cpuset.cpus.effective").symlink_to("cpuset.cpus")
    return path


@pytest.mark.slow
@pytest.mark.process
def test_from_the_plan_to_the_pod_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plan on the agent's own node, carry it out, take it back: the command says each move, the result is a document,
    and the agent counts and tells. The same plan a second time is stale."""
    monkeypatch.setattr("podslice.agent.optional_parts.sees_the_node", lambda: True)
    pod_file, plan_file, result_file = tmp_path / "big.yaml", tmp_path / "plan.json", tmp_path / "result.json"
    pod_file.write_text(BIG)

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        web = await _run(tmp_path, fake, api, "web", "4")
        await _run(tmp_path, fake, api, "db", "12")
        tree = FakeTree(tmp_path / "cgroup")
        await until(lambda: tree.text(web, "cpuset.cpus") == "2-5")

        async def run(*arguments: str) -> CompletedProcess[str]:
            return await asyncio.to_thread(command, "defrag", *arguments, "--socket", str(tmp_path / "agent.sock"))

        planned = await run(str(pod_file), "--agent", "-o", "json")
        plan = read_document(planned.stdout, "DefragmentationPlanList")
        plan_file.write_text(planned.stdout)
        assert [move["uid"] for move in plan["items"][0]["plan"]["moves"]] == ["web"]
        applied = await run("--apply", str(plan_file))
        assert (applied.returncode, applied.stdout.splitlines()) == (
            0,
            [
                "1 of 1: done: default/web app: 2-5 -> 28-31",
                "1 move done. podslice defrag --undo takes them back.",
            ],
        )
        assert tree.text(web, "cpuset.cpus") == "28-31"
        await until(lambda: any(event["reason"] == "PodsliceMoved" for event in api.events))
        assert b'podslice_moves_total{result="done"} 1.0' in agent.endpoints.page.text()
        stale = await run("--apply", str(plan_file), "-o", "json")
        result = read_document(stale.stdout, "DefragmentationResult")
        assert (stale.returncode, result["moves"][0]["result"]) == (1, "notBegun")
        assert "plan anew" in result["problem"]
        undone = await run("--undo", "-o", "json")
        result_file.write_text(undone.stdout)
        result = read_document(undone.stdout, "DefragmentationResult")
        assert (undone.returncode, result["undo"], result["problem"]) == (0, True, "")
        assert (tree.text(web, "cpuset.cpus"), result["stateAfter"]) == ("2-5", plan["items"][0]["state"])
        again = await run("--undo", str(result_file))
        assert (again.stderr, again.returncode, tree.text(web, "cpuset.cpus")) == ("", 0, "28-31")

    resources = {**RESOURCES, "topologyManagerPolicy": "single-numa-node"}
    with_agent(tmp_path, test, policy=POLICY, resources=resources)


@pytest.mark.slow
def test_nothing_is_moved_without_the_policy(tmp_path: Path) -> None:
    """The refusal is an answer, with exit code 1, and a document where one is wanted."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(api_pod("a", "4"))
        await fake.create_container(await fake.run_pod("a"), "app")
        sets = {"cpusBefore": "1-4", "cpusAfter": "20-23", "memoryNodesBefore": "", "memoryNodesAfter": ""}
        move = {"uid": "a", "namespace": "default", "name": "a", "containers": [{"name": "app", **sets}]}
        request = {"request": "moves", "moves": {"state": "", "moves": [move]}}
        (line,) = await asyncio.to_thread(lambda: list(ask(str(tmp_path / "agent.sock"), request)))
        assert line["answer"]["problem"] == "the policy of this node says defrag.carryOut: never"
        with pytest.raises(InputError, match="moves: is missing"):
            await asyncio.to_thread(lambda: list(ask(str(tmp_path / "agent.sock"), {"request": "moves"})))
        with pytest.raises(InputError, match="has carried out no plan since it started"):
            await asyncio.to_thread(lambda: list(ask(str(tmp_path / "agent.sock"), {"request": "undo"})))

    with_agent(tmp_path, test)
