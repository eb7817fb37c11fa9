"""The API server that the tests share: who may do what, and that nothing is left of it."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path

import msgspec
from e2e.controlplane import Api, warning_text
from e2e.sharedplane import Cluster

from tests.clock import until

ROOT = Path(__file__).parents[2]
USE = """
import sys
from pathlib import Path
from e2e.sharedplane import shared_plane
with shared_plane(Path(sys.argv[1])) as cluster:
    print(cluster.port, flush=True)
    sys.stdin.read()
"""


def test_version_and_users(cluster: Cluster, admin: Api) -> None:
    """It is v1.36.2; the administrator may do everything, a node what a node may, a stranger nothing."""
    assert admin.call("GET", "/version")["gitVersion"].startswith("v1.36.2")
    assert admin.ask("GET", "/api/v1/secrets").code == 200
    with cluster.api("system:node:one") as node:
        assert node.ask("GET", "/api/v1/pods?fieldSelector=spec.nodeName%3Done").code == 200
        assert node.ask("GET", "/api/v1/secrets").code == 403
        for name, code in (("one", 201), ("other", 403)):
            made = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
            assert node.ask("POST", "/api/v1/nodes?dryRun=All", made).code == code
    with cluster.api(token="guessed") as stranger:
        assert stranger.ask("GET", "/api/v1/pods").code == 401


def test_shared_ends_with_its_last_user(cluster: Cluster, tmp_path: Path) -> None:
    """Two processes share one server; it survives the death of the one that started it and ends with the other."""

    def use() -> subprocess.Popen[str]:
        command = [sys.executable, "-c", USE, str(tmp_path)]
        return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    with use() as first:
        assert first.stdout is not None
        port = first.stdout.readline()
        with use() as second:
            assert second.stdout is not None
            assert second.stdout.readline() == port
            first.kill()
            first.wait()
            described = msgspec.json.decode((tmp_path / "cluster.json").read_bytes(), type=Cluster)
            with described.api() as api:
                assert api.ask("GET", "/readyz").code == 200
            assert second.stdin is not None
            second.stdin.close()
            second.wait()
    asyncio.run(until(lambda: not answers(int(port))))
    asyncio.run(until(lambda: not list(tmp_path.glob("plane-*"))))
    assert not (tmp_path / "cluster.json").exists()


def answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def test_texts_of_warnings() -> None:
    """Quotes and backslashes in a header are escaped."""
    assert warning_text(r'299 - "a \"b\" \\ c"') == r'a "b" \ c'
