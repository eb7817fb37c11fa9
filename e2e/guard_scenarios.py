"""Guards of exclusive CPUs: interrupts of the virtual machine's own devices, and partitions of its kernel."""

from __future__ import annotations

import shlex

from e2e.kubelet import Running
from e2e.pods import gu, ngu, pod
from e2e.scenarios import STATIC, Json, scenario
from e2e.world import World, check
from podslice.node.checkpoints.guard_files import bits_in
from podslice.values.cpuset import parse_bits

_LIST = "cd /proc/irq; for i in [0-9]*; do echo $i $(cat $i/smp_affinity_list) $(ls -d $i/*/ 2>/dev/null); done"


def _settings(guard: str, how: str = "enforce", **others: str) -> Json:
    spec = {"guards": {guard: how, **others}}
    policy = {"apiVersion": "podslice.io/v1alpha1", "kind": "PodslicePolicy", "spec": spec}
    return {"policy": policy, "reconcileSeconds": 1}


def _virtio(world: World) -> dict[str, int]:
    """Return the CPUs of the interrupts of virtio devices, by number."""
    text: str = world.vm.call("shell", command=_LIST)
    rows = [line.split() for line in text.splitlines() if "virtio" in line]
    return {row[0]: bits_in(row[1], "list") for row in rows}


@scenario("X-guards-irq", STATIC, agent=_settings("irq"))
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


_KERNEL_THREADS = r"""
import os, re
for name in filter(str.isdecimal, os.listdir('/proc')):
    try:
        fields = open(f'/proc/{name}/stat').read().rpartition(')')[2].split()
        allowed = re.search(r'Cpus_allowed_list:\s*(\S+)', open(f'/proc/{name}/status').read())[1]
    except OSError:
        continue
    if int(fields[6]) & 0x00200000 and not int(fields[6]) & 0x04000000:
        print(f'{name}.{fields[19]}', allowed)
"""
"""Threads of the kernel that may be moved, by id and start, with the CPUs that they may run on."""


def _kernel_threads(world: World) -> dict[str, int]:
    text: str = world.vm.call("shell", command=shlex.join(["python3.13", "-c", _KERNEL_THREADS]))
    return {name: parse_bits(cpus) for name, cpus in (line.split() for line in text.splitlines())}


@scenario("X-guards-kthreads", STATIC, agent=_settings("kthreads"))
def kernel_threads_leave_exclusive_cpus(world: World) -> None:
    """Threads of the kernel that may be moved leave an owner's CPUs. The agent is killed, they stay away; the owner
    goes, and the next agent lets those that are still there run where they could before."""
    first = _kernel_threads(world)
    check(any(cpus == world.online for cpus in first.values()), "no thread of the kernel may run everywhere")
    owner = world.run(pod("gu", gu("c", 2)))
    owned = world.exclusive(owner, "c", 2)

    def still_there() -> list[str]:
        return [name for name, cpus in _kernel_threads(world).items() if name in first and cpus & owned]

    check(world.soon(lambda: len(still_there()), 0) == 0, f"{still_there()} of the kernel stay on its CPUs")
    world.kill_agent()
    check(still_there() == [], "a killed agent gave something back")
    world.remove(owner)
    world.start_agent()

    def others() -> list[str]:
        return [name for name, cpus in _kernel_threads(world).items() if first.get(name, cpus) != cpus]

    check(world.soon(lambda: len(others()), 0) == 0, f"{others()} of the kernel are not where they were")


def _cgroup(owner: Running, name: str) -> str:
    """A container's folder below the mount of cgroups."""
    return owner.process(name, "cgroup").strip().partition("::")[2]


def _effective_cpus(world: World) -> int:
    """Return the CPUs left to all other cgroups, whatever was written to those."""
    return parse_bits(str(world.vm.call("read", path="/sys/fs/cgroup/cpuset.cpus.effective")).strip())


def _exclusive_cpus_of_cgroups(world: World) -> str:
    """Return `cpuset.cpus.exclusive` of the cgroups of pods."""
    command = "cd /sys/fs/cgroup; find . -name cpuset.cpus.exclusive | sort | while read f; do echo $f $(cat $f); done"
    lines = str(world.vm.call("shell", command=command)).splitlines()
    return "; ".join(line for line in lines if len(line.split()) > 1)


@scenario("X-guards-partition", STATIC, new_kernel=True, agent=_settings("partition"))
def the_kernel_keeps_others_off(world: World) -> None:
    """An owner's cgroup becomes a partition: the kernel gives its CPUs to no other cgroup. The agent is killed, the
    partition stays; the owner goes, and the next agent gives back what cgroups above it have taken."""
    shared, owner = world.run(pod("ngu", ngu("c"))), world.run(pod("gu", gu("c", 2)))
    owned = world.exclusive(owner, "c", 2)
    path = f"/sys/fs/cgroup{_cgroup(owner, 'c')}/cpuset.cpus.partition"
    kind = world.soon(lambda: str(world.vm.call("read", path=path)).strip(), "root")
    check(kind == "root", f"the partition is {kind}; taken: {_exclusive_cpus_of_cgroups(world)}")
    check(_effective_cpus(world) == world.online & ~owned, "the kernel lets others on its CPUs")
    check(world.exclusive(owner, "c", 2) == owned, "the owner has lost CPUs")
    world.check_shared(shared, "c", world.online & ~owned)
    check(int(world.metrics()['podslice_guard_open_files{guard="partition"}']) == 0, "files are left open")
    world.kill_agent()
    check(_effective_cpus(world) == world.online & ~owned, "a killed agent gave something back")
    world.remove(owner)
    world.start_agent()
    left = world.soon(lambda: _exclusive_cpus_of_cgroups(world), "")
    check(left == "", f"cgroups still take {left}")
    check(_effective_cpus(world) == world.online, "the kernel keeps CPUs from others")
    world.check_shared(shared, "c", world.online)


@scenario("X-guards-partition-stop", STATIC, new_kernel=True, agent=_settings("partition"))
def an_agent_that_stops_leaves_no_partition(world: World) -> None:
    """An agent that stops in order makes the owner's cgroup a member again; the next one makes it a partition."""
    owner = world.run(pod("gu", gu("c", 2)))
    path = f"/sys/fs/cgroup{_cgroup(owner, 'c')}/cpuset.cpus.partition"

    def kind() -> str:
        return str(world.vm.call("read", path=path)).strip()

    check(world.soon(kind, "root") == "root", f"the partition is {kind()}")
    world.signal_agent("TERM")
    check(world.soon(kind, "member") == "member", f"the partition is {kind()}")
    check(_exclusive_cpus_of_cgroups(world) == "", f"cgroups still take {_exclusive_cpus_of_cgroups(world)}")
    world.restart_agent()
    check(world.soon(kind, "root") == "root", f"the partition is {kind()}")


def _partition(world: World, folder: str) -> str:
    return str(world.vm.call("read", path=f"/sys/fs/cgroup{folder}/cpuset.cpus.partition")).strip()


@scenario("X-guards-auto", STATIC, new_kernel=True, agent=_settings("partition", "auto"))
def a_new_kernel_has_partitions_by_itself(world: World) -> None:
    """With `partition: auto` a kernel from 6.11 on has one for an owner."""
    folder = _cgroup(world.run(pod("gu", gu("c", 2))), "c")
    kind = world.soon(lambda: _partition(world, folder), "root")
    check(kind == "root", f"the partition is {kind}")


@scenario("X-guards-auto-older", STATIC, agent=_settings("partition", "auto", irq="observe"))
def an_older_kernel_is_left_alone(world: World) -> None:
    """With `partition: auto` an older kernel has none, when guards have looked at an owner."""
    owner = world.run(pod("gu", gu("c", 2)))
    looked = world.soon(lambda: world.metrics()['podslice_guard_open_files{guard="irq"}'] > 0, True)
    check(looked, "guards have not looked")
    check(_partition(world, _cgroup(owner, "c")) == "member", "an older kernel has a partition")
    check(_exclusive_cpus_of_cgroups(world) == "", f"cgroups have taken {_exclusive_cpus_of_cgroups(world)}")


_WHOLE_PODS: Json = {
    **STATIC,
    "featureGates": {"PodLevelResourceManagers": True},
    "topologyManagerPolicy": "restricted",
    "topologyManagerScope": "pod",
}


@scenario("X-guards-bubble", _WHOLE_PODS, new_kernel=True, agent=_settings("partition"))
def the_cpus_of_a_pod_are_a_partition(world: World) -> None:
    """The CPUs that a pod's containers share are a partition of the pod's cgroup: the kernel leaves these
    CPUs to no other cgroup, and all containers of the pod run there. It goes with the pod."""
    owner = world.run(pod("p", ngu("a"), ngu("b"), budget=(2, "128Mi")))
    owned = owner.cpus("a")
    check(owned.bit_count() == 2 and owned == owner.cpus("b"), "both containers run on the pod's two CPUs")
    folder = _cgroup(owner, "a").rpartition("/")[0]
    kind = world.soon(lambda: _partition(world, folder), "root")
    check(kind == "root", f"the partition of the pod is {kind}; taken: {_exclusive_cpus_of_cgroups(world)}")
    check(_effective_cpus(world) == world.online & ~owned, "the kernel lets others on its CPUs")
    check(owner.cpus("a") == owner.cpus("b") == owned, "its containers have lost CPUs")
    world.remove(owner)
    left = world.soon(lambda: _exclusive_cpus_of_cgroups(world), "")
    check(left == "", f"cgroups still take {left}")
    check(_effective_cpus(world) == world.online, "the kernel keeps CPUs from others")
