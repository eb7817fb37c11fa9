"""Real workloads beside the checkout: no crash, no false error, no page without one of their containers."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podslice import InputError
from podslice.advise.inspect.build import inspect_pod
from podslice.advise.inspect.page import Page
from podslice.advise.inspect.table import page_text
from podslice.advise.lint.subject import default_gates
from podslice.api.manifests.manifest import load_pods
from podslice.api.pod.spec import pod_from_dict
from podslice.values.quirks import PROFILES

REFUSED = {
    "20230803-device-allocate-hint-apis.md.block0.yaml": "Limit must be set for non overcommitable resources",
    "20230803-device-allocate-hint-apis.md.block1.yaml": "Limit must be set for non overcommitable resources",
    "20230803-device-allocate-hint-apis.md.block2.yaml": "Limit must be set for non overcommitable resources",
    "20230803-device-allocate-hint-apis.md.block3.yaml": "Limit must be set for non overcommitable resources",
    "20230803-device-allocate-hint-apis.md.block4.yaml": "Limit must be set for non overcommitable resources",
    "vttablet-pod-template.yaml": "a lowercase RFC 1123 subdomain must",
    "README.md.block0.yaml": "must be a standard resource type or fully qualified",
}
"""Pods of proposals that v1.36.2 refuses indeed: extended resources without limits, pids at pod level,
and a template that is not a pod yet."""
AT_POD_LEVEL = "README.md.block0.yaml"
NO_QUANTITY = "keps/sig-node/2625-cpumanager-policies-thread-placement/README.md.block1.yaml"
"""A proposal that invents the quantity `3p`."""


@pytest.fixture(params=list(PROFILES))
def profile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def inspected(data: dict[str, Any], profile: str) -> Page:
    return inspect_pod(pod_from_dict(data), default_gates(profile), PROFILES[profile], data=data)


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    """Return a pod of an entry of the workload list."""
    spec: dict[str, Any] = {"containers": [], "initContainers": []}
    claims = set()
    for container in workload["containers"]:
        resources = {"requests": container["requests"], "limits": container["limits"]}
        if container["claims"]:
            resources["claims"] = container["claims"]
            claims |= {claim["name"] for claim in container["claims"]}
        one = {"name": container["name"], "resources": resources, "restartPolicy": container["restartPolicy"]}
        spec["initContainers" if container["init"] else "containers"].append(one)
    spec["resources"] = workload["podResources"]
    spec["resourceClaims"] = [{"name": name} for name in sorted(claims)]
    name = (workload["name"] or "").removesuffix("-")  # the list has generateName as well
    return {"metadata": {"name": name}, "spec": spec}


def class_of(workload: dict[str, Any], profile: str) -> str:
    """Return the class of the index, but of pods with pod-level resources the right one: a simpler rule made the
    index."""
    gates = default_gates(profile)
    if workload["podResources"] and not gates["PodLevelResources"]:
        return class_by_containers(workload["containers"])
    if workload["name"] == "myide":
        # Limits beside container requests: row 7 of the KEP's table.
        return "Burstable"
    if workload["name"] == "pod-with-pod-level-resources" and gates["PodLevelResourcesFixDefaulting"]:
        # The KEP's fix fills in pod limits: row 12.
        return "Guaranteed"
    return str(workload["qos"])


def class_by_containers(containers: list[dict[str, Any]]) -> str:
    """Return the class of a pod whose amounts are spelled alike in requests and limits."""
    limits = [{name: one["limits"].get(name) for name in ("cpu", "memory")} for one in containers]
    requests = [limit | one["requests"] for limit, one in zip(limits, containers, strict=True)]
    if all(None not in limit.values() and limit == request for limit, request in zip(limits, requests, strict=True)):
        return "Guaranteed"
    return "Burstable" if any(any(request.values()) for request in requests) else "BestEffort"


def workloads(shared: Path) -> Iterator[dict[str, Any]]:
    with gzip.open(shared / "manifests" / "workloads.jsonl.gz", "rt") as lines:
        yield from map(json.loads, lines)


@pytest.mark.slow
def test_all_workloads(shared: Path, profile: str) -> None:
    """All 459 workloads have a page, valid ones with the class of the index; errors are only where they belong."""
    seen = 0
    refused = set()
    for workload in workloads(shared):
        seen += 1
        if workload["file"].endswith(NO_QUANTITY):
            with pytest.raises(InputError, match="'3p' is not a quantity"):
                inspected(pod_of(workload), profile)
            continue
        page = inspected(pod_of(workload), profile)
        name = Path(workload["file"]).name
        for text in page.errors:
            assert REFUSED[name] in text
            refused.add(workload["file"])
        assert page.errors or page.qos.qos_class == class_of(workload, profile), workload["file"]
        assert len(page.cgroups) == 1 + len(workload["containers"])
        if profile == "podslice":
            assert (workload["name"] or "Pod").removesuffix("-") in page_text(page, width=80, coloured=False)
    # Where the gate PodLevelResources is off, the API server drops the field, and refuses nothing in it.
    dropped = set() if default_gates(profile)["PodLevelResources"] else {AT_POD_LEVEL}
    assert (seen, {Path(file).name for file in refused}) == (459, REFUSED.keys() - dropped)
    assert len(refused) == len(REFUSED) - len(dropped)


@pytest.mark.slow
def test_all_files(shared: Path) -> None:
    """The manifests themselves are read and rendered; names of all containers are on the page."""
    quirks = PROFILES["podslice"]
    gates = default_gates("podslice")
    pages = 0
    for path in sorted((shared / "manifests" / "files").rglob("*.y*ml")):
        try:
            pods = load_pods(str(path), validate=False)
        except InputError:
            continue
        for loaded in pods:
            page = inspect_pod(loaded.pod, gates, quirks, kind=loaded.kind, data=loaded.data)
            text = page_text(page, width=120, coloured=False).replace("\n", "")
            assert all(container.name in text for container in loaded.pod.spec.containers)
            assert not page.errors or path.name in REFUSED
            pages += 1
    assert pages > 425
