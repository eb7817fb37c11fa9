"""Cost of explaining and inspecting: `python -m benchmarks.explain [MANIFESTS]`; part of `python -m benchmarks`.

CPU time for each refused pod of 400, on two machines that are full or full of holes, with all fixes; the same where no
two pods are alike; what recording adds to an admission; what a page of `inspect` costs for each pod of a manifest.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from random import Random

from benchmarks.measure import Result
from podslice import KubeletConfig, Node, Pod, load_gallery, load_pods
from podslice.advise.explain.explain import Explainer
from podslice.advise.inspect.build import inspect_pod
from podslice.advise.inspect.table import page_text
from podslice.advise.trial.trial import Trial
from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet import MemoryReservation
from podslice.machine.model import Machine
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.gates import FeatureGates, later_gates
from podslice.values.quirks import PROFILES

REFUSED = 400
_SHAPES: tuple[tuple[str, ...], ...] = (("8",), ("16",), ("4", "4"), ("3", "500m"), ("12",), ("24",), ("40",))
_SIZES = ("1Gi", "4Gi", "16Gi")
_RUNS = 40
_PAGES = 10
GROUP = "explaining"
EXPLAINED = "explain, each refused pod, average"
INSPECTED = "inspect, each pod"
EXPLAIN_LIMIT, INSPECT_LIMIT = 2.0, 2.0
"""Milliseconds of CPU time."""
MANIFESTS = "examples/pods.yaml"


def _pod(uid: str, cpus: Sequence[str], memory: str = "1Gi") -> Pod:
    containers = [
        {"name": f"c{i}", "resources": {"limits": {"cpu": cpu, "memory": memory}}} for i, cpu in enumerate(cpus)
    ]
    return pod_from_dict(
        {"metadata": {"name": uid, "namespace": "default", "uid": uid}, "spec": {"containers": containers}}
    )


def _config(policy: str, memory: str, reserved: str = "0") -> KubeletConfig:
    return KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus=reserved,
        max_pods=500,
        topology_manager_policy=policy,
        eviction_hard={},
        memory_manager_policy=memory,
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    )


def nodes() -> dict[str, tuple[Machine, KubeletConfig]]:
    """Return the machines with their configurations."""
    return {
        "2 sockets, 128 CPUs, restricted": (load_gallery("xeon-6338-2s"), _config("restricted", "None", "0,64")),
        "8 NUMA nodes, 256 CPUs, single-numa-node, memory Static": (
            from_synthetic("pack:2 numa:4(memory=64GB) core:16 pu:2(indexes=pu)"),
            _config("single-numa-node", "Static"),
        ),
    }


def fill_and_refuse(
    machine: Machine, config: KubeletConfig, *, holes: bool, alike: bool, number: int = REFUSED
) -> tuple[Node, list[Pod]]:
    """Return a node filled with small pods, a fifth of them removed again with `holes`, and pods that it refuses."""
    node, random, count = Node(machine, config), Random(1), 0
    while node.admit(_pod(f"p{count}", (str(random.choice((2, 3, 4, 6))),))).admitted:
        count += 1
    for uid in node.pods[::5] if holes else ():
        node.remove(uid)
    refused: list[Pod] = []
    while len(refused) < number:
        memory = random.choice(_SIZES) if alike else f"{random.randrange(256, 20_000)}Mi"
        pod = _pod(f"q{count}-{len(refused)}", random.choice(_SHAPES), memory)
        count += 1
        if node.admit(pod).admitted:
            node.remove(pod.metadata.uid)
        else:
            refused.append(pod)
    return node, refused


def explaining(refused: int = REFUSED) -> Iterator[Result]:
    """CPU time for each of so many refused pods, on each machine and with each kind of pods, and the average."""
    times = []
    for name, (machine, config) in nodes().items():
        for alike in (True, False):
            for holes in (False, True):
                node, pods = fill_and_refuse(machine, config, holes=holes, alike=alike, number=refused)
                start = time.process_time()
                explainer = Explainer(Trial.of(node))
                fixes = sum(len(explainer.explain(pod).fixes) for pod in pods)
                times.append((time.process_time() - start) / len(pods) * 1e3)
                kinds = f"{len(_SHAPES) * len(_SIZES)} kinds" if alike else "all different"
                what = f"{name}{', holes' if holes else ''}, {kinds}, {fixes / len(pods):.1f} fixes"
                yield Result(GROUP, what, round(times[-1], 2), unit="ms")
    yield Result(GROUP, EXPLAINED, round(sum(times) / len(times), 2), target=EXPLAIN_LIMIT, unit="ms")


def _admissions(recorded: bool) -> float:
    node = Node(from_synthetic("pack:2 numa:4(memory=64GB) core:16 pu:2(indexes=pu)"), _config("restricted", "Static"))
    for number in range(50):
        node.admit(_pod(f"p{number}", ("2", "500m")))
    pods = [_pod(f"q{number}", ("2", "1")) for number in range(20)]
    start = time.process_time()
    for pod in pods:
        if recorded:
            with Trial.on(node).recording():
                node.admit(pod)
        else:
            node.admit(pod)
    return (time.process_time() - start) / len(pods)


def recording_overhead() -> Result:
    """Measure how much longer an admission takes when it is recorded."""
    runs = [(_admissions(False), _admissions(True)) for _ in range(_RUNS)]
    off, on = (min(times) for times in zip(*runs, strict=True))
    return Result(GROUP, "a recorded admission takes longer by", round(100 * (on / off - 1), 1), unit="%")


def inspecting(path: str = MANIFESTS) -> Iterator[Result]:
    """CPU time for the page of each pod of a manifest, made and printed, without and with a node to admit it on."""
    quirks = PROFILES["podslice"]
    gates = FeatureGates.from_overrides({}, fixes=later_gates(quirks))
    loaded = load_pods(path)
    machine, config = nodes()["2 sockets, 128 CPUs, restricted"]
    for node in (None, Node(machine, config)):
        start = time.process_time()
        for _ in range(_PAGES):
            for one in loaded:
                page_text(inspect_pod(one.pod, gates, quirks, data=one.data, node=node), width=100, coloured=False)
        spent = (time.process_time() - start) / len(loaded) / _PAGES
        what = f"{INSPECTED}{', placed' if node else ''}"
        yield Result(GROUP, what, round(spent * 1e3, 2), target=INSPECT_LIMIT, unit="ms")


def results() -> Iterator[Result]:
    """Yield all results."""
    yield from explaining()
    yield recording_overhead()
    yield from inspecting()


if __name__ == "__main__":
    for result in chain(explaining(), [recording_overhead()], inspecting(*sys.argv[1:2])):
        print(f"{result.group} {result.name}: {result.median:g} {result.unit}", flush=True)
