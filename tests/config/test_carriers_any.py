"""Whatever stands in a carrier is read, or is one error: no value ends in a traceback."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice import InputError
from podslice.config.carriers.layer import merge_layers
from podslice.config.carriers.recognize import read_layers
from podslice.config.kubelet_file import load_document
from podslice.reading.yaml import dump

_NAMES = st.sampled_from([
    "kubelet", "kubeletConfig", "cpuManagerPolicy", "kubeReserved", "evictionHard", "reserved", "flags", "config",
    "extraArgs", "extraConfig", "max-pods", "contents", "source", "path", "name", "value", "memory.available",
    "topologyManager", "policy", "featureGates", "values", "userData", "0",
])  # fmt: skip
_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 300) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["static", "1Gi", "5%", "max-pods=5", "--max-pods", "a<b", "kubelet --v=1", "0-1", "data:,x", "'",
                       "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: 5\n", "kind: KubeletConfiguration",
                       "[settings.kubernetes]\na = 1\n", "#!/bin/sh\nb --kubelet-extra-args '--max-pods=x'\n"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
_CARRIERS: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "kubeadm": ("kubeadm.k8s.io/v1beta4", "JoinConfiguration", ("nodeRegistration", "kubeletExtraArgs")),
    "ConfigMap": ("v1", "ConfigMap", ("data",)),
    "KubeletConfig": ("machineconfiguration.openshift.io/v1", "KubeletConfig", ("spec", "kubeletConfig")),
    "profile": ("performance.openshift.io/v2", "PerformanceProfile", ("spec",)),
    "annotation": ("performance.openshift.io/v2", "PerformanceProfile", ("metadata", "annotations")),
    "MachineConfig": ("machineconfiguration.openshift.io/v1", "MachineConfig", ("spec", "config", "storage", "files")),
    "kOps": ("kops.k8s.io/v1alpha2", "Cluster", ("spec", "kubelet")),
    "Karpenter": ("karpenter.k8s.aws/v1", "EC2NodeClass", ("spec",)),
    "NodeConfig": ("node.eks.aws/v1alpha1", "NodeConfig", ("spec", "kubelet")),
    "eksctl": ("eksctl.io/v1alpha5", "ClusterConfig", ("nodeGroups",)),
    "Cluster API": ("bootstrap.cluster.x-k8s.io/v1beta1", "KubeadmConfig", ("spec", "joinConfiguration")),
    "Shoot": ("core.gardener.cloud/v1beta1", "Shoot", ("spec",)),
    "k0s": ("k0s.k0sproject.io/v1beta1", "ClusterConfig", ("spec", "workerProfiles")),
    "Talos": ("", "", ("machine", "kubelet")),
    "k3s": ("", "", ("kubelet-arg",)),
    "RKE": ("", "", ("services", "kubelet", "extra_args")),
    "GKE": ("", "", ("kubeletConfig",)),
    "List": ("v1", "List", ("items",)),
}


def outcome(text: str) -> str:
    """The error of a text, empty where it is read."""
    try:
        load_document(merge_layers(read_layers(text)))
    except InputError as error:
        return str(error)
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("carrier", _CARRIERS)
@settings(max_examples=40, deadline=None)
@given(value=_VALUES)
def test_any_value_is_read_or_is_an_error(carrier: str, value: Any) -> None:
    """The section of a carrier holds anything: decoding ends with a configuration or an `InputError`."""
    version, kind, path = _CARRIERS[carrier]
    for step in reversed(path):
        value = {step: value}
    document = {**({"apiVersion": version, "kind": kind} if kind else {}), **value}
    assert "None" not in outcome(dump(document))


@settings(max_examples=80, deadline=None)
@given(
    words=st.lists(
        st.sampled_from([
            "kubelet", "/usr/bin/kubelet", "--max-pods=5", "--max-pods", "5", "-v", "--v=2", "$A", "\n", "A=",
            "[Service]\n", "ExecStart=", "Environment=", "'", '"', "#", "k3s", "--kubelet-arg", "\\\n", "--",
            "--kubelet-extra-args", "--eviction-hard=a<b", "--reserved-memory=0:memory", "#!/bin/sh\n",
        ]),
        max_size=12,
    )
)  # fmt: skip
def test_any_command_line_is_read_or_is_an_error(words: list[str]) -> None:
    """Texts that are not YAML."""
    assert "None" not in outcome(" ".join(words))


_NOT_A_VALUE = "is an object or a list, not the value of a flag"


@pytest.mark.parametrize("carrier", ["kubeadm", "Cluster API", "Talos", "RKE"])
@pytest.mark.parametrize(
    ("flags", "place", "problem"),
    [
        ({"max-pods": {"kubelet": None}}, "[max-pods]", _NOT_A_VALUE),
        ({"max-pods": [[1]]}, "[max-pods]", _NOT_A_VALUE),
        ([{"name": "max-pods", "value": {"a": None}}], "[0]", _NOT_A_VALUE),
        ([{"name": None, "value": "5"}], "[0]", "is not a flag of a kubelet"),
        ([{"name": {"a": None}}], "[0]", "is not a flag of a kubelet"),
    ],
)
def test_flags_of_another_type(carrier: str, flags: Any, place: str, problem: str) -> None:
    """What is not a flag, or no value of one, is named by its place, never written as Python writes it."""
    above = {
        "kubeadm": ("nodeRegistration", "kubeletExtraArgs"),
        "Cluster API": ("spec", "joinConfiguration", "nodeRegistration", "kubeletExtraArgs"),
        "Talos": ("machine", "kubelet", "extraArgs"),
        "RKE": ("services", "kubelet", "extra_args"),
    }[carrier]
    version, kind, _ = _CARRIERS[carrier]
    value = flags
    for step in reversed(above):
        value = {step: value}
    document = {**({"apiVersion": version, "kind": kind} if kind else {}), **value}
    assert outcome(dump(document)).startswith(f"{'.'.join(above)}{place}: {problem} (")


@pytest.mark.parametrize(
    ("amount", "problem"),
    [("2", ""), ("0.5", ""), ("null", ""), ("true", "cannot unmarshal bool"), ("{a: null}", "cannot unmarshal object")],
)
def test_amounts_of_kops(amount: str, problem: str) -> None:
    """kOps takes amounts without quotes; a value of another type is refused by its type."""
    text = f"apiVersion: kops.k8s.io/v1alpha2\nkind: Cluster\nspec: {{kubelet: {{kubeReserved: {{cpu: {amount}}}}}}}\n"
    assert problem in outcome(text)
    assert bool(problem) == bool(outcome(text))
