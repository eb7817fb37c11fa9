"""Device plugins that a real kubelet knows, over the real protocol."""

from __future__ import annotations

import json
import re
from collections import Counter
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner
from e2e.guest import cri_pb2 as pb
from e2e.programs import Programs
from tools.prediction.__main__ import main
from tools.prediction.compare import device_options, device_state
from tools.prediction.configurations import ALL, WITH_DEVICES, Configuration
from tools.prediction.devicelists import change_list, without_chance
from tools.prediction.plugins import AllocatingPlugin

from podslice.machine.devices import inventory_from_data


@pytest.mark.slow
def test_a_real_kubelet_hands_out_the_devices_that_podslice_says(programs: Programs) -> None:
    """With plugins registered, pods that ask for devices get those that were predicted, with their environment and
    files, also when a plugin's list has changed; the device checkpoint and PodResources (List and Get) say so."""
    first = str(ALL.index(next(one for one in WITH_DEVICES if "restricted" in one.name)))
    arguments = ["--seed", "9", "--pods", "5", "--first", first, "--configurations", "1"]
    done = CliRunner().invoke(main, arguments, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    for counted in ("device checkpoints", "containers with their devices", "changed lists of devices"):
        assert re.search(rf"[1-9]\d* {counted}", done.output), done.output


def test_lists_that_change() -> None:
    """One list at a time is another one; devices fall ill, come, go and move, to NUMA nodes that are there, and a list
    is never empty nor names a device twice."""
    r = Random("lists")
    devices = WITH_DEVICES[0].devices
    seen = Counter[str]()
    for _ in range(300):
        resource, after = change_list(r, devices, 2)
        (was, now), *others = sorted(
            zip(devices, after, strict=True), key=lambda pair: bool(pair[0]["resource"] != resource)
        )
        assert now != was
        assert all(one == other for one, other in others)
        before, listed = ({own["id"]: own for own in one["devices"]} for one in (was, now))
        assert 0 < len(listed) == len(now["devices"])
        assert {node for own in listed.values() for node in own.get("numa", ())} <= {0, 1}
        seen["came"] += bool(listed.keys() - before.keys())
        seen["went"] += bool(before.keys() - listed.keys())
        seen["turned"] += any(listed[one].get("health") != before[one].get("health") for one in listed.keys() & before)
        seen["moved"] += any(listed[one].get("numa") != before[one].get("numa") for one in listed.keys() & before)
        inventory_from_data(list(after))
        devices = after
    assert min(seen[what] for what in ("came", "went", "turned", "moved")) > 0


def test_no_init_container_leaves_a_choice() -> None:
    """A plain init container asks for no more devices than whoever comes next and wants some; a sidecar, which keeps
    its own, and other resources stay as they are."""
    amounts = lambda **counts: {"limits": {f"example.com/{name}": str(count) for name, count in counts.items()}}  # noqa: E731
    spec: dict[str, Any] = {
        "initContainers": [
            {"name": "i0", "resources": amounts(gpu=3, nic=2)},
            {"name": "s", "restartPolicy": "Always", "resources": amounts(gpu=2, other=4)},
        ],
        "containers": [{"name": "c0", "resources": {}}, {"name": "c1", "resources": amounts(nic=1, gpu=4)}],
    }
    without_chance(spec, ({"resource": "example.com/gpu"}, {"resource": "example.com/nic"}))
    first, sidecar = (own["resources"] for own in spec["initContainers"])
    assert (first, sidecar) == (amounts(gpu=2, nic=1), amounts(gpu=2, other=4))


@pytest.mark.parametrize("configuration", WITH_DEVICES, ids=lambda one: one.name)
def test_devices_are_on_numa_nodes_of_their_machine(configuration: Configuration) -> None:
    """Each configuration has devices near NUMA nodes that are there, one that is unhealthy, and one near no node."""
    devices = [
        own for resource in inventory_from_data(list(configuration.devices)).resources for own in resource.devices
    ]
    assert {node for own in devices for node in own.numa or ()} <= set(range(configuration.shape.nodes))
    assert any(not own.healthy for own in devices)
    assert any(own.numa is None for own in devices)


def test_a_plugin_tells_which_devices_a_container_got() -> None:
    """The environment names the devices in order, and each has a file; so the runtime was told of them."""
    (resource,) = inventory_from_data([{"resource": "example.com/nic", "count": 2}]).resources
    answer = AllocatingPlugin(resource).allocate(["b", "a"])
    assert answer is not None
    assert answer.envs == {"EXAMPLE_COM_NIC": "a,b"}
    config = pb.ContainerConfig(
        envs=[pb.KeyValue(key="EXAMPLE_COM_NIC", value="a,b"), pb.KeyValue(key="HOST", value="x")],
        devices=[pb.Device(container_path=own.container_path, host_path=own.host_path, permissions=own.permissions)
                 for own in reversed(answer.devices)],
    )  # fmt: skip
    assert device_options(config) == {
        "envs": answer.envs,
        "devices": [(own.container_path, own.host_path, own.permissions) for own in answer.devices],
    }


def test_the_order_in_a_device_checkpoint_is_chance() -> None:
    """Two checkpoints that differ in the order of pods, resources or devices say the same; another device does not."""

    def state(*entries: tuple[str, list[str]], registered: list[str]) -> bytes:
        listed = [
            {"PodUID": uid, "ContainerName": "c", "ResourceName": "r", "DeviceIDs": {"0": ids}, "AllocResp": ""}
            for uid, ids in entries
        ]
        return json.dumps({"Data": {"PodDeviceEntries": listed, "RegisteredDevices": {"r": registered}}}).encode()

    one = state(("u", ["a", "b"]), ("v", ["c"]), registered=["a", "b", "c"])
    assert device_state(one) == device_state(state(("v", ["c"]), ("u", ["b", "a"]), registered=["c", "b", "a"]))
    assert device_state(one) != device_state(state(("v", ["c"]), ("u", ["b"]), registered=["c", "b", "a"]))
    assert device_state(b"") == {}
