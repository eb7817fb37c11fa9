"""A real API server accepts the files of `deploy/`, which give the agent the rights it needs and no others."""

from __future__ import annotations

from typing import Any

import pytest
from e2e.controlplane import Api
from e2e.sharedplane import Cluster, prepare_namespace

from tests.conformance.compare import Json
from tests.conformance.deployed import OTHERS, apply, deploy_rights, manifests, token_of
from tests.deploy.cases import CASES
from tests.deploy.rendering import ON, needs_helm, pod_templates, render

AGENT = {("", "pods", "list"), ("", "pods", "watch"), ("", "pods/status", "patch"), ("", "events", "create")}
APART = {
    ("podslice.io", "nodestates", "create"),
    ("podslice.io", "nodestates/status", "patch"),
    *(("topology.node.k8s.io", "noderesourcetopologies", verb) for verb in ("get", "create", "patch")),
    ("", "nodes", "get"),
    *(("resource.k8s.io", "resourceslices", verb) for verb in ("list", "watch", "create", "update", "delete")),
    ("resource.k8s.io", "resourceclaims", "get"),
    ("resource.k8s.io", "resourceclaims/status", "patch"),
    ("resource.k8s.io", "resourceclaims/driver", "associated-node:patch"),
}
"""What is given to agents that write objects of their node, which other tests may have applied."""
APART_IN_NAMESPACE = {("coordination.k8s.io", "leases", verb) for verb in ("create", "patch")}
"""The same in the agents' namespace alone."""
PEOPLE = {("", "nodes", "get"), ("", "nodes", "list"), ("", "pods", "get"), ("", "events", "list")}
PEOPLE_IN_NAMESPACE = {("", "pods", "list"), ("", "pods/portforward", "get"), ("", "pods/portforward", "create")}


def taken(admin: Api, objects: list[Json]) -> None:
    """By a dry run, with every unknown field an error and not one warning; pods need their service account."""
    for one in sorted(objects, key=lambda one: one["kind"] != "ServiceAccount"):
        if one["apiVersion"] in OTHERS:
            assert one["kind"] in OTHERS[one["apiVersion"]]
            continue
        answer = apply(admin, one, dry_run=one["kind"] != "ServiceAccount")
        assert (answer.code in (200, 201), answer.message, answer.warnings) == (True, "", []), one["kind"]


def test_manifests_are_taken(admin: Api) -> None:
    """The plain manifests, as `kubectl apply --dry-run=server` would send them."""
    prepare_namespace(admin, "podslice")
    objects = manifests(apart=True)
    assert {one["kind"] for one in objects} >= {"DaemonSet", "ClusterRole", "NetworkPolicy", "CustomResourceDefinition"}
    taken(admin, objects)


@needs_helm
@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_charts_are_taken(admin: Api, values: dict[str, Any]) -> None:
    """The chart is accepted with every kind of values."""
    for namespace in ("podslice", "placing"):
        prepare_namespace(admin, namespace)
    taken(admin, render(**values))


@needs_helm
def test_a_restricted_namespace_takes_the_service(admin: Api) -> None:
    """Pods of scheduler and service, and that of `helm test`, are admitted where Pod Security enforces `restricted`;
    agents, which need the node's folders, are not."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "restricted", "labels": labels}}
    assert apply(admin, namespace).code in (200, 201)
    for number, template in enumerate(pod_templates(render(**ON))):
        spec = {**template["spec"], "serviceAccountName": "default"}
        spec.pop("priorityClassName", None)
        account = template["spec"]["serviceAccountName"]
        metadata = {"name": f"pod-{number}", "namespace": "restricted"}
        prepare_namespace(admin, "restricted")
        answer = apply(admin, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, dry_run=True)
        if account == "podslice-agent":
            assert "violates PodSecurity" in answer.message
        else:
            assert (account, answer.code in (200, 201), answer.message, answer.warnings) == (account, True, "", [])


def test_unknown_fields_would_be_refused(admin: Api) -> None:
    """A misspelt field of a manifest does not pass the tests above."""
    prepare_namespace(admin, "podslice")
    (daemon_set,) = [one for one in manifests() if one["kind"] == "DaemonSet"]
    daemon_set["spec"]["template"]["spec"]["hostNetwrk"] = True
    answer = apply(admin, daemon_set, dry_run=True)
    assert answer.code >= 400
    assert "hostNetwrk: field not declared" in answer.message


def rules(cluster: Cluster, token: str, namespace: str) -> set[tuple[str, str, str]]:
    """Everything that token may do with objects in a namespace, as (group, resource, verb); names are not told."""
    review = {"kind": "SelfSubjectRulesReview", "apiVersion": "authorization.k8s.io/v1"}
    path = "/apis/authorization.k8s.io/v1/selfsubjectrulesreviews"
    with cluster.api(token=token) as api:
        status = api.call("POST", path, {**review, "spec": {"namespace": namespace}})["status"]
    return {
        (group, resource, verb)
        for rule in status["resourceRules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


@pytest.mark.parametrize("namespace", ["podslice", "default", "kube-system"])
def test_rights_of_the_agent(cluster: Cluster, admin: Api, namespace: str) -> None:
    """The shipped service account may do the four things that the agent does, anywhere, and nothing else."""
    deploy_rights(admin)
    prepare_namespace(admin, "plain")
    everybody = rules(cluster, token_of(admin, "default", "plain"), namespace)
    apart = APART | APART_IN_NAMESPACE if namespace == "podslice" else APART
    assert rules(cluster, token_of(admin), namespace) - everybody - apart == AGENT


def test_rights_of_people(cluster: Cluster, admin: Api) -> None:
    """Users with the roles for kubectl podslice may read what it reads, and look into the agents' namespace."""
    deploy_rights(admin)
    prepare_namespace(admin, "plain")
    everybody = rules(cluster, token_of(admin, "default", "plain"), "default")
    account = {"metadata": {"name": "person", "namespace": "podslice"}, "apiVersion": "v1", "kind": "ServiceAccount"}
    assert apply(admin, account).code in (200, 201)
    for role, where in (("ClusterRole", {}), ("Role", {"namespace": "podslice"})):
        answer = apply(admin, {
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": f"{role}Binding",
            "metadata": {"name": "person", **where},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": "podslice-kubectl"},
            "subjects": [{"kind": "ServiceAccount", "name": "person", "namespace": "podslice"}],
        })  # fmt: skip
        assert answer.code in (200, 201), answer.message
    token = token_of(admin, "person")
    assert rules(cluster, token, "default") - everybody == PEOPLE
    assert rules(cluster, token, "podslice") - everybody == PEOPLE | PEOPLE_IN_NAMESPACE


def test_what_the_agent_may_not(cluster: Cluster, admin: Api) -> None:
    """Requests with the agent's token: what it does is let through, what an intruder would try is forbidden."""
    deploy_rights(admin)
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    with cluster.api(token=token_of(admin)) as agent:
        for method, path, body in (
            ("GET", "/api/v1/secrets", None),
            ("GET", "/api/v1/nodes", None),
            ("GET", "/api/v1/namespaces/default/pods/p", None),
            ("POST", "/api/v1/namespaces/default/pods", pod),
            ("PATCH", "/api/v1/namespaces/default/pods/p", {}),
            ("PUT", "/api/v1/namespaces/default/pods/p/status", pod),
            ("DELETE", "/api/v1/namespaces/default/pods/p", None),
            ("PATCH", "/api/v1/nodes/one/status", {}),
            ("POST", "/api/v1/namespaces/podslice/serviceaccounts/podslice-agent/token", {}),
            ("GET", "/api/v1/events", None),
        ):
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            assert agent.ask(method, path, body, kind).code == 403, (method, path)
        assert agent.ask("GET", "/api/v1/pods").code == 200
