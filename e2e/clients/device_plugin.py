"""A device plugin as vendors write them, in the guest. Its devices are those of a JSON file that may change:

    {"devices": [{"id": "d0", "numa": 0, "health": "Healthy"}], "fail": "ListAndWatch"}

`numa` null is a device without topology; `fail` names a call that ends with an error. The plugin registers again when
the registration socket was made anew.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc

from podslice.service.proto import deviceplugin_pb2 as api

_RESOURCE, _ENDPOINT = "example.com/device", "example.sock"


class Plugin:
    """Serves one resource."""

    def __init__(self, folder: Path, file: Path) -> None:
        self._folder = folder
        self._file = file
        self._server: Any = None

    def _serve(self) -> None:
        """Listen on a new socket: the kubelet, and so the agent, removes all when it starts."""
        if self._server is not None:
            self._server.stop(None)
        self._server = grpc.server(futures.ThreadPoolExecutor(8))
        methods: dict[str, Any] = {
            name: grpc.unary_unary_rpc_method_handler(
                function, request_deserializer=kind.FromString, response_serializer=lambda m: m.SerializeToString()
            )
            for name, function, kind in (
                ("GetDevicePluginOptions", self._options, api.Empty),
                ("Allocate", self._allocate, api.AllocateRequest),
            )
        }
        methods["ListAndWatch"] = grpc.unary_stream_rpc_method_handler(
            self._list, request_deserializer=api.Empty.FromString, response_serializer=lambda m: m.SerializeToString()
        )
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("v1beta1.DevicePlugin", methods),))
        (self._folder / _ENDPOINT).unlink(missing_ok=True)
        self._server.add_insecure_port(f"unix://{self._folder / _ENDPOINT}")
        self._server.start()

    def _read_state(self, call: str, context: Any) -> dict[str, Any]:
        wanted: dict[str, Any] = json.loads(self._file.read_text())
        if wanted.get("fail") == call:
            context.abort(grpc.StatusCode.INTERNAL, f"{call} fails")
        return wanted

    def _options(self, request: Any, context: Any) -> Any:
        self._read_state("GetDevicePluginOptions", context)
        return api.DevicePluginOptions()

    def _list(self, request: Any, context: Any) -> Iterator[Any]:
        sent = None
        while context.is_active():
            devices = self._read_state("ListAndWatch", context)["devices"]
            if devices != sent:
                sent = devices
                yield api.ListAndWatchResponse(devices=[_device(one) for one in devices])
            time.sleep(0.1)

    def _allocate(self, request: Any, context: Any) -> Any:
        self._read_state("Allocate", context)
        answer = api.AllocateResponse()
        for one in request.container_requests:
            answer.container_responses.add().envs["EXAMPLE_DEVICES"] = ",".join(sorted(one.devices_ids))
        return answer

    def register(self) -> None:
        """Stay registered."""
        known = None
        socket = self._folder / "kubelet.sock"
        while True:
            try:
                found = os.stat(socket)
                if (found.st_ino, found.st_ctime_ns) != known:
                    self._serve()
                    self._register(socket)
                    known = (found.st_ino, found.st_ctime_ns)
            except (OSError, grpc.RpcError) as error:
                print(error, flush=True)
            time.sleep(0.2)

    def _register(self, socket: Path) -> None:
        with grpc.insecure_channel(f"unix://{socket}") as channel:
            call = channel.unary_unary(
                "/v1beta1.Registration/Register",
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=api.Empty.FromString,
            )
            call(api.RegisterRequest(version="v1beta1", endpoint=_ENDPOINT, resource_name=_RESOURCE), timeout=10)


def _device(wanted: dict[str, Any]) -> api.Device:
    device = api.Device(ID=wanted["id"], health=wanted.get("health", "Healthy"))
    if wanted["numa"] is not None:
        device.topology.nodes.add(ID=wanted["numa"])
    return device


if __name__ == "__main__":
    Plugin(Path(sys.argv[1]), Path(sys.argv[2])).register()
