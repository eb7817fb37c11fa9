"""Resizes of exclusive CPUs that the agent carries out, with containerd alone: the calls are a kubelet's."""

from __future__ import annotations

from typing import Any

from e2e.pods import gu, ngu, pod
from e2e.scenarios import STATIC, scenario
from e2e.vm import GuestError
from e2e.world import CheckError, World, check

POLICY = {
    "apiVersion": "podslice.io/v1alpha1",
    "kind": "PodslicePolicy",
    "spec": {"resize": {"exclusive": True}},
}


def _resize(world: World, running: Any, name: str, cpu: int) -> None:
    wanted = {"cpu_shares": 1024 * cpu, "cpu_quota": 100_000 * cpu, "cpu_period": 100_000}
    world.vm.call("update_container", container=running.containers[name][0], resources=wanted)


def _wait_for_resize(world: World, running: Any, count: int) -> int:
    found = world.soon(lambda: running.cpus("own").bit_count(), count)
    check(found == count, f"own runs on {found} CPUs, expected {count}")
    return world.exclusive(running, "own", count)


@scenario("X-resize", STATIC, agent={"policy": POLICY})
def container_is_resized(world: World) -> None:
    """A container grows within the runtime's call, is refused what there is no room for, and shrinks to what it was
    promised; containers that share follow."""
    running = world.run(pod("p", gu("own", 1)))
    shares = world.run(pod("s", ngu("c")))
    one = world.exclusive(running, "own", 1)
    _resize(world, running, "own", 3)
    three = _wait_for_resize(world, running, 3)
    check(three & one == one, f"{one:b} became {three:b}")
    world.check_shared(shares, "c", world.online & ~three)
    check(running.facts("own")["cpu.max"].startswith("max"), "exclusive CPUs are throttled")
    try:
        _resize(world, running, "own", 64)
    except GuestError as error:
        check("podslice: resize infeasible" in str(error), f"the refusal says {error}")
    else:
        raise CheckError("64 CPUs were granted")
    check(running.cpus("own") == three, "a refused resize moved the container")
    _resize(world, running, "own", 1)
    check(_wait_for_resize(world, running, 1) == one, "it did not give back what came last")
    world.check_shared(shares, "c", world.online & ~one)
    world.restart_agent()
    world.check_shared(running, "own", one)
    world.check_shared(shares, "c", world.online & ~one)
