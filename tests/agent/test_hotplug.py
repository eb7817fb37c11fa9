"""The agent's machine changes: the ledgers follow, then the cgroups, and people hear of it."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from podslice import Hotplug, Machine, PodslicePolicy, without_cpus
from podslice.agent.contract import Reporter
from podslice.agent.hotplug import SETTLED_SECONDS, MachineSource, MachineWatch
from podslice.agent.records import ContainerRecord, Pinning
from podslice.agent.status.local import status_of
from podslice.agent.status.report import AgentReporter
from podslice.host.boot import Boot
from podslice.host.discover import Reading, read_machine
from podslice.host.filesystem import MemoryFileSystem
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.host.kernel.uevents import concerns_machine, drain_uevents, open_uevents
from podslice.machine.delta import MachineConsequence
from podslice.service.identity import Identity
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import Bits, format_bits
from podslice.values.errors import InputError
from tests.agent.fakenode import FakeTree
from tests.agent.helpers import World, in_world
from tests.agent.test_reporting import Events
from tests.conftest import make_pod

NETLINK_KOBJECT_UEVENT = 15
CPUS, NODES = "sys/devices/system/cpu", "sys/devices/system/node"


class FakeMachine:
    """A machine whose CPUs can be switched, as sysfs shows them; whoever reads is counted."""

    def __init__(self, whole: Machine) -> None:
        self.whole = whole
        self.offline: Bits = 0
        self.memory = 64
        self.discovered = 0
        self.broken = False

    def read(self) -> Reading:
        files = {
            f"{CPUS}/online": format_bits(self.whole.cpus.bits & ~self.offline),
            f"{NODES}/online": "0",
            f"{NODES}/node0/meminfo": f"Node 0 MemTotal: {self.memory} kB\nNode 0 MemFree: {self.discovered} kB\n",
        }
        return read_machine(MemoryFileSystem(files))

    def discover(self) -> Machine:
        self.discovered += 1
        if self.broken:
            raise InputError("cannot be read")
        return without_cpus(self.whole, self.offline)


class Written:
    """The cgroups' history: after every write nobody has a CPU that somebody else has."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.fake = FakeTree(folder)
        self.tree = CgroupTree(folder)
        self.history: list[tuple[str, str]] = []
        for container in world.fake.containers.values():
            self.fake.add(_path(container.message.linux.cgroups_path), cpuset_cpus=container.cpus)

    def write(self, record: ContainerRecord, wanted: Pinning) -> bool:
        if self.sets[record.name] == wanted.cpus:
            return True
        self.tree.write_cpus(_path(record.cgroups_path), wanted.cpus)
        self.history.append((record.name, wanted.cpu_list))
        self.check()
        return True

    @property
    def sets(self) -> dict[str, Bits]:
        return {
            record.name: self.tree.read(_path(record.cgroups_path)).cpus or 0  # type: ignore[union-attr]
            for record in self.world.owner.containers.values()
        }

    def check(self) -> None:
        """Owners share with nobody, and who shares shares with no owner."""
        owners = {name: cpus for name, cpus in self.sets.items() if not name.startswith("shared")}
        taken = 0
        for cpus in owners.values():
            assert not taken & cpus
            taken |= cpus
        for name, cpus in self.sets.items():
            assert name in owners or not cpus & taken, (name, format_bits(cpus & taken))


def _path(path: str) -> str:
    return path.strip("/")


Bench = tuple[World, FakeMachine, MachineWatch, Written]


def changing(tmp_path: Path, test: Callable[[Bench], Awaitable[None]], **hotplug: Any) -> None:
    """Two owners of four CPUs and two containers that share, on 32 CPUs of which 0 is reserved."""

    async def main(world: World) -> None:
        for uid, cpus in (("a", "4"), ("b", "4"), ("shared1", "100m"), ("shared2", "200m")):
            await world.run(make_pod(uid, (uid, cpus)))
        machine = FakeMachine(world.machine)
        written = Written(world, tmp_path / "cgroup")

        async def place() -> None:
            for _ in world.owner.updates.write(written.write):
                await asyncio.sleep(0)

        watch = MachineWatch(
            world.owner, MachineSource(machine.read, machine.discover), write=written.write, place=place
        )
        await test((world, machine, watch, written))

    in_world(tmp_path, main, policy=PodslicePolicy(hotplug=Hotplug(**hotplug)))


def test_a_lost_cpu_and_back(tmp_path: Path) -> None:
    """An owner's CPU goes offline: it runs on the rest, people hear of it, and the state is as before when it is
    back."""

    async def test(bench: Bench) -> None:
        world, machine, watch, written = bench
        own = written.sets["a"]
        files = {path: path.read_bytes() for path in world.owner.directory.glob("*_state")}
        machine.offline = own & -own
        assert await watch.look()
        assert written.sets["a"] == own & ~machine.offline
        assert [(pod, kind) for pod, kind, _ in world.notes.changes] == [("default/a", "degraded")]
        assert {path: path.read_bytes() for path in files} == files
        assert world.owner.machine.offline.bits == machine.offline
        machine.offline = 0
        assert await watch.look()
        assert written.sets["a"] == own
        assert [kind for _, kind, _ in world.notes.changes] == ["degraded", "returned"]
        assert {path: path.read_bytes() for path in files} == files

    changing(tmp_path, test)


def test_who_gives_up_is_written_first(tmp_path: Path) -> None:
    """CPUs for a lost one come from the shared pool: all who share have left them before the owner has them."""

    async def test(bench: Bench) -> None:
        world, machine, watch, written = bench
        own = written.sets["a"]
        machine.offline = own & -own
        await watch.look()
        now = written.sets["a"]
        assert now.bit_count() == 4
        assert not now & machine.offline
        assert [name for name, _ in written.history][-1] == "a"
        assert {name for name, _ in written.history} == {"a", "shared1", "shared2"}
        machine.offline |= now
        await watch.look()
        assert written.sets["a"].bit_count() == 4
        assert not written.sets["a"] & machine.offline
        machine.offline = 0
        await watch.look()
        assert written.sets["shared1"] == world.owner.placing.pool()

    changing(tmp_path, test, lost_cpus="replace")


def test_a_restarted_agent(tmp_path: Path) -> None:
    """CPUs that went while the agent was away count at its start: nobody is refused, and nobody's limit is taken for a
    resize."""

    async def test(bench: Bench) -> None:
        world, machine, _, written = bench
        own = written.sets["a"]
        await world.kill()
        world.machine = without_cpus(world.machine, own & -own)
        await world.start()
        assert not world.owner.safe_mode
        record = next(one for one in world.owner.containers.values() if one.name == "a")
        assert world.owner.placing.wanted(record).cpus == own & ~(own & -own)
        assert world.notes.resizes == []
        assert world.owner.placing.lost(record) == own & -own
        world.owner.change_machine(machine.whole)
        assert world.owner.placing.wanted(record).cpus == own

    changing(tmp_path, test)


def test_status(tmp_path: Path) -> None:
    """The status says what the machine lacks, and whose CPUs are offline."""

    async def test(bench: Bench) -> None:
        world, machine, watch, written = bench
        machine.offline = written.sets["a"] & -written.sets["a"] | 1
        await watch.look()
        status = status_of(world.owner, [], **FACTS)
        assert status.conditions == (
            "reservedCPUsOffline: CPUs 0 are reserved and offline", "cpusOffline: CPUs 2 went offline",
        )  # fmt: skip
        (mine,) = [one for one in status.pods if one.name == "a"]
        assert mine.findings == ("container a owns CPUs 2, which are offline, and runs on 3-5",)
        machine.offline = 0
        await watch.look()
        assert status_of(world.owner, [], **FACTS).conditions == ()

    changing(tmp_path, test)


def test_status_of_a_node_without_shared_cpus(tmp_path: Path) -> None:
    """Where no CPU is left to share but reserved ones the status says so, until others come."""

    async def test(bench: Bench) -> None:
        world, machine, watch, written = bench
        owned = written.sets["a"] | written.sets["b"]
        machine.offline = machine.whole.cpus.bits & ~owned & ~1
        await watch.look()
        shown = status_of(world.owner, [], **FACTS).conditions
        assert shown[-1] == "noSharedCPUs: only the reserved CPUs 0 are left to share"
        assert written.sets["shared1"] == 1
        machine.offline = 0
        await watch.look()
        assert status_of(world.owner, [], **FACTS).conditions == ()

    changing(tmp_path, test)


FACTS: dict[str, Any] = dict.fromkeys(("node", "machine", "runtime", "ready"), "") | {
    "connected": True, "observe": False, "started_at": 0.0,
}  # fmt: skip


def test_only_what_stays_counts(tmp_path: Path) -> None:
    """Two readings that agree, two seconds apart, are one change; what is back by then was none."""

    async def test(bench: Bench) -> None:
        _, machine, watch, _ = bench
        loop = asyncio.get_running_loop()
        assert not await watch.look()
        started = loop.time()
        machine.offline = 0b10
        loop.call_later(1, lambda: setattr(machine, "offline", 0b110))
        loop.call_later(3, lambda: setattr(machine, "offline", 0b1110))
        assert await watch.look()
        assert loop.time() - started == 3 * SETTLED_SECONDS
        assert machine.discovered == 1
        machine.offline = 0b11110
        loop.call_later(1, lambda: setattr(machine, "offline", 0b1110))
        assert not await watch.look()
        assert machine.discovered == 1

    changing(tmp_path, test)


def test_what_cannot_be_read_is_read_again(tmp_path: Path) -> None:
    """A machine that cannot be discovered is trouble, changes nothing, and is looked at again."""

    async def test(bench: Bench) -> None:
        world, machine, watch, written = bench
        machine.broken, machine.offline = True, 0b10
        assert not await watch.look()
        assert world.notes.troubles == [("machine", "it changed and cannot be read: cannot be read")]
        assert written.history == []
        machine.broken = False
        assert await watch.look()

    changing(tmp_path, test)


def test_free_memory_is_no_change(tmp_path: Path) -> None:
    """Only what the managers count is read: a node's total, not what is free of it."""

    async def test(bench: Bench) -> None:
        _, machine, watch, _ = bench
        machine.discovered += 1
        assert not await watch.look()
        machine.memory -= 1
        assert await watch.look()

    changing(tmp_path, test)


@pytest.mark.parametrize(
    ("message", "counts"),
    [
        (b"offline@/devices/system/cpu/cpu5\0ACTION=offline\0DEVPATH=/x\0SUBSYSTEM=cpu\0SEQNUM=1\0", True),
        (b"add@/devices/system/memory/memory9\0SUBSYSTEM=memory\0", True),
        (b"add@/devices/system/node/node1\0SUBSYSTEM=node\0", True),
        (b"add@/devices/virtual/net/veth0\0SUBSYSTEM=net\0", False),
        (b"libudev\0\xfe\xed\xca\xfe\0\0\0(\0\0", False),
        (b"SUBSYSTEM=\xff\xfe\0", False),
        (b"", False),
    ],
)
def test_uevents(message: bytes, *, counts: bool) -> None:
    """Of the kernel's announcements those about CPUs, memory and NUMA nodes count."""
    assert concerns_machine(message) is counts


class FakeSocket:
    """Messages with their senders, then an end."""

    def __init__(self, messages: list[tuple[bytes, int]], error: OSError) -> None:
        self.messages, self.error = messages, error

    def recvfrom(self, size: int) -> tuple[bytes, tuple[int, int]]:
        if not self.messages:
            raise self.error
        message, sender = self.messages.pop(0)
        return message, (sender, 1)


@pytest.mark.parametrize(
    ("messages", "error", "found"),
    [
        ([(b"SUBSYSTEM=net\0", 0), (b"SUBSYSTEM=cpu\0", 0)], BlockingIOError(), True),
        ([(b"SUBSYSTEM=cpu\0", 4711)], BlockingIOError(), False),
        ([], BlockingIOError(), False),
        ([], OSError("no buffer space"), True),
    ],
)
def test_only_the_kernel_is_heard(messages: list[tuple[bytes, int]], error: OSError, *, found: bool) -> None:
    """Messages of another process are not taken for the kernel's; lost messages make the agent read the machine
    again."""
    listener: socket.socket = FakeSocket(messages, error)  # type: ignore[assignment]
    assert drain_uevents(listener) is found


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """The kernel's own socket."""
    opened = open_uevents()
    if opened is None:
        pytest.skip("needs a kernel that lets a process open a uevent socket (AF_NETLINK, group 1)")
    with opened:
        yield opened


def test_a_process_is_not_the_kernel(listener: socket.socket) -> None:
    """On the real socket, what another process sends to us is read and not believed."""
    with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, NETLINK_KOBJECT_UEVENT) as other:
        other.sendto(b"offline@/devices/system/cpu/cpu5\0ACTION=offline\0SUBSYSTEM=cpu\0", listener.getsockname())
        assert select.select([listener], [], [], 30)[0]
    message, (sender, _) = listener.recvfrom(1 << 16, socket.MSG_PEEK)
    assert concerns_machine(message)
    assert sender != 0
    assert not drain_uevents(listener)
    assert not select.select([listener], [], [], 0)[0]


def test_the_kernel_is_heard(listener: socket.socket) -> None:
    """The kernel announces a CPU on the real socket, as it does when one goes offline."""
    try:
        Path("/sys/devices/system/cpu/cpu0/uevent").write_text("change\n")
    except OSError as error:
        pytest.skip(f"needs root and a writable /sys, to let the kernel announce a CPU: {error}")
    if not select.select([listener], [], [], 30)[0]:
        pytest.skip("needs the host's network namespace: announcements of the kernel do not come into this one")
    assert drain_uevents(listener)


def test_after_a_reboot(tmp_path: Path) -> None:
    """An agent on a machine that changed over a reboot starts afresh and tells whose CPUs are others."""

    async def test(world: World) -> None:
        world.boot = Boot("one")
        await world.restart()
        own = (await world.run(make_pod("a", ("a", "4"))))["a"].cpus
        await world.kill()
        world.machine, world.boot = without_cpus(world.machine, 0b100), Boot("two")
        for container in world.fake.containers.values():
            container.message.state = nri.CONTAINER_STOPPED
        await world.start()
        assert not world.owner.safe_mode
        told = [(pod, kind) for pod, kind, _ in world.notes.changes]
        assert told[0] == ("", "rebuilt")
        now = format_bits(world.owner.node.view.affinity("a", "a"))  # type: ignore[union-attr]
        assert (own, now) == ("2-5", "1,3-5")
        assert told[1:] == [("default/a", "rebuilt")]
        assert (world.owner.directory / "cpu_manager_state.before-reboot").exists()

    in_world(tmp_path, test, policy=PodslicePolicy(hotplug=Hotplug()))


def test_events_and_counters() -> None:
    """A pod hears what became of its CPUs, the node of the rest."""
    events = Events()
    reporter: Reporter = AgentReporter(events)
    who = Identity("u", "default", "p", {})
    for kind in ("degraded", "drain", "shares", "shares-in-pod", "replaced", "returned"):
        reporter.machine_changed(who, MachineConsequence(kind, "x", "u", "c"))  # type: ignore[arg-type]
    reporter.machine_changed(None, MachineConsequence("no-shared-cpus", "x"))
    lost = ["PodsliceCPUsLost"] * 4
    assert events.reasons == [*lost, "PodsliceCPUsReplaced", "PodsliceCPUsReturned", "PodsliceMachineChanged"]
