"""Topology Manager scenarios T* of the checklist, without devices: a device plugin needs hardware."""

from __future__ import annotations

from e2e.pods import gu, ngu, pod
from e2e.scenarios import STATIC, Json, scenario
from e2e.world import World, check, union

_POLICIES = ("none", "best-effort", "restricted", "single-numa-node")


def _topology(policy: str, scope: str = "container", **options: str) -> Json:
    fields = {"topologyManagerPolicyOptions": options} if options else {}
    return {**STATIC, "topologyManagerPolicy": policy, "topologyManagerScope": scope, **fields}


def _suite(world: World) -> None:
    shared = world.run(pod("ngu", ngu("c")))
    one = world.run(pod("one", gu("c", 1)))
    two = world.run(pod("two", gu("c", 2)))
    multi = world.run(pod("multi", gu("a", 1), gu("b", 2)))
    sets = [
        world.exclusive(one, "c", 1), world.exclusive(two, "c", 2),
        world.exclusive(multi, "a", 1), world.exclusive(multi, "b", 2),
    ]  # fmt: skip
    world.disjoint(*sets)
    world.check_shared(shared, "c", world.online & ~union(sets))
    world.remove(one, two, multi)
    world.nothing_left()


for _policy in _POLICIES:
    scenario(f"T01/{_policy}", _topology(_policy))(_suite)
    scenario(f"T06/{_policy}", _topology(_policy, **{"max-allowable-numa-nodes": "8"}))(_suite)


def _node_size(world: World) -> int:
    return max(cpus.bit_count() for cpus in world.nodes)


def _check_aligned(world: World, cpus: int) -> None:
    check(world.on_nodes(cpus).bit_count() == 1, f"CPUs of several NUMA nodes: {cpus:b}")


@scenario("T02", _topology("single-numa-node"))
def each_container_on_one_node(world: World) -> None:
    size = _node_size(world)
    whole = world.run(pod("whole", gu("c", size)))
    _check_aligned(world, world.exclusive(whole, "c", size))
    several = world.run(pod("several", gu("a", 2), gu("b", 2)))
    for name in ("a", "b"):
        _check_aligned(world, world.exclusive(several, name, 2))
    sidecar = world.run(pod("side", gu("a", 1), init=(gu("s", 1, sidecar=True),)))
    _check_aligned(world, world.exclusive(sidecar, "s", 1))


@scenario("T03", _topology("single-numa-node"))
def beyond_one_node(world: World) -> None:
    size = _node_size(world)
    world.refuse(pod("p", gu("c", size + 1)), "TopologyAffinityError")
    world.refuse(pod("q", gu("c", 1), init=(gu("s", size + 1, sidecar=True),)), "TopologyAffinityError")
    world.nothing_left()


@scenario("T04", _topology("single-numa-node", "pod"))
def whole_pod_on_one_node(world: World) -> None:
    size = _node_size(world)
    first = world.run(pod("p", gu("a", size // 2), gu("b", size // 2)))
    own = union(world.exclusive(first, name, size // 2) for name in ("a", "b"))
    _check_aligned(world, own)
    second = world.run(pod("q", gu("a", size)))
    check(world.on_nodes(world.exclusive(second, "a", size)) != world.on_nodes(own), "the pods share a NUMA node")
    world.refuse(pod("r", gu("a", size), gu("b", 1)), "TopologyAffinityError")


@scenario(
    "T05",
    {
        **_topology("best-effort", **{"prefer-closest-numa-nodes": "true"}),
        "cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"},
        "featureGates": {"CPUManagerPolicyAlphaOptions": True, "CPUManagerPolicyBetaOptions": True},
    },
    where=lambda shape: bool(shape.near),
)
def closest_nodes_first(world: World) -> None:
    count = 2 * _node_size(world) - 1
    for name in ("p", "q"):
        nodes = world.on_nodes(world.exclusive(world.run(pod(name, gu("a", count))), "a", count))
        members = [node for node in range(len(world.nodes)) if nodes >> node & 1]
        near = [(a, b) for a in members for b in members if a < b]
        check(all(pair in world.shape.near for pair in near), f"NUMA nodes {members} are not near each other")
