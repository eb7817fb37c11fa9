"""A real kubelet's messages about configurations with which it does not start are ours."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest
from e2e.programs import Programs

from podslice import KubeletConfig
from podslice.config.validation import ENFORCEMENTS, validate

_ERROR = re.compile(r'"command failed" err="(.*)"$', re.MULTILINE)
_OF_THIS_MACHINE = "kubelet is configured to not run on a host using cgroup v1"
SOFT, HARD = "system-reserved-compressible", "system-reserved"
CGROUPS = {"systemReservedCgroup": "/s", "kubeReservedCgroup": "/k"}
CASES: list[dict[str, Any]] = [
    {"maxPods": 0, "podsPerCore": 0, "memorySwap": {"swapBehavior": "NoSwap"}},
    {"maxPods": -1},
    {"podsPerCore": -3, "maxPods": -(1 << 31)},
    {"memorySwap": {"swapBehavior": "Unlimited"}},
    {"memoryReservationPolicy": "TieredReservation"},
    {"memoryReservationPolicy": "TieredReservation", "featureGates": {"MemoryQoS": True}},
    {"memoryReservationPolicy": "Tiered", "memoryThrottlingFactor": 1.5},
    {"topologyManagerPolicy": "x", "topologyManagerScope": "y", "reservedSystemCPUs": "a"},
    {"enforceNodeAllocatable": []},
    {"enforceNodeAllocatable": ["none"], "cgroupsPerQOS": False},
    *({"enforceNodeAllocatable": [one], **CGROUPS} for one in ENFORCEMENTS),
    *(
        {"enforceNodeAllocatable": wanted, **further}
        for wanted in (
            ["x", "none", "x"], ["none", "none"], ["none", "pods", "pods"], [HARD, "kube-reserved"], [SOFT, HARD],
            [SOFT],
        )
        for further in ({}, CGROUPS, {"cgroupsPerQOS": False})
    ),
]  # fmt: skip


def real(programs: Programs, folder: Path, settings: dict[str, Any]) -> set[str]:
    """The errors of a kubelet, but those that this machine is to blame for; empty where it would have gone on."""
    file = folder / "kubelet.json"
    kind = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"}
    # a configuration that nobody could use ends the kubelet before it does anything on this machine
    file.write_text(json.dumps({**kind, "imageGCLowThresholdPercent": 200, **settings}))
    command = [programs.hyperkube, "kubelet", "--config", file, "--root-dir", folder / "root"]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    (said,) = _ERROR.findall(ended.stderr)
    errors = re.findall(r"invalid configuration: (.*?)(?=, invalid configuration: |, kubelet is configured|\], path)",
                        said.replace('\\"', '"'))  # fmt: skip
    return {one for one in errors if "imageGC" not in one and _OF_THIS_MACHINE not in one}


@pytest.mark.slow
@pytest.mark.parametrize("settings", CASES, ids=lambda settings: json.dumps(settings))
def test_the_same_errors(programs: Programs, tmp_path: Path, settings: dict[str, Any]) -> None:
    ours = {problem.text for problem in validate(msgspec.convert(settings, KubeletConfig))}
    assert ours == real(programs, tmp_path, settings)
