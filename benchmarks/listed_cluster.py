"""An API server over HTTPS, for one client, with the objects in a folder of `drawn_cluster`, which never change.

    python -m benchmarks.listed_cluster FOLDER CERTIFICATES     # prints its port, serves until it is ended

It answers lists in pages, holds watches open and hangs up on everything else. Objects are made as they are asked for,
each list once from its beginning, so nothing of a large cluster is here all at once either.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec
from e2e.certificates import Certificates

from podslice.cluster.apiclient import NODES, PODS
from podslice.replica.nodestate import NODE_STATES


class ListedObjects:
    """Objects by path, a line of JSON each; a list requested without a token starts from the beginning."""

    def __init__(self, folder: Path, nodes: int, *, pods: bool) -> None:
        self._folder, self._nodes, self._pods = folder, nodes, pods
        self._lists: dict[str, Iterator[bytes]] = {}

    def page(self, path: str, limit: int, more: str) -> tuple[list[bytes], str]:
        """Return the next objects of a list, and the token of those after them."""
        if not more or path not in self._lists:
            self._lists[path] = self._objects(path)
        items = list(islice(self._lists[path], limit))
        return items, str(int(more or 0) + 1) if len(items) == limit else ""

    def _objects(self, path: str) -> Iterator[bytes]:
        if path == NODES:
            yield from map(_node, range(self._nodes))
        elif path == NODE_STATES:
            with (self._folder / "states").open("rb") as states:
                yield from map(bytes.rstrip, states)
        elif path == PODS and self._pods:
            with (self._folder / "pods").open() as pods:
                yield from map(_pod, pods)


def _node(number: int) -> bytes:
    name = f"node-{number:05}.example.internal"
    labels = {
        "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
        "node.kubernetes.io/instance-type": "m7i.metal", "topology.kubernetes.io/region": "eu-1",
        "topology.kubernetes.io/zone": f"eu-1{'abc'[number % 3]}", "example.com/pool": f"pool-{number % 40}",
        "example.com/rack": f"rack-{number // 32}", "beta.kubernetes.io/os": "linux",
    }  # fmt: skip
    amounts = {"cpu": "96", "memory": "402653184Ki", "pods": "250", "ephemeral-storage": "1843000Mi"}
    images = [{"names": [f"registry.example.com/team/image-{one}:v1.{one}"], "sizeBytes": 1 << 26} for one in range(40)]
    status = {"allocatable": amounts, "capacity": amounts, "images": images}
    return msgspec.json.encode({"metadata": {"name": name, "labels": labels}, "spec": {}, "status": status})


def _pod(line: str) -> bytes:
    uid, name, node, cpus = line.split()
    amounts = {"cpu": cpus, "memory": f"{3 * int(cpus)}Gi"}
    mounts = [{"name": "kube-api-access-x", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}]
    env = [{"name": f"SETTING_{one}", "value": "something-of-some-length"} for one in range(12)]
    container = {
        "name": "c", "image": "registry.example.com/team/image:v1", "env": env, "volumeMounts": mounts,
        "resources": {"requests": amounts, "limits": amounts},
    }  # fmt: skip
    metadata = {
        "name": name, "namespace": "default", "uid": uid, "resourceVersion": "123456789", "generation": 1,
        "creationTimestamp": "2026-11-01T10:00:00Z", "labels": {"app": "web", "pod-template-hash": uid[:8]},
        "annotations": {"example.com/checksum": uid * 2},
    }  # fmt: skip
    spec = {"nodeName": node, "schedulerName": "podslice", "containers": [container], "priority": 0}
    status = {"phase": "Running", "qosClass": "Guaranteed", "startTime": "2026-11-01T10:00:01Z"}
    return msgspec.json.encode({"metadata": metadata, "spec": spec, "status": status})


async def _answer(objects: ListedObjects, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.split("\r\n")[0].split(" ")
            asked = urlsplit(target)
            parameters = {name: values[0] for name, values in parse_qs(asked.query).items()}
            if method != "GET":
                return
            if "watch" in parameters:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
                await reader.read()
                return
            items, more = objects.page(asked.path, int(parameters["limit"]), parameters.get("continue", ""))
            listed = json.dumps({"resourceVersion": "1", "continue": more}).encode()
            body = b'{"kind":"List","metadata":' + listed + b',"items":[' + b",".join(items) + b"]}"
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
    except (asyncio.IncompleteReadError, ConnectionError):
        return
    finally:
        writer.close()


async def _serve(objects: ListedObjects, certificates: Certificates) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _answer(objects, reader, writer)

    server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=certificates.server())
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    made = Path(sys.argv[2])
    found = Certificates(made / "ca.crt", made / "tls.crt", made / "tls.key")
    nodes = sum(1 for _ in (Path(sys.argv[1]) / "states").open("rb"))
    asyncio.run(_serve(ListedObjects(Path(sys.argv[1]), nodes, pods="--no-pods" not in sys.argv), found))
