"""The chart's second scheduler and the service beside it."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from tests.deploy.cases import CASES, EVERYTHING
from tests.deploy.rendering import ON, Object, by_kind_and_name, installed, needs_helm, refusal, render

pytestmark = needs_helm


def cluster(*options: str, **values: Any) -> dict[tuple[str, str], Object]:
    """What belongs to scheduler and service, with these values of `cluster`."""
    return by_kind_and_name(installed(render(*options, **{**ON, "cluster": {**ON["cluster"], **values}})))


def containers(found: dict[tuple[str, str], Object], name: str = "podslice-cluster") -> dict[str, Object]:
    return {one["name"]: one for one in found["StatefulSet", name]["spec"]["template"]["spec"]["containers"]}


def test_scheduler_configuration() -> None:
    """The scheduler asks the container beside it, looks at every node, and its extender may not be passed over."""
    config = yaml.safe_load(cluster()["ConfigMap", "podslice-scheduler"]["data"]["scheduler.yaml"])
    (extender,) = config["extenders"]
    assert extender["urlPrefix"] == "http://127.0.0.1:9098/v1"
    assert (extender["nodeCacheCapable"], extender["ignorable"], extender["bindVerb"]) == (True, False, "bind")
    assert (config["percentageOfNodesToScore"], config["profiles"]) == (100, [{"schedulerName": "podslice"}])
    assert config["leaderElection"]["resourceName"] == "podslice-scheduler"
    named = cluster(schedulerName="numa")
    assert "--scheduler-name=numa" in containers(named)["cluster"]["args"]
    annotations = [
        found["StatefulSet", "podslice-cluster"]["spec"]["template"]["metadata"]["annotations"]
        for found in (cluster(), named)
    ]
    assert annotations[0] != annotations[1], "kube-scheduler reads its configuration when it starts"


def test_evictions_are_asked_for() -> None:
    """Only with `cluster.evict` does the service evict, and only then may it."""
    for evict in (False, True):
        found = cluster(evict=evict)
        resources = {name for rule in found["ClusterRole", "podslice-cluster"]["rules"] for name in rule["resources"]}
        assert ("pods/eviction" in resources, "--evict" in containers(found)["cluster"]["args"]) == (evict, evict)


def test_advice_weighs_little() -> None:
    """With `cluster.advise` the service gives points that other plugins of the scheduler may outweigh."""
    for advise, weight in ((False, 200), (True, 2)):
        found = cluster(advise=advise)
        assert ("--advise" in containers(found)["cluster"]["args"]) == advise
        configuration = yaml.safe_load(found["ConfigMap", "podslice-scheduler"]["data"]["scheduler.yaml"])
        assert [one["weight"] for one in configuration["extenders"]] == [weight]


def test_the_page() -> None:
    """On the pod's loopback, for who may forward its ports; with `cluster.pageSecret` beyond it, with the Secret's
    token, and those who may use the plugin may read that Secret and ask through the proxy."""
    for secret in ("", "page"):
        found = cluster(pageSecret=secret)
        service = containers(found)["cluster"]
        address = "0.0.0.0:9101" if secret else "127.0.0.1:9101"
        assert f"--page-address={address}" in service["args"]
        assert {"name": "page", "containerPort": 9101} in service["ports"]
        assert ("--page-token-file=/etc/podslice-page/token" in service["args"]) == bool(secret)
        resources = {name for rule in found["Role", "podslice-kubectl"]["rules"] for name in rule["resources"]}
        assert ("pods/proxy" in resources) == bool(secret)
    apart = installed(render(**{**ON, "cluster": {**ON["cluster"], "pageSecret": "page", "namespace": "placing"}}))
    roles = {
        one["metadata"]["namespace"]: one["rules"]
        for one in apart
        if one["metadata"]["name"] == "podslice-kubectl" and one["kind"] == "Role"
    }
    assert {name: len(rules) for name, rules in roles.items()} == {"podslice": 2, "placing": 4}


def test_what_a_pod_is_given() -> None:
    """Values of the service's pods arrive, and labels of a constraint's own stay."""
    found = by_kind_and_name(
        [
            one
            for one in installed(render(**EVERYTHING))
            if one["metadata"]["name"] != "whole-kubectl" and one["metadata"].get("namespace") != "podslice"
        ]
    )
    template = found["StatefulSet", "whole-cluster"]["spec"]["template"]
    pod, both = template["spec"], containers(found, "whole-cluster")
    assert found["StatefulSet", "whole-cluster"]["metadata"]["namespace"] == "placing"
    assert found["StatefulSet", "whole-cluster"]["spec"]["replicas"] == 3
    assert (pod["nodeSelector"], pod["tolerations"]) == ({"role": "infra"}, [{"operator": "Exists"}])
    assert "podAntiAffinity" in pod["affinity"]
    selected = {"app.kubernetes.io/name": "podslice-cluster", "app.kubernetes.io/instance": "podslice"}
    assert pod["topologySpreadConstraints"] == [{
        "maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": selected},
    }]  # fmt: skip
    assert (pod["priorityClassName"], pod["imagePullSecrets"]) == ("important", [{"name": "registry"}])
    assert template["metadata"]["labels"].items() >= {"a": "b", "team": "nodes"}.items()
    assert template["metadata"]["annotations"]["c"] == "d"
    assert both["cluster"]["env"] == [{"name": "E", "value": "f"}]
    assert {"--compatible=0.0.9", "--compatible=0.0.8", "--log-level=debug", "--plan=honour"} <= set(
        both["cluster"]["args"]
    )
    assert "--agent=system:serviceaccount:podslice:whole-agent" in both["cluster"]["args"]
    assert [both[name]["resources"]["limits"]["memory"] for name in ("cluster", "scheduler")] == ["2Gi", "1Gi"]
    assert found["PodDisruptionBudget", "whole-cluster"]["spec"] == {
        "maxUnavailable": 1,
        "selector": {"matchLabels": selected},
    }
    (rule,) = (
        rule
        for rule in found["NetworkPolicy", "whole-cluster"]["spec"]["ingress"]
        if {"port": "journal"} in rule["ports"]
    )
    assert rule["from"][0]["namespaceSelector"] == {"matchLabels": {"kubernetes.io/metadata.name": "podslice"}}


def test_who_reaches_the_service() -> None:
    """Agents alone, by their labels; agents on the network of their nodes have none that a NetworkPolicy knows."""

    def let_in(**values: Any) -> list[Any]:
        policy = by_kind_and_name(installed(render(**{**ON, **values})))["NetworkPolicy", "podslice-cluster"]
        return [rule.get("from") for rule in policy["spec"]["ingress"] if {"port": "journal"} in rule["ports"]]

    labels = {"app.kubernetes.io/name": "podslice", "app.kubernetes.io/instance": "podslice"}
    assert let_in() == [[{"podSelector": {"matchLabels": labels}}]]
    assert let_in(hostNetwork=True) == [None]


def test_a_budget_needs_a_second_replica() -> None:
    """With one replica a budget would keep its node from being drained."""
    assert ("PodDisruptionBudget", "podslice-cluster") in cluster()
    assert ("PodDisruptionBudget", "podslice-cluster") not in cluster(replicas=1)
    assert ("PodDisruptionBudget", "podslice-cluster") not in cluster(podDisruptionBudget=False)


def test_the_scheduler_can_be_scraped() -> None:
    """kube-scheduler's port has a name, shows the service's certificate, answers for its metrics without a token, and
    is open to those that `metricsFrom` names and nobody else."""
    found = by_kind_and_name(installed(render(**{**ON, "metricsFrom": [{"podSelector": {}}]})))
    scheduler = containers(found)["scheduler"]
    assert scheduler["ports"] == [{"name": "scheduler", "containerPort": 10259}]
    assert "--authorization-always-allow-paths=/healthz,/livez,/readyz,/metrics" in scheduler["args"]
    assert "--tls-cert-file=/etc/podslice-cluster/tls.crt" in scheduler["args"]
    ingress = found["NetworkPolicy", "podslice-cluster"]["spec"]["ingress"]
    opened = [rule["from"] for rule in ingress if {"port": "scheduler"} in rule["ports"]]
    assert opened == [[{"podSelector": {}}]]
    assert not any(
        {"port": "scheduler"} in rule["ports"]
        for rule in cluster()["NetworkPolicy", "podslice-cluster"]["spec"]["ingress"]
    )


def test_older_clusters() -> None:
    """Where tokens do not name their node there is no service; an older kube-scheduler is asked what it answers."""
    assert "1.30 or newer" in refusal("--kube-version=v1.29.4", **ON)
    for version, path in (("v1.30.0", "/healthz"), ("v1.31.0", "/readyz"), ("v1.36.2", "/readyz")):
        probe = containers(cluster(f"--kube-version={version}"))["scheduler"]["readinessProbe"]["httpGet"]
        assert probe == {"path": path, "port": "scheduler", "scheme": "HTTPS"}


def test_an_image_for_the_scheduler_is_needed() -> None:
    """Nobody guesses the cluster's version."""
    assert "cluster.schedulerImage: name the image of kube-scheduler" in refusal(cluster={"enabled": True})


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (
            {"certificates": "secret"},
            "cluster.ca: agents need the certificate of the authority behind podslice-cluster.podslice.svc",
        ),
        ({"certificates": "certManager", "issuer": {"name": "i"}}, "cluster.ca: agents need the certificate"),
        ({"certificates": "self"}, "/cluster/certificates"),
        ({"certificateDays": 1}, "/cluster/certificateDays"),
    ],
)
def test_agents_without_an_authority_are_not_rolled_out(values: Object, said: str) -> None:
    """What would stop at the agents' mount is an error beforehand."""
    assert said in refusal(cluster={**ON["cluster"], **values})


def test_cert_manager_renews_by_itself() -> None:
    """The certificate is cert-manager's, of an authority that Helm makes or of the issuer that the values name."""
    own = by_kind_and_name(installed(render(**CASES["scheduler, cert-manager"])))
    assert own["Issuer", "podslice-cluster"]["spec"]["ca"]["secretName"] == "podslice-cluster-ca"
    assert own["Secret", "podslice-cluster-ca"]["type"] == "kubernetes.io/tls"
    certificate = own["Certificate", "podslice-cluster"]["spec"]
    assert certificate["dnsNames"][0] == "podslice-cluster.podslice.svc"
    assert certificate["secretName"] == "podslice-cluster-tls"
    assert (certificate["duration"], certificate["issuerRef"]) == (
        "8760h",
        {"kind": "Issuer", "name": "podslice-cluster"},
    )
    theirs = by_kind_and_name(installed(render(**CASES["scheduler, an issuer"])))
    assert theirs["Certificate", "podslice-cluster"]["spec"]["issuerRef"] == {"kind": "ClusterIssuer", "name": "i"}
    assert not [kind for kind, _ in theirs if kind in ("Issuer",)]
    assert ("Secret", "podslice-cluster-ca") not in theirs
