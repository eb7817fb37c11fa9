"""The agent's PodResources in the place of a real kubelet's: merged, found over restarts, and given back."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from e2e.programs import Programs
from google.protobuf.json_format import MessageToDict
from tools.prediction.machine import Shape
from tools.prediction.node import OneNode, one_node

from podslice.agent.kubelet.podresources import PodResources
from podslice.agent.kubelet.standin import KEPT, OWN, StandIn
from podslice.service.kubeletresources import KubeletResources
from podslice.service.proto import podresources_pb2 as api
from podslice.service.unixgrpc import is_served
from tests.agent.helpers import World, agent_config
from tests.agent.test_grpc import COUNTS, ask
from tests.clock import until
from tests.conftest import make_pod
from tests.prediction.podresources_clients import answers, clients

LIST = ("List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse)


@pytest.fixture
def node(programs: Programs) -> Iterator[OneNode]:
    """A kubelet with its managers off, as beside the agent. It writes all CPUs of the machine into a real cgroup."""
    if (os.cpu_count() or 1) < 2:
        pytest.skip("needs two CPUs")
    shape = Shape("two threads", sockets=1, nodes=1, cores=1)
    with tempfile.TemporaryDirectory(prefix="podslice-") as folder, one_node(programs, Path(folder), shape) as found:
        yield found


def by_name(answer: api.ListPodResourcesResponse) -> list[api.PodResources]:
    return sorted(answer.pod_resources, key=lambda one: one.name)


def as_json(message: Any) -> Any:
    return MessageToDict(message, preserving_proto_field_name=True)


def in_order(told: Any) -> Any:
    """The kubelet lists pods in any order."""
    told["list"]["pod_resources"].sort(key=lambda one: one["name"])
    return told


def pod(name: str, *containers: str) -> dict[str, Any]:
    own = [{"name": one, "image": "x", "resources": {"limits": {"cpu": "100m", "memory": "8Mi"}}} for one in containers]
    return {"metadata": {"name": name}, "spec": {"containers": own}}


@pytest.mark.slow
def test_in_the_place_of_a_real_kubelet(node: OneNode, tmp_path: Path) -> None:
    """Clients of the kubelet's socket see its pods with our CPUs; a kubelet that stops is an error, one that starts
    again or crashed is merged again, and when the agent ends its socket is where it was, with the rights it had.
    Clients of other makers, where there are any, see the same."""
    node.kubelet.start({})
    folder = node.kubelet.folder / "pod-resources"
    rights = (folder / "kubelet.sock").stat().st_mode
    for name, containers in (("both", ("app", "more")), ("theirs", ("c",))):
        node.create(pod(name, *containers))
        node.wait_for_decision(name)
    plain = node.kubelet.pod_resources("List")

    async def main() -> None:
        world = World(tmp_path, agent_config())
        await world.start()
        await world.run(make_pod("both", ("app", "4")))
        stand_in = StandIn(folder / "kubelet.sock", lambda what, why: None)
        server = PodResources(world.owner, dict.fromkeys(COUNTS, 0), kubelet=KubeletResources(stand_in.kept))
        await server.start(stand_in.own)
        looking = asyncio.ensure_future(stand_in.run())

        def stands_in() -> bool:
            return stand_in.place.exists() and stand_in.place.samefile(stand_in.own) and is_served(stand_in.kept)

        async def check() -> None:
            await until(stands_in)
            answer = await ask(stand_in.place, *LIST)
            seen = {one.name: {c.name: len(c.cpu_ids) for c in one.containers} for one in answer.pod_resources}
            assert seen == {"both": {"app": 4, "more": 0}, "theirs": {"c": 0}}
            request = api.GetPodResourcesRequest(pod_name="both", pod_namespace="default")
            got = await ask(stand_in.place, "Get", request, api.GetPodResourcesResponse)
            assert got.pod_resources in answer.pod_resources
            everything = api.AllocatableResourcesRequest()
            total = await ask(stand_in.place, "GetAllocatableResources", everything, api.AllocatableResourcesResponse)
            assert len(total.cpu_ids) == 31
            told = {"list": as_json(answer), "allocatable": as_json(total)}
            for command in clients().values():
                assert in_order(await asyncio.to_thread(answers, command, stand_in.place)) == in_order(told)

        await check()
        for kill in (False, True):
            await asyncio.to_thread(node.kubelet.stop, kill=kill)
            with pytest.raises(grpc.aio.AioRpcError, match="the kubelet's PodResources API") as caught:
                await ask(stand_in.place, *LIST)
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
            await asyncio.to_thread(node.kubelet.start, {})
            await asyncio.to_thread(node.kubelet.wait, "pods", lambda: len(_names(stand_in.kept)) == 2)
            await check()
        assert sorted(os.listdir(folder)) == [KEPT, "kubelet.sock", OWN]
        looking.cancel()
        stand_in.leave()
        await server.close()
        await world.kill()
        assert os.listdir(folder) == ["kubelet.sock"]
        assert stand_in.place.stat().st_mode == rights
        alone = await KubeletResources(stand_in.place).list()
        assert by_name(alone) == by_name(plain)

    asyncio.run(main())


def _names(path: Path) -> list[str]:
    """Pods that the kubelet at a socket lists, as soon as it is there."""
    if not is_served(path):
        return []
    return [one.name for one in asyncio.run(KubeletResources(path).list()).pod_resources]
