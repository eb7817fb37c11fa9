"""Guards of exclusive CPUs: interrupts of the virtual machine's own devices, and partitions of its kernel."""

from __future__ import annotations

from e2e.kubelet import Running
from e2e.pods import gu, ngu, pod
from e2e.scenarios import STATIC, Json, scenario
from e2e.world import World, check
from podslice.core.guards.files import bits_in
from podslice.core.values.cpuset import parse_bits

_LIST = "cd /proc/irq; for i in [0-9]*; do echo $i $(cat $i/smp_affinity_list) $(ls -d $i/*/ 2>/dev/null); done"


def _guarded(guard: str) -> Json:
    spec = {"guards": {guard: "enforce"}}
    policy = {"apiVersion": "podslice.io/v1alpha1", "kind": "PodslicePolicy", "spec": spec}
    return {"policy": policy, "reconcileSeconds": 1}


def _virtio(world: World) -> dict[str, int]:
    """Where interrupts of virtio devices may go, by number."""
    text: str = world.vm.call("shell", command=_LIST)
    rows = [line.split() for line in text.splitlines() if "virtio" in line]
    return {row[0]: bits_in(row[1], "list") for row in rows}


@scenario("X-guards-irq", STATIC, agent=_guarded("irq"))
def interrupts_leave_exclusive_cpus(world: World) -> None:
    """Interrupts of virtio devices that may come to an owner's CPUs are moved away. The agent is killed while they are
    moved, the owner goes, and the next agent gives all back."""
    first = _virtio(world)
    check(bool(first), "the machine has no virtio interrupt")
    owner = world.run(pod("gu", gu("c", 2)))
    owned = world.exclusive(owner, "c", 2)
    touched = {number for number, cpus in first.items() if cpus & owned}
    refused = int(world.metrics()['podslice_guard_writes_total{guard="irq",result="refused"}'])

    def still_there() -> int:
        return len([number for number in touched if _virtio(world)[number] & owned])

    check(world.soon(lambda: still_there() <= refused and len(touched) > refused, True), "interrupts stay on its CPUs")
    moved = _virtio(world)
    check(moved != first, "no interrupt was moved")
    world.kill_agent()
    check(_virtio(world) == moved, "a killed agent gave something back")
    world.remove(owner)
    world.start_agent()
    check(world.soon(lambda: _virtio(world), first) == first, "interrupts are not as they were")


def _cgroup(owner: Running, name: str) -> str:
    """A container's folder below the mount of cgroups."""
    return owner.process(name, "cgroup").strip().partition("::")[2]


def _left_by_the_kernel(world: World) -> int:
    """The CPUs that everybody else may use, whatever was written to their cgroups."""
    return parse_bits(str(world.vm.call("read", path="/sys/fs/cgroup/cpuset.cpus.effective")).strip())


def _taken(world: World) -> str:
    """What cgroups of pods have taken for one below."""
    command = "cd /sys/fs/cgroup; find . -name cpuset.cpus.exclusive | sort | while read f; do echo $f $(cat $f); done"
    lines = str(world.vm.call("shell", command=command)).splitlines()
    return "; ".join(line for line in lines if len(line.split()) > 1)


@scenario("X-guards-partition", STATIC, new_kernel=True, agent=_guarded("partition"))
def the_kernel_keeps_others_off(world: World) -> None:
    """An owner's cgroup becomes a partition: the kernel leaves its CPUs to nobody else. The agent is killed, the
    partition stays; the owner goes, and the next agent gives back what cgroups above it have taken."""
    shared, owner = world.run(pod("ngu", ngu("c"))), world.run(pod("gu", gu("c", 2)))
    owned = world.exclusive(owner, "c", 2)
    path = f"/sys/fs/cgroup{_cgroup(owner, 'c')}/cpuset.cpus.partition"
    kind = world.soon(lambda: str(world.vm.call("read", path=path)).strip(), "root")
    check(kind == "root", f"the partition is {kind}; taken: {_taken(world)}")
    check(_left_by_the_kernel(world) == world.online & ~owned, "the kernel lets others on its CPUs")
    check(world.exclusive(owner, "c", 2) == owned, "the owner has lost CPUs")
    world.shared(shared, "c", world.online & ~owned)
    check(int(world.metrics()['podslice_guard_open_files{guard="partition"}']) == 0, "files are left open")
    world.kill_agent()
    check(_left_by_the_kernel(world) == world.online & ~owned, "a killed agent gave something back")
    world.remove(owner)
    world.start_agent()
    left = world.soon(lambda: _taken(world), "")
    check(left == "", f"cgroups still take {left}")
    check(_left_by_the_kernel(world) == world.online, "the kernel keeps CPUs from others")
    world.shared(shared, "c", world.online)


@scenario("X-guards-partition-stop", STATIC, new_kernel=True, agent=_guarded("partition"))
def an_agent_that_stops_leaves_no_partition(world: World) -> None:
    """An agent that stops in order makes the owner's cgroup a member again; the next one makes it a partition."""
    owner = world.run(pod("gu", gu("c", 2)))
    path = f"/sys/fs/cgroup{_cgroup(owner, 'c')}/cpuset.cpus.partition"

    def kind() -> str:
        return str(world.vm.call("read", path=path)).strip()

    check(world.soon(kind, "root") == "root", f"the partition is {kind()}")
    world.signal_agent("TERM")
    check(world.soon(kind, "member") == "member", f"the partition is {kind()}")
    check(_taken(world) == "", f"cgroups still take {_taken(world)}")
    world.restart_agent()
    check(world.soon(kind, "root") == "root", f"the partition is {kind()}")
