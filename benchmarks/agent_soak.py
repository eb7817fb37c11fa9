"""Soak and latency of the node agent, over its sockets, against a fake runtime.

    python -m benchmarks.agent_soak [lifecycles]     # 20 000 by default: a day of a busy node
    python -m benchmarks.agent_soak latency          # CreateContainer with 100 pods running
    python -m benchmarks.agent_soak memory           # resident memory with 250 pods

Pods of random size come, restart their containers and go; the agent is killed and the runtime restarted now and then.
Afterwards no CPU may be lost, no container may run on another's CPUs, and memory must not have grown.
"""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.agent.fake_source import FakeSource
from tests.agent.helpers import never_ended, settle_nothing, write_nothing
from tests.service.fake_runtime import FakeRuntime

from podslice.agent.admitting import NodeSetup
from podslice.agent.contract import MoveReport, PodFailure, ResizeReport
from podslice.agent.kubelet.sources import Sources
from podslice.agent.node_wiring import wire_node, wire_plugin
from podslice.agent.podfacts import GatheredFacts
from podslice.agent.records import ReportedRefusal
from podslice.agent.runtime.container_file import ContainerFiles
from podslice.agent.runtime.nri import Launch, run_plugin
from podslice.agent.runtime.ttrpc import RPCError
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.kubelet import KubeletConfig
from podslice.host.state import statefile
from podslice.machine.delta import MachineConsequence
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Decision, Node
from podslice.service.identity import Identity
from podslice.service.pacing import BackOff
from podslice.values.cpuset import parse_bits

CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    reserved_system_cpus="0",
    topology_manager_policy="best-effort",
    topology_manager_scope="pod",
    feature_gates={"PodLevelResourceManagers": True},
    eviction_hard={},
)


class Silent:
    """A reporter that counts only."""

    def __init__(self) -> None:
        self.fill_and_refuse = 0
        self.troubles: list[str] = []

    def decided(self, seconds: float) -> None: ...
    def admitted(self, identity: Identity, decision: Decision, node: Node) -> None: ...
    def refused(self, identity: Identity, refusal: ReportedRefusal) -> None:
        self.fill_and_refuse += 1

    def failed(self, identity: Identity, failure: PodFailure) -> None:
        self.troubles.append(f"{identity}: {failure}")

    def resized(self, identity: Identity, container: str, text: str) -> None: ...
    def resize_answered(self, identity: Identity, report: ResizeReport) -> None: ...
    def moved(self, identity: Identity, report: MoveReport) -> None: ...
    def machine_changed(self, identity: Identity | None, consequence: MachineConsequence) -> None: ...
    def stranger(self, identity: Identity, container: str, why: str) -> None: ...
    def trouble(self, what: str, message: str) -> None:
        self.troubles.append(f"{what}: {message}")

    def hook(self, name: str, seconds: float) -> None: ...


class Soak:
    """One node with its agent and a fake runtime with long timeouts: delays of a busy machine are not failures."""

    def __init__(self, folder: Path, machine: str = "pack:2 numa:2(memory=64GB) core:16 pu:2") -> None:
        self.folder = folder
        self.machine = from_synthetic(machine)
        self.fake = FakeRuntime(request_timeout=30.0)
        self.source = FakeSource()
        self.reporter = Silent()
        self.random = random.Random(1)
        self.live: list[str] = []
        self.done = 0
        self.number = 0
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        sources = Sources([self.source])
        setup = NodeSetup(self.folder / "state", self.machine, CONFIG)
        node = wire_node(setup, self.reporter, facts=GatheredFacts(sources))
        self.owner = node.owner
        plugin = wire_plugin(
            node, sources, ContainerFiles(self.folder / "files"), self.reporter,
            settle=settle_nothing, write=write_nothing, ended=never_ended,
        )  # fmt: skip
        self._task = asyncio.ensure_future(
            run_plugin(
                plugin,
                Launch("podslice", "90", self.fake.connect, False),
                connected=lambda connection: None,
                disconnected=lambda reason: None,
                back_off=BackOff(0.01, 0.02),
            )
        )
        await asyncio.wait_for(self.fake.attached.wait(), 30)

    async def kill(self) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.fake.drop_plugin()
        await asyncio.sleep(0.005)

    def pod(self, uid: str, containers: list[str | None], budget: str | None = None) -> Pod:
        def resources(cpu: str | None) -> dict[str, Any]:
            amounts = {"cpu": cpu, "memory": "64Mi"}
            return {"requests": amounts, "limits": amounts} if cpu else {}

        spec: dict[str, Any] = {
            "containers": [{"name": f"c{i}", "resources": resources(cpu)} for i, cpu in enumerate(containers)]
        }
        if budget:
            spec["resources"] = {name: {"cpu": budget, "memory": "1Gi"} for name in ("requests", "limits")}
        return pod_from_dict({"metadata": {"name": uid, "namespace": "soak", "uid": uid}, "spec": spec})

    def random_pod(self, uid: str) -> Pod:
        kind = self.random.randrange(4)
        if kind == 0:
            return self.pod(uid, ["250m"])
        if kind == 1:
            return self.pod(uid, [str(self.random.randint(1, 6))])
        if kind == 2:
            return self.pod(uid, ["1", None], budget=str(self.random.randint(2, 6)))
        return self.pod(uid, [str(self.random.randint(1, 3)), "500m"])

    async def run(self, pod: Pod) -> bool:
        """Bring a pod up; False if the node refused it."""
        uid = pod.metadata.uid
        self.source.pods[uid] = pod
        try:
            sandbox = await self.fake.run_pod(uid)
        except RPCError:
            del self.source.pods[uid]
            return False
        for container in pod.spec.containers:
            await self.fake.create_container(sandbox, container.name)
        self.live.append(uid)
        return True

    async def end(self, uid: str) -> None:
        self.live.remove(uid)
        await self.fake.stop_pod(f"sandbox-{uid}")
        await self.fake.remove_pod(f"sandbox-{uid}")
        del self.source.pods[uid]
        self.done += 1

    async def restart_container(self) -> None:
        """Crash a container, which the kubelet then creates again."""
        container = self.random.choice(list(self.fake.containers.values()))
        identity, sandbox, name = container.message.id, container.message.pod_sandbox_id, container.message.name
        await self.fake.stop_container(identity)
        await self.fake.remove_container(identity)
        await self.fake.create_container(sandbox, name)

    def check(self) -> None:
        """Assert that no CPU is lost, no container runs on another's CPUs, and each runs where the ledger places it."""
        node = self.owner.node
        assert node is not None
        state = node.kubelet.manager.cpu.state
        everything = state.default | self.owner.placing.exclusive()
        assert everything == node.topology.all_cpus, "lost CPUs"
        assert not state.default & self.owner.placing.exclusive(), "CPUs given away twice"
        for record in self.owner.containers.values():
            wanted, found = self.owner.placing.wanted(record), self.fake.containers[record.id]
            assert parse_bits(found.cpus) == wanted.cpus, f"drift in {record.id}"
        assert not self.fake.unpinned
        assert not self.reporter.troubles

    def settled_memory(self) -> float:
        """Return resident memory in MB without the records of the measurement itself."""
        self.fake.latencies.clear()
        self.fake.spent.clear()
        self.fake.registered.clear()
        gc.collect()
        return round(resident(), 1)

    async def lifecycles(self, count: int, *, disturb: int = 500) -> None:
        while self.done < count:
            if self.live and (len(self.live) > 40 or self.random.random() < 0.5):
                await self.end(self.random.choice(self.live))
            else:
                self.number += 1
                await self.run(self.random_pod(f"p{self.number}"))
            if self.live and self.random.random() < 0.1:
                await self.restart_container()
            if self.random.randrange(disturb) == 0:
                before = {r.id: r.applied.cpus for r in self.owner.containers.values() if r.applied.isolation != "host"}
                await self.kill()
                if self.random.random() < 0.5:
                    await self.start()
                else:
                    self.fake.stop()
                    self.fake.start()
                    await self.start()
                after = {r.id: self.owner.placing.wanted(r).cpus for r in self.owner.containers.values()}
                assert all(after[key] == cpus for key, cpus in before.items()), "a restart moved exclusive CPUs"
                self.check()
        for uid in list(self.live):
            await self.end(uid)
        self.check()
        assert self.owner.placing.exclusive() == 0
        assert not self.owner.pods
        assert not self.owner.containers
        assert not self.owner.sandboxes


def resident() -> float:
    """Return the resident memory of this process in MB."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def skip_disk_sync() -> None:
    """Skip fsync. Decisions still go to files, in memory if possible: container files are on a tmpfs on a node too, and
    waiting for the disk at RunPodSandbox is not measured here."""
    statefile.os.fsync = lambda descriptor: None  # type: ignore[attr-defined]


async def soak(folder: Path, count: int, *, disturb: int = 500) -> dict[str, float]:
    """Run lifecycles, with a tenth as warm-up for the memory figure. Raises `AssertionError` on any loss."""
    world = Soak(folder)
    files = len(os.listdir("/proc/self/fd"))
    await world.start()
    await world.lifecycles(max(count // 10, 20), disturb=disturb)
    lifecycles = 0
    sizes = [world.settled_memory()]
    started = time.perf_counter()
    for _ in range(2):
        world.done = 0
        await world.lifecycles(count // 2, disturb=disturb)
        lifecycles += world.done
        sizes.append(world.settled_memory())
    seconds = time.perf_counter() - started
    await world.kill()
    left = list((folder / "state" / "pods").glob("*")) + list((folder / "files").glob("*"))
    assert not left, f"files left behind: {left[:3]}"
    return {
        "lifecycles": lifecycles,
        "refused": world.reporter.fill_and_refuse,
        "seconds": round(seconds, 1),
        "rss_warm_mb": sizes[0],
        "rss_half_mb": sizes[1],
        "rss_end_mb": sizes[2],
        "files_open": len(os.listdir("/proc/self/fd")) - files,
        "tasks": len(asyncio.all_tasks()) - 1,
    }


async def latency(folder: Path, pods: int = 100, samples: int = 600) -> dict[str, float]:
    """Milliseconds of CreateContainer with `pods` pods running, every tenth creation moving all shared containers."""
    world = Soak(folder)
    await world.start()
    for i in range(pods):
        await world.run(world.pod(f"p{i}", ["1" if i % 4 == 0 else "100m"]))
    await asyncio.sleep(0.2)
    world.settled_memory()
    for i in range(samples):
        await world.run(world.pod(f"x{i}", ["1" if i % 10 == 0 else "100m"]))
        await world.end(f"x{i}")
        await asyncio.sleep(0.02)
    times = sorted(1000 * seconds for seconds in world.fake.latencies)
    spent = sorted(1000 * seconds for seconds in world.fake.spent)
    world.check()
    await world.kill()
    return {
        "samples": len(times),
        "p50_ms": round(times[len(times) // 2], 3),
        "p99_ms": round(times[int(len(times) * 0.99)], 3),
        "max_ms": round(times[-1], 3),
        "cpu_p50_ms": round(spent[len(spent) // 2], 3),
        "cpu_p99_ms": round(spent[int(len(spent) * 0.99)], 3),
    }


async def memory(folder: Path) -> dict[str, float]:
    """Resident memory with 250 pods, runtime and source included, everything the agent imports loaded."""
    importlib.import_module("podslice.agent.process.daemon")
    importlib.import_module("lightkube.config.client_adapter")
    world = Soak(folder)
    await world.start()
    for i in range(250):
        await world.run(world.pod(f"p{i}", ["1" if i % 5 == 0 else "100m"]))
    gc.collect()
    pods = len(world.owner.pods)
    await world.kill()
    return {"pods": pods, "rss_mb": round(resident(), 1)}


def main() -> None:
    what = sys.argv[1] if len(sys.argv) > 1 else "20000"
    skip_disk_sync()
    memory_disk = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory_disk if memory_disk.is_dir() else None) as name:
        folder = Path(name)
        if what == "latency":
            result = asyncio.run(latency(folder))
        elif what == "memory":
            result = asyncio.run(memory(folder))
        else:
            result = asyncio.run(soak(folder, int(what)))
    print(" ".join(f"{key}={value}" for key, value in result.items()))


if __name__ == "__main__":
    main()
