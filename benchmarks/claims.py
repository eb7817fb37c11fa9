"""Speed of claim allocation: claims of CPUs and a GPU beside them against 1 000 nodes, one after the other.

`python -m benchmarks.claims` prints claims a second of CPU time of one core (goal: 2 000).
"""

from __future__ import annotations

import argparse
from random import Random
from time import process_time

from podslice.api.pod.spec import from_dict
from podslice.dra.allocation.nodes import ClusterDevices
from podslice.dra.allocation.pools import LabelledNode
from podslice.dra.allocation.search import RequestedClaim
from podslice.dra.cel import CELSelectors
from podslice.dra.objects import DeviceClass, ResourceClaimSpec, ResourceSlice

NUMA = "resource.kubernetes.io/numaNode"
GOAL = 2000


def slices_of(node: str, numa_nodes: int) -> list[ResourceSlice]:
    """CPUs and memory of each NUMA node, and a GPU there."""
    policy = {"default": "0", "validRange": {"min": "0"}}
    cpu, memory = {"value": "48", "requestPolicy": policy}, {"value": "192Gi", "requestPolicy": policy}
    zones = [
        {"name": f"podslice-numa-{number}", "allowMultipleAllocations": True, "attributes": {NUMA: {"int": number}},
         "capacity": {"cpu": cpu, "memory": memory}}
        for number in range(numa_nodes)
    ]  # fmt: skip
    gpus = [{"name": f"gpu-{number}", "attributes": {NUMA: {"int": number}}} for number in range(numa_nodes)]
    return [
        from_dict({"metadata": {"name": f"{driver}-{node}"}, "spec": {
            "driver": driver, "nodeName": node, "pool": {"name": f"{node}/{driver}", "resourceSliceCount": 1},
            "devices": devices,
        }}, ResourceSlice)
        for driver, devices in (("podslice.io", zones), ("gpu.example.com", gpus))
    ]  # fmt: skip


def cluster_of(nodes: int, numa_nodes: int) -> ClusterDevices:
    names = [f"node-{number:04}" for number in range(nodes)]
    classes = {
        name: from_dict({"metadata": {"name": name}, "spec": {"selectors": [
            {"cel": {"expression": f'device.driver == "{driver}"'}}]}}, DeviceClass)
        for name, driver in (("cpu", "podslice.io"), ("gpu", "gpu.example.com"))
    }  # fmt: skip
    slices = [one for name in names for one in slices_of(name, numa_nodes)]
    return ClusterDevices(slices, map(LabelledNode, names), classes, CELSelectors().matches)


def claim(draw: Random, number: int) -> RequestedClaim:
    """CPUs and memory, every fourth time near a GPU."""
    asked = {"cpu": str(draw.choice((2, 4, 6, 8, 12, 16))), "memory": f"{draw.choice((4, 8, 16))}Gi"}
    requests = [{"name": "cpus", "exactly": {"deviceClassName": "cpu", "capacity": {"requests": asked}}}]
    constraints = []
    if draw.random() < 0.25:
        requests.append({"name": "gpu", "exactly": {"deviceClassName": "gpu"}})
        constraints = [{"matchAttribute": NUMA}]
    spec = {"devices": {"requests": requests, "constraints": constraints}}
    return RequestedClaim(f"claim-{number}", from_dict(spec, ResourceClaimSpec).devices)


def main() -> None:
    parser = argparse.ArgumentParser(prog="benchmarks.claims", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--numa-nodes", type=int, default=8)
    parser.add_argument("--claims", type=int, default=20_000)
    options = parser.parse_args()
    start = process_time()
    cluster = cluster_of(options.nodes, options.numa_nodes)
    print(f"{options.nodes} nodes of {options.numa_nodes} NUMA nodes read in {process_time() - start:.2f} s")
    draw = Random(1)
    claims = [claim(draw, number) for number in range(options.claims)]
    allocated = 0
    start = process_time()
    for one in claims:
        found = cluster.find_first([one])
        if found is not None:
            cluster.take(found[0], found[1][0], one.name)
            allocated += 1
    seconds = process_time() - start
    rate = options.claims / seconds
    print(f"{options.claims} claims, {allocated} allocated: {rate:,.0f} a second, {rate / GOAL:.1f} x the goal")


if __name__ == "__main__":
    main()
