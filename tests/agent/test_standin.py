"""PodResources beside a kubelet: its answers completed with what is ours, and its place taken and left."""

from __future__ import annotations

import asyncio
import json
import os
import socket
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import grpc
import pytest
from click.testing import CliRunner

from podslice.agent.kubelet.mergedresources import Ours, merge_allocatable, merge_pods
from podslice.agent.kubelet.podresources import PodResources
from podslice.agent.kubelet.standin import KEPT, OWN, StandIn
from podslice.agent.settings import AgentSettings, settings_from_dict
from podslice.cli.main import cli
from podslice.machine.devices import Device
from podslice.service.kubeletresources import KubeletResources
from podslice.service.proto import podresources_pb2 as api
from podslice.service.unixgrpc import is_served
from podslice.values.errors import InputError
from tests.agent.fake_pod_resources import FakePodResources, claim, device, pod
from tests.agent.helpers import MACHINE, World, agent_config
from tests.agent.test_daemon import settings, with_agent
from tests.agent.test_grpc import COUNTS, ask
from tests.clock import until
from tests.conftest import make_pod

LIST = ("List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse)
ALLOCATABLE = ("GetAllocatableResources", api.AllocatableResourcesRequest(), api.AllocatableResourcesResponse)


def quiet(what: str, why: str) -> None:
    """Nobody reads the troubles."""


def get(name: str) -> tuple[str, Any, Any]:
    return "Get", api.GetPodResourcesRequest(pod_name=name, pod_namespace="default"), api.GetPodResourcesResponse


def container(name: str, **fields: Any) -> api.ContainerResources:
    return api.ContainerResources(name=name, **fields)


def beside(
    folder: Path,
    test: Callable[[FakePodResources, Path, dict[str, int], list[str]], Coroutine[Any, Any, None]],
    **options: Any,
) -> None:
    """Pod `a` of four CPUs runs here; the kubelet knows it with a claim, `b` with a container more than we do, and
    `theirs`, which we have not."""

    async def main() -> None:
        world = World(folder, agent_config())
        await world.start()
        await world.run(make_pod("a", ("app", "4")))
        await world.run(make_pod("b", ("app", "500m")))
        await world.run(make_pod("only-ours", ("app", "2")))
        kubelet = FakePodResources(
            folder / "kubelet.sock",
            pod("theirs", container("x", devices=[device("vendor.com/nic", "eth2")])),
            pod("b", container("app"), container("debug")),
            pod("a", container("app", cpu_ids=[99], dynamic_resources=[claim("net")])),
            **options,
        )
        await kubelet.start()
        counts, troubles = dict.fromkeys(COUNTS, 0), list[str]()
        server = PodResources(
            world.owner, counts, kubelet=KubeletResources(kubelet.path), trouble=lambda what, why: troubles.append(why)
        )
        await server.start(folder / "pr.sock")
        await test(kubelet, folder / "pr.sock", counts, troubles)
        await server.close()
        await kubelet.stop()
        await world.kill()

    asyncio.run(main())


def test_kubelets_answer_with_our_cpus(tmp_path: Path) -> None:
    """The kubelet's pods come in its order with its devices and claims, its containers that we do not know stay, pods
    that only we have come last, and CPU ids are ours."""

    async def test(kubelet: FakePodResources, path: Path, counts: dict[str, int], troubles: list[str]) -> None:
        answer = await ask(path, *LIST)
        assert [one.name for one in answer.pod_resources] == ["theirs", "b", "a", "only-ours"]
        theirs, shared, owning, ours = answer.pod_resources
        assert theirs == kubelet.pods[0]
        assert [one.name for one in shared.containers] == ["app", "debug"]
        assert len(owning.containers[0].cpu_ids) == 4
        assert list(owning.containers[0].dynamic_resources) == [claim("net")]
        assert len(ours.containers[0].cpu_ids) == 2
        assert not set(ours.containers[0].cpu_ids) & set(owning.containers[0].cpu_ids)
        for one in answer.pod_resources:
            assert (await ask(path, *get(one.name))).pod_resources == one
        allocatable = await ask(path, *ALLOCATABLE)
        assert (len(allocatable.cpu_ids), list(allocatable.devices)) == (31, list(kubelet.allocatable.devices))
        with pytest.raises(grpc.aio.AioRpcError, match="pod x in namespace default not found"):
            await ask(path, *get("x"))
        old = await ask(path, *LIST, version="v1alpha1")
        assert [one.name for one in old.pod_resources] == ["theirs", "b", "a", "only-ours"]
        assert troubles == []

    beside(tmp_path, test)


def test_older_kubelet_without_get(tmp_path: Path) -> None:
    """A pod is found in the list where the kubelet has no `Get`."""

    async def test(kubelet: FakePodResources, path: Path, counts: dict[str, int], troubles: list[str]) -> None:
        assert (await ask(path, *get("theirs"))).pod_resources == kubelet.pods[0]
        assert len((await ask(path, *get("a"))).pod_resources.containers[0].cpu_ids) == 4
        with pytest.raises(grpc.aio.AioRpcError, match="pod x in namespace default not found"):
            await ask(path, *get("x"))

    beside(tmp_path, test, serves_get=False)


@pytest.mark.parametrize("method", [LIST, get("a"), ALLOCATABLE], ids=["list", "get", "allocatable"])
def test_half_an_answer_is_none(tmp_path: Path, method: tuple[str, Any, Any]) -> None:
    """While the kubelet is down, and when it fails, clients get an error: without its devices an answer would say that
    they are free. It is counted, and said once the kubelet is the reason."""

    async def test(kubelet: FakePodResources, path: Path, counts: dict[str, int], troubles: list[str]) -> None:
        kubelet.failure = grpc.StatusCode.RESOURCE_EXHAUSTED, "rejected by rate limit"
        with pytest.raises(grpc.aio.AioRpcError, match="rejected by rate limit") as caught:
            await ask(path, *method)
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        await kubelet.stop()
        with pytest.raises(grpc.aio.AioRpcError, match=r"the kubelet's PodResources API at /.*: ") as caught:
            await ask(path, *method)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert len(troubles) == 1
        assert sum(counts[name] for name in counts if name.startswith("errors_")) == 2
        await kubelet.start()
        kubelet.failure = None
        await ask(path, *method)

    beside(tmp_path, test)


def test_memory_and_devices_are_the_kubelets_unless_ours() -> None:
    """With policy Static memory is ours, and so are the resources of plugins that register with the agent."""
    memory = api.ContainerMemory(memory_type="memory", size=1)
    theirs = pod("a", container("app", devices=[device("gpu", "0"), device("nic", "1")], memory=[memory]))
    ours = pod("a", container("app", cpu_ids=[3], devices=[device("gpu", "7")]))
    kept = merge_pods([theirs], [ours], Ours())[0].containers[0]
    assert list(kept.memory) == [memory]
    mine = merge_pods([theirs], [ours], Ours(memory=True, devices=frozenset({"gpu"})))[0].containers[0]
    assert (list(mine.memory), list(mine.devices)) == ([], [device("nic", "1"), device("gpu", "7")])
    total = merge_allocatable(
        api.AllocatableResourcesResponse(cpu_ids=[9], memory=[memory], devices=[device("gpu", "0")]),
        api.AllocatableResourcesResponse(cpu_ids=[1, 2], devices=[device("gpu", "7")]),
        Ours(devices=frozenset({"gpu"})),
    )
    assert (list(total.cpu_ids), list(total.memory), list(total.devices)) == ([1, 2], [memory], [device("gpu", "7")])


def test_pods_of_one_name() -> None:
    """Of a pod that was created again both are told: the newer completes the kubelet's, the older still holds CPUs."""
    old, new = pod("a", container("app", cpu_ids=[1])), pod("a", container("app", cpu_ids=[2]))
    merged = merge_pods([pod("a", container("app"))], [old, new], Ours())
    assert [list(one.containers[0].cpu_ids) for one in merged] == [[2], [1]]


def listening(path: Path) -> socket.socket:
    """As a kubelet at its start: whatever is there is replaced."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()
    return listener


def answers(path: Path, listener: socket.socket) -> bool:
    """Whether a connection to that path reaches the listener."""
    listener.setblocking(False)
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(path))
            listener.accept()[0].close()
        except OSError:
            return False
    return True


def test_place_is_taken_and_left(tmp_path: Path) -> None:
    """Ours is where clients look, the kubelet's beside it, with the rights it had; a kubelet that starts again is
    beside it again, and one whose agent ends is back in its place."""
    stand_in = StandIn(tmp_path / "kubelet.sock", quiet)
    with listening(stand_in.place) as kubelet, listening(stand_in.own) as ours:
        stand_in.place.chmod(0o755)
        stand_in.take()
        stand_in.take()
        assert answers(stand_in.place, ours)
        assert answers(stand_in.kept, kubelet)
        assert stand_in.place.stat().st_mode & 0o777 == 0o755
        with listening(stand_in.place) as again:
            kubelet.close()
            stand_in.take()
            assert answers(stand_in.place, ours)
            assert answers(stand_in.kept, again)
            stand_in.leave()
            assert answers(stand_in.place, again)
            assert sorted(os.listdir(tmp_path)) == ["kubelet.sock", OWN]
    assert stand_in.problem == ""


def test_place_before_the_kubelet(tmp_path: Path) -> None:
    """Where no kubelet has been yet, ours is there; when it leaves, nothing stays that nobody serves."""
    stand_in = StandIn(tmp_path / "pod-resources" / "kubelet.sock", quiet)
    asyncio.run(stand_in.make_folder())
    with listening(stand_in.own) as ours:
        stand_in.take()
        assert answers(stand_in.place, ours)
        stand_in.leave()
        assert os.listdir(stand_in.place.parent) == [OWN]


def test_place_after_an_agent_that_was_killed(tmp_path: Path) -> None:
    """Its dead socket is replaced and the kubelet's is still the one that it kept; a socket that the kubelet has made
    and not yet listens on is kept as well."""
    stand_in = StandIn(tmp_path / "kubelet.sock", quiet)
    with listening(stand_in.place) as kubelet:
        with listening(stand_in.own):
            stand_in.take()
        with listening(stand_in.own) as ours:
            stand_in.take()
            assert answers(stand_in.place, ours)
            assert answers(stand_in.kept, kubelet)
            kubelet.close()
            stand_in.place.unlink()
            early = socket.socket(socket.AF_UNIX)
            early.bind(str(stand_in.place))
            stand_in.take()
            assert answers(stand_in.place, ours)
            early.listen()
            assert answers(stand_in.kept, early)
            early.close()


def test_place_that_cannot_be_taken(tmp_path: Path) -> None:
    """The reason why the path cannot be taken is reported, and it is tried again."""
    stand_in = StandIn(tmp_path / "kubelet.sock", quiet)
    stand_in.take()
    assert stand_in.problem == f"{stand_in.place} cannot be taken: No such file or directory"


def test_agent_in_the_kubelets_place(tmp_path: Path) -> None:
    """The same path twice in the settings: clients of the kubelet get our answers and its own, also when it was
    started again, and the kubelet alone when the agent has stopped."""
    folder = tmp_path / "pod-resources"
    kubelet = FakePodResources(folder / "kubelet.sock", pod("theirs", container("x")))

    async def names() -> list[str]:
        return [one.name for one in (await ask(kubelet.path, *LIST)).pod_resources]

    def stands_in() -> bool:
        """Ours is where the kubelet's was, and the kubelet's beside it."""
        return kubelet.path.exists() and kubelet.path.samefile(folder / OWN) and is_served(folder / KEPT)

    async def test(agent: Any, fake: Any, api_server: Any) -> None:
        await kubelet.start()
        await until(stands_in)
        assert await names() == ["theirs"]
        await kubelet.stop()
        with pytest.raises(grpc.aio.AioRpcError):
            await names()
        await kubelet.start()
        await until(stands_in)
        kubelet.pods.append(pod("other"))
        assert await names() == ["theirs", "other"]
        assert agent.endpoints.status.read().ready == ""
        agent.stopping.set()
        await until(lambda: os.listdir(folder) == ["kubelet.sock"])
        assert await names() == ["theirs", "other"]
        await kubelet.stop()

    paths = {"podResourcesSocket": str(kubelet.path), "podResourcesUpstream": str(kubelet.path)}
    with_agent(tmp_path, test, **paths)
    assert os.listdir(folder) == []


def test_switch(tmp_path: Path) -> None:
    """One path for both is the kubelet's place, another completes its answers, and nothing to serve is a mistake."""
    read = lambda **fields: settings_from_dict(settings(tmp_path, **fields)).agent  # noqa: E731
    agent: AgentSettings = read(podResourcesSocket="/a/k.sock", podResourcesUpstream="/a/../a/k.sock")
    assert agent.stands_in
    assert not read(podResourcesUpstream="/a/k.sock").stands_in
    with pytest.raises(InputError, match="podResourcesUpstream: is set, but nothing is served"):
        read(podResourcesSocket="", podResourcesUpstream="/a/k.sock")


def test_check_config_says_what_is_not_there(tmp_path: Path) -> None:
    """A kubelet that does not serve its pods yet, and a place that cannot be taken, are told before the agent runs."""
    place = str(tmp_path / "pod-resources" / "kubelet.sock")
    fields = {"sources": {"podsAPI": "on"}, "podResourcesSocket": place, "podResourcesUpstream": place}
    file = tmp_path / "agent.yaml"
    file.write_text(json.dumps(settings(tmp_path, **fields)))
    result = CliRunner().invoke(cli, ["agent", "--config", str(file), "--check-config", "--from", MACHINE])
    assert result.exit_code == 0
    assert "no kubelet serves /var/lib/kubelet/pods-api/pods-api.sock yet (feature gate PodsAPI)" in result.output
    assert f"{tmp_path / 'pod-resources'} cannot be written" in result.output


def test_resources_of_plugins_are_ours(tmp_path: Path) -> None:
    """The server tells the merge which resources are its plugins', and whether memory is bound."""

    async def main() -> None:
        world = World(tmp_path, agent_config())
        await world.start()
        listed = {"vendor.com/gpu": (Device("0"),)}
        server = PodResources(world.owner, dict.fromkeys(COUNTS, 0), devices=lambda: listed)
        assert server._own() == Ours(memory=False, devices=frozenset(listed))
        await world.kill()

    asyncio.run(main())
