"""Start time and memory of `podslice cluster`: all nodes, their NodeStates and all pods are listed.

    python -m benchmarks.cluster_start --nodes 15000

Every node is in a state of its own, with some 16 pods on 96 CPUs (`benchmarks.cluster`). Objects are drawn first, into
a folder (`--folder` keeps it for the next time). Then the command itself runs, as in a pod: with a service account, TLS
to an API server that lists what is in the folder (`benchmarks.listed_cluster`), and the listener of journals. Once it
is ready and all nodes are proven, and five seconds later at rest, it prints what the kernel reports of the process:
processor seconds, resident memory (VmRSS), the most it ever was (VmHWM), and how much of it is not a page of a file.

`--loop` starts the parts of the service in this process instead, and says the longest that one callback kept the event
loop. `--no-pods` lists none, so that what nodes take and what pods take can be distinguished.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec
from e2e.certificates import Certificates, make

from benchmarks.drawn_cluster import VERSION, draw
from benchmarks.listed_cluster import ListedObjects
from podslice.cluster.apiclient import PAGE, ObjectData, ObjectPage
from podslice.cluster.journal.journals import Journals
from podslice.cluster.service import ClusterService, Listening, ServiceSettings
from podslice.cluster.wiring import wire
from podslice.replica.rulebook import Rulebook
from podslice.service.answers import ObjectChange

_REST_SECONDS = 5.0
_LONGEST_SECONDS = 900.0
_START = """import pathlib, sys
import podslice.service.podaccess as podaccess
podaccess.SERVICE_ACCOUNT = pathlib.Path(sys.argv.pop(1))
from podslice.entry import main
main()"""
"""The command itself, with the pod's files in another place."""


class Used(NamedTuple):
    """Resources of a process as the kernel reports them: processor seconds; resident KiB, their maximum, and those that
    are not pages of files."""

    seconds: float
    resident: int
    most: int
    own: int

    @classmethod
    def of(cls, pid: int) -> Used:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        said = dict(re.findall(r"(?m)^(\w+):\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text()))
        seconds = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        return cls(seconds, int(said["VmRSS"]), int(said["VmHWM"]), int(said["RssAnon"]))

    def __str__(self) -> str:
        resident, most, own = (one * 1024 / 1e6 for one in self[1:])
        return (
            f"{self.seconds:.1f} s of a processor, {resident:.1f} MB resident ({own:.1f} its own), at most {most:.1f}"
        )


def in_a_pod(folder: Path, *, pods: bool) -> Iterator[str]:
    """Yield the figures of the command, a line for each part."""
    nodes = sum(1 for _ in (folder / "states").open("rb"))
    with tempfile.TemporaryDirectory() as made:
        certificates = make(Path(made))
        account = Path(made) / "serviceaccount"
        account.mkdir()
        (account / "token").write_text("token")
        (account / "ca.crt").write_bytes(certificates.authority.read_bytes())
        with _serve_lists(folder, Path(made), pods=pods) as port, _command(account, port, certificates) as (pid, url):
            began = time.monotonic()
            yield f"before it knows of any node: {Used.of(pid)}"
            while not _is_ready(url, nodes):
                if time.monotonic() - began > _LONGEST_SECONDS:
                    raise TimeoutError(f"not all nodes are proven after {_LONGEST_SECONDS:.0f} s")
                time.sleep(0.5)
            yield f"ready after {time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.0f}: {Used.of(pid)}"
            time.sleep(_REST_SECONDS)
            yield f"at rest: {Used.of(pid)}"


@contextmanager
def _serve_lists(folder: Path, certificates: Path, *, pods: bool) -> Iterator[int]:
    """Run an API server in a process of its own, and yield its port."""
    command = [sys.executable, "-m", "benchmarks.listed_cluster", str(folder), str(certificates)]
    server = subprocess.Popen([*command, *["--no-pods"] * (not pods)], stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    try:
        yield int(server.stdout.readline())
    finally:
        server.kill()
        server.wait()


@contextmanager
def _command(account: Path, port: int, certificates: Certificates) -> Iterator[tuple[int, str]]:
    """Run the command, and once it listens yield its process and the URL of its metrics."""
    options = ["--address", "127.0.0.1:0", "--metrics-address", "127.0.0.1:0", "--journal-address", "127.0.0.1:0",
               "--tls-cert", str(certificates.certificate), "--tls-key", str(certificates.key),
               "--compatible", VERSION]  # fmt: skip
    environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(port)}
    service = subprocess.Popen(
        [sys.executable, "-c", _START, str(account), "cluster", *options],
        env=os.environ | environment,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert service.stderr is not None
    try:
        said = service.stderr.readline()
        yield service.pid, f"http://127.0.0.1:{msgspec.json.decode(said)['metrics']}"
    finally:
        service.terminate()
        service.communicate()


def _is_ready(url: str, nodes: int) -> bool:
    """Whether all lists are read and all nodes proven."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        proven = re.search(rb"(?m)^podslice_cluster_nodes_proven (\S+)", answer.read())
    if proven is None or float(proven[1]) < nodes:
        return False
    try:
        with urllib.request.urlopen(f"{url}/readyz", timeout=60):
            return True
    except urllib.error.HTTPError:
        return False


class PagesOfFiles:
    """The same API server without a connection."""

    def __init__(self, folder: Path, nodes: int, *, pods: bool) -> None:
        self._objects = ListedObjects(folder, nodes, pods=pods)

    async def page(self, path: str, selector: str, more: str) -> ObjectPage:
        """Return the next objects, each made in its own turn of the loop."""
        items: list[ObjectData] = []
        while len(items) < PAGE:
            made, more = self._objects.page(path, 1, more)
            items += made
            if not more:
                break
            await asyncio.sleep(0)
        return ObjectPage(items, "1", more)

    async def watch(self, path: str, selector: str, version: str) -> AsyncIterator[ObjectChange]:
        """Report no changes."""
        await asyncio.sleep(3600)
        yield ObjectChange("BOOKMARK", msgspec.Raw(b"{}"), version)

    async def remove_node_state(self, node: str) -> None:
        """Do nothing: every node exists."""
        raise AssertionError(node)


def on_a_loop(folder: Path, *, pods: bool) -> Iterator[str]:
    """Yield the longest time that one callback kept the event loop."""
    longest = 0.0
    run = asyncio.Handle._run

    def time_handle(handle: asyncio.Handle) -> None:
        nonlocal longest
        since = time.thread_time()
        run(handle)
        longest = max(longest, time.thread_time() - since)

    asyncio.Handle._run = time_handle  # type: ignore[method-assign, assignment]
    nodes = sum(1 for _ in (folder / "states").open("rb"))
    placing = asyncio.run(_start_service(folder, nodes, pods=pods)).placing
    proven = sum(one.proven for one in placing.replicas.values())
    yield f"nodes {len(placing.places.nodes)}, proven {proven}, pods {len(placing.pods)}"
    yield f"longest turn of the event loop: {1000 * longest:.1f} ms of a processor"


async def _start_service(folder: Path, nodes: int, *, pods: bool) -> ClusterService:
    async def anonymous(token: str) -> str:
        return token

    api = PagesOfFiles(folder, nodes, pods=pods)
    said: list[str] = []
    journals = Journals(
        Rulebook(), {VERSION}, caller=anonymous, trouble=lambda where, what: said.append(f"{where}: {what}")
    )
    service = wire(
        api, journals, ServiceSettings(), trouble=lambda where, what: said.append(f"{where}: {what}"),  # type: ignore[arg-type]
        disputed=said.append, seeded=journals,  # type: ignore[arg-type]
    )  # fmt: skip
    assert service.states is not None
    await service.start(Listening(port=0))
    while not (service.nodes.ready and service.pods.ready and service.states.ready):
        await asyncio.sleep(0.05)
    assert not said, said[0]
    await service.stop()
    return service


def main() -> int:
    """Draw, then start."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.cluster_start", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("--nodes", type=int, default=15_000)
    parser.add_argument("--folder", type=Path, help="where the objects are, or will be")
    parser.add_argument("--loop", action="store_true", help="in this process, for the longest turn of its event loop")
    parser.add_argument("--no-pods", action="store_true", help="list nodes and NodeStates only")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as empty:
        folder = arguments.folder or Path(empty)
        if not (folder / "pods").exists():
            folder.mkdir(exist_ok=True)
            draw(folder, arguments.nodes)
        for line in (on_a_loop if arguments.loop else in_a_pod)(folder, pods=not arguments.no_pods):
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
