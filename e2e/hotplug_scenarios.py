"""CPUs that go offline and come back while pods run, by the kernel's own switch."""

from __future__ import annotations

from e2e.kubelet import Running
from e2e.pods import gu, ngu, pod
from e2e.scenarios import STATIC, Json, scenario
from e2e.vm import Shape
from e2e.world import STATE, World, check
from podslice.values.cpuset import iter_bits, parse_bits


def _agent(lost: str) -> Json:
    spec = {"hotplug": {"lostCPUs": lost}}
    return {"policy": {"apiVersion": "podslice.io/v1alpha1", "kind": "PodslicePolicy", "spec": spec}}


def _roomy(shape: Shape) -> bool:
    """Some CPUs are left when those of two pods are gone."""
    return sum(parse_bits(cpus).bit_count() for cpus in shape.nodes) >= 8


def _switch(world: World, cpus: int, *, on: bool) -> None:
    for cpu in iter_bits(cpus):
        world.vm.call("shell", command=f"echo {int(on)} > /sys/devices/system/cpu/cpu{cpu}/online")


def _ledger(world: World) -> str:
    text: str = world.vm.call("read", path=f"{STATE}/cpu_manager_state")
    return text


def _check_degraded(world: World, count: int) -> None:
    found = world.soon(lambda: int(world.metrics()["podslice_degraded_containers"]), count)
    check(found == count, f"{found} containers are degraded, expected {count}")


def _two(world: World) -> tuple[Running, Running, int]:
    shared, owner = world.run(pod("ngu", ngu("c"))), world.run(pod("gu", gu("c", 2)))
    owned = world.exclusive(owner, "c", 2)
    world.check_shared(shared, "c", world.online & ~owned)
    return shared, owner, owned


@scenario("X-hotplug-degrade", STATIC, where=_roomy, agent=_agent("degrade"))
def owner_runs_on_the_rest(world: World) -> None:
    """An owner of a CPU that goes runs on the other one, and has both again when it comes back: the state is as before,
    byte for byte."""
    shared, owner, owned = _two(world)
    ledger, lost = _ledger(world), owned & -owned
    _switch(world, lost, on=False)
    world.check_shared(owner, "c", owned & ~lost)
    _check_degraded(world, 1)
    check(_ledger(world) == ledger, "the ledger says something else")
    world.check_shared(shared, "c", world.online & ~owned)
    _switch(world, lost, on=True)
    world.check_shared(owner, "c", owned)
    _check_degraded(world, 0)
    check(_ledger(world) == ledger, "the books are not as before")
    world.check_shared(shared, "c", world.online & ~owned)


@scenario("X-hotplug-replace", STATIC, where=_roomy, agent=_agent("replace"))
def owner_gets_another(world: World) -> None:
    """With `replace` an owner gets another CPU; the lost one is shared when it comes back."""
    shared, owner, owned = _two(world)
    lost = owned & -owned
    _switch(world, lost, on=False)
    count = world.soon(lambda: (owner.cpus("c") & ~lost).bit_count(), 2)
    check(count == 2, f"the owner has {count} CPUs")
    now = world.exclusive(owner, "c", 2)
    world.check_shared(shared, "c", world.online & ~now & ~lost)
    _switch(world, lost, on=True)
    world.check_shared(shared, "c", world.online & ~now)
    world.check_shared(owner, "c", now)


@scenario("X-hotplug-all", STATIC, where=_roomy, agent=_agent("degrade"))
def owner_without_any_gets_others(world: World) -> None:
    """An owner all of whose CPUs go, which the kernel lets run on everybody's, has CPUs of its own again soon."""
    shared, owner, owned = _two(world)
    _switch(world, owned, on=False)
    count = world.soon(lambda: owner.cpus("c").bit_count(), 2)
    check(count == 2, f"the owner has {count} CPUs")
    now = world.exclusive(owner, "c", 2)
    world.check_shared(shared, "c", world.online & ~owned & ~now)
    _switch(world, owned, on=True)
    world.check_shared(shared, "c", world.online & ~now)
    world.remove(owner)
    world.check_shared(shared, "c", world.online)
    world.nothing_left()


@scenario("X-hotplug-agent-away", STATIC, where=_roomy, agent=_agent("degrade"))
def cpus_go_while_the_agent_is_away(world: World) -> None:
    """An agent that comes back finds a CPU less, keeps the owner, and gives it back what returns."""
    shared, owner, owned = _two(world)
    ledger, lost = _ledger(world), owned & -owned
    world.kill_agent()
    _switch(world, lost, on=False)
    world.start_agent()
    _check_degraded(world, 1)
    world.check_shared(owner, "c", owned & ~lost)
    _switch(world, lost, on=True)
    world.check_shared(owner, "c", owned)
    _check_degraded(world, 0)
    check(_ledger(world) == ledger, "the books are not as before")
    world.check_shared(shared, "c", world.online & ~owned)
