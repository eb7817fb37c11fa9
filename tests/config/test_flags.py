"""Flags of a kubelet's command line as fields of its configuration."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.config.carriers.flags import FIELD_OF_FLAG, iter_flags, read_flags
from podslice.config.carriers.layer import FieldPlace, Layer, merge_layers
from podslice.config.carriers.recognize import read_document
from podslice.config.kubelet_file import config_from_dict
from podslice.config.schema import field_names
from podslice.values.errors import MOST_HINTS, InputErrors


def read(*words: str) -> dict[str, Any]:
    return dict(read_flags(iter_flags(words, FieldPlace()), "test").layer.fields)


@pytest.mark.parametrize(
    ("words", "fields"),
    [
        (("--kube-reserved=cpu=1,memory=1Gi", "--kube-reserved=pid=9"),
         {"kubeReserved": {"cpu": "1", "memory": "1Gi", "pid": "9"}}),
        (("--eviction-hard=memory.available<5%,nodefs.available<1Gi",),
         {"evictionHard": {"memory.available": "5%", "nodefs.available": "1Gi"}}),
        (("--eviction-hard=",), {"evictionHard": {}}),
        (("--eviction-minimum-reclaim=memory.available=1Gi",),
         {"evictionMinimumReclaim": {"memory.available": "1Gi"}}),
        (("--reserved-memory", "0:memory=1Gi,hugepages-1Gi=2Gi", "--reserved-memory=1:memory=2Gi"),
         {"reservedMemory": [{"numaNode": 0, "limits": {"memory": "1Gi", "hugepages-1Gi": "2Gi"}},
                             {"numaNode": 1, "limits": {"memory": "2Gi"}}]}),
        (("--feature-gates=MemoryQoS=true,A=False",), {"featureGates": {"MemoryQoS": True, "A": False}}),
        (("--cpu-manager-policy-options=full-pcpus-only=true",),
         {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}),
        (("--enforce-node-allocatable=pods,kube-reserved",), {"enforceNodeAllocatable": ["pods", "kube-reserved"]}),
        (("--cpu-cfs-quota", "--fail-swap-on=false"), {"cpuCFSQuota": True, "failSwapOn": False}),
        (("--anonymous-auth=false", "--authentication-token-webhook"),
         {"authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}}}),
        (("-v", "4", "--node-labels=a=b", "--config", "/x"), {"logging": {"verbosity": 4}}),
        (("--register-with-taints=a=b:NoSchedule,c:NoExecute",),
         {"registerWithTaints": [{"key": "a", "value": "b", "effect": "NoSchedule"},
                                 {"key": "c", "value": "", "effect": "NoExecute"}]}),
        (("--pod-max-pids=100", "--reserved-cpus=0-3"), {"podPidsLimit": 100, "reservedSystemCPUs": "0-3"}),
    ],
)  # fmt: skip
def test_a_flag_sets_its_field(words: tuple[str, ...], fields: dict[str, Any]) -> None:
    """Every form of value is read as a kubelet reads it; flags that set nothing are passed over."""
    assert read(*words) == fields


def test_every_flag_has_a_field() -> None:
    """Each flag of the table leads to a field of the schema."""
    assert {field.split(".")[0] for field in FIELD_OF_FLAG.values()} <= set(field_names())


def test_a_flag_of_an_older_kubelet_is_left_out() -> None:
    """It is named, so that a strict reading can refuse it."""
    summary = read_flags(iter_flags(["--network-plugin=cni", "--allow-privileged", "--max-pods=7"], FieldPlace()), "")
    assert [str(one) for one in summary.layer.ignored] == [
        "--network-plugin is a flag of older kubelets only, and is left out",
        "--allow-privileged is a flag of older kubelets only, and is left out",
    ]
    assert summary.layer.fields == {"maxPods": 7}


def test_a_template_is_no_value() -> None:
    """A program fills it in before the kubelet gets it."""
    summary = read_flags(iter_flags(["--max-pods=${MAX}", "--cpu-manager-policy={{ .p }}"], FieldPlace()), "")
    assert summary.layer.fields == {}
    assert str(summary.layer.ignored[0]) == "--max-pods has a template for a value, and is left out"


def test_layers_are_merged_as_a_kubelet_merges_them() -> None:
    """Drop-ins merge maps and structs and replace lists; flags replace maps, and add to the feature gates."""
    base = Layer(
        {
            "kubeReserved": {"cpu": "1", "memory": "1Gi"},
            "featureGates": {"A": True, "B": True},
            "clusterDNS": ["1.1.1.1"],
            "authorization": {"mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "5m"}},
        },
        "file",
    )
    drop_in = Layer(
        {
            "kubeReserved": {"cpu": "2"},
            "clusterDNS": ["2.2.2.2", "3.3.3.3"],
            "authorization": {"webhook": {"cacheAuthorizedTTL": "8m"}},
        },
        "drop-in",
    )
    flags = Layer({"systemReserved": {"cpu": "1"}, "kubeReserved": {"pid": "5"}, "featureGates": {"B": False}}, "flags",
                  merge="flags")  # fmt: skip
    merged = merge_layers([base, drop_in]).data
    assert merged["kubeReserved"] == {"cpu": "2", "memory": "1Gi"}
    assert merged["clusterDNS"] == ["2.2.2.2", "3.3.3.3"]
    assert merged["authorization"] == {"mode": "Webhook", "webhook": {"cacheAuthorizedTTL": "8m"}}
    document = merge_layers([base, drop_in, flags])
    assert document.data["kubeReserved"] == {"pid": "5"}
    assert document.data["featureGates"] == {"A": True, "B": False}
    assert document.origins == ("file", "drop-in", "flags")


def test_thousands_of_unknown_names_get_few_hints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every unknown flag or field is named; the nearest known name is looked for a bounded number of times."""
    searched: list[str] = []

    def search(name: str, *rest: Any) -> list[str]:
        searched.append(name)
        return []

    monkeypatch.setattr("difflib.get_close_matches", search)
    monkeypatch.setattr("podslice.config.kubelet_file.get_close_matches", search)
    line = "kubelet " + " ".join(f"--cpu-manager-policyx{number}=static" for number in range(200))
    with pytest.raises(InputErrors) as caught:
        read_document(line)
    assert len(caught.value.errors) == 200
    fields = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    loaded = config_from_dict({**fields, **{f"cpuManagerPolicyX{number}": "static" for number in range(200)}})
    assert len(loaded.unknown_fields) == 200
    assert len(searched) == 2 * MOST_HINTS
