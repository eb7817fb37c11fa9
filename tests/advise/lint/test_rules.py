"""Every lint rule, with an object that it reports and the corrected form that it accepts."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import pytest

from podslice import KubeletConfig
from podslice.advise.lint.engine import lint_kubelet, lint_pod
from podslice.advise.lint.model import Finding
from podslice.advise.lint.registry import FILE_RULES, NODE_RULES, POD_RULES, RULES
from podslice.advise.lint.subject import NodeSubject, PodSubject
from podslice.api.pod.spec import pod_from_dict
from podslice.api.pod.unknown_fields import find_unknown_fields
from podslice.config.kubelet import IgnoredField, MemoryReservation
from podslice.config.policy import PodslicePolicy, ReservationRules
from podslice.machine.devices import inventory_from_data
from podslice.machine.readers.short_form import ShortForm, expand_short_form
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.gate_table import gate_states
from podslice.values.quantity import Quantity
from tests.advise.lint.test_policy_rules import RULES as POLICY_RULES

Stanza = dict[str, Any]
ALL = frozenset(rule.id for rule in RULES)
TWO_NODES = "pack:2 numa:1(memory=8GiB) core:4 pu:2(indexes=pu)"
STATIC: dict[str, Any] = {"cpu_manager_policy": "static", "reserved_system_cpus": "0-1"}


def amounts(cpu: str | None = None, memory: str | None = None, **more: str) -> dict[str, str]:
    named = {"cpu": cpu, "memory": memory, **{name.replace("_", "-"): value for name, value in more.items()}}
    return {name: value for name, value in named.items() if value is not None}


def both(cpu: str | None = None, memory: str | None = None) -> Stanza:
    return {"requests": amounts(cpu, memory), "limits": amounts(cpu, memory)}


def pod(*containers: Stanza, init: tuple[Stanza, ...] = (), budget: Stanza | None = None) -> Stanza:
    """Return a pod of `resources` stanzas; init containers with `sidecar: True` restart."""
    spec: Stanza = {
        "containers": [{"name": f"c{i}", "resources": stanza} for i, stanza in enumerate(containers)],
        "initContainers": [
            {
                "name": f"i{i}",
                "resources": {key: value for key, value in stanza.items() if key != "sidecar"},
                **({"restartPolicy": "Always"} if stanza.get("sidecar") else {}),
            }
            for i, stanza in enumerate(init)
        ],
    }
    return {"metadata": {"name": "p"}, "spec": spec if budget is None else {**spec, "resources": budget}}


def counted(one: Stanza) -> Stanza:
    """Return a pod whose first container has a claim of 4 CPUs that the scheduler has counted."""
    claim = {"resourceClaimName": "k", "containers": ["c0"], "resources": {"cpu": "4", "memory": "0"}}
    return {**one, "status": {"nodeAllocatableResourceClaimStatuses": [claim]}}


def node(
    machine: str | None = None, unknown: tuple[IgnoredField, ...] = (), profile: str = "podslice", **config: Any
) -> NodeSubject:
    """Return a kubelet's configuration, by default with the static CPU manager and two reserved CPUs."""
    settings = {"eviction_hard": {}, **STATIC, **config}
    known = None if machine is None else from_synthetic(machine)
    return NodeSubject(KubeletConfig(**settings), known, unknown_fields=unknown, profile=profile)


def assert_declared(findings: list[Finding]) -> None:
    """Check that every severity is one that the rule declares."""
    rules = {rule.id: rule for rule in RULES}
    for finding in findings:
        rule = rules[finding.id]
        assert finding.severity in (rule.severity, *rule.others), rule.id


def claiming(one: Stanza) -> Stanza:
    """Return a pod whose first container has a claim for 4 CPUs."""
    first, *others = one["spec"]["containers"]
    first = {**first, "resources": {**first["resources"], "claims": [{"name": "k"}]}}
    return {**one, "spec": {**one["spec"], "containers": [first, *others]}, "claimed": {"k": {"cpu": Quantity.of(4)}}}


def check(data: Stanza, subject: NodeSubject | None = None) -> list[Finding]:
    written = {key: value for key, value in data.items() if key != "claimed"}
    return lint_pod(PodSubject(pod_from_dict(written), subject, claimed=data.get("claimed")), ALL)


class Case(NamedTuple):
    rule: str
    bad: Stanza
    good: Stanza
    path: str
    says: str
    severity: str
    node: NodeSubject | None = None


GATE = {"feature_gates": {"PodLevelResourceManagers": True}}
MEMORY = {
    "memory_manager_policy": "Static",
    "kube_reserved": {"memory": "1Gi"},
    "reserved_memory": (MemoryReservation(numa_node=0, limits={"memory": "1Gi"}),),
}
FULL = {"cpu_manager_policy_options": {"full-pcpus-only": "true"}}
SIDECAR = {"sidecar": True}
BUDGET = both("4", "4Gi")

CASES = [
    Case(
        "PS001",
        pod({"limits": amounts("1"), "requests": amounts("2")}),
        pod({"limits": amounts("2"), "requests": amounts("2")}),
        "spec.containers[0].resources.requests",
        'refuses the pod: spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu',
        "error",
    ),
    Case(
        "PS101",
        pod({**both("500m"), "limits": amounts("500m", "1Gi"), "requests": amounts("500m", "512Mi")}),
        pod(both("500m", "1Gi")),
        "spec.containers[0].resources.requests[memory]",
        "c0 has memory request 512Mi below its limit 1Gi",
        "info",
    ),
    Case(
        "PS101",
        pod({"limits": amounts(memory="1Gi"), "requests": amounts("2", "1Gi")}, both("1", "1Gi")),
        pod(both("2", "1Gi"), both("1", "1Gi")),
        "spec.containers[0].resources.limits[cpu]",
        "no cpu limit",
        "warning",
        node(),
    ),
    Case(
        "PS102",
        pod(both("1500m", "1Gi")),
        pod(both("2", "1Gi")),
        "spec.containers[0].resources.limits[cpu]",
        "asks for 1500m CPUs",
        "info",
    ),
    Case(
        "PS102",
        pod(both("2500m", "1Gi")),
        pod(both("500m", "1Gi")),
        "spec.containers[0].resources.limits[cpu]",
        "shared pool",
        "warning",
        node(),
    ),
    Case(
        "PS103",
        pod({"limits": amounts("2", "2Gi"), "requests": amounts("2", "1Gi")}),
        pod(both("2", "2Gi")),
        "spec.containers[0].resources.requests[memory]",
        "2 whole CPUs but has memory request 1Gi below its limit 2Gi",
        "warning",
        node(),
    ),
    Case(
        "PS104",
        pod(both("2", "1Gi"), {}),
        pod(both("2", "1Gi"), both("100m", "64Mi")),
        "spec.containers[1].resources",
        "container c1 has no resources: the pod is Burstable, and the static CPU manager gives",
        "warning",
        node(),
    ),
    Case(
        "PS105",
        pod(both("3", "1Gi")),
        pod(both("4", "1Gi")),
        "spec.containers[0].resources.limits[cpu]",
        "3 exclusive CPUs, not a multiple of 2 threads per core: ",
        "error",
        node(TWO_NODES, **FULL),
    ),
    Case(
        "PS105",
        pod(both("1", "1Gi")),
        pod(both("2", "1Gi")),
        "spec.containers[0].resources.limits[cpu]",
        "1 exclusive CPU, not a multiple of 2 threads per core (assumed",
        "warning",
        node(**FULL),
    ),
    Case(
        "PS105",
        pod({}, budget=both("3", "1Gi")),
        pod({}, budget=both("4", "1Gi")),
        "spec.resources.requests[cpu]",
        "the pod asks for 3",
        "error",
        node(TWO_NODES, **FULL, **GATE),
    ),
    Case(
        "PS106",
        pod({}, budget=BUDGET),
        pod(both("4", "4Gi")),
        "spec.resources.requests[cpu]",
        "the pod's 4 CPUs will not be exclusive",
        "warning",
        node(),
    ),
    Case(
        "PS107",
        pod(both("2", "1Gi")),
        pod(both("500m", "1Gi")),
        "spec.containers[0].resources.limits[cpu]",
        "c0 owns 2 CPUs",
        "warning",
        node(feature_gates={"DisableCPUQuotaWithExclusiveCPUs": False}),
    ),
    Case(
        "PS108",
        pod({"claims": [{"name": "gpu"}]}),
        pod({"claims": [{"name": "gpu"}], "requests": amounts("100m", "64Mi")}),
        "spec.containers[0].resources.claims",
        "c0 has claims, and nothing in the pod has requests",
        "info",
    ),
    Case(
        "PS109",
        counted(pod(both("4", "1Gi"))),
        counted(pod(both("1", "1Gi"))),
        "spec.containers[0].resources.requests[cpu]",
        "c0 requests 4 cpu besides claim k, which counts for 4",
        "warning",
    ),
    Case(
        "PS110",
        claiming(pod(both("1", "1Gi"), both("8", "1Gi"))),
        claiming(pod(both("4", "1Gi"))),
        "spec.containers[0].resources.claims",
        "claims are for 4 cpu, the containers that have them request 1",
        "info",
    ),
    Case(
        "PS110",
        claiming(pod(both("1", "1Gi"))),
        counted(claiming(pod(both("1", "1Gi")))),
        "spec.containers[0].resources.claims",
        "request 1: a scheduler without the gate counts that alone",
        "info",
    ),
    Case(
        "PS201",
        pod(both("4", "1Gi"), {}, budget=BUDGET),
        pod(both("3", "1Gi"), {}, budget=BUDGET),
        "spec.resources.requests[cpu]",
        "budget of 4 CPUs goes to exclusive containers (c0 4)",
        "error",
        node(**GATE),
    ),
    Case(
        "PS201",
        pod(both("4", "1Gi"), {}, budget=BUDGET),
        pod(both("4", "1Gi"), budget=BUDGET),
        "spec.resources.requests[cpu]",
        "leaves none for c1",
        "warning",
    ),
    Case(
        "PS202",
        pod(both("8", "1Gi")),
        pod(both("6", "1Gi")),
        "spec.containers[0].resources.requests[cpu]",
        "asks for 8 CPUs, the largest NUMA node can give 7 CPUs",
        "error",
        node(
            "pack:2 numa:1(memory=8GiB) core:4 pu:2(indexes=pu)",
            topology_manager_policy="single-numa-node",
            reserved_system_cpus="0,8",
        ),
    ),
    Case(
        "PS202",
        pod({}, budget=both("10", "1Gi")),
        pod({}, budget=both("8", "1Gi")),
        "spec.resources.requests[cpu]",
        "restricted refuses it unless",
        "warning",
        node(TWO_NODES, topology_manager_policy="restricted", **GATE),
    ),
    Case(
        "PS202",
        pod(both("2", "9Gi")),
        pod(both("2", "8Gi")),
        "spec.containers[0].resources.requests[memory]",
        "9Gi memory, the largest NUMA node can give 8Gi memory: it spans",
        "info",
        node(TWO_NODES, **MEMORY),
    ),
    Case(
        "PS203",
        pod({}, init=({**both("3", "1Gi"), **SIDECAR},), budget=BUDGET),
        pod({}, init=({**both("1", "1Gi"), **SIDECAR},), budget=BUDGET),
        "spec.resources.requests[cpu]",
        "sidecars take 3 of the pod's 4 cpu (75 %: i0 3), 1 is left",
        "warning",
    ),
    Case(
        "PS204",
        pod({"requests": amounts("5", "1Gi")}, budget=BUDGET),
        pod({"requests": amounts("4", "1Gi")}, budget=BUDGET),
        "spec.resources.requests[cpu]",
        "request 5 cpu together, the pod only 4",
        "error",
    ),
    Case(
        "PS205",
        pod({"limits": amounts("5"), "requests": amounts("1")}, budget=BUDGET),
        pod({"limits": amounts("4"), "requests": amounts("1")}, budget=BUDGET),
        "spec.containers[0].resources.limits[cpu]",
        "limit 5 of c0 is above the pod's limit 4",
        "error",
    ),
    Case(
        "PS205",
        pod({}, init=({"limits": amounts(memory="5Gi"), "requests": amounts(memory="1Gi")},), budget=BUDGET),
        pod({}, init=({"limits": amounts(memory="4Gi"), "requests": amounts(memory="1Gi")},), budget=BUDGET),
        "spec.initContainers[0].resources.limits[memory]",
        "only the pod's limit",
        "warning",
    ),
    Case("PS206", pod(both("1", "1Gi"), budget={}), pod(both("1", "1Gi")), "spec.resources", "BestEffort", "warning"),
    Case(
        "PS207",
        pod({"requests": amounts("500m")}, {}, budget=both("2", "1Gi")),
        pod({"requests": amounts("500m")}, {"requests": amounts("500m")}, budget=both("2", "1Gi")),
        "spec.containers[1].resources",
        "more than c0 with its request of 500m",
        "info",
    ),
    Case(
        "PS208",
        pod({"requests": amounts(memory="1Gi")}, budget={"requests": amounts("1")}),
        pod({"requests": amounts(memory="1Gi")}, budget={"requests": amounts("1", "1Gi")}),
        "spec.resources.requests",
        "request 1Gi",
        "warning",
    ),
    Case(
        "PS209",
        pod({"requests": amounts("1", "1Gi")}, {}, budget={"requests": amounts("1", "2Gi")}),
        pod({"requests": amounts("1", "1Gi")}, {}, budget={"requests": amounts("2", "2Gi")}),
        "spec.resources.requests[cpu]",
        "nothing is left for c1: lowest CPU weight",
        "info",
    ),
    Case(
        "PS210",
        pod(
            {"limits": amounts("3"), "requests": amounts("1")},
            {"limits": amounts("3"), "requests": amounts("1")},
            budget=BUDGET,
        ),
        pod(
            {"limits": amounts("2"), "requests": amounts("1")},
            {"limits": amounts("2"), "requests": amounts("1")},
            budget=BUDGET,
        ),
        "spec.resources.limits[cpu]",
        "add up to 6, the pod's limit is 4",
        "info",
    ),
    Case(
        "PS211",
        pod({}, budget=BUDGET),
        pod(both("1", "1Gi")),
        "spec.resources",
        "PodLevelResourcesNotSupported",
        "error",
        node(feature_gates={"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}),
    ),
    Case(
        "PS212",
        pod(both("2", "1Gi"), {}, budget=BUDGET),
        pod(both("2", "1Gi"), both("2", "1Gi"), budget=BUDGET),
        "spec.resources",
        "c1 will run on the node's shared pool",
        "warning",
        node(topology_manager_policy="restricted", feature_gates={"PodLevelResourceManagers": True}),
    ),
    Case(
        "PS213",
        pod(both("1", "1Gi"), both("1", "1Gi"), budget=BUDGET),
        pod(both("1", "1Gi"), {}, budget=BUDGET),
        "spec.resources.requests[cpu]",
        "own 2 and none shares",
        "warning",
        node(
            topology_manager_policy="restricted",
            topology_manager_scope="pod",
            feature_gates={"PodLevelResourceManagers": True},
        ),
    ),
    Case(
        "PS214",
        pod(both("1", "2Gi"), both("1", "2Gi"), budget=BUDGET),
        pod(both("1", "2Gi"), {}, budget=BUDGET),
        "spec.resources.requests[cpu]",
        "add up to 2: no container can use the rest",
        "info",
    ),
    Case(
        "PS301",
        pod({"limits": amounts("50m")}),
        pod({"limits": amounts("100m")}),
        "spec.containers[0].resources.limits[cpu]",
        "5 ms of every 100 ms",
        "info",
    ),
    Case(
        "PS301",
        pod({"limits": amounts("5m")}),
        pod({"limits": amounts("500m")}),
        "spec.containers[0].resources.limits[cpu]",
        "1000 µs of every 100000 µs",
        "warning",
    ),
    Case(
        "PS301",
        pod({"limits": amounts("15m")}),
        pod({"limits": amounts("100m")}),
        "spec.containers[0].resources.limits[cpu]",
        "1000 µs of every 10000 µs",
        "warning",
        node(cpu_cfs_quota_period="10ms"),
    ),
    Case(
        "PS302",
        pod({"limits": amounts("1", "1Gi"), "requests": amounts("1", "1Gi")}, budget={"requests": amounts("2", "1Gi")}),
        pod({"limits": amounts("1", "1Gi"), "requests": amounts("1", "1Gi")}, budget={"requests": amounts("1", "1Gi")}),
        "spec.resources.requests[cpu]",
        "requests 2 cpu",
        "warning",
    ),
    Case(
        "PS303",
        pod({"limits": amounts(hugepages_2Mi="4Mi")}),
        pod({"limits": amounts("1", hugepages_2Mi="4Mi")}),
        "spec.containers[0].resources.limits[hugepages-2Mi]",
        "neither cpu nor memory",
        "error",
    ),
    Case(
        "PS304",
        pod({"requests": amounts("1")}, init=({"requests": amounts("4")},)),
        pod({"requests": amounts("2")}, init=({"requests": amounts("4")},)),
        "spec.initContainers[0].resources.requests[cpu]",
        "i0 needs 4 cpu, all running containers together 1",
        "warning",
    ),
    Case(
        "PS305",
        pod({"limits": amounts("1", "512")}),
        pod({"limits": amounts("1", "512Mi")}),
        "spec.containers[0].resources.limits[memory]",
        "512 is 512 bytes",
        "error",
    ),
    Case(
        "PS305",
        pod({"limits": amounts("1", "400m")}),
        pod({"limits": amounts("1", "400M")}),
        "spec.containers[0].resources.limits[memory]",
        "fraction of a byte",
        "error",
    ),
    Case(
        "PS305",
        pod({"requests": amounts("1", "512")}),
        pod({"requests": amounts("1", "512Mi")}),
        "spec.containers[0].resources.requests[memory]",
        "512 is 512 bytes",
        "warning",
    ),
    Case(
        "PS306",
        pod({"limits": amounts("500", "1Gi")}),
        pod({"limits": amounts("500m", "1Gi")}),
        "spec.containers[0].resources.limits[cpu]",
        "500 whole CPUs",
        "warning",
    ),
    Case(
        "PS501",
        pod(both("20", "1Gi")),
        pod(both("14", "1Gi")),
        "spec",
        "20 CPUs on the node; without other pods the node would have 14",
        "error",
        node("pack:1 core:8 pu:2(indexes=pu)"),
    ),
    Case(
        "PS502",
        pod(both("14", "1Gi")),
        pod(both("12", "1Gi")),
        "spec",
        "takes all 14 CPUs",
        "warning",
        node("pack:1 core:8 pu:2(indexes=pu)"),
    ),
    Case(
        "PS503",
        pod(both("2", "1Gi"), init=(both("6", "1Gi"),)),
        pod(both("2", "1Gi"), init=(both("1500m", "1Gi"),)),
        "spec.initContainers[0].resources.requests[cpu]",
        "init container i0 owns 6 CPUs, and the others own 2: 4 CPUs idle until the pod ends",
        "warning",
        node("pack:1 core:8 pu:2(indexes=pu)"),
    ),
    Case(
        "PS503",
        pod(both("2", "1Gi"), init=(both("1", "1Gi"),)),
        pod(both("2", "1Gi"), init=(both("2", "1Gi"),)),
        "spec.initContainers[0].resources.requests[cpu]",
        "on the empty node no other takes all of them over: 1 CPU idle until the pod ends",
        "info",
        node("pack:1 core:8 pu:2(indexes=pu)", reserved_system_cpus="0", profile="kubelet-1.36"),
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.rule}-{case.severity}")
def test_pod_rule(case: Case) -> None:
    """The rule reports the bad pod at the wrong field, with the numbers, and accepts the corrected one."""
    found = [finding for finding in check(case.bad, case.node) if finding.id == case.rule]
    assert len(found) == 1, found
    assert (found[0].path, found[0].severity) == (case.path, case.severity)
    assert_declared(found)
    assert case.says in found[0].message
    assert found[0].fix
    assert case.rule not in {finding.id for finding in check(case.good, case.node)}


class NodeCase(NamedTuple):
    rule: str
    bad: NodeSubject
    good: NodeSubject
    path: str
    says: str
    severity: str


def strict(machine: str | None = None) -> NodeSubject:
    return node(machine, cpu_manager_policy_options={"strict-cpu-reservation": "true"})


NODE_CASES = [
    NodeCase("PS401", node(topology_manager_policy="tight"), node(), "topologyManagerPolicy", '"tight"', "error"),
    NodeCase(
        "PS402",
        node(TWO_NODES, reserved_system_cpus="0,99"),
        node(TWO_NODES, reserved_system_cpus="0,8"),
        "reservedSystemCPUs",
        "not a subset of online-cpus",
        "error",
    ),
    NodeCase(
        "PS402",
        node(TWO_NODES, **{**MEMORY, "kube_reserved": {"memory": "2Gi"}}),
        node(TWO_NODES, **MEMORY),
        "reservedMemory",
        '"1Gi" of type "memory" is not equal to the value "2Gi"',
        "error",
    ),
    NodeCase(
        "PS402",
        node(TWO_NODES, kube_reserved={"memory": "99Gi"}),
        node(TWO_NODES, kube_reserved={"memory": "1Gi"}),
        "kubeReserved",
        "Expected capacity >= reservation",
        "error",
    ),
    NodeCase(
        "PS403",
        node(TWO_NODES, reserved_system_cpus="0,2"),
        node(TWO_NODES, reserved_system_cpus="0-3"),
        "reservedSystemCPUs",
        "0,2 hold only part of 2 physical cores",
        "warning",
    ),
    NodeCase(
        "PS403",
        node(TWO_NODES, reserved_system_cpus="", kube_reserved={"cpu": "1"}),
        node(TWO_NODES, reserved_system_cpus="", kube_reserved={"cpu": "2"}),
        "kubeReserved[cpu]",
        "share their core with system daemons",
        "warning",
    ),
    NodeCase(
        "PS404",
        strict(TWO_NODES),
        node(TWO_NODES),
        "cpuManagerPolicyOptions[strict-cpu-reservation]",
        "all 14 CPUs that are not reserved",
        "warning",
    ),
    NodeCase(
        "PS405",
        node(cpu_manager_policy_options={"align-by-socket": "true"}),
        node(
            cpu_manager_policy_options={"align-by-socket": "true"}, feature_gates={"CPUManagerPolicyAlphaOptions": True}
        ),
        "cpuManagerPolicyOptions",
        "Alpha-level Options not enabled",
        "error",
    ),
    NodeCase(
        "PS405",
        node(cpu_manager_policy="none", cpu_manager_policy_options={"full-pcpus-only": "true"}),
        node(cpu_manager_policy="none"),
        "cpuManagerPolicyOptions",
        "received unsupported options",
        "error",
    ),
    NodeCase(
        "PS405",
        node(topology_manager_policy="restricted", topology_manager_policy_options={"no-such": "1"}),
        node(topology_manager_policy="restricted"),
        "topologyManagerPolicyOptions",
        "unknown Topology Manager",
        "error",
    ),
    NodeCase(
        "PS406",
        node(feature_gates={"PodLevelResources": False}),
        node(feature_gates={"PodLevelResourceManagers": True}),
        "featureGates",
        "depends on features that are disabled",
        "error",
    ),
    NodeCase(
        "PS406",
        node(profile="kubelet-1.36", feature_gates={"PodLevelResourcesFixKubeletQOSClass": True}),
        node(feature_gates={"PodLevelResourcesFixKubeletQOSClass": True}),
        "featureGates[PodLevelResourcesFixKubeletQOSClass]",
        "unrecognized feature gate: PodLevelResourcesFixKubeletQOSClass",
        "error",
    ),
    NodeCase(
        "PS406",
        node(feature_gates={"DisableCPUQuotaWithExclusiveCPUs": False}),
        node(feature_gates={"PodLevelResources": True}),
        "featureGates[DisableCPUQuotaWithExclusiveCPUs]",
        "deprecated feature gate",
        "warning",
    ),
    NodeCase(
        "PS407",
        node(reserved_system_cpus=""),
        node(reserved_system_cpus="", system_reserved={"cpu": "1"}),
        "cpuManagerPolicy",
        "none are reserved",
        "error",
    ),
    NodeCase(
        "PS408",
        node(reserved_system_cpus="", kube_reserved={"cpu": "1500m"}),
        node(reserved_system_cpus="", kube_reserved={"cpu": "2"}),
        "kubeReserved[cpu]",
        "1500m CPU are reserved: the static CPU manager keeps 2 whole CPUs back",
        "info",
    ),
    NodeCase(
        "PS409",
        node(cpu_manager_policy="none", topology_manager_policy="restricted"),
        node(topology_manager_policy="restricted"),
        "topologyManagerPolicy",
        "aligns only devices",
        "info",
    ),
    NodeCase(
        "PS410",
        node(kube_reserved={"cpu": "500m"}),
        node(kube_reserved={"cpu": "2"}),
        "kubeReserved[cpu]",
        "reservedSystemCPUs names 2 CPUs and overrules the 500m",
        "warning",
    ),
    NodeCase(
        "PS401",
        node(cpu_manager_policy="Static"),
        node(),
        "cpuManagerPolicy",
        'unknown policy: "Static"',
        "error",
    ),
    NodeCase(
        "PS401",
        node(memory_manager_policy="static"),
        node(),
        "memoryManagerPolicy",
        'unknown policy: "static"',
        "error",
    ),
    NodeCase(
        "PS417",
        node(topology_manager_scope="pod"),
        node(topology_manager_scope="pod", topology_manager_policy="restricted"),
        "topologyManagerScope",
        "topologyManagerPolicy is none",
        "warning",
    ),
    NodeCase(
        "PS417",
        node(topology_manager_policy_options={"max-allowable-numa-nodes": "12"}),
        node(topology_manager_policy="restricted", topology_manager_policy_options={"max-allowable-numa-nodes": "12"}),
        "topologyManagerPolicyOptions[max-allowable-numa-nodes]",
        "topologyManagerPolicy is none",
        "warning",
    ),
    NodeCase(
        "PS417",
        node(
            cpu_manager_policy_options={"align-by-socket": "true"},
            feature_gates={"CPUManagerPolicyAlphaOptions": True},
        ),
        node(
            cpu_manager_policy_options={"align-by-socket": "true"},
            feature_gates={"CPUManagerPolicyAlphaOptions": True},
            topology_manager_policy="restricted",
        ),
        "cpuManagerPolicyOptions[align-by-socket]",
        "topologyManagerPolicy is none",
        "warning",
    ),
    NodeCase(
        "PS417",
        node(reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),)),
        node(TWO_NODES),
        "reservedMemory",
        "memoryManagerPolicy is None",
        "warning",
    ),
    NodeCase(
        "PS414",
        node(
            TWO_NODES,
            memory_manager_policy="Static",
            kube_reserved={"memory": "1Gi"},
            reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
        ),
        node(
            TWO_NODES,
            memory_manager_policy="Static",
            kube_reserved={"memory": "1565Mi"},
            reserved_memory=(MemoryReservation(0, {"memory": "1565Mi"}),),
        ),
        "kubeReserved[memory]",
        "1Gi of memory reserved, with evictionHard; EKS keeps 1565Mi for 110 pods",
        "info",
    ),
    NodeCase(
        "PS411",
        node(unknown=(IgnoredField("cpuManagerPolcy"),)),
        node(),
        "cpuManagerPolcy",
        "ignored",
        "warning",
    ),
]


@pytest.mark.parametrize("case", NODE_CASES, ids=lambda case: f"{case.rule}-{case.path}")
def test_node_rule(case: NodeCase) -> None:
    """The rule reports the bad configuration at the wrong field and accepts the corrected one."""
    found = [finding for finding in lint_kubelet(case.bad, ALL) if finding.id == case.rule]
    assert len(found) == 1, found
    assert (found[0].path, found[0].severity) == (case.path, case.severity)
    assert_declared(found)
    assert case.says in found[0].message
    assert case.rule not in {finding.id for finding in lint_kubelet(case.good, ALL)}


def test_reserved_cpus_isolated() -> None:
    """PS412: CPUs that are reserved for daemons and isolated from the kernel's scheduler are reported."""
    import msgspec

    from podslice import CPUSet

    machine = msgspec.structs.replace(from_synthetic(TWO_NODES), isolated=CPUSet.parse("1-7"))
    config = KubeletConfig(**STATIC, eviction_hard={})
    found = [f for f in lint_kubelet(NodeSubject(config, machine), ALL) if f.id == "PS412"]
    assert [f.message.split(" are ")[0] for f in found] == ["CPUs 1"]
    clear = msgspec.structs.replace(machine, isolated=CPUSet.parse("2-7"))
    assert "PS412" not in {f.id for f in lint_kubelet(NodeSubject(config, clear), ALL)}


def test_reservation_below_the_cpus_of_the_advice() -> None:
    """PS414: one CPU is less than providers keep of a large machine, two are not."""
    large = "pack:2 numa:1(memory=8GiB) core:64 pu:4(indexes=pu)"
    (found,) = [one for one in lint_kubelet(node(large, reserved_system_cpus="0"), {"PS414"}) if "CPU" in one.message]
    assert (found.path, found.severity) == ("reservedSystemCPUs", "info")
    assert found.message == "1 CPU reserved, GKE and EKS keep 1350m CPUs of such a machine"
    assert lint_kubelet(node(large, reserved_system_cpus="0-1"), {"PS414"}) == []


def test_reservation_below_the_advice_of_the_policy() -> None:
    """PS414 goes by the formula and the pods of the policy's section `reservation`."""
    machine = from_synthetic("pack:2 numa:1(memory=64GiB) core:32 pu:1")
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")
    policies = {
        formula: PodslicePolicy(reservation=ReservationRules(formula=formula)) for formula in ("gke", "openshift")
    }
    found = {
        formula: [one.message for one in lint_kubelet(NodeSubject(config, machine, policy=policy), {"PS414"})]
        for formula, policy in policies.items()
    }
    assert found == {"gke": [], "openshift": []}
    larger = from_synthetic("pack:2 numa:1(memory=64GiB) core:64 pu:1")
    (one,) = lint_kubelet(NodeSubject(config, larger, policy=policies["openshift"]), {"PS414"})
    assert one.message == "1 CPU reserved, OpenShift keeps 1584m CPUs of such a machine"
    assert lint_kubelet(NodeSubject(config, larger, policy=policies["gke"]), {"PS414"}) == []


def test_reservation_on_the_node_of_the_devices() -> None:
    """PS415: reserved CPUs on a NUMA node with devices are reported while another node has fewer."""
    machine = from_synthetic(TWO_NODES)
    config = KubeletConfig(**STATIC, eviction_hard={})

    def found(devices: dict[int, int]) -> list[Finding]:
        inventory = inventory_from_data([{"resource": "x.io/nic", "perNUMANode": devices}])
        return lint_kubelet(NodeSubject(config, machine, devices=inventory), {"PS415"})

    (finding,) = found({0: 2, 1: 1})
    assert finding.message.startswith("CPUs 0-1 are reserved on NUMA node 0, which has 2 devices; node 1 has 1")
    assert found({0: 1, 1: 1}) == found({1: 2}) == []


def test_every_rule_has_a_case() -> None:
    """No rule is without a finding and a passing object above; ids are unique and in one namespace."""
    elsewhere = {"PS002", "PS504", "PS003", "PS111", "PS412", "PS415", *POLICY_RULES}
    tested = {case.rule for case in CASES} | {case.rule for case in NODE_CASES} | elsewhere
    assert {rule.id for rule in RULES} <= tested
    assert (
        len({rule.id for rule in RULES})
        == len({rule.name for rule in RULES})
        == len(POD_RULES) + len(NODE_RULES) + len(FILE_RULES)
    )


def test_unknown_fields_of_a_pod() -> None:
    """A misspelt field is an error with the nearest known one; a field that is known but not read is none."""
    data = pod({"limit": amounts("1", "1Gi")})
    data["spec"]["dnsPolicy"] = "Default"
    unknown = tuple(find_unknown_fields(data))
    found = lint_pod(PodSubject(pod_from_dict(data), unknown_fields=unknown), ALL, kind="Deployment", prefix="x.y")
    assert [(one.id, one.severity, one.path, one.fix) for one in found if one.id == "PS002"] == [
        ("PS002", "error", "spec.containers[0].resources.limit", "did you mean limits?")
    ]


def test_pod_that_a_later_release_refuses() -> None:
    """A pod-level request above the containers' limits is accepted by v1.36.2 and refused with KEP-2837's fix."""
    data = pod({"limits": amounts("1", "1Gi")}, budget={"requests": amounts("2", "2Gi")})
    found = {finding.id: finding for finding in check(data)}
    assert set(found) == {"PS001", "PS214", "PS302"}
    assert found["PS001"].severity == "warning"
    assert "v1.36.2 accepts the pod" in found["PS001"].message
    ids = {finding.id for finding in lint_pod(PodSubject(pod_from_dict(data), profile="kubelet-1.36"), ALL)}
    assert ids == {"PS214", "PS302"}


def test_specific_finding_replaces_the_general_one() -> None:
    """A pod refused for its CPU count is reported once, by the rule that knows why."""
    ids = [finding.id for finding in check(pod(both("3", "1Gi")), node(TWO_NODES, **FULL))]
    assert ids == ["PS105"]


def test_node_without_exclusive_cpus_needs_no_whole_cpus() -> None:
    """With the CPU manager off, no rule reports exclusive CPUs."""
    ids = {f.id for f in check(pod(both("1500m", "1Gi")), node(cpu_manager_policy="none", reserved_system_cpus=""))}
    assert not ids


def test_resource_claims_may_give_cpus() -> None:
    """A container with resource claims may get CPUs from a DRA driver and needs no equal memory."""
    stanza = {**both("2"), "claims": [{"name": "cpus"}]}
    assert "PS103" not in {f.id for f in check(pod(stanza))}


def test_annotation_leaves_rules_out() -> None:
    """The annotation podslice/lint-ignore names rules by id or name."""
    data = pod({"limits": amounts("50m", "512")})
    assert {f.id for f in check(data)} == {"PS301", "PS305"}
    data["metadata"]["annotations"] = {"podslice/lint-ignore": "tiny-cpu-limit, PS305"}
    assert not check(data)


def test_defect_of_upstream_is_reported() -> None:
    """Profile kubelet-1.36 reports where the kubelet itself would crash instead of answering."""
    stanza = {"requests": amounts("1", "1Gi", hugepages_2Mi="2Mi"), "limits": amounts("1", "1Gi", hugepages_2Mi="2Mi")}
    subject = node(
        "pack:2 numa:1(memory=8GiB) core:4 pu:1", profile="kubelet-1.36", topology_manager_policy="restricted", **MEMORY
    )
    messages = [finding.message for finding in check(pod(stanza), subject) if finding.id == "PS501"]
    assert len(messages) == 1
    assert "the kubelet crashes:" in messages[0]


@pytest.mark.parametrize(("resource", "shown"), [("memory", "8Gi memory"), ("hugepages-2Mi", "64Mi hugepages-2Mi")])
def test_an_empty_pool_of_memory(resource: str, shown: str) -> None:
    """PS201 names memory or huge pages where the exclusive containers use them up, and only on nodes that charge a
    pod's memory as a whole."""
    pages = {"hugepages-2Mi": "64Mi"}
    budget = {"cpu": "4", "memory": "8Gi", **pages}
    own = {"cpu": "2", "memory": "8Gi" if resource == "memory" else "1Gi", "hugepages-2Mi": "32Mi"}
    if resource != "memory":
        own |= pages
    data = pod({"requests": own, "limits": own}, {}, budget={"requests": budget, "limits": budget})
    config = {"topology_manager_policy": "restricted", "topology_manager_scope": "pod", **GATE, **MEMORY}
    found = [finding for finding in check(data, node(**config)) if finding.id == "PS201"]
    assert [(one.path, one.severity) for one in found] == [(f"spec.resources.requests[{resource}]", "error")]
    assert f"the budget of {shown} goes to exclusive containers (c0 {shown}) and leaves none for c1" in found[0].message
    by_container = node(**{**config, "topology_manager_scope": "container"})
    assert not [finding for finding in check(data, by_container) if finding.id == "PS201"]


def test_declared_severities_are_shown() -> None:
    """A rule whose findings can be more or less severe says so in the list of rules."""
    severities = {rule.id: rule.severities for rule in RULES}
    assert severities["PS202"] == "warning (or info, error)"
    assert severities["PS204"] == "error"


def test_devices_count_on_the_empty_node() -> None:
    """With the node's devices, a pod that asks for more of them than there are is refused on the empty node."""
    inventory = inventory_from_data([{"resource": "x.io/gpu", "perNUMANode": {0: 1, 1: 1}}])
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy="single-numa-node"
    )
    subject = NodeSubject(config, from_synthetic("pack:2 numa:1(memory=8GB) core:4 pu:1"), devices=inventory)
    limits = {"cpu": "1", "memory": "1Gi", "x.io/gpu": "2"}
    found = check(pod({"limits": limits}), subject)
    assert "PS501" in [one.id for one in found]
    limits["x.io/gpu"] = "1"
    assert "PS501" not in [one.id for one in check(pod({"limits": limits}), subject)]


@pytest.mark.parametrize(
    ("cpus", "fix"),
    [("3", "ask for 4 instead of 3 CPUs in container c0"), ("20", "ask for 14 instead of 20 CPUs in container c0")],
)
def test_advice_for_a_pod_that_the_empty_node_refuses(cpus: str, fix: str) -> None:
    """PS501 advises what explain tried first."""
    options = FULL if cpus == "3" else {}
    findings = lint_pod(
        PodSubject(pod_from_dict(pod(both(cpus, "1Gi"))), node("pack:1 core:8 pu:2(indexes=pu)", **options)), {"PS501"}
    )
    assert [finding.fix for finding in findings] == [fix]


@pytest.mark.parametrize("has_devices", [True, False])
def test_advice_beside_devices(has_devices: bool) -> None:
    """Fewer CPUs alone do not help a pod whose devices are on two NUMA nodes."""
    inventory = inventory_from_data([{"resource": "x.io/gpu", "perNUMANode": {0: 1, 1: 1}}])
    config = node(TWO_NODES, topology_manager_policy="restricted").config
    subject = NodeSubject(config, from_synthetic(TWO_NODES), devices=inventory if has_devices else None)
    limits = {"cpu": "10", "memory": "1Gi", "x.io/gpu": "2"}
    (finding,) = lint_pod(PodSubject(pod_from_dict(pod({"limits": limits})), subject), {"PS202"})
    tried = "with 8 CPUs it is refused: what else the pod asks for does not fit one NUMA node then"
    assert finding.fix == (tried if has_devices else "ask for at most 8 CPUs")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"cpu_manager_policy": "Static"}, [("PS401", "cpuManagerPolicy")]),
        ({"memory_manager_policy": "static"}, [("PS401", "memoryManagerPolicy")]),
        ({"topology_manager_policy": "Restricted"}, [("PS401", "topologyManagerPolicy")]),
        ({"topology_manager_scope": "Pod"}, [("PS401", "topologyManagerScope")]),
        ({"kube_reserved": {"memory": "1 Gi"}}, [("PS401", "kubeReserved[memory]")]),
        (
            {"system_reserved": {"memory": "-1Gi", "gpu": "1"}},
            [("PS401", "systemReserved[memory]"), ("PS401", "systemReserved[gpu]")],
        ),
        ({"kube_reserved": {"cpu": "x"}, "reserved_system_cpus": ""}, [("PS401", "kubeReserved[cpu]")]),
        ({"kube_reserved": {"cpu": "x"}}, []),
        ({"cpu_manager_policy_options": {"no-such": "true"}}, [("PS405", "cpuManagerPolicyOptions")]),
        (
            {
                "cpu_manager_policy_options": {"align-by-socket": "true"},
                "feature_gates": {"CPUManagerPolicyAlphaOptions": True},
                "topology_manager_policy": "single-numa-node",
            },
            [("PS405", "cpuManagerPolicyOptions[align-by-socket]")],
        ),
        (
            {"topology_manager_policy": "restricted", "topology_manager_policy_options": {"no-such": "1"}},
            [("PS405", "topologyManagerPolicyOptions")],
        ),
        ({"topology_manager_policy_options": {"no-such": "1"}}, []),
        ({"memory_manager_policy": "Static", "kube_reserved": {"memory": "1Gi"}}, [("PS402", "reservedMemory")]),
        ({**MEMORY, "system_reserved": {"memory": "1Mi"}}, [("PS402", "reservedMemory")]),
        ({**MEMORY, "eviction_hard": {"memory.available": "100Mi"}}, [("PS402", "reservedMemory")]),
        (MEMORY, []),
        ({"cpu_manager_policy": "none", "reserved_system_cpus": ""}, []),
    ],
)  # fmt: skip
@pytest.mark.parametrize("machine", [None, "pack:1 core:8 pu:1", "pack:2 numa:2 core:16 pu:2"])
def test_a_refusal_of_every_machine_needs_none(
    machine: str | None, config: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    """What a kubelet refuses on every machine is the same error without a machine and with one."""
    found = lint_kubelet(node(machine, **config), {rule.id for rule in RULES})
    assert [(one.id, one.path) for one in found if one.severity == "error"] == expected
    assert all(one.fix for one in found)


def test_refusals_of_a_release() -> None:
    """A gate of an older release decides whether a policy and an option are read."""
    off = node(profile="kubelet-1.31", memory_manager_policy="static", feature_gates={"MemoryManager": False})
    assert lint_kubelet(off, {"PS401", "PS402"}) == []
    settings = {"topology_manager_policy": "restricted", "feature_gates": {"TopologyManagerPolicyBetaOptions": False}}
    options = {"topology_manager_policy_options": {"max-allowable-numa-nodes": "9"}}
    (finding,) = lint_kubelet(node(profile="kubelet-1.31", **settings, **options), {"PS405"})
    assert "evel options not enabled" in finding.message.lower()
    assert "TopologyManagerPolicyBetaOptions" in finding.fix
    assert lint_kubelet(node(**settings, **options), {"PS405"}) == []


def test_best_effort_memory_is_about_its_policy() -> None:
    """The policy of Windows is named, not the reservation."""
    (finding,) = lint_kubelet(node("pack:1 core:8 pu:1", memory_manager_policy="BestEffort"), {"PS402"})
    assert finding.path == "memoryManagerPolicy"


def test_a_share_of_memory_needs_the_machine() -> None:
    """Whether reservedMemory adds up is not known without a machine where a threshold is a percentage."""
    config = {**MEMORY, "eviction_hard": {"memory.available": "5%"}}
    assert lint_kubelet(node(**config), {"PS402"}) == []
    (finding,) = lint_kubelet(node(TWO_NODES, **config), {"PS402"})
    assert finding.path == "reservedMemory"


@pytest.mark.parametrize(
    ("limits", "machine", "ids"),
    [
        (amounts("200", "1Gi"), None, {"PS306"}),
        (amounts("200"), None, {"PS306"}),
        (amounts("200", "40Gi"), None, set()),
        ({**amounts("200", "1Gi"), "x.io/tpu": "4"}, None, set()),
        (amounts("100", "1Gi"), "pack:2 core:32 pu:2", set()),
    ],
)
def test_many_cpus_that_are_meant(limits: Stanza, machine: str | None, ids: set[str]) -> None:
    """Hundreds of CPUs are no slip with as much memory, with devices, or on a machine that has them."""
    subject = None if machine is None else node(machine, cpu_manager_policy="none", reserved_system_cpus="")
    found = lint_pod(PodSubject(pod_from_dict(pod({"limits": limits})), subject), {"PS306"})
    assert {one.id for one in found} == ids


def test_gates_of_other_releases_are_named_one_by_one() -> None:
    """Each gate that a release does not have is a finding of its own; one that goes later says when."""
    gates = {
        "KubeletPodResources": True,
        "MemoryManager": True,
        "PodLevelResourceManagers": True,
        "SidecarContainers": False,
    }
    newer = {one.path: one for one in lint_kubelet(node(feature_gates=gates), {"PS406"})}
    errors = [path for path, one in newer.items() if one.severity == "error"]
    assert errors == [
        "featureGates[KubeletPodResources]",
        "featureGates[MemoryManager]",
        "featureGates[SidecarContainers]",
    ]
    assert "feature is locked to true" in newer["featureGates[SidecarContainers]"].message
    older = {one.path: one for one in lint_kubelet(node(profile="kubelet-1.34", feature_gates=gates), {"PS406"})}
    assert older["featureGates[PodLevelResourceManagers]"].fix == "Kubernetes 1.36 has it"
    assert older["featureGates[MemoryManager]"].severity == "info"
    assert "Kubernetes 1.36 has it no longer" in older["featureGates[MemoryManager]"].message


def test_severity_of_settings_without_effect() -> None:
    """What only this machine leaves nothing to do is a note, since a pool shares its configuration."""
    machine = "pack:2 numa:1(memory=8GiB) core:4 pu:1"
    (found,) = lint_kubelet(node(machine, **FULL), {"PS417"})
    assert (found.severity, found.path) == ("info", "cpuManagerPolicyOptions[full-pcpus-only]")
    (found,) = lint_kubelet(node(machine, topology_manager_scope="pod"), {"PS417"})
    assert found.severity == "warning"


def test_reserved_cpus_that_a_pod_gets() -> None:
    """On a machine with cores of two sizes, profile kubelet-1.36 gives CPU 0 although it is reserved; the advice was
    tried, and the default profile does not do it."""
    kinds = [{"name": "P", "cores": 8, "threadsPerCore": 2}, {"name": "E", "cores": 12, "threadsPerCore": 1}]
    data = {"sockets": 1, "coreKinds": kinds, "numbering": "consecutive", "memoryPerNuma": "32Gi"}
    short = msgspec.convert(data, ShortForm)
    config = node(reserved_system_cpus="0").config
    written = pod_from_dict(pod(both("2", "1Gi")))
    found = {}
    for profile in ("kubelet-1.36", "podslice"):
        subject = NodeSubject(config, expand_short_form(short), profile=profile)
        found[profile] = lint_pod(PodSubject(written, subject), {"PS504"})
    assert found["podslice"] == []
    (finding,) = found["kubelet-1.36"]
    assert (finding.severity, finding.path) == ("error", "spec.containers[0].resources.limits[cpu]")
    assert "gets CPU 0, which is reserved for the system" in finding.message
    assert finding.fix == "set reservedSystemCPUs: 0-1, with which this pod gets none of them"
    better = NodeSubject(node(reserved_system_cpus="0-1").config, expand_short_form(short), profile="kubelet-1.36")
    assert lint_pod(PodSubject(written, better), {"PS504"}) == []


@pytest.mark.parametrize(
    ("options", "fix"),
    [
        ({"strict-cpu-reservation": "true"}, "remove it: Kubernetes 1.32 has it"),
        ({"full-pcpu-only": "true"}, "did you mean full-pcpus-only?"),
        ({"full-pcpus-only": "yes"}, "correct the option as the message says"),
    ],
)
def test_options_of_other_releases(options: dict[str, str], fix: str) -> None:
    """An option that comes later is named with its release; a misspelt one with the right name."""
    (found,) = lint_kubelet(node(profile="kubelet-1.31", cpu_manager_policy_options=options), {"PS405"})
    assert found.fix == fix


@pytest.mark.parametrize(
    ("profile", "expected"),
    [
        ("kubelet-1.31", ["warning"]),
        ("kubelet-1.33", ["warning"]),
        ("kubelet-1.34", ["error"]),
        ("podslice", ["error"]),
    ],
)
def test_pod_level_resources_of_a_release(profile: str, expected: list[str]) -> None:
    """Kubelets before 1.34 do not read spec.resources without the gate; later ones refuse the pod, as the node does."""
    off = {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}
    minor = NodeSubject(KubeletConfig(), profile=profile).release.minor
    gates = {name: value for name, value in off.items() if name in gate_states(minor)}
    subject = node(TWO_NODES, profile=profile, feature_gates=gates)
    found = lint_pod(PodSubject(pod_from_dict(pod({}, budget=BUDGET)), subject), {"PS211"})
    assert [one.severity for one in found] == expected
    decision = subject.new_node().admit(pod_from_dict(pod({}, budget=BUDGET)))
    assert decision.admitted is (expected == ["warning"])


@pytest.mark.parametrize(("profile", "severity", "cause"), [
    ("kubelet-1.31", "info", "a kubelet of 1.31 enforces every CPU limit"),
    ("kubelet-1.33", "warning", "the kubelet's gate DisableCPUQuotaWithExclusiveCPUs is off"),
])  # fmt: skip
def test_quota_of_a_release(profile: str, severity: str, cause: str) -> None:
    """Before 1.33 every exclusive container is throttled; later only where the gate is off."""
    gates = {"DisableCPUQuotaWithExclusiveCPUs": False} if severity == "warning" else {}
    subject = node(profile=profile, feature_gates=gates)
    (found,) = lint_pod(PodSubject(pod_from_dict(pod(both("2", "1Gi"))), subject), {"PS107"})
    assert found.severity == severity
    assert cause in found.message
