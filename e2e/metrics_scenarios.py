"""Metrics scenarios X01 and X02 of the checklist. Each begins with an agent that has counted nothing yet."""

from __future__ import annotations

from e2e.memory_scenarios import with_memory
from e2e.pods import gu, pod
from e2e.scenarios import STATIC, configured, scenario, with_options
from e2e.world import World, check

_REQUESTS, _ERRORS = "kubelet_{}_manager_pinning_requests_total", "kubelet_{}_manager_pinning_errors_total"
_POOL = "kubelet_cpu_manager_shared_pool_size_millicores"
_EXCLUSIVE = "kubelet_cpu_manager_exclusive_cpu_allocation_count"
_ALIGNED = 'kubelet_container_aligned_compute_resources_{}{{boundary="{}",scope="container"}}'
_PER_NODE = 'kubelet_cpu_manager_allocation_per_numa{{numa_node="{}"}}'


def _are(world: World, expected: dict[str, float]) -> None:
    """The metrics have these values."""
    found = world.metrics()
    for name, value in expected.items():
        check(found.get(name) == value, f"{name} is {found.get(name)}, expected {value}")


@scenario("X01/counters", with_options("full-pcpus-only"), smt=True)
def pinning(world: World) -> None:
    """Zero at first; a pod that is pinned counts, one that is refused counts as an error too."""
    world.restart_agent()
    requests, errors = _REQUESTS.format("cpu"), _ERRORS.format("cpu")
    aligned = _ALIGNED.format("count", "physical_cpu")
    _are(world, {requests: 0, errors: 0, aligned: 0})
    world.run(pod("even", gu("c", 2)))
    _are(world, {requests: 1, errors: 0, aligned: 1})
    world.refuse(pod("odd", gu("c", 1)), "SMTAlignmentError")
    _are(world, {requests: 2, errors: 1, aligned: 1, 'kubelet_admission_rejections_total{reason="Other"}': 1})
    world.restart_agent()
    _are(world, {errors: 0})


@scenario("X01/pool", STATIC)
def shared_pool(world: World) -> None:
    """Sizes follow Guaranteed pods as they come and go."""
    world.restart_agent()
    idle = 1000.0 * world.online.bit_count()
    _are(world, {_POOL: idle - 1000 * world.reserved.bit_count(), _EXCLUSIVE: 0})
    running = world.run(pod("gu", gu("c", 2)))
    owned = world.exclusive(running, "c", 2)
    per_node = {_PER_NODE.format(node): (owned & cpus).bit_count() for node, cpus in enumerate(world.nodes) if cpus}
    _are(world, {_EXCLUSIVE: 2, _POOL: idle - 1000 * (world.reserved.bit_count() + 2), **per_node})
    world.remove(running)
    _are(world, {_EXCLUSIVE: 0, **dict.fromkeys(per_node, 0)})


@scenario("X01/uncore", with_options("prefer-align-cpus-by-uncorecache"), l3=True)
def uncore_alignment(world: World) -> None:
    """Less than a group and a whole group are aligned, more is not."""
    world.restart_agent()
    aligned = _ALIGNED.format("count", "uncore_cache")
    _are(world, {aligned: 0})
    world.run(pod("less", gu("c", 1)))
    _are(world, {aligned: 1})
    world.run(pod("whole", gu("c", 2)))
    _are(world, {aligned: 2})
    world.run(pod("more", gu("c", 3)))
    _are(world, {aligned: 2})


@scenario("X02/memory", configured(with_memory, topologyManagerPolicy="none"))
def memory_pinning(world: World) -> None:
    world.restart_agent()
    requests, errors = _REQUESTS.format("memory"), _ERRORS.format("memory")
    _are(world, {requests: 0, errors: 0})
    world.run(pod("p", gu("c", 1, "100Mi")))
    _are(world, {requests: 1, errors: 0})
    world.refuse(pod("q", gu("c", 1, "100Gi")))
    _are(world, {requests: 2, errors: 1})


@scenario("X02/topology", {**STATIC, "topologyManagerPolicy": "single-numa-node"})
def topology_admissions(world: World) -> None:
    world.restart_agent()
    requests = "kubelet_topology_manager_admission_requests_total"
    errors = "kubelet_topology_manager_admission_errors_total"
    aligned, not_aligned = _ALIGNED.format("count", "numa_node"), _ALIGNED.format("failure_count", "numa_node")
    _are(world, {requests: 0, errors: 0, aligned: 0, not_aligned: 0})
    world.run(pod("p", gu("c", 1)))
    _are(world, {requests: 1, errors: 0, aligned: 1, not_aligned: 0})
    world.refuse(pod("q", gu("c", world.online.bit_count() - 1)), "TopologyAffinityError")
    _are(world, {requests: 2, errors: 1, aligned: 1, not_aligned: 1})
    check(world.metrics()["kubelet_topology_manager_admission_duration_ms_count"] >= 2, "no admission was timed")
