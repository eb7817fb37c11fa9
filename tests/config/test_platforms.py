"""Configurations of kubelets as clouds and distributions write them."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from podslice import InputError, load_kubelet_config
from podslice.cli.options.config import ConfigSource
from podslice.cli.options.node_files import load_config
from podslice.config.kubelet import KubeletConfig

Write = Callable[[str], str]
_BODY = (
    "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncpuManagerPolicy: static\n"
    "reservedSystemCPUs: 0-1\nmaxPods: 33\n"
)


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str) -> str:
        file = tmp_path / "given"
        file.write_text(text)
        return str(file)

    return _write


def ignition(source: str, compression: str = "", path: str = "/etc/kubernetes/kubelet.conf") -> str:
    packed = f", compression: {compression}" if compression else ""
    return (
        "apiVersion: machineconfiguration.openshift.io/v1\nkind: MachineConfig\nmetadata: {name: 99-worker}\n"
        "spec: {config: {ignition: {version: 3.2.0}, storage: {files: [{path: /etc/other, contents: "
        "{source: 'data:,x'}}, "
        f"{{path: {path}, contents: {{source: '{source}'{packed}}}}}]}}}}}}\n"
    )


def encoded(data: bytes) -> str:
    return f"data:text/plain;charset=utf-8;base64,{base64.b64encode(data).decode()}"


_PROFILE = """\
apiVersion: performance.openshift.io/v2
kind: PerformanceProfile
metadata:
  name: p
  annotations: {%s}
spec:
  cpu: {isolated: 2-7, reserved: 0-1}
  hugepages: {defaultHugepagesSize: 1G, pages: [{size: 1G, count: 2, node: 0}]}
  numa: {topologyPolicy: %s}
"""
_SET = {"cpu_manager_policy": "static", "reserved_system_cpus": "0-1"}


@pytest.mark.parametrize(
    ("text", "fields", "origin"),
    [
        pytest.param(
            "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: a}\nspec:\n"
            "  kubeletConfig: {cpuManagerPolicy: static, reservedSystemCPUs: 0-1, topologyManagerScope: pod}\n",
            {**_SET, "topology_manager_scope": "pod"}, "KubeletConfig a, spec.kubeletConfig", id="KubeletConfig"),
        pytest.param(
            _PROFILE % ("", "single-numa-node"),
            {**_SET, "topology_manager_policy": "single-numa-node", "memory_manager_policy": "Static",
             "cpu_manager_policy_options": {"full-pcpus-only": "true"}, "kube_reserved": {"memory": "500Mi"}},
            "PerformanceProfile p", id="profile"),
        pytest.param(
            _PROFILE % ("", "best-effort"),
            {**_SET, "topology_manager_policy": "best-effort", "memory_manager_policy": "None",
             "cpu_manager_policy_options": {}}, "PerformanceProfile p", id="profile best-effort"),
        pytest.param(ignition("data:," + quote(_BODY)), {**_SET, "max_pods": 33},
                     "MachineConfig 99-worker, /etc/kubernetes/kubelet.conf", id="percent"),
        pytest.param(ignition(encoded(_BODY.encode())), {**_SET, "max_pods": 33}, "kubelet.conf", id="base64"),
        pytest.param(ignition(encoded(gzip.compress(_BODY.encode())), "gzip"), {**_SET, "max_pods": 33},
                     "kubelet.conf", id="gzip"),
        pytest.param(
            "variant: fcos\nversion: 1.5.0\nstorage:\n  files:\n  - path: /etc/kubernetes/kubelet.yaml\n    contents:\n"
            "      inline: |\n        " + _BODY.replace("\n", "\n        "), _SET, "kubelet.yaml", id="butane"),
        pytest.param(
            "kind: Cluster\napiVersion: kops.k8s.io/v1alpha2\nmetadata: {name: c}\nspec:\n  kubelet:\n"
            "    anonymousAuth: false\n    kubeReserved: {cpu: 1, memory: 1Gi}\n"
            "    evictionHard: memory.available<5%,nodefs.available<1Gi\n    cpuManagerPolicy: none\n    logLevel: 2\n"
            "---\nkind: InstanceGroup\napiVersion: kops.k8s.io/v1alpha2\nmetadata: {name: nodes}\nspec:\n  role: Node\n"
            "  kubelet: {cpuManagerPolicy: static, featureGates: {MemoryQoS: 'true'}, "
            "enforceNodeAllocatable: 'pods'}\n",
            {"cpu_manager_policy": "static", "kube_reserved": {"cpu": "1", "memory": "1Gi"},
             "eviction_hard": {"memory.available": "5%", "nodefs.available": "1Gi"},
             "feature_gates": {"MemoryQoS": True}, "enforce_node_allocatable": ("pods",)},
            "Cluster c, spec.kubelet, then InstanceGroup nodes", id="kOps"),
        pytest.param(
            "version: v1alpha1\nmachine:\n  type: worker\n  kubelet:\n    extraArgs:\n      max-pods: 7\n"
            "      feature-gates: A=true,B=false\n"
            "    extraConfig: {cpuManagerPolicy: static, reservedSystemCPUs: 0-1}\n",
            {**_SET, "max_pods": 7, "feature_gates": {"A": True, "B": False}},
            "Talos, machine.kubelet.extraConfig, then Talos, machine.kubelet.extraArgs", id="Talos"),
        pytest.param(
            "apiVersion: v1alpha1\nkind: KubeletConfig\nconfig: {maxPods: 8}\n", {"max_pods": 8}, "Talos, config",
            id="Talos document"),
        pytest.param(
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: d}\nspec:\n"
            "  kubelet: {maxPods: 42, evictionHard: {memory.available: 5%}}\n  userData: |\n"
            "    apiVersion: node.eks.aws/v1alpha1\n    kind: NodeConfig\n    spec: {kubelet: {config: "
            "{cpuManagerPolicy: static, reservedSystemCPUs: 0-1, maxPods: 1}}}\n",
            {**_SET, "max_pods": 42, "eviction_hard": {"memory.available": "5%"}},
            "EC2NodeClass d, spec.userData, then EC2NodeClass d, spec.kubelet", id="Karpenter"),
        pytest.param(
            "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: d}\nspec:\n  userData: |\n"
            "    MIME-Version: 1.0\n    Content-Type: multipart/mixed; boundary=\"B\"\n\n    --B\n"
            "    Content-Type: application/node.eks.aws\n\n    apiVersion: node.eks.aws/v1alpha1\n"
            "    kind: NodeConfig\n    spec: {kubelet: {config: {maxPods: 7}}}\n\n    --B--\n"
            "  kubelet: {podsPerCore: 2}\n",
            {"max_pods": 7, "pods_per_core": 2}, "EC2NodeClass d, spec.userData", id="Karpenter with MIME"),
        pytest.param(
            "apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nmetadata: {name: d}\n"
            "spec: {template: {spec: {kubelet: {maxPods: 12}}}}\n", {"max_pods": 12}, "NodePool d", id="NodePool"),
        pytest.param(
            "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"//\"\n\n--//\n"
            "Content-Type: application/node.eks.aws\n\n---\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"
            "spec: {kubelet: {config: {maxPods: 58, cpuManagerPolicy: static}}}\n\n--//\n"
            "Content-Type: application/node.eks.aws\n\n---\napiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\n"
            "spec: {kubelet: {config: {reservedSystemCPUs: 0-1}, flags: [--pod-max-pids=100]}}\n\n--//\n"
            "Content-Type: text/x-shellscript\n\n#!/bin/bash\necho\n\n--//--\n",
            {**_SET, "max_pods": 58, "pod_pids_limit": 100}, "NodeConfig, spec.kubelet.config", id="user data"),
        pytest.param(
            "apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nnodeGroups:\n- name: g\n  kubeletExtraConfig:\n"
            "    cpuManagerPolicy: static\n    kubeReserved: {cpu: 300m}\n",
            {"cpu_manager_policy": "static", "kube_reserved": {"cpu": "300m"}}, "nodeGroups[0] g", id="eksctl"),
        pytest.param(
            '{"cpuManagerPolicy": "static", "topologyManagerPolicy": "restricted", "cpuCfsQuota": false, '
            '"podMaxPids": 50, "containerLogMaxSizeMB": 20, "imageGcHighThreshold": 80}',
            {"cpu_manager_policy": "static", "topology_manager_policy": "restricted", "cpu_cfs_quota": False,
             "pod_pids_limit": 50, "kube_reserved": {"cpu": "500m"}}, "node configuration of AKS", id="AKS"),
        pytest.param(
            '{"agentPoolProfiles": [{"name": "a", "kubeletConfig": null}, {"name": "b", "kubeletConfig": '
            '{"cpuManagerPolicy": "static", "failSwapOn": false}}]}',
            {"cpu_manager_policy": "static", "fail_swap_on": False},
            "node configuration of AKS, agentPoolProfiles[1].kubeletConfig", id="AKS shown"),
        pytest.param(
            "kubeletConfig:\n  cpuManagerPolicy: static\n  cpuCFSQuota: true\n  cpuCFSQuotaPeriod: 50ms\n"
            "  topologyManager: {policy: restricted, scope: pod}\n  memoryManager: {policy: None}\n"
            "linuxConfig: {sysctl: {a: '1'}}\n",
            {"topology_manager_policy": "restricted", "topology_manager_scope": "pod", "cpu_cfs_quota_period": "50ms",
             "kube_reserved": {"cpu": "500m"}}, "node configuration of GKE, kubeletConfig", id="GKE"),
        pytest.param(
            "node-label: [a=b]\nkubelet-arg:\n- cpu-manager-policy=static\n- --reserved-cpus=0-1\nkubelet-arg+: []\n",
            _SET, "k3s or RKE2, kubelet-arg", id="k3s"),
        pytest.param(
            "kind: Cluster\napiVersion: kops/v1alpha2\nmetadata: {name: c}\nspec: {kubelet: {maxPods: 8}}\n",
            {"max_pods": 8}, "Cluster c, spec.kubelet", id="kOps by its old group"),
        pytest.param("services: {kubelet: {extra_args: {max-pods: 250}}}\n", {"max_pods": 250}, "RKE", id="RKE"),
        pytest.param(
            "kind: Cluster\napiVersion: provisioning.cattle.io/v1\nmetadata: {name: r}\nspec: {rkeConfig: "
            "{machineGlobalConfig: {kubelet-arg: [max-pods=9]}}}\n", {"max_pods": 9},
            "Cluster r, spec.rkeConfig.machineGlobalConfig.kubelet-arg", id="Rancher"),
        pytest.param(
            "apiVersion: k0s.k0sproject.io/v1beta1\nkind: ClusterConfig\nspec: {workerProfiles: "
            "[{name: w, values: {maxPods: 4}}]}\n", {"max_pods": 4}, "worker profile w", id="k0s"),
        pytest.param(
            "apiVersion: core.gardener.cloud/v1beta1\nkind: Shoot\nmetadata: {name: s}\nspec:\n  kubernetes: {kubelet: "
            "{maxPods: 5, kubeReserved: {cpu: 80m, ephemeralStorage: 1Gi}, evictionHard: {memoryAvailable: 5%}}}\n"
            "  provider: {workers: [{name: w, kubernetes: {kubelet: {cpuManagerPolicy: static, maxPods: 6}}}]}\n",
            {"max_pods": 6, "cpu_manager_policy": "static", "eviction_hard": {"memory.available": "5%"},
             "kube_reserved": {"cpu": "80m", "ephemeral-storage": "1Gi"}},
            "Shoot s, spec.kubernetes.kubelet, then Shoot s, spec.provider.workers[0]", id="Gardener"),
        pytest.param(
            "apiVersion: seedmanagement.gardener.cloud/v1alpha1\nkind: ManagedSeedSet\nmetadata: {name: m}\nspec:\n"
            "  replicas: 2\n  shootTemplate: {spec: {kubernetes: {kubelet: {maxPods: 7}}}}\n",
            {"max_pods": 7}, "ManagedSeedSet m, spec.shootTemplate.spec.kubernetes.kubelet", id="ManagedSeedSet"),
        pytest.param(
            "[settings.kubernetes]\nmax-pods = 40\ncpu-manager-policy = 'static'\ncluster-name = 'x'\n"
            "cpu-manager-policy-options = ['full-pcpus-only']\n[settings.kubernetes.kube-reserved]\ncpu = '100m'\n"
            "[settings.kubernetes.eviction-hard]\n'memory.available' = '5%'\n",
            {"max_pods": 40, "cpu_manager_policy_options": {"full-pcpus-only": "true"},
             "kube_reserved": {"cpu": "100m"}, "eviction_hard": {"memory.available": "5%"}},
            "settings.kubernetes of Bottlerocket", id="Bottlerocket"),
    ],
)  # fmt: skip
def test_a_platform_is_read(write: Write, text: str, fields: dict[str, Any], origin: str) -> None:
    """Each field has the value that the kubelet gets, and a line says where it was taken from."""
    loaded = load_kubelet_config(write(text))
    assert {name: getattr(loaded.config, name) for name in fields} == fields
    assert origin in loaded.provenance[0]
    assert loaded.warnings == ()


def _profile(text: str, write: Write) -> KubeletConfig:
    return load_kubelet_config(write(text)).config


def test_the_memory_of_a_profile_is_the_sum_of_what_it_reserves(write: Write) -> None:
    """The Memory Manager needs exactly both reservations and the threshold, also where an annotation changes them."""
    plain = _profile(_PROFILE % ("", "restricted"), write)
    assert [(one.numa_node, one.limits) for one in plain.reserved_memory] == [(0, {"memory": "1100Mi"})]
    assert plain.cpu_manager_policy_options == {}
    more = """kubeletconfig.experimental: '{"systemReserved": {"memory": "1Gi"}, "maxPods": 9}'"""
    changed = _profile(_PROFILE % (more, "restricted"), write)
    assert changed.reserved_memory[0].limits == {"memory": "1624Mi"}
    assert (changed.system_reserved, changed.max_pods) == ({"memory": "1Gi"}, 9)


def test_a_made_kubelet_config_replaces_its_profile(write: Write) -> None:
    """Both are in an export of the cluster; the KubeletConfig is what the kubelet gets."""
    made = (
        "---\napiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nmetadata: {name: performance-p}\n"
        "spec: {kubeletConfig: {maxPods: 3}}\n"
    )
    assert _profile(_PROFILE % ("", "restricted") + made, write).max_pods == 3


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("kubeletConfig: {cpuManagerPolicy: static, memoryManager: {policy: Static}}\n",
         "kubeReserved cpu 500m: GKE reserves CPUs itself, and the file does not say how many"),
        ("kubeletConfig: {cpuManagerPolicy: static, memoryManager: {policy: Static}}\n",
         "reservedMemory 100Mi of NUMA node 0: GKE sets it itself, and the file does not say how much"),
        ("apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nspec: {kubeletConfig: "
         "{cpuManagerPolicy: static}, autoSizingReserved: true}\n", "systemReserved cpu 500m: OpenShift reserves"),
        ("apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nspec: {kubeletConfig: {maxPods: 1}, "
         "autoSizingReserved: true}\n", "autoSizingReserved, by which the node computes systemReserved"),
        ("machine: {kubelet: {extraConfig: {cpuManagerPolicy: static}}}\n", "systemReserved cpu 50m: Talos reserves"),
        ("kubelet-arg: [config=/etc/k.yaml, max-pods=3]\n", "/etc/k.yaml, which the arguments name, sets nothing"),
        (ignition(encoded(_BODY.encode()), path="/etc/kubernetes/kubelet.conf.d/20.conf"), "over which this drop-in"),
        ("apiVersion: controlplane.cluster.x-k8s.io/v1beta1\nkind: KubeadmControlPlane\nmetadata: {name: cp}\nspec: "
         "{kubeadmConfigSpec: {joinConfiguration: {nodeRegistration: {kubeletExtraArgs: {max-pods: 3}}}}}\n---\n"
         "apiVersion: bootstrap.cluster.x-k8s.io/v1beta1\nkind: KubeadmConfigTemplate\nmetadata: {name: w}\nspec: "
         "{template: {spec: {joinConfiguration: {nodeRegistration: {kubeletExtraArgs: {max-pods: 4}}}}}}\n",
         "the node is a worker: KubeadmControlPlane cp"),
    ],
)  # fmt: skip
def test_what_a_platform_adds_is_assumed_aloud(write: Write, text: str, line: str) -> None:
    """A line names what the file leaves to the platform."""
    assert any(line in one for one in load_kubelet_config(write(text)).assumed)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (ignition("https://example.com/kubelet"), r"spec.config.storage.files[1].contents.source: 'https:"),
        (ignition(encoded(b"KubeletConfiguration"), "gzip"), "contents.source: cannot be unpacked"),
        (ignition("data:;base64,%"), "is not base64"),
        ("kubelet-arg: {a: b}\nnode-label: x\n", "kubelet-arg[a]: --a: is not a flag of a kubelet"),
        ("kubelet-arg: [max-pods=x]\n", "kubelet-arg[0]: --max-pods: 'x' is not a whole number"),
        ("kubelet-arg: [[1]]\n", "kubelet-arg[0]: is not a flag of a kubelet"),
        ("kubeletConfig: {cpuManagerPolicy: static, topologyManager: none}\n", "kubeletConfig.topologyManager: is not"),
        ("kubeletConfig: {cpuManagerPolicy: 5}\n", "kubeletConfig.cpuManagerPolicy: json: cannot unmarshal number"),
        (_PROFILE % ("kubeletconfig.experimental: '['", "restricted"), "[kubeletconfig.experimental]: is not JSON"),
        ("[settings.kubernetes]\nmax-pods = \n", "is not valid TOML"),
        (_PROFILE % ("""kubeletconfig.experimental: '{"kubeReserved": 5}'""", "restricted"),
         "[kubeletconfig.experimental]: kubeReserved: json: cannot unmarshal number"),
        ("apiVersion: eksctl.io/v1alpha5\nkind: ClusterConfig\nnodeGroups: 5\n", "without kubeletExtraConfig"),
        ("apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\nmetadata: {name: c}\nspec: {}\n", "without spec.kubelet"),
        (
            "apiVersion: core.gardener.cloud/v1beta1\nkind: Shoot\nmetadata: {name: s, namespace: g}\nspec: {}\n",
            "Shoot g/s of Gardener without spec.kubernetes.kubelet (give the Shoot of",
        ),
        (
            "apiVersion: seedmanagement.gardener.cloud/v1alpha1\nkind: ManagedSeed\nmetadata: {name: m}\n",
            "ManagedSeed m of Gardener without spec.kubernetes.kubelet",
        ),
        ("machine: {type: worker, kubelet: {}}\n", "is a machine of Talos without machine.kubelet.extraConfig"),
        ("apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\nspec: {kubelet: {evictionHard: memory.available}}\n",
         "spec.kubelet.evictionHard: 'memory.available' is not KEY<VALUE"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_named_with_its_place(write: Write, text: str, problem: str) -> None:
    """One line with the path in the file."""
    with pytest.raises(InputError) as caught:
        load_kubelet_config(write(text))
    assert problem in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_field_that_is_not_read_is_named(write: Write) -> None:
    """A field of a platform that podslice does not know is a warning."""
    loaded = load_kubelet_config(write("kubeletConfig: {cpuManagerPolicy: none, newField: 1, maxPods: 3}\n"))
    assert loaded.warnings == ("newField of node configuration of AKS, kubeletConfig is not read",)
    assert loaded.config.max_pods == 3


_CLASS = "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: %s}\nspec: {kubelet: {maxPods: %d}}\n"
SEVERAL = "---\n".join(_CLASS % one for one in (("web", 10), ("ml", 20)))


@pytest.mark.parametrize(("name", "pods"), [("#web", 10), ("#ml", 20), ("#EC2NodeClass ml", 20)])
def test_one_of_several_is_named(tmp_path: Path, name: str, pods: int) -> None:
    """FILE#NAME is one of the configurations of a file; a file of that very name comes first."""
    file = tmp_path / "c.yaml"
    file.write_text(SEVERAL)
    assert load_config(ConfigSource(f"{file}{name}"), ()).config.max_pods == pods
    (tmp_path / f"c.yaml{name}").write_text("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n")
    assert load_config(ConfigSource(f"{file}{name}"), ()).config.max_pods == 110


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "holds 2 configurations of kubelets: EC2NodeClass web, EC2NodeClass ml (name one of them behind the file, "
             "as in FILE#web, or give it in a file of its own)"),
        ("#mll", "holds no configuration of a kubelet named 'mll' (did you mean ml?)"),
        ("#x/y", "holds no configuration of a kubelet named 'x/y' (it holds EC2NodeClass web, EC2NodeClass ml)"),
    ],
)  # fmt: skip
def test_several_without_a_name(tmp_path: Path, name: str, problem: str) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(SEVERAL)
    with pytest.raises(InputError) as found:
        load_config(ConfigSource(f"{file}{name}"), ())
    assert problem in str(found.value)


@pytest.mark.parametrize(
    ("more", "memory"),
    [
        ("", "100Mi"),
        (", kubeReserved: {memory: 1Gi}, evictionHard: {memory.available: 512Mi}", "1536Mi"),
        (", evictionHard: {nodefs.available: 10%}, systemReserved: {memory: 2Gi}", "2Gi"),
        (", evictionHard: {memory.available: 5%}", ""),
        (", reservedMemory: [{numaNode: 1, limits: {memory: 100Mi}}]", ""),
    ],
)
def test_memory_that_a_platform_reserves_is_assumed_aloud(write: Write, more: str, memory: str) -> None:
    """The Static Memory Manager policy does not start unless reservedMemory adds up; a share of the machine is not
    known from the file."""
    openshift = "apiVersion: machineconfiguration.openshift.io/v1\nkind: KubeletConfig\nspec: {kubeletConfig: {"
    for head, tail in ((openshift, "}}\n"), ("machine: {kubelet: {extraConfig: {", "}}}\n")):
        loaded = load_kubelet_config(write(f"{head}memoryManagerPolicy: Static{more}{tail}"))
        lines = [one for one in loaded.assumed if one.startswith("reservedMemory ")]
        assert [one.split()[1] for one in lines] == ([memory] if memory else [])
        if memory:
            (reserved,) = loaded.config.reserved_memory
            assert (reserved.numa_node, reserved.limits) == (0, {"memory": memory})
