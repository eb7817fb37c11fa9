"""Who can read and do what with what the chart installs: nodes, service accounts, people."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest

from tests.deploy.cases import CASES
from tests.deploy.rendering import Object, by_kind_and_name, installed, needs_helm, pod_templates, render

pytestmark = needs_helm
ROLES = ("Role", "ClusterRole")
_VOLUMES = {"configMap", "downwardAPI", "emptyDir", "projected", "secret"}
"""Volumes that the Pod Security level `restricted` allows, of those the chart has."""


@pytest.fixture(params=CASES.values(), ids=CASES)
def objects(request: pytest.FixtureRequest) -> list[Object]:
    return render(**request.param)


def secrets_of(part: Any) -> Iterator[str]:
    """Secrets that a pod names, anywhere: a kubelet can read the whole of each."""
    if isinstance(part, dict):
        for name, value in part.items():
            if name == "secret" and "secretName" in value:
                yield value["secretName"]
            elif name in ("secret", "secretRef", "secretKeyRef"):
                yield value["name"]
            elif name == "imagePullSecrets":
                yield from (one["name"] for one in value)
            else:
                yield from secrets_of(value)
    elif isinstance(part, list):
        for one in part:
            yield from secrets_of(one)


def account_of(template: Object) -> str:
    return str(template["spec"]["serviceAccountName"])


def readers(objects: list[Object]) -> dict[str, set[str]]:
    """By Secret, the service accounts of pods whose nodes read it, and roles with the right to."""
    found: dict[str, set[str]] = defaultdict(set)
    for template in pod_templates(objects):
        for secret in secrets_of(template["spec"]):
            found[secret].add(f"nodes of {account_of(template)}")
    for role in objects:
        if role["kind"] in ROLES:
            for rule in role["rules"] or ():
                if {"secrets", "*"} & set(rule["resources"]):
                    for secret in rule["resourceNames"]:  # no role reads all Secrets
                        found[secret].add(f"role {role['metadata']['name']}")
    return found


def test_keys_stay_where_they_belong(objects: list[Object]) -> None:
    """The service's key and its account's token are read by nodes with its pods alone, the authority's key by nobody,
    and the nodes of agents read what is theirs: how images are fetched, and the token of readers of the status."""
    found = readers(objects)
    made = {one["metadata"]["name"]: one for one in objects if one["kind"] == "Secret"}
    for name, secret in made.items():
        with_key = secret["type"] == "kubernetes.io/tls"
        assert with_key or secret["type"] == "kubernetes.io/service-account-token"
        expected = set() if name.endswith("-cluster-ca") else {f"nodes of {scheduler_account(objects)}"}
        assert found[name] == expected, name
    for secret, who in found.items():
        if any(one.startswith("nodes of ") and one.endswith("-agent") for one in who):
            assert secret in ("registry", "status")


def scheduler_account(objects: list[Object]) -> str:
    (found,) = {account_of(one["spec"]["template"]) for one in objects if one["kind"] == "StatefulSet"}
    return found


@pytest.mark.parametrize(
    "mode", ["scheduler", "scheduler, cert-manager", "scheduler, an issuer", "scheduler, own Secret"]
)
def test_agents_get_the_authority_alone(mode: str) -> None:
    """However the certificate is made, it is in a Secret that only the service's pods mount, and agents mount a
    ConfigMap."""
    objects = render(**CASES[mode])
    found = by_kind_and_name(objects)
    pod = found["StatefulSet", "podslice-cluster"]["spec"]["template"]["spec"]
    (tls,) = (one["secret"] for one in pod["volumes"] if one["name"] == "tls")
    assert readers(objects)[tls["secretName"]] == {"nodes of podslice-scheduler"}
    agent = found["DaemonSet", "podslice-agent"]["spec"]["template"]["spec"]
    (authority,) = (one["configMap"]["name"] for one in agent["volumes"] if one["name"] == "cluster-ca")
    if "own Secret" in mode:
        assert (authority, tls["secretName"]) == ("authority", "mine")
    else:
        assert set(found["ConfigMap", authority]["data"]) == {"ca.crt"}
        assert "PRIVATE" not in found["ConfigMap", authority]["data"]["ca.crt"]


def test_scheduler_and_service_have_accounts_of_their_own(objects: list[Object]) -> None:
    """kube-scheduler's rights are bound to one account, the service's to another; each container mounts the token of
    its own."""
    bound: dict[str, set[str]] = defaultdict(set)
    for one in objects:
        if one["kind"] in ("RoleBinding", "ClusterRoleBinding"):
            (subject,) = one["subjects"]
            bound[subject["name"]].add(one["roleRef"]["name"])
    sets = [one for one in objects if one["kind"] == "StatefulSet"]
    if not sets:
        assert not any("scheduler" in name or "cluster" in name for name in bound)
        return
    (name,) = (one["metadata"]["name"].removesuffix("-cluster") for one in sets)
    assert bound[f"{name}-cluster"] == {f"{name}-cluster"}  # a ClusterRole, and a Role to read the scheduler's Lease
    assert bound[f"{name}-scheduler"] == {f"{name}-scheduler", "system:kube-scheduler", "system:volume-scheduler"}
    pod = sets[0]["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == (f"{name}-scheduler", False)
    tokens = {
        container["name"]: [one["name"] for one in container["volumeMounts"] if "serviceaccount" in one["mountPath"]]
        for container in pod["containers"]
    }
    assert tokens == {"scheduler": ["scheduler-account"], "cluster": ["cluster-account"]}
    volumes = {one["name"]: one for one in pod["volumes"]}
    token = volumes["cluster-account"]["secret"]["secretName"]
    (secret,) = (one for one in objects if one["kind"] == "Secret" and one["metadata"]["name"] == token)
    assert secret["metadata"]["annotations"] == {"kubernetes.io/service-account.name": f"{name}-cluster"}


def test_no_account_gets_more_than_it_needs(objects: list[Object]) -> None:
    """No account of the chart reads Secrets, makes tokens, or runs pods or commands, and none has a wildcard."""
    roles = {(one["kind"], one["metadata"]["name"]): one for one in objects if one["kind"] in ROLES}
    for one in objects:
        if not one["kind"].endswith("Binding") or one["kind"] == "ValidatingAdmissionPolicyBinding":
            continue
        role = roles.get((one["roleRef"]["kind"], one["roleRef"]["name"]))
        assert role or one["roleRef"]["name"] in ("system:kube-scheduler", "system:volume-scheduler")
        for rule in (role or {}).get("rules") or ():
            assert "*" not in rule["resources"] + rule["verbs"] + rule["apiGroups"]
            assert not {"secrets", "serviceaccounts/token", "pods/exec"} & set(rule["resources"])
            assert not ("pods" in rule["resources"] and {"create", "delete", "patch", "update"} & set(rule["verbs"]))


def test_the_services_namespace_can_be_restricted(objects: list[Object]) -> None:
    """The pods of scheduler, service and test pass the Pod Security level `restricted`; a namespace that the chart
    makes enforces it."""
    for one in objects:
        if one["kind"] == "Namespace":
            assert one["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    for template in pod_templates(objects):
        spec = template["spec"]
        if account_of(template).endswith("-agent"):
            continue
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert all(set(one) - {"name"} <= _VOLUMES for one in spec["volumes"])
        for container in spec["containers"]:
            security = container["securityContext"]
            assert (security["runAsNonRoot"], security["allowPrivilegeEscalation"]) == (True, False)
            assert security["readOnlyRootFilesystem"]
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert security["seccompProfile"] == {"type": "RuntimeDefault"}


def test_names_carry_the_releases_name() -> None:
    """Two releases, in one namespace, share no object, and no selector of the one finds a pod of the other. What a
    cluster has once is turned off in the second."""
    values = {**CASES["everything"], "nameOverride": "", "fullnameOverride": "", "pools": []}
    values["cluster"] = {**values["cluster"], "createNamespace": False}
    one, two = (installed(render(release=name, **values)) for name in ("podslice", "b"))
    first, second = keys(one), keys(two)
    assert {name.removeprefix("podslice-") for *_, name in first} == {
        name.removeprefix("b-podslice-") for *_, name in second
    }
    assert not first & second
    for selecting, others in ((one, two), (two, one)):
        labels = [template["metadata"]["labels"] for template in pod_templates(others)]
        own = [template["metadata"]["labels"] for template in pod_templates(selecting)]
        for selector in selectors(selecting):
            assert not any(selector.items() <= found.items() for found in labels), selector
            services = [found["metadata"]["labels"] for found in selecting if found["kind"] == "Service"]
            assert any(selector.items() <= found.items() for found in own + services), selector


def keys(objects: list[Object]) -> set[tuple[str, str, str]]:
    found = {(one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]) for one in objects}
    assert len(found) == len(objects)
    return found


def selectors(objects: list[Object]) -> Iterator[dict[str, str]]:
    for one in objects:
        spec = one.get("spec", {})
        if one["kind"] == "Service":
            yield spec["selector"]
        elif one["kind"] == "NetworkPolicy":
            yield spec["podSelector"]["matchLabels"]
        elif "selector" in spec:
            yield spec["selector"]["matchLabels"]


@pytest.mark.parametrize(
    ("values", "release", "name"),
    [
        ({}, "podslice", "podslice"),
        ({}, "podslice-fast", "podslice-fast"),
        ({}, "fast", "fast-podslice"),
        ({"nameOverride": "slicer"}, "fast", "fast-slicer"),
        ({"fullnameOverride": "whole"}, "fast", "whole"),
    ],
)
def test_names(values: dict[str, str], release: str, name: str) -> None:
    """The names that overrides and releases give; the labels by which kubectl podslice finds pods stay."""
    for one in installed(render(release=release, **values)):
        assert one["metadata"]["name"].startswith(f"{name}-"), one["kind"]
        labels = one["metadata"]["labels"]
        assert labels["app.kubernetes.io/name"] == "podslice"
        assert labels["app.kubernetes.io/instance"] == release
        assert (labels["app.kubernetes.io/managed-by"], labels["helm.sh/chart"]) == ("Helm", "podslice-0.1.0")
        assert labels["app.kubernetes.io/version"] == "0.1.0"
