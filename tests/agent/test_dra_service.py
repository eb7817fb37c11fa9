"""The driver towards the kubelet: registration, prepare, unprepare and health over real gRPC sockets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import msgspec
import pytest
from msgspec.structs import replace

from podslice.agent.dra.cdi import short
from podslice.agent.dra.driver import Driver, build_slices
from podslice.agent.dra.publisher import Publisher, SliceChange
from podslice.agent.dra.reservations import read_kubelet_claims
from podslice.agent.kubelet.podresources import PodResources
from podslice.agent.process.daemon import Agent
from podslice.agent.records import ClaimedDevice, ContainerRecord
from podslice.agent.runtime.ttrpc import RPCError
from podslice.agent.settings import DRASettings, NUMAOrder, settings_from_dict
from podslice.dra.objects import ResourceClaim
from podslice.dra.prepared import PreparedDevice
from podslice.machine.delta import without_cpus
from podslice.service.answers import ApiError
from podslice.service.proto import dra_pb2 as api
from podslice.service.proto import podresources_pb2 as resources_api
from podslice.values.cpuset import iter_bits, parse_bits
from podslice.values.errors import InputError
from tests.agent.claimhelpers import NODE, ClaimWorld, Desk, FakeClaims, claim, ids
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.test_claims import claiming, env
from tests.agent.test_daemon import with_agent
from tests.agent.test_grpc import COUNTS
from tests.agent.test_grpc import ask as ask_resources
from tests.clock import PATIENCE, until
from tests.service.fake_runtime import FakeRuntime

WIRE = "k8s.io.kubelet.pkg.apis.dra"


async def ask(path: Path, service: str, method: str, request: Any, kind: Any) -> Any:
    """One call of a kubelet."""
    async with grpc.aio.insecure_channel(f"unix://{path}") as channel:
        call = channel.unary_unary(
            f"/{service}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        return await call(request, timeout=PATIENCE)


class Kubelet:
    """Finds the driver as a kubelet does, and calls it."""

    def __init__(self, folder: Path, version: str = "v1") -> None:
        self.registration = folder / "registry" / "podslice.io-reg.sock"
        self.version = version
        self.endpoint = Path()

    async def register(self, *, refused: str = "") -> api.PluginInfo:
        """GetInfo, then whether it was taken."""
        service = "pluginregistration.Registration"
        info: api.PluginInfo = await ask(self.registration, service, "GetInfo", api.InfoRequest(), api.PluginInfo)
        self.endpoint = Path(info.endpoint)
        told = api.RegistrationStatus(plugin_registered=not refused, error=refused)
        await ask(self.registration, service, "NotifyRegistrationStatus", told, api.RegistrationStatusResponse)
        return info

    async def prepare(self, *claims: Any) -> Any:
        """Answers by UID."""
        return await self._call("Prepare", api.NodePrepareResourcesRequest, api.NodePrepareResourcesResponse, claims)

    async def unprepare(self, *claims: Any) -> Any:
        """Answers by UID."""
        types = api.NodeUnprepareResourcesRequest, api.NodeUnprepareResourcesResponse
        return await self._call("Unprepare", *types, claims)

    async def _call(self, verb: str, request: Any, answer: Any, claims: Any) -> Any:
        asked = [api.Claim(namespace=one.namespace, uid=one.uid, name=one.name) for one in claims]
        service = f"{WIRE}.{self.version}.DRAPlugin"
        return (await ask(self.endpoint, service, f"Node{verb}Resources", request(claims=asked), answer)).claims


def settings(folder: Path) -> DRASettings:
    return DRASettings(
        plugins=str(folder / "plugins"),
        plugins_registry=str(folder / "registry"),
        kubelet_state=str(folder / "dra_manager_state"),
        cdi=str(folder / "cdi"),
    )


def driver_of(settings: DRASettings, node: Desk | ClaimWorld, api: FakeClaims, **more: Any) -> Driver:
    """The driver of a node; nobody counts how long claims take."""
    quiet = lambda result, seconds: None  # noqa: E731
    return Driver(settings, node.owner, node.ledger, node.reservations, api, NODE, prepared=quiet, **more)  # type: ignore[arg-type]


def with_driver(folder: Path, test: Callable[[Desk, Driver, FakeClaims], Awaitable[None]], **more: Any) -> None:
    """Run a test beside a driver that serves."""

    async def main() -> None:
        claims = FakeClaims()
        desk = Desk(folder, claims)
        driver = driver_of(settings(folder), desk, claims, **more)
        await driver.start()
        try:
            await test(desk, driver, claims)
        finally:
            await driver.close()

    asyncio.run(main())


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_prepare(tmp_path: Path, version: str) -> None:
    """Registered as the kubelet expects; a claim is prepared and given back, and asking again answers the same."""

    async def test(desk: Desk, driver: Driver, claims: FakeClaims) -> None:
        kubelet = Kubelet(tmp_path, version)
        info = await kubelet.register()
        assert (info.type, info.name) == ("DRAPlugin", "podslice.io")
        assert list(info.supported_versions) == ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1alpha1.DRAResourceHealth"]
        assert driver.service.registered
        one = claim("a", (0, 4), (1, 2))
        claims.put(one)
        answers = await kubelet.prepare(one)
        got = answers["uid-a"]
        assert not got.error
        assert [list(device.request_names) for device in got.devices] == [["r0"], ["r1"]]
        assert [device.device_name for device in got.devices] == ["podslice-numa-0", "podslice-numa-1"]
        assert [device.pool_name for device in got.devices] == ["n/podslice.io"] * 2
        assert [list(device.cdi_device_ids) for device in got.devices] == [[one] for one in ids(one)]
        assert [device.share_id for device in got.devices] == ["share"] * 2
        assert (await kubelet.prepare(one))["uid-a"] == got
        claims.down = True
        assert (await kubelet.prepare(one))["uid-a"] == got
        desk.check()
        assert (await kubelet.unprepare(one))["uid-a"].error == ""
        assert (await kubelet.unprepare(one, claim("never")))["uid-never"].error == ""
        assert desk.holds() == {}

    with_driver(tmp_path, test)


def test_every_claim_is_answered(tmp_path: Path) -> None:
    """One claim's refusal is its own: the others of the call are prepared."""

    async def test(desk: Desk, driver: Driver, claims: FakeClaims) -> None:
        kubelet = Kubelet(tmp_path)
        await kubelet.register()
        good, large, gone = claim("good", (0, 4)), claim("large", (1, 99)), claim("gone", (0, 1))
        claims.put(good)
        claims.put(large)
        answers = await kubelet.prepare(good, large, gone)
        assert set(answers) == {"uid-good", "uid-large", "uid-gone"}
        assert not answers["uid-good"].error
        assert "wants 99 CPUs on NUMA node 1, where 8 are for claims" in answers["uid-large"].error
        assert "default/gone is not there" in answers["uid-gone"].error
        claims.down = True
        assert "cannot be read: connection refused" in (await kubelet.prepare(gone))["uid-gone"].error
        desk.check()

    with_driver(tmp_path, test)


def test_registration_that_is_refused(tmp_path: Path) -> None:
    """The kubelet's reason is told, and the driver goes on serving; it is found again when it stops and starts."""

    async def test(desk: Desk, driver: Driver, claims: FakeClaims) -> None:
        kubelet = Kubelet(tmp_path)
        await kubelet.register(refused="no such version")
        assert not driver.service.registered
        assert ("dra", "the kubelet does not register the driver: no such version") in desk.notes.troubles
        await driver.close()
        assert not kubelet.registration.exists()
        await driver.start()
        await kubelet.register()
        assert driver.service.registered

    with_driver(tmp_path, test)


def test_health(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All devices are told, again when something changes; without a state that can be trusted none is healthy."""

    async def test(desk: Desk, driver: Driver, claims: FakeClaims) -> None:
        kubelet = Kubelet(tmp_path)
        await kubelet.register()
        looking = asyncio.ensure_future(driver.follow_devices())
        async with grpc.aio.insecure_channel(f"unix://{kubelet.endpoint}") as channel:
            call = channel.unary_stream(
                "/v1alpha1.DRAResourceHealth/NodeWatchResources",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=api.NodeWatchResourcesResponse.FromString,
            )
            stream = call(api.NodeWatchResourcesRequest())
            first = await stream.read()
            assert [one.device.device_name for one in first.devices] == ["podslice-numa-0", "podslice-numa-1"]
            assert {one.health for one in first.devices} == {api.HEALTHY}
            desk.owner.admitting.store = None
            desk.owner.admitting.safe_mode = "a file is gone"
            second = await stream.read()
            assert {(one.health, one.message) for one in second.devices} == {(api.UNHEALTHY, "a file is gone")}
            stream.cancel()
        looking.cancel()

    monkeypatch.setattr("podslice.agent.dra.service.HEALTH_SECONDS", 1e6)
    with_driver(tmp_path, test)


def test_health_of_offline_cpus(tmp_path: Path) -> None:
    """A device is ill when CPUs that a claim has of it went offline, and only that device."""

    async def test(desk: Desk, driver: Driver, claims: FakeClaims) -> None:
        driver.ledger.prepare(claim("a", (1, 2)))
        (lost, *_) = iter_bits(desk.holds()["uid-a"])
        desk.owner.change_machine(without_cpus(desk.owner.machine, 1 << lost))
        said = {device: problem for _, device, problem in driver._devices()}
        assert said == {"podslice-numa-0": "", "podslice-numa-1": f"CPUs {lost} are offline"}

    with_driver(tmp_path, test)


def checkpoint(folder: Path, **claims: list[str]) -> None:
    """The kubelet's list of claims."""
    listed = [{"ClaimUID": uid, "PodUIDs": {pod: {} for pod in pods}} for uid, pods in claims.items()]
    data = json.dumps({"kind": "DRACheckpoint", "ClaimInfoStateList": listed})
    (folder / "dra_manager_state").write_text(json.dumps({"Data": data, "Checksum": 1}))


def test_clean_up(tmp_path: Path) -> None:
    """A claim that the kubelet has not prepared and nobody uses is given back after ten minutes, and not where the
    kubelet's list cannot be read, or knows it."""
    now = [0.0]

    async def test(desk: Desk, driver: Driver, claims: FakeClaims) -> None:
        for name in ("known", "used", "stale"):
            driver.ledger.prepare(claim(name, (0, 2)))
        used = ClaimedDevice(short("uid-used"), 0)
        desk.owner.containers["c"] = ContainerRecord("c", "app", "used", "s", claims=(used,))

        def passes(seconds: float) -> set[str]:
            now[0] += seconds
            driver.clean_once()
            return set(driver.ledger.claims)

        assert len(passes(0)) == len(passes(10_000)) == 3
        checkpoint(tmp_path, **{"uid-known": ["p"]})
        assert read_kubelet_claims(tmp_path / "dra_manager_state") == {"uid-known": frozenset({"p"})}
        assert len(passes(0)) == len(passes(599)) == 3
        assert passes(1) == {"uid-known", "uid-used"}
        (tmp_path / "dra_manager_state").write_text("{")
        assert len(passes(10_000)) == 2
        desk.check()

    with_driver(tmp_path, test, now=lambda: now[0])


def test_pod_resources(tmp_path: Path) -> None:
    """PodResources names the claim of a container and lists the CPUs that are really its own."""

    async def main() -> None:
        claims = FakeClaims()
        world = ClaimWorld(tmp_path, api=claims)
        await world.start()
        driver = driver_of(settings(tmp_path), world, claims)
        try:
            one = driver.ledger.prepare(claim("p", (1, 4)))
            world.source.add(claiming("p", "4"))
            sandbox = await world.fake.run_pod("p")
            await world.fake.create_container(sandbox, "app", env=env(one))
            server = PodResources(world.owner, dict.fromkeys(COUNTS, 0))
            await server.start(tmp_path / "resources.sock")
            request, kind = resources_api.ListPodResourcesRequest(), resources_api.ListPodResourcesResponse
            listed = await ask_resources(tmp_path / "resources.sock", "List", request, kind)
            await server.close()
            (container,) = listed.pod_resources[0].containers
            (held,) = world.owner.node.view.owners["claim/uid-p"].values()  # type: ignore[union-attr]
            assert list(container.cpu_ids) == list(iter_bits(held))
            (dynamic,) = container.dynamic_resources
            assert (dynamic.claim_name, dynamic.claim_namespace) == ("p", "default")
            (device,) = dynamic.claim_resources
            assert (device.driver_name, device.device_name, device.share_id) == (
                "podslice.io",
                "podslice-numa-1",
                "share",
            )
            assert [cdi.name for cdi in device.cdi_devices] == ids(one)
        finally:
            await world.kill()

    asyncio.run(main())


def test_whole_devices(tmp_path: Path) -> None:
    """A core that the scheduler gave by name is the one that the claim's container runs on; who has it already is
    said."""

    async def test(desk: Desk, driver: Driver, claims: FakeClaims) -> None:
        kubelet = Kubelet(tmp_path)
        await kubelet.register()
        for name, device in (
            ("one", "podslice-core-8"),
            ("two", "podslice-whole-machine"),
            ("three", "podslice-core-0"),
        ):
            whole = replace(claim(name, (0, 0)), devices=(PreparedDevice("r", "n/podslice.io", device, 0),))
            claims.put(whole)
            del claims.objects["default", name]["status"]["allocation"]["devices"]["results"][0]["consumedCapacity"]
            answer = (await kubelet.prepare(whole))[f"uid-{name}"]
            if name == "one":
                assert answer.error == ""
                assert driver.ledger.device_pinnings(driver.ledger.claims["uid-one"])[0].cpu_list == "8-9"
            elif name == "two":
                assert "wants 16 CPUs of podslice-whole-machine, where 14 of 16 for claims are free" in answer.error
                assert "default.one: 8-9" in answer.error
            else:
                assert "device podslice-core-0, which this node does not have" in answer.error
        assert desk.holds() == {"uid-one": parse_bits("8-9")}
        await kubelet.unprepare(claim("one"))
        assert desk.holds() == {}

    with_driver(tmp_path, test)


def test_passed_on_without_the_kubelets_list(tmp_path: Path) -> None:
    """Where the kubelet's list is not mounted, the API server says that a claim is another pod's now: the container is
    refused until it has, and while the claim is reserved for others."""

    async def main() -> None:
        claims = FakeClaims()
        world = ClaimWorld(tmp_path, api=claims, sleep=lambda seconds: asyncio.sleep(0))
        await world.start()
        driver = driver_of(settings(tmp_path), world, claims)
        following = asyncio.ensure_future(world.reservations.run())
        try:
            one = driver.ledger.prepare(claim("p", (1, 4)))
            claims.put(one)
            world.source.add(claiming("next", "1", claim_name="p"))
            later = await world.fake.run_pod("next")

            async def created() -> bool:
                try:
                    await world.fake.create_container(later, "app", env=env(one))
                except RPCError:
                    return False
                return True

            assert not await created()
            await until(lambda: world.reservations.find_pods("uid-p") == {"p"})
            assert not await created()
            claims.put(replace(one, pods=("next",)))
            done = await created()
            await until(lambda: world.reservations.find_pods("uid-p") == {"next"})
            assert done or await created()
            assert driver.ledger.claims["uid-p"].pods == ("next",)
        finally:
            following.cancel()
            await world.kill()

    asyncio.run(main())


@pytest.mark.parametrize(("order", "said"), [("numaNode", "01"), ("mostFree", "10"), ("leastFree", "01")])
def test_order(tmp_path: Path, order: NUMAOrder, said: str) -> None:
    """Devices are offered in the order that the setting wants, which follows what claims have left; full ones last."""
    claims = FakeClaims()
    desk = Desk(tmp_path, claims)
    driver = driver_of(DRASettings(order=order, cdi=str(tmp_path / "cdi")), desk, claims)

    def offered() -> str:
        (spec,) = driver._desired_slices() or []
        return "".join(device["name"][-1] for device in spec["devices"])

    assert offered() == "01"
    driver.ledger.prepare(claim("a", (0, 2)))
    assert offered() == said
    driver.ledger.prepare(claim("b", (0, 6)))
    assert offered() == ("01" if order == "numaNode" else "10")
    driver.ledger.unprepare("uid-a")
    driver.ledger.unprepare("uid-b")
    assert offered() == "01"


def test_what_is_published(tmp_path: Path) -> None:
    """A device for each NUMA node with exactly what the policy leaves to claims."""
    desk = Desk(tmp_path)
    (spec,) = build_slices(desk.owner.node, NODE)  # type: ignore[arg-type]
    assert spec["pool"] == {"name": "n/podslice.io", "resourceSliceCount": 1}
    assert [device["capacity"] for device in spec["devices"]] == [
        {"podslice.io/cpu": {"value": "8", "requestPolicy": {"default": "0", "validRange": {"min": "0", "step": "1"}}}}
    ] * 2


POLICY_HEADER = {"apiVersion": "podslice.io/v1alpha1", "kind": "PodslicePolicy"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"sources": {}}, "dra: needs an API server"),
        ({"policy": {}}, "dra: nothing of the node is for claims"),
        ({"policy": {**POLICY_HEADER, "spec": {"claims": {"cpus": ""}}}}, "dra: nothing of the node is for claims"),
        ({"resources": {}}, "dra: needs a CPU Manager"),
        ({"dra": {"plugin": "x"}}, "dra.plugin: unknown field (did you mean plugins?)"),
        ({"dra": {"order": "most"}}, "dra.order: invalid enum value 'most' (one of numaNode, mostFree, leastFree)"),
        ({"dra": {"plugins": "plugins"}}, "dra.plugins: 'plugins' is not an absolute path"),
        ({"dra": {"pluginsRegistry": ""}}, "dra.pluginsRegistry: '' is not an absolute path"),
    ],
)
def test_settings(changes: dict[str, Any], said: str) -> None:
    """Claims need an API server, CPUs of their own and a static CPU Manager; what lacks is said with its place."""
    whole = {
        "apiVersion": "podslice.io/v1alpha1",
        "kind": "AgentConfiguration",
        "resources": {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"},
        "sources": {"apiServer": True},
        "policy": {**POLICY_HEADER, "spec": {"claims": {"cpus": "2-3"}}},
        "dra": {},
    }
    assert settings_from_dict(whole).agent.dra == DRASettings()
    with pytest.raises(InputError) as error:
        settings_from_dict(whole | changes)
    assert said in str(error.value)


class ServerOfClaims(FakeApiServer):
    """With claims, and slices by name."""

    def __init__(self) -> None:
        super().__init__()
        self.claims = FakeClaims()
        self.slices: dict[str, Any] = {}
        self.fields: frozenset[str] | ApiError = frozenset({"name"})
        self.gone = asyncio.Event()
        """Watches end: in peace, or because the connection is lost."""
        self.in_peace = False
        self.version = "v1.36.2"

    async def device_fields(self) -> frozenset[str]:
        if isinstance(self.fields, ApiError):
            raise self.fields
        return self.fields

    async def server_version(self) -> str:
        return self.version

    async def node_uid(self, node: str) -> str:
        return "node-uid"

    async def read_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        return await self.claims.read_claim(namespace, name)

    async def list_slices(self, node: str, driver: str) -> tuple[list[Any], str]:
        return list(self.slices.values()), "1"

    async def watch_slices(self, node: str, driver: str, version: str) -> AsyncGenerator[SliceChange, None]:
        gone = self.gone
        await gone.wait()
        if not self.in_peace:
            raise ApiError("connection reset")
        yield SliceChange("BOOKMARK", {}, "1")

    async def create_slice(self, one: Any) -> Any:
        name = f"{one['metadata']['generateName']}{len(self.slices)}"
        self.slices[name] = {**one, "metadata": {**one["metadata"], "name": name, "uid": name, "resourceVersion": "1"}}
        return self.slices[name]

    async def replace_slice(self, one: Any) -> Any:
        self.slices[one["metadata"]["name"]] = one
        return one

    async def delete_slice(self, one: Any) -> None:
        del self.slices[one["metadata"]["name"]]


@pytest.mark.parametrize("field", ["nodeAllocatableResourceMappings", "nodeAllocatableResources", "later"])
def test_accounting(field: str) -> None:
    """Slices say what claims count for in the form that the server knows; of one that knows another it is said that
    they are not counted."""
    server, troubles = ServerOfClaims(), list[str]()
    server.fields = frozenset({"name", field})
    wanted = {
        "pool": {"name": "p", "resourceSliceCount": 1},
        "devices": [{"name": "d", "capacity": {"podslice.io/cpu": {"value": "1"}}}],
    }

    async def main() -> None:
        publisher = Publisher(
            server, "n", lambda: [wanted], trouble=lambda what, why: troubles.append(why), accounting=True
        )
        tasks = [asyncio.ensure_future(publisher.run()), asyncio.ensure_future(publisher.follow())]
        await until(lambda: publisher.published)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    (one,) = server.slices.values()
    known = field != "later"
    assert set(one["spec"]["devices"][0]) == {"name", "capacity", *([field] if known else [])}
    assert ["claims are not counted" in why for why in troubles] == ([] if known else [True])


def test_fields_that_the_server_does_not_keep() -> None:
    """Partitions without their counters would be given away twice: nothing is offered then, which is said with its
    cause, and not tried again and again; what this server can keep is offered again."""

    class Forgetful(ServerOfClaims):
        async def create_slice(self, one: Any) -> Any:
            lost = {"sharedCounters"}
            kept = {key: value for key, value in one["spec"].items() if key not in lost}
            kept["devices"] = [{key: value for key, value in device.items() if key != "consumesCounters"}
                               for device in kept.get("devices", ())]  # fmt: skip
            return await super().create_slice({**one, "spec": kept})

    server, troubles = Forgetful(), list[str]()
    pool = {"name": "p", "resourceSliceCount": 2}
    counters = {"pool": pool, "sharedCounters": [{"name": "cpus-0"}]}
    partition = {"pool": pool, "devices": [{"name": "whole", "consumesCounters": [{"counterSet": "cpus-0"}]}]}
    wanted: list[list[Any]] = [[counters, partition]]

    async def main() -> None:
        publisher = Publisher(server, "n", lambda: wanted[0], trouble=lambda what, why: troubles.append(why))
        await publisher.publish(wanted[0])
        assert server.slices == {}
        writes = publisher.writes
        await publisher.publish(wanted[0])
        assert (server.slices, publisher.writes) == ({}, writes)
        wanted[0] = [{"pool": {**pool, "resourceSliceCount": 1}, "devices": [{"name": "d"}]}]
        await publisher.publish(wanted[0])
        assert len(server.slices) == 1

    asyncio.run(main())
    assert troubles == [
        "the API server does not keep devices.consumesCounters, sharedCounters: a gate is off",
        "nothing is offered to claims without these fields: turn the gate on, or change claims.devices in the policy",
    ]


@pytest.mark.parametrize("in_peace", [False, True])
def test_accounting_of_a_server_that_is_upgraded(in_peace: bool) -> None:
    """From v1.36 to v1.37 and back: the form is looked up anew when the connection was lost, and when a watch ended
    and the next server is of another version; the slices are written in it."""
    server = ServerOfClaims()
    server.in_peace = in_peace
    forms = ("nodeAllocatableResourceMappings", "nodeAllocatableResources", "nodeAllocatableResourceMappings")
    wanted = {
        "pool": {"name": "p", "resourceSliceCount": 1},
        "devices": [{"name": "d", "capacity": {"podslice.io/cpu": {"value": "1"}}}],
    }

    def published(form: str) -> bool:
        return [set(one["spec"]["devices"][0]) - {"name", "capacity"} for one in server.slices.values()] == [{form}]

    async def main() -> None:
        publisher = Publisher(
            server, "n", lambda: [wanted], trouble=lambda what, why: None, accounting=True,
            sleep=lambda seconds: asyncio.sleep(0.001),
        )  # fmt: skip
        tasks = [asyncio.ensure_future(publisher.run()), asyncio.ensure_future(publisher.follow())]
        for form in forms:
            server.fields = frozenset({"name", form})
            server.version = form
            old, server.gone = server.gone, asyncio.Event()
            old.set()
            await until(lambda form=form: published(form))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_accounting_that_cannot_be_asked_for() -> None:
    """Slices are published without it while the server does not answer, which is told, and with it once it does."""
    server, troubles = ServerOfClaims(), list[str]()
    server.fields = ApiError("503: overloaded")
    wanted = {
        "pool": {"name": "p", "resourceSliceCount": 1},
        "devices": [{"name": "d", "capacity": {"podslice.io/cpu": {"value": "1"}}}],
    }
    again, slept = asyncio.Event(), list[float]()

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await (asyncio.sleep(0) if again.is_set() else again.wait())

    def field() -> bool:
        return any("nodeAllocatableResources" in one["spec"]["devices"][0] for one in server.slices.values())

    async def main() -> None:
        publisher = Publisher(
            server, "n", lambda: [wanted], trouble=lambda what, why: troubles.append(why), accounting=True, sleep=sleep
        )
        tasks = [asyncio.ensure_future(publisher.run()), asyncio.ensure_future(publisher.follow())]
        await until(lambda: publisher.published and bool(slept))
        assert not field()
        assert ["503: overloaded" in why for why in troubles] == [True]
        again.set()
        await until(lambda: len(troubles) > 1)
        server.fields = frozenset({"name", "nodeAllocatableResources"})
        await until(field)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())


def test_the_whole_agent(tmp_path: Path) -> None:
    """An agent with `dra` registers, publishes what the policy leaves to claims, prepares a claim, gives its container
    those CPUs, tells of it in its status, and takes its registration away when it stops; a dry run does nothing of
    that."""
    registry = tmp_path / "registry" / "podslice.io-reg.sock"

    async def test(agent: Agent, fake: FakeRuntime, stored: FakeApiServer) -> None:
        await until(lambda: agent.owner.node is not None and bool(server.slices))
        (published,) = server.slices.values()
        assert published["spec"]["pool"]["name"] == f"{agent.node_name}/podslice.io"
        made = claim("p", (1, 4))
        one = replace(made, devices=(replace(made.devices[0], pool=f"{agent.node_name}/podslice.io"),))
        server.claims.put(one)
        kubelet = Kubelet(tmp_path)
        await kubelet.register()
        answers = await kubelet.prepare(one)
        assert not answers["uid-p"].error
        fake_pod = claiming("p", "4")
        metadata = {"name": "p", "namespace": "default", "uid": "p"}
        await server.apply({"metadata": metadata, "spec": msgspec.to_builtins(fake_pod.spec, enc_hook=str)})
        sandbox = await fake.run_pod("p")
        container = await fake.create_container(sandbox, "app", env=env(one))
        assert parse_bits(container.cpus).bit_count() == 4
        (told,) = agent.endpoints.status.read().claims
        assert (told.namespace, told.name, told.uid, told.pods) == ("default", "p", "uid-p", ("p",))
        assert [(device.device, device.cpus) for device in told.devices] == [("podslice-numa-1", container.cpus)]

    server = ServerOfClaims()
    policy = {
        "apiVersion": "podslice.io/v1alpha1",
        "kind": "PodslicePolicy",
        "spec": {"claims": {"cpus": "8-15,24-31"}},
    }
    fields = {"policy": policy, "dra": msgspec.to_builtins(settings(tmp_path))}
    with_agent(tmp_path, test, api=server, **fields)
    assert not registry.exists()
