"""The values of the chart: their schema, their page, mistakes in them, and what Helm says after an installation."""

from __future__ import annotations

import json
import re
from typing import Any

import jsonschema
import pytest
import yaml
from release.schemas import CHART as SCHEMA
from release.schemas import chart_text
from release.values import FOLDER, defaults_text, read_descriptions, readme_text

from tests.deploy.cases import CASES, EVERYTHING, POOLS
from tests.deploy.rendering import CHART, IMAGE, ON, helm, needs_helm, refusal


def schema_of(path: str) -> dict[str, Any]:
    found = json.loads(SCHEMA.read_text())
    for name in path.split("."):
        found = found["properties"][name]
    return dict(found)


@needs_helm
def test_helm_finds_nothing_to_blame() -> None:
    """`helm lint --strict` passes."""
    for values in (CASES["defaults"], EVERYTHING):
        ran = helm("lint", "--strict", **{"image": IMAGE, **values})
        assert ran.returncode == 0, ran.stdout


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
    ({"image": {"digest": "sha256:1"}}, "digest"),
    ({"agent": {"resources": {"cpuManagerPolicy": "statik"}}}, "cpuManagerPolicy"),
    ({"agent": {"resources": {"memoryManagerPolicy": "static"}}}, "memoryManagerPolicy"),
    ({"agent": {"resources": {"topologyManagerPolicy": "single-numa"}}}, "topologyManagerPolicy"),
    ({"agent": {"resources": {"topologyManagerScope": "node"}}}, "topologyManagerScope"),
    ({"agent": {"refusals": "wait"}}, "refusals"),
    ({"agent": {"sources": {"podsAPI": "always"}}}, "podsAPI"),
    ({"agent": {"nodeResourceTopology": "mine"}}, "nodeResourceTopology"),
    ({"cluster": {"plan": "honor"}}, "plan"),
    ({"cluster": {"certificates": "cert-manager"}}, "certificates"),
    ({"logLevel": "trace"}, "logLevel"),
    ({"nameOverride": "Pod_Slice"}, "nameOverride"),
]


@pytest.mark.parametrize(("values", "named"), BAD, ids=[str(values) for values, _ in BAD])
def test_schema_names_mistakes_in_values(values: dict[str, Any], named: str) -> None:
    """The schema refuses a value that is misspelt or of a wrong kind, and names it."""
    schema = json.loads(SCHEMA.read_text())
    with pytest.raises(jsonschema.ValidationError) as caught:
        jsonschema.validate(values, schema)
    assert named in caught.value.message or named in caught.value.absolute_path


@needs_helm
@pytest.mark.parametrize(("values", "named"), BAD, ids=[str(values) for values, _ in BAD])
def test_helm_names_mistakes_in_values(values: dict[str, Any], named: str) -> None:
    """`helm lint` refuses the same values with the schema, and names them."""
    ran = helm("lint", **{"image": IMAGE, **values})
    assert ran.returncode != 0
    assert named in ran.stdout


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
    for group in ("image", "monitoring", "cluster", "dra"):
        assert set(schema_of(group)["properties"]) == set(defaults[group])


def test_every_value_is_tried() -> None:
    """The widest set of values in the tests has every value there is, and the pools' have all that pools can set."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(EVERYTHING) == set(defaults)
    for group in ("image", "monitoring", "cluster", "dra"):
        assert set(EVERYTHING[group]) >= set(defaults[group]) - {"digest"}
    of_pools = set(schema_of("pools")["items"]["properties"])
    assert set().union(*POOLS) | {"nodeSelector"} == of_pools
    assert of_pools - {"name"} <= set(defaults)


def test_every_value_is_described() -> None:
    """Each value has a comment, the schema says the same, and so does the page; what the templates fill values of older
    charts with are the defaults."""
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    described = read_descriptions()
    groups = ("image", "monitoring", "cluster", "dra")
    paths = {*defaults, *(f"{group}.{name}" for group in groups for name in defaults[group])}
    assert {path for path, text in described.items() if text} >= paths - {"image"}
    assert set(described) == paths
    for path, text in described.items():
        assert schema_of(path)["description"] == text
    assert (FOLDER / "README.md").read_text() == readme_text(), "python -m release.schemas"
    assert (FOLDER / "files/defaults.json").read_text() == defaults_text(), "python -m release.schemas"
    rows = re.findall(r"^\| `([\w.]+)` \|", readme_text(), re.MULTILINE)
    assert rows == list(described)


@needs_helm
def test_notes_say_what_is_missing() -> None:
    """After an installation Helm names the commands for this release, and what does not work as it is set."""

    def notes(**values: Any) -> str:
        given = {"image": IMAGE, **values}
        ran = helm("install", "--dry-run=client", "--namespace=other", "p", **given)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.partition("NOTES:")[2]

    plain = notes()
    assert "kubectl -n other rollout status daemonset/p-podslice-agent" in plain
    assert "helm -n other test p" in plain
    assert "`helm uninstall` leaves the kind NodeState with its objects" in plain
    quiet = (
        "observes",
        "Without sources.apiServer",
        "not let in",
        "loopback",
        "named by a tag",
        "scheduler `",
        "Pools:",
    )
    assert not [word for word in quiet if word in plain]
    assert "any pod of the cluster" not in plain
    assert "only observes" in notes(observe=True)
    assert "Without sources.apiServer" in notes(agent={"sources": {"apiServer": False, "manifests": "/m"}})
    assert "is not let in yet" in notes(monitoring={"podMonitor": True})
    assert "is not let in yet" in notes(monitoring={"serviceMonitor": True})
    assert "not let in" not in notes(monitoring={"podMonitor": True}, metricsFrom=[{"podSelector": {}}])
    assert "loopback" in notes(hostNetwork=True)
    assert "any pod of the cluster as Failed" in notes(admissionPolicies=False)
    assert "named by a tag" in notes(image={"tag": "1"})
    pools = notes(pools=POOLS)
    assert "Pools: web, fast, observed." in pools
    assert "daemonset/p-podslice-agent-fast" in pools
    assert "DeviceClass podslice.io" in notes(dra={"enabled": True})


@needs_helm
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({}, ["Helm made its certificate for 365 days", "statefulset/p-podslice-cluster", "schedulerName: podslice"]),
        ({"certificates": "certManager"}, ["get certificate p-podslice-cluster"]),
        (
            {"certificates": "secret", "caConfigMap": "c", "namespace": "placing"},
            [
                "renew the Secret placing/p-podslice-cluster-tls, for p-podslice-cluster.placing.svc,",
                "--agent-namespace placing",
            ],
        ),
        ({"evict": True}, ["It evicts pods"]),
        ({"advise": True}, ["It only advises"]),
        ({"schedulerName": "numa"}, ["spec.schedulerName=numa,spec.nodeName="]),
    ],
)
def test_notes_about_the_scheduler(values: dict[str, Any], said: list[str]) -> None:
    """They say whose its certificate is, how to see it run, and which pods would wait for ever once it is gone."""
    given = {**ON, "cluster": {**ON["cluster"], **values}}
    ran = helm("install", "--dry-run=client", "--namespace=other", "p", **given)
    assert ran.returncode == 0, ran.stderr
    for text in (*said, "Pods that wait for this scheduler would wait for ever"):
        assert text in ran.stdout.partition("NOTES:")[2]


@needs_helm
def test_an_older_charts_values() -> None:
    """Values that lack all that is new render as with the defaults, whether the groups are there or not."""
    assert "image.digest: name the image" in refusal(image=None, cluster=None, dra=None, pools=None, agent=None)
