"""Environment of containers, and changes by the kubelet: X08, X11 and X12 of the checklist, what a container is told,
and pods whose specification is an annotation."""

from __future__ import annotations

import json
from typing import Any

from e2e.memory_scenarios import with_pod_level
from e2e.pods import burstable, gu, ngu, pod
from e2e.scenarios import STATIC, Json, configured, scenario
from e2e.world import World, check
from podslice.values.cpuset import format_bits


@scenario("X08", STATIC)
def out_of_memory_scores(world: World) -> None:
    pods = {name: world.run(pod(name, make("c"))) for name, make in (("be", ngu), ("bu", burstable), ("gu", _one))}
    found = {name: int(running.process("c", "oom_score_adj")) for name, running in pods.items()}
    check(found["be"] == 1000 and 2 <= found["bu"] < 1000 and found["gu"] in (-998, -997), f"scores: {found}")


def _one(name: str) -> Json:
    return gu(name, 1)


@scenario("X11", STATIC)
def update_keeps_the_sets(world: World) -> None:
    """A kubelet's update of shares neither unpins nor throttles a container with CPUs of its own; one that asks for
    another number of CPUs leaves it its set and the limit asked for."""
    running = world.run(pod("p", gu("own", 2), gu("half", "500m")))
    owned = world.exclusive(running, "own", 2)
    shared = running.cpus("half")
    for name, quota in (("own", 200000), ("half", 80000)):
        before = running.facts(name)["cpu.weight"]
        wanted = {"cpu_shares": 300, "cpu_quota": quota, "cpu_period": 100000}
        world.vm.call("update_container", container=running.containers[name][0], resources=wanted)
        check(running.facts(name)["cpu.weight"] != before, f"cpu.weight is still {before}")
    world.check_shared(running, "own", owned)
    world.check_shared(running, "half", shared)
    check(running.facts("own")["cpu.max"].startswith("max"), "exclusive CPUs are throttled")
    check(running.facts("half")["cpu.max"] == "80000 100000", f"cpu.max is {running.facts('half')['cpu.max']}")
    wanted = {"cpu_shares": 1536, "cpu_quota": 150000, "cpu_period": 100000}
    world.vm.call("update_container", container=running.containers["own"][0], resources=wanted)
    world.check_shared(running, "own", owned)
    limit = world.soon(lambda: running.facts("own")["cpu.max"], "150000 100000")
    check(limit == "150000 100000", f"after a resize to 1500m cpu.max is {limit}")


@scenario("X12", configured(with_pod_level))
def ephemeral_container(world: World) -> None:
    """It shares the node's CPUs, not what its pod owns, and the pod's cgroup limits it."""
    running = world.run(pod("p", gu("own", 1, "64Mi"), ngu("rest"), budget=(2, "128Mi")))
    owned = running.cpus("own") | running.cpus("rest")
    world.kubelet.start_container(running, "debugger", {})
    world.check_shared(running, "debugger", world.online & ~owned)
    check(running.facts("debugger")["pod memory.max"] == str(128 << 20), "the pod's memory limit does not hold")


def _read_resources(running: Any, name: str) -> Json:
    """The file in the container."""
    resources: Json = json.loads(running.process(name, "root/run/podslice/resources.json"))
    return resources


@scenario("X-told", STATIC)
def containers_know_their_cpus(world: World) -> None:
    """By environment at creation, by a file that is kept current."""
    shared = world.run(pod("ngu", ngu("c")))
    check(shared.variables("c")["PODSLICE_CPUS"] == format_bits(world.online), f"found {shared.variables('c')}")
    owner = world.run(pod("gu", gu("c", 2)))
    owned = world.exclusive(owner, "c", 2)
    found = {name: owner.variables("c")[f"PODSLICE_{name}"] for name in ("CPUS", "ISOLATION", "FILE")}
    expected = {"CPUS": format_bits(owned), "ISOLATION": "container", "FILE": "/run/podslice/resources.json"}
    check(found == expected, f"found {found}, expected {expected}")
    check(_read_resources(owner, "c")["cpus"] == format_bits(owned), f"the file says {_read_resources(owner, 'c')}")
    left = format_bits(world.online & ~owned)
    check(
        world.soon(lambda: _read_resources(shared, "c")["cpus"], left) == left,
        f"the file says {_read_resources(shared, 'c')}",
    )


@scenario("X-annotation", configured(with_pod_level))
def specification_in_an_annotation(world: World) -> None:
    """A kubelet that knows no pod-level resources and an agent that sees no specification."""
    one, budget = {"cpu": "1", "memory": "64Mi"}, {"cpu": "2", "memory": "192Mi"}
    resources = {
        "requests": budget,
        "limits": budget,
        "containers": {"db": {"requests": one, "limits": one}, "log": {}},
    }
    annotations = {"podslice.io/resources": json.dumps(resources)}
    running = world.kubelet.run(pod("p", ngu("db"), ngu("log"), annotations=annotations), known=False)
    own, rest = world.exclusive(running, "db", 1), world.exclusive(running, "log", 1)
    check(world.on_nodes(own | rest).bit_count() == 1, "the pod is on several NUMA nodes")
    limit = str(192 << 20)
    found = world.soon(lambda: running.facts("db")["pod memory.max"], limit)
    check(found == limit, f"memory.max of the pod is {found}")
    broken = pod("q", ngu("db"), annotations={"podslice.io/resources": "{"})
    world.refuse(broken, "is not JSON", known=False)
