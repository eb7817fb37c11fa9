"""PodResources scenarios: R* of the checklist, and M01, M05, M07, M08."""

from __future__ import annotations

from e2e.memory_scenarios import with_memory, with_pod_level
from e2e.pods import burstable, gu, ngu, pod
from e2e.scenarios import STATIC, Json, configured, scenario
from e2e.world import RUNTIME, STATE, World, check, union

_HUGE_PAGES = 8
_NODE = "/sys/devices/system/node/node{}"


def _ids(answer: Json) -> int:
    return union(1 << int(cpu) for cpu in answer.get("cpu_ids", ()))


def _nodes(answer: Json) -> int:
    """The NUMA nodes of a memory block or device; protobuf leaves out a 0."""
    return union(1 << int(node.get("ID", 0)) for node in answer.get("topology", {}).get("nodes", ()))


def _installed_memory(world: World, node: int) -> int:
    """Bytes of a NUMA node."""
    line = world.vm.call("shell", command=f"grep MemTotal {_NODE.format(node)}/meminfo")
    return int(line.split()[3]) * 1024


@scenario("M01", configured(with_memory))
def allocatable_memory(world: World) -> None:
    """Every NUMA node's memory and huge pages less what is reserved there."""
    pages = f"{_NODE.format(0)}/hugepages/hugepages-2048kB/nr_hugepages"
    world.kill_agent()
    world.vm.call("shell", command=f"rm -rf {STATE}; echo {_HUGE_PAGES} > {pages}")
    world.start_agent()
    huge = _HUGE_PAGES * 2 << 20
    expected = {
        (f"{1 << node:b}", "memory"): _installed_memory(world, node) - (64 << 20) for node in range(len(world.nodes))
    }
    expected["1", "memory"] -= huge
    expected["1", "hugepages-2Mi"] = huge
    found = world.pod_resources("GetAllocatableResources")["memory"]
    sizes = {(f"{_nodes(one):b}", one["memory_type"]): int(one["size"]) for one in found}
    check(sizes == expected, f"allocatable {sizes}, expected {expected}")


@scenario("M05", configured(with_memory))
def memory_is_listed(world: World) -> None:
    running = world.run(pod("p", gu("a", 1, "100Mi"), gu("b", 1, "150Mi")))
    for name, size in (("a", 100 << 20), ("b", 150 << 20)):
        (block,) = world.pod_resources_of(running, name)["memory"]
        check(int(block["size"]) == size, f"{name} holds {block['size']} bytes, expected {size}")
        check(_nodes(block) == running.mems(name), f"{name} is listed on other NUMA nodes than it may use")


@scenario("M07", {**STATIC, "memoryManagerPolicy": "None"})
@scenario("M08", {**STATIC, "memoryManagerPolicy": "None"})
def no_memory_without_policy(world: World) -> None:
    running = world.run(pod("p", gu("a", 1)))
    check("memory" not in world.pod_resources("GetAllocatableResources"), "memory is allocatable without a policy")
    check("memory" not in world.pod_resources_of(running, "a"), "memory is listed without a policy")


@scenario("R02/static", STATIC)
def cpus_are_listed(world: World) -> None:
    shared = world.run(pod("ngu", ngu("c")))
    owner = world.run(pod("gu", gu("c", 2)))
    owned = world.exclusive(owner, "c", 2)
    check(_ids(world.pod_resources_of(owner, "c")) == owned, "List names other CPUs than the container has")
    check("cpu_ids" not in world.pod_resources_of(shared, "c"), "a container on the shared pool is listed with CPUs")
    found = world.pod_resources("Get", pod_name="gu-e2e", pod_namespace="default")
    check(_ids(found["pod_resources"]["containers"][0]) == owned, "Get names other CPUs than the container has")
    missing = world.pod_resources("Get", pod_name="nobody", pod_namespace="default")
    check("not found" in missing.get("details", ""), f"Get of an unknown pod: {missing}")
    allocatable = _ids(world.pod_resources("GetAllocatableResources"))
    check(allocatable == world.online & ~world.reserved, f"allocatable CPUs {allocatable:x}")


@scenario("R02/none", {"cpuManagerPolicy": "none"})
def no_cpus_without_policy(world: World) -> None:
    running = world.run(pod("gu", gu("c", 2)))
    check("cpu_ids" not in world.pod_resources_of(running, "c"), "CPUs are listed without a policy")
    check("cpu_ids" not in world.pod_resources("GetAllocatableResources"), "CPUs are allocatable without a policy")


@scenario("R03", STATIC)
def ended_pods_are_not_listed(world: World) -> None:
    """Pods of every QoS class are listed while they run; one whose sandbox has stopped is not, its CPUs are free."""
    pods = [world.run(pod(name, one("c"))) for name, one in (("be", ngu), ("bu", burstable))]
    ended, last = world.run(pod("ended", gu("c", 2))), world.run(pod("last", gu("c", 1)))
    owned = world.exclusive(ended, "c", 2)
    world.kubelet.stop_container(ended, "c")
    runtime = f"import sys; sys.path.insert(0, '/opt/e2e'); from cri import Runtime; Runtime('{RUNTIME}')"
    world.vm.call("shell", command=f"python3.13 -c \"{runtime}.stop_sandbox('{ended.sandbox}')\"")
    names = {one["name"] for one in world.pod_resources("List")["pod_resources"]}
    check(names == {"be-e2e", "bu-e2e", "last-e2e"}, f"listed: {sorted(names)}")
    world.check_shared(pods[0], "c", world.online & ~world.exclusive(last, "c", 1))
    check(world.exclusive(world.run(pod("next", gu("c", 2))), "c", 2) == owned, "the ended pod's CPUs are not reused")


@scenario("R06", STATIC)
def calls_are_counted(world: World) -> None:
    """The rate limit is beyond an emulated machine."""
    before = world.metrics()
    world.pod_resources("List")
    after = world.metrics()
    for name in ("requests_total", "requests_list"):
        key = f'kubelet_pod_resources_endpoint_{name}{{server_api_version="v1"}}'
        check(after[key] == before[key] + 1, f"{key} went from {before[key]} to {after[key]}")


@scenario("R07", configured(with_pod_level))
def pod_level(world: World) -> None:
    """Of a pod with its own budget the exclusive container is listed with its part, the shared one without CPUs."""
    running = world.run(pod("p", gu("a", 1, "64Mi"), ngu("b"), budget=(2, "128Mi")))
    check(_ids(world.pod_resources_of(running, "a")) == world.exclusive(running, "a", 1), "List names other CPUs")
    check(
        "cpu_ids" not in world.pod_resources_of(running, "b"),
        "a container on the pod's shared pool is listed with CPUs",
    )
