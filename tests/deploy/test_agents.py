"""The chart's agents: pools, values of pods, rights that follow the configuration, and what reports to the service."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from podslice.agent.settings import settings_from_dict
from tests.deploy.cases import CASES, CLAIMS, EVERYTHING, POOLS
from tests.deploy.rendering import (
    DEPLOY,
    ON,
    Object,
    by_kind_and_name,
    installed,
    needs_helm,
    pod_templates,
    refusal,
    render,
)
from tests.shell import podslice

pytestmark = needs_helm
MACHINE = "epyc-9654-nps4"


def agent_of(objects: list[Object], suffix: str = "agent") -> tuple[Object, dict[str, Any]]:
    """The pod template of these agents, and their configuration."""
    found = by_kind_and_name(objects)
    template = found["DaemonSet", f"podslice-{suffix}"]["spec"]["template"]
    (volume,) = (one for one in template["spec"]["volumes"] if one["name"] == "config")
    return template, yaml.safe_load(found["ConfigMap", volume["configMap"]["name"]]["data"]["agent.yaml"])


@pytest.mark.parametrize("values", CASES.values(), ids=CASES)
def test_configurations_are_good(values: dict[str, Any], tmp_path: Path) -> None:
    """`podslice agent --check-config` takes every configuration that the chart makes, and what files it names are
    mounted."""
    objects = render(**values)
    folders: dict[str, set[str]] = {}
    for one in objects:
        if one["kind"] == "DaemonSet":
            pod = one["spec"]["template"]["spec"]
            (volume,) = (volume for volume in pod["volumes"] if volume["name"] == "config")
            folders[volume["configMap"]["name"]] = {m["mountPath"] for m in pod["containers"][0]["volumeMounts"]}
    assert folders
    for one in objects:
        if one["metadata"]["name"] in folders and one["kind"] == "ConfigMap":
            file = tmp_path / "agent.yaml"
            file.write_text(one["data"]["agent.yaml"])
            answer = podslice("agent", "--config", file, "--check-config", "--observe", "--machine", MACHINE)
            assert (answer.returncode, "good; " in answer.stdout) == (0, True), answer.stderr
            settings = settings_from_dict(yaml.safe_load(one["data"]["agent.yaml"])).agent
            named = [settings.status_token_file]
            if settings.cluster:
                named += [settings.cluster.token_file, settings.cluster.ca_file]
            if settings.dra:
                named += [
                    f"{path}/x" for path in (settings.dra.plugins, settings.dra.plugins_registry, settings.dra.cdi)
                ]
            assert {path.rpartition("/")[0] for path in named if path} <= folders[one["metadata"]["name"]]


def test_three_pools() -> None:
    """Each pool has a DaemonSet and a configuration of its own, with what it sets over what all have, on its own nodes;
    there is no other one. Rights are those that any of them needs."""
    objects = render(**{**CASES["pools"], "nodeSelector": {"podslice": "on"}})
    sets = [one["metadata"]["name"] for one in objects if one["kind"] == "DaemonSet"]
    assert sets == [f"podslice-agent-{pool['name']}" for pool in POOLS]
    web, fast, observed = (agent_of(objects, f"agent-{pool['name']}") for pool in POOLS)
    reserved = [one[1]["resources"]["reservedSystemCPUs"] for one in (web, fast, observed)]
    assert reserved == ["0", "0-3", "0-1"]
    policies = [one[1]["resources"]["topologyManagerPolicy"] for one in (web, fast, observed)]
    assert policies == ["best-effort", "single-numa-node", "best-effort"]
    assert {one[1]["resources"]["cpuManagerPolicy"] for one in (web, fast, observed)} == {"static"}
    assert [one[0]["spec"].get("nodeSelector") for one in (web, fast, observed)] == [
        {"podslice": "on", "pool": "web"}, {"podslice": "on", "pool": "fast"}, {"podslice": "on"}
    ]  # fmt: skip
    assert observed[0]["spec"]["affinity"] == POOLS[2]["affinity"]
    assert [one[1]["refusals"] for one in (web, fast, observed)] == ["fail", "fail", "hold"]
    args = [one[0]["spec"]["containers"][0]["args"][2:] for one in (web, fast, observed)]
    assert args == [[], [], ["--log-level=debug", "--observe"]]
    limits = [one[0]["spec"]["containers"][0]["resources"]["limits"] for one in (web, fast, observed)]
    assert limits == [{"memory": "256Mi"}, {"memory": "512Mi"}, {"memory": "256Mi"}]
    assert [one[0]["spec"].get("tolerations") for one in (web, fast, observed)] == [[{"operator": "Exists"}]] * 2 + [
        None
    ]
    assert (
        by_kind_and_name(objects)["DaemonSet", "podslice-agent-observed"]["spec"]["updateStrategy"]["type"]
        == "OnDelete"
    )
    assert {one[0]["metadata"]["labels"]["podslice.io/pool"] for one in (web, fast, observed)} == {
        "web",
        "fast",
        "observed",
    }
    rules = by_kind_and_name(objects)["ClusterRole", "podslice-agent"]["rules"]
    assert ["pods/status"] in [rule["resources"] for rule in rules]


def test_a_pool_takes_back_what_all_have() -> None:
    """False, 0, an empty list and an empty text of a pool count."""
    pool = {
        "name": "a", "nodeSelector": {"a": "b"}, "observe": False, "tolerations": [], "hostPaths": [],
        "agent": {"sources": {"annotation": False, "waitSeconds": 0}, "policy": ""},
    }  # fmt: skip
    everywhere = {"sources": {"annotation": True, "waitSeconds": 1}, "policy": "/p.yaml"}
    paths = [{"name": "x", "path": "/x"}]
    values = {"observe": True, "hostPaths": paths, "agent": everywhere, "pools": [pool]}
    template, configuration = agent_of(render(**values), "agent-a")
    assert configuration["sources"] == {"apiServer": True, "annotation": False, "waitSeconds": 0}
    assert configuration["policy"] == ""
    container = template["spec"]["containers"][0]
    assert "--observe" not in container["args"]
    assert ("tolerations" in template["spec"], container["volumeMounts"][-1]["name"]) == (False, "tmp")


@pytest.mark.parametrize(
    ("pools", "said"),
    [
        ([{"name": "a"}], "pools: a has no nodeSelector and no affinity"),
        ([POOLS[0], POOLS[0]], "pools: web is there twice"),
        ([POOLS[0], {**POOLS[0], "name": "b"}], "pools: b has the nodes of another pool"),
        ([{"nodeSelector": {"a": "b"}}], "name"),
        ([{"name": "Fast", "nodeSelector": {"a": "b"}}], "/pools/0/name"),
        ([{**POOLS[0], "agent": {"resources": {"topologyManagerPolicy": "single"}}}], "topologyManagerPolicy"),
        ([{**POOLS[0], "metricsPort": 1}], "metricsPort"),
    ],
)
def test_mistakes_in_pools(pools: list[Object], said: str) -> None:
    """Pools that would have two agents on a node, or that nobody can tell apart, are refused, and so are settings that
    are wrong or not a pool's."""
    assert said in refusal(pools=pools)


def test_what_a_pod_is_given() -> None:
    """Values of agents' pods arrive."""
    values = {**EVERYTHING, "pools": [], "fullnameOverride": "", "nameOverride": ""}
    template, configuration = agent_of(render(**values))
    pod, container = template["spec"], template["spec"]["containers"][0]
    assert container["image"] == "registry.example/podslice:1.2"
    assert (container["imagePullPolicy"], pod["imagePullSecrets"]) == ("Always", [{"name": "registry"}])
    assert container["args"] == ["--config", "/etc/podslice/agent.yaml", "--log-level=warning", "--observe"]
    assert container["env"][-1] == {"name": "HTTPS_PROXY", "value": "http://proxy"}
    assert (pod["nodeSelector"], pod["affinity"]) == ({"podslice": "on"}, {"nodeAffinity": {}})
    assert (pod["tolerations"], pod["hostPID"]) == ([{"key": "x", "operator": "Exists"}], True)
    assert "priorityClassName" not in pod
    assert container["resources"]["limits"] == {"memory": "1Gi"}
    assert template["metadata"]["labels"].items() >= {"g": "h", "team": "nodes"}.items()
    assert template["metadata"]["annotations"]["i"] == "j"
    assert container["volumeMounts"][-2:] == [
        {"name": "manifests", "mountPath": "/etc/kubernetes/manifests", "readOnly": True},
        {"name": "devices", "mountPath": "/d", "readOnly": False},
    ]
    assert pod["volumes"][-1]["hostPath"] == {"path": "/d", "type": "File"}
    assert {"name": "pod-cgroups", "hostPath": {"path": "/sys/fs/cgroup/kubepods", "type": "Directory"}} in pod[
        "volumes"
    ]
    assert (configuration["reconcileSeconds"], configuration["metricsAddress"]) == (20, "0.0.0.0:9999")
    assert configuration["statusTokenFile"] == "/etc/podslice-status/token"
    accounts = [one["metadata"] for one in installed(render(**values)) if one["kind"] == "ServiceAccount"]
    assert [one["annotations"] for one in accounts] == [{"k": "l"}] * 3
    both = render(image={"tag": "1.2", "digest": "sha256:" + "1" * 64})
    assert agent_of(both)[0]["spec"]["containers"][0]["image"] == "podslice@sha256:" + "1" * 64
    assert "image.digest: name the image" in refusal(image={"digest": ""})


def test_a_changed_configuration_restarts_the_agents() -> None:
    """Of the pool that it is changed for."""

    def sums(**values: Any) -> dict[str, str]:
        return {
            one["metadata"]["name"]: one["spec"]["template"]["metadata"]["annotations"]["checksum/config"]
            for one in render(**values)
            if one["kind"] == "DaemonSet"
        }

    changed = [{**POOLS[0], "agent": {"reconcileSeconds": 5}}, *POOLS[1:]]
    before, after = sums(pools=POOLS), sums(pools=changed)
    assert {name for name in before if before[name] != after[name]} == {"podslice-agent-web"}


def test_host_network() -> None:
    """On the node's network metrics and probes are on its loopback."""
    template, configuration = agent_of(render(hostNetwork=True))
    container = template["spec"]["containers"][0]
    probes = [container[f"{kind}Probe"]["httpGet"]["host"] for kind in ("startup", "liveness", "readiness")]
    assert (template["spec"]["hostNetwork"], probes) == (True, ["127.0.0.1"] * 3)
    assert configuration["metricsAddress"] == "127.0.0.1:9095"


def test_the_status_is_off_the_tenants_reach() -> None:
    """The status is on the pod's loopback; on its address only with a token, from a Secret that is mounted; or off."""
    assert agent_of(render())[1]["statusAddress"] == "127.0.0.1:9096"
    assert "statusAddress" not in agent_of(render(statusPort=0))[1]
    template, configuration = agent_of(render(statusSecret="status"))
    assert configuration["statusAddress"] == "0.0.0.0:9096"
    assert {"name": "status-token", "secret": {"secretName": "status"}} in template["spec"]["volumes"]


_READ = [(["pods"], ["list", "watch"]), (["nodes"], ["get"]), (["events"], ["create"])]
_FAIL = [(["pods/status"], ["patch"])]


@pytest.mark.parametrize(("agent", "rules"), [
    ({"sources": {"apiServer": False, "kubelet": {"everySeconds": 5}}}, [(["nodes/pods"], ["get"])]),
    ({"sources": {"apiServer": False, "manifests": "/m"}}, []),
    ({}, _FAIL + _READ), ({"refusals": "hold"}, _READ),
])  # fmt: skip
def test_rights_follow_the_sources(agent: dict[str, Any], rules: list[Any]) -> None:
    """The chart asks for what the configured sources and the way of refusing need, and nothing else."""
    role = by_kind_and_name(render(agent=agent))["ClusterRole", "podslice-agent"]
    assert [(rule["resources"], rule["verbs"]) for rule in role["rules"] or []] == rules


def test_agents_are_kept_to_their_node() -> None:
    """The policies name the agents' account of this release; on an older API server, without the API server as a source
    and for agents that mark nobody there are fewer."""

    def names(*options: str, **values: Any) -> list[str]:
        found = [one for one in render(*options, **values) if one["kind"] == "ValidatingAdmissionPolicy"]
        user = 'request.userInfo.username == "system:serviceaccount:podslice:podslice-agent"'
        assert all(one["spec"]["matchConditions"][0]["expression"] == user for one in found)
        return sorted(one["metadata"]["name"].removeprefix("podslice-agent-own-") for one in found)

    everything = {
        "dra": {"enabled": True},
        "agent": {"nodeResourceTopology": "own", "policy": CLAIMS},
        "cluster": ON["cluster"],
    }
    assert names() == ["events", "node"]
    assert names(agent={"refusals": "hold"}) == ["events"]
    assert names(agent={"sources": {"apiServer": False}}) == []
    assert names(**everything) == ["claims", "events", "node", "slices", "state", "topology"]
    assert names(**everything, admissionPolicies=False) == []
    assert names("--kube-version=v1.31.0") == []


def test_agents_report_to_the_service() -> None:
    """With `cluster.enabled` the agent's configuration names the service of this release, its token has the service's
    audience, and `cluster.plan` is its policy for plans; without it nothing of that is there."""
    template, configuration = agent_of(render(**{**ON, "cluster": {**ON["cluster"], "plan": "honour"}}))
    assert configuration["cluster"] == {
        "services": ["podslice-cluster.podslice.svc:9097"], "caFile": "/etc/podslice-cluster/ca.crt", "plan": "honour"
    }  # fmt: skip
    volumes = {one["name"]: one for one in template["spec"]["volumes"]}
    (source,) = volumes["cluster-token"]["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "podslice-cluster"
    moved = {**ON, "cluster": {**ON["cluster"], "namespace": "placing"}}
    assert agent_of(render(**moved))[1]["cluster"]["services"] == ["podslice-cluster.placing.svc:9097"]
    text = yaml.safe_dump_all(installed(render()))
    assert "podslice-cluster" not in text
    assert "nodestates" not in text


def test_claims() -> None:
    """With `dra.enabled` the agent serves claims; the DeviceClass is left out where another release has it."""
    values = {"dra": {"enabled": True}, "agent": {"policy": CLAIMS}}
    assert agent_of(render(**values))[1]["dra"] == {"accounting": False, "order": "numaNode"}
    assert ("DeviceClass", "podslice.io") in by_kind_and_name(render(**values))
    listed = {**values, "dra": {"enabled": True, "numaList": True, "order": "leastFree", "accounting": True}}
    assert agent_of(render(**listed))[1]["dra"] == {"accounting": True, "order": "leastFree", "numaList": True}
    assert not [one for one in render(**EVERYTHING) if one["kind"] == "DeviceClass"]
    assert "resource.k8s.io/v1; 1.34" in refusal("--kube-version=v1.33.0", **values)


def test_a_node_too_busy_for_the_agent() -> None:
    """Until it answers for the first time, for five minutes, the liveness probe does not have it restarted."""
    for template in pod_templates(installed(render(**ON))):
        for container in template["spec"]["containers"]:
            startup = container["startupProbe"]
            assert startup["httpGet"] == container["livenessProbe"]["httpGet"]
            assert startup["periodSeconds"] * startup["failureThreshold"] >= 300
            assert container["readinessProbe"]
            assert container["resources"]["requests"]


def test_pools_of_the_guide() -> None:
    """The values that the guide shows for node pools render, and the agents reserve what it says."""
    guide = (DEPLOY.parent / "docs" / "agent.md").read_text().partition("\n### Node pools\n")[2]
    values = yaml.safe_load(re.findall(r"```yaml\n(.*?)```", guide, re.DOTALL)[0])
    objects = render(**values)
    reserved = {pool["name"]: agent_of(objects, f"agent-{pool['name']}")[1]["resources"] for pool in values["pools"]}
    assert {name: one["reservedSystemCPUs"] for name, one in reserved.items()} == {
        "web": "0",
        "fast": "0-3",
        "old": "0-1",
    }
