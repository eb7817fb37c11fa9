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
from podslice.api.manifests.manifest import load_pods
from podslice.api.pod.spec import pod_from_dict
from podslice.values.gates import FeatureGates, later_gates
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
NO_QUANTITY = "keps/sig-node/2625-cpumanager-policies-thread-placement/README.md.block1.yaml"
"""A proposal that invents the quantity `3p`."""
OTHER_CLASS = {
    "kubelet-1.36": {"myide": "Burstable"},
    "podslice": {"myide": "Burstable", "pod-with-pod-level-resources": "Guaranteed"},
}
"""Where the index, which was made by a simpler rule, is wrong about pods with pod-level resources: limits beside
container requests (row 7 of the KEP's table), and pod limits filled in by the KEP's fix (row 12)."""


@pytest.fixture(params=list(PROFILES))
def profile(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def inspected(data: dict[str, Any], profile: str) -> Page:
    quirks = PROFILES[profile]
    gates = FeatureGates.from_overrides({}, fixes=later_gates(quirks))
    return inspect_pod(pod_from_dict(data), gates, quirks, data=data)


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
        expected = OTHER_CLASS[profile].get(workload["name"], workload["qos"])
        assert page.errors or page.qos.qos_class == expected, workload["file"]
        assert len(page.cgroups) == 1 + len(workload["containers"])
        if profile == "podslice":
            assert (workload["name"] or "Pod").removesuffix("-") in page_text(page, width=80, coloured=False)
    assert (seen, len(refused)) == (459, len(REFUSED))


@pytest.mark.slow
def test_all_files(shared: Path) -> None:
    """The manifests themselves are read and rendered; names of all containers are on the page."""
    quirks = PROFILES["podslice"]
    gates = FeatureGates.from_overrides({}, fixes=later_gates(quirks))
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
