"""The agent's PodResources read by clients of other makers."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from podslice.agent.kubelet.podresources import PodResources
from podslice.service.proto import podresources_pb2 as api
from tests.agent.helpers import World, agent_config
from tests.agent.test_grpc import COUNTS, ask
from tests.conftest import make_pod
from tests.prediction.podresources_clients import ABSENT, answers, clients


@pytest.mark.slow
@pytest.mark.parametrize("name", ["grpc-js", "grpclib"])
def test_another_makers_client_reads_the_same(name: str, tmp_path: Path) -> None:
    """A gRPC stack that shares no code with ours connects to the socket and reads the same CPU ids of a container."""
    command = clients().get(name)
    if command is None:
        pytest.skip(ABSENT)

    async def main() -> tuple[Any, Any]:
        world = World(tmp_path, agent_config())
        await world.start()
        await world.run(make_pod("both", ("app", "4")))
        server = PodResources(world.owner, dict.fromkeys(COUNTS, 0))
        socket = tmp_path / "kubelet.sock"
        await server.start(socket)
        listed = await ask(socket, "List", api.ListPodResourcesRequest(), api.ListPodResourcesResponse)
        told = await asyncio.to_thread(answers, command, socket)
        await server.close()
        await world.kill()
        return told, MessageToDict(listed, preserving_proto_field_name=True)

    told, listed = asyncio.run(main())
    assert told["list"] == listed
    (container,) = told["list"]["pod_resources"][0]["containers"]
    assert len(container["cpu_ids"]) == 4
    assert len(told["allocatable"]["cpu_ids"]) > 4
