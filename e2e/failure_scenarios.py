"""Failures on a node: the agent or the runtime dies, another program writes cpusets, state is damaged."""

from __future__ import annotations

from e2e.kubelet import RefusedError, Running
from e2e.pods import gu, ngu, pod
from e2e.scenarios import STATIC, scenario
from e2e.world import STATE, World, check, union
from podslice.values.cpuset import format_bits


@scenario("X-agent-killed", STATIC)
def agent_killed_between_calls(world: World) -> None:
    """A killed agent comes back to the same owners, and goes on."""
    shared = world.run(pod("ngu", ngu("c")))
    first = world.run(pod("first", gu("c", 2)))
    owned = world.exclusive(first, "c", 2)
    world.kill_agent()
    world.start_agent()
    world.check_shared(first, "c", owned)
    second = world.run(pod("second", gu("c", 1)))
    world.disjoint(owned, world.exclusive(second, "c", 1))
    world.check_shared(shared, "c", world.online & ~owned & ~second.cpus("c"))


@scenario("X-agent-killed-anywhere", STATIC)
def agent_killed_between_any_two_calls(world: World) -> None:
    """A pod comes and goes, and after each call of the runtime the agent is killed and started again."""
    shared = world.run(pod("ngu", ngu("c")))
    world.kubelet.between = world.restart_agent
    first = world.run(pod("first", gu("a", 1), gu("b", "500m"), init=(gu("i", 1),)))
    own = world.exclusive(first, "a", 1)
    world.check_shared(shared, "c", world.online & ~own)
    world.remove(first)
    world.kubelet.between = lambda: None
    world.check_shared(shared, "c", world.online)
    world.nothing_left()


@scenario("X-agent-away", STATIC)
def pods_that_came_while_the_agent_was_away(world: World) -> None:
    """They run unpinned, as the plugin is not required; an agent that comes back gives them what is theirs."""
    shared, gone = world.run(pod("ngu", ngu("c"))), world.run(pod("gone", gu("c", 2)))
    world.kill_agent()
    world.remove(gone)
    late = world.run(pod("late", gu("c", 2)))
    check(late.cpus("c") == world.online, "pinned without an agent")
    world.start_agent()
    check(world.soon(lambda: late.cpus("c").bit_count(), 2) == 2, "the late pod has no CPUs of its own")
    world.check_shared(shared, "c", world.online & ~world.exclusive(late, "c", 2))


@scenario("X-slow", STATIC)
def agent_does_not_answer(world: World) -> None:
    """The runtime gives an agent up that does not answer in time; once it answers again it is back, and the pod that
    came meanwhile gets its CPUs."""
    first = world.run(pod("first", gu("c", 2)))
    owned = world.exclusive(first, "c", 2)
    world.signal_agent("STOP")
    late = world.run(pod("late", gu("c", 2)))
    check(late.cpus("c") == world.online, "pinned without an agent")
    world.signal_agent("CONT")
    check(world.soon(lambda: late.cpus("c").bit_count(), 2) == 2, "the late pod has no CPUs of its own")
    world.disjoint(owned, world.exclusive(late, "c", 2))
    world.wait_for_agent()
    world.check_shared(first, "c", owned)


@scenario("X-200-pods", STATIC, where=lambda shape: shape.name == "2x2x4x2")
def many_pods(world: World) -> None:
    """200 pods in and out, ten at a time."""
    for batch in range(20):
        pods = [world.run(pod(f"p{batch}-{i}", gu("c", 1) if i % 2 else ngu("c"))) for i in range(10)]
        owned = [world.exclusive(one, "c", 1) for one in pods[1::2]]
        world.disjoint(*owned)
        world.check_shared(pods[0], "c", world.online & ~union(owned))
        world.remove(*pods)
    world.nothing_left()


@scenario("X-together", STATIC)
def pods_at_the_same_time(world: World) -> None:
    """Pods that come at once and go at once: the runtime neither hangs nor mixes them up."""
    shared = world.run(pod("ngu", ngu("c")))
    for batch in range(3):
        found = world.kubelet.run_together([pod(f"p{batch}-{i}", gu("c", 1) if i % 2 else ngu("c")) for i in range(6)])
        owned = found[1::2]
        check(all(cpus.bit_count() == 1 for cpus in owned), f"exclusive containers run on {owned}")
        world.disjoint(*owned, world.reserved)
        for cpus in found[::2]:
            check(
                not cpus & union(owned),
                f"a shared container also runs on {format_bits(cpus & union(owned))}",
            )
        world.check_shared(shared, "c", world.online)
    world.nothing_left()


def _restart_runtime(world: World) -> None:
    world.vm.call("kill", name="containerd", number=15)
    world.vm.call("start_containerd")
    world.wait_for_agent()


@scenario("X-runtime-restarted", STATIC)
def runtime_restarted(world: World) -> None:
    """containerd restarts; the agent connects again and no container moves."""
    first = world.run(pod("first", gu("c", 2)))
    owned = world.exclusive(first, "c", 2)
    _restart_runtime(world)
    world.check_shared(first, "c", owned)
    world.disjoint(owned, world.exclusive(world.run(pod("second", gu("c", 2))), "c", 2))


@scenario("X-stranger", STATIC)
def somebody_writes_a_cpuset(world: World) -> None:
    """A cpuset that another program changed is put right by the reconcile loop."""
    running = world.run(pod("p", gu("c", 2)))
    owned = world.exclusive(running, "c", 2)
    path = f"/sys/fs/cgroup{running.facts('c')['cgroup']}/cpuset.cpus"
    world.vm.call("shell", command=f"echo {format_bits(world.online)} > {path}")
    mended = f"[ \"$(cat {path})\" = '{format_bits(owned)}' ]"
    world.vm.call("shell", command=f"i=0; until {mended}; do i=$((i+1)); [ $i -gt 150 ] && exit 1; sleep 0.2; done")
    world.check_shared(running, "c", owned)


@scenario("X-damaged-state", STATIC)
def state_file_damaged(world: World) -> None:
    """With a damaged state file no container loses CPUs and new exclusive requests are refused, until the file is
    mended."""
    running = world.run(pod("p", gu("c", 2)))
    owned = world.exclusive(running, "c", 2)
    world.kill_agent()
    world.vm.call("shell", command=f"sed -i 's/entries/entr1es/' {STATE}/cpu_manager_state")
    world.start_agent(ready=False)
    check(running.cpus("c") == owned, "the running container keeps its CPUs")
    world.refuse(pod("q", gu("c", 2)), "state cannot be trusted")
    world.kill_agent()
    world.mend_state()
    world.start_agent()
    world.check_shared(running, "c", owned)
    world.disjoint(owned, world.exclusive(world.run(pod("r", gu("c", 2))), "c", 2))


_PODS, _TRIES = 10, 5


def _processes(world: World) -> int:
    """Shims that live (the guest's first process does not reap), and processes of pods."""
    shims = "grep -l '[c]ontainerd-shim' /proc/[0-9]*/cmdline 2>/dev/null"
    pods = "find /sys/fs/cgroup/kubepods -name cgroup.procs -exec cat {} +"
    return int(world.vm.call("shell", command=f"{{ {shims}; {pods}; }} | wc -l"))


def _retry(world: World, running: Running) -> str:
    """Retry as a kubelet does, and return the runtime's error; empty where the pod now runs."""
    try:
        world.kubelet.start(running)
    except RefusedError as error:
        return str(error)
    return ""


@scenario("X-refusals", STATIC)
def refusals_leave_nothing_behind(world: World) -> None:
    """Fifty refusals leave no process, and containerd starts again, with the sandbox of a refused pod there."""
    shared = world.run(pod("ngu", ngu("c")))
    before = _processes(world)
    size = world.online.bit_count()
    for number in range(_PODS):
        refused = world.kubelet.open(pod(f"big-{number}", gu("c", size)))
        for _ in range(_TRIES):
            said = _retry(world, refused)
            check("Free for exclusive use" in said, f"the refusal says {said!r}")
        world.remove(refused)
    left = world.soon(lambda: _processes(world), before)
    check(left == before, f"{left} shims and pause processes, {before} before")
    waiting = world.kubelet.open(pod("waiting", gu("c", size)))
    check(bool(_retry(world, waiting)), "a pod of all CPUs runs")
    _restart_runtime(world)
    check(bool(_retry(world, waiting)), "a pod of all CPUs runs after the restart")
    world.exclusive(world.run(pod("gu", gu("c", 2))), "c", 2)
    world.remove(waiting)
    check(shared.cpus("c") != 0, "the other pod has gone")


@scenario("X-replaced", STATIC)
def pod_replaced_while_the_old_one_terminates(world: World) -> None:
    """The new pod is refused while the old one holds its CPUs, admitted at a later try in the same sandbox, and
    containerd then starts again."""
    size = world.online.bit_count() - world.reserved.bit_count() - 1
    old = world.run(pod("old", gu("c", size)))
    new = world.kubelet.open(pod("new", gu("c", size)))
    check(bool(_retry(world, new)), "two pods own the same CPUs")
    world.remove(old)
    said = _retry(world, new)
    check(said == "", f"still refused: {said}")
    owned = world.exclusive(new, "c", size)
    _restart_runtime(world)
    world.check_shared(new, "c", owned)
