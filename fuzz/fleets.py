"""Readers of fleets that are fuzzed: dumps of clusters, exports of metrics, traces and scenarios, as files."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from podslice import PodsliceError
from podslice.fleet.importing.kube_import import import_cluster
from podslice.fleet.scenario.scenario_file import load_scenario
from podslice.fleet.traces.trace import open_trace
from podslice.fleet.traces.trace_facts import describe

DUMPED = ("kube_pod_info.prom", "kube_pod_container_resource_requests.csv", "list.json", "metrics.jsonl")
NODES = """{"kind": "List", "items": [{"kind": "Node", "metadata": {"name": "n"}, "status": {
  "capacity": {"cpu": "8", "memory": "16Gi", "pods": "110"}, "allocatable": {"cpu": "8", "memory": "16Gi", "pods": "99"}
}}]}"""


@contextmanager
def _file(name: str, data: bytes) -> Iterator[Path]:
    """A file that is alone in its folder."""
    with tempfile.TemporaryDirectory(prefix="podslice-fuzz-") as made:
        path = Path(made, "read", name)
        path.parent.mkdir()
        path.write_bytes(data)
        yield path


def dump(data: bytes) -> None:
    """A folder that `fleet import` reads, with this as each kind of file that may be in it."""
    for name in DUMPED:
        with _file(name, data) as path, contextlib.suppress(PodsliceError):
            path.with_name("nodes.json").write_text(NODES)
            import_cluster(path.parent, path.parents[1] / "written", anonymise=False)


def trace(data: bytes) -> None:
    """A trace of pods or nodes."""
    for name in ("trace.csv", "trace.jsonl", "trace.csv.gz"):
        with _file(name, data) as path, contextlib.suppress(PodsliceError), open_trace(path) as opened:
            describe(opened)


def scenario(data: bytes) -> None:
    """A scenario file."""
    with _file("scenario.yaml", data) as path, contextlib.suppress(PodsliceError):
        load_scenario(path)


FLEETS = {"dump": dump, "scenario": scenario, "trace": trace}
