"""Computations of the API server and the kubelet before any placement, over recorded pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.measure import Case
from podslice.api.pod.demand import compute_qos, pod_requests
from podslice.api.pod.spec import Pod
from podslice.api.server.create import prepare_for_create
from podslice.api.server.defaults import default_pod
from podslice.api.server.validate import validate_create
from podslice.replay.api.case import ApiCase
from podslice.replay.run import read_cases
from podslice.values.gates import FeatureGates, later_gates
from podslice.values.quirks import PROFILES

SAMPLE = Path(__file__).parents[1] / "tests" / "vectors" / "api.jsonl.gz"
PODS_PER_SECOND = 20_000


def read_recorded_pods(path: Path = SAMPLE) -> list[Pod]:
    """Decode the pods of a recording, without defaults."""
    cases = (
        ApiCase(record["case"], PROFILES["kubelet-1.36"]) for record in read_cases(path) if "pod" in record["case"]
    )
    return [case.raw for case in cases if not case.decode_error]


def pipeline(pods: Sequence[Pod], profile_name: str) -> Callable[[], Any]:
    """Defaults, validation, QoS class and effective requests of all pods."""
    gates = FeatureGates.from_overrides({}, fixes=later_gates(PROFILES[profile_name]))

    def run() -> None:
        for raw in pods:
            pod = prepare_for_create(default_pod(raw, gates), gates)
            validate_create(pod, gates)
            compute_qos(pod, gates)
            pod_requests(pod)

    return run


def cases() -> Iterator[Case]:
    """All recorded pods in one sample."""
    pods = read_recorded_pods()
    target = len(pods) / PODS_PER_SECOND * 1e6
    for name in PROFILES:
        run = pipeline(pods, name)
        yield Case("API server", f"{len(pods)} pods, {name}", partial(_prepare, run), target_us=target)


def _prepare(run: Callable[[], Any]) -> Callable[[], Callable[[], Any]]:
    return lambda: run
