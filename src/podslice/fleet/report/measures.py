"""The figures of a cell: rates of its integers, whose numerators and denominators are kept apart until here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from podslice.fleet.scenario.codec import CellOutcome


class Measure(NamedTuple):
    """A figure of a cell: heading, unit, whether less of it is better (None: neither), and its meaning."""

    name: str
    heading: str
    unit: str
    less: bool | None
    meaning: str


MEASURES = (
    Measure("unmet", "UNMET", "%", True, "requests of pods that never ran, of all (GPUs, or CPUs without any)"),
    Measure("refused", "REFUSED", "%", True, "attempts that a kubelet refused, of all attempts"),
    Measure("firstRefused", "1ST REFUSED", "%", True, "pods whose first node refused them, of those that came to one"),
    Measure("looping", "LOOPING", "", True, "pods whose owner made them again and again for the same node, ever"),
    Measure("replacements", "REPLACED", "", True, "pods made again after a refusal, for each pod that ran"),
    Measure("failedObjects", "FAILED", "", True, "objects of refused pods that are left; 12500 are kept at most"),
    Measure("acrossNUMA", "CROSS-NUMA", "%", True, "pods with CPUs or devices of their own on several NUMA nodes"),
    Measure("distance", "DISTANCE", "", True, "mean distance between NUMA nodes of a pod with its own; 10 is the same"),
    Measure("expectedStranded", "UNUSABLE", "%", True, "free CPUs that a pod of the mix could not get, on average"),
    Measure("blindStranded", "BLIND", "%", True, "the same by sums, as a scheduler counts"),
    Measure("stranded", "STRANDED", "%", True, "CPUs left when the nodes are filled with the mix, smallest pods first"),
    Measure("holes", "HOLES", "", False, "more pods of the smallest usual shape that would get in at the end"),
    Measure("gpus", "GPUS", "%", False, "GPUs that are booked, of all"),
    Measure("cpus", "CPUS", "%", False, "CPUs that are booked, of all"),
    Measure("fragmentedGPUs", "FRAGMENTED", "%", True, "GPUs that the mix cannot use (FGD), of all"),
    Measure("ran", "RAN", "", False, "pods that ran"),
    Measure("waitP99", "WAIT P99", "s", True, "time from arrival to running that 99 % did not exceed"),
    Measure("overloadedNodes", "OVERLOADED", "", True, "nodes of whose shared CPUs pods ask more than there are"),
    Measure("emptyNodes", "EMPTY NODES", "", None, "nodes without pods at the end"),
)  # fmt: skip
BY_NAME = {measure.name: measure for measure in MEASURES}
CRITERIA = ("unmet", "refused", "acrossNUMA", "expectedStranded")
"""The figures by which configurations are ranked, the first one first."""


def compute_figures(summary: Mapping[str, int], popular: int, fragmented: int | None = None) -> dict[str, float]:
    """Return the figures of a cell that exist for its nodes and pods. `fragmented`: milli-GPUs times pods at the
    end."""
    s = summary
    timed = s["ended"] > 0
    span = s["measured_ms"]
    by_gpu = s["asked_gpu_milli"] > 0
    # GPUs where any pod asks for them, as FGD measures, else CPUs.
    kind = "gpu" if by_gpu else "cpu"
    own = s["owners_on_one_numa"] + s["owners_across_numa"]
    assignable = s["assignable_cpus"]
    tried = s["bound"] + s["looping"] + s["failed"]
    found: dict[str, float | None] = {
        "unmet": _percent(s[f"unmet_{kind}_milli"], s[f"asked_{kind}_milli"]),
        "refused": _percent(s["refused_attempts"], s["attempts"]),
        "firstRefused": _percent(s["first_refused"], max(tried, s["first_refused"])),
        "looping": float(s["looped"]),
        "replacements": s["replacements_of_bound"] / s["bound"] if s["bound"] else None,
        "failedObjects": float(s["failed_objects"]),
        "acrossNUMA": _percent(s["owners_across_numa"], own),
        "distance": s["owners_distance_x_1000"] / (1000 * own) if own else None,
        "expectedStranded": _percent(s["expected_stranded_cpus_x_pods"], assignable * popular),
        "blindStranded": _percent(s["blind_stranded_cpus_x_pods"], assignable * popular),
        "stranded": _percent(s["stranded_cpus"], assignable),
        "holes": float(s["holes"]),
        "gpus": _share_booked(s, "gpu_milli", span if timed else 0),
        "cpus": _share_booked(s, "cpu_milli", span if timed else 0),
        "fragmentedGPUs": None if fragmented is None else _percent(fragmented, s["gpu_milli_room"] * popular),
        "ran": float(s["bound"]),
        "waitP99": None if s["wait_ms_p99"] < 0 else s["wait_ms_p99"] / 1000,
        "overloadedNodes": float(s["overloaded_nodes"]),
        "emptyNodes": float(s["empty_nodes"]),
    }
    return {name: value for name, value in found.items() if value is not None}


def _percent(part: int, whole: int) -> float | None:
    return 100 * part / whole if whole else None


def _share_booked(s: Mapping[str, int], name: str, span: int) -> float | None:
    """Return the booked share in percent, at the end; over time where pods end."""
    return _percent(s[f"{name}_x_ms"], s[f"{name}_room"] * span) if span else _percent(s[name], s[f"{name}_room"])


def figures_of(outcome: CellOutcome) -> dict[str, float]:
    """Return the figures of an outcome."""
    column = outcome.result.series.get("fragmented_milli")
    fragmented = column[-1] if column else None
    return compute_figures(outcome.result.summary, outcome.result.popular, fragmented)
