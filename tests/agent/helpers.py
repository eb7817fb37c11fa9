"""A whole agent in a test: owner, plugin and connection beside a runtime that exists only on paper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from podslice.agent.admitting import NodeSetup
from podslice.agent.contract import MoveReport, PodFailure, ResizeReport
from podslice.agent.kubelet.sources import Sources
from podslice.agent.node_wiring import ClaimSetup, wire_node, wire_plugin
from podslice.agent.podfacts import GatheredFacts
from podslice.agent.records import ContainerRecord, NodeRecords, Pinning, ReportedRefusal
from podslice.agent.runtime.container_file import ContainerFiles
from podslice.agent.runtime.nri import Connection, Launch, run_plugin
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY
from podslice.host.boot import Boot
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.machine.delta import MachineConsequence
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Decision, Node
from podslice.service.identity import Identity
from podslice.service.pacing import BackOff
from podslice.values.cpuset import parse_bits
from tests import clock
from tests.agent.fake_source import FakeSource
from tests.service.fake_runtime import FakeContainer, FakeRuntime

MACHINE = "pack:2 numa:1(memory=64GB) core:8 pu:2(indexes=pu)"
GIB = 1 << 30


class Notes:
    """A reporter and timer that remembers."""

    def __init__(self) -> None:
        self.refusals: list[tuple[str, str, str]] = []
        self.failures: list[tuple[str, PodFailure]] = []
        self.resizes: list[tuple[str, str, str]] = []
        self.resize_reports: list[ResizeReport] = []
        self.moves: list[MoveReport] = []
        self.strangers: list[str] = []
        self.changes: list[tuple[str, str, str]] = []
        self.troubles: list[tuple[str, str]] = []
        self.decisions: list[Decision] = []
        self.hooks: list[tuple[str, float]] = []

    def decided(self, seconds: float) -> None:
        self.hooks.append(("admission", seconds))

    def admitted(self, identity: Identity, decision: Decision, node: Node) -> None:
        self.decisions.append(decision)

    def refused(self, identity: Identity, refusal: ReportedRefusal) -> None:
        self.refusals.append((str(identity), refusal.reason, refusal.message))

    def failed(self, identity: Identity, failure: PodFailure) -> None:
        self.failures.append((str(identity), failure))

    def resized(self, identity: Identity, container: str, text: str) -> None:
        self.resizes.append((str(identity), container, text))

    def resize_answered(self, identity: Identity, report: ResizeReport) -> None:
        self.resize_reports.append(report)

    def moved(self, identity: Identity, report: MoveReport) -> None:
        self.moves.append(report)

    def machine_changed(self, identity: Identity | None, consequence: MachineConsequence) -> None:
        self.changes.append((str(identity or ""), consequence.kind, consequence.text))

    def stranger(self, identity: Identity, container: str, why: str) -> None:
        self.strangers.append(f"{identity}/{container}")

    def trouble(self, what: str, message: str) -> None:
        self.troubles.append((what, message))

    def hook(self, name: str, seconds: float) -> None:
        self.hooks.append((name, seconds))


def agent_config(**overrides: Any) -> KubeletConfig:
    return KubeletConfig(
        **{
            "cpu_manager_policy": "static",
            "reserved_system_cpus": "0",
            "topology_manager_policy": "restricted",
            "eviction_hard": {},
            **overrides,
        }
    )


def pod_level(**overrides: Any) -> KubeletConfig:
    """Pod scope with the managers of pod-level resources."""
    return agent_config(topology_manager_scope="pod", feature_gates={"PodLevelResourceManagers": True}, **overrides)


def settle_nothing(uid: str) -> None:
    """Pods' cgroups stay as they are."""


def write_nothing(record: ContainerRecord, wanted: Pinning) -> bool:
    """No cgroup can be written."""
    return False


def never_ended(identity: Identity) -> bool:
    """Every listed sandbox lives."""
    return False


class World:
    """One node: `fake` runtime, `source` of pods, and the agent, which `kill` and `start` take away and bring back."""

    def __init__(self, folder: Path, config: KubeletConfig | None = None, **options: Any) -> None:
        self.folder = folder
        self.config = config or agent_config()
        self.machine = from_synthetic(options.pop("machine", MACHINE))
        self.observe = options.pop("observe", False)
        self.policy = options.pop("policy", NO_POLICY)
        self.profile = options.pop("profile", "podslice")
        self.boot: Boot | None = None
        self.move_strangers = options.pop("move_strangers", True)
        self.tree: CgroupTree | None = options.pop("tree", None)
        self.real_devices = options.pop("real_devices", False)
        self.wait = options.pop("wait", 0.5)
        self.annotation = options.pop("annotation", True)
        self.api_server = options.pop("api_server", False)
        self.ended: Callable[[Identity], bool] = never_ended
        self.fake = FakeRuntime(**{"request_timeout": 30.0, **options})
        self.source = FakeSource()
        if self.api_server:
            self.source.name = "apiServer"
        self.notes = Notes()
        self.connections: list[Connection] = []
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """A new agent process on the same state directory."""
        files = ContainerFiles(self.folder / "containers")
        sources = Sources([self.source], wait=self.wait, annotation=self.annotation)
        setup = NodeSetup(
            self.folder / "state", self.machine, self.config, self.policy, self.profile, boot=self.boot,
            real_devices=self.real_devices, move_strangers=self.move_strangers,
        )  # fmt: skip
        records = NodeRecords()
        self.node = wire_node(
            setup, self.notes, records=records, facts=GatheredFacts(sources, files, self.tree),
            claims=self.claim_setup(records),
        )  # fmt: skip
        self.owner = self.node.owner
        self.plugin = wire_plugin(
            self.node, sources, files, self.notes, settle=settle_nothing, write=write_nothing, ended=self.ended,
            observe=self.observe,
        )  # fmt: skip
        await self._connect()

    def claim_setup(self, records: NodeRecords) -> ClaimSetup | None:
        """Return the agent's parts for claims, None on a node without them."""
        return None

    async def _connect(self) -> None:
        launch = Launch("podslice", "90", self.fake.connect, False)
        self._task = asyncio.ensure_future(
            run_plugin(
                self.plugin,
                launch,
                connected=self.connections.append,
                disconnected=lambda reason: None,
                back_off=BackOff(0.01, 0.02),
            )
        )
        await asyncio.wait_for(self.fake.attached.wait(), clock.PATIENCE)

    async def kill(self) -> None:
        """The process is gone between two calls."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self.fake.drop_plugin()
        await asyncio.sleep(0.01)

    async def restart(self) -> None:
        await self.kill()
        await self.start()

    async def run(
        self, pod: Any, *, cgroup: str = "", annotations: dict[str, str] | None = None
    ) -> dict[str, FakeContainer]:
        """A pod of the source with all its containers; containers by name."""
        uid = pod.metadata.uid
        self.source.add(pod)
        sandbox = await self.fake.run_pod(uid, cgroup_parent=cgroup, annotations=annotations)
        names = [c.name for c in (*pod.spec.init_containers, *pod.spec.containers)]
        return {name: await self.fake.create_container(sandbox, name) for name in names}

    async def end(self, uid: str) -> None:
        await self.fake.stop_pod(f"sandbox-{uid}")
        await self.fake.remove_pod(f"sandbox-{uid}")

    def check(self) -> None:
        """No container of the runtime may run on CPUs somebody else owns, and no CPU may be lost."""
        state = self.owner.store.node.kubelet.manager.cpu.state  # type: ignore[union-attr]
        owned: dict[int, str] = {}
        for uid, containers in state.assignments.items():
            for cpus in containers.values():
                assert cpus & state.default == 0
                for cpu in range(cpus.bit_length()):
                    if cpus >> cpu & 1:
                        assert owned.setdefault(cpu, uid) == uid
        everything = state.default
        for pod_cpus in (*state.pod_cpus.values(), *(c for m in state.assignments.values() for c in m.values())):
            everything |= pod_cpus
        assert everything == self.owner.placing.all_cpus
        for record in self.owner.containers.values():
            container = self.fake.containers[record.id]
            wanted = self.owner.placing.wanted(record)
            if wanted.cpus:
                assert parse_bits(container.cpus) == wanted.cpus, (record.id, container.cpus)


def in_world(
    folder: Path,
    test: Callable[[World], Awaitable[None]],
    config: KubeletConfig | None = None,
    *,
    real_time: bool = False,
    **options: Any,
) -> World:
    """Run a test in a new world; in `real_time` where it has threads or sockets of the kernel."""
    world = World(folder, config, **options)

    async def main() -> None:
        await world.start()
        try:
            await test(world)
        finally:
            await world.kill()

    run = asyncio.run if real_time else clock.run
    run(main())
    return world
