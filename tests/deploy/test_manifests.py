"""The files in deploy/ fit the agent: the configurations load, and the permissions are the least."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import pytest
import yaml
from release.manifests import FILES
from release.manifests import render as render_manifest

from podslice.agent.settings import load_settings, settings_from_dict
from tests.deploy.rendering import CHART, DEPLOY, Object, manifest, needs_helm


def manifests() -> dict[str, Object]:
    return {document["kind"]: document for document in manifest("podslice.yaml")}


def test_configurations_load() -> None:
    """The shipped configurations are good ones, and all say the same."""
    config_map = manifests()["ConfigMap"]["data"]["agent.yaml"]
    values = yaml.safe_load((DEPLOY / "helm" / "podslice" / "values.yaml").read_text())["agent"]
    kind = {"apiVersion": "podslice.io/v1alpha1", "kind": "AgentConfiguration"}
    loaded = [
        load_settings(str(DEPLOY / "agent.yaml")),
        settings_from_dict(yaml.safe_load(config_map)),
        settings_from_dict({**kind, **values}),
    ]
    assert loaded[0].config == loaded[1].config == loaded[2].config
    assert all(one.agent.sources.api_server for one in loaded)
    assert not any(one.agent.sources.annotation_counts for one in loaded)


def test_least_privilege() -> None:
    """Reading pods and nodes, patching the status of pods and creating events, a read-only root, no privilege."""
    found = manifests()
    assert [(rule["resources"], rule["verbs"]) for rule in found["ClusterRole"]["rules"]] == [
        (["pods/status"], ["patch"]),
        (["pods"], ["list", "watch"]),
        (["nodes"], ["get"]),
        (["events"], ["create"]),
    ]
    pod = found["DaemonSet"]["spec"]["template"]["spec"]
    assert not pod.get("hostPID")
    assert not pod.get("hostIPC")
    assert not pod.get("hostNetwork")
    context = pod["containers"][0]["securityContext"]
    assert context["readOnlyRootFilesystem"]
    assert not context["privileged"]
    assert context["capabilities"] == {"drop": ["ALL"]}
    mounts = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"] if not mount.get("readOnly")}
    assert mounts == {"/var/lib/podslice", "/run/podslice", "/sys/fs/cgroup/kubepods.slice", "/tmp"}
    assert "@sha256:" in pod["containers"][0]["image"]
    policy = found["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress"]
    assert "ingress" not in policy
    labels = found["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


def test_rights_of_readers() -> None:
    """Users of `kubectl podslice` may look at nodes, pods and events, and forward a port of the agents' namespace."""
    plain = manifest("kubectl.yaml")
    assert {verb for role in plain for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "create"}
    assert [rule["resources"] for rule in plain[1]["rules"] if "create" in rule["verbs"]] == [["pods/portforward"]]


def test_agents_that_report() -> None:
    """In place of the agents of podslice.yaml: the same, and the `cluster` part of the configuration, a token for the
    service and the authority behind its certificate."""
    plain, reporting = manifests(), {one["kind"]: one for one in manifest("agents-with-scheduler.yaml")}
    settings = [yaml.safe_load(found["ConfigMap"]["data"].pop("agent.yaml")) for found in (plain, reporting)]
    cluster = settings[1].pop("cluster")
    assert settings[0] == settings[1]
    assert cluster["services"] == ["podslice-cluster.podslice.svc:9097"]
    pod = reporting["DaemonSet"]["spec"]["template"]["spec"]
    mounts, volumes = pod["containers"][0]["volumeMounts"], pod["volumes"]
    assert [mounts.pop()["name"], mounts.pop()["name"]] == ["cluster-ca", "cluster-token"]
    authority, token = volumes.pop(), volumes.pop()
    assert authority["configMap"]["name"] == "podslice-cluster-ca"
    (source,) = token["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "podslice-cluster"
    assert set(reporting) == {"ConfigMap", "DaemonSet"}
    assert all(reporting[kind] == plain[kind] for kind in reporting)


def test_the_kind_is_the_charts() -> None:
    """The kind NodeState is the same in the chart and among the manifests."""
    assert yaml.safe_load((CHART / "crds" / "nodestates.yaml").read_text()) == manifest("nodestate.yaml")[0]


def test_what_belongs_together_has_the_same_names() -> None:
    """What a manifest names is in one of them, or is what the guide tells you to make."""
    objects = [one for path in sorted((DEPLOY / "manifests").glob("*.yaml")) for one in manifest(path.name)]
    there = {(one["kind"], one["metadata"]["name"]) for one in objects}
    made = {("Secret", "podslice-cluster-tls"), ("ConfigMap", "podslice-cluster-ca"), ("ConfigMap", "kube-root-ca.crt")}
    builtin = {("ClusterRole", "system:kube-scheduler"), ("ClusterRole", "system:volume-scheduler")}
    named = set()
    for one in objects:
        if "roleRef" in one:
            named.add((one["roleRef"]["kind"], one["roleRef"]["name"]))
            named.update((subject["kind"], subject["name"]) for subject in one["subjects"])
        for volume in one["spec"]["template"]["spec"]["volumes"] if one["kind"] in ("DaemonSet", "StatefulSet") else ():
            if "configMap" in volume:
                named.add(("ConfigMap", volume["configMap"]["name"]))
            if "secret" in volume:
                named.add(("Secret", volume["secret"]["secretName"]))
    assert named <= there | made | builtin
    guide = (DEPLOY.parent / "docs" / "cluster-scheduler.md").read_text()
    assert all(name in guide for _, name in made if name != "kube-root-ca.crt")


@needs_helm
@pytest.mark.parametrize("name", FILES)
def test_manifests_are_current(name: str) -> None:
    """Each is what Helm makes of the chart."""
    assert (DEPLOY / "manifests" / name).read_text() == render_manifest(FILES[name]), "make manifests"


def test_every_manifest_is_made() -> None:
    """None is written by hand."""
    assert {path.name for path in (DEPLOY / "manifests").iterdir()} == set(FILES)


def test_rights_of_who_keeps_the_topology() -> None:
    """Leases are made in the agents' namespace alone."""
    leases = [
        one
        for one in manifest("noderesourcetopology.yaml")
        if any("leases" in rule["resources"] for rule in one.get("rules", ()))
    ]
    assert [(one["kind"], one["rules"][0]["verbs"]) for one in leases] == [("Role", ["create", "patch"])]


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="needs systemd-analyze (Debian: systemd)")
@pytest.mark.process
def test_unit_is_understood_and_confined(tmp_path: Path) -> None:
    """systemd knows every line of the unit, and finds the service less exposed than 4 of 10."""
    unit = tmp_path / "podslice-agent.service"
    shipped = (DEPLOY / "systemd" / unit.name).read_text()
    unit.write_text(shipped.replace("/opt/podslice/bin/podslice", "/bin/true"))

    def analyze(*arguments: str) -> str:
        ran = subprocess.run(["systemd-analyze", *arguments, str(unit)], capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
        return ran.stdout + ran.stderr

    assert unit.name not in analyze("verify", "--man=no", "--recursive-errors=no")
    analyze("security", "--offline=true", "--threshold=40")


def test_interrupts_are_read_only_until_a_drop_in() -> None:
    """The unit gives the agent no right to move interrupts; docs/isolation.md says what does."""
    unit = (DEPLOY / "systemd" / "podslice-agent.service").read_text()
    (line,) = re.findall(r"^ReadOnlyPaths=.*$", unit, re.MULTILINE)
    assert line == "ReadOnlyPaths=-/proc/irq -/sys/devices/virtual/workqueue -/sys/devices/system/cpu"
    assert line in (DEPLOY.parent / "docs" / "isolation.md").read_text()


def test_image_is_made_of_what_is_pinned() -> None:
    """The base image must be named by digest, and everything installed is checked against a lock."""
    text = (DEPLOY / "container" / "Containerfile").read_text().replace("\\\n", " ")
    assert re.findall(r"^FROM (\S+)", text, re.MULTILINE) == ["${BASE_IMAGE}", "${BASE_IMAGE}"]
    assert re.findall(r"^ARG (.*)$", text, re.MULTILINE) == ["BASE_IMAGE", "BASE_IMAGE"]
    check = re.search(r"grep -Eq '(\S+)'", text)
    assert check is not None
    assert re.search(check[1], "python:3.12-slim@sha256:" + "0a" * 32)
    assert not re.search(check[1], "python:3.12-slim")
    installs = re.findall(r"pip (?:install|wheel)[^&\n]*", text)
    assert len(installs) == 4
    assert all("--require-hashes -" in one or "--no-deps" in one for one in installs)


def test_runtime_lock_is_part_of_the_lock() -> None:
    """The image gets exactly what the agent and the service need, at the versions and hashes that were tested."""
    whole, runtime = (blocks(path.read_text()) for path in (
        DEPLOY.parent / "requirements.lock", DEPLOY / "container" / "requirements.lock"))  # fmt: skip
    assert {name: whole[name] for name in runtime} == runtime
    assert needed("podslice", ("", "agent", "cluster")) - {"podslice"} <= set(runtime)
    assert not {"pytest", "mypy", "hatchling"} & set(runtime)


def blocks(lock: str) -> dict[str, str]:
    return {re.split(r"[^a-z0-9-]", block)[0]: block for block in re.split(r"\n(?=\S)", lock.strip())}


def needed(name: str, extras: tuple[str, ...]) -> set[str]:
    """Everything that is installed with it, by the installed packages' own word. Extras may name each other."""
    asked: set[tuple[str, str]] = set()
    waiting = [(name, extra) for extra in extras]
    while waiting:
        package, extra = waiting.pop()
        if (package, extra) not in asked:
            asked.add((package, extra))
            waiting += named(package, extra)
    return {package for package, _ in asked}


def named(package: str, extra: str) -> Iterator[tuple[str, str]]:
    """Return the requirements of a package for an extra (empty: always), each with an extra of its own."""
    for line in metadata.requires(package) or ():
        wanted, _, marker = line.partition(";")
        found = re.search(r"extra == ['\"]([\w.-]+)['\"]", marker)
        base = re.sub(r"[-_.]+", "-", re.split(r"[^A-Za-z0-9._-]", wanted.strip())[0]).lower()
        inner = re.search(r"\[(.*?)\]", wanted)
        if (found[1] if found else "") == extra and installed(base):
            yield from ((base, one.strip()) for one in ("", *(inner[1].split(",") if inner else ())))


def installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True
