"""Memory Manager scenarios M* and MP* of the checklist. A NUMA node of the guest has 512 MiB less what its kernel
keeps."""

from __future__ import annotations

from e2e.pods import gu, ngu, pod
from e2e.scenarios import STATIC, Json, configured, scenario
from e2e.vm import Shape
from e2e.world import World, check, union


def with_memory(shape: Shape, **fields: object) -> Json:
    """Static memory policy with 64 MiB reserved on every NUMA node."""
    count = len(shape.nodes)
    return {
        **STATIC,
        "memoryManagerPolicy": "Static",
        "topologyManagerPolicy": "restricted",
        "kubeReserved": {"memory": f"{64 * count}Mi"},
        "evictionHard": {"memory.available": "0%"},
        "reservedMemory": [{"numaNode": node, "limits": {"memory": "64Mi"}} for node in range(count)],
        **fields,
    }


def with_pod_level(shape: Shape, **fields: object) -> Json:
    return with_memory(
        shape, **{"featureGates": {"PodLevelResourceManagers": True}, "topologyManagerScope": "pod", **fields}
    )


def _in_containers(shape: Shape) -> Json:
    return with_pod_level(shape, topologyManagerScope="container")


def _one_node(world: World, mems: int) -> None:
    check(mems.bit_count() == 1, f"memory of {mems.bit_count()} NUMA nodes: {mems:b}")


def _everywhere(world: World, mems: int) -> None:
    check(mems == (1 << len(world.nodes)) - 1, f"not all NUMA nodes' memory: {mems:b}")


@scenario("M02", configured(with_memory))
def init_and_app(world: World) -> None:
    running = world.run(pod("p", gu("app", 1, "100Mi"), init=(gu("init", 1, "150Mi"),)))
    _one_node(world, running.mems("app") | running.mems("init"))


@scenario("M03", configured(with_memory))
def app(world: World) -> None:
    _one_node(world, world.run(pod("p", gu("app", 1, "100Mi"))).mems("app"))


@scenario("M04", configured(with_memory))
def several(world: World) -> None:
    pods = [world.run(pod(f"p{i}", gu("app", 1, "300Mi"))) for i in range(3)]
    for one in pods:
        _one_node(world, one.mems("app"))
    check(union(one.mems("app") for one in pods).bit_count() == 3, "300 MiB fit once on a NUMA node")


@scenario("M06", configured(with_memory, topologyManagerPolicy="none"))
def more_than_any_node_has(world: World) -> None:
    world.refuse(pod("p", gu("app", 1, "100Gi")), "memory")
    world.nothing_left()


@scenario("M09", {**STATIC, "memoryManagerPolicy": "None"})
def policy_none(world: World) -> None:
    _everywhere(world, world.run(pod("p", gu("app", 1))).mems("app"))


@scenario("MP01", configured(with_pod_level))
def pod_scope_exclusive(world: World) -> None:
    running = world.run(pod("p", gu("a", 1, "64Mi"), gu("b", 1, "64Mi"), budget=(2, "128Mi")))
    _one_node(world, running.mems("a") | running.mems("b"))


@scenario("MP02", configured(with_pod_level))
def pod_scope_shared(world: World) -> None:
    running = world.run(pod("p", ngu("a"), ngu("b"), budget=(2, "128Mi")))
    _one_node(world, running.mems("a") | running.mems("b"))


@scenario("MP03", configured(with_pod_level))
def pod_scope_mixed(world: World) -> None:
    running = world.run(pod("p", gu("a", 1, "64Mi"), ngu("b"), budget=(2, "128Mi")))
    _one_node(world, running.mems("a") | running.mems("b"))


@scenario("MP04", configured(with_pod_level))
def pod_scope_init(world: World) -> None:
    running = world.run(pod("p", gu("a", 1, "64Mi"), ngu("b"), init=(gu("i", 1, "64Mi"),), budget=(2, "128Mi")))
    _one_node(world, running.mems("a") | running.mems("b") | running.mems("i"))


@scenario("MP05", configured(with_pod_level))
@scenario("MP17", configured(_in_containers))
def not_guaranteed_exclusive(world: World) -> None:
    running = world.run(pod("p", gu("a", 1, "64Mi"), budget=(1, "64Mi"), limit=(2, "128Mi")))
    _everywhere(world, running.mems("a"))


@scenario("MP06", configured(with_pod_level))
@scenario("MP18", configured(_in_containers))
def not_guaranteed_shared(world: World) -> None:
    running = world.run(pod("p", ngu("a"), budget=(1, "64Mi"), limit=(2, "128Mi")))
    _everywhere(world, running.mems("a"))


_EMPTY = pod("p", gu("a", 1, "64Mi"), gu("b", 1, "64Mi"), ngu("c"), budget=(4, "128Mi"))


@scenario("MP07", configured(with_pod_level, topologyManagerPolicy="best-effort"))
@scenario("MP08", configured(with_pod_level))
def empty_memory_pool_is_refused(world: World) -> None:
    world.refuse(_EMPTY)
    world.nothing_left()


@scenario("MP09", configured(with_pod_level))
@scenario("MP10", configured(with_pod_level))
def sequential_pods(world: World) -> None:
    found = []
    for name in ("first", "second"):
        running = world.run(pod(name, gu("a", 1, "250Mi"), budget=(2, "300Mi")))
        found.append(running.mems("a"))
        world.remove(running)
    check(found[0] == found[1], "the second pod gets the NUMA node of the first")


@scenario("MP11", configured(with_pod_level))
def memory_is_kept_while_a_container_lives(world: World) -> None:
    running = world.run(pod("p", gu("a", 1, "64Mi"), ngu("b"), budget=(2, "300Mi")))
    own = running.mems("a")
    world.kubelet.stop_container(running, "b")
    other = world.run(pod("q", gu("a", 1, "300Mi")))
    check(not other.mems("a") & own, "the pod's memory stays booked")


@scenario("MP12", configured(with_pod_level))
def two_big_pods(world: World) -> None:
    pods = [world.run(pod(name, ngu("a"), ngu("b"), budget=(1, "300Mi"))) for name in ("p", "q")]
    check(not pods[0].mems("a") & pods[1].mems("a"), "each pod has a NUMA node of its own")


@scenario("MP13", configured(_in_containers))
@scenario("MP19", configured(_in_containers))
def container_scope_exclusive(world: World) -> None:
    running = world.run(pod("p", gu("a", 1, "64Mi"), gu("b", 1, "64Mi"), budget=(2, "128Mi")))
    _one_node(world, running.mems("a"))
    _one_node(world, running.mems("b"))


@scenario("MP14", configured(_in_containers))
def container_scope_shared(world: World) -> None:
    _everywhere(world, world.run(pod("p", ngu("a"), budget=(2, "128Mi"))).mems("a"))


@scenario("MP15", configured(_in_containers))
@scenario("MP16", configured(_in_containers), init=(gu("i", 1, "64Mi"),))
def container_scope_mixed(world: World, init: tuple[Json, ...] = ()) -> None:
    running = world.run(pod("p", gu("a", 1, "64Mi"), ngu("b"), init=init, budget=(2, "128Mi")))
    _one_node(world, running.mems("a"))
    _everywhere(world, running.mems("b"))


@scenario("MP20", configured(with_memory))
@scenario("MP21", configured(with_memory), container=ngu("a"))
def gate_off(world: World, container: Json | None = None) -> None:
    running = world.run(pod("p", container or gu("a", 1, "64Mi"), budget=(2, "128Mi")))
    _everywhere(world, running.mems("a"))
