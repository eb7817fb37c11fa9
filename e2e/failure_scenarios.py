"""What goes wrong on a node: the agent or the runtime dies, somebody else writes cpusets, state is damaged."""

from __future__ import annotations

from e2e.pods import gu, ngu, pod
from e2e.scenarios import STATIC, scenario
from e2e.world import STATE, World, check
from podslice.core.values.cpuset import format_bits


@scenario("X-agent-killed", STATIC)
def agent_killed_between_calls(world: World) -> None:
    """A killed agent comes back to the same owners, and goes on."""
    shared = world.run(pod("ngu", ngu("c")))
    first = world.run(pod("first", gu("c", 2)))
    owned = world.exclusive(first, "c", 2)
    world.kill_agent()
    world.start_agent()
    world.shared(first, "c", owned)
    second = world.run(pod("second", gu("c", 1)))
    world.disjoint(owned, world.exclusive(second, "c", 1))
    world.shared(shared, "c", world.online & ~owned & ~second.cpus("c"))


@scenario("X-runtime-restarted", STATIC)
def runtime_restarted(world: World) -> None:
    """containerd restarts; the agent finds it again and nobody moves."""
    first = world.run(pod("first", gu("c", 2)))
    owned = world.exclusive(first, "c", 2)
    world.vm.call("kill", name="containerd", number=15)
    world.vm.call("start_containerd")
    world.wait_for_agent()
    world.shared(first, "c", owned)
    world.disjoint(owned, world.exclusive(world.run(pod("second", gu("c", 2))), "c", 2))


@scenario("X-stranger", STATIC)
def somebody_writes_a_cpuset(world: World) -> None:
    """A cpuset that somebody else changed is put right by the reconcile loop."""
    running = world.run(pod("p", gu("c", 2)))
    owned = world.exclusive(running, "c", 2)
    path = f"/sys/fs/cgroup{running.facts('c')['cgroup']}/cpuset.cpus"
    world.vm.call("shell", command=f"echo {format_bits(world.online)} > {path}")
    mended = f"[ \"$(cat {path})\" = '{format_bits(owned)}' ]"
    world.vm.call("shell", command=f"i=0; until {mended}; do i=$((i+1)); [ $i -gt 150 ] && exit 1; sleep 0.2; done")
    world.shared(running, "c", owned)


@scenario("X-damaged-state", STATIC)
def state_file_damaged(world: World) -> None:
    """With a damaged state file nobody loses CPUs, and new exclusive requests are refused."""
    running = world.run(pod("p", gu("c", 2)))
    owned = world.exclusive(running, "c", 2)
    world.kill_agent()
    world.vm.call("shell", command=f"sed -i 's/entries/entr1es/' {STATE}/cpu_manager_state")
    world.start_agent()
    check(running.cpus("c") == owned, "the running container keeps its CPUs")
    world.refuse(pod("q", gu("c", 2)))
