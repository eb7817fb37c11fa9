"""Time of the agent to prepare a claim beside 100 pods: record, state, CDI file and answer, all on the disk.

`python -m benchmarks.prepare` prints percentiles of calls over gRPC, claims prepared and given back in turn (goal: p99
of 10 ms): of time, and of processor time, which other work on the machine does not lengthen.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
from tests.agent.helpers import Notes

from podslice import KubeletConfig, Pod, PodslicePolicy, pod_from_dict
from podslice.agent.admitting import NodeSetup
from podslice.agent.contract import Listed
from podslice.agent.dra.driver import Driver
from podslice.agent.dra.reservations import Reservations
from podslice.agent.node_wiring import ClaimSetup, wire_node
from podslice.agent.records import NodeRecords
from podslice.agent.settings import DRASettings
from podslice.api.pod.spec import from_dict
from podslice.config.policy import ClaimRules
from podslice.dra.objects import ResourceClaim
from podslice.machine.readers.synthetic import from_synthetic
from podslice.service.identity import Identity
from podslice.service.proto import dra_pb2 as api

GOAL = 0.010
PODS, NODE = 100, "bench"
MACHINE = "pack:2 numa:4(memory=32GB) core:24 pu:2"
CLAIMS = "192-383"
"""The upper half of 384 CPUs."""


class Claims:
    """An API server that answers at once."""

    async def read_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        number = int(name)
        result = {
            "request": "cpus",
            "driver": "podslice.io",
            "pool": f"{NODE}/podslice.io",
            "device": f"podslice-numa-{4 + number % 4}",
            "shareID": f"share-{number}",
            "consumedCapacity": {"podslice.io/cpu": "4"},
        }
        status = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": "p", "uid": f"pod-{number}"}],
        }
        metadata = {"name": name, "namespace": namespace, "uid": f"uid-{number}"}
        return from_dict({"metadata": metadata, "status": status}, ResourceClaim)


def pod(number: int) -> Pod:
    """Return a pod; every second one owns a CPU."""
    amounts = {"cpu": "1" if number % 2 else "100m", "memory": "64Mi"}
    container = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    metadata = {"name": f"p{number}", "namespace": "default", "uid": f"p{number}"}
    return pod_from_dict({"metadata": metadata, "spec": {"containers": [container]}})


async def time_call(channel: Any, method: str, request: Any, kind: Any) -> tuple[float, float]:
    call = channel.unary_unary(
        f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/{method}",
        request_serializer=lambda message: message.SerializeToString(),
        response_deserializer=kind.FromString,
    )
    begin, used = time.perf_counter(), time.process_time()
    answer = await call(request)
    seconds = time.perf_counter() - begin, time.process_time() - used
    problems = [one.error for one in answer.claims.values() if one.error]
    assert not problems, problems
    return seconds


async def measure(folder: Path, calls: int) -> dict[str, list[tuple[float, float]]]:
    policy = PodslicePolicy(claims=ClaimRules(CLAIMS))
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")
    settings = DRASettings(
        plugins=str(folder / "plugins"), plugins_registry=str(folder / "registry"), cdi=str(folder / "cdi")
    )
    records, checkpoint = NodeRecords(), Path(settings.kubelet_state)
    reservations = Reservations(records.claims, Claims(), checkpoint, trouble=lambda what, why: None)
    setup = NodeSetup(folder / "state", from_synthetic(MACHINE), config, policy)
    claims = ClaimSetup(folder / "cdi", reservations.find_pods)
    owner = wire_node(setup, Notes(), records=records, claims=claims).owner
    assert owner.claims is not None
    quiet = lambda result, seconds: None  # noqa: E731
    driver = Driver(settings, owner, owner.claims, reservations, Claims(), NODE, prepared=quiet)  # type: ignore[arg-type]
    owner.synchronize(Listed([], []))
    for number in range(PODS):
        owner.run_pod(f"s{number}", Identity(f"p{number}", "default", f"p{number}", {}), pod(number))
    await driver.start()
    times: dict[str, list[tuple[float, float]]] = {"prepare": [], "unprepare": []}
    async with grpc.aio.insecure_channel(f"unix://{folder / 'plugins/podslice.io/dra.sock'}") as channel:
        for number in range(calls):
            one = api.Claim(namespace="default", name=str(number), uid=f"uid-{number}")
            prepare = api.NodePrepareResourcesRequest(claims=[one])
            kind = api.NodePrepareResourcesResponse
            times["prepare"].append(await time_call(channel, "NodePrepareResources", prepare, kind))
            if number >= 20:
                old = api.Claim(namespace="default", name=str(number - 20), uid=f"uid-{number - 20}")
                request = api.NodeUnprepareResourcesRequest(claims=[old])
                back = api.NodeUnprepareResourcesResponse
                times["unprepare"].append(await time_call(channel, "NodeUnprepareResources", request, back))
    await driver.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=1000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        times = asyncio.run(measure(Path(name), arguments.calls))
    for what, seconds in times.items():
        for kind, values in zip(("time", "processor time"), zip(*seconds, strict=True), strict=True):
            ordered = sorted(values)
            shown = {share: ordered[min(len(ordered) - 1, len(ordered) * share // 100)] for share in (50, 90, 99)}
            print(f"{what:10} {kind:15}", "  ".join(f"p{share} {one * 1e3:.2f} ms" for share, one in shown.items()))
    print(f"goal: p99 of prepare at most {GOAL * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
