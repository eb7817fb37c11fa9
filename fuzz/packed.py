"""Targets for packed data and for the other side of a connection: outcomes and checkpoints of fleet runs, states of
nodes, CEL selectors, answers of HTTP servers."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import tempfile
import zlib
from pathlib import Path

from podslice import PodsliceError
from podslice.api.pod.spec import from_dict
from podslice.dra.allocation.pools import make_device
from podslice.dra.cel import CELSelectors
from podslice.dra.objects import SliceDevice
from podslice.fleet.scenario.codec import DamagedError, decode
from podslice.fleet.workers.checkpoint_file import CheckpointFile
from podslice.reading.unpacking import unpack
from podslice.replica.state_packing import PackedState, unpack_state
from podslice.service.http.leanhttp import LeanClient

_SMALL = 1 << 20
_IDENTITY = "fuzz"


def outcome(data: bytes) -> None:
    """The outcome of a cell, as it is and as what is packed in one."""
    for packed in (data, zlib.compress(data)):
        with contextlib.suppress(DamagedError):
            decode(packed)


def checkpoint(data: bytes) -> None:
    """A checkpoint of a run: anything, and a body behind a head that is right."""
    with tempfile.TemporaryDirectory(prefix="podslice-fuzz-") as folder:
        path = Path(folder, "cell.ckpt")
        file = CheckpointFile(path, _IDENTITY)
        about = {**file._about, "sha256": hashlib.sha256(data).hexdigest()}
        for content in (data, json.dumps(about, sort_keys=True).encode() + b"\n" + data):
            path.write_bytes(content)
            file.load()


def packed(data: bytes) -> None:
    """A packed state of a replica that is damaged, and bytes that are unpacked with a bound."""
    with contextlib.suppress(PodsliceError):
        unpack_state(PackedState(data))
    for bytes_ in (data, zlib.compress(data * 64)):
        with contextlib.suppress(PodsliceError):
            assert len(unpack(bytes_, _SMALL)) <= _SMALL


_DEVICE = make_device("d", "p", from_dict({"name": "n"}, SliceDevice))


def cel(data: bytes) -> None:
    """A selector of devices, checked and asked about one."""
    text = data.decode(errors="replace")
    with contextlib.suppress(PodsliceError):
        selectors = CELSelectors()
        selectors.check(text)
        selectors.matches(text, _DEVICE)


def answer(data: bytes) -> None:
    """Send bytes in place of a server's answer."""
    asyncio.run(_ask(data))


async def _ask(data: bytes) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(data)
            await writer.drain()
        writer.close()

    async def nobody(again: bool) -> str:  # noqa: FBT001 - what a client calls
        return ""

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        client = LeanClient(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", None, nobody)
        with contextlib.suppress(OSError, PodsliceError, TimeoutError):
            await client.call("GET", "/x", timeout=2)
        await client.close()


PACKED = {"answer": answer, "cel": cel, "checkpoint": checkpoint, "outcome": outcome, "packed": packed}
