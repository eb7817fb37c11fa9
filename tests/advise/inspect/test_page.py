"""The page about a pod: the matrix of KEP-2837 in numbers, and every sentence of the page."""

from __future__ import annotations

from typing import Any

import pytest

from podslice import KubeletConfig, Node
from podslice.advise.inspect.build import inspect_pod
from podslice.advise.inspect.cgroups import oom_formula
from podslice.advise.inspect.facts import KnownNode
from podslice.advise.inspect.page import Cgroup, Page
from podslice.api.pod.spec import pod_from_dict
from podslice.api.server.limitrange import limit_range_from_dict
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.gates import FeatureGates, later_gates
from podslice.values.quantity import Quantity
from podslice.values.quirks import PODSLICE, PROFILES
from podslice.values.releases.table import RELEASES

EIGHT_GI = 8 << 30
Stanza = dict[str, Any]


def amounts(text: str) -> dict[str, str] | None:
    """Parse `1/1Gi` as cpu and memory; None for `-`."""
    return None if text == "-" else dict(zip(("cpu", "memory"), text.split("/"), strict=True))


def stanza(requests: str, limits: str) -> Stanza:
    sides = {"requests": amounts(requests), "limits": amounts(limits)}
    return {side: value for side, value in sides.items() if value is not None}


def page(spec: Stanza, *, profile: str = "kubelet-1.36", gates: dict[str, bool] | None = None, **more: Any) -> Page:
    quirks = PROFILES[profile]
    data = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": spec}
    effective = FeatureGates.from_overrides(gates or {}, fixes=later_gates(quirks))
    more.setdefault("view", KnownNode(memory_capacity=EIGHT_GI))
    return inspect_pod(pod_from_dict(data), effective, quirks, data=data, **more)


def two(requests: str, limits: str, pod_requests: str = "-", pod_limits: str = "-") -> Stanza:
    """Return a pod of two equal containers, with pod-level resources unless both are `-`."""
    spec: Stanza = {"containers": [{"name": name, "resources": stanza(requests, limits)} for name in ("a", "b")]}
    if (pod_requests, pod_limits) != ("-", "-"):
        spec["resources"] = stanza(pod_requests, pod_limits)
    return spec


MI = 1 << 20
MATRIX = """
1  -  -  -  -  none  none  BestEffort  1  max  0  1  1  max  0  1000
2  -  -  -  250m/256Mi  500m/512Mi  500m/512Mi  Guaranteed  20  50000  512  10  35  25000  256  -997
3  -  -  200m/200Mi  -  400m/400Mi  none  Burstable  16  max  0  8  29  max  0  976
4  -  -  200m/200Mi  250m/256Mi  400m/400Mi  500m/512Mi  Burstable  16  50000  512  8  29  25000  256  976
5  -  1/1Gi  -  -  1/1Gi  1/1Gi  Guaranteed  39  100000  1024  39  100  100000  1024  -997
6  -  1/1Gi  -  250m/256Mi  500m/512Mi  1/1Gi  Burstable  20  100000  1024  10  35  25000  256  969
7  -  1/1Gi  200m/200Mi  -  400m/400Mi  1/1Gi  Burstable  16  100000  1024  8  29  100000  1024  976
8  -  1/1Gi  200m/200Mi  250m/256Mi  400m/400Mi  1/1Gi  Burstable  16  100000  1024  8  29  25000  256  976
9  600m/600Mi  -  -  -  600m/600Mi  none  Burstable  24  max  0  1  1  max  0  964
10  600m/600Mi  -  -  250m/256Mi  600m/600Mi  500m/512Mi  Burstable  24  50000  512  10  35  25000  256  964
11  600m/600Mi  -  200m/200Mi  -  600m/600Mi  none  Burstable  24  max  0  8  29  max  0  964
12  600m/600Mi  -  200m/200Mi  250m/256Mi  600m/600Mi  500m/512Mi  Burstable  24  50000  512  8  29  25000  256  964
13  600m/600Mi  1/1Gi  -  -  600m/600Mi  1/1Gi  Burstable  24  100000  1024  39  100  100000  1024  964
14  600m/600Mi  1/1Gi  -  250m/256Mi  600m/600Mi  1/1Gi  Burstable  24  100000  1024  10  35  25000  256  964
15  600m/600Mi  1/1Gi  200m/200Mi  -  600m/600Mi  1/1Gi  Burstable  24  100000  1024  8  29  100000  1024  964
16  600m/600Mi  1/1Gi  200m/200Mi  250m/256Mi  600m/600Mi  1/1Gi  Burstable  24  100000  1024  8  29  25000  256  964
"""
"""The numeric example of the specification (pod-level-resources 4), one line per row of the KEP's table: row, requests
and limits of the pod, of each container, effective request and limit, class; of the pod cpu.weight, quota, memory in
Mi; of each container the weight by older and by current runtimes, quota, memory in Mi, OOM score."""


@pytest.mark.parametrize("line", MATRIX.strip().splitlines(), ids=lambda line: f"row-{line.split()[0]}")
def test_matrix_of_the_kep(line: str) -> None:
    """Class, effective amounts, cgroup files and OOM score of every row of the KEP's table."""
    _, pod_requests, pod_limits, requests, limits, request, limit, qos, *cgroups = line.split()
    shown = page(two(requests, limits, pod_requests, pod_limits))
    assert shown.qos.qos_class == qos
    assert "/".join(row.request for row in shown.effective) == request.replace("none", "")
    assert "/".join(row.limit for row in shown.effective if row.limit) == limit.replace("none", "")
    weight, quota, memory, older, container_weight, container_quota, container_memory, score = cgroups
    pod, *containers = shown.cgroups
    assert (pod.files["cpu.weight"], pod.files["cpu.max"]) == (weight, f"{quota} 100000")
    assert pod.files["memory.max"] == in_bytes(memory)
    assert len(containers) == 2
    for one in containers:
        assert (one.older_weight, one.files["cpu.weight"]) == (older, container_weight)
        assert one.files["cpu.max"] == f"{container_quota} 100000"
        assert one.files["memory.max"] == in_bytes(container_memory)
        assert str(one.oom_score_adj) == score


def in_bytes(mebibytes: str) -> str:
    return "max" if mebibytes == "0" else str(int(mebibytes) * MI)


def test_written_and_becomes() -> None:
    """Amounts are shown as they were spelled, and what defaulting and LimitRange objects fill in is marked."""
    spec: Stanza = {
        "containers": [
            {"name": "a", "resources": {"limits": {"cpu": 0.5}, "requests": {"memory": "1.5Gi"}}},
            {"name": "b"},
        ]
    }
    limits = limit_range_from_dict({"spec": {"limits": [{"type": "Container", "default": {"memory": "2Gi"}}]}})
    shown = page(spec, limit_ranges=[limits])
    rows = {(row.owner, row.resource): row for row in shown.amounts}
    cpu, memory, other = rows["a", "cpu"], rows["a", "memory"], rows["b", "memory"]
    assert (cpu.request.written, cpu.request.becomes, cpu.request.by) == ("", "500m", "defaulting")
    assert (cpu.limit.written, cpu.limit.becomes, cpu.limit.changed) == ("0.5", "500m", False)
    assert (memory.request.written, memory.request.becomes, memory.request.changed) == ("1.5Gi", "1536Mi", False)
    assert (memory.limit.becomes, memory.limit.by) == ("2Gi", "LimitRange")
    assert (other.request.becomes, other.request.by, other.limit.by) == ("2Gi", "LimitRange", "LimitRange")
    assert rows["a", "cpu"].path == "spec.containers[0].resources"


def test_validated_before_it_is_read_back() -> None:
    """Defaults of a LimitRange for containers are not yet in the pod's own request when the pod is validated."""
    spec = {"resources": {"limits": {"hugepages-1Gi": "1Gi"}}, "containers": [{"name": "a"}]}
    limits = limit_range_from_dict({"spec": {"limits": [{"type": "Container", "min": {"cpu": "0"}}]}})
    shown = page(spec, limit_ranges=[limits])
    assert shown.errors == ("spec.resources: Forbidden: HugePages require cpu or memory",)


def test_sums_beyond_64_bits() -> None:
    """An amount that is filled in and too large is shown as it is read back."""
    large = {"resources": {"requests": {"memory": "7Ei"}}}
    spec = {"resources": {"limits": {"cpu": "1"}}, "containers": [{"name": "a", **large}, {"name": "b", **large}]}
    (memory,) = [row for row in page(spec).amounts if (row.owner, row.resource) == ("pod", "memory")]
    assert (memory.request.becomes, memory.request.by) == ("9223372036854775807", "defaulting")


def test_gate_off_drops_the_stanza() -> None:
    """With the gate off, spec.resources is shown as dropped and counts nowhere."""
    off = {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}
    shown = page(two("200m/200Mi", "-", "600m/600Mi"), gates=off)
    assert [(row.request.by, row.request.becomes) for row in shown.amounts if row.kind == "pod"] == [("gate", "")] * 2
    assert [row.request for row in shown.effective] == ["400m", "400Mi"]


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (two("-", "-"), "no container requests or limits cpu or memory"),
        (two("-", "1/1Gi"), "every container has cpu and memory limits and equal requests"),
        (
            two("1/1Gi", "2/1Gi"),
            "not Guaranteed, because container a has cpu request 1 below its limit 2, container b has cpu request 1 "
            "below its limit 2",
        ),
        (
            two("1/1Gi", "-"),
            "not Guaranteed, because container a has no cpu and no memory limit, container b has no cpu and no memory "
            "limit",
        ),
        (
            two("-", "-", "-", "1/1Gi"),
            "spec.resources has cpu and memory limits and equal requests; the containers do not matter",
        ),
        (
            two("-", "-", "1/1Gi"),
            "not Guaranteed, because spec.resources has no cpu and no memory limit; the containers do not matter",
        ),
        (
            {**two("-", "1/1Gi"), "resources": {}},
            "spec.resources is present but names no cpu or memory, and hides what the containers have",
        ),
    ],
)
def test_qos_sentence(spec: Stanza, why: str) -> None:
    """The reason names the container and resource that break the class."""
    assert page(spec).qos.why == why


def test_qos_of_an_empty_stanza_in_the_default_profile() -> None:
    """With the KEP's fix an empty spec.resources hides nothing."""
    assert page({**two("-", "1/1Gi"), "resources": {}}, profile="podslice").qos.qos_class == "Guaranteed"


def test_formulas() -> None:
    """The formulas name every term: running sum, sidecars, init peaks, overhead."""
    spec = {
        "overhead": {"cpu": "100m", "memory": "10Mi"},
        "initContainers": [
            {"name": "log", "restartPolicy": "Always", "resources": stanza("100m/10Mi", "-")},
            {"name": "setup", "resources": stanza("2/10Mi", "2/20Mi")},
        ],
        "containers": [{"name": "app", "resources": stanza("500m/100Mi", "-")}],
    }
    cpu, memory = page(spec).effective
    assert cpu.request == "2200m"
    assert cpu.request_formula == (
        "max(running: app 500m + log (sidecar) 100m = 600m, init: setup 2 + log (sidecar) 100m = 2100m) + overhead 100m"
    )
    assert (cpu.limit, cpu.limit_formula) == ("", "no limit (app has none)")
    assert memory.request == "120Mi"
    spec["containers"] = [{"name": "app", "resources": stanza("500m/100Mi", "1/1Gi")}]
    cpu, _ = page(spec).effective
    assert (cpu.limit, cpu.limit_formula) == ("2100m", "max(running: app 1, init: setup 2) + overhead 100m")


def test_formula_of_the_pod_level() -> None:
    """A pod-level amount is named as the source, beside what the containers come to."""
    cpu, _ = page(two("200m/200Mi", "250m/256Mi", "600m/600Mi", "1/1Gi")).effective
    assert cpu.request_formula == "spec.resources.requests 600m (containers together: 400m)"
    assert cpu.limit_formula == "spec.resources.limits 1 (the containers' own: 500m)"
    cpu, memory = page(two("200m/200Mi", "-", "-", "1/1Gi")).effective
    assert cpu.request_formula == "spec.resources.requests 400m, filled in: a 200m + b 200m = 400m"
    assert memory.limit_formula == "spec.resources.limits 1Gi"
    assert (
        page(two("-", "-", "-", "1/1Gi")).effective[0].request_formula
        == "spec.resources.requests 1, filled in: the limit"
    )


def test_errors_warnings_refusals() -> None:
    """Validation errors with paths, warnings, and what a LimitRange refuses; each makes the pod unacceptable."""
    shown = page(two("2/1Gi", "-", "1/2Gi"))
    assert shown.errors == (
        'spec.resources.requests[cpu]: Invalid value: "1": must be greater than or equal to aggregate container '
        "requests of 4",
    )
    assert not shown.accepted
    warned = page(two("1/400m", "-"))
    assert warned.accepted
    assert 'memory]: fractional byte value "400m" is invalid' in warned.warnings[0]
    limits = limit_range_from_dict(
        {"metadata": {"name": "small"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1"}}]}}
    )
    refused = page(two("-", "1/1Gi"), limit_ranges=[limits])
    assert refused.refusals == ("small: maximum cpu usage per Pod is 1, but limit is 2",)
    assert not refused.accepted


def counted(shown: Page, who: str) -> dict[str, str]:
    return next(count.amounts for count in shown.counts if count.who == who)


def test_counts() -> None:
    """Scheduler, quota, LimitRange, eviction and autoscalers each count by their own rule."""
    spec = {**two("200m/200Mi", "-", "600m/600Mi"), "overhead": {"cpu": "100m", "memory": "100Mi"}}
    shown = page(spec)
    assert counted(shown, "scheduler: filter") == {"cpu": "700m", "memory": "700Mi"}
    assert counted(shown, "scheduler: score") == {"cpu": "500m", "memory": "500Mi"}
    assert counted(shown, "quota: requests") == {"cpu": "700m", "memory": "700Mi"}
    assert counted(shown, "LimitRange: request") == {"cpu": "600m", "memory": "600Mi"}
    assert counted(shown, "eviction") == {"memory": "700Mi"}
    assert counted(shown, "HPA") == {"cpu": "700m", "memory": "700Mi"}
    assert counted(page(spec, profile="podslice"), "HPA") == {"cpu": "600m", "memory": "600Mi"}
    missing = next(count for count in page(two("-", "-")).counts if count.who == "HPA")
    assert (missing.amounts, missing.note) == (
        {},
        "missing request for cpu in container a; missing request for memory in container a",
    )


def test_fit_on_a_known_node() -> None:
    """The scheduler's filter is evaluated on the empty node; a partial list decides only about the resources it
    names."""
    spec = two("1/1Gi", "-")
    spec["containers"][0]["resources"]["limits"] = {"nvidia.com/gpu": "1"}
    known = {"cpu": Quantity.parse("1"), "memory": Quantity.parse("8Gi")}
    partial, complete = (
        page(spec, view=KnownNode(allocatable=known, complete=complete)).counts[0].note for complete in (False, True)
    )
    assert partial == "does not fit the empty node: Insufficient cpu (2 of 1)"
    assert complete == f"{partial}, Insufficient nvidia.com/gpu (1 of 0)"


def by_owner(shown: Page) -> dict[str, Cgroup]:
    return {cgroup.owner: cgroup for cgroup in shown.cgroups}


def test_oom_score_without_a_node() -> None:
    """Scores that need the node's memory are a formula; those that do not are numbers."""
    spec: Stanza = {"containers": [{"name": "a", "resources": stanza("1/1Gi", "-")}, {"name": "b"}]}
    shown = by_owner(page(spec, view=KnownNode()))
    assert (shown["a"].oom_score_adj, shown["a"].oom_formula) == (None, "1000 - 1000 x 1Gi / node memory")
    assert shown["b"].oom_score_adj == 999
    assert by_owner(page(spec))["a"].oom_score_adj == 875


def test_cgroup_notes() -> None:
    """Notes list the limits that come from the pod, and those that the pod does not get."""
    shown = page({**two("-", "-", "-", "1/1Gi")})
    assert shown.cgroup_notes == (
        "a, b have no cpu limit and get the pod's (cpu.max); cpu.weight of a, b comes from it too",
        "a, b have no memory limit and get the pod's (memory.max)",
    )
    spec: Stanza = {"containers": [{"name": "a", "resources": stanza("1/1Gi", "2/2Gi")}, {"name": "b"}]}
    assert page(spec).cgroup_notes == (
        "the pod has no cpu.max because b has no cpu limit",
        "the pod has no memory.max because b has no memory limit",
    )


def test_cgroup_v1() -> None:
    """On cgroup v1 the files have their old names and values; memory is whole pages there too."""
    files = page(two("-", "250m/256Mi"), view=KnownNode(memory_capacity=EIGHT_GI, cgroup_version=1)).cgroups[1].files
    assert files == {
        "cpu.shares": "256",
        "cpu.cfs_quota_us": "25000",
        "cpu.cfs_period_us": "100000",
        "memory.limit_in_bytes": str(256 * MI),
        "hugetlb.2MB.limit_in_bytes": "0",
        "hugetlb.1GB.limit_in_bytes": "0",
    }
    odd = page(two("-", "250m/268435457"), view=KnownNode(memory_capacity=EIGHT_GI, cgroup_version=1)).cgroups[1].files
    assert odd["memory.limit_in_bytes"] == str(256 * MI)


def test_kubelet_configuration_counts() -> None:
    """CFS period, CFS quota off and MemoryQoS show in the files."""
    config = KubeletConfig(cpu_cfs_quota_period="10ms")
    shown = page(two("200m/200Mi", "250m/256Mi"), view=KnownNode(config, memory_capacity=EIGHT_GI))
    assert [cgroup.files["cpu.max"] for cgroup in shown.cgroups] == ["5000 10000", "2500 10000", "2500 10000"]
    off = page(two("200m/200Mi", "250m/256Mi"), view=KnownNode(KubeletConfig(cpu_cfs_quota=False), EIGHT_GI))
    assert {cgroup.files["cpu.max"].split()[0] for cgroup in off.cgroups} == {"max"}
    assert off.cgroup_notes == ("cpuCFSQuota is false: no CPU limit is enforced",)
    tiered = KnownNode(KubeletConfig(memory_reservation_policy="TieredReservation"), EIGHT_GI)
    qos = page(two("200m/200Mi", "250m/256Mi"), view=tiered, gates={"MemoryQoS": True})
    assert qos.cgroups[0].files["memory.low"] == str(400 * MI)
    assert (qos.cgroups[1].files["memory.low"], qos.cgroups[1].files["memory.high"]) == (str(200 * MI), "262561792")


def test_placement_switches_quota_off() -> None:
    """On a node that gives exclusive CPUs the page names them, and neither container nor pod has a CFS quota."""
    node = Node(
        from_synthetic("pack:1 numa:1(memory=8GiB) core:4 pu:2"),
        KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", eviction_hard={}),
        profile="kubelet-1.36",
    )
    shown = page(two("-", "2/1Gi"), node=node)
    assert shown.placement is not None
    assert shown.placement.cpus == {"a": "1,5", "b": "2,6"}
    assert [cgroup.files["cpu.max"] for cgroup in shown.cgroups] == ["max 100000"] * 3
    assert shown.cgroup_notes == ("CFS quota is off for a, b (CPUs of their own) and so for the pod",)
    refused = page(two("-", "5/1Gi"), node=node).placement
    assert refused is not None
    assert (refused.admitted, refused.reason) == (False, "UnexpectedAdmissionError")


def test_stored_class_counts() -> None:
    """A pod read from a cluster keeps the class the API server stored."""
    data = {"metadata": {"name": "p"}, "spec": two("-", "-"), "status": {"qosClass": "Guaranteed"}}
    quirks = PROFILES["kubelet-1.36"]
    shown = inspect_pod(pod_from_dict(data), FeatureGates.from_overrides({}), quirks)
    assert shown.qos.qos_class == "Guaranteed"
    assert "as stored in status.qosClass; the resources would make it BestEffort" in shown.qos.why


def test_remarks_about_the_release() -> None:
    """Differences between the KEP's fixes and v1.36.2 are on the page."""
    accepted = page(two("200m/200Mi", "250m/256Mi", "600m/600Mi"), profile="podslice")
    assert not accepted.accepted
    assert accepted.remarks[0] == "v1.36.2, which lacks the fixes of KEP-2837, accepts it"
    assert "the pod reserves 600m CPU, and the cpu limits of its containers add up to 500m" in accepted.remarks[1]
    hidden = page({**two("-", "1/1Gi"), "resources": {}}, profile="podslice")
    assert hidden.remarks == ("in v1.36.2, which lacks the fixes of KEP-2837, its QoS class is BestEffort",)
    assert not any("KEP-2837" in one for one in page(two("200m/200Mi", "250m/256Mi", "600m/600Mi")).remarks)


def test_remarks_of_the_node() -> None:
    """A node with cgroup v1 refuses pod-level resources as in the KEP, which v1.36.2 does not."""
    spec, view = two("-", "-", "-", "1/1Gi"), KnownNode(memory_capacity=EIGHT_GI, cgroup_version=1)
    (remark,) = page(spec, profile="podslice", view=view).remarks
    assert remark.startswith(
        "the node refuses it with PodLevelResourcesNotSupported: pod-level resources need cgroup v2"
    )
    assert not page(spec, view=view).remarks


def test_events_of_ignored_pods() -> None:
    """The kubelet's events about pod-level resources that its managers ignore are on the page."""
    node = Node(
        from_synthetic("pack:1 numa:1(memory=8GiB) core:4 pu:2"),
        KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", eviction_hard={}),
    )
    placement = page(two("-", "-", "-", "2/1Gi"), profile="podslice", node=node).placement
    assert placement is not None
    (event,) = placement.events
    assert event.startswith("Warning PodLevelResourcesIgnored: ")


@pytest.mark.parametrize(("release", "quota"), [(32, "400000 100000"), (36, "max 100000")])
def test_a_static_configuration_without_a_machine(release: int, quota: str) -> None:
    """Under the static CPU manager a container with whole CPUs owns them, and its quota is that of the release."""
    known = KnownNode(config=KubeletConfig(cpu_manager_policy="static"), release=RELEASES[release])
    gates = FeatureGates.from_overrides({}, release=RELEASES[release])
    limits = {"cpu": "4", "memory": "1Gi"}
    one = {"name": "app", "resources": {"limits": limits}}
    asked = pod_from_dict({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [one]}})
    made = inspect_pod(asked, gates, PODSLICE, view=known)
    (own,) = [one for one in made.cgroups if one.owner == "app"]
    assert own.files["cpu.max"] == quota
    assert made.quota.startswith("CPU quota: none for app" if release == 36 else "CPU quota: app 4 CPUs although")


@pytest.mark.parametrize(("minor", "bounded"), [(31, False), (32, True)])
def test_the_score_of_a_sidecar_by_release(minor: int, bounded: bool) -> None:
    """1.31 takes its own request alone; the formula of a node of unknown memory says so."""
    small, large = ({"requests": {"memory": amount}} for amount in ("64Mi", "1Gi"))
    pod = pod_from_dict({
        "metadata": {"name": "p", "uid": "p"},
        "spec": {
            "initContainers": [{"name": "side", "restartPolicy": "Always", "image": "x", "resources": small}],
            "containers": [{"name": "app", "image": "x", "resources": large}],
        },
    })  # fmt: skip
    gates = FeatureGates.from_overrides({})
    formula = oom_formula(pod, pod.spec.init_containers[0], gates, RELEASES[minor])
    assert formula.startswith("1000 - 1000 x 64Mi / node memory")
    assert ("at most" in formula) is bounded
