"""The commands of the operator's guides, as written, with real kubectl and Helm against a real API server."""

from __future__ import annotations

import json
import os
import re
import subprocess
from base64 import b64decode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from e2e.clienttools import HOW, find
from e2e.controlplane import ACCOUNTS, ADMIN, Api, ControlPlane, Settings
from e2e.programs import find_programs

ROOT = Path(__file__).parents[2]
TOOLS = find("helm"), find("kubectl")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(None in TOOLS, reason=HOW),
]
NEW = "ab" * 32
CONTROLLERS = (*ACCOUNTS, "daemonset-controller", "namespace-controller")
DAEMON_SET = "/apis/apps/v1/namespaces/podslice/daemonsets/podslice-agent"
FIRST = "registry.example/podslice@sha256:4f53cda18c2baa0c0354bb5f9a3ecbe5ed12ab4d8e11ba873c2f11161202b945"
SECOND = f"registry.example/podslice@sha256:{NEW}"


class Statement(NamedTuple):
    """A command of the guide with the heading it is under."""

    section: str
    text: str


def statements(name: str = "agent.md") -> Iterator[Statement]:
    """Every command in the `sh` blocks, continued lines, loops and here-documents with it."""
    page = (ROOT / "docs" / name).read_text()
    section = ""
    for heading, block in re.findall(r"^#+ ([^\n]*)$|^```sh\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        section = heading or section
        pattern = r"(?:.*<<'(\w+)'\n(?:.*\n)*?\1\n)|(?:for .*\n(?:.*\n)*?done\n)|(?:(?:.*\\\n)*.*\n)"
        for match in re.finditer(pattern, block):
            yield Statement(section, match[0])


class Shell:
    """Runs commands in a folder with `deploy`, with the variables that earlier ones set."""

    def __init__(self, folder: Path, plane: ControlPlane) -> None:
        self._folder = folder
        (folder / "deploy").symlink_to(ROOT / "deploy")
        (folder / "kubeconfig").write_text(json.dumps(plane.kubeconfig(ADMIN)))
        path = os.pathsep.join([*{str(tool.parent) for tool in TOOLS if tool}, os.environ["PATH"]])
        self._environment = {
            "PATH": path, "KUBECONFIG": str(folder / "kubeconfig"), "HOME": str(folder), "NEW": NEW, "NODE": "n1"
        }  # fmt: skip
        self._variables = ""

    def run(self, text: str) -> str:
        """Return the output of a command, which must succeed."""
        if re.match(r"[A-Z]+=\S*$", text.strip()):
            self._variables += text
        command = ["bash", "-eu", "-o", "pipefail", "-c", self._variables + text]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=self._folder, env=self._environment)
        assert ran.returncode == 0, f"{text}: {ran.stdout}{ran.stderr}"
        return ran.stdout


@pytest.fixture
def plane(programs: None, tmp_path: Path) -> Iterator[ControlPlane]:
    with ControlPlane(find_programs(), tmp_path / "plane", Settings(controllers=CONTROLLERS)) as running:
        yield running


class Installed(NamedTuple):
    """The agents' image, and whether they only observe; an image of "" where there are none."""

    image: str
    observe: bool


def agents(api: Api) -> Installed:
    answer = api.ask("GET", DAEMON_SET)
    if answer.code == 404:
        return Installed("", observe=False)
    (container,) = answer.body["spec"]["template"]["spec"]["containers"]
    return Installed(container["image"], "--observe" in container["args"])


def walk(plane: ControlPlane, folder: Path, chosen: Iterable[Statement]) -> list[Installed]:
    """Run the statements, what removes the agents at the end; what was installed, each time it changed."""
    shell, seen = Shell(folder, plane), []
    with plane.api() as api:
        for statement in sorted(chosen, key=lambda one: "uninstall" in one.text or "delete -f" in one.text):
            if " drain " in statement.text:
                api.call("POST", "/api/v1/nodes", {"metadata": {"name": "n1"}})
            shell.run(statement.text)
            if " drain " in statement.text:
                assert api.call("GET", "/api/v1/nodes/n1")["spec"]["unschedulable"]
            if " uncordon " in statement.text:
                assert not api.call("GET", "/api/v1/nodes/n1")["spec"].get("unschedulable")
                api.call("DELETE", "/api/v1/nodes/n1")
            now = agents(api)
            if now != (seen[-1] if seen else Installed("", observe=False)):
                seen.append(now)
    return seen


def of_helm(statement: Statement) -> bool:
    return statement.section == "With Helm" or statement.text.startswith("helm ")


def test_guide_with_the_manifests(plane: ControlPlane, tmp_path: Path) -> None:
    """Installing, observing, upgrading, rolling back, draining and removing with kubectl do what the guide says."""
    seen = walk(plane, tmp_path, (one for one in statements() if not of_helm(one)))
    assert seen == [
        Installed(FIRST, observe=False),
        Installed(FIRST, observe=True),
        Installed(FIRST, observe=False),
        Installed(SECOND, observe=False),
        Installed(FIRST, observe=False),
        Installed("", observe=False),
    ]


def test_guide_with_helm(plane: ControlPlane, tmp_path: Path) -> None:
    """Installing, upgrading, rolling back, adding what the Prometheus operator reads, and removing with Helm do so."""
    with plane.api() as api:
        for kind in ("PodMonitor", "PrometheusRule"):
            api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(kind))
    seen = walk(plane, tmp_path, (one for one in statements() if of_helm(one)))
    assert seen == [
        Installed(FIRST, observe=True),
        Installed(FIRST, observe=False),
        Installed(SECOND, observe=False),
        Installed(FIRST, observe=False),
        Installed("", observe=False),
    ]


WORKLOADS = {
    "podslice-agent": "/apis/apps/v1/namespaces/podslice/daemonsets/podslice-agent",
    "podslice-cluster": "/apis/apps/v1/namespaces/podslice/statefulsets/podslice-cluster",
}
KIND = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodestates.podslice.io"


CERT_MANAGER = "cert-manager.io"


def certificate_of(api: Api) -> tuple[str, bool, bool]:
    """The Secret with the service's certificate, whether Helm made it, and whether cert-manager is to."""
    found = api.ask("GET", WORKLOADS["podslice-cluster"]).body
    volumes = found["spec"]["template"]["spec"]["volumes"] if "spec" in found else []
    name = next((one["secret"]["secretName"] for one in volumes if one["name"] == "tls"), "")
    secret = api.ask("GET", f"/api/v1/namespaces/podslice/secrets/{name or 'none'}").body
    by_helm = secret.get("metadata", {}).get("labels", {}).get("app.kubernetes.io/managed-by") == "Helm"
    return name, by_helm, is_there(api, f"/apis/{CERT_MANAGER}/v1/namespaces/podslice/certificates/podslice-cluster")


def is_there(api: Api, path: str) -> bool:
    return api.ask("GET", path).code == 200


def test_scheduler_with_helm(plane: ControlPlane, tmp_path: Path) -> None:
    """Beside agents that are there, the scheduler comes, changes who makes its certificate, and goes with the commands
    of its page; after those of Remove nothing of it is left."""
    shell = Shell(tmp_path, plane)
    install, *_ = (one for one in statements() if one.section == "With Helm" and "helm install" in one.text)
    with plane.api() as api:
        shell.run("kubectl create namespace podslice")
        shell.run(install.text)
        for kind in ("Issuer", "Certificate"):
            api.call("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition(kind, CERT_MANAGER))
        shell.run("printf x > ca.crt; kubectl -n podslice create configmap authority --from-file=ca.crt")
        shell.run("kubectl -n podslice create secret generic mine --from-literal=tls.crt=x --from-literal=tls.key=x")
        seen = []
        for section, there in (("With Helm", True), ("Who makes the certificate", True), ("Remove", False)):
            for statement in statements("cluster-scheduler.md"):
                made = "openssl" in statement.text or "podslice-cluster-" in statement.text
                if statement.section == section and not made:
                    shell.run(statement.text)
                    seen.append(certificate_of(api))
            assert is_there(api, WORKLOADS["podslice-cluster"]) == there
            assert is_there(api, KIND) == there
            assert is_there(api, WORKLOADS["podslice-agent"])
        by_helm, by_cert_manager = ("podslice-cluster-tls", True, False), ("podslice-cluster-tls", False, True)
        assert seen[:3] == [by_helm, by_cert_manager, ("mine", False, False)]
        shell.run("kubectl -n podslice delete secret/mine configmap/authority")
        left = [one["metadata"]["name"] for one in api.call("GET", "/api/v1/namespaces/podslice/secrets")["items"]]
        assert left == [f"sh.helm.release.v1.podslice.v{number}" for number in range(1, 6)]


def test_scheduler_with_the_manifests(plane: ControlPlane, tmp_path: Path) -> None:
    """A certificate is made and renewed by hand, which the authority that agents know vouches for, and the scheduler
    installed with the commands of its page."""
    shell = Shell(tmp_path, plane)
    with plane.api() as api:
        for statement in statements():
            if statement.section == "With the manifests":
                shell.run(statement.text)
        for section in ("Who makes the certificate", "With the manifests"):
            for statement in statements("cluster-scheduler.md"):
                if statement.section == section and not of_helm(statement):
                    shell.run(statement.text)
        assert all(is_there(api, path) for path in WORKLOADS.values())
        said = shell.run(
            "openssl verify -x509_strict -verify_hostname podslice-cluster.podslice.svc -CAfile ca.crt tls.crt"
        )
        assert said == "tls.crt: OK\n"
        secret = api.call("GET", "/api/v1/namespaces/podslice/secrets/podslice-cluster-tls")
        assert b64decode(secret["data"]["tls.crt"]).decode() == (tmp_path / "tls.crt").read_text()
        authority = api.call("GET", "/api/v1/namespaces/podslice/configmaps/podslice-cluster-ca")["data"]
        assert authority == {"ca.crt": (tmp_path / "ca.crt").read_text()}


def definition(kind: str, group: str = "monitoring.coreos.com") -> dict[str, object]:
    """A kind of the Prometheus operator or of cert-manager, as far as the API server must know it to store one."""
    plural = f"{kind.lower()}s"
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "metadata": {"name": f"{plural}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower(), "listKind": f"{kind}List"},
            "scope": "Namespaced",
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }
