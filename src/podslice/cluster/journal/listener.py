"""The gRPC server of the agents' streams: its address, its certificate, and limits of connections."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

from podslice.replica.stream_messages import FOLLOW, OPTIONS, SERVICE, encode_message
from podslice.service.http.access import check_free, listening_error
from podslice.values.errors import InputError

HELLO_SECONDS = 10.0
MOST_STREAMS = 20_000
"""Most streams at a time, with those that have not identified themselves; further ones are refused at once."""
MOST_STRANGERS = 64
"""Most streams of one address that have not identified themselves: each costs a review of its token."""
_OPTIONS = (
    *OPTIONS,
    # Else a second service could listen on the same address, and agents would reach either.
    ("grpc.so_reuseport", 0),
    # Both ends ping every ten seconds (`OPTIONS`), and gRPC hangs up on peers that ping more often than allowed: by
    # default that is every five minutes.
    ("grpc.http2.min_ping_interval_without_data_ms", 5_000),
    ("grpc.max_allowed_incoming_connections", MOST_STREAMS),
    ("grpc.max_concurrent_streams", MOST_STRANGERS),
    ("grpc.server_handshake_timeout_ms", int(HELLO_SECONDS * 1000)),
)


async def listen(
    follow: Callable[[Any, Any], Any], host: str, port: int, latest: Callable[[], tuple[bytes, bytes]]
) -> tuple[Any, int]:
    """Start a server that has `follow` serve streams; return it and its port. `latest` returns the certificate and the
    key of a new connection. Raises `InputError` for an unusable address or certificate."""
    server = grpc.aio.server(options=_OPTIONS, maximum_concurrent_rpcs=MOST_STREAMS)
    method = grpc.stream_stream_rpc_method_handler(
        follow, request_deserializer=bytes, response_serializer=encode_message
    )
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {FOLLOW: method}),))
    _check_free(host, port)
    try:
        bound = server.add_secure_port(f"{host}:{port}", _credentials(latest))
    except (RuntimeError, ValueError) as error:
        raise InputError(f"{host}:{port} cannot be served: {error}", path="--journal-address") from None
    await server.start()
    return server, int(bound)


def _check_free(host: str, port: int) -> None:
    """Raise `InputError` for an address that cannot be listened on: gRPC does not say why."""
    try:
        check_free(host, port)
    except OSError as error:
        raise listening_error(error, host, port, "--journal-address") from None


def _credentials(latest: Callable[[], tuple[bytes, bytes]]) -> Any:
    """Return the credentials of a server with the latest certificate and key; gRPC asks at each handshake, in a thread
    of its own."""
    used = [latest()]

    def renew() -> Any:
        """Return the configuration of a new pair, None where nothing changed."""
        pair = latest()
        if pair == used[0]:
            return None
        used[0] = pair
        return _configuration(*pair)

    return grpc.dynamic_ssl_server_credentials(_configuration(*used[0]), renew)


def _configuration(certificate: bytes, key: bytes) -> Any:
    return grpc.ssl_server_certificate_configuration([(key, certificate)])
