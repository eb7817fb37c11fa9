"""An agent with a PodslicePolicy beside a runtime and a kernel in memory: for resizes, with kills at any write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from podslice.agent.admitting import NodeSetup
from podslice.agent.cgroups.reconcile import Reconciler
from podslice.agent.kubelet.sources import Sources
from podslice.agent.moves.memory_moves import MemoryMoves
from podslice.agent.moves.move_rules import ThreadMasks
from podslice.agent.moves.plan_executor import PlanExecutor
from podslice.agent.moves.running_move import MoveRunner
from podslice.agent.node_wiring import wire_node, wire_plugin, wire_resizes
from podslice.agent.podfacts import GatheredFacts
from podslice.agent.resize.cgroup_writes import TreeCgroups
from podslice.agent.resize.memory_migration import MemoryMigration
from podslice.agent.runtime.container_file import ContainerFiles
from podslice.api.pod.spec import Pod
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import ExclusiveResize, PodslicePolicy
from podslice.host.state import statefile
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.holding import digest
from podslice.node.node import Node
from podslice.node.view import NodeView
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import format_bits, parse_bits
from tests.agent.fake_source import FakeSource
from tests.agent.helpers import GIB, Notes, agent_config, never_ended
from tests.agent.kernel import SHARED, Kernel, KilledError

MACHINE = "pack:2 numa:1(memory=64GB) core:8 pu:2(indexes=pu)"
ELASTIC = PodslicePolicy(resize=ExclusiveResize(exclusive=True))


def elastic(**fields: Any) -> PodslicePolicy:
    return PodslicePolicy(resize=ExclusiveResize(exclusive=True, **fields))


class Elastic:
    """A node. The runtime's ledgers are `containers`, what holds is in `kernel`."""

    def __init__(
        self,
        folder: Path,
        policy: PodslicePolicy = ELASTIC,
        config: KubeletConfig | None = None,
        *,
        machine: str = MACHINE,
        wait: float = 0.5,
    ) -> None:
        self.folder, self.policy, self.wait = folder, policy, wait
        self.config = config or agent_config(reserved_system_cpus="0-1")
        self.machine = from_synthetic(machine)
        self.kernel = Kernel(f"0-{self.machine.cpu_count - 1}")
        self.source = FakeSource()
        self.pods: dict[str, nri.PodSandbox] = {}
        self.containers: dict[str, nri.Container] = {}
        self.environment: dict[str, dict[str, str]] = {}
        """What containers were told when they were created."""
        self.notes = Notes()
        self.files = ContainerFiles(None)
        self.free_memory = 1 << 40
        self.free: dict[int, int] = {}
        """Free bytes of NUMA nodes, where that is little."""
        self.masks, self.kernel_release = ThreadMasks(), (6, 6)

    def start(self) -> None:
        """A new agent process on the same state directory."""
        self.kernel.before = lambda: None
        self.notes = Notes()
        self.files._folder = None  # what a killed process still had to write is not written
        files = self.files = ContainerFiles(self.folder / "containers")
        sources = Sources([self.source], wait=self.wait)
        clock = lambda: asyncio.get_running_loop().time()  # noqa: E731
        node = wire_node(
            NodeSetup(self.folder / "state", self.machine, self.config, self.policy), self.notes,
            facts=GatheredFacts(sources, files, self.kernel), resizes=sources, clock=clock,
        )  # fmt: skip
        self.owner = node.owner
        self.reconciler = Reconciler(self.owner, self.kernel)
        cgroups = TreeCgroups(self.kernel, self.reconciler.write)
        leaving = MemoryMigration(self.kernel, lambda node: self.free.get(node, 1 << 40), run_in_thread=at_once)
        threads = lambda record: self.masks  # noqa: E731
        self.resizing = wire_resizes(
            node, cgroups, migration=leaving, threads=threads, run_in_thread=at_once, clock=clock
        )
        running_moves = MoveRunner(
            self.owner,
            node.events,
            self.resizing,
            cgroups,
            MemoryMoves(self.kernel, lambda node: self.free_memory, run_in_thread=at_once),
            find=sources.find,
            threads=lambda record: self.masks,
            kernel=self.kernel_release,
            clock=clock,
            run_in_thread=at_once,
        )
        self.moving = PlanExecutor(self.owner, running_moves, clock=clock, run_in_thread=at_once)
        self.plugin = wire_plugin(
            node, sources, files, self.notes, settle=self.reconciler.settle, write=self.reconciler.write,
            ended=never_ended, resizing=self.resizing,
        )  # fmt: skip
        updates = self.plugin.synchronize(list(self.pods.values()), list(self.containers.values()))
        assert not self.owner.safe_mode, self.owner.safe_mode
        self.apply(updates)

    def apply(self, updates: Iterable[nri.ContainerUpdate]) -> None:
        """The runtime takes over updates, one after the other."""
        for update in updates:
            if update.container_id in self.containers:
                self.set(update.container_id, update.linux.resources)

    def set(self, container: str, resources: nri.LinuxResources) -> None:
        cpu, path = (
            resources.cpu,
            f"kubepods/{self.containers[container].linux.cgroups_path.split('/')[-2]}/{container}",
        )
        ledger = self.containers[container].linux.resources.cpu
        if cpu.cpus:
            ledger.cpus = cpu.cpus
            self.kernel.write_cpus(path, parse_bits(cpu.cpus))
        if cpu.mems:
            ledger.mems = cpu.mems
            self.kernel.write_mems(path, parse_bits(cpu.mems))
        if cpu.HasField("quota"):
            ledger.quota.value = cpu.quota.value
            period = cpu.period.value or 100_000
            self.kernel.write_quota(path, None if cpu.quota.value < 0 else cpu.quota.value, period)
        if resources.memory.limit.value:
            self.containers[container].linux.resources.memory.limit.value = resources.memory.limit.value
            self.kernel.files[path]["memory.max"] = str(resources.memory.limit.value)

    @property
    def node(self) -> Node:
        assert self.owner.node is not None
        return self.owner.node

    @property
    def view(self) -> NodeView:
        return self.node.view

    @property
    def digest(self) -> str:
        """Return the digest of the holdings of all pods."""
        return digest(self.node.state).named

    def state_files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in (self.folder / "state").rglob("*") if path.is_file()}

    def container_file(self, container: str) -> dict[str, Any]:
        """Return the content of a container's file."""
        data: dict[str, Any] = msgspec.json.decode(
            (self.folder / "containers" / container / "resources.json").read_bytes()
        )
        return data

    def gone(self, uid: str) -> None:
        """A pod's processes and cgroups are no more."""
        self.pods.pop(f"s-{uid}", None)
        self.containers = {name: one for name, one in self.containers.items() if not name.startswith(f"{uid}-")}
        for path in [path for path in self.kernel.files if f"{path}/".startswith(f"kubepods/pod{uid}/")]:
            del self.kernel.files[path]

    # Pods

    async def run(self, pod: Pod, *, memory: int = GIB) -> None:
        """A pod with all its containers, as a kubelet brings it up."""
        uid = pod.metadata.uid
        self.source.add(pod)
        self.kernel.add(f"kubepods/pod{uid}", "")
        sandbox = nri.PodSandbox(id=f"s-{uid}", name=pod.metadata.name, uid=uid, namespace="default")
        sandbox.linux.cgroup_parent = f"/kubepods/pod{uid}"
        self.pods[sandbox.id] = sandbox
        if (answer := self.plugin.run_pod(sandbox)) is not None:
            await answer
        for container in pod.spec.containers:
            await self._create(sandbox, container.name, _milli(container.resources.limits), memory)

    async def _create(self, sandbox: nri.PodSandbox, name: str, milli: int, memory: int) -> None:
        ident = f"{sandbox.uid}-{name}"
        path = f"kubepods/pod{sandbox.uid}/{ident}"
        message = nri.Container(id=ident, pod_sandbox_id=sandbox.id, name=name, state=nri.CONTAINER_CREATED)
        message.linux.cgroups_path = f"/{path}"
        message.linux.resources.CopyFrom(asked(milli, memory=memory))
        answer: Any = self.plugin.create_container(sandbox, message)
        if asyncio.iscoroutine(answer):
            answer = await answer
        self.apply(answer.updates)
        got = answer.adjust.linux.resources.cpu
        self.environment[ident] = {pair.key: pair.value for pair in answer.adjust.env}
        isolation = self.environment[ident]["PODSLICE_ISOLATION"]
        owner = {"container": ident, "pod": f"{sandbox.uid}/pool", "host": SHARED, "mixed": ""}[isolation]
        self.containers[ident] = message
        self.kernel.add(path, owner, got.cpus)
        self.kernel.files[path]["cpuset.mems"] = got.mems
        self.kernel.files[path]["memory.max"] = str(memory) if memory else "max"
        if milli and got.quota.value >= 0:
            self.kernel.files[path]["cpu.max"] = f"{milli * 100} 100000"
        message.linux.resources.cpu.cpus, message.linux.resources.cpu.mems = got.cpus, got.mems
        if got.quota.value < 0:
            message.linux.resources.cpu.quota.value = -1
        self.plugin.start_container(sandbox, message)
        message.state = nri.CONTAINER_RUNNING
        self.kernel.check()

    async def restart_container(self, uid: str, name: str, milli: int, *, memory: int = GIB) -> None:
        """The container ends, and the kubelet creates the next one in its sandbox, maybe with other resources."""
        sandbox, ident = self.pods[f"s-{uid}"], f"{uid}-{name}"
        self.apply(self.plugin.stop_container(sandbox, self.containers[ident]))
        del self.kernel.files[f"kubepods/pod{uid}/{ident}"]
        self.plugin.remove_container(sandbox, self.containers.pop(ident))
        await self._create(sandbox, name, milli, memory)

    def leave(self, uid: str) -> None:
        """A pod is gone with its containers."""
        self.plugin.stop_pod(self.pods[f"s-{uid}"])
        self.plugin.remove_pod(self.pods.pop(f"s-{uid}"))
        for ident in [ident for ident in self.containers if ident.startswith(f"{uid}-")]:
            del self.containers[ident]
        for path in [path for path in self.kernel.files if f"pod{uid}" in path]:
            del self.kernel.files[path]

    async def update(self, container: str, milli: int, *, memory: int = GIB) -> None:
        """The kubelet's call for one container. Raises `RPCError` where the agent refuses."""
        message, resources = self.containers[container], asked(milli, memory=memory)
        pod = self.pods[message.pod_sandbox_id]
        answer: Any = self.plugin.update_container(pod, message, resources)
        if asyncio.iscoroutine(answer):
            answer = await answer
        for update in answer:
            own = update.container_id == container
            if own:
                resources.MergeFrom(update.linux.resources)
            self.apply([] if own else [update])
        self.set(container, resources)
        self.plugin.post_update_container(pod, message)

    async def update_pod(self, uid: str, milli: int) -> None:
        """The kubelet's call for the pod as a whole, and its write into the pod's cgroup."""
        answer = self.plugin.update_pod(self.pods[f"s-{uid}"], asked(milli))
        if answer is not None:
            await answer

    async def settle(self) -> None:
        """Wait until pending updates are written and the shared containers have their sets."""
        for ongoing in list(self.resizing.actuator.in_progress.values()):
            await ongoing.done.wait()
        for _ in self.owner.updates.write(self.reconciler.write):
            pass
        self.kernel.check()

    async def bury(self) -> None:
        """After a kill: what the process still had to do is not done."""
        tasks = [ongoing.task for ongoing in self.resizing.actuator.in_progress.values() if ongoing.task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # What is

    def cpus(self, container: str) -> str:
        """The CPUs of a container by the kernel."""
        uid = self.containers[container].pod_sandbox_id.removeprefix("s-")
        return format_bits(self.kernel.on(f"kubepods/pod{uid}/{container}"))

    def owned(self, uid: str, name: str = "app") -> str:
        """The CPUs of a container by the state."""
        return format_bits(self.view.owners.get(uid, {}).get(name, 0))

    def agrees(self) -> None:
        """Everybody runs on what the ledgers say, and nothing is left to do."""
        self.kernel.check()
        for record in self.owner.containers.values():
            wanted = self.owner.placing.wanted(record)
            assert self.cpus(record.id) == format_bits(wanted.cpus), record.id
        left = self.reconciler.read_only_copy().run()
        assert left == [], left
        assert self.owner.placing.withheld == {}
        assert self.owner.placing.running_move == {}


async def at_once(work: Callable[..., Any], *arguments: Any) -> Any:
    """Beside the event loop, which does not wait for threads in virtual time."""
    return work(*arguments)


def asked(milli: int, *, memory: int = 0) -> nri.LinuxResources:
    """Return the resources in a kubelet's update call."""
    resources = nri.LinuxResources()
    resources.cpu.shares.value = max(milli * 1024 // 1000, 2)
    if milli:
        resources.cpu.quota.value, resources.cpu.period.value = milli * 100, 100_000
    resources.memory.limit.value = memory
    return resources


def _milli(limits: Any) -> int:
    return limits["cpu"].milli_value() if limits and "cpu" in limits else 0


def kill_at(world: Elastic, patch: pytest.MonkeyPatch, moment: int) -> Callable[[], bool]:
    """The process ends before its write number `moment`, counted from now, be it to a cgroup or a file, and writes
    nothing afterwards. Returns what says whether it came to that."""
    count = [0]

    def before() -> None:
        if count[0] >= moment:
            count[0] = moment + 1
            raise KilledError
        count[0] += 1

    world.kernel.before = before
    for name in ("write", "rename", "sync_directory"):
        original = getattr(statefile.RealFiles, name)

        def step(self: Any, *arguments: Any, _original: Any = original) -> None:
            before()
            _original(self, *arguments)

        patch.setattr(statefile.RealFiles, name, step)
    return lambda: count[0] > moment
