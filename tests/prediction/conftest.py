"""A real kubelet on a made-up machine; without the programs of Kubernetes, or without root, its tests are skipped."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.packages import FetchError
from e2e.programs import Programs, find_programs
from tools.prediction.kubelet import why_not
from tools.prediction.machine import Shape
from tools.prediction.node import OneNode, one_node


@pytest.fixture(scope="session")
def programs() -> Programs:
    reason = why_not()
    if reason is not None:
        pytest.skip(f"a real kubelet {reason}")
    try:
        return find_programs()
    except FetchError as error:
        pytest.skip(str(error))


@pytest.fixture
def node(programs: Programs) -> Iterator[OneNode]:
    """Two NUMA nodes of four cores and eight CPUs each. A short path: sockets have at most 107 characters."""
    with (
        tempfile.TemporaryDirectory(prefix="podslice-") as folder,
        one_node(programs, Path(folder), Shape("two nodes", sockets=2, nodes=2, cores=4)) as found,
    ):
        yield found
