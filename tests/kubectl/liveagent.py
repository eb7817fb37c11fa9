"""An agent's status listener with a real owner behind it, in a thread, so that commands can ask from the test's own."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podslice.agent.runtime.ttrpc import RPCError
from podslice.agent.status.live import LiveNodeSource
from podslice.agent.status.local import status_of
from podslice.agent.status.statusport import require_token, status_routes
from podslice.api.pod.spec import pod_from_dict
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.service.http.get_server import WebServer
from podslice.status.status import AgentStatus
from tests.agent.fakenode import FakeTree
from tests.agent.helpers import World, agent_config
from tests.clock import PATIENCE

NODE = "n7"


@contextlib.contextmanager
def live_agent(
    folder: Path,
    pods: list[dict[str, Any]],
    *,
    node: str = NODE,
    host: str = "127.0.0.1",
    token_file: str = "",
    cpusets: dict[str, str] | None = None,
    kubelet: str = "v1.36.2",
    profile: str = "podslice",
    **config: Any,
) -> Iterator[int]:
    """Runs these pods, as far as they are taken, and yields the port of its status listener. Containers of pods whose
    UID is one of Kubernetes' have cgroups, with the CPUs they were given or those in `cpusets` by pod name. The kubelet
    beside it has the version `kubelet`."""
    started, ready, ports = threading.Event(), asyncio.Event(), list[int]()
    loop = asyncio.new_event_loop()

    async def serve() -> None:
        tree = FakeTree(folder / "cgroup")
        world = World(folder, agent_config(**config), profile=profile)
        await world.start()
        for pod in pods:
            with contextlib.suppress(RPCError):
                await _run(world, tree, pod, cpusets or {})
        live = LiveNodeSource(world.owner, node, dict, world.source.find, lambda: kubelet)
        routes = status_routes(
            world.owner, CgroupTree(folder / "cgroup"), status=lambda: _status(world, node), live=live.tell
        )
        web = WebServer(routes, refusal=require_token(token_file))
        ports.append(await web.start(host, 0))
        started.set()
        await ready.wait()
        await web.close()
        await world.kill()

    def run() -> None:
        try:
            loop.run_until_complete(serve())
        finally:
            started.set()
            loop.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert started.wait(PATIENCE)
        yield ports[0]
    finally:
        if not loop.is_closed():
            loop.call_soon_threadsafe(ready.set)
        thread.join(PATIENCE)


async def _run(world: World, tree: FakeTree, pod: dict[str, Any], cpusets: dict[str, str]) -> None:
    """A pod with its containers, under its own name. Raises `RPCError` where it is refused."""
    metadata = pod["metadata"]
    world.source.add(pod_from_dict(pod))
    sandbox = await world.fake.run_pod(metadata["uid"], name=metadata["name"], namespace=metadata["namespace"])
    for container in pod["spec"]["containers"]:
        identity = hashlib.sha256(f"{metadata['uid']}/{container['name']}".encode()).hexdigest()
        found = await world.fake.create_container(sandbox, container["name"], container_id=identity)
        cpus = cpusets.get(metadata["name"], found.cpus)
        tree.add(f"kubepods/pod{metadata['uid']}/{identity}", procs="1\n", cpuset_cpus=cpus)


def _status(world: World, node: str) -> AgentStatus:
    facts = {"machine": world.machine.name, "runtime": "containerd 2.1", "connected": True, "observe": False}
    return status_of(world.owner, [], node=node, started_at=0.0, ready="", **facts)
