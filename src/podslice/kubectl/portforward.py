"""One request to a port of a pod, through the API server and the kubelet, as `kubectl port-forward` makes it.

The frames are those of `v4.channel.k8s.io`: the first byte is the channel, data 0 and errors 1 for the first port; each
begins with the port's number.
"""

from __future__ import annotations

import io
from http.client import HTTPException, HTTPResponse

from podslice.kubectl.client import Cluster
from podslice.kubectl.connection import ClusterError
from podslice.kubectl.reply import Reply, read_reply
from podslice.kubectl.websocket import WebSocket

_PROTOCOL = "v4.channel.k8s.io"
_DATA, _ERROR = 0, 1
_REMEDY = "does it run, and does it listen (statusAddress, --page-address)? see kubectl logs"


def forward_request(
    cluster: Cluster, pod: str, port: int, target: str, headers: dict[str, str], *, body: bytes | None = None
) -> Reply:
    """Send a GET of `target`, or a POST with a body, to a port on the loopback of a pod, and return the answer. `pod`
    is the pod's path in the API. Raises `ClusterError`."""
    channel = cluster.upgrade(f"{pod}/portforward", {"ports": str(port)}, _PROTOCOL)
    try:
        method = "GET" if body is None else "POST"
        # One request per connection, so that the end of the answer needs no framing.
        lines = [f"{method} {target} HTTP/1.1", f"Host: localhost:{port}", "Connection: close"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        lines += [] if body is None else [f"Content-Length: {len(body)}"]
        channel.send(bytes([_DATA]) + "\r\n".join((*lines, "", "")).encode() + (body or b""))
        response = HTTPResponse(_Wire(channel, pod))  # type: ignore[arg-type]
        response.begin()
        return read_reply(response)
    except (HTTPException, OSError) as error:
        raise ClusterError(f"{pod}: port {port} is not forwarded: {error or 'no answer'}", remedy=_REMEDY) from None
    finally:
        channel.close()


class _Wire:
    """The data channel as the socket that `HTTPResponse` reads from."""

    def __init__(self, channel: WebSocket, pod: str) -> None:
        self._channel = _Channel(channel, pod)

    def makefile(self, mode: str) -> io.BufferedReader:
        return io.BufferedReader(self._channel)


class _Channel(io.RawIOBase):
    def __init__(self, channel: WebSocket, pod: str) -> None:
        self._socket = channel
        self._pod = pod
        self._rest = b""
        self._begun: set[int] = set()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        while not self._rest:
            message = self._socket.receive()
            if message is None:
                return 0
            self._take(message)
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def _take(self, message: bytes) -> None:
        channel, data = message[0] if message else _DATA, message[1:]
        # The first message of each channel begins with the number of the port, two bytes.
        if channel not in self._begun:
            self._begun.add(channel)
            data = data[2:]
        if channel == _DATA:
            self._rest += data
        elif channel == _ERROR and data:
            raise HTTPException(" ".join(data.decode("utf-8", "replace").split()))
