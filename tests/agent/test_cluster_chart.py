"""The second scheduler of the chart: off by default, and in plain manifests what the chart makes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from tests.agent.chart import CHART, Renderer, documents

PLAIN = CHART.parents[1] / "manifests" / "scheduler.yaml"
DIGEST = {"digest": "sha256:PUT-THE-DIGEST-OF-YOUR-IMAGE-HERE"}
ON = {"image": DIGEST, "cluster": {"enabled": True, "schedulerImage": "registry.k8s.io/kube-scheduler:v1.36.2"}}


def cluster(**values: Any) -> dict[tuple[str, str], Any]:
    text = Renderer("podslice", {**ON, **values}).text("cluster.yaml")
    return {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(text) if one}


def test_off_by_default() -> None:
    """Without `cluster.enabled` nothing of it is there."""
    found = documents(image=DIGEST)
    assert not [one for one in found if one["metadata"]["name"] in ("podslice-cluster", "podslice-scheduler")]


def test_plain_manifests() -> None:
    """`deploy/manifests/scheduler.yaml` is what the chart makes of its defaults."""
    assert Path(PLAIN).read_text() == Renderer("podslice", ON).text("cluster.yaml").strip() + "\n"


def test_scheduler_configuration() -> None:
    """The scheduler asks the container beside it, looks at every node, and its extender may not be passed over."""
    config = yaml.safe_load(cluster()["ConfigMap", "podslice-scheduler"]["data"]["scheduler.yaml"])
    (extender,) = config["extenders"]
    assert extender["urlPrefix"] == "http://127.0.0.1:9098/v1"
    assert (extender["nodeCacheCapable"], extender["ignorable"], extender["bindVerb"]) == (True, False, "bind")
    assert (config["percentageOfNodesToScore"], config["profiles"]) == (100, [{"schedulerName": "podslice"}])
    named = cluster(cluster={**ON["cluster"], "schedulerName": "numa"})
    assert (
        "--scheduler-name=numa"
        in named["StatefulSet", "podslice-cluster"]["spec"]["template"]["spec"]["containers"][1]["args"]
    )


def test_evictions_are_asked_for() -> None:
    """Only with `cluster.evict` does the service evict, and only then may it."""
    for evict in (False, True):
        found = cluster(cluster={**ON["cluster"], "evict": evict})
        resources = {name for rule in found["ClusterRole", "podslice-cluster"]["rules"] for name in rule["resources"]}
        (service,) = (
            one for one in found["StatefulSet", "podslice-cluster"]["spec"]["template"]["spec"]["containers"]
            if one["name"] == "cluster"
        )  # fmt: skip
        assert ("pods/eviction" in resources, "--evict" in service["args"]) == (evict, evict)


def test_advice_weighs_little() -> None:
    """With `cluster.advise` the service gives points that other plugins of the scheduler may outweigh."""
    for advise, weight in ((False, 200), (True, 2)):
        found = cluster(cluster={**ON["cluster"], "advise": advise})
        containers = found["StatefulSet", "podslice-cluster"]["spec"]["template"]["spec"]["containers"]
        (service,) = (one for one in containers if one["name"] == "cluster")
        assert ("--advise" in service["args"]) == advise
        configuration = yaml.safe_load(found["ConfigMap", "podslice-scheduler"]["data"]["scheduler.yaml"])
        assert [one["weight"] for one in configuration["extenders"]] == [weight]


def test_the_page() -> None:
    """On the pod's loopback, for who may forward its ports; with `cluster.pageSecret` beyond it, with the Secret's
    token, and those who may use the plugin may read that Secret and ask through the proxy."""
    for secret in ("", "page"):
        values = {**ON["cluster"], "pageSecret": secret}
        pod = cluster(cluster=values)["StatefulSet", "podslice-cluster"]["spec"]["template"]["spec"]
        (service,) = (one for one in pod["containers"] if one["name"] == "cluster")
        address = "0.0.0.0:9101" if secret else "127.0.0.1:9101"
        assert f"--page-address={address}" in service["args"]
        assert {"name": "page", "containerPort": 9101} in service["ports"]
        assert ("--page-token-file=/etc/podslice-page/token" in service["args"]) == bool(secret)
        volumes = {one["name"]: one for one in pod["volumes"]}
        assert ("page-token" in volumes) == bool(secret)
        text = Renderer("podslice", {**ON, "cluster": values}).text("kubectl.yaml")
        roles = {one["metadata"]["name"]: one for one in yaml.safe_load_all(text) if one["kind"] == "Role"}
        resources = {name for rule in roles["podslice-kubectl"]["rules"] for name in rule["resources"]}
        assert ("pods/proxy" in resources) == bool(secret)


def test_containers_are_confined() -> None:
    """Neither container runs as root, writes to its image or has a capability."""
    spec = cluster()["StatefulSet", "podslice-cluster"]["spec"]["template"]["spec"]
    for container in spec["containers"]:
        security = container["securityContext"]
        assert (security["runAsNonRoot"], security["readOnlyRootFilesystem"]) == (True, True)
        assert (security["allowPrivilegeEscalation"], security["capabilities"]) == (False, {"drop": ["ALL"]})
