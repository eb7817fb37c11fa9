"""How long `podslice cluster` takes to start and what it weighs: all nodes, their NodeStates and all pods are listed.

    python -m benchmarks.cluster_start --nodes 15000

Every node is in a state of its own, with some 16 pods on 96 CPUs (`benchmarks.cluster`). Objects are drawn first, into
a folder (`--folder` keeps it for the next time). Another process then starts the service's parts with an API server
that reads them from there page by page, and says what that took: processor seconds, the longest that one callback kept
the event loop, and resident memory before and after, with the share of it that is no page of a program's file, which
processes share. Everything that the command imports is there. `--no-pods` lists none, so that what nodes take and what
pods take can be told apart.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from podslice.cluster.apiclient import NODES, PAGE, PODS, ObjectChange, ObjectPage
from podslice.cluster.journals import Journals
from podslice.cluster.nodestates import node_states
from podslice.cluster.service import ClusterService, Listening
from podslice.core.cluster.rulebook import Rulebook
from podslice.k8s.nodestate import NODE_STATES

VERSION = "0.1.0"
_MIB = 1 << 20


class PagesOfFiles:
    """An API server that has what is in a folder, and nothing new ever."""

    def __init__(self, folder: Path, nodes: int, *, pods: bool) -> None:
        self._lines = {
            NODES: map(_node, range(nodes)),
            NODE_STATES: iter((folder / "states").open("rb")),
            PODS: map(_pod, (folder / "pods").open() if pods else ()),
        }

    async def page(self, path: str, selector: str, more: str) -> ObjectPage:
        """The next objects."""
        items = []
        for _, line in zip(range(PAGE), self._lines[path], strict=False):
            items.append(bytearray(line))
            await asyncio.sleep(0)
        return ObjectPage(items, "1", f"{int(more or 0) + 1}" if len(items) == PAGE else "")

    async def watch(self, path: str, selector: str, version: str) -> AsyncIterator[ObjectChange]:
        """Nothing."""
        await asyncio.sleep(3600)
        yield ObjectChange("BOOKMARK", msgspec.Raw(b"{}"), version)


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


class Resident(NamedTuple):
    """MiB of this process: all, and what is its own."""

    all: float
    own: float

    @classmethod
    def now(cls) -> Resident:
        _, pages, of_files, *_ = map(int, Path("/proc/self/statm").read_text().split())
        size = os.sysconf("SC_PAGE_SIZE") / _MIB
        return cls(pages * size, (pages - of_files) * size)

    def __str__(self) -> str:
        return f"{self.all:.0f} ({self.own:.0f} its own)"


def steps(folder: Path, nodes: int, *, pods: bool) -> Iterator[str]:
    """What a start takes, a line for each part of it."""
    importlib.import_module("podslice.cluster.running")
    before, began, longest = Resident.now(), time.process_time(), 0.0
    run = asyncio.Handle._run

    def timed(handle: asyncio.Handle) -> None:
        nonlocal longest
        since = time.thread_time()
        run(handle)
        longest = max(longest, time.thread_time() - since)

    asyncio.Handle._run = timed  # type: ignore[method-assign, assignment]
    service = asyncio.run(_started(folder, nodes, pods=pods))
    gc.collect()
    placing = service.placing
    proven = sum(one.proven for one in placing.replicas.values())
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / _MIB
    yield f"nodes {len(placing.places.nodes)}, proven {proven}, pods {len(placing.pods)}"
    yield f"processor seconds {time.process_time() - began:.1f}"
    yield f"longest turn of the event loop: {1000 * longest:.1f} ms of a processor"
    yield f"MiB before {before}, after {Resident.now()}, at most {peak:.0f}"


async def _started(folder: Path, nodes: int, *, pods: bool) -> ClusterService:
    async def nobody(token: str) -> str:
        return token

    api = PagesOfFiles(folder, nodes, pods=pods)
    said: list[str] = []
    journals = Journals(
        Rulebook(), {VERSION}, caller=nobody, trouble=lambda where, what: said.append(f"{where}: {what}")
    )
    service = ClusterService(api, journals)  # type: ignore[arg-type]
    states = node_states(api, journals, trouble=lambda where, what: said.append(f"{where}: {what}"))  # type: ignore[arg-type]
    states.after, service.pods.after = (service.nodes,), (service.nodes, states)
    await service.start(Listening(port=0))
    listing = asyncio.ensure_future(states.run())
    while not (service.nodes.ready and service.pods.ready and states.ready):
        await asyncio.sleep(0.05)
    assert not said, said[0]
    listing.cancel()
    await service.stop()
    return service


def main() -> int:
    """Draw, then start in a process of its own."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster_start", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--nodes", type=int, default=15_000)
    parser.add_argument("--folder", type=Path, help="where the objects are, or will be")
    parser.add_argument("--measure", action="store_true", help="only start, on what is in the folder")
    parser.add_argument("--no-pods", action="store_true", help="list nodes and NodeStates only")
    told = parser.parse_args()
    if told.measure:
        for line in steps(told.folder, told.nodes, pods=not told.no_pods):
            print(line, flush=True)
        return 0
    with tempfile.TemporaryDirectory() as empty:
        folder = told.folder or Path(empty)
        if not (folder / "pods").exists():
            folder.mkdir(exist_ok=True)
            from benchmarks.drawn_cluster import draw

            draw(folder, told.nodes)
        command = [
            sys.executable,
            "-m",
            "benchmarks.cluster_start",
            "--nodes",
            str(told.nodes),
            "--folder",
            str(folder),
        ]
        return subprocess.run([*command, "--measure", *["--no-pods"] * told.no_pods], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
