"""The driver's sockets: the services that the kubelet calls, and the registration (cluster-integration A.3).

The kubelet calls a driver as soon as it finds the registration socket, so the services listen before that exists, and
it is removed first when the agent stops. Running containers need neither.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Protocol

import grpc

from podslice.agent.dra.cdi import device_id
from podslice.agent.dra.claimledger import ClaimLedger
from podslice.agent.process.exclusive import SocketFile
from podslice.agent.status.local import owner_only
from podslice.dra.names import DRIVER
from podslice.dra.objects import ResourceClaim
from podslice.dra.prepared import ClaimError, ImpossibleClaimError, NodeDevices, PreparedClaim, prepare
from podslice.service.answers import ApiError
from podslice.service.proto import dra_pb2 as api
from podslice.service.unixgrpc import create_local_server
from podslice.values.errors import PodsliceError

REGISTRATION = "pluginregistration.Registration"
SERVICES = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
"""Names as registered, of which the kubelet takes the first that it knows; on the wire they have a package."""
_PACKAGE = "k8s.io.kubelet.pkg.apis.dra"
HEALTH = "v1alpha1.DRAResourceHealth"
HEALTH_SECONDS = 10.0
_HEALTH_LASTS = 30
_MOST = 1024
_LONGEST_MESSAGE = 1000


class ClaimReader(Protocol):
    """Reads claims. Raises `ApiError`."""

    async def read_claim(self, namespace: str, name: str) -> ResourceClaim | None: ...


class DRAService:
    """Answers the kubelet.

    `own`: returns the devices that can have been allocated to claims. `devices`: returns pool, name and problem of each
    device that is offered. `prepared`: gets the result (`prepared`, `refused`) and the seconds of every claim.
    `report_claim`: gets claims that were read, each with the error if it can never be prepared. `on_registered`: is
    called when a kubelet registers the driver; one that has just started may have deleted the slices."""

    def __init__(
        self,
        ledger: ClaimLedger,
        claims: ClaimReader,
        node: str,
        *,
        own: Callable[[], NodeDevices],
        devices: Callable[[], Iterable[tuple[str, str, str]]],
        trouble: Callable[[str, str], None],
        prepared: Callable[[str, float], None],
        report_claim: Callable[[ResourceClaim, ImpossibleClaimError | None], None],
        on_registered: Callable[[], None],
        now: Callable[[], float] = time.time,
    ) -> None:
        self.registered = False
        self.why_not = "the kubelet has not asked yet"
        self._on_registered = on_registered
        self._endpoint = ""
        self._ledger = ledger
        self._claims = claims
        self._node = node
        self._own = own
        self._devices = devices
        self._trouble = trouble
        self._prepared = prepared
        self._report_claim = report_claim
        self._now = now
        self._changed = asyncio.Event()
        self._servers: list[tuple[SocketFile, Any]] = []

    # Sockets

    async def start(self, plugins: Path, registry: Path) -> None:
        """Serve below `plugins`, then register in `registry`. Raises `OSError`."""
        endpoint = plugins / DRIVER / "dra.sock"
        methods: dict[str, tuple[Any, Any]] = {"NodePrepareResources": (self.prepare, api.NodePrepareResourcesRequest),
                   "NodeUnprepareResources": (self.unprepare, api.NodeUnprepareResourcesRequest)}  # fmt: skip
        services = {
            f"{_PACKAGE}.{name}": {one: _unary(*method) for one, method in methods.items()} for name in SERVICES
        }
        watch = grpc.unary_stream_rpc_method_handler(
            self.watch, request_deserializer=api.NodeWatchResourcesRequest.FromString, response_serializer=_bytes
        )
        # The services listen before the registration socket exists: the kubelet watches its folder and calls at once.
        await self._serve(endpoint, services | {HEALTH: {"NodeWatchResources": watch}})
        self._endpoint = str(endpoint)
        calls = {"GetInfo": _unary(self._info, api.InfoRequest),
                "NotifyRegistrationStatus": _unary(self._notify, api.RegistrationStatus)}  # fmt: skip
        await self._serve(registry / f"{DRIVER}-reg.sock", {REGISTRATION: calls})

    async def _serve(self, path: Path, services: dict[str, dict[str, Any]]) -> None:
        file = SocketFile(path)
        path.parent.mkdir(mode=0o750, parents=True, exist_ok=True)
        # A killed agent leaves its socket file behind, and binding to an existing one fails.
        file.clear()
        server = create_local_server()
        server.add_generic_rpc_handlers(
            tuple(grpc.method_handlers_generic_handler(name, methods) for name, methods in services.items())
        )
        with owner_only():
            # The mode of the file is set by the umask while it is bound; a chmod afterwards would leave a gap.
            server.add_insecure_port(f"unix://{path}")
        await server.start()
        file.bound()
        self._servers.append((file, server))

    async def close(self) -> None:
        """Stop serving, the registration first; calls in flight may end."""
        # Registration was served last and is removed first, so that the kubelet does not call sockets that are going.
        for file, server in reversed(self._servers):
            file.remove()
            with contextlib.suppress(Exception):
                await server.stop(1.0)
        self._servers.clear()
        self.registered = False

    async def _info(self, request: api.InfoRequest, context: Any) -> api.PluginInfo:
        versions = [*SERVICES, HEALTH]
        return api.PluginInfo(type="DRAPlugin", name=DRIVER, endpoint=self._endpoint, supported_versions=versions)

    async def _notify(self, request: api.RegistrationStatus, context: Any) -> api.RegistrationStatusResponse:
        self.registered = request.plugin_registered
        self.why_not = "" if self.registered else request.error[:_LONGEST_MESSAGE]
        if self.registered:
            self._on_registered()
        else:
            self._trouble("dra", f"the kubelet does not register the driver: {self.why_not}")
        return api.RegistrationStatusResponse()

    # Claims

    async def prepare(self, request: api.NodePrepareResourcesRequest, context: Any) -> api.NodePrepareResourcesResponse:
        """Prepare the claims of a request, at once. The answer must have every claim of the request."""
        asked = list(request.claims)[:_MOST]
        # The kubelet takes a claim without an answer for an error of the whole call, so errors are answers, too.
        answers = await asyncio.gather(*(self._prepare(one) for one in asked))
        return api.NodePrepareResourcesResponse(claims={one.uid: got for one, got in zip(asked, answers, strict=True)})

    async def _prepare(self, asked: api.Claim) -> api.NodePrepareResourceResponse:
        begin = time.perf_counter()
        answer = await self._try_to_prepare(asked)
        self._prepared("refused" if answer.error else "prepared", time.perf_counter() - begin)
        return answer

    async def _try_to_prepare(self, asked: api.Claim) -> api.NodePrepareResourceResponse:
        try:
            claim = await self._prepare_read(asked)
            return api.NodePrepareResourceResponse(devices=_devices(claim))
        except PodsliceError as error:
            return api.NodePrepareResourceResponse(error=self._fail(str(error)))
        except Exception as error:
            text = f"claim {asked.namespace}/{asked.name}: {type(error).__name__}: {str(error)[:200]}"
            return api.NodePrepareResourceResponse(error=self._fail(text))

    def _fail(self, text: str) -> str:
        self._trouble("claims", text)
        return text

    async def _prepare_read(self, asked: api.Claim) -> PreparedClaim:
        """Read a claim from the API server and prepare it; one that was prepared before needs no API server. Raises
        `ClaimError`."""
        who = f"claim {asked.namespace}/{asked.name}"
        known = self._ledger.claims.get(asked.uid)
        try:
            claim = await self._claims.read_claim(asked.namespace, asked.name)
        except ApiError as error:
            # The record has all that was allocated, and a repeated call must not fail because the API server is away.
            if known is not None:
                return self._ledger.prepare(known)
            raise ClaimError(f"{who} cannot be read: {error}") from None
        if claim is None:
            raise ClaimError(f"{who} is not there")
        # The kubelet does not say for which pod it calls; the claim may be reserved for several.
        users = () if known is None else known.pods
        try:
            wanted = prepare(claim, uid=asked.uid, node=self._node, devices=self._own(), users=users)
            prepared = self._ledger.prepare(wanted)
        except ImpossibleClaimError as error:
            self._report_claim(claim, error)
            raise
        self._report_claim(claim, None)
        return prepared

    async def unprepare(
        self, request: api.NodeUnprepareResourcesRequest, context: Any
    ) -> api.NodeUnprepareResourcesResponse:
        """Unprepare the claims of a request, without the API server."""
        answers = {one.uid: self._unprepare(one) for one in list(request.claims)[:_MOST]}
        return api.NodeUnprepareResourcesResponse(claims=answers)

    def _unprepare(self, asked: api.Claim) -> api.NodeUnprepareResourceResponse:
        try:
            self._ledger.unprepare(asked.uid)
            return api.NodeUnprepareResourceResponse()
        except Exception as error:
            return api.NodeUnprepareResourceResponse(error=self._fail(str(error)[:_LONGEST_MESSAGE]))

    # Health

    def look(self) -> None:
        """Send the health of the devices soon: something may have changed."""
        self._changed.set()

    async def watch(self, request: Any, context: Any) -> AsyncIterator[api.NodeWatchResourcesResponse]:
        """Yield the health of all devices at intervals: the kubelet forgets a device that is not repeated."""
        while True:
            # Before the answer is made: a change while it is sent then makes another one.
            self._changed.clear()
            yield self._health()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(HEALTH_SECONDS):
                    await self._changed.wait()

    def _health(self) -> api.NodeWatchResourcesResponse:
        return api.NodeWatchResourcesResponse(
            devices=[
                api.DeviceHealth(
                    device=api.DeviceIdentifier(pool_name=pool, device_name=device),
                    health=api.UNHEALTHY if problem else api.HEALTHY,
                    last_updated_time=int(self._now()),
                    health_check_timeout_seconds=_HEALTH_LASTS,
                    message=problem[:_LONGEST_MESSAGE],
                )
                for pool, device, problem in self._devices()
            ]
        )


def _devices(claim: PreparedClaim) -> list[api.Device]:
    return [
        api.Device(
            request_names=[device.request],
            pool_name=device.pool,
            device_name=device.device,
            cdi_device_ids=[device_id(claim.uid, index)],
            share_id=device.share_id,
        )
        for index, device in enumerate(claim.devices)
    ]


def _bytes(message: Any) -> bytes:
    data: bytes = message.SerializeToString()
    return data


def _unary(method: Callable[[Any, Any], Awaitable[Any]], kind: Any) -> Any:
    return grpc.unary_unary_rpc_method_handler(method, request_deserializer=kind.FromString, response_serializer=_bytes)
