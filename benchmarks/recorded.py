"""The benchmark cases that were timed on Kubernetes v1.36.2: same machines, same pods, same picks.

`recorded/cases.jsonl.gz` holds the cases in the format of the recorded decisions, `recorded/go-1.36.2.json` what the Go
code took and decided. Each case runs in profile `kubelet-1.36` and must decide the same before it is timed.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.measure import Case
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy_options import parse_cpu_policy_options
from podslice.machine.devices import inventory_from_data
from podslice.machine.model import CPUTopology, Machine
from podslice.node.cpu.picking.picker import Picker
from podslice.node.kubelet import Kubelet
from podslice.values.cpuset import format_bits, parse_bits
from podslice.values.gates import FeatureGates
from podslice.values.quirks import KUBELET_1_36

FOLDER = Path(__file__).parent / "recorded"
Json = dict[str, Any]


def cases() -> Iterator[Case]:
    """Yield all recorded cases, with the Go figures where the Go code terminated."""
    go = {entry["bench"]: entry for entry in json.loads((FOLDER / "go-1.36.2.json").read_text())["results"]}
    with gzip.open(FOLDER / "cases.jsonl.gz", "rt") as lines:
        for line in lines:
            entry = json.loads(line)
            name = entry["name"]
            known = go.get(name, {})
            is_pick = "type" in entry["case"]
            yield Case(
                group="recorded picks" if is_pick else "recorded admissions",
                name=name,
                setup=partial(_pick if is_pick else _admission, entry, known.get("result")),
                go_us=known.get("median_us"),
            )


def admit_recorded(entry: Json, expected: str | None = None) -> tuple[Kubelet, Pod]:
    """Return a kubelet after the setup of a case, with the case's pod admitted. Raises `AssertionError` for another
    decision than the `expected` CPUs of the first container."""
    case = entry["case"]
    # Of some searches the kubelet itself does not come to the end, so nothing is recorded: they are timed without.
    quirks = KUBELET_1_36 if expected else msgspec.structs.replace(KUBELET_1_36, searches_take_any_time=False)
    kubelet = Kubelet(
        msgspec.convert(case["machine"], Machine),
        msgspec.convert({"evictionHard": {}, **case["kubelet"]}, KubeletConfig),
        quirks,
        devices=inventory_from_data(case.get("devices")),
    )
    kubelet.start()
    for operation in entry.get("setup") or ():
        assert kubelet.admit(pod_from_dict(operation["pod"])) is None, "a pod of the setup was refused"
    pod = pod_from_dict(entry["pod"])
    assert kubelet.admit(pod) is None, "the pod was refused"
    first = format_bits(kubelet.manager.cpu.affinity(pod.metadata.uid, pod.spec.containers[0].name))
    assert expected in (None, first), f"{entry['name']}: {first} instead of {expected}"
    return kubelet, pod


def pick(entry: Json, expected: str | None = None) -> Callable[[], int]:
    """Return the pick of a case as a function. Raises `AssertionError` for other CPUs than the `expected` ones."""
    case = entry["case"]
    topology = CPUTopology(msgspec.convert(case["machine"], Machine))
    gates = FeatureGates.from_overrides(case.get("featureGates") or {})
    options = parse_cpu_policy_options(case.get("options") or {}, gates)
    available = parse_bits(case["available"])
    picker = Picker(topology, options, KUBELET_1_36)

    def take() -> int:
        return picker.take(available, case["n"]).cpus

    assert expected in (None, format_bits(take())), f"{entry['name']}: {format_bits(take())} instead of {expected}"
    return take


def _admission(entry: Json, expected: str | None) -> Callable[[], Callable[[], Any]]:
    kubelet, pod = admit_recorded(entry, expected)

    def prepare() -> Callable[[], Any]:
        kubelet.remove_pod(pod.metadata.uid)
        kubelet.collect()
        return lambda: kubelet.admit(pod)

    return prepare


def _pick(entry: Json, expected: str | None) -> Callable[[], Callable[[], Any]]:
    taken = pick(entry, expected)
    return lambda: taken
