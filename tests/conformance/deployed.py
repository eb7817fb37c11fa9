"""The files of `deploy/`, applied to a real API server as kubectl would."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import yaml
from e2e.controlplane import APPLY, Answer, Api
from e2e.scheduling import eventually

from tests.conformance.compare import Json

FOLDER = Path(__file__).parents[2] / "deploy" / "manifests"
OTHERS = {
    "monitoring.coreos.com/v1": ("PodMonitor", "ServiceMonitor", "PrometheusRule"),
    "cert-manager.io/v1": ("Issuer", "Certificate"),
}
"""Kinds of the Prometheus operator and of cert-manager, which are not part of Kubernetes."""
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
"""For names of nodes: no two workers have tests on the same one."""
_HALF_A_DAY = 12 * 3600
_PATHS = {
    "Namespace": ("/api/v1", "namespaces", False),
    "ServiceAccount": ("/api/v1", "serviceaccounts", True),
    "ConfigMap": ("/api/v1", "configmaps", True),
    "Secret": ("/api/v1", "secrets", True),
    "Pod": ("/api/v1", "pods", True),
    "PodDisruptionBudget": ("/apis/policy/v1", "poddisruptionbudgets", True),
    "Service": ("/api/v1", "services", True),
    "StatefulSet": ("/apis/apps/v1", "statefulsets", True),
    "DaemonSet": ("/apis/apps/v1", "daemonsets", True),
    "NetworkPolicy": ("/apis/networking.k8s.io/v1", "networkpolicies", True),
    "CustomResourceDefinition": ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", False),
    "ClusterRole": ("/apis/rbac.authorization.k8s.io/v1", "clusterroles", False),
    "ClusterRoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "clusterrolebindings", False),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles", True),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings", True),
    "DeviceClass": ("/apis/resource.k8s.io/v1", "deviceclasses", False),
    "ValidatingAdmissionPolicy": ("/apis/admissionregistration.k8s.io/v1", "validatingadmissionpolicies", False),
    "ValidatingAdmissionPolicyBinding": (
        "/apis/admissionregistration.k8s.io/v1",
        "validatingadmissionpolicybindings",
        False,
    ),
}
APART = ("agents-with-scheduler.yaml", "dra.yaml", "nodestate.yaml", "noderesourcetopology.yaml")
"""What only some apply; tests about it bring it."""
RIGHTS = ("Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role")


def manifests(*, apart: bool = False) -> list[Json]:
    return [
        document
        for path in sorted(FOLDER.glob("*.yaml"))
        if path.name not in APART or apart
        for document in yaml.safe_load_all(path.read_text())
        if document
    ]


def apply(api: Api, document: Json, *, dry_run: bool = False) -> Answer:
    """`kubectl apply --server-side`, every unknown field an error."""
    base, plural, namespaced = _PATHS[document["kind"]]
    metadata = document["metadata"]
    where = f"{base}/namespaces/{metadata['namespace']}" if namespaced else base
    options = "?fieldManager=podslice-tests&force=true&fieldValidation=Strict" + ("&dryRun=All" if dry_run else "")
    return api.ask("PATCH", f"{where}/{plural}/{metadata['name']}{options}", document, APPLY)


def deploy(api: Api, *documents: Json) -> None:
    """Apply all of it, until the agent has the rights that this gives it: the API server takes a moment."""
    for document in documents:
        answer = apply(api, document)
        assert answer.code in (200, 201), answer.message
    roles = {(one["kind"], one["metadata"]["name"]): one["rules"] for one in documents if "rules" in one}
    for one in documents:
        if one["kind"].endswith("RoleBinding") and one["subjects"][0]["name"] == "podslice-agent":
            namespace = one["metadata"].get("namespace", "")
            for rule in roles[one["roleRef"]["kind"], one["roleRef"]["name"]]:
                eventually(lambda rule=rule, namespace=namespace: _has(api, rule, namespace), f"the agent lacks {rule}")


def _has(api: Api, rule: Json, namespace: str) -> bool:
    """In that namespace, empty for all of them."""
    resource, _, subresource = rule["resources"][-1].partition("/")
    asked = {
        "group": rule["apiGroups"][-1],
        "resource": resource,
        "subresource": subresource,
        "verb": rule["verbs"][-1],
        "namespace": namespace,
        "name": rule.get("resourceNames", [""])[-1],
    }
    spec = {"user": "system:serviceaccount:podslice:podslice-agent", "resourceAttributes": asked}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
    answer = api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])


def deploy_rights(api: Api) -> None:
    """The agent's service account with its rights, and the role for users of kubectl podslice."""
    first = sorted(manifests(), key=lambda one: one["kind"] != "Namespace")
    deploy(api, *(one for one in first if one["kind"] in RIGHTS))


def token_of(api: Api, account: str = "podslice-agent", namespace: str = "podslice", **spec: Any) -> str:
    """A token as the kubelet gets it for a pod of that service account; nobody renews it, so it is good for a long
    campaign."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    found: str = api.call("POST", path, {"spec": {"expirationSeconds": _HALF_A_DAY, **spec}})["status"]["token"]
    return found
