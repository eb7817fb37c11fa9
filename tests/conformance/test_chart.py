"""Helm and a real API server: upgrades from older charts, certificates that are made, kept and renewed, who reads their
keys, and what an uninstall leaves."""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from e2e.certificates import make
from e2e.controlplane import ACCOUNTS, ADMIN, APPLY, MERGE, Api, ControlPlane, Settings
from e2e.programs import find_programs
from e2e.scheduling import eventually

from tests.conformance.compare import Json
from tests.deploy.cases import CLAIMS
from tests.deploy.history import STATES, chart_of
from tests.deploy.rendering import CHART, HELM, needs_helm
from tests.shell import podslice_process

pytestmark = [pytest.mark.slow, needs_helm]
CONTROLLERS = (*ACCOUNTS, "daemonset-controller", "namespace-controller", "garbage-collector-controller")
CORE, APPS = "/api/v1/namespaces/podslice", "/apis/apps/v1/namespaces/podslice"
HOST = "podslice-cluster.podslice.svc"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/podslice/leases/podslice-scheduler"
IMAGE = {"digest": "sha256:" + "1" * 64}
SCHEDULER = {"enabled": True, "schedulerImage": "registry.k8s.io/kube-scheduler:v1.36.2"}
UNSCOPED = {
    "rbac.authorization.k8s.io": ("clusterroles", "clusterrolebindings"),
    "admissionregistration.k8s.io": ("validatingadmissionpolicies", "validatingadmissionpolicybindings"),
    "resource.k8s.io": ("deviceclasses",),
}


class Release:
    """One release `podslice` in the namespace `podslice`."""

    def __init__(self, folder: Path, plane: ControlPlane, api: Api) -> None:
        self.api, self.plane = api, plane
        config = folder / "kubeconfig"
        config.write_text(json.dumps(plane.kubeconfig(ADMIN)))
        self._options = ("--namespace=podslice", f"--kubeconfig={config}")

    def helm(self, *arguments: str, **values: Any) -> subprocess.CompletedProcess[str]:
        command = [str(HELM), *arguments, *self._options, *(["--values=-"] if values else [])]
        return subprocess.run(command, input=json.dumps(values), capture_output=True, text=True)

    def done(self, *arguments: str, **values: Any) -> str:
        ran = self.helm(*arguments, **values)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def refused(self, *arguments: str, **values: Any) -> str:
        """What Helm says; nothing has changed."""
        before = [self.get(path) for path in WORKLOADS]
        ran = self.helm(*arguments, **values)
        assert ran.returncode != 0
        assert [self.get(path) for path in WORKLOADS] == before
        return ran.stderr

    def may(self, user: str, groups: list[str], verb: str, resource: str, name: str = "", group: str = "") -> bool:
        """Whether the API server lets a user do that in the release's namespace."""
        resource, _, subresource = resource.partition("/")
        asked = {"verb": verb, "resource": resource, "name": name, "namespace": "podslice", "group": group}
        spec = {"user": user, "groups": groups, "resourceAttributes": {**asked, "subresource": subresource}}
        review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        answer = self.api.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
        return bool(answer["status"]["allowed"])

    def get(self, path: str) -> Json:
        answer = self.api.ask("GET", path)
        return answer.body if answer.code == 200 else {}


WORKLOADS = (f"{APPS}/daemonsets/podslice-agent", f"{APPS}/statefulsets/podslice-cluster")
TLS, AUTHORITY = f"{CORE}/secrets/podslice-cluster-tls", f"{CORE}/configmaps/podslice-cluster-ca"


@pytest.fixture
def release(programs: None, tmp_path: Path) -> Iterator[Release]:
    settings = Settings(controllers=CONTROLLERS)
    with ControlPlane(find_programs(), tmp_path / "plane", settings) as plane, plane.api() as api:
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "podslice"}})
        yield Release(tmp_path, plane, api)


def put_secret(release: Release, folder: Path, name: str, *, with_authority: bool = True) -> str:
    """A certificate of an authority of its own, which is returned."""
    files = make(folder / name, name=f"DNS:{HOST}")
    parts = {
        "tls.crt": files.certificate,
        "tls.key": files.key,
        **({"ca.crt": files.authority} if with_authority else {}),
    }
    data = {key: b64encode(path.read_bytes()).decode() for key, path in parts.items()}
    release.api.call("POST", f"{CORE}/secrets", {"metadata": {"name": name}, "type": "kubernetes.io/tls", "data": data})
    return files.authority.read_text()


@pytest.mark.parametrize(
    "state", ["2026-11-23, before the order of claims", "2026-11-27, before pools and certificates"]
)
def test_upgrade_from_an_older_chart(release: Release, tmp_path: Path, state: str) -> None:
    """With `--reuse-values` everything goes on with the Secret that is there; with the new defaults Helm says what to
    write; with an edited file of values it does what that says. Selectors stay, so the workloads are the same ones."""
    old = chart_of(STATES[state], tmp_path / "old")
    authority = put_secret(release, tmp_path, "podslice-cluster-tls")
    values = {"image": IMAGE, "cluster": SCHEDULER, "dra": {"enabled": True}, "agent": {"policy": CLAIMS}}
    release.done("install", "podslice", str(old), **values)
    before = [release.get(path) for path in WORKLOADS]
    edited = yaml.safe_load((old / "values.yaml").read_text()) | {"image": {**IMAGE, "repository": "podslice"}}
    edited["cluster"] |= SCHEDULER
    said = "set cluster.certificates=secret to go on with it"
    assert said in release.refused("upgrade", "podslice", str(CHART), "--reset-then-reuse-values")
    assert said in release.refused("upgrade", "podslice", str(CHART), **edited)
    edited["cluster"]["certificates"] = "secret"
    for options, given in (
        (["--reuse-values"], {}),
        (["--reset-then-reuse-values", "--set=cluster.certificates=secret"], {}),
        ([], edited),
    ):
        release.done("upgrade", "podslice", str(CHART), *options, **given)
        now = [release.get(path) for path in WORKLOADS]
        assert [one["metadata"]["uid"] for one in now] == [one["metadata"]["uid"] for one in before]
        assert [one["spec"]["selector"] for one in now] == [one["spec"]["selector"] for one in before]
        assert now[0]["metadata"]["generation"] > before[0]["metadata"]["generation"]
        assert release.get(AUTHORITY)["data"]["ca.crt"].strip() == authority.strip()
        release.done("rollback", "podslice", "1")
    assert release.get(TLS)


def start_pod(release: Release, path: str, name: str, node: str) -> None:
    """A pod of the workload at `path`, on a node."""
    spec = release.get(path)["spec"]["template"]["spec"]
    body = {"metadata": {"name": name}, "spec": {**spec, "nodeName": node}}
    release.api.call("POST", f"{CORE}/pods", body)


def test_who_reads_the_keys(release: Release, tmp_path: Path) -> None:
    """A node with agents alone reads the authority and no key; one with the service reads its key, and nobody the
    authority's. The service's token is good for what `podslice cluster --check-config` looks for, and not for what
    kube-scheduler does."""
    release.done("install", "podslice", str(CHART), image=IMAGE, cluster=SCHEDULER)
    for node in ("n1", "n2"):
        release.api.call("POST", "/api/v1/nodes", {"metadata": {"name": node}})
        start_pod(release, WORKLOADS[0], f"agent-{node}", node)
    start_pod(release, WORKLOADS[1], "podslice-cluster-9", "n1")

    def read(node: str, kind: str, name: str) -> bool:
        return release.may(f"system:node:{node}", ["system:nodes"], "get", kind, f"podslice-cluster-{name}")

    eventually(lambda: read("n1", "secrets", "tls"), "the service's node reads its certificate")
    eventually(lambda: read("n2", "configmaps", "ca"), "an agent's node reads the authority")
    assert read("n1", "secrets", "token")
    assert not read("n2", "secrets", "tls")
    assert not read("n2", "secrets", "token")
    assert not read("n1", "secrets", "ca")
    token = eventually(lambda: release.get(f"{CORE}/secrets/podslice-cluster-token")["data"].get("token"), "no token")
    with Api(release.plane.port, release.plane.authority, b64decode(token).decode()) as service:
        assert service.ask("GET", "/api/v1/pods").code == 200
        assert service.ask("DELETE", f"{CORE}/pods/agent-n1").code == 403
        assert service.ask("GET", f"{CORE}/secrets/podslice-cluster-tls").code == 403
        assert service.ask("PUT", LEASE, {}).code == 403
    config = tmp_path / "service.kubeconfig"
    config.write_text(json.dumps(release.plane.kubeconfig_of(b64decode(token).decode())))
    template = release.get(WORKLOADS[1])["spec"]["template"]["spec"]
    (container,) = (one for one in template["containers"] if one["name"] == "cluster")
    files = make(tmp_path / "tls", name=f"DNS:{HOST}").certificate.parent
    args = [one.replace("/etc/podslice-cluster", str(files)) for one in container["args"]]
    args = [re.sub(r"address=[\d.]+:\d+", "address=127.0.0.1:0", one) for one in args]
    checked = podslice_process(*args, "--address=127.0.0.1:0", "--check-config", KUBECONFIG=str(config))
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert "not checked" not in checked.stdout
    account = "system:serviceaccount:podslice:podslice-"
    assert release.may(f"{account}scheduler", [], "delete", "pods")
    lease = ("leases", "podslice-scheduler", "coordination.k8s.io")
    assert release.may(f"{account}cluster", [], "get", *lease)
    assert not release.may(f"{account}cluster", [], "update", *lease)
    for name in ("agent", "cluster", "scheduler"):
        for verb, resource in (("get", "secrets"), ("create", "serviceaccounts/token"), ("create", "pods/exec")):
            assert not release.may(f"{account}{name}", [], verb, resource), (name, verb, resource)


def left(release: Release) -> set[str]:
    """Names of the objects that have to do with podslice."""
    found = set()
    for group, plurals in UNSCOPED.items():
        for plural in plurals:
            found |= {one["metadata"]["name"] for one in release.get(f"/apis/{group}/v1/{plural}")["items"]}
    for path in (f"{CORE}/secrets", f"{CORE}/configmaps", f"{CORE}/serviceaccounts", f"{CORE}/services"):
        found |= {one["metadata"]["name"] for one in release.get(path)["items"]}
    for plural in ("daemonsets", "statefulsets"):
        found |= {one["metadata"]["name"] for one in release.get(f"{APPS}/{plural}")["items"]}
    return {name for name in found if "podslice" in name and not name.startswith("sh.helm")}


def test_an_uninstall_leaves_what_it_says(release: Release) -> None:
    """The notes of the installation name the kind NodeState; of everything else nothing is left."""
    claims = {"dra": {"enabled": True}, "agent": {"policy": CLAIMS, "nodeResourceTopology": "own"}}
    notes = release.done("install", "podslice", str(CHART), image=IMAGE, cluster=SCHEDULER, **claims)
    assert "`helm uninstall` leaves the kind NodeState with its objects" in notes
    assert len(left(release)) == 18
    release.done("uninstall", "podslice")
    assert left(release) == set()
    assert release.get("/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodestates.podslice.io")


def certificate(release: Release) -> str:
    return b64decode(release.get(TLS)["data"]["tls.crt"]).decode()


def vouched_for(release: Release, folder: Path) -> bool:
    """Whether the authority that agents know vouches for the service's certificate."""
    (folder / "ca.crt").write_text(release.get(AUTHORITY)["data"]["ca.crt"])
    (folder / "tls.crt").write_text(certificate(release))
    command = ["openssl", "verify", "-x509_strict", "-verify_hostname", HOST, "-CAfile", "ca.crt", "tls.crt"]
    return subprocess.run(command, cwd=folder, capture_output=True).returncode == 0


def test_certificates_are_made_kept_and_renewed(release: Release, tmp_path: Path) -> None:
    """Upgrades keep the certificate until two thirds of its days are over, or there are to be fewer; then there is
    another one, of the same authority."""
    upgrade = ("upgrade", "podslice", str(CHART), "--reset-then-reuse-values")
    release.done("install", "podslice", str(CHART), image=IMAGE, cluster=SCHEDULER)
    first, authority = certificate(release), release.get(AUTHORITY)["data"]
    assert vouched_for(release, tmp_path)
    release.done(*upgrade)
    assert certificate(release) == first
    for change in ({"podslice.io/renew-after": "1"}, None):
        if change:
            release.api.call("PATCH", TLS, {"metadata": {"annotations": change}}, MERGE)
        before = certificate(release)
        release.done(*upgrade, "--force-conflicts" if change else "--set=cluster.certificateDays=30")
        assert certificate(release) != before
        assert release.get(AUTHORITY)["data"] == authority
        assert vouched_for(release, tmp_path)


def test_what_would_stop_the_agents_is_an_error_before(release: Release, tmp_path: Path) -> None:
    """A Secret or an authority that is not there, or not whole, is named, and nothing is changed."""
    upgrade = ("upgrade", "podslice", str(CHART), "--reset-then-reuse-values", "--set=cluster.certificates=secret")
    release.done("install", "podslice", str(CHART), image=IMAGE)
    on = ("--set=cluster.enabled=true", f"--set=cluster.schedulerImage={SCHEDULER['schedulerImage']}")
    said = release.refused(*upgrade, *on)
    assert "the Secret podslice/podslice-cluster-tls, which cluster.certificates=secret asks for, is not there" in said
    put_secret(release, tmp_path, "without", with_authority=False)
    mine = (*upgrade, *on, "--set=cluster.tlsSecret=without")
    assert "cluster.ca: agents need the certificate of the authority" in release.refused(*mine)
    said = release.refused(*mine, "--set=cluster.caConfigMap=authority")
    assert "the ConfigMap podslice/authority is not there or has no ca.crt, so no agent could start" in said
    release.api.call("POST", f"{CORE}/configmaps", {"metadata": {"name": "authority"}, "data": {"ca.crt": "x"}})
    release.done(*mine, "--set=cluster.caConfigMap=authority")
    release.done("upgrade", "podslice", str(CHART), image=IMAGE, cluster=SCHEDULER)
    assert "Helm made the Secret podslice/podslice-cluster-tls" in release.refused(*upgrade)


def test_the_kinds_next_state_reads_older_objects(release: Release, tmp_path: Path) -> None:
    """A NodeState that was written under an older chart's kind is there, as it was, under this one's: the version is
    the same, and fields are only added."""
    kind = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    state = {"epoch": 3, "sequence": 5, "allocation": "a", "named": "b", "version": "0.0.9", "encoding": "zlib+base64"}
    for number, commit in enumerate(list(STATES.values())[1:]):
        old = yaml.safe_load((chart_of(commit, tmp_path / str(number)) / "crds/nodestates.yaml").read_text())
        new = yaml.safe_load((CHART / "crds/nodestates.yaml").read_text())
        name = f"{kind}/{new['metadata']['name']}"
        release.api.call("PATCH", f"{name}?fieldManager=helm&force=true", old, APPLY)
        node = f"/apis/podslice.io/v1alpha1/nodestates/n{number}"
        base = {"apiVersion": "podslice.io/v1alpha1", "kind": "NodeState", "metadata": {"name": f"n{number}"}}
        made = partial(release.api.ask, "POST", "/apis/podslice.io/v1alpha1/nodestates", base)
        eventually(lambda made=made: made().code in (201, 409), "the kind is not served")
        release.api.call("PATCH", f"{node}/status", {"status": state}, MERGE)
        release.api.call("PATCH", f"{name}?fieldManager=kubectl&force=true", new, APPLY)
        assert release.get(node)["status"] == state
