"""Fixtures and helpers shared by all tests."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings

from podslice import KubeletConfig, Node, Pod
from podslice.api.pod.spec import pod_from_dict
from podslice.machine.readers.synthetic import from_synthetic

# Random on a developer's machine, to find more; the same examples every time in CI, where a find would be in the way.
settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("any machine"), derandomize=True)
settings.load_profile("any machine")
if os.environ.get("CI"):
    settings.load_profile("ci")

_SHARED = Path(os.environ.get("PODSLICE_SHARED", Path(__file__).resolve().parents[2] / "shared"))


_CONFORMANCE = {"programs", "cluster", "plane", "judge", "node_programs"}
"""Fixtures that start Kubernetes' own programs or the judge."""
_PROCESS = {"certificates"}
"""Fixtures that run another program, such as openssl."""
_STARTS = ("subprocess.Popen", "os.posix_spawn", "os.fork", "os.forkpty", "os.system")
"""Audit events of Python that say that a process starts."""
_unit_test = ""
"""The test that runs now, where it belongs to the unit tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Add each test to its suite: one that uses Kubernetes' programs is a conformance test, one that is skipped where a
    program is missing runs that program."""
    for item in items:
        fixtures = set(getattr(item, "fixturenames", ()))
        if _CONFORMANCE & fixtures:
            item.add_marker(pytest.mark.conformance)
        elif _PROCESS & fixtures or item.get_closest_marker("skipif"):
            item.add_marker(pytest.mark.process)


def _forbid_processes(event: str, arguments: tuple[Any, ...]) -> None:
    if event in _STARTS and _unit_test:
        raise RuntimeError(f"{_unit_test} starts a process ({event} {arguments[:1]}): mark it `process`")


sys.addaudithook(_forbid_processes)


def _check_descriptor(descriptor: int) -> None:
    """Stands in for `os.fsync`: no test turns the machine off, and a disk takes milliseconds for each call."""
    os.fstat(descriptor)


os.fsync = _check_descriptor


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """A unit test starts no process: it fails when it tries, also in a fixture that it is the first to use."""
    global _unit_test
    is_unit = item.get_closest_marker("process") is None and item.get_closest_marker("conformance") is None
    _unit_test = item.nodeid if is_unit else ""
    try:
        return (yield)
    finally:
        _unit_test = ""


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder with recorded decisions and captured machines that lies beside the checkout; skips without it."""
    if not (_SHARED / "vectors").is_dir():
        pytest.skip("needs the shared folder beside the checkout (PODSLICE_SHARED names another place)")
    return _SHARED


@pytest.fixture(scope="session", autouse=True)
def _documents_are_valid() -> Iterator[None]:
    """Whatever any test makes a command print as a document agrees with its schema."""
    from podslice.values import document as module
    from tests.read_documents import check_document

    make = module.document

    def checked(value: msgspec.Struct) -> dict[str, Any]:
        made = make(value)
        check_document(json.loads(json.dumps(made)))
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "document", checked)
        yield


def resources(cpu: str | None, memory: str | None = "1Gi") -> dict[str, Any]:
    """Equal requests and limits; nothing for `cpu` None."""
    if cpu is None:
        return {}
    amounts = {"cpu": cpu, "memory": memory}
    return {"requests": amounts, "limits": amounts}


def make_pod(
    uid: str,
    *containers: tuple[str, str | None],
    init: tuple[tuple[str, str | None, bool], ...] = (),
    budget: str | None = None,
    memory: str = "1Gi",
) -> Pod:
    """A pod from (name, cpus) pairs; `init` adds (name, cpus, sidecar) triples, `budget` pod-level CPUs."""
    spec: dict[str, Any] = {
        "containers": [{"name": name, "resources": resources(cpu, memory)} for name, cpu in containers],
        "initContainers": [
            {"name": name, "resources": resources(cpu, memory), **({"restartPolicy": "Always"} if sidecar else {})}
            for name, cpu, sidecar in init
        ],
    }
    if budget is not None:
        spec["resources"] = resources(budget, "16Gi")
    return pod_from_dict({"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": spec})


def make_node(
    machine: str = "pack:2 numa:1(memory=64GB) core:8 pu:2(indexes=pu)", profile: str = "podslice", **config: Any
) -> Node:
    """A node with the static CPU manager and one reserved CPU unless told otherwise."""
    settings: dict[str, Any] = {
        "cpu_manager_policy": "static",
        "reserved_system_cpus": "0",
        "topology_manager_policy": "restricted",
        "eviction_hard": {},
        **config,
    }
    return Node(from_synthetic(machine), KubeletConfig(**settings), profile=profile)
