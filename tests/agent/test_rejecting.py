"""A refused pod ends as a kubelet would have ended it, and nobody is refused for whom waiting helps."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from podslice.agent.api_server.refusals import LOOK_SECONDS
from podslice.agent.process.daemon import Agent
from podslice.agent.runtime.ttrpc import RPCError
from podslice.status.status import PodReport
from podslice.values.cpuset import format_bits, parse_bits
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.test_daemon import api_pod, with_agent
from tests.clock import until
from tests.read_documents import read_document
from tests.service.fake_runtime import FakeRuntime

NODE = "worker-1"
Test = Callable[[Agent, FakeRuntime, FakeApiServer], Awaitable[None]]


def pod(uid: str, cpu: str, *, deleting: bool = False, **metadata: Any) -> dict[str, Any]:
    """A pod bound to the node."""
    data = api_pod(uid, cpu)
    data["spec"]["nodeName"] = metadata.pop("node", NODE)
    data["metadata"] |= metadata
    if deleting:
        data["metadata"]["deletionTimestamp"] = "2026-11-22T06:00:00Z"
    return data


def on_node(folder: Path, test: Test, **fields: Any) -> None:
    with_agent(folder, test, **{"sources": {"apiServer": True, "nodeName": NODE}, **fields})


def owned(agent: Agent, uid: str) -> str:
    return format_bits(agent.owner.placing.owned_by([uid]))


def known(agent: Agent, uid: str) -> bool:
    return uid in agent.owner.pods


def report(agent: Agent, uid: str) -> PodReport:
    return next(one for one in agent.endpoints.status.read().pods if one.uid == uid)


async def refused(fake: FakeRuntime, sandbox: str, match: str = "TopologyAffinityError") -> None:
    with pytest.raises(RPCError, match=match):
        await fake.create_container(sandbox, "app")


def waiting(reason: str) -> dict[str, Any]:
    """Return the kubelet's status of a pod whose container does not run yet."""
    return {"phase": "Pending", "containerStatuses": [{"name": "app", "state": {"waiting": {"reason": reason}}}]}


def phase(api: FakeApiServer, uid: str) -> str:
    return str(api.objects[uid].get("status", {}).get("phase", ""))


async def settled(agent: Agent, api: FakeApiServer, uid: str) -> None:
    """All that was to be decided is decided: a small pod that came last is in."""
    await api.apply(pod(uid, "100m"))
    await until(lambda: known(agent, uid))


def test_failed_before_there_is_a_sandbox(tmp_path: Path) -> None:
    """A pod that does not fit is marked Failed when the API server tells of it, in the kubelet's words; one event says
    why and what would help, and the status lists it."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("big", "40"))
        await until(lambda: phase(api, "big") == "Failed" and api.events)
        status = api.objects["big"]["status"]
        assert status["reason"] == "TopologyAffinityError"
        assert status["message"] == "Pod was rejected: Resources cannot be allocated with Topology locality"
        assert not fake.containers
        (event,) = api.events
        assert (event["reason"], event["type"]) == ("TopologyAffinityError", "Warning")
        assert "Free for exclusive use: 31" in event["message"]
        assert "What would help: " in event["message"]
        await until(lambda: agent.endpoints.status.read().rejected and agent.endpoints.status.read().rejected[0].fix)
        (rejected,) = agent.endpoints.status.read().rejected
        assert (rejected.name, rejected.reason) == ("big", "TopologyAffinityError")
        assert rejected.since > 0
        await until(lambda: not known(agent, "big"))

    on_node(tmp_path, test)


@pytest.mark.slow
def test_a_sandbox_that_was_faster(tmp_path: Path) -> None:
    """Where the kubelet's sandbox comes first its containers are refused, also while the pod ends and when there is
    room again; with the sandbox everything is forgotten."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("old", "20"))
        await fake.create_container(await fake.run_pod("old"), "app")
        api.down = True
        sandbox = await fake.run_pod("new")
        api.down = False
        await api.apply(pod("new", "14"))
        await until(lambda: phase(api, "new") == "Failed")
        await refused(fake, sandbox)
        await api.delete("old")
        await fake.stop_pod("sandbox-old")
        await refused(fake, sandbox)
        await fake.stop_pod(sandbox)
        await until(lambda: not known(agent, "new"))
        assert agent.owner.placing.exclusive() == 0

    on_node(tmp_path, test)


def test_an_admitted_pod_holds_its_cpus_from_the_watch_on(tmp_path: Path) -> None:
    """A pod without sandbox holds what it got, until it is gone; its sandbox gets exactly that."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("first", "20"))
        await until(lambda: owned(agent, "first"))
        cpus = owned(agent, "first")
        await api.apply(pod("second", "14"))
        await until(lambda: phase(api, "second") == "Failed")
        container = await fake.create_container(await fake.run_pod("first"), "app")
        assert format_bits(parse_bits(container.cpus)) == cpus
        await api.apply(pod("third", "4"))
        await until(lambda: owned(agent, "third"))
        await api.delete("third")
        await until(lambda: not known(agent, "third"))
        assert agent.owner.placing.exclusive().bit_count() == 20

    on_node(tmp_path, test)


def test_waits_for_who_is_on_the_way_out(tmp_path: Path) -> None:
    """A pod that fits once a pod that is being deleted has gone is not marked Failed: its containers are refused until
    then, the status says for whom it waits, and it gets its CPUs before its next try."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("old", "20"))
        await fake.create_container(await fake.run_pod("old"), "app")
        await api.apply(pod("old", "20", deleting=True))
        await api.apply(pod("new", "14"))
        await until(lambda: known(agent, "new") and report(agent, "new").refusals[0].waits_for)
        assert report(agent, "new").refusals[0].waits_for == ("default/old",)
        sandbox = await fake.run_pod("new")
        await refused(fake, sandbox, "it waits for default/old to end")
        await until(lambda: api.events)
        assert [(event["type"], event["reason"]) for event in api.events] == [("Normal", "PodsliceWaiting")]
        await fake.stop_pod("sandbox-old")
        await until(lambda: owned(agent, "new"))
        assert (await fake.create_container(sandbox, "app")).cpus
        await settled(agent, api, "last")
        assert not api.patches

    on_node(tmp_path, test)


@pytest.mark.parametrize("how", ["deleted", "ended"])
def test_a_pod_the_api_server_no_longer_has(tmp_path: Path, how: str) -> None:
    """A pod that is Succeeded or was deleted by force, whose sandbox is still there, is on its way out as well."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("old", "20"))
        await fake.create_container(await fake.run_pod("old"), "app")
        if how == "deleted":
            await api.delete("old")
        else:
            await api.apply({**pod("old", "20"), "status": {"phase": "Succeeded"}})
        await api.apply(pod("new", "14"))
        await until(lambda: known(agent, "new") and report(agent, "new").refusals[0].waits_for)
        await fake.stop_pod("sandbox-old")
        await until(lambda: owned(agent, "new"))
        assert not api.patches

    on_node(tmp_path, test)


def test_waiting_in_vain(tmp_path: Path) -> None:
    """A pod that does not fit even without those on their way out is marked Failed at once; one that waited is when
    somebody else has taken the room."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("old", "20"))
        await fake.create_container(await fake.run_pod("old"), "app")
        await api.apply(pod("old", "20", deleting=True))
        await api.apply(pod("huge", "40"))
        await until(lambda: phase(api, "huge") == "Failed")
        await api.apply(pod("one", "16", creationTimestamp="2026-11-22T06:00:01Z"))
        await api.apply(pod("two", "16", creationTimestamp="2026-11-22T06:00:02Z"))
        await until(
            lambda: all(known(agent, uid) and report(agent, uid).refusals[0].waits_for for uid in ("one", "two"))
        )
        await fake.stop_pod("sandbox-old")
        await until(lambda: phase(api, "two") == "Failed")
        assert owned(agent, "one")

    on_node(tmp_path, test)


def test_never_these(tmp_path: Path) -> None:
    """Pods of other nodes, mirrors, static pods, pods that are being deleted, pods that cannot be read and pods that
    run are never marked Failed."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        hash_of = {"kubernetes.io/config.hash": "static", "kubernetes.io/config.source": "file"}
        claim = {"kubernetes.io/config.hash": "static", "kubernetes.io/config.mirror": "static"}
        await api.apply(pod("elsewhere", "40", node="worker-2"))
        owner = [{"kind": "Node", "name": NODE, "controller": True}]
        await api.apply(pod("mirror", "40", name="static", annotations=claim, ownerReferences=owner))
        await api.apply(pod("false-mirror", "40", annotations=claim))
        await api.apply(pod("deleting", "40", deleting=True))
        unreadable = pod("unreadable", "4")
        unreadable["spec"]["containers"][0]["resources"]["limits"]["cpu"] = "four"
        await api.apply(unreadable)
        await refused(fake, await fake.run_pod("static", annotations=hash_of))
        await refused(fake, await fake.run_pod("deleting"))
        await refused(fake, await fake.run_pod("unreadable"), "InvalidPod")
        await settled(agent, api, "last")
        await settled(agent, api, "very-last")
        assert not api.patches

    on_node(tmp_path, test)


def test_a_pod_that_runs_is_left_alone(tmp_path: Path) -> None:
    """A pod that started while the agent was away, and does not fit, runs on the shared pool and is not marked
    Failed."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("old", "20"))
        await fake.create_container(await fake.run_pod("old"), "app")
        fake.drop_plugin()
        await until(lambda: not agent.endpoints.status.read().connected)
        late = await fake.create_container(await fake.run_pod("late"), "app")
        await api.apply(pod("late", "14"))
        await fake.attached.wait()
        await settled(agent, api, "last")
        assert agent.owner.pods["late"].tolerated
        assert late.message.id in agent.owner.containers
        assert not api.patches

    on_node(tmp_path, test)


def test_a_sandbox_that_is_made_again(tmp_path: Path) -> None:
    """A pod whose sandbox dies and is made again keeps its CPUs meanwhile, whoever waits for some; one that ended does
    not."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("a", "20"))
        await fake.create_container(await fake.run_pod("a"), "app")
        cpus = owned(agent, "a")
        await fake.stop_pod("sandbox-a")
        await fake.remove_pod("sandbox-a")
        await api.apply(pod("b", "14"))
        await until(lambda: phase(api, "b") == "Failed")
        again = await fake.create_container(await fake.run_pod("a"), "app", container_id="again")
        assert format_bits(parse_bits(again.cpus)) == cpus
        await api.apply({**pod("a", "20"), "status": {"phase": "Succeeded"}})
        await fake.stop_pod("sandbox-a")
        await until(lambda: not known(agent, "a"))
        assert agent.owner.placing.exclusive() == 0

    on_node(tmp_path, test)


def test_another_specification_before_the_sandbox(tmp_path: Path) -> None:
    """A pod that is resized before it has a sandbox is decided about again."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("a", "4"))
        await until(lambda: agent.owner.placing.exclusive().bit_count() == 4)
        await api.apply(pod("a", "6"))
        await until(lambda: agent.owner.placing.exclusive().bit_count() == 6)

    on_node(tmp_path, test)


def test_agent_restarts(tmp_path: Path) -> None:
    """A restarted agent keeps the CPUs of a pod without sandbox, marks the pod that its predecessor could not, and
    still lists who was rejected before."""
    seen: dict[str, Any] = {}

    async def before(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("a", "14"))
        await until(lambda: owned(agent, "a"))
        await api.apply(pod("gone", "40"))
        await until(lambda: phase(api, "gone") == "Failed" and agent.endpoints.status.read().rejected)
        api.answers = [503] * 50
        await api.apply(pod("big", "40"))
        await until(lambda: len(api.patches) >= 2)
        seen.update(cpus=owned(agent, "a"), objects=api.objects)

    async def after(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        assert [one.name for one in agent.endpoints.status.read().rejected] == ["gone"]
        assert owned(agent, "a") == seen["cpus"]
        await until(lambda: phase(api, "big") == "Failed")
        assert owned(agent, "a") == seen["cpus"]

    on_node(tmp_path, before)
    with_agent(
        tmp_path,
        after,
        objects=seen["objects"],
        sources={"apiServer": True, "nodeName": NODE},
    )


def test_without_the_right(tmp_path: Path) -> None:
    """Where the agent may not write a pod's status, one line says what is missing, and the pod is refused at its
    containers until there is room."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        api.answers = [403]
        troubles: list[str] = []
        agent.refusals._rejecting._trouble = lambda what, text: troubles.append(text)  # type: ignore[union-attr]
        await api.apply(pod("old", "20"))
        await fake.create_container(await fake.run_pod("old"), "app")
        await api.apply(pod("new", "14"))
        await until(lambda: troubles)
        assert len(troubles) == 1
        assert "lacks the right to patch pods/status" in troubles[0]
        sandbox = await fake.run_pod("new")
        await refused(fake, sandbox)
        await api.delete("old")
        await fake.stop_pod("sandbox-old")
        assert (await fake.create_container(sandbox, "app")).cpus
        await settled(agent, api, "last")
        assert len(api.patches) == 1

    on_node(tmp_path, test)


def test_switched_off(tmp_path: Path) -> None:
    """With `refusals: hold` nobody is marked Failed: the pod is refused at its containers until there is room, and its
    event still says what would help."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("old", "20"))
        await fake.create_container(await fake.run_pod("old"), "app")
        await api.apply(pod("new", "14"))
        sandbox = await fake.run_pod("new")
        await refused(fake, sandbox)
        await until(lambda: api.events)
        assert "What would help: " in api.events[0]["message"]
        await api.delete("old")
        await fake.stop_pod("sandbox-old")
        assert (await fake.create_container(sandbox, "app")).cpus
        assert not api.patches

    on_node(tmp_path, test, refusals="hold")


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    """With `--observe` neither status nor event is written."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("big", "40"))
        await fake.create_container(await fake.run_pod("big"), "app")
        assert not api.patches
        assert not api.events

    on_node(tmp_path, test, observe=True)


def test_a_kubelet_at_work_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A refused pod is marked when its containers have not been asked for during two seconds, and after a minute at
    the latest; without sandbox after three, and while the kubelet says that it prepares the pod not at all."""
    monkeypatch.setattr("podslice.agent.api_server.refusals.QUIET_SECONDS", 2.0)
    monkeypatch.setattr("podslice.agent.api_server.refusals.SANDBOX_SECONDS", 3.0)

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        now = 1000.0
        agent.owner.admitting.now = lambda: now
        assert agent.refusals is not None
        busy = agent.refusals._busy
        await api.apply(pod("big", "40"))
        await until(lambda: known(agent, "big"))
        assert busy("big") == 3.0
        now = 1002.0
        await refused(fake, await fake.run_pod("big"))
        assert busy("big") == 2.0
        now = 1059.0
        await refused(fake, "sandbox-big")
        assert busy("big") == 1.0
        now = 1062.0
        assert busy("big") <= 0
        assert busy("unknown") == 0
        now = 1005.0
        await api.apply({**pod("big", "40"), "status": waiting("ContainerCreating")})
        await until(lambda: busy("big") == LOOK_SECONDS)
        now = 1061.0
        assert busy("big") <= 0
        now = 1005.0
        await api.apply({**pod("big", "40"), "status": waiting("CreateContainerError")})
        await until(lambda: busy("big") != LOOK_SECONDS)

    on_node(tmp_path, test)


def test_a_pod_that_is_pending_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A mark that the kubelet overwrites is written again at once, not at the next pass."""
    monkeypatch.setattr("podslice.agent.api_server.rejecting.AGAIN_SECONDS", 0.01)
    monkeypatch.setattr("podslice.agent.api_server.rejecting.CHECK_SECONDS", 1e9)

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("big", "40"))
        await until(lambda: phase(api, "big") == "Failed")
        marks = len(api.patches)
        await api.apply({**pod("big", "40"), "status": waiting("ContainerCreating")})
        await until(lambda: phase(api, "big") == "Failed" and len(api.patches) == marks + 1)

    on_node(tmp_path, test)


def test_room_between_a_refusal_and_the_look_at_it(tmp_path: Path) -> None:
    """A pod that waits for another is not rejected when that one goes after the pod was decided about and before it is
    looked at whether the refusal is final."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("old", "20"))
        await fake.create_container(await fake.run_pod("old"), "app")
        await api.apply(pod("old", "20", deleting=True))
        await api.apply(pod("new", "20"))
        await until(
            lambda: known(agent, "new") and [one.waits_for for one in agent.owner.pods["new"].refusals.values()]
        )
        assert agent.refusals is not None
        arriving = agent.refusals._arriving
        looks = 0
        for _, work in arriving.steps():
            if getattr(work, "func", None) == arriving._settle:
                looks += 1
                agent.owner.leave("old")
            work()
        assert looks == 1
        assert not agent.owner.pods["new"].rejected
        assert parse_bits(owned(agent, "new")).bit_count() == 20

    on_node(tmp_path, test)


def test_written_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rejected pod that comes back as Pending is marked again without being decided about again, also when the agent
    has been restarted meanwhile and there is room by now."""
    monkeypatch.setattr("podslice.agent.api_server.rejecting.CHECK_SECONDS", 0.1)
    seen: dict[str, Any] = {}

    async def before(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("old", "20"))
        await until(lambda: owned(agent, "old"))
        await api.apply(pod("new", "14"))
        await until(lambda: phase(api, "new") == "Failed" and list(agent.endpoints.status.read().rejected))
        api.down = True
        await api.apply(pod("new", "14"))
        await api.delete("old")
        seen.update(objects=api.objects)

    async def after(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await until(lambda: phase(api, "new") == "Failed")
        assert not owned(agent, "new")
        await api.apply(pod("new", "14"))
        await until(lambda: phase(api, "new") == "Failed")
        assert not owned(agent, "new")

    on_node(tmp_path, before)
    with_agent(tmp_path, after, objects=seen["objects"], sources={"apiServer": True, "nodeName": NODE})


def printed(arguments: list[str]) -> str:
    """Return the output of the command, in a process of its own: the agent here writes its log to the same standard
    output."""
    done = subprocess.run([sys.executable, "-m", "podslice", *arguments], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.process
def test_status_shows_who_waits_who_is_refused_and_who_failed(tmp_path: Path) -> None:
    """`podslice status` has a line for each with its age, our why below it, for whom it waits or what would help."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await api.apply(pod("old", "20"))
        await fake.create_container(await fake.run_pod("old"), "app")
        await api.apply(pod("big", "40"))
        await until(
            lambda: (
                agent.endpoints.status.read().rejected
                and agent.endpoints.status.read().rejected[0].fix
                and not known(agent, "big")
            )
        )
        api.answers = [422]
        await api.apply(pod("huge", "41"))
        await until(lambda: not api.answers)
        await until(lambda: report(agent, "huge").refusals[0].fix)
        await api.apply(pod("old", "20", deleting=True))
        await api.apply(pod("new", "14"))
        await until(lambda: known(agent, "new") and report(agent, "new").refusals[0].waits_for)
        command = ["status", "--no-map", "--socket", agent.endpoints.settings.status_socket]
        lines = (await asyncio.to_thread(printed, command)).splitlines()
        first = {line.split()[0]: line for line in lines if line.split()[:1] in (["waits"], ["refused"], ["failed"])}
        assert re.match(r"waits default/new \(\d+\w+ ago\): TopologyAffinityError: ", first["waits"])
        assert re.match(r"refused default/huge \(\d+\w+ ago\): TopologyAffinityError: ", first["refused"])
        assert re.match(r"failed default/big \(\d+\w+ ago\): TopologyAffinityError: ", first["failed"])
        assert "  it waits for default/old to end" in lines
        assert sum(line.startswith("  What would help: ") for line in lines) == 2
        read = read_document(await asyncio.to_thread(printed, [*command, "-o", "json"]), "AgentStatus")
        assert [one["name"] for one in read["rejected"]] == ["big"]
        (waiting,) = next(one for one in read["pods"] if one["name"] == "new")["refusals"]
        assert waiting["waitsFor"] == ["default/old"]

    on_node(tmp_path, test)
