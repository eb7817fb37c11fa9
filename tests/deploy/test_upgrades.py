"""Values of older charts, as `helm upgrade` gives them to this one: it renders, and agents start."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.deploy.cases import CLAIMS
from tests.deploy.history import STATES, chart_of
from tests.deploy.rendering import CHART, KUBERNETES, Object, by_kind_and_name, helm, needs_helm
from tests.shell import podslice

pytestmark = needs_helm
DIGEST = "sha256:" + "1" * 64
CA = "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"
OWN: dict[str, Any] = {
    "image": {"digest": DIGEST},
    "dra": {"enabled": True},
    "agent": {"policy": CLAIMS, "nodeResourceTopology": "own", "resources": {"reservedSystemCPUs": "0-1"}},
    "monitoring": {"podMonitor": True, "prometheusRule": True, "dashboard": True},
}
"""What somebody set when the chart was installed."""


def upgraded(folder: Path, values: dict[str, Any], defaults: Path | None = None) -> list[Object]:
    """What Helm makes of this chart with these values; with the defaults of an older one, as `--reuse-values` takes
    them."""
    chart = CHART
    if defaults is not None:
        chart = folder / "chart"
        shutil.copytree(CHART, chart)
        shutil.copy(defaults, chart / "values.yaml")
    ran = helm("template", "podslice", "--namespace=podslice", f"--kube-version={KUBERNETES}", chart=chart, **values)
    assert ran.returncode == 0, ran.stderr
    return [one for one in yaml.load_all(ran.stdout, yaml.CSafeLoader) if one]


def known(values: dict[str, Any], chart: Path) -> dict[str, Any]:
    """These values without groups that an older chart did not have."""
    there = yaml.safe_load((chart / "values.yaml").read_text())
    return {name: value for name, value in values.items() if name in there}


@pytest.mark.parametrize("way", ["--reuse-values", "--reset-then-reuse-values", "edited values"])
@pytest.mark.parametrize("commit", STATES.values(), ids=STATES)
def test_upgrade_of_agents(commit: str, way: str, tmp_path: Path) -> None:
    """Whatever way of upgrading, the agents' configuration is good and has what was set; no object is there without
    what it needs."""
    old = chart_of(commit, tmp_path / "old")
    values = known(OWN, old)
    if way == "edited values":
        whole = yaml.safe_load((old / "values.yaml").read_text())
        for name, value in values.items():
            whole[name] = {**whole[name], **value}
        whole["agent"]["resources"]["cpuManagerPolicy"] = "static"
        found = upgraded(tmp_path, whole)
    else:
        found = upgraded(tmp_path, values, old / "values.yaml" if way == "--reuse-values" else None)
    objects = by_kind_and_name(found)
    text = objects["ConfigMap", "podslice-agent"]["data"]["agent.yaml"]
    assert yaml.safe_load(text)["resources"]["reservedSystemCPUs"] == "0-1"
    file = tmp_path / "agent.yaml"
    file.write_text(text)
    answer = podslice("agent", "--config", file, "--check-config", "--observe", "--machine", "epyc-9654-nps4")
    assert (answer.returncode, "good; " in answer.stdout) == (0, True), answer.stderr
    assert no_nulls(found) == []


def no_nulls(part: Any, path: str = "") -> list[str]:
    """Places with nothing where Helm wrote a value that is missing."""
    if isinstance(part, dict):
        return [place for name, value in part.items() for place in no_nulls(value, f"{path}.{name}")]
    if isinstance(part, list):
        return [place for number, value in enumerate(part) for place in no_nulls(value, f"{path}[{number}]")]
    return [path] if part is None or (isinstance(part, str) and "<no value>" in part) else []


@pytest.mark.parametrize("commit", list(STATES.values())[1:], ids=list(STATES)[1:])
def test_upgrade_of_the_scheduler(commit: str, tmp_path: Path) -> None:
    """The Secret that an older chart's values name stays the service's, and its authority is asked for where Helm does
    not see the cluster."""
    old = chart_of(commit, tmp_path / "old")
    cluster: dict[str, Any] = {"enabled": True, "schedulerImage": "kube-scheduler:v1"}
    values = {"image": {"digest": DIGEST}, "cluster": {**cluster, "ca": CA}}
    objects = by_kind_and_name(upgraded(tmp_path, values, old / "values.yaml"))
    pod = objects["StatefulSet", "podslice-cluster"]["spec"]["template"]["spec"]
    (tls,) = (one["secret"]["secretName"] for one in pod["volumes"] if one["name"] == "tls")
    assert tls == "podslice-cluster-tls"
    assert ("Secret", "podslice-cluster-tls") not in objects
    assert objects["ConfigMap", "podslice-cluster-ca"]["data"]["ca.crt"] == CA
    values["cluster"] = cluster
    ran = helm("template", "podslice", "--namespace=podslice", chart=tmp_path / "chart", **values)
    assert "cluster.ca: agents need the certificate of the authority" in ran.stderr
