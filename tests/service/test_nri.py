"""The plugin's life beside a runtime: registration, synchronization, events, loss and return."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable

import pytest

from podslice.agent.runtime.nri import (
    EVENTS,
    LATER_EVENTS,
    MOST_SYNCHRONIZED,
    PLUGIN_SERVICE,
    BackOff,
    Connection,
    CreateAnswer,
    Launch,
    event_mask,
    launch_from_environment,
    run_plugin,
)
from podslice.agent.runtime.ttrpc import FAILED_PRECONDITION, UNAVAILABLE, RPCError
from podslice.service.proto import nri_pb2 as nri
from tests import clock
from tests.service.fake_runtime import FakeRuntime


class Recorder:
    """A plugin that writes down what it is asked and pins every container to CPU 1."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.delay = 0.0

    def configure(self, request: nri.ConfigureRequest) -> None:
        self.calls.append(f"configured {request.runtime_name} {request.request_timeout}")

    def synchronize(self, pods: list[nri.PodSandbox], containers: list[nri.Container]) -> Iterable[nri.ContainerUpdate]:
        self.calls.append(f"synchronize {len(pods)} {len(containers)}")
        return [update(container.id, "2") for container in containers]

    async def run_pod(self, pod: nri.PodSandbox) -> None:
        self.calls.append(f"run {pod.uid}")
        if pod.uid == "refused":
            raise RPCError(9, "TopologyAffinityError: no room")

    def stop_pod(self, pod: nri.PodSandbox) -> None:
        self.calls.append(f"stop {pod.uid}")

    def remove_pod(self, pod: nri.PodSandbox) -> None:
        self.calls.append(f"remove {pod.uid}")

    async def create_container(self, pod: nri.PodSandbox, container: nri.Container) -> CreateAnswer:
        await asyncio.sleep(self.delay)
        adjust = nri.ContainerAdjustment()
        adjust.linux.resources.cpu.cpus = "1"
        return CreateAnswer(adjust)

    def start_container(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        self.calls.append(f"start {container.name}")

    def update_container(
        self, pod: nri.PodSandbox, container: nri.Container, resources: nri.LinuxResources
    ) -> Iterable[nri.ContainerUpdate]:
        return [update(container.id, "1")]

    def post_update_container(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        self.calls.append(f"updated {container.name}")

    async def _update_pod(self, quota: int) -> None:
        await asyncio.sleep(self.delay)
        if quota > 400_000:
            raise RPCError(FAILED_PRECONDITION, "no room")

    def update_pod(self, pod: nri.PodSandbox, resources: nri.LinuxResources) -> Awaitable[None] | None:
        self.calls.append(f"update pod {pod.uid}")
        return self._update_pod(resources.cpu.quota.value) if resources.cpu.quota.value else None

    def stop_container(self, pod: nri.PodSandbox, container: nri.Container) -> Iterable[nri.ContainerUpdate]:
        self.calls.append(f"stop {container.name}")
        return []

    def remove_container(self, pod: nri.PodSandbox, container: nri.Container) -> None:
        self.calls.append(f"remove {container.name}")
        if container.name == "crash":
            raise KeyError("nobody foresaw this")

    def on_crash(self, error: Exception) -> None:
        self.calls.append(f"crashed {error}")


def update(container: str, cpus: str) -> nri.ContainerUpdate:
    message = nri.ContainerUpdate(container_id=container)
    message.linux.resources.cpu.cpus = cpus
    return message


def with_runtime(
    test: Callable[[FakeRuntime, Recorder, list[str]], Awaitable[None]],
    runtime: Callable[[], FakeRuntime] = FakeRuntime,
) -> None:
    async def main() -> None:
        fake, plugin, losses = runtime(), Recorder(), list[str]()
        launch = Launch("podslice", "90", fake.connect, False)
        task = asyncio.ensure_future(
            run_plugin(
                plugin,
                launch,
                connected=lambda connection: None,
                disconnected=losses.append,
                back_off=BackOff(0.01, 0.02),
            )
        )
        await asyncio.wait_for(fake.attached.wait(), 2)
        await test(fake, plugin, losses)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    clock.run(main())


@pytest.mark.parametrize("state_changes", [True, False], ids=["containerd", "newer"])
def test_life_of_a_pod(state_changes: bool) -> None:
    """Every event reaches the plugin, with either kind of runtime, and answers are applied."""

    async def test(fake: FakeRuntime, plugin: Recorder, losses: list[str]) -> None:
        sandbox = await fake.run_pod("a")
        container = await fake.create_container(sandbox, "app")
        assert container.cpus == "1"
        await fake.update_container(container.message.id, nri.LinuxResources(cpu=nri.LinuxCPU(cpus="0-7")))
        assert container.cpus == "1"
        await fake.stop_pod(sandbox)
        await fake.remove_pod(sandbox)
        assert plugin.calls == [
            "configured fake 2000",
            "synchronize 0 0",
            "run a",
            "start app",
            "updated app",
            "stop app",
            "stop a",
            "remove app",
            "remove a",
        ]
        assert fake.events == event_mask(EVENTS)
        assert fake.registered == [("podslice", "90")]

    with_runtime(test, lambda: FakeRuntime(state_changes=state_changes))


def test_pods_are_updated_by_runtimes_that_know_it() -> None:
    """A runtime that tells its NRI version is asked for updates of pods, and passes refusals on; another one is not,
    since it hangs up on an event it does not know."""

    async def test(fake: FakeRuntime, plugin: Recorder, losses: list[str]) -> None:
        assert fake.events == event_mask((*EVENTS, *LATER_EVENTS))
        sandbox = await fake.run_pod("a")
        await fake.update_pod(sandbox, 0)
        await fake.update_pod(sandbox, 4000)
        with pytest.raises(RPCError, match="no room"):
            await fake.update_pod(sandbox, 5000)
        assert plugin.calls.count("update pod a") == 3

    with_runtime(test, lambda: FakeRuntime(nri_version="v0.12.0"))


def test_refused_pod_fails_with_our_reason() -> None:
    """A refusal reaches whoever asked for the pod."""

    async def test(fake: FakeRuntime, plugin: Recorder, losses: list[str]) -> None:
        with pytest.raises(RPCError, match="TopologyAffinityError: no room"):
            await fake.run_pod("refused")
        assert plugin.calls[-2:] == ["stop refused", "remove refused"]

    with_runtime(test)


def test_reconnects_and_synchronizes_in_parts() -> None:
    """After every loss the plugin is back, and a synchronization in many messages is put together."""

    async def test(fake: FakeRuntime, plugin: Recorder, losses: list[str]) -> None:
        sandbox = await fake.run_pod("a")
        for name in "bcdefg":
            await fake.create_container(sandbox, name)
        for _ in range(3):
            fake.drop_plugin()
            await asyncio.wait_for(fake.attached.wait(), 2)
        assert plugin.calls.count("synchronize 1 6") == 3
        assert {c.cpus for c in fake.containers.values()} == {"2"}
        fake.stop()
        await asyncio.sleep(0.1)
        fake.start()
        await asyncio.wait_for(fake.attached.wait(), 2)
        assert any("cannot connect" in loss for loss in losses)

    with_runtime(test, lambda: FakeRuntime(chunk=2))


def test_slow_plugin_is_dropped_and_comes_back() -> None:
    """A plugin that exceeds the time limit leaves the container unpinned, and repairs it on return."""

    async def test(fake: FakeRuntime, plugin: Recorder, losses: list[str]) -> None:
        sandbox = await fake.run_pod("a")
        plugin.delay = 0.5
        container = await fake.create_container(sandbox, "app")
        assert fake.unpinned == [container.message.id]
        await asyncio.wait_for(fake.attached.wait(), 2)
        assert container.cpus == "2"

    with_runtime(test, lambda: FakeRuntime(request_timeout=0.1))


@pytest.mark.parametrize(("name", "index"), [("", "10"), ("x", "1"), ("x", "ab"), ("x", "100")])
def test_bad_names_are_refused_before_the_runtime_does(name: str, index: str) -> None:
    """A name or index no runtime accepts is an error of ours."""

    async def main() -> None:
        fake = FakeRuntime()
        connection = Connection(await fake.connect(), Recorder())
        with pytest.raises(RPCError, match="two-digit index"):
            await connection.register(name, index)
        assert fake.registered == []
        connection.close()
        await connection.closed

    clock.run(main())


def test_started_by_the_runtime() -> None:
    """A plugin the runtime starts takes name, index and socket from its environment and does not reconnect."""
    environment = {"NRI_PLUGIN_NAME": "podslice", "NRI_PLUGIN_IDX": "07", "NRI_PLUGIN_SOCKET": "3"}
    launch = launch_from_environment(environment, name="x", index="90", path="/nowhere")
    assert (launch.name, launch.place, launch.once) == ("podslice", "07", True)
    assert not launch_from_environment({}, name="x", index="90", path="/nowhere").once


def test_back_off_grows_and_resets() -> None:
    """Waiting times double up to a limit and start again after success."""
    back_off = BackOff(1.0, 4.0)
    waits = [back_off.next() for _ in range(4)]
    for wait, middle in zip(waits, (1, 2, 4, 4), strict=True):
        assert 0.75 * middle <= wait <= 1.25 * middle
    back_off.reset()
    assert back_off.next() <= 1.25


def test_crash_is_told_to_both_sides() -> None:
    """An error nobody foresaw is the runtime's answer and the plugin's own news; the connection stays."""

    async def test(fake: FakeRuntime, plugin: Recorder, losses: list[str]) -> None:
        sandbox = await fake.run_pod("a")
        await fake.create_container(sandbox, "crash", container_id="c")
        with pytest.raises(RPCError, match="nobody foresaw this"):
            await fake.remove_container("c")
        assert plugin.calls[-1] == "crashed 'nobody foresaw this'"
        assert (await fake.create_container(sandbox, "next")).cpus == "1"
        assert losses == []

    with_runtime(test)


def test_endless_synchronization_is_hung_up_on() -> None:
    """A runtime that announces pods without end fills no memory: the connection goes, and is made again."""

    async def test(fake: FakeRuntime, plugin: Recorder, losses: list[str]) -> None:
        assert fake._client is not None
        pods = [nri.PodSandbox(id=str(number)) for number in range(MOST_SYNCHRONIZED // 4)]
        endless = nri.SynchronizeRequest(pods=pods, more=True).SerializeToString()
        for _ in range(4):
            await fake._client.call(PLUGIN_SERVICE, "Synchronize", endless)
        with pytest.raises(RPCError) as caught:
            await fake._client.call(PLUGIN_SERVICE, "Synchronize", endless)
        assert caught.value.code == UNAVAILABLE
        await asyncio.wait_for(fake.attached.wait(), 2)
        assert "more than 20000 pods and containers announced" in losses[0]

    with_runtime(test)


def test_runtime_that_never_synchronizes_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A registration that leads nowhere is given up and tried again."""
    monkeypatch.setattr("podslice.agent.runtime.nri.SYNCHRONIZE_TIMEOUT", 0.05)

    class Mute(FakeRuntime):
        async def _introduce(self) -> None:
            if len(self.registered) > 1:
                await super()._introduce()

    async def test(fake: FakeRuntime, plugin: Recorder, losses: list[str]) -> None:
        assert losses == ["registered, but the runtime sent no list of pods and containers"]

    with_runtime(test, Mute)
