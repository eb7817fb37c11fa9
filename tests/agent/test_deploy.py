"""The files in deploy/ fit the agent: the configurations load, and the permissions are the least."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import yaml

from podslice.agent.settings import load_settings, settings_from_dict
from tests.agent.chart import CHART, Renderer, documents, render

DEPLOY = Path(__file__).parents[2] / "deploy"
DIGEST = "sha256:PUT-THE-DIGEST-OF-YOUR-IMAGE-HERE"
IMAGE = {"repository": "podslice", "digest": DIGEST, "pullPolicy": "IfNotPresent"}
_MORE = ("cluster", "dra", "kubectl", "monitoring", "noderesourcetopology", "nodestate", "ownnode")
TEMPLATES = [path.stem for path in sorted((CHART / "templates").glob("*.yaml")) if path.stem not in _MORE]


def manifests() -> dict[str, Any]:
    documents = yaml.safe_load_all((DEPLOY / "manifests" / "podslice.yaml").read_text())
    return {document["kind"]: document for document in documents}


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
    assert policy["podSelector"]["matchLabels"] == found["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}


@pytest.mark.parametrize("name", TEMPLATES)
def test_chart_renders_to_the_manifests(name: str) -> None:
    """With its default values the chart is the plain manifests; what only a chart needs is named here."""
    plain = next(document for kind, document in manifests().items() if kind.lower() == name)
    rendered = render(name, image=IMAGE)
    if name == "configmap":
        texts = [yaml.safe_load(document["data"].pop("agent.yaml")) for document in (plain, rendered)]
        assert texts[0] == texts[1]
    if name == "daemonset":
        pod = rendered["spec"]["template"]
        assert len(pod["metadata"]["annotations"].pop("checksum/config")) == 64
        assert pod["spec"]["containers"][0].pop("imagePullPolicy") == "IfNotPresent"
    assert rendered == plain


def test_agents_are_kept_to_their_node() -> None:
    """By default the chart has the policies of the shipped manifest, for the service account of its namespace; without
    them, without the API server and for agents that mark nobody there is less."""
    plain = list(yaml.safe_load_all((DEPLOY / "manifests" / "own-node-only.yaml").read_text()))
    assert list(yaml.safe_load_all(Renderer("podslice", {}).text("ownnode.yaml"))) == plain
    assert "serviceaccount:other:podslice-agent" in Renderer("other", {}).text("ownnode.yaml")

    def names(**values: Any) -> list[str]:
        kinds = ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
        found = documents(image=IMAGE, **values)
        return sorted({one["metadata"]["name"] for one in found if one["kind"] in kinds})

    assert names() == ["podslice-agent-own-events", "podslice-agent-own-node"]
    assert names(agent={"refusals": "hold"}) == ["podslice-agent-own-events"]
    assert names(agent={"sources": {"apiServer": False}}) == []
    everything = {"dra": {"enabled": True}, "agent": {"nodeResourceTopology": "own"}}
    assert len(names(**everything)) == 5
    assert names(admissionPolicies=False, **everything) == []


def test_rights_of_readers() -> None:
    """Users of `kubectl podslice` may look at nodes, pods and events, and forward a port of the agents' namespace;
    the chart gives the same, and adds the proxy and the token's Secret, or nothing, where its values say so."""
    plain = list(yaml.safe_load_all((DEPLOY / "manifests" / "kubectl.yaml").read_text()))
    assert list(yaml.safe_load_all(Renderer("podslice", {}).text("kubectl.yaml"))) == plain
    assert {verb for role in plain for rule in role["rules"] for verb in rule["verbs"]} == {"get", "list", "create"}
    assert [rule["resources"] for rule in plain[1]["rules"] if "create" in rule["verbs"]] == [["pods/portforward"]]
    more = list(yaml.safe_load_all(Renderer("other", {"statusSecret": "status"}).text("kubectl.yaml")))[1]
    assert more["metadata"]["namespace"] == "other"
    assert [rule["resources"] for rule in more["rules"][2:]] == [["pods/proxy"], ["secrets"]]
    assert more["rules"][3]["resourceNames"] == ["status"]
    assert not Renderer("podslice", {"kubectlRights": False}).text("kubectl.yaml").strip()


def test_status_is_off_the_tenants_reach() -> None:
    """The status is on the pod's loopback; on its address only with a token, from a Secret that is mounted; or off."""

    def configured(**values: Any) -> dict[str, Any]:
        return dict(yaml.safe_load(render("configmap", **values)["data"]["agent.yaml"]))

    assert configured()["statusAddress"] == "127.0.0.1:9096"
    assert "statusAddress" not in configured(statusPort=0)
    opened = settings_from_dict(configured(statusSecret="status"))
    assert opened.agent.status_listener() == ("0.0.0.0", 9096)
    pod = render("daemonset", image=IMAGE, statusSecret="status")["spec"]["template"]["spec"]
    mount = next(one for one in pod["containers"][0]["volumeMounts"] if one["name"] == "status-token")
    assert opened.agent.status_token_file == f"{mount['mountPath']}/token"
    assert {"name": "status-token", "secret": {"secretName": "status"}} in pod["volumes"]
    assert pod["containers"][0]["ports"] == [
        {"name": "metrics", "containerPort": 9095},
        {"name": "status", "containerPort": 9096},
    ]


def test_chart_of_a_driver() -> None:
    """With `dra.enabled` the agent is told to serve claims, reaches the folders of kubelet and runtime for that, and
    has the rights of the shipped manifest; without it nothing of that is there."""
    claims = {"apiVersion": "podslice.io/v1alpha1", "kind": "PodslicePolicy", "spec": {"claims": {"cpus": "2-3"}}}
    values = {"dra": {"enabled": True}, "agent": {"policy": claims}, "image": IMAGE}
    told = settings_from_dict(yaml.safe_load(render("configmap", **values)["data"]["agent.yaml"])).agent.dra
    assert told is not None
    pod = render("daemonset", **values)["spec"]["template"]["spec"]
    written = {mount["mountPath"] for mount in pod["containers"][0]["volumeMounts"] if not mount.get("readOnly")}
    assert {told.plugins, told.plugins_registry, told.cdi} <= written
    shipped = list(yaml.safe_load_all((DEPLOY / "manifests" / "dra.yaml").read_text()))
    assert [one for one in documents(**values) if one in shipped] == shipped
    assert not [one for one in documents(image=IMAGE) if one in shipped]


def test_rights_of_who_keeps_the_topology() -> None:
    """With `nodeResourceTopology` the chart has the rights of the shipped manifest, for Leases in the agents' namespace
    alone; without it, and with `off`, nothing of that is there."""

    def made(namespace: str, value: Any) -> list[Any]:
        text = Renderer(namespace, {"agent": {"nodeResourceTopology": value}}).text("noderesourcetopology.yaml")
        return [one for one in yaml.safe_load_all(text) if one]

    shipped = list(yaml.safe_load_all((DEPLOY / "manifests" / "noderesourcetopology.yaml").read_text()))
    assert made("podslice", "own") == made("podslice", "merge") == shipped
    assert [made("podslice", value) for value in (None, "off", False)] == [[], [], []]
    leases = [one for one in shipped if any("leases" in rule["resources"] for rule in one.get("rules", ()))]
    assert [(one["kind"], one["rules"][0]["verbs"]) for one in leases] == [("Role", ["create", "patch"])]
    assert "podslice:" not in yaml.safe_dump_all(made("other", "own"))
    assert {one["metadata"].get("namespace", "other") for one in made("other", "own")} == {"other"}


def test_chart_values_arrive() -> None:
    """Every value of the chart changes what is rendered, and a changed configuration restarts the agent."""
    values = {
        "image": {"repository": "registry.example/podslice", "digest": "sha256:1", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "secret"}],
        "agent": {"profile": "kubelet-1.36", "resources": {"cpuManagerPolicy": "none"}},
        "admissionPolicies": False,
        "observe": True,
        "hostNetwork": True,
        "hostPID": True,
        "metricsPort": 9999,
        "metricsFrom": [{"podSelector": {}}],
        "monitoring": {"podMonitor": True, "prometheusRule": True, "dashboard": True, "labels": {"release": "x"}},
        "statusPort": 9097,
        "statusSecret": "status",
        "kubectlRights": False,
        "cluster": {"enabled": True, "schedulerImage": "registry.example/kube-scheduler:v1.36.2"},
        "dra": {"enabled": False},  # on: above
        "podCgroup": "kubepods",
        "hostPaths": [
            {"name": "manifests", "path": "/etc/kubernetes/manifests"},
            {"name": "devices", "path": "/d", "writable": True, "type": "File"},
        ],
        "nodeSelector": {"pool": "fast"},
        "tolerations": [],
        "updateStrategy": {"type": "OnDelete", "rollingUpdate": None},
        "podResources": {"limits": {"memory": "1Gi"}},
    }
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert set(values) == set(defaults)
    rendered = render("daemonset", "other", **values)["spec"]
    assert rendered["updateStrategy"] == {"type": "OnDelete"}
    template = rendered["template"]
    pod, container = template["spec"], template["spec"]["containers"][0]
    assert container["image"] == "registry.example/podslice@sha256:1"
    assert (container["imagePullPolicy"], pod["imagePullSecrets"]) == ("Always", [{"name": "secret"}])
    assert container["args"][-1] == "--observe"
    assert container["livenessProbe"]["httpGet"]["port"] == container["readinessProbe"]["httpGet"]["port"] == 9999
    assert (pod["nodeSelector"], pod.get("tolerations")) == ({"pool": "fast"}, None)
    assert container["volumeMounts"][-2:] == [
        {"name": "manifests", "mountPath": "/etc/kubernetes/manifests", "readOnly": True},
        {"name": "devices", "mountPath": "/d", "readOnly": False},
    ]
    host_path = {"path": "/etc/kubernetes/manifests", "type": "Directory"}
    assert pod["volumes"][-2] == {"name": "manifests", "hostPath": host_path}
    assert pod["volumes"][-1]["hostPath"]["type"] == "File"
    assert {"name": "pod-cgroups", "hostPath": {"path": "/sys/fs/cgroup/kubepods", "type": "Directory"}} in pod[
        "volumes"
    ]
    probes = [container[f"{kind}Probe"]["httpGet"]["host"] for kind in ("startup", "liveness", "readiness")]
    assert (pod["hostNetwork"], pod["hostPID"], probes) == (True, True, ["127.0.0.1"] * 3)
    assert render("networkpolicy", **values)["spec"]["ingress"] == [{"from": [{"podSelector": {}}]}]
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    watched = [one for one in documents("other", **values) if one["metadata"].get("labels", {}).get("release")]
    assert [(one["kind"], one["metadata"]["namespace"]) for one in watched] == [
        ("PodMonitor", "other"),
        ("PrometheusRule", "other"),
    ] * 2  # the agent's and the service's
    configured = yaml.safe_load(render("configmap", "other", **values)["data"]["agent.yaml"])
    assert settings_from_dict(configured).agent.profile == "kubelet-1.36"
    assert settings_from_dict(configured).agent.address() == ("127.0.0.1", 9999)
    checksum = "checksum/config"
    before = render("daemonset", "other", image=IMAGE)["spec"]["template"]["metadata"]["annotations"][checksum]
    assert template["metadata"]["annotations"][checksum] != before


def test_release_namespace_is_used() -> None:
    """The chart goes where it is installed, its cluster-wide parts included."""
    assert render("clusterrolebinding", "other")["subjects"][0]["namespace"] == "other"
    for name in ("serviceaccount", "configmap", "daemonset", "networkpolicy"):
        assert render(name, "other", image=IMAGE)["metadata"]["namespace"] == "other"


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
    """The unit gives the agent no right to move interrupts; docs/guards.md says what does."""
    unit = (DEPLOY / "systemd" / "podslice-agent.service").read_text()
    (line,) = re.findall(r"^ReadOnlyPaths=.*$", unit, re.MULTILINE)
    assert line == "ReadOnlyPaths=-/proc/irq -/sys/devices/virtual/workqueue -/sys/devices/system/cpu"
    assert line in (DEPLOY.parent / "docs" / "guards.md").read_text()


def test_image_without_digest_is_refused() -> None:
    """The chart does not guess which image is meant."""
    with pytest.raises(pytest.fail.Exception, match=r"image\.digest: name the image"):
        render("daemonset")


_READ = [(["pods"], ["list", "watch"]), (["nodes"], ["get"]), (["events"], ["create"])]
_FAIL = [(["pods/status"], ["patch"])]


@pytest.mark.parametrize(("sources", "refusals", "rules"), [
    ({"apiServer": False, "kubelet": {"everySeconds": 5}}, "fail", [(["nodes/pods"], ["get"])]),
    ({"apiServer": False, "manifests": "/m"}, "fail", []),
    ({"apiServer": True}, "fail", _FAIL + _READ), ({"apiServer": True}, "hold", _READ),
])  # fmt: skip
def test_rights_follow_the_sources(sources: dict[str, Any], refusals: str, rules: list[Any]) -> None:
    """The chart asks for what the configured sources and the way of refusing need, and nothing else."""
    rendered = render("clusterrole", agent={"sources": sources, "refusals": refusals})
    assert [(rule["resources"], rule["verbs"]) for rule in rendered["rules"] or []] == rules


def test_a_busy_node_has_time_to_start_the_agent() -> None:
    """Until it answers for the first time, for five minutes, the liveness probe does not have it restarted."""
    (shipped,) = [one for one in yaml.safe_load_all((DEPLOY / "manifests/podslice.yaml").read_text())
                  if one["kind"] == "DaemonSet"]  # fmt: skip
    for found in (shipped, render("daemonset", image=IMAGE)):
        container = found["spec"]["template"]["spec"]["containers"][0]
        startup = container["startupProbe"]
        assert startup["httpGet"] == container["livenessProbe"]["httpGet"]
        assert startup["periodSeconds"] * startup["failureThreshold"] >= 300


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
