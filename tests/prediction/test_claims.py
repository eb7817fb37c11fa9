"""The driver of claims beside a real kubelet: sentences of cluster-integration A.4 (docs/development/dra-tests.md)."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from e2e.controlplane import MERGE, StatusError
from e2e.programs import Programs
from lightkube.config.kubeconfig import KubeConfig
from tools.prediction.node import NODE, OneNode

from podslice.agent.api_server.apiclient import RESOURCES, HTTPApiServer
from podslice.agent.dra import service
from podslice.agent.dra.driver import Driver
from podslice.agent.dra.reservations import read_kubelet_claims
from podslice.agent.settings import DRASettings
from podslice.dra.prepared import PreparedClaim
from podslice.service.proto import dra_pb2 as api
from tests.agent.claimhelpers import Desk
from tests.prediction.counting import CONFIG, PODS, counting_node

Json = dict[str, Any]
CLAIMS, SLICES = f"{RESOURCES}/namespaces/default/resourceclaims", f"{RESOURCES}/resourceslices"
GPU = "gpu.example.com"
PATIENCE = 240.0
pytestmark = pytest.mark.timeout(900)


def wait(what: str, condition: Callable[[], Any]) -> None:
    """Longer than a kubelet's deadlines and its pauses between tries."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


class DriverThread:
    """An agent's driver with a loop of its own. Made anew, it is the process after."""

    def __init__(self, folder: Path, node: OneNode, kubeconfig: Json) -> None:
        self._folder, self._node, self._config = folder, node, kubeconfig
        self.prepares: list[str] = []
        self.sandboxes: list[int] = []
        """Of the pod of each call, how many there were."""
        self.hangs = threading.Event()
        self._ends = threading.Event()
        self._thread = threading.Thread()

    def start(self) -> None:
        self._ends.clear()
        serves = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run(serves)), daemon=True)
        self._thread.start()
        wait("the driver serves", serves.is_set)

    def stop(self) -> None:
        if self._thread.is_alive():
            self._ends.set()
            self._thread.join(PATIENCE)

    async def _run(self, serves: threading.Event) -> None:
        kubelet, server = self._node.kubelet.folder, HTTPApiServer(KubeConfig.from_dict(self._config).get())
        settings = DRASettings(
            plugins=str(kubelet / "plugins"),
            plugins_registry=str(kubelet / "plugins_registry"),
            kubelet_state=str(kubelet / "dra_manager_state"),
            cdi=str(self._folder / "cdi"),
        )
        desk = Desk(self._folder, server, Path(settings.kubelet_state))
        quiet = lambda result, seconds: None  # noqa: E731
        self.driver = Driver(settings, desk.owner, desk.ledger, desk.reservations, server, NODE, prepared=quiet)
        self._watch_calls()
        await self.driver.start()
        tasks = [asyncio.ensure_future(work()) for name, work in self.driver.loops() if "Slices" in name]
        serves.set()
        while not self._ends.is_set():
            await asyncio.sleep(0.05)
        await self.driver.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await server.close()

    def _watch_calls(self) -> None:
        book, read = self.driver.ledger, self.driver.service._prepare_read
        prepare = book.prepare

        def prepared(claim: PreparedClaim) -> PreparedClaim:
            self.prepares.append(claim.name)
            self.sandboxes.append(sum(one.uid in claim.pods for one in self._node.runtime.sandboxes.values()))
            return prepare(claim)

        async def reading(asked: Any) -> PreparedClaim:
            while self.hangs.is_set():
                await asyncio.sleep(0.05)
            return await read(asked)

        book.prepare = prepared  # type: ignore[method-assign]
        self.driver.service._prepare_read = reading  # type: ignore[method-assign]

    @property
    def registered(self) -> bool:
        return self.driver.service.registered


class Place:
    """A kubelet and a driver."""

    def __init__(self, node: OneNode, driver: DriverThread, folder: Path) -> None:
        self.node, self.driver, self.folder = node, driver, folder

    def pod(self, name: str, *claims: str, cpu: str = "100m") -> str:
        """A pod that is to be bound; its UID."""
        named = [{"name": one} for one in claims]
        container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}, "claims": named}}
        spec = {
            "automountServiceAccountToken": False,
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
            "resourceClaims": [{"name": one, "resourceClaimName": one} for one in claims],
        }
        made = self.node.api.call("POST", PODS, {"metadata": {"name": name}, "spec": spec})
        return str(made["metadata"]["uid"])

    def claim(self, name: str, cpus: int, uid: str, *others: str) -> None:
        """A claim as the scheduler leaves it for a pod, with a device of each of the other drivers."""
        amounts = {"podslice.io/cpu": str(cpus)}
        own = {"deviceClassName": "podslice.io", "capacity": {"requests": amounts}}
        requests = [{"name": "cpus", "exactly": own}]
        requests += [{"name": f"r{at}", "exactly": {"deviceClassName": one}} for at, one in enumerate(others)]
        own_pool = {"driver": "podslice.io", "pool": f"{NODE}/podslice.io", "device": "podslice-numa-1"}
        result = {"request": "cpus", **own_pool, "shareID": str(uuid.uuid4()), "consumedCapacity": amounts}
        results = [result, *({"request": f"r{at}", "driver": one, "pool": NODE, "device": "d"}
                             for at, one in enumerate(others))]  # fmt: skip
        self.node.api.call("POST", CLAIMS, {"metadata": {"name": name}, "spec": {"devices": {"requests": requests}}})
        reserved = [{"resource": "pods", "name": name, "uid": uid}]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
        self.node.api.call("PATCH", f"{CLAIMS}/{name}/status", {"status": status}, MERGE)

    def bind(self, name: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        self.node.api.call("POST", f"{PODS}/{name}/binding", {"metadata": {"name": name}, "target": target})

    def run(self, name: str, cpus: int, *others: str) -> str:
        """A pod with a claim of the same name, once it runs."""
        uid = self.bound(name, cpus, *others)
        self.runs(name)
        return uid

    def bound(self, name: str, cpus: int, *others: str) -> str:
        uid = self.pod(name, name)
        self.claim(name, cpus, uid, *others)
        self.bind(name)
        return uid

    def runs(self, name: str) -> None:
        wait(f"pod {name} runs", lambda: self.node.get(name)["status"].get("phase") == "Running")

    def said(self, uid: str, text: str) -> None:
        """The kubelet's event about preparing."""
        reason = "FailedPrepareDynamicResources"
        wait(text, lambda: any(one["reason"] == reason and text in one["message"] for one in self.node.events(uid)))

    def delete(self, *names: str) -> None:
        for name in names:
            self.node.api.call("DELETE", f"{PODS}/{name}")
        for name in names:
            wait(f"pod {name} is gone", lambda: self.gone(name))  # noqa: B023
            self.node.api.call("DELETE", f"{CLAIMS}/{name}")

    def gone(self, name: str) -> bool:
        try:
            self.node.get(name)
        except StatusError as error:
            return error.code == 404
        return False

    def held(self) -> set[str]:
        """Names of the claims that the driver has."""
        return {claim.name for claim in self.driver.driver.ledger.claims.values()}

    def listed(self) -> dict[str, frozenset[str]]:
        """UIDs of pods by that of the claim, as the kubelet has written down."""
        found = read_kubelet_claims(self.node.kubelet.folder / "dra_manager_state")
        assert found is not None
        return found

    def slices(self) -> set[str]:
        return {one["metadata"]["uid"] for one in self.node.api.call("GET", SLICES)["items"]}

    def cdi(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "cdi").iterdir())


@pytest.fixture(scope="module")
def place(programs: Programs) -> Iterator[Place]:
    with counting_node(programs) as (plane, node, folder):
        driver = DriverThread(folder / "agent", node, plane.kubeconfig("admin"))
        driver.start()
        wait("the driver is registered", lambda: driver.registered)
        yield Place(node, driver, folder / "agent")
        driver.stop()


@pytest.mark.slow
def test_the_driver_is_gone(place: Place) -> None:
    """Without driver a pod that starts is told so, one that ends waits, a claim deleted by force and made
    again waits for the old one, and after 30 s the slices are gone; a running container is left alone. When the driver
    is back all of that goes on by itself, and the slices are there again."""
    for name in ("stays", "ends", "forced"):
        place.run(name, 2)
    wait("slices", place.slices)
    prepared = len(place.driver.prepares)
    place.driver.stop()
    late = place.bound("late", 2)
    place.said(late, "DRA driver podslice.io is not registered")
    place.node.api.call("DELETE", f"{PODS}/ends")
    place.node.forget("forced")
    place.node.api.call("DELETE", f"{CLAIMS}/forced")
    again = place.bound("forced", 2)
    place.said(again, "DRA driver podslice.io is not registered")
    wait("the kubelet takes the slices away", lambda: not place.slices())
    assert not place.gone("ends")
    assert place.node.get("stays")["status"]["phase"] == "Running"
    place.driver.start()
    wait("the pod that ended is gone", lambda: place.gone("ends"))
    for name in ("late", "forced"):
        place.runs(name)
    wait("slices", place.slices)
    assert "stays" not in place.driver.prepares[prepared:]
    assert place.held() == {"stays", "late", "forced"}
    place.delete("stays", "late", "forced")
    place.node.api.call("DELETE", f"{CLAIMS}/ends")
    assert place.held() == set()


@pytest.mark.slow
def test_a_slow_answer(place: Place) -> None:
    """After 45 s the kubelet gives a call up, and asks again: the claim is prepared once."""
    place.driver.hangs.set()
    uid = place.bound("slow", 4)
    place.said(uid, "DeadlineExceeded")
    place.driver.hangs.clear()
    place.runs("slow")
    assert place.held() == {"slow"}
    place.delete("slow")
    assert place.held() == set()


@pytest.mark.slow
def test_a_life(place: Place) -> None:
    """Prepared before the sandbox is there, told to the runtime by its CDI name, in the kubelet's list, and given back
    before the pod is gone."""
    uid = place.run("life", 4)
    assert (place.driver.prepares[-1], place.driver.sandboxes[-1]) == ("life", 0)
    (claim,) = place.driver.driver.ledger.claims.values()
    (container,) = place.node.runtime.of_pod(uid)
    assert f"podslice.io/claim={claim.uid}-0".encode() in container.config.SerializeToString()
    assert read_kubelet_claims(place.node.kubelet.folder / "dra_manager_state") == {claim.uid: frozenset({uid})}
    assert place.cdi() == [f"podslice.io-claim_{claim.uid}.json"]
    place.delete("life")
    assert (place.held(), place.cdi()) == (set(), [])


@pytest.mark.slow
def test_refused_until_there_is_room(place: Place) -> None:
    """A claim that cannot be prepared is said in an event of the pod, which waits without a sandbox and is no failed
    one; it runs as soon as there is room. So are CPUs not given twice that a scheduler gave twice."""
    place.run("first", 6)
    uid = place.bound("second", 4)
    place.said(uid, "wants 4 CPUs on NUMA node 1, where 2 of 8 for claims are free")
    assert place.node.get("second")["status"]["phase"] == "Pending"
    assert uid not in {one.uid for one in place.node.runtime.sandboxes.values()}
    place.delete("first")
    place.runs("second")
    place.delete("second")


@pytest.mark.slow
def test_refused_and_deleted(place: Place) -> None:
    """A pod whose claim could not be prepared goes when it is deleted: the kubelet has the claim given back that it had
    written down, and forgets it."""
    place.run("first", 6)
    uid = place.bound("second", 4)
    place.said(uid, "wants 4 CPUs on NUMA node 1, where 2 of 8 for claims are free")
    (listed,) = {one for one, pods in place.listed().items() if uid in pods}
    place.delete("second")
    assert listed not in place.listed()
    assert place.held() == {"first"}
    place.delete("first")


@pytest.mark.slow
def test_the_last_pod_gives_back(place: Place) -> None:
    """A second pod that may use a claim which is prepared does so without a call, and the claim is given back with the
    last of them only."""
    first = place.run("first", 2)
    asked = len(place.driver.prepares)
    second = place.pod("second", "first")
    reserved = [{"resource": "pods", "name": name, "uid": uid} for name, uid in (("first", first), ("second", second))]
    place.node.api.call("PATCH", f"{CLAIMS}/first/status", {"status": {"reservedFor": reserved}}, MERGE)
    place.bind("second")
    place.runs("second")
    assert len(place.driver.prepares) == asked
    assert set(place.listed().values()) == {frozenset({first, second})}
    place.node.api.call("DELETE", f"{PODS}/first")
    wait("the first pod is gone", lambda: place.gone("first"))
    assert place.held() == {"first"}
    place.node.api.call("DELETE", f"{PODS}/second")
    wait("the second pod is gone", lambda: place.gone("second"))
    assert (place.held(), place.listed()) == (set(), {})
    place.node.api.call("DELETE", f"{CLAIMS}/first")


@pytest.mark.slow
def test_not_reserved(place: Place) -> None:
    """The kubelet does not even ask for a claim that is not reserved for the pod."""
    uid = place.pod("stranger", "stranger")
    place.claim("stranger", 2, str(uuid.uuid4()))
    asked = len(place.driver.prepares)
    place.bind("stranger")
    place.said(uid, "is not allowed to use ResourceClaim")
    assert len(place.driver.prepares) == asked
    place.delete("stranger")


@pytest.mark.slow
def test_kubelet_and_node_restart(place: Place) -> None:
    """A kubelet that starts takes all slices away, and they come back; pods that run are not prepared again. After a
    reboot they are, with the same CDI names, and the files that were lost are there again."""
    uid = place.run("over", 4)
    (claim,) = place.driver.driver.ledger.claims.values()
    before, asked = place.slices(), len(place.driver.prepares)
    assert before
    place.node.kubelet.stop(kill=True)
    place.node.kubelet.start(CONFIG)
    wait("other slices", lambda: place.slices() - before)
    place.node.kubelet.keep_house()
    assert len(place.driver.prepares) == asked
    place.node.kubelet.stop(kill=True)
    place.driver.stop()
    place.node.runtime.sandboxes.clear()
    place.node.runtime.containers.clear()
    for path in (place.folder / "cdi").iterdir():
        path.unlink()
    place.driver.start()
    place.node.kubelet.start(CONFIG)
    wait("the pod has a container again", lambda: place.node.runtime.of_pod(uid))
    assert place.driver.prepares[asked:] == ["over"] * len(place.driver.prepares[asked:])
    assert len(place.driver.prepares) > asked
    (container, *_) = place.node.runtime.of_pod(uid)
    assert f"podslice.io/claim={claim.uid}-0".encode() in container.config.SerializeToString()
    assert place.cdi() == [f"podslice.io-claim_{claim.uid}.json"]
    place.delete("over")
    assert place.held() == set()


@pytest.mark.slow
def test_versions(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kubelet that knows no service of ours says which it knows; one that knows the older one takes that."""
    for versions, known in ((("v9.DRAPlugin",), False), (("v1beta1.DRAPlugin",), True)):
        place.driver.stop()
        with monkeypatch.context() as patch:
            patch.setattr(service, "SERVICES", versions)
            place.driver.start()
            if known:
                wait("registered", lambda: place.driver.registered)
                place.run("older", 2)
                place.delete("older")
            else:
                wait(
                    "refused", lambda: "none of services supported by the plugin" in place.driver.driver.service.why_not
                )
    place.driver.stop()
    place.driver.start()
    wait("registered", lambda: place.driver.registered)


@pytest.mark.slow
def test_beside_another_driver(place: Place) -> None:
    """A claim with devices of two drivers: each prepares its own, and the container gets both."""
    kubelet = place.node.kubelet.folder
    other = OtherDriver(kubelet)
    try:
        wait("the other driver is registered", other.registered.is_set)
        uid = place.run("both", 2, GPU)
        (claim,) = place.driver.driver.ledger.claims.values()
        (container,) = place.node.runtime.of_pod(uid)
        told = container.config.SerializeToString()
        assert f"podslice.io/claim={claim.uid}-0".encode() in told
        assert b"gpu.example.com/gpu=0" in told
        assert [device.request for device in claim.devices] == ["cpus"]
        place.delete("both")
        assert other.calls == ["Prepare", "Unprepare"]
    finally:
        other.stop()


@pytest.mark.slow
def test_counted_at_admission(place: Place) -> None:
    """With the gate the kubelet's own admission counts what the scheduler has written for claims: a pod whose requests
    fit, and not with its claim, is out of CPUs."""
    uid = place.pod("counted", "counted", cpu="8")
    place.claim("counted", 4, uid)
    said = {"resourceClaimName": "counted", "containers": ["c"], "resources": {"cpu": "9"}}
    status = {"status": {"nodeAllocatableResourceClaimStatuses": [said]}}
    place.node.api.call("PATCH", f"{PODS}/counted/status", status, MERGE)
    asked = len(place.driver.prepares)
    place.bind("counted")
    wait("the pod is refused", lambda: place.node.get("counted")["status"].get("reason") == "OutOfcpu")
    assert len(place.driver.prepares) == asked
    place.delete("counted")


class OtherDriver:
    """A driver of another vendor that prepares whatever it is asked for."""

    def __init__(self, kubelet: Path) -> None:
        self.calls: list[str] = []
        self.registered = threading.Event()
        self._paths = [kubelet / "plugins" / GPU / "dra.sock", kubelet / "plugins_registry" / f"{GPU}-reg.sock"]
        methods = {
            "NodePrepareResources": _adapt(self._prepare, api.NodePrepareResourcesRequest),
            "NodeUnprepareResources": _adapt(self._unprepare, api.NodeUnprepareResourcesRequest),
        }
        told = {
            "GetInfo": _adapt(self._info, api.InfoRequest),
            "NotifyRegistrationStatus": _adapt(self._notified, api.RegistrationStatus),
        }
        self._servers = []
        for path, name, handlers in zip(
            self._paths,
            ("k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin", service.REGISTRATION),
            (methods, told),
            strict=True,
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            server = grpc.server(ThreadPoolExecutor(2))
            server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
            server.add_insecure_port(f"unix://{path}")
            server.start()
            self._servers.append(server)

    def stop(self) -> None:
        self._paths[1].unlink(missing_ok=True)
        for server in self._servers:
            server.stop(None).wait()

    def _info(self, request: Any) -> Any:
        return api.PluginInfo(
            type="DRAPlugin", name=GPU, endpoint=str(self._paths[0]), supported_versions=["v1.DRAPlugin"]
        )

    def _notified(self, request: Any) -> Any:
        if request.plugin_registered:
            self.registered.set()
        return api.RegistrationStatusResponse()

    def _prepare(self, request: Any) -> Any:
        self.calls.append("Prepare")
        device = api.Device(request_names=["r0"], pool_name=NODE, device_name="d", cdi_device_ids=[f"{GPU}/gpu=0"])
        done = api.NodePrepareResourceResponse(devices=[device])
        return api.NodePrepareResourcesResponse(claims={one.uid: done for one in request.claims})

    def _unprepare(self, request: Any) -> Any:
        self.calls.append("Unprepare")
        done = api.NodeUnprepareResourceResponse()
        return api.NodeUnprepareResourcesResponse(claims={one.uid: done for one in request.claims})


def _adapt(answer: Callable[[Any], Any], kind: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        lambda request, context: answer(request),
        request_deserializer=kind.FromString,
        response_serializer=lambda message: message.SerializeToString(),
    )


def test_the_kubelets_list(tmp_path: Path) -> None:
    """A file that is not a checkpoint is unknown, which differs from a kubelet without claims."""
    path = tmp_path / "dra_manager_state"
    assert read_kubelet_claims(path) is None
    path.write_text(json.dumps({"Data": json.dumps({"ClaimInfoStateList": None}), "Checksum": 1}))
    assert read_kubelet_claims(path) == {}
