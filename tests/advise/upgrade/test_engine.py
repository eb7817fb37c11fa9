"""What another release of the kubelet changes, found by running both."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from podslice.advise.upgrade.changes import ROWS, Asked, rows_between
from podslice.advise.upgrade.engine import Upgrade, walk
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.kubelet import KubeletConfig, MemoryReservation
from podslice.machine.devices import DeviceInventory
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node
from podslice.values.quirks import quirks_of
from podslice.values.releases.release import Release
from podslice.values.releases.table import RELEASES, parse_release
from tests.conftest import make_pod

DOCS = Path(__file__).parents[3] / "docs"
TWO_SOCKETS = "pack:2 numa:1(memory=64GB) core:8 pu:2(indexes=pu)"
CACHES = "pack:1 numa:1(memory=64GB) l3:4 core:8 pu:2"
SURE = {"recorded": "R", "specification": "S", "announced": "N"}
STATIC: dict[str, Any] = {"cpu_manager_policy": "static", "reserved_system_cpus": "0", "eviction_hard": {}}
WEB = make_pod("web", ("app", "500m"))
DB = make_pod("db", ("app", "2"))


def step(old: str, new: str, pods: list[Pod], machine: str = TWO_SOCKETS, **config: Any) -> Upgrade:
    """The upgrade of a node on which these pods run."""
    node = Node(from_synthetic(machine), KubeletConfig(**{**STATIC, **config}), profile=f"kubelet-{old}")
    assert all(node.admit(pod).admitted for pod in pods)
    (found,) = walk(node, pods, parse_release(new), config=KubeletConfig(**{**STATIC, **config}))
    return found


def test_nothing_changes_between_releases_that_decide_alike() -> None:
    """1.34 and 1.35 do the same with a plain node."""
    found = step("1.34", "1.35", [DB, WEB])
    assert (found.errors, found.running, found.recreated, found.rollback) == ((), (), (), ())
    assert not found.harms


def test_quotas_go_with_1_33_and_return_with_a_roll_back() -> None:
    """Exclusive CPUs have no CFS quota since 1.33, because of a gate's default; a roll-back gives it back."""
    found = step("1.32", "1.33", [DB, WEB])
    quotas = [(one.subject, one.text) for one in found.running]
    assert quotas == [
        ("default/db", "the pod's cgroup: cpu.max is max 100000, was 200000 100000 (no CFS quota any more)"),
        ("default/db", "container app: cpu.max is max 100000, was 200000 100000 (no CFS quota any more)"),
    ]
    assert {one.cause.partition(" (")[0] for one in found.running} == {
        "gate DisableCPUQuotaWithExclusiveCPUs is on by default"
    }
    assert not found.harms
    assert found.recreated == found.running
    assert [one.harms for one in found.rollback] == [True, True]
    assert found.rollback[1].text.endswith("cpu.max is 200000 100000, was max 100000 (it gets a CFS quota)")


def test_a_downgrade_that_throttles_harms() -> None:
    """A running container that gets a quota is harmed."""
    assert step("1.33", "1.32", [DB]).harms
    assert not step("1.33", "1.32", [WEB]).harms


def test_a_gate_that_is_gone_stops_the_kubelet() -> None:
    """The gate is named with what to do; what the pods meet is told as if it were left out."""
    found = step("1.35", "1.36", [DB], feature_gates={"MemoryManager": True})
    assert found.errors == ("unrecognized feature gate: MemoryManager",)
    assert found.harms
    named = next(one for one in found.configuration if one.subject == "featureGates.MemoryManager")
    assert named.harms
    assert "remove it: Kubernetes 1.35 is the last to have it" in named.text
    assert found.running == ()


def test_a_gate_that_is_locked_stops_the_kubelet() -> None:
    """So does one that has been locked to the other value."""
    found = step("1.35", "1.36", [DB], feature_gates={"TopologyManagerPolicyOptions": False})
    assert found.errors
    assert [one.text for one in found.configuration if one.harms] == [
        "1.36 has locked it on: the kubelet does not start with false"
    ]


def test_an_option_that_an_older_release_lacks() -> None:
    """A downgrade names the option that the older kubelet does not know."""
    found = step("1.32", "1.31", [DB], cpu_manager_policy_options={"strict-cpu-reservation": "true"}, **ALPHA)
    assert found.harms
    assert [one.subject for one in found.configuration if one.harms] == [
        "cpuManagerPolicyOptions.strict-cpu-reservation"
    ]


ALPHA: dict[str, Any] = {"feature_gates": {"CPUManagerPolicyAlphaOptions": True}}


def test_a_promoted_option_moves_new_pods_only() -> None:
    """The uncore option takes odd numbers since 1.34: pods that run stay, one that is made anew gets other CPUs, and
    the cause is found by giving the new kubelet the old fact."""
    options = {"prefer-align-cpus-by-uncorecache": "true"}
    pods = [make_pod("odd", ("app", "7"))]
    found = step("1.33", "1.34", pods, CACHES, cpu_manager_policy_options=options, reserved_system_cpus="0-3", **ALPHA)
    assert found.running == ()
    (anew,) = found.recreated
    assert re.fullmatch(r"container app gets CPUs [\d,-]+ of its own, not [\d,-]+", anew.text)
    assert anew.cause.startswith("`prefer-align-cpus-by-uncorecache`: alpha; parts of a cache are whole cores")
    assert not found.harms


def test_state_files_that_an_older_kubelet_does_not_read() -> None:
    """The files of a 1.36 kubelet with pod entries stop a 1.35 one; pods that are made anew are told all the same."""
    gates = {"PodLevelResourceManagers": True}
    found = step("1.36", "1.35", [DB], feature_gates=gates)
    assert [text.partition(":")[0] for text in found.errors] == [
        "unrecognized feature gate",
        "with the state files of the 1.36 kubelet",
    ]
    assert found.harms


def test_a_running_pod_that_is_refused_harms() -> None:
    """A pod with pod-level resources loses its CPUs or its place where the newer kubelet ignores them: the change names
    the pod, and the exit code says so."""
    pod = make_pod("level", ("app", "2"), budget="2")
    found = step("1.33", "1.34", [pod], feature_gates={"PodLevelResources": True})
    assert [one.subject for one in found.recreated if "gets no CPUs of its own" in one.text] == ["default/level"]
    assert next(one.cause for one in found.recreated if "no CPUs" in one.text).startswith(
        "pods with pod-level resources: judged by their containers"
    )


def test_step_by_step_each_release_starts_from_the_one_before() -> None:
    """`--all` carries state files and pods from release to release, and ends where one step would."""
    pods = [DB, WEB]
    node = Node(from_synthetic(TWO_SOCKETS), KubeletConfig(**STATIC), profile="kubelet-1.31")
    for pod in pods:
        node.admit(pod)
    steps = walk(node, pods, parse_release("1.37"), step_by_step=True)
    assert [(one.before, one.after) for one in steps] == [(f"1.{n}", f"1.{n + 1}") for n in range(31, 37)]
    assert [one.after for one in steps if one.running] == ["1.33"]
    assert [one.proven for one in steps] == [True] * 5 + [False]


@pytest.mark.parametrize("minor", [minor for minor in RELEASES if minor - 1 in RELEASES])
def test_every_fact_and_defect_that_changes_has_a_row(minor: int) -> None:
    """A cause can be named: each fact of a release that changes is one of a row of its release, and each defect that
    began or ended with it."""
    before, after = RELEASES[minor - 1], RELEASES[minor]
    apart = ("minor", "proof", "rows", "gates", "needs", "cpu_options", "topology_options", "config_fields")
    facts = {
        name
        for name in Release.__struct_fields__
        if name not in apart and getattr(before, name) != getattr(after, name)
    }
    quirks_before, quirks_after = quirks_of(before), quirks_of(after)
    quirks = {
        name for name in quirks_after.__struct_fields__ if getattr(quirks_before, name) != getattr(quirks_after, name)
    }
    own = [row for row in ROWS if row.since == minor]
    assert facts <= {fact for row in own for fact in row.facts}
    assert quirks <= {quirk for row in own for quirk in row.quirks}


def test_the_rows_are_those_of_the_page() -> None:
    """docs/releases.md tells the same changes in the same order."""
    text = (DOCS / "releases.md").read_text(encoding="utf-8")
    told = re.findall(r"^\| 1\.(\d+) \| (.*?) \| (.*?) \| (.*?) \| ([RSN]) \|$", text, re.MULTILINE)
    assert [(str(row.since), row.what, row.before, row.now, SURE[row.proof]) for row in ROWS] == told


def test_rows_are_about_the_node() -> None:
    """Rows about memory, devices or options are left out where a node has none of it."""
    plain = Asked(KubeletConfig(), DeviceInventory(), (WEB,))
    bound = Asked(KubeletConfig(memory_manager_policy="Static"), DeviceInventory(), (WEB,))
    left = {row.touches for row in rows_between(31, 37, plain)}
    assert left == {"always"}
    assert {row.touches for row in rows_between(31, 37, bound)} == {"always", "memory"}


def test_memory_bindings_are_compared() -> None:
    """Memory of a running pod stays bound to its NUMA node through all releases."""
    config: dict[str, Any] = {
        "memory_manager_policy": "Static",
        "system_reserved": {"memory": "1Gi"},
        "reserved_memory": (MemoryReservation(0, {"memory": "1Gi"}),),
        "topology_manager_policy": "single-numa-node",
    }
    found = step("1.33", "1.37", [DB], **config)
    assert (found.errors, found.running, found.rollback) == ((), (), ())


def test_state_files_with_which_no_kubelet_starts_again() -> None:
    """Where pods own every CPU that is not reserved, a strict kubelet leaves an empty pool and cannot start again,
    whatever its release: that is an error of the files, not a crash of ours."""
    options = {"strict-cpu-reservation": "true"}
    pod = make_pod("all", ("app", "31"))
    found = step("1.33", "1.36", [pod], cpu_manager_policy_options=options)
    assert found.errors == (
        "with the state files of the 1.33 kubelet: start cpu manager error: default cpuset cannot be empty",
    )
    assert found.harms
    assert found.running == ()


@pytest.mark.parametrize(("old", "new"), [("1.33", "1.34"), ("1.34", "1.33")])
def test_pod_level_resources_that_begin_to_count(old: str, new: str) -> None:
    """1.34 brings the gate PodLevelResources on: the limits of such a pod come, and go with a downgrade. Both ways the
    gate is the cause of what it brings about alone."""
    pod = make_pod("level", ("app", "2"), ("log", None), budget="4")
    node = Node(from_synthetic(TWO_SOCKETS), KubeletConfig(**STATIC), profile=f"kubelet-{old}")
    assert node.admit(pod).admitted
    (found,) = walk(node, [pod], parse_release(new))
    limits = next(one for one in found.running if one.text.startswith("container log: memory.max"))
    assert limits.text.endswith(("17179869184, was max", "max, was 17179869184"))
    assert limits.cause.startswith(f"gate PodLevelResources is {'on' if new == '1.34' else 'off'} by default")


BURSTABLE = pod_from_dict({
    "metadata": {"name": "cache", "namespace": "default", "uid": "cache"},
    "spec": {"containers": [{"name": "app", "image": "x", "resources": {"requests": {"memory": "1Gi"}}}]},
})  # fmt: skip


def test_memory_that_is_no_longer_throttled() -> None:
    """1.37 has no factor of its own: the file goes, and the row says why."""
    found = step("1.36", "1.37", [BURSTABLE], feature_gates={"MemoryQoS": True})
    (gone,) = found.running
    assert re.fullmatch(r"container app: memory.high is max, was \d+", gone.text)
    assert gone.cause == "`memoryThrottlingFactor` that is not set: 0.9 before 1.37, nothing is throttled since"
    assert not found.harms


def test_fields_that_one_of_two_releases_ignores() -> None:
    """A field counts where the release has it; one with a value that is refused is left out, and the rest is told."""
    fields: dict[str, Any] = {"memory_reservation_policy": "TieredReservation", "cpu_cfs_quota_period": "20ms"}
    gates = {"MemoryQoS": True}
    found = step("1.36", "1.34", [BURSTABLE], feature_gates=gates, other_fields={"tlsCurvePreferences": [29]}, **fields)
    period = "cpuCFSQuotaPeriod (--cpu-cfs-quota-period) {20ms} requires feature gate CustomCPUCFSQuotaPeriod"
    assert found.errors == (f"invalid configuration: {period}",)
    told = {one.subject: one.text for one in found.configuration if not one.subject.startswith("featureGates")}
    assert told == {
        "cpuCFSQuotaPeriod": "the kubelet does not start with its value",
        "memoryReservationPolicy": "acted on by 1.36, ignored by 1.34",
        "tlsCurvePreferences": "acted on by 1.36, ignored by 1.34",
    }
    protected = {one.text for one in found.running if one.cause.startswith("gate MemoryQoS, where it is on")}
    assert "container app: memory.min is 1073741824, was 0" in protected
    assert "container app: memory.low is 0, was 1073741824" in protected
    assert "container app: cpu.max is max 100000, was max 20000 (another period, and no CFS quota as before)" in {
        one.text for one in found.running
    }
    up = step("1.34", "1.36", [BURSTABLE], feature_gates={**gates, "CustomCPUCFSQuotaPeriod": True}, **fields)
    assert ("memoryReservationPolicy", "ignored by 1.34, acted on by 1.36") in {
        (one.subject, one.text) for one in up.configuration
    }
