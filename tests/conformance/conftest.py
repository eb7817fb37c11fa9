"""A real API server for the tests of this folder; without the programs they are skipped."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.controlplane import Api, ControlPlane, Settings
from e2e.packages import FetchError
from e2e.programs import find_programs
from e2e.sharedplane import NODES, Cluster, cluster_of, shared_plane

HERE = Path(__file__).parent
_LONGEST = 900
"""Seconds of a test. Waiting for anything ends long before."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever asks a server is slow: the server takes seconds to start, and many times as long on a busy machine."""
    for item in items:
        if HERE in item.path.parents and {"programs", "cluster", "plane"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.timeout(_LONGEST))


@pytest.fixture(scope="session")
def programs() -> None:
    try:
        find_programs()
    except FetchError as error:
        pytest.skip(f"{error} (docs/development/README.md, Tests with a real API server)")


@pytest.fixture(scope="session")
def cluster(programs: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """The API server that all tests share, whichever worker they run in. What they store is in namespaces of theirs."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "control-plane"
    with shared_plane(folder) as running:
        running.prepare_namespace("default")
        yield running


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Api]:
    with cluster.api() as api:
        yield api


@pytest.fixture
def own_node(admin: Api) -> Iterator[str]:
    """The name of a Node that no test beside this one uses, in whatever worker."""
    name = str(admin.call("POST", "/api/v1/nodes", {"metadata": {"generateName": "own-"}})["metadata"]["name"])
    yield name
    admin.call("DELETE", f"/api/v1/nodes/{name}")


@pytest.fixture
def plane(programs: None, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane of the test's own, to be stopped and started; it soon forgets old versions."""
    settings = Settings(nodes=NODES, api_server=("--etcd-compaction-interval=1s",))
    with ControlPlane(find_programs(), tmp_path / "plane", settings) as running:
        cluster_of(running, NODES).prepare_namespace("default")
        yield running
