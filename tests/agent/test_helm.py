"""Helm itself and our renderer of the chart agree; the schema of its values knows every value and setting."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from e2e.clienttools import HOW, find
from release.schemas import CHART as SCHEMA
from release.schemas import chart_text

from tests.agent.chart import CHART, documents

HELM = find("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason=HOW)
DIGEST = {"digest": "sha256:PUT-THE-DIGEST-OF-YOUR-IMAGE-HERE"}
CASES: dict[str, dict[str, Any]] = {
    "defaults": {},
    "everything on": {
        "image": {"repository": "registry.example/podslice", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "secret"}],
        "agent": {"profile": "kubelet-1.36", "sources": {"kubelet": {"caFile": "/k.crt"}, "waitSeconds": 0.5}},
        "observe": True,
        "metricsPort": 9999,
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
        "monitoring": {"podMonitor": True, "prometheusRule": True, "dashboard": True, "labels": {"release": "x"}},
        "statusSecret": "status",
        "podCgroup": "kubepods",
        "hostPaths": [
            {"name": "manifests", "path": "/etc/kubernetes/manifests"},
            {"name": "devices", "path": "/d", "writable": True, "type": "File"},
        ],
        "nodeSelector": {"pool": "fast"},
        "tolerations": [],
        "updateStrategy": {"type": "OnDelete", "rollingUpdate": None},
        "podResources": {"limits": {"memory": "1Gi"}},
    },
    "host network": {"hostNetwork": True},
    "host processes": {"hostPID": True},
    "claims": {
        "dra": {"enabled": True},
        "agent": {
            "policy": {
                "apiVersion": "podslice.io/v1alpha1",
                "kind": "PodslicePolicy",
                "spec": {"claims": {"cpus": "2-3"}},
            }
        },
    },
    "cluster": {
        "cluster": {
            "enabled": True,
            "schedulerName": "numa",
            "schedulerImage": "kube-scheduler:v1.36.2",
            "replicas": 3,
        },
        "metricsFrom": [{"podSelector": {}}],
    },
    "cluster with a page": {
        "cluster": {
            "enabled": True,
            "schedulerImage": "kube-scheduler:v1.36.2",
            "pageSecret": "page",
            "plan": "honour",
            "evict": True,
            "advise": True,
        },
        "agent": {"nodeResourceTopology": "own"},
        "monitoring": {"podMonitor": True, "prometheusRule": True},
    },
    "no readers": {"statusPort": 0, "kubectlRights": False},
    "rules alone": {"monitoring": {"prometheusRule": True}},
    "services": {
        "monitoring": {"serviceMonitor": True, "labels": {"release": "x"}},
        "cluster": {"enabled": True, "schedulerImage": "kube-scheduler:v1.36.2", "tlsSecret": "certificates"},
    },
    "refusals are held": {"agent": {"refusals": "hold"}},
    "only the kubelet's list": {"agent": {"sources": {"apiServer": False, "kubelet": {"everySeconds": 5}}}},
    "a setting less": {"agent": {"sources": {"annotation": None}}},
}


def helm(tmp_path: Path, *arguments: str, **values: Any) -> subprocess.CompletedProcess[str]:
    """Run Helm on the chart."""
    given = tmp_path / "values.yaml"
    given.write_text(json.dumps(values))
    command = [str(HELM), arguments[0], *arguments[1:], str(CHART), "--values", str(given)]
    return subprocess.run(command, capture_output=True, text=True)


def comparable(found: list[dict[str, Any]]) -> dict[tuple[str, str], Any]:
    """Objects by kind and name; texts in YAML and JSON as what they mean."""
    for one in found:
        if one["kind"] == "ConfigMap":
            one["data"] = {name: yaml.safe_load(text) for name, text in one["data"].items()}
        if one["kind"] == "DaemonSet":
            assert len(one["spec"]["template"]["metadata"]["annotations"].pop("checksum/config")) == 64
    named = {(one["kind"], one["metadata"]["name"]): one for one in found}
    assert len(named) == len(found)
    return named


@needs_helm
@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_helm_renders_the_same(values: dict[str, Any], tmp_path: Path) -> None:
    """Our renderer, by which the other tests read the chart, gives the same as Helm."""
    given = {**values, "image": {**DIGEST, **values.get("image", {})}}
    ran = helm(tmp_path, "template", "podslice", "--namespace", "other", **given)
    assert ran.returncode == 0, ran.stderr
    rendered = [one for one in yaml.safe_load_all(ran.stdout) if one]
    assert comparable(rendered) == comparable(documents("other", **given))


@needs_helm
def test_helm_renders_the_manifests(tmp_path: Path) -> None:
    """The plain manifests are what Helm makes of the default values, but for the namespace and the pull policy."""
    ran = helm(tmp_path, "template", "podslice", "--namespace", "podslice", image=DIGEST)
    rendered = comparable([one for one in yaml.safe_load_all(ran.stdout) if one])
    folder = CHART.parents[1] / "manifests"
    texts = [(folder / name).read_text() for name in ("podslice.yaml", "own-node-only.yaml", "kubectl.yaml")]
    plain = [one for text in texts for one in yaml.safe_load_all(text) if one["kind"] != "Namespace"]
    (daemon_set,) = [one for one in plain if one["kind"] == "DaemonSet"]
    daemon_set["spec"]["template"]["metadata"]["annotations"]["checksum/config"] = "0" * 64
    daemon_set["spec"]["template"]["spec"]["containers"][0]["imagePullPolicy"] = "IfNotPresent"
    assert rendered == comparable(plain)


@needs_helm
def test_helm_finds_nothing_to_blame(tmp_path: Path) -> None:
    """`helm lint --strict` passes."""
    ran = helm(tmp_path, "lint", "--strict", image=DIGEST)
    assert ran.returncode == 0, ran.stdout


@needs_helm
def test_notes_say_what_is_missing(tmp_path: Path) -> None:
    """After an installation Helm names the commands for this namespace, and what does not work as it is set."""

    def notes(**values: Any) -> str:
        ran = helm(tmp_path, "install", "--dry-run=client", "--namespace", "other", "p", **values, image=DIGEST)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.partition("NOTES:")[2]

    assert "kubectl -n other rollout status daemonset/podslice-agent" in notes()
    assert not any(word in notes() for word in ("observes", "Without sources.apiServer", "not let in", "loopback"))
    assert "only observes" in notes(observe=True)
    assert "Without sources.apiServer" in notes(agent={"sources": {"apiServer": False, "manifests": "/m"}})
    assert "is not let in yet" in notes(monitoring={"podMonitor": True})
    assert "is not let in yet" in notes(monitoring={"serviceMonitor": True})
    assert "not let in" not in notes(monitoring={"podMonitor": True}, metricsFrom=[{"podSelector": {}}])
    assert "loopback" in notes(hostNetwork=True)
    assert "any pod of the cluster as Failed" in notes(admissionPolicies=False)
    assert "any pod of the cluster" not in notes()


BAD = [
    ({"agent": {"reconcileSecond": 3}}, "reconcileSecond"),
    ({"agent": {"sources": {"kubelet": {"prot": 1}}}}, "prot"),
    ({"agent": {"metricsAddress": "0.0.0.0:1"}}, "metricsAddress"),
    ({"metricsPort": 70000}, "metricsPort"),
    ({"hostPaths": [{"name": "a", "path": "relative"}]}, "path"),
    ({"tolerations": {}}, "tolerations"),
    ({"cluster": {"schedulerName": "My Scheduler"}}, "schedulerName"),
    ({"obsrve": True}, "obsrve"),
    ({"monitoring": {"podMonitor": True, "serviceMonitor": True}}, "monitoring"),
    ({"image": {"digest": "latest"}}, "digest"),
]


@pytest.mark.parametrize(("values", "named"), BAD, ids=[named for _, named in BAD])
def test_schema_names_mistakes_in_values(values: dict[str, Any], named: str) -> None:
    """The schema refuses a value that is misspelt or of a wrong kind, and names it."""
    schema = json.loads(SCHEMA.read_text())
    with pytest.raises(jsonschema.ValidationError) as caught:
        jsonschema.validate(values, schema)
    assert named in caught.value.message or named in caught.value.absolute_path


@needs_helm
@pytest.mark.parametrize(("values", "named"), BAD, ids=[named for _, named in BAD])
def test_helm_names_mistakes_in_values(values: dict[str, Any], named: str, tmp_path: Path) -> None:
    """Helm refuses the same values with the schema, and names them."""
    ran = helm(tmp_path, "template", "podslice", **{"image": DIGEST, **values})
    assert ran.returncode != 0
    assert named in ran.stderr


def test_schema_is_current() -> None:
    """The schema is that of the agent's settings, accepts the shipped values and all that the tests use, and knows no
    value that the chart does not have."""
    schema = json.loads(SCHEMA.read_text())
    assert SCHEMA.read_text() == chart_text(), "python -m release.schemas"
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    jsonschema.Draft7Validator.check_schema(schema)
    jsonschema.validate(defaults, schema)
    for name, values in CASES.items():
        if name != "a setting less":
            jsonschema.validate(values, schema)
    assert set(schema["properties"]) - {"global"} == set(defaults)
    assert set(schema["properties"]["monitoring"]["properties"]) == set(defaults["monitoring"])
    assert set(schema["properties"]["image"]["properties"]) == set(defaults["image"])
