"""The chart as Helm renders it, without a cluster, and the plain manifests made of it."""

from __future__ import annotations

import json
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.clienttools import HOW, find

DEPLOY = Path(__file__).parents[2] / "deploy"
CHART = DEPLOY / "helm" / "podslice"
IMAGE = {"digest": "sha256:" + "0" * 64}
ON = {
    "image": IMAGE,
    "cluster": {"enabled": True, "schedulerImage": "registry.k8s.io/kube-scheduler:v1.36.2"},
}
"""Values with which the second scheduler is installed."""
HELM = find("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason=HOW)
"""Mark of tests that run Helm."""
KUBERNETES = "v1.36.2"

Object = dict[str, Any]


def helm(*arguments: str, chart: Path = CHART, **values: Any) -> subprocess.CompletedProcess[str]:
    """Run Helm on the chart: a command, options and values."""
    command, *options = arguments
    return subprocess.run(
        [str(HELM), command, *options, str(chart), "--values=-"],
        input=json.dumps(values),
        capture_output=True,
        text=True,
    )


def render(*options: str, release: str = "podslice", chart: Path = CHART, **values: Any) -> list[Object]:
    """Return all objects that Helm makes of the chart with these values, hooks too. Equal questions are asked once."""
    objects: list[Object] = json.loads(_rendered(options, release, chart, json.dumps(values)))
    return objects


@cache
def _rendered(options: tuple[str, ...], release: str, chart: Path, values: str) -> str:
    given = {"image": IMAGE, **json.loads(values)}
    versioned = [] if any("--kube-version" in one for one in options) else [f"--kube-version={KUBERNETES}"]
    ran = helm("template", release, "--namespace=podslice", *versioned, *options, chart=chart, **given)
    assert ran.returncode == 0, ran.stderr
    return json.dumps([one for one in yaml.load_all(ran.stdout, yaml.CSafeLoader) if one])


def refusal(*options: str, **values: Any) -> str:
    """Return what Helm says of values that it does not take."""
    ran = helm("template", "podslice", "--namespace=podslice", *options, **{"image": IMAGE, **values})
    assert ran.returncode != 0
    return ran.stderr


def by_kind_and_name(objects: list[Object]) -> dict[tuple[str, str], Object]:
    """Objects by kind and name, of which a namespace has one each; of equal names in two, that of the agents'."""
    found = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]): one for one in objects}
    assert len(found) == len(objects)
    others_first = sorted(found.items(), key=lambda item: item[0][1] == "podslice")
    return {(kind, name): one for (kind, _, name), one in others_first}


def installed(objects: list[Object]) -> list[Object]:
    """Objects without those that are there for `helm test` only."""
    return [one for one in objects if "helm.sh/hook" not in one["metadata"].get("annotations", {})]


def manifest(name: str) -> list[Object]:
    """The objects of a plain manifest."""
    return [one for one in yaml.safe_load_all((DEPLOY / "manifests" / name).read_text()) if one]


def pod_templates(objects: list[Object]) -> list[Object]:
    """Pods and pod templates, with `metadata` and `spec`."""
    templates = [one["spec"]["template"] for one in objects if one["kind"] in ("DaemonSet", "StatefulSet")]
    return templates + [one for one in objects if one["kind"] == "Pod"]
