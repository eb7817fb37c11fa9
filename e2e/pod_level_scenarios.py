"""CPU Manager with pod-level resources, scenarios P* of the checklist."""

from __future__ import annotations

from e2e.pods import burstable, gu, ngu, pod
from e2e.scenarios import STATIC, Json, scenario
from e2e.world import World, check, union

_GATES = {"featureGates": {"PodLevelResourceManagers": True}}
_CONTAINER: Json = {**STATIC, **_GATES, "topologyManagerPolicy": "restricted", "topologyManagerScope": "container"}
_POD: Json = {**_CONTAINER, "topologyManagerScope": "pod"}
_OFF: Json = {**STATIC, "topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}
_BUDGET = "128Mi"


@scenario("P01", _POD)
def one_exclusive(world: World) -> None:
    shared = world.run(pod("ngu", ngu("c")))
    owned = world.exclusive(world.run(pod("p", gu("a", 1, _BUDGET), budget=(1, _BUDGET))), "a", 1)
    world.check_shared(shared, "c", world.online & ~owned)


@scenario("P02", _POD)
def shared_containers_run_on_the_pods_cpus(world: World) -> None:
    shared = world.run(pod("ngu", ngu("c")))
    running = world.run(pod("p", ngu("a"), ngu("b"), budget=(2, _BUDGET)))
    own = running.cpus("a")
    check(own.bit_count() == 2 and own == running.cpus("b"), "both containers run on the pod's two CPUs")
    world.check_shared(shared, "c", world.online & ~own)


@scenario("P03", _POD)
def slices_and_shared_pool(world: World) -> None:
    running = world.run(pod("p", gu("a", 1), gu("b", 1), ngu("c"), budget=(3, _BUDGET)))
    sets = [world.exclusive(running, name, 1) for name in ("a", "b", "c")]
    world.disjoint(*sets)
    check(union(sets).bit_count() == 3, "the three containers share out the pod's CPUs")


@scenario("P04", _POD)
def init_cpus_go_back_to_the_pod(world: World) -> None:
    running = world.run(pod("p", gu("a", 1), ngu("b"), init=(gu("i", 1),), budget=(2, _BUDGET)))
    sets = [running.cpus("a"), running.cpus("b")]
    world.disjoint(*sets)
    check(not running.cpus("i") & ~union(sets), "the init container's CPU belongs to the pod")


@scenario("P05", _POD)
@scenario("P18", _CONTAINER)
def not_guaranteed_with_exclusive_container(world: World) -> None:
    world.check_shared(world.run(pod("p", gu("a", 1), budget=(1, _BUDGET), limit=(2, _BUDGET))), "a", world.online)


@scenario("P06", _POD)
@scenario("P19", _CONTAINER)
def not_guaranteed(world: World) -> None:
    world.check_shared(world.run(pod("p", ngu("a"), budget=(1, _BUDGET), limit=(2, _BUDGET))), "a", world.online)


@scenario("P07", _POD)
def empty_shared_pool_is_refused(world: World) -> None:
    world.refuse(pod("p", gu("a", 1), gu("b", 1), ngu("c"), budget=(2, _BUDGET)), "TopologyAffinityError")
    world.nothing_left()


def _everything_twice(world: World, *containers: Json) -> None:
    size = (world.online & ~world.reserved).bit_count() - 1
    for name in ("first", "second"):
        running = world.run(pod(name, *containers, budget=(size, _BUDGET)))
        own = union(running.cpus(container["name"]) for container in containers)
        check(own.bit_count() <= size and bool(own), f"pod {name} runs on its own CPUs")
        world.remove(running)
    world.nothing_left()


@scenario("P08", {**_POD, "topologyManagerPolicy": "best-effort"})
def sequential_pods(world: World) -> None:
    _everything_twice(world, gu("a", 1), ngu("b"))


@scenario("P09", {**_POD, "topologyManagerPolicy": "best-effort"})
def sequential_pods_with_unused_pool(world: World) -> None:
    _everything_twice(world, gu("a", 1))


@scenario("P10", _POD)
def pool_is_kept_while_a_container_lives(world: World) -> None:
    running = world.run(pod("p", gu("a", 1), ngu("b"), budget=(2, _BUDGET)))
    own = running.cpus("a") | running.cpus("b")
    world.kubelet.stop_container(running, "b")
    other = world.run(pod("q", gu("a", 1)))
    world.disjoint(own, world.exclusive(other, "a", 1))


@scenario("P11", {**_POD, "topologyManagerPolicy": "best-effort"})
def two_pods_of_half_the_node(world: World) -> None:
    half = (world.online & ~world.reserved).bit_count() // 2
    pods = [world.run(pod(n, ngu("a"), ngu("b"), ngu("c"), budget=(half, _BUDGET))) for n in ("p", "q")]
    world.disjoint(*(one.cpus("a") for one in pods))
    check(all(one.cpus("a").bit_count() == half for one in pods), "each pod has half of the CPUs")


@scenario("P12", _POD)
def quota_off_for_exclusive(world: World) -> None:
    world.quota(world.run(pod("p", gu("a", 1, _BUDGET), budget=(1, _BUDGET))), "a", "max 100000", "max")


@scenario("P13", _POD)
def quota_on_for_shared(world: World) -> None:
    container = ngu("a", limits={"cpu": "1", "memory": "32Mi"}, requests={"cpu": "500m", "memory": "32Mi"})
    world.quota(world.run(pod("p", container, budget=(1, _BUDGET))), "a", "100000 100000", "100000")


@scenario("P14", _CONTAINER)
def container_scope_exclusive(world: World) -> None:
    world.exclusive(world.run(pod("p", gu("a", 1), budget=(2, _BUDGET))), "a", 1)


@scenario("P15", _CONTAINER)
def container_scope_shared(world: World) -> None:
    world.check_shared(world.run(pod("p", ngu("a"), budget=(2, _BUDGET))), "a", world.online)


@scenario("P16", _CONTAINER)
def container_scope_mixed(world: World) -> None:
    running = world.run(pod("p", gu("a", 1), ngu("b"), budget=(2, _BUDGET)))
    world.check_shared(running, "b", world.online & ~world.exclusive(running, "a", 1))


@scenario("P17", _CONTAINER)
def container_scope_init(world: World) -> None:
    running = world.run(pod("p", gu("a", 1), ngu("b"), init=(gu("i", 1),), budget=(2, _BUDGET)))
    owned = world.exclusive(running, "a", 1)
    check(running.cpus("i") == owned, "the init container's CPU is used again")
    world.check_shared(running, "b", world.online & ~owned)


@scenario("P20", _CONTAINER)
def container_scope_has_no_empty_pool(world: World) -> None:
    running = world.run(pod("p", gu("a", 1), gu("b", 1), ngu("c"), budget=(2, _BUDGET)))
    owned = world.exclusive(running, "a", 1) | world.exclusive(running, "b", 1)
    world.check_shared(running, "c", world.online & ~owned)


@scenario("P21", _CONTAINER)
def container_scope_quota_off(world: World) -> None:
    world.quota(world.run(pod("p", gu("a", 1, _BUDGET), budget=(1, _BUDGET))), "a", "max 100000", "max")


@scenario("P22", _CONTAINER)
def container_scope_quota_on(world: World) -> None:
    container = burstable("a")
    world.quota(world.run(pod("p", container, budget=(1, _BUDGET))), "a", "100000 100000", "100000")


@scenario("P23", {**_OFF, "kubeReserved": {"cpu": "1"}, "reservedSystemCPUs": ""})
@scenario("P24", _OFF)
def gate_off(world: World) -> None:
    running = world.run(pod("p", gu("a", 1), ngu("b"), budget=(2, _BUDGET)))
    world.check_shared(running, "a", world.online)
    world.check_shared(running, "b", world.online)
