"""`/metrics` has every metric of the specifications under its exact name, type and labels."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
import pytest

from podslice.agent.contract import PodFailure, ResizeReport
from podslice.agent.runtime.ttrpc import RPCError
from podslice.agent.status.metrics import Metrics, MetricsPage, rejection_label
from podslice.agent.status.report import AgentReporter
from podslice.config.kubelet import MemoryReservation
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.context import allocation_series
from podslice.node.node import Node
from podslice.service.trust import AuthorityFile
from podslice.status.status import Drift
from tests.agent.helpers import World, pod_level
from tests.conftest import make_pod

_SERIES = re.compile(r"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(?P<labels>.*)\})? (?P<value>\S+)\Z")

KUBELET = {
    "kubelet_cpu_manager_pinning_requests_total": ("counter", ""),
    "kubelet_cpu_manager_pinning_errors_total": ("counter", ""),
    "kubelet_cpu_manager_shared_pool_size_millicores": ("gauge", ""),
    "kubelet_cpu_manager_exclusive_cpu_allocation_count": ("gauge", ""),
    "kubelet_cpu_manager_allocation_per_numa": ("gauge", "numa_node"),
    "kubelet_container_aligned_compute_resources_count": ("counter", "boundary scope"),
    "kubelet_container_aligned_compute_resources_failure_count": ("counter", "boundary scope"),
    "kubelet_memory_manager_pinning_requests_total": ("counter", ""),
    "kubelet_memory_manager_pinning_errors_total": ("counter", ""),
    "kubelet_topology_manager_admission_requests_total": ("counter", ""),
    "kubelet_topology_manager_admission_errors_total": ("counter", ""),
    "kubelet_topology_manager_admission_duration_ms": ("histogram", "le"),
    "kubelet_topology_manager_admission_duration_seconds": ("histogram", "le"),
    "kubelet_pod_topology_manager_pinning_errors_total": ("counter", ""),
    "resource_manager_allocations_total": ("counter", "resource_name source"),
    "resource_manager_allocation_errors_total": ("counter", "resource_name source"),
    "resource_manager_container_assignments": ("counter", "assignment_type resource_name"),
    "kubelet_admission_rejections_total": ("counter", "reason"),
    "kubelet_device_plugin_registration_total": ("counter", "resource_name"),
    "kubelet_device_plugin_alloc_duration_seconds": ("histogram", "le resource_name"),
    "kubelet_pod_resources_endpoint_requests_total": ("counter", "server_api_version"),
    "kubelet_pod_resources_endpoint_requests_list": ("counter", "server_api_version"),
    "kubelet_pod_resources_endpoint_requests_get": ("counter", "server_api_version"),
    "kubelet_pod_resources_endpoint_requests_get_allocatable": ("counter", "server_api_version"),
    "kubelet_pod_resources_endpoint_errors_list": ("counter", "server_api_version"),
    "kubelet_pod_resources_endpoint_errors_get": ("counter", "server_api_version"),
    "kubelet_pod_resources_endpoint_errors_get_allocatable": ("counter", "server_api_version"),
}
"""Name to type and label names (cpu-topology 10.1, 10.2; memory-device 1.16, 2.3, 2.7, 2.16, 3.5)."""

OWN = {
    "podslice_container_assignments": ("gauge", "assignment_type resource_name"),
    "podslice_hook_duration_seconds": ("histogram", "hook le"),
    "podslice_drift_total": ("counter", "kind"),
    "podslice_drift_repaired_total": ("counter", "kind"),
    "podslice_state_age_seconds": ("gauge", ""),
    "podslice_safe_mode": ("gauge", ""),
    "podslice_nri_connected": ("gauge", ""),
    "podslice_nri_connections_total": ("counter", ""),
    "podslice_strangers_total": ("counter", ""),
    "podslice_troubles_total": ("counter", "kind"),
    "podslice_pod_failures_total": ("counter", "step"),
    "podslice_resizes_not_applied_total": ("counter", ""),
    "podslice_resizes_total": ("counter", "operation result"),
    "podslice_resize_seconds": ("histogram", "le"),
    "podslice_claim_prepare_seconds": ("histogram", "le result"),
    "podslice_resize_pending": ("gauge", ""),
    "podslice_moves_total": ("counter", "result"),
    "podslice_cluster_streams": ("gauge", ""),
    "podslice_cluster_services": ("gauge", ""),
    "podslice_guard_writes_total": ("counter", "guard result"),
    "podslice_guard_contested_total": ("counter", "guard"),
    "podslice_guard_open_files": ("gauge", "guard"),
    "podslice_plans": ("gauge", "fate"),
    "podslice_machine_changes_total": ("counter", "kind"),
    "podslice_degraded_containers": ("gauge", ""),
    "podslice_memory_overcommitted_bytes": ("gauge", "numa_node"),
    "podslice_kubernetes_release": ("gauge", "release"),
    "podslice_pods": ("gauge", ""),
    "podslice_pods_rejected_total": ("counter", ""),
    "podslice_containers": ("gauge", "isolation"),
    "podslice_reconcile_timestamp_seconds": ("gauge", ""),
}
POLICY = {
    "podslice_class_cpus": ("gauge", "class state"),
    "podslice_class_fallbacks_total": ("counter", "class"),
    "podslice_plugin_errors_total": ("counter", "plugin point"),
    "podslice_scored_merges_total": ("counter", "agrees"),
}
"""Those that there are where a policy has such a section."""


AUTHORITY = {
    "podslice_cluster_authority_expiry_timestamp_seconds": ("gauge", ""),
    "podslice_cluster_authority_reload_successful": ("gauge", ""),
}
"""Those of agents whose configuration names the authority of the cluster's service."""


class NoResizes:
    """Nothing waits."""

    pending = 0


class MeasuredWorld(World):
    """A world whose agent reports as the daemon does."""

    authority: AuthorityFile | None = None

    async def start(self) -> None:
        self.counts = metrics = Metrics()
        self.reporter = self.notes = AgentReporter(metrics=metrics)  # type: ignore[assignment]
        await super().start()
        self.metrics = MetricsPage(
            metrics, self.owner, resizes=NoResizes(), isolation=None, journal=self.owner.admitting.journal,
            authority=self.authority, is_kubelets=lambda: False,
        )  # fmt: skip

    def page(self) -> tuple[dict[str, str], dict[str, float]]:
        """Types by family and values by series."""
        types, values = {}, {}
        for line in self.metrics.text().decode().splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ")
                assert name not in types, f"{name} appears twice"
                types[name] = kind
            elif not line.startswith("#"):
                match = _SERIES.match(line)
                assert match is not None, line
                values[line.rpartition(" ")[0]] = float(match["value"])
        return types, values


def labels_of(values: dict[str, float], family: str, kind: str) -> str:
    """Label names of a family's series, which must all have the same."""
    names = (f"{family}_bucket",) if kind == "histogram" else (family,)
    found = set()
    for series in values:
        name, _, labels = series.partition("{")
        if name in names:
            found.add(" ".join(sorted(re.findall(r'([a-z_]+)="', labels))))
    assert len(found) == 1, f"{family}: {found}"
    return found.pop()


def assignments(values: dict[str, float], resource: str) -> tuple[float, ...]:
    """Running containers with CPUs or memory of the node, of their pod, and of their pod's shared pool."""
    name = "podslice_container_assignments"
    kinds = ("node_exclusive", "pod_exclusive", "pod_shared")
    return tuple(values[f'{name}{{assignment_type="{kind}",resource_name="{resource}"}}'] for kind in kinds)


CONFIG = pod_level(
    topology_manager_policy="single-numa-node",
    memory_manager_policy="Static",
    system_reserved={"memory": "1Gi"},
    reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    cpu_manager_policy_options={"full-pcpus-only": "true"},
)


def test_names_types_and_labels(tmp_path: Path) -> None:
    """Nothing is missing, misnamed or of another type, and the counts are those of what happened."""

    async def main() -> None:
        world = MeasuredWorld(tmp_path, CONFIG)
        await world.start()
        await world.run(make_pod("a", ("app", "4")))
        await world.run(make_pod("b", ("x", "2"), ("y", None), budget="4"))
        for uid, pod in (("big", make_pod("big", ("app", "30"))), ("odd", make_pod("odd", ("app", "3")))):
            with pytest.raises(RPCError):
                await world.run(pod)
            assert not world.owner.pods[uid].units
        world.reporter.drift(Drift("default/a", "app", "cpus", "1", "2", repaired=True))
        world.reporter.trouble("apiServer", "away")
        world.reporter.resize_answered(world.owner.pods["a"].identity, ResizeReport("grow", "applied", "app: 1 -> 1-2"))
        world.reporter.failed(world.owner.pods["a"].identity, PodFailure("list", "ValueError: x", "x.py:1"))
        world.counts.plugin_registrations.labels("vendor.com/gpu").inc()
        world.counts.plugin_allocations.labels("vendor.com/gpu").observe(0.3)
        world.counts.claim_prepares.labels("prepared").observe(0.003)
        types, values = world.page()
        for name, (kind, labels) in (KUBELET | OWN).items():
            assert types.get(name) == kind, name
            assert labels_of(values, name, kind) == labels, name
        assert {name for name in types if name not in KUBELET | OWN} == set()
        assert set(re.findall(r"^# HELP (\S+) \S", world.metrics.text().decode(), re.MULTILINE)) == set(types)
        assert values["kubelet_topology_manager_admission_requests_total"] == 4
        assert values["kubelet_topology_manager_admission_errors_total"] == 2
        assert values["kubelet_topology_manager_admission_duration_ms_count"] == 4
        assert values["kubelet_topology_manager_admission_duration_seconds_count"] == 4
        assert values['kubelet_topology_manager_admission_duration_ms_bucket{le="0.05"}'] >= 0
        assert 'kubelet_topology_manager_admission_duration_ms_bucket{le="819.2"}' in values
        assert values["kubelet_cpu_manager_exclusive_cpu_allocation_count"] == 8
        assert values["kubelet_cpu_manager_shared_pool_size_millicores"] == (32 - 1 - 8) * 1000
        assert values['kubelet_admission_rejections_total{reason="TopologyAffinityError"}'] == 1
        assert values['kubelet_admission_rejections_total{reason="Other"}'] == 1
        for resource in ("cpu", "memory"):
            assert values[f'resource_manager_allocations_total{{resource_name="{resource}",source="pod"}}'] == 1
            assert values[f'resource_manager_allocations_total{{resource_name="{resource}",source="node"}}'] == 1
            assert assignments(values, resource) == (1, 1, 1)
        buckets = [s for s in values if s.startswith("kubelet_device_plugin_alloc_duration_seconds_bucket")]
        assert len(buckets) == 12
        assert values['podslice_containers{isolation="pod"}'] == 1
        assert values['podslice_troubles_total{kind="apiServer"}'] == 1
        await world.end("a")
        _, values = world.page()
        assert assignments(values, "cpu") == assignments(values, "memory") == (0, 1, 1)
        timed = {
            series.split('hook="')[1][:-2]
            for series in values
            if series.startswith("podslice_hook_duration_seconds_count")
        }
        containers, pods = {"Create", "Start", "Stop", "Remove"}, {"Run", "Stop", "Remove"}
        expected = {f"{one}Container" for one in containers} | {f"{one}PodSandbox" for one in pods}
        assert timed == expected | {"Synchronize"}
        await world.kill()

    asyncio.run(main())


@pytest.mark.parametrize("profile_metrics", [("podslice", 0), ("kubelet-1.36", 2)])
def test_a_refused_pod_is_not_counted(profile_metrics: tuple[str, int]) -> None:
    """CPUs taken for a pod whose memory fits nowhere are given back and not counted; upstream counts them."""
    profile, counted = profile_metrics
    config = msgspec.structs.replace(CONFIG, topology_manager_policy="best-effort", cpu_manager_policy_options={})
    machine = from_synthetic("pack:1 numa:1(memory=8GB) core:8 pu:1")
    node = Node(machine, config, profile=profile, predicates=False)
    pod = make_pod("p", ("x", "2"), ("y", None), budget="4")
    assert not node.admit(pod).admitted
    key = allocation_series("cpu", "pod")
    assert node.kubelet.manager.context.metrics.get(key, 0) == counted


def test_an_agent_that_knows_an_authority(tmp_path: Path) -> None:
    """It says when that expires, 0 where the file cannot be used; an agent without one says nothing of it."""

    async def main() -> None:
        world = MeasuredWorld(tmp_path)
        world.authority = AuthorityFile(tmp_path / "nowhere.crt", "cluster.caFile")
        await world.start()
        types, values = world.page()
        assert {name: (types[name], labels_of(values, name, types[name])) for name in AUTHORITY} == AUTHORITY
        assert [values[name] for name in AUTHORITY] == [0, 0]
        world.authority = None
        await world.kill()
        await world.start()
        assert not set(AUTHORITY) & set(world.page()[0])
        await world.kill()

    asyncio.run(main())


def test_no_managers_metrics_without_the_gate(tmp_path: Path) -> None:
    """`resource_manager_…` exist only with PodLevelResourceManagers, aligned NUMA nodes only with a policy."""

    async def main() -> None:
        world = MeasuredWorld(tmp_path)
        await world.start()
        await world.run(make_pod("a", ("app", "4")))
        types, _ = world.page()
        assert not [name for name in types if name.startswith("resource_manager_")]
        await world.kill()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("reason", "label"),
    [
        ("TopologyAffinityError", "TopologyAffinityError"),
        ("UnexpectedAdmissionError", "UnexpectedAdmissionError"),
        ("SMTAlignmentError", "Other"),
        ("EmptyPodSharedPoolError", "Other"),
        ("OutOfcpu", "OutOfcpu"),
        ("OutOfvendor.com/gpu", "OutOfExtendedResources"),
        ("PodUnknown", "Other"),
    ],
)
def test_labels_of_rejections(reason: str, label: str) -> None:
    """The label values are a closed list (memory-device 3.5)."""
    assert rejection_label(reason) == label
