"""Real kubelets with their own managers, observed by their files, beside `podslice cluster` and kube-scheduler.

    python -m tests.prediction.kubelets --pods 300 --kubelets 3      # pods of 1 to 7 CPUs that come and go; and alone

The kubelets are on made-up machines of two NUMA nodes (`prediction`), the scheduler and the service are the real ones.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from functools import partial
from importlib.metadata import version as installed_version
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from e2e.controlplane import Settings
from e2e.programs import Programs, find_programs
from e2e.scheduling import Pods, eventually, extender, pod, started
from lightkube.config.kubeconfig import KubeConfig
from prediction.kubelet import RealKubelet
from prediction.machine import Shape
from prediction.node import soon
from prediction.runtime import FakeRuntime

from podslice import load_machine
from podslice.agent.apiclient import HTTPApiServer
from podslice.agent.apiserver import ApiSource
from podslice.agent.observed import ObservedKubelet
from podslice.agent.observeddevices import ObservedDevices
from podslice.agent.reporter import JournalStream
from podslice.agent.supervise import Supervisor
from podslice.core.config.kubelet import KubeletConfig
from podslice.wire.nri import BackOff
from tests.cluster.beside import Beside, agent_token, service_beside

OURS, ALONE = "podslice", "default-scheduler"
SHAPE = Shape("two nodes", sockets=2, nodes=2, cores=4)
"""Without CPU 0, which is reserved, 7 CPUs on one NUMA node and 8 on the other."""
FREE = 15
ENOUGH = 0.8
"""Of all CPUs, from which on pods leave."""
_KUBELET = {
    "cpuManagerPolicy": "static", "reservedSystemCPUs": "0", "topologyManagerPolicy": "single-numa-node",
    "topologyManagerScope": "pod",
}  # fmt: skip
_CONFIG = KubeletConfig(
    cpu_manager_policy="static",
    reserved_system_cpus="0",
    topology_manager_policy="single-numa-node",
    topology_manager_scope="pod",
)
_PLUGINS = "--disable-admission-plugins=TaintNodesByCondition,ServiceAccount"


class Kubelets(NamedTuple):
    """A control plane with the service beside it, and the kubelets that run, by name."""

    beside: Beside
    running: dict[str, RealKubelet]
    folder: Path

    @property
    def pods(self) -> Pods:
        return Pods(self.beside.api)

    def has(self, line: str) -> bool:
        """Whether the service's metrics say so."""
        return line in self.beside.asked("/metrics")


@contextmanager
def kubelets(programs: Programs, folder: Path, names: tuple[str, ...]) -> Iterator[Kubelets]:
    """Kubelets that are ready, and two schedulers: one with the service, and one alone."""
    settings = Settings(nodes=names, api_server=(_PLUGINS,))
    with ExitStack() as stack:
        beside = stack.enter_context(service_beside(folder, settings=settings))
        running = {}
        for name in names:
            own = folder / name
            own.mkdir()
            runtime = stack.enter_context(FakeRuntime(own / "cri.sock"))
            config = beside.plane.kubeconfig(f"system:node:{name}")
            kubelet = RealKubelet(programs.hyperkube, config, name, folder=own, machine=SHAPE, runtime=runtime)
            running[name] = stack.enter_context(kubelet)
            kubelet.start(_KUBELET)
        started(beside.plane, OURS, {"extenders": [extender(f"http://127.0.0.1:{beside.port}/v1")]})
        started(beside.plane, ALONE, {})
        yield Kubelets(beside, running, folder)


@asynccontextmanager
async def observed(found: Kubelets) -> AsyncIterator[None]:
    """Each kubelet is observed, and the service told of it, as `podslice agent --observe` does."""
    config = KubeConfig.from_dict(found.beside.plane.kubeconfig("admin")).get()
    loops, api = Supervisor(lambda name, why: None), HTTPApiServer(config)
    for name, kubelet in found.running.items():
        source = ApiSource(api, name, trouble=_quietly)
        told = ObservedKubelet(
            kubelet.folder, load_machine(str(kubelet.machine)), _CONFIG, profile="podslice",
            version=installed_version("podslice"), pods=partial(list, source.pods),
            ready=partial(getattr, source, "ready"), trouble=_quietly, devices=ObservedDevices(kubelet.folder).listed,
        )  # fmt: skip
        token = found.folder / f"token-{name}"
        token.write_text(await asyncio.to_thread(agent_token, found.beside.api, name))
        stream = JournalStream(
            f"127.0.0.1:{found.beside.journals}", told.journal, node=name, token_file=token,
            ca_file=found.beside.certificates.authority, trouble=_quietly,
        )  # fmt: skip
        loops.start(f"pods of {name}", source.run)
        loops.start(f"files of {name}", told.run)
        loops.start(f"stream of {name}", partial(stream.run, BackOff(0.2, 2.0)))
    try:
        yield
    finally:
        await loops.stop()
        await api.close()


def _quietly(where: str, what: str) -> None:
    """What goes wrong shows in what the pods become."""


def playing(programs: Programs, folder: Path, names: tuple[str, ...], scene: Callable[[Kubelets], Any]) -> Any:
    """What `scene` returns, played on a thread while the kubelets are observed."""

    async def main(found: Kubelets) -> Any:
        async with observed(found):
            proven = f"podslice_cluster_nodes_proven {len(names)}.0"
            await asyncio.to_thread(eventually, lambda: found.has(proven), "a kubelet is not followed")
            return await asyncio.to_thread(scene, found)

    with kubelets(programs, folder, names) as found:
        return asyncio.run(main(found))


def state(pods: Pods, name: str) -> str:
    """Running, the reason that the node or the scheduler refused the pod for, or nothing yet."""
    found = pods.get(name)["status"]
    if found.get("phase") == "Failed":
        return str(found.get("reason"))
    return "Running" if found.get("phase") == "Running" else str(pods.unscheduled(name).get("reason", ""))


def gone(pods: Pods, name: str) -> None:
    """Delete a pod, and wait until its kubelet has ended it."""
    pods.api.ask("DELETE", f"{pods.path}/{name}")
    eventually(lambda: pods.api.ask("GET", f"{pods.path}/{name}").code == 404, f"{name} does not go")


def come_and_go(found: Kubelets, scheduler: str, count: int, seed: int) -> dict[str, int]:
    """So many pods of that scheduler, one after the other; where it is nearly full a random one leaves. How many were
    refused by a node, by the reason, and how many run or wait."""
    r, pods, counts = Random(seed), found.pods, {"Running": 0}
    live: dict[str, int] = {}
    for number in range(count):
        size, name = r.choice((1, 2, 3, 3, 4, 4, 5, 6, 7)), f"{scheduler}-{number}"
        while sum(live.values()) + size > ENOUGH * FREE * len(found.running):
            gone(pods, leaves := r.choice(list(live)))
            del live[leaves]
        pods.create(pod(name, scheduler, cpus=str(size)))
        while (became := eventually(partial(state, pods, name))) == "Unschedulable" and live:
            gone(pods, leaves := r.choice(list(live)))
            del live[leaves]
            soon(lambda name=name: state(pods, name) != "Unschedulable", 5.0)  # type: ignore[misc]
        counts[became] = counts.get(became, 0) + 1
        if became == "Running":
            live[name] = size
        else:
            gone(pods, name)
    for name in live:
        gone(pods, name)
    return counts


def main() -> int:
    """Exit 1 where a node refused a pod that the service sent."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.prediction.kubelets", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--pods", type=int, default=100)
    parser.add_argument("--kubelets", type=int, default=2)
    parser.add_argument("--seed", type=int, default=7)
    told = parser.parse_args()

    def scene(found: Kubelets) -> int:
        refused = 0
        for scheduler in (OURS, ALONE):
            counts = come_and_go(found, scheduler, told.pods, told.seed)
            print(f"{scheduler}: {counts}", flush=True)
            refused += sum(counts.values()) - counts["Running"] if scheduler == OURS else 0
        return refused

    names = tuple(f"k{number}" for number in range(told.kubelets))
    with tempfile.TemporaryDirectory(prefix="podslice-") as folder:
        return int(playing(find_programs(), Path(folder), names, scene) > 0)


if __name__ == "__main__":
    sys.exit(main())
