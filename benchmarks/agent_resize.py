"""Latency of the agent's answer to a resize that moves other containers: `python -m benchmarks.agent_resize`.

A container grows by one CPU, which 100 shared containers leave first. The fake runtime speaks NRI over a socket pair,
both sides in this process. The cgroups are real ones where this machine lets us make some (cgroup v1, cpuset), else
plain files on a tmpfs; the state is on a tmpfs and, for comparison, in the folder for temporary files.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.agent.fake_source import FakeSource
from tests.agent.helpers import never_ended, settle_nothing
from tests.service.fake_runtime import FakeRuntime

from benchmarks.agent_soak import Silent, Soak
from podslice.agent.admitting import NodeSetup
from podslice.agent.cgroups.reconcile import Reconciler
from podslice.agent.kubelet.sources import Sources
from podslice.agent.node_wiring import wire_node, wire_plugin, wire_resizes
from podslice.agent.podfacts import GatheredFacts
from podslice.agent.resize.cgroup_writes import TreeCgroups
from podslice.agent.runtime.container_file import ContainerFiles
from podslice.agent.runtime.nri import Launch, run_plugin
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import ExclusiveResize, PodslicePolicy
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.machine.readers.synthetic import from_synthetic
from podslice.service.proto import nri_pb2 as nri
from podslice.values.cpuset import format_bits, parse_bits

_CPUSETS = Path("/sys/fs/cgroup/cpuset")
_MEMORY = Path("/dev/shm")
_CONFIG = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", eviction_hard={})


class Cpusets(CgroupTree):
    """cgroup v1 under the names of v2. The node's machine is larger than this one: CPUs that this one lacks are left
    out, and CPU 0, which no container owns, stays in every set."""

    online = parse_bits((_CPUSETS / "cpuset.cpus").read_text().strip()) if _CPUSETS.is_dir() else 1

    def make(self, path: str) -> None:
        """Make a cgroup and its parents."""
        folder = self.root
        for name in path.split("/"):
            folder = folder / name
            folder.mkdir(exist_ok=True)
            (folder / "cpuset.mems").write_text((_CPUSETS / "cpuset.mems").read_text())
            (folder / "cpuset.cpus").write_text(format_bits(self.online))

    def _read(self, path: str, name: str) -> str | None:
        return super()._read(path, "cpuset.effective_cpus" if name == "cpuset.cpus.effective" else name)

    def _write(self, path: str, name: str, text: str) -> None:
        if name == "cpuset.cpus":
            super()._write(path, name, format_bits(parse_bits(text) & self.online | 1))


class PlainFiles(CgroupTree):
    """Cgroups as plain folders; every write takes effect."""

    def make(self, path: str) -> None:
        folder = self.root / path
        folder.mkdir(parents=True)
        for name in ("cpuset.cpus", "cpuset.mems", "cpu.weight"):
            (folder / name).touch()

    def _read(self, path: str, name: str) -> str | None:
        return super()._read(path, "cpuset.cpus" if name == "cpuset.cpus.effective" else name)


@contextmanager
def some_tree() -> Iterator[Cpusets | PlainFiles]:
    """Yield real cgroups, removed afterwards, or plain files."""
    root = _CPUSETS / f"podslice-benchmark-{os.getpid()}"
    try:
        root.mkdir()
    except OSError:
        with tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
            yield PlainFiles(folder)
        return
    try:
        tree = Cpusets(root)
        for name in ("cpuset.mems", "cpuset.cpus"):
            (root / name).write_text((_CPUSETS / name).read_text())
        yield tree
    finally:
        for folder, _, _ in os.walk(root, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)


async def answers(state: Path, tree: Cpusets | PlainFiles, *, shared: int, rounds: int) -> list[tuple[float, float]]:
    """Return seconds and processor seconds until the answer, for each growth."""
    fake, source = FakeRuntime(request_timeout=30.0), FakeSource()
    sources = Sources([source])
    policy = PodslicePolicy(resize=ExclusiveResize(exclusive=True))
    machine = from_synthetic("numa:1(memory=64GB) core:64 pu:1")
    node = wire_node(
        NodeSetup(state, machine, _CONFIG, policy), Silent(), facts=GatheredFacts(sources), resizes=sources
    )
    owner = node.owner
    reconciler = Reconciler(owner, tree)
    resizing = wire_resizes(node, TreeCgroups(tree, reconciler.write), migration=None, threads=None)
    plugin = wire_plugin(
        node, sources, ContainerFiles(None), Silent(),
        settle=settle_nothing, write=reconciler.write, ended=never_ended, resizing=resizing,
    )  # fmt: skip
    launch = Launch("podslice", "90", fake.connect, False)
    task = asyncio.ensure_future(
        run_plugin(plugin, launch, connected=lambda found: None, disconnected=lambda why: None)
    )
    await asyncio.wait_for(fake.attached.wait(), 30)
    pods = Soak(state)
    await _run(fake, source, pods, tree, "owner", "1")
    for number in range(shared):
        await _run(fake, source, pods, tree, f"s{number}", None)
    taken = []
    for _ in range(rounds):
        taken.append(await _resize(fake, source, pods, 2))
        await _resize(fake, source, pods, 1)
        while resizing.pending:
            await asyncio.sleep(0.001)
        for _step in owner.updates.write(reconciler.write):
            pass
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return taken


async def _run(
    fake: FakeRuntime, source: FakeSource, pods: Soak, tree: Cpusets | PlainFiles, uid: str, cpu: str | None
) -> None:
    source.add(pods.pod(uid, [cpu]))
    sandbox = await fake.run_pod(uid)
    tree.make(f"kubepods/pod{uid}/{sandbox}-c0")
    milli = int(cpu or 0) * 1000
    await fake.create_container(sandbox, "c0", shares=max(milli * 1024 // 1000, 2), quota=milli * 100)


async def _resize(fake: FakeRuntime, source: FakeSource, pods: Soak, cpus: int) -> tuple[float, float]:
    source.add(pods.pod("owner", [str(cpus)]))
    resources = nri.LinuxResources()
    resources.cpu.shares.value = cpus * 1024
    resources.cpu.quota.value, resources.cpu.period.value = cpus * 100_000, 100_000
    before, spent = time.perf_counter(), time.thread_time()
    await fake.update_container("sandbox-owner-c0", resources)
    return time.perf_counter() - before, time.thread_time() - spent


def measure(state: Path, *, shared: int, rounds: int) -> str:
    """Return one line of figures."""
    with some_tree() as tree:
        taken = asyncio.run(answers(state, tree, shared=shared, rounds=rounds))
    waits, spent = sorted(one for one, _ in taken), sorted(one for _, one in taken)
    last = min(len(waits) - 1, len(waits) * 99 // 100)
    kind = "real cgroups (v1)" if isinstance(tree, Cpusets) else "files on a tmpfs"
    return (
        f"{shared} shared containers, {kind}: p50 {statistics.median(waits) * 1000:.1f} ms, p99"
        f" {waits[last] * 1000:.1f} ms; processor time p50 {statistics.median(spent) * 1000:.1f} ms, p99"
        f" {spent[last] * 1000:.1f} ms"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shared", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=50)
    options = parser.parse_args()
    places = {"state on a tmpfs": _MEMORY if _MEMORY.is_dir() else None, "state on the disk": None}
    for where, place in places.items():
        folder = Path(tempfile.mkdtemp(dir=place))
        try:
            print(f"{where}: {measure(folder, shared=options.shared, rounds=options.rounds)}", flush=True)
        finally:
            shutil.rmtree(folder)


if __name__ == "__main__":
    main()
