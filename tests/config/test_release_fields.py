"""The fields of a KubeletConfiguration, release by release."""

from __future__ import annotations

from typing import Any

import pytest

from podslice.config.kubelet import KubeletConfig, fields_in, ignored_fields, unknown_fields
from podslice.config.kubelet_file import config_from_fields
from podslice.config.schema import later_fields
from podslice.config.validation import validate
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node
from podslice.values.releases.table import RELEASES

WRITTEN: dict[str, Any] = {
    "maxPods": 50,
    "evictionHard": {"nodefs.available": "5%"},
    "crashLoopBackOff": {"maxContainerRestartPeriod": "60s"},
    "singleProcessOOMKill": True,
    "mergeDefaultEvictionSettings": True,
    "imagePullCredentialsVerificationPolicy": "AlwaysVerify",
    "preloadedImagesVerificationAllowlist": ["registry.k8s.io/pause"],
    "userNamespaces": {"idsPerPod": 65536},
    "tlsCurvePreferences": [29],
    "memoryReservationPolicy": "TieredReservation",
    "defaultPodSysctls": {"net.ipv4.ip_forward": "1"},
}


def load(**fields: Any) -> KubeletConfig:
    """The configuration of these fields, of which every release together knows all."""
    loaded = config_from_fields(fields)
    assert loaded.warnings == ()
    return loaded.config


@pytest.mark.parametrize(
    ("minor", "unknown"),
    [
        (31, "crashLoopBackOff singleProcessOOMKill"),
        (32, "imagePullCredentialsVerificationPolicy mergeDefaultEvictionSettings "
             "preloadedImagesVerificationAllowlist userNamespaces"),
        (35, "memoryReservationPolicy tlsCurvePreferences"),
        (36, "defaultPodSysctls"),
    ],
)  # fmt: skip
def test_the_last_release_without_a_field(minor: int, unknown: str) -> None:
    """A release ignores the fields that later ones bring, and no others."""
    config = load(**WRITTEN)
    assert {*unknown.split()} <= {*unknown_fields(config, RELEASES[minor])}
    assert not {*unknown.split()} & {*unknown_fields(config, RELEASES[minor + 1])}
    assert {*WRITTEN} - {"maxPods", "evictionHard"} <= {*later_fields()}


def test_a_field_that_is_not_there_counts_for_nothing() -> None:
    """Fields of the resource managers get their defaults, the others go; what every release knows stays."""
    config = load(**WRITTEN)
    old = fields_in(config, RELEASES[31])
    assert (old.single_process_oom_kill, old.memory_reservation_policy, old.other_fields) == (None, "None", {})
    assert old.max_pods == 50
    assert fields_in(config, RELEASES[37]) is config


def test_a_value_that_a_later_release_refuses() -> None:
    """1.35 starts with a value of memoryReservationPolicy that no release knows, because it does not look."""
    config = load(memoryReservationPolicy="Some")
    assert validate(fields_in(config, RELEASES[35]), RELEASES[35]) == []
    assert [one.field for one in validate(config, RELEASES[36])] == ["memoryReservationPolicy"]


@pytest.mark.parametrize(("minor", "threshold"), [(32, 0), (33, 100 << 20)])
def test_thresholds_are_merged_since_1_33(minor: int, threshold: int) -> None:
    """Without mergeDefaultEvictionSettings a threshold in the file replaces the one of memory."""
    config = load(
        evictionHard={"nodefs.available": "5%"}, mergeDefaultEvictionSettings=True, kubeReserved={"memory": "1Gi"}
    )
    node = Node(from_synthetic("pack:1 numa:1(memory=8GiB) core:4 pu:1"), config, kubernetes=f"1.{minor}")
    assert node.view.allocatable["memory"].value() == (7 << 30) - threshold


def test_the_warning_names_the_release_that_has_the_field() -> None:
    """As a kubelet, podslice warns; the remedy is a release."""
    (warning,) = ignored_fields(load(memoryReservationPolicy="TieredReservation"), RELEASES[34])
    assert str(warning) == "memoryReservationPolicy is ignored: Kubernetes 1.36 is the first to have it, not 1.34"
    assert warning.remedy == "remove it, or set it with Kubernetes 1.36"


@pytest.mark.parametrize(
    ("minor", "gates", "starts"), [(35, {}, False), (35, {"CustomCPUCFSQuotaPeriod": True}, True), (36, {}, True)]
)
def test_another_quota_period_needs_a_gate_up_to_1_35(minor: int, gates: dict[str, bool], starts: bool) -> None:
    """cpuCFSQuotaPeriod may be another than 100ms without a gate since 1.36."""
    problems = validate(load(cpuCFSQuotaPeriod="50ms", featureGates=gates), RELEASES[minor])
    assert [one.field for one in problems] == ([] if starts else ["cpuCFSQuotaPeriod"])
