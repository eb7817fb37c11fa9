"""Kubelets that decide by their own managers, observed by their state files and told to the cluster's service."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import grpc
import pytest

from podslice.agent.devices.observeddevices import SOCKET, ObservedDevices, inventory_of
from podslice.agent.kubelet.observed import ObservedKubelet
from podslice.agent.status.live import LiveNodeSource
from podslice.agent.status.local import status_of
from podslice.kubectl.live import remote_node
from podslice.machine.devices import Device, DeviceInventory, DeviceResource
from podslice.node.holding import holding_of
from podslice.node.node import Node
from podslice.replica.events import Stamped, decode, encode
from podslice.replica.replica import Replica
from podslice.replica.rulebook import Rulebook
from podslice.service.podlist import KnownPod
from podslice.service.proto import podresources_pb2 as api
from podslice.status.status import AgentStatus, Pools
from podslice.values.cpuset import format_bits
from podslice.values.errors import InputError
from tests.agent.fake_pod_resources import FakePodResources
from tests.agent.helpers import World
from tests.cluster.bench import LIKE, SMALL, Bench, filter_request, pod_object

VERSION = "hollow"


def known(name: str, cpus: str, **more: Any) -> KnownPod:
    """A pod as the API server has it."""
    spec = pod_object(name, cpus, "a")["spec"]
    return KnownPod(f"uid-{name}", "default", name, spec=json.dumps(spec).encode(), node="a", **more)


class Observing:
    """A kubelet played by the core, which writes its files, and who observes it; `replica` is the service's. `lists`:
    the devices that its plugins list, as its PodResources API tells them; None where it does not answer."""

    def __init__(self, folder: Path, lists: api.AllocatableResourcesResponse | None = None) -> None:
        self.folder = folder
        self.lists = lists or api.AllocatableResourcesResponse()
        self.answers = True
        self.kubelet = Node(
            LIKE.rules.machine, LIKE.rules.config, profile="kubelet-1.36", predicates=False,
            devices=inventory_of(self.lists),
        )  # fmt: skip
        self.pods: dict[str, KnownPod] = {}
        self.troubles: list[str] = []
        self.observed = ObservedKubelet(
            folder, LIKE.rules.machine, LIKE.rules.config, profile="podslice", version=VERSION,
            pods=lambda: list(self.pods.values()), ready=lambda: True,
            trouble=lambda where, what: self.troubles.append(what), devices=self.listed,
        )  # fmt: skip
        self.replica = Replica(Rulebook(), {VERSION})
        self.events: list[Stamped] = []
        self.write()

    async def listed(self) -> DeviceInventory:
        if not self.answers:
            raise InputError("the kubelet does not answer")
        return inventory_of(self.lists)

    def write(self) -> None:
        for name, data in self.kubelet.files.items():
            (self.folder / name).write_bytes(data)

    def bound(self, pod: KnownPod) -> None:
        """The API server has the pod on this node."""
        self.pods[pod.uid] = pod

    def starts(self, uid: str) -> None:
        """The kubelet admits it."""
        assert self.kubelet.admit(self.pods[uid].pod()).admitted
        self.write()

    def look(self) -> list[str]:
        """Return the outcomes of the new messages in the replica."""
        asyncio.run(self.observed.look())
        journal = self.observed.journal.journal
        if journal is None:
            return []
        found = [decode(encode(one)) for one in journal.events_after(self.replica.epoch, self.replica.sequence)]
        self.events += found
        return [self.replica.apply(one).outcome for one in found]

    def cpus(self, uid: str) -> int:
        """Return the CPUs of a pod in the replica."""
        assert self.replica.state is not None
        return sum(one.cpus for one in holding_of(self.replica.state, uid).containers)

    def agrees(self) -> None:
        """The replica has what the kubelet has."""
        assert self.replica.state is not None
        assert self.replica.proven
        assert self.replica.observed
        assert self.replica.state.cpu.default == self.kubelet.state.cpu.default
        assert self.replica.state.cpu.assignments == self.kubelet.state.cpu.assignments


def test_a_kubelet_is_followed(tmp_path: Path) -> None:
    """Pods that run when the observer begins, that start, and that end: the replica has the CPUs of the files, and
    a pod with the CPUs that it gets by the rules arrives as an admission."""
    scene = Observing(tmp_path)
    scene.bound(known("first", "4"))
    scene.starts("uid-first")
    assert scene.look() == ["adopted"]
    scene.agrees()
    assert scene.look() == []
    scene.bound(known("second", "6"))
    scene.bound(known("shares", "500m"))
    scene.look()
    scene.agrees()
    scene.starts("uid-second")
    outcomes = scene.look()
    assert outcomes[0] == "equal"
    assert {type(one.event).__name__ for one in scene.events} >= {"WholeState", "PodAdmitted"}
    scene.agrees()
    del scene.pods["uid-first"]
    scene.look()
    scene.agrees()
    scene.kubelet.remove("uid-first")
    scene.write()
    scene.look()
    scene.agrees()
    assert scene.troubles == []


def test_what_no_rule_would_give(tmp_path: Path) -> None:
    """A pod that got other CPUs than expected, one that nobody knows, and a static pod under its kubelet's UID: the
    files are believed."""
    scene = Observing(tmp_path)
    scene.bound(known("first", "4"))
    scene.starts("uid-first")
    scene.look()
    scene.kubelet.admit(known("unknown", "2").pod())
    scene.bound(known("late", "2"))
    scene.starts("uid-late")
    assert scene.look() == ["adopted"]
    scene.agrees()
    scene.bound(known("mirror", "2", mirror_of="uid-hash"))
    scene.kubelet.admit(known("hash", "2").pod())
    scene.write()
    scene.look()
    scene.agrees()
    assert scene.replica.state is not None
    assert "uid-hash" in scene.replica.state.pods
    assert "uid-mirror" not in scene.replica.state.pods


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """Broken files, files of another policy and an empty folder are told once, and nothing new is told of the node."""
    scene = Observing(tmp_path)
    scene.look()
    for broken in (b"{", b'{"policyName":"none","defaultCpuSet":"","checksum":1}'):
        (tmp_path / "cpu_manager_state").write_bytes(broken)
        assert (scene.look(), scene.look()) == ([], [])
    for file in tmp_path.iterdir():
        file.unlink()
    assert scene.look() == []
    assert len(scene.troubles) == 3
    assert all("\n" not in one for one in scene.troubles)
    scene.write()
    scene.look()
    scene.agrees()


def test_one_at_a_time(tmp_path: Path) -> None:
    """The service sends such a node one pod at a time that wants something for itself, any number that do not, and the
    next one once the first was seen in the files."""
    scene, bench = Observing(tmp_path), Bench("a", heard=False)
    scene.look()
    bench.journals.feed("a", encode(scene.events[-1]))
    first, second, shares = pod_object("first", "2"), pod_object("second", "2"), pod_object("shares", "500m")
    assert bench.placing.filter(filter_request(first, ["a"])).nodes == ["a"]
    reason = bench.placing.filter(filter_request(second, ["a"])).unresolvable
    assert reason == {"a": "reserved for pods being bound"}
    assert bench.placing.filter(filter_request(shares, ["a"])).nodes == ["a"]
    assert not bench.placing.model.bind("uid-first", "a", 0.0).error
    bench.watch_pod(pod_object("first", "2", "a"), node_hears=False)
    assert not bench.placing.filter(filter_request(second, ["a"])).nodes
    scene.bound(known("first", "2"))
    scene.starts("uid-first")
    count = len(scene.events)
    scene.look()
    for stamped in scene.events[count:]:
        bench.journals.feed("a", encode(stamped))
    assert bench.placing.model.holds() == ()
    assert bench.placing.model.counts["agreed"] == 1
    assert bench.placing.filter(filter_request(second, ["a"])).nodes == ["a"]


# Devices

GPU = "vendor.com/gpu"


def gpus(*places: tuple[str, int]) -> api.AllocatableResourcesResponse:
    """Devices with their NUMA nodes, each told by itself as a kubelet does."""
    return api.AllocatableResourcesResponse(
        devices=[
            api.ContainerDevices(
                resource_name=GPU, device_ids=[name], topology=api.TopologyInfo(nodes=[api.NUMANode(ID=numa)])
            )
            for name, numa in places
        ]
    )


def with_gpus(name: str, cpus: str, count: int) -> KnownPod:
    spec = pod_object(name, cpus, "a")["spec"]
    for amounts in spec["containers"][0]["resources"].values():
        amounts[GPU] = str(count)
    return KnownPod(f"uid-{name}", "default", name, spec=json.dumps(spec).encode(), node="a")


def devices_of(scene: Observing, uid: str) -> list[str]:
    assert scene.replica.state is not None
    (container,) = holding_of(scene.replica.state, uid).containers
    return [name for _, names in container.devices for name in names]


def test_devices_are_predicted(tmp_path: Path) -> None:
    """The replica knows which devices there are and where, who has which, and what a further pod would get; a pod that
    got what it would by the rules is told as admitted. Without free devices on the NUMA node of its CPUs nobody is
    sent there."""
    scene, bench = Observing(tmp_path, gpus(("b", 1), ("a", 0), ("c", 1))), Bench("a", heard=False)
    scene.bound(with_gpus("first", "2", 1))
    scene.starts("uid-first")
    assert scene.look() == ["adopted"]
    assert devices_of(scene, "uid-first") == ["a"]
    scene.bound(with_gpus("second", "2", 2))
    scene.look()
    scene.starts("uid-second")
    assert scene.look()[0] == "equal"
    assert devices_of(scene, "uid-second") == ["b", "c"]
    scene.agrees()
    assert scene.look() == []
    for stamped in scene.events:
        bench.journals.feed("a", encode(stamped))
    wants = pod_object("third", "2")
    for amounts in wants["spec"]["containers"][0]["resources"].values():
        amounts[GPU] = "1"
    assert bench.placing.filter(filter_request(wants, ["a"])).unresolvable == {"a": "fewer than 1 vendor.com/gpu free"}
    del scene.pods["uid-first"]
    scene.kubelet.remove("uid-first")
    scene.write()
    count = len(scene.events)
    scene.look()
    for stamped in scene.events[count:]:
        bench.journals.feed("a", encode(stamped))
    assert bench.placing.filter(filter_request(wants, ["a"])).nodes == ["a"]
    assert scene.troubles == []


def test_devices_come_and_go(tmp_path: Path) -> None:
    """Another list of devices is told as a whole; a device that is gone stays with its pod and is nobody else's. While
    the kubelet does not answer nothing new is told."""
    scene = Observing(tmp_path, gpus(("a", 0), ("b", 1)))
    scene.bound(with_gpus("first", "2", 1))
    scene.starts("uid-first")
    scene.look()
    scene.answers = False
    scene.bound(known("second", "2"))
    scene.starts("uid-second")
    assert (scene.look(), scene.look()) == ([], [])
    assert len(scene.troubles) == 1
    scene.answers, scene.lists = True, gpus(("b", 1))
    assert scene.look() == ["adopted"]
    scene.agrees()
    assert devices_of(scene, "uid-first") == ["a"]
    assert scene.replica.state is not None
    pool = scene.replica.state.device.pools[GPU]
    assert pool.names(pool.healthy) == ["b"]


def test_what_the_kubelet_lists(tmp_path: Path) -> None:
    """Asked by its socket below its folder: every device once, in order, with its NUMA nodes. Without a socket there
    are none, and one that does not answer is an error in a line."""
    listed = gpus(("b", 1), ("a", 0), ("a", 1))
    listed.devices.add(resource_name="vendor.com/nic", device_ids=["eth1", "eth0"])
    found = DeviceInventory(
        (
            DeviceResource(GPU, (Device("a", (0, 1)), Device("b", (1,)))),
            DeviceResource("vendor.com/nic", (Device("eth0"), Device("eth1"))),
        )
    )
    asks = ObservedDevices(tmp_path)

    async def main() -> None:
        assert await asks.read() == DeviceInventory()
        kubelet = FakePodResources(tmp_path / SOCKET)
        kubelet.allocatable = listed
        await kubelet.start()
        try:
            assert await asks.read() == found
            kubelet.failure = (grpc.StatusCode.INTERNAL, "broken")
            with pytest.raises(InputError, match="broken"):
                await asks.read()
        finally:
            await kubelet.stop()

    asyncio.run(main())


class Unconnected(World):
    """An agent on a node whose runtime has no NRI."""

    async def _connect(self) -> None:
        """There is nothing to connect with."""


def test_its_status_has_what_the_service_knows(tmp_path: Path) -> None:
    """Without a runtime to register with, status and the document of the node show the pods and CPUs that the agent
    reports, those of the kubelet's files; before they are read there is nothing to show."""
    (tmp_path / "kubelet").mkdir()
    scene, facts = Observing(tmp_path / "kubelet"), {"machine": "", "runtime": "", "connected": False}
    for name, cpus in (("first", "4"), ("shares", "500m"), ("second", "6")):
        scene.bound(known(name, cpus))
        scene.starts(f"uid-{name}")
    world = Unconnected(tmp_path, LIKE.rules.config, machine=SMALL)
    asyncio.run(world.start())
    live = LiveNodeSource(world.owner, "a", dict, lambda identity: None, observed=scene.observed)

    def status() -> AgentStatus:
        return status_of(
            world.owner, [], observed=scene.observed.node, node="a", observe=True, started_at=0.0, ready="", **facts
        )

    assert (status().pods, status().pools, status().map) == ((), None, "")
    assert "has not reported" in live.tell()["problem"]
    scene.look()
    shown = status()
    cpus = {pod.name: [one.cpus for one in pod.containers] for pod in shown.pods}
    view = scene.kubelet.view
    assert list(cpus) == ["first", "second", "shares"]
    assert cpus["first"] == [format_bits(view.assignment("uid-first", "c") or 0)]
    assert cpus["shares"] == [format_bits(view.shared)]
    assert [one.isolation for pod in shown.pods for one in pod.containers] == ["container", "container", "host"]
    assert shown.pools == Pools(format_bits(view.shared), format_bits(view.reserved), format_bits(view.owned))
    assert shown.map
    remote = remote_node(live.tell(), "a")
    assert remote.problem == ""
    assert remote.node is not None
    assert remote.node.state.cpu.assignments == scene.kubelet.state.cpu.assignments
    assert set(remote.node.pods) == {"uid-first", "uid-shares", "uid-second"}
