"""Scenarios with a device plugin: T02 with devices, R01, R05, X03 and X04 of the checklist."""

from __future__ import annotations

import json

from e2e.kubelet import Running
from e2e.pods import gu, pod
from e2e.scenarios import STATIC, scenario
from e2e.world import World, check

_FOLDER, _FILE = "/run/podslice/device-plugins", "/run/devices.json"
_AGENT = {"devicePlugins": _FOLDER}
_ALIGNED = {**STATIC, "topologyManagerPolicy": "single-numa-node"}


class Plugin:
    """The device plugin beside the agent."""

    def __init__(self, world: World, *numa: int | None, health: str = "Healthy", fail: str = "") -> None:
        self.world = world
        self.devices = [{"id": f"d{i}", "numa": node, "health": health} for i, node in enumerate(numa)]
        self.send_state(fail=fail)
        self.start()

    def send_state(self, fail: str = "") -> None:
        """Say which devices there are, and which call fails."""
        self.world.vm.call("write", path=_FILE, text=json.dumps({"devices": self.devices, "fail": fail}))

    def start(self) -> None:
        command = ["python3.13", self.world.client("device_plugin.py"), _FOLDER, _FILE]
        self.world.vm.call("start", name="plugin", command=command)

    def stop(self) -> None:
        self.world.vm.call("kill", name="plugin")

    def restart(self) -> None:
        self.stop()
        self.start()

    def wait(self, count: int) -> None:
        """Until so many devices can be allocated."""
        found = self.world.soon(self._allocatable, count)
        check(found == count, f"{found} devices are allocatable, expected {count}")

    def _allocatable(self) -> int:
        return len(self.world.pod_resources("GetAllocatableResources").get("devices", ()))


def _with_plugin_gone(plugin: Plugin) -> None:
    """The next scenario starts without it."""
    plugin.stop()
    plugin.world.vm.call("shell", command=f"rm -f {_FILE}")
    plugin.wait(0)


def _devices(world: World, running: Running, name: str) -> list[str]:
    """The devices a container holds, as the PodResources API lists them and as its environment says."""
    listed = sorted(
        device for one in world.pod_resources_of(running, name).get("devices", ()) for device in one["device_ids"]
    )
    given = running.variables(name).get("EXAMPLE_DEVICES", "")
    check(given == ",".join(listed), f"{name} has {given!r}, listed is {listed}")
    return listed


def _check_aligned(world: World, running: Running, name: str, cpus: int) -> None:
    """The container's own CPUs and its device, named by NUMA node, are on one node."""
    nodes = world.on_nodes(world.exclusive(running, name, cpus))
    check(nodes.bit_count() == 1, f"CPUs of NUMA nodes {nodes:b}")
    (device,) = _devices(world, running, name)
    check(nodes == 1 << int(device[1:]), f"{name} has CPUs of NUMA nodes {nodes:b} and device {device}")


@scenario("R01", _ALIGNED, agent=_AGENT)
@scenario("T02/devices", _ALIGNED, agent=_AGENT)
def cpus_and_device_on_one_node(world: World) -> None:
    size = max(cpus.bit_count() for cpus in world.nodes)
    plugin = Plugin(world, *(node for node, cpus in enumerate(world.nodes) if cpus))
    plugin.wait(sum(1 for cpus in world.nodes if cpus))
    one = world.run(pod("one", gu("c", 1, devices=1)))
    _check_aligned(world, one, "c", 1)
    whole = world.run(pod("whole", gu("c", size, devices=1)))
    _check_aligned(world, whole, "c", size)
    world.remove(one, whole)
    both = world.run(pod("both", gu("a", 1, devices=1), gu("b", 2, devices=1)))
    _check_aligned(world, both, "a", 1)
    _check_aligned(world, both, "b", 2)
    side = world.run(pod("side", gu("app", 1), init=(gu("s", 2, sidecar=True, devices=1),)))
    _check_aligned(world, side, "s", 2)
    world.remove(both, side)
    world.refuse(pod("far", gu("c", size, devices=2)), "TopologyAffinityError")
    _with_plugin_gone(plugin)


@scenario("R05", {**STATIC, "topologyManagerPolicy": "best-effort"}, agent=_AGENT)
def device_without_topology(world: World) -> None:
    """The API says the same before and after a restart."""
    plugin = Plugin(world, None, None)
    plugin.wait(2)
    running = world.run(pod("p", gu("c", 1, devices=1)))
    before = world.pod_resources_of(running, "c")
    check(len(before["devices"]) == 1, f"listed: {before}")
    world.restart_agent()
    plugin.wait(2)
    check(
        world.pod_resources_of(running, "c") == before,
        f"listed: {world.pod_resources_of(running, 'c')}, before {before}",
    )
    world.remove(running)
    _with_plugin_gone(plugin)


@scenario("X03", _ALIGNED, agent=_AGENT)
def assignments_are_kept(world: World) -> None:
    """Over restarts of the container, the agent, the plugin, and both; those of a pod that went meanwhile are free."""
    plugin = Plugin(world, 0, 1)
    plugin.wait(2)
    running = world.run(pod("p", gu("c", 1, devices=1)))
    held = _devices(world, running, "c")
    check(len(held) == 1, f"holds {held}")

    def again() -> None:
        world.kubelet.stop_container(running, "c")
        world.kubelet.start_container(running, "c", {})
        found = _devices(world, running, "c")
        check(found == held, f"the container holds {found} after its restart, before {held}")

    def both() -> None:
        world.restart_agent()
        plugin.restart()

    again()
    for disturb in (world.restart_agent, plugin.restart, both):
        disturb()
        plugin.wait(2)
        again()
    other = world.run(pod("q", gu("c", 1, devices=1)))
    check(not set(_devices(world, other, "c")) & set(held), "a device has two owners")
    world.refuse(pod("r", gu("c", 1, devices=1)), "TopologyAffinityError")
    world.kill_agent()
    world.remove(other)
    world.start_agent()
    plugin.wait(2)
    third = world.run(pod("s", gu("c", 1, devices=1)))
    check(len(_devices(world, third, "c")) == 1, "the device of a pod that went is not free")
    world.remove(running, third)
    _with_plugin_gone(plugin)


@scenario("X04", _ALIGNED, agent=_AGENT)
def plugin_failures(world: World) -> None:
    plugin = Plugin(world, 0, 1, fail="GetDevicePluginOptions")
    plugin.wait(0)
    plugin.send_state()
    plugin.restart()
    plugin.wait(2)
    plugin.devices[0]["health"] = "Unhealthy"
    plugin.send_state()
    plugin.wait(1)
    plugin.devices[0]["health"] = "Healthy"
    plugin.send_state()
    plugin.wait(2)
    plugin.send_state(fail="ListAndWatch")
    plugin.restart()
    plugin.wait(0)
    plugin.send_state()
    plugin.restart()
    plugin.wait(2)
    plugin.send_state(fail="Allocate")
    world.refuse(pod("q", gu("c", 1, devices=1)), "Allocate fails")
    _with_plugin_gone(plugin)
