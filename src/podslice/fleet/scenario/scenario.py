"""The fields of a scenario file, with their defaults.

Files are decoded strictly; every field is described here or in docs/fleet.md. Paths are relative to the file. A cell of
the comparison is a set of machines, a kubelet configuration, a scheduler, a transform and a seed.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from podslice.fleet.engine.options import FilterName, PolicyName, Retry, TieRule
from podslice.fleet.engine.shapes import Owner
from podslice.fleet.scenario.strict import Number
from podslice.scheduling.selectors import LabelSelector
from podslice.scheduling.taints import Taint

AS_WRITTEN = "as-written"
AUTO = "auto"
"""The release that the Node objects of a live cluster state."""


class _Strict(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """Base of all parts of a scenario: camelCase names, unknown fields are errors."""


class MachineClass(_Strict, frozen=True, kw_only=True):
    """A kind of machine.

    - `machine`: a ready-made one, any form of `podslice topology --from`, or a row of a table of assumptions as in
      `assumptions/openb.yaml#96`.
    - `memory`: of the whole machine, instead of the machine's own.
    - `gpus`: of one `gpu_model`, spread evenly over the NUMA nodes.
    - `alternatives`: other machines by name, for the matrix.
    - `kubernetes`: the release of its kubelets, such as "1.34"; empty: that of the profile.
    """

    machine: str = msgspec.field(name="from")
    memory: Number | None = None
    gpus: int = 0
    gpu_model: str = ""
    alternatives: dict[str, str] = {}
    kubernetes: str | float = ""


class ScenarioTaint(Taint, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A taint of nodes."""

    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] = "NoSchedule"


class NodesEntry(_Strict, frozen=True, kw_only=True):
    """Nodes of a trace, of one class, or of a live cluster.

    - `csv`: a trace, whose machines are looked up by shape in the table of assumptions `classes`; `memory`: of each
      node where the trace has none.
    - `count`: so many nodes of class `of`. `kubernetes` beside `csv` or `count`: the release of their kubelets, instead
      of the class's; nodes of class `big` with 1.34 are of class `big-1.34`.
    - `kubernetes` alone: a file of a live cluster, with `topology` from NodeResourceTopology objects, and folders with
      the `configurations` of kubelets, captured `machines` and `states`, a file or a folder for each node.
    """

    csv: str = ""
    columns: dict[str, str] = {}
    of: str = msgspec.field(default="by-shape", name="class")
    classes: str = "assumptions/openb.yaml"
    memory: Number | None = None
    count: int = 0
    name: str = "{class}-{i:04}"
    labels: dict[str, str] = {}
    taints: tuple[ScenarioTaint, ...] = ()
    kubernetes: str | float = ""
    topology: str = ""
    configurations: str = ""
    machines: str = ""
    states: str = ""

    @property
    def is_live(self) -> bool:
        """Whether the nodes are those of a live cluster, which `kubernetes` names."""
        return bool(self.kubernetes) and not self.csv and not self.count


class Replicas(_Strict, frozen=True, kw_only=True):
    """Each GPU is offered as this many devices, as time slicing does."""

    replicas: int


class CeilAbove(_Strict, frozen=True, kw_only=True, rename="kebab"):
    """Requests above this amount are rounded up to whole CPUs, smaller ones stay as they are."""

    ceil_above: Number


class ReadingTime(_Strict, frozen=True, kw_only=True):
    """`scale`: factor for all times. `start`, `until`: only pods that arrive between them are used, counted from the
    trace's beginning."""

    scale: float = 1.0
    start: Number = 0
    until: Number | None = None


class Sidecars(_Strict, frozen=True, kw_only=True):
    """Sidecars for every pod, written in one of four ways."""

    count: int = 1
    cpu: Number = "100m"
    memory: Number = "128Mi"
    written: Literal["burstable", "fractional", "padded", "pod-level"] = msgspec.field(name="as")


class ContainerShare(_Strict, frozen=True, kw_only=True):
    """A container of the pods made from rows, and its part of the row's requests: an amount, or a share (25%).

    Of the containers that run together one has no CPU and one no memory: it gets the rest. `gpus`: it gets the GPUs;
    where no container has this, the first one without amounts. `run`: an init container's part is counted beside the
    others'.
    """

    name: str
    cpu: Number | None = None
    memory: Number | None = None
    gpus: bool = False
    run: Literal["app", "sidecar", "init"] = "app"


class Reading(_Strict, frozen=True, kw_only=True):
    """The rules by which rows of a trace become pods."""

    qos: Literal["guaranteed", "burstable", "by-column"] = "guaranteed"
    qos_map: dict[str, Literal["guaranteed", "burstable", "best-effort"]] = {}
    cpus: Literal["as-is", "ceil", "round"] | CeilAbove = "as-is"
    gpu_share: Literal["ignore", "whole"] | Replicas = "ignore"
    gpu_resource: str = "nvidia.com/gpu"
    containers: Literal["one"] | tuple[ContainerShare, ...] = "one"
    owner: Owner = "deployment"
    time: ReadingTime = ReadingTime()


class Inflate(_Strict, frozen=True, kw_only=True):
    """More pods, or fewer: drawn from the list until they request `to` times all of a resource, or the whole list
    `copies` times, or `rate` times as many arrivals in the same time."""

    to: float | None = None
    of: Literal["gpu", "cpu"] = "gpu"
    keep: bool = True
    copies: int | None = None
    rate: float | None = None


class Lifetime(_Strict, frozen=True, kw_only=True):
    """Run times that replace those of the trace."""

    lifetime: Literal["exponential", "constant"]
    mean: Number


class SyntheticShapes(_Strict, frozen=True, kw_only=True):
    """Shapes with their frequencies, from a trace."""

    origin: str = msgspec.field(name="from")
    columns: dict[str, str] = {}


class SyntheticShape(_Strict, frozen=True, kw_only=True):
    """A shape and its frequency, relative to the others."""

    cpu: Number
    memory: Number = "1Gi"
    gpus: int = 0
    weight: int = 1


class Arrivals(_Strict, frozen=True, kw_only=True):
    """Arrivals at random moments (`poisson`, a rate such as "40/s"), or at even intervals (`every`)."""

    poisson: str | None = None
    every: Number | None = None


class SyntheticLifetime(_Strict, frozen=True, kw_only=True):
    """Run times in seconds: `lognormal` of mu and sigma, `exponential` of a mean, or `constant`."""

    lognormal: tuple[float, float] | None = None
    exponential: Number | None = None
    constant: Number | None = None


class Synthetic(_Strict, frozen=True, kw_only=True):
    """Pods that are drawn from distributions."""

    shapes: SyntheticShapes | tuple[SyntheticShape, ...]
    arrivals: Arrivals
    lifetime: SyntheticLifetime | None = None
    pods: int


class WorkloadEntry(_Strict, frozen=True, kw_only=True):
    """Pods of a trace, synthetic ones, those of manifests, or those of a live cluster, which start on the nodes where
    they are. `since`: the moment at which an imported history begins."""

    trace: str = ""
    cluster: str = ""
    since: str = ""
    columns: dict[str, str] = {}
    synthetic: Synthetic | None = None
    manifests: str = ""
    reading: Reading = Reading()
    inflate: Inflate | None = None
    order: Literal["trace", "shuffle", "size"] = "trace"
    departures: Literal["none", "trace"] | Lifetime = "none"


class KubeletEntry(_Strict, frozen=True, kw_only=True):
    """A kubelet configuration: a `file`, fields on top of it, and fields for nodes of some classes on top of those.

    `policy` is the file of a PodslicePolicy, `policy_by_class` that of another one for some classes; the last matching
    pattern wins. `recommend`: every policy, scope and set of options that `whatif --recommend` tries, instead of one
    configuration. `kubernetes`: the release of all kubelets with this configuration, instead of the nodes'; `auto`: the
    one that the Node objects of a live cluster state.
    """

    file: str = ""
    fields: dict[str, Any] = msgspec.field(default={}, name="set")
    by_class: dict[str, dict[str, Any]] = {}
    policy: str = ""
    policy_by_class: dict[str, str] = {}
    recommend: bool = False
    kubernetes: str | float = ""


class SchedulerEntry(_Strict, frozen=True, kw_only=True):
    """A scheduler. `fit`: how kube-scheduler scores sums, with `curve` for RequestedToCapacityRatio; `policy`: another
    policy instead. `filter`: what it knows of nodes beside sums."""

    profile: Literal["default"] = "default"
    fit: Literal["LeastAllocated", "MostAllocated", "RequestedToCapacityRatio"] = "LeastAllocated"
    policy: PolicyName | None = None
    balanced: bool = True
    curve: tuple[tuple[int, int], ...] = ((0, 0), (100, 10))
    filter: FilterName = "kube"
    nrt_delay: Number = "10s"
    percentage: int = 0
    ties: TieRule = "random"


class TransformEntry(_Strict, frozen=True, kw_only=True):
    """The same workload, written differently."""

    sidecars: Sidecars | None = None
    scale: dict[Literal["cpu", "memory"], float] = {}
    reading: Reading | None = None


class AfterRefusal(_Strict, frozen=True, kw_only=True):
    """After a refusal `retry` by the pod's owner, on the next best node at once, or never. `owner`: of all pods,
    instead of their own."""

    owner: Owner | None = None
    retry: Retry = "owner"
    tries: int = 200
    delay: Number = "1s"
    limit: int = 1000


class BudgetEntry(_Strict, frozen=True, kw_only=True):
    """A PodDisruptionBudget with either `min_available` or `max_unavailable`, pods or percent ("50%"). Or a `file`, or
    a pattern of files, with such objects as kubectl prints them or manifests have them."""

    file: str = ""
    selector: LabelSelector | None = None
    namespace: str = "default"
    min_available: int | str | None = None
    max_unavailable: int | str | None = None


class ScenarioEvent(_Strict, frozen=True, kw_only=True):
    """An event of the nodes whose names match a pattern (`gpu96-*`). `kubelet`: the configuration of restarted ones."""

    at: Number
    drain: str | None = None
    fail: str | None = None
    add: str | None = None
    restart: str | None = None
    kubelet: str = ""


class Sample(_Strict, frozen=True, kw_only=True):
    """When samples are taken: by time, or by percent of the demand that has arrived."""

    every: Number | None = None
    per_percent_arrived: float | None = None


def _default_kubelets() -> dict[str, KubeletEntry]:
    return {"defaults": KubeletEntry()}


def _default_schedulers() -> dict[str, SchedulerEntry]:
    return {"kube": SchedulerEntry()}


def _default_transforms() -> dict[str, TransformEntry]:
    return {"identity": TransformEntry()}


class FleetScenario(_Strict, frozen=True, kw_only=True):
    """A scenario as written, with all defaults."""

    api_version: str
    name: str
    seeds: tuple[int, ...] = (1,)
    machines: dict[str, MachineClass] = {}
    alternatives: tuple[str, ...] = (AS_WRITTEN,)
    nodes: tuple[NodesEntry, ...]
    workload: tuple[WorkloadEntry, ...]
    kubelets: dict[str, KubeletEntry] = msgspec.field(default_factory=_default_kubelets)
    schedulers: dict[str, SchedulerEntry] = msgspec.field(default_factory=_default_schedulers)
    transforms: dict[str, TransformEntry] = msgspec.field(default_factory=_default_transforms)
    refusals: AfterRefusal = AfterRefusal()
    preemption: bool | Literal["off", "on"] = False
    budgets: tuple[BudgetEntry, ...] = ()
    node_events: tuple[ScenarioEvent, ...] = ()
    sample: Sample = Sample()
    warmup: Number = 0
    profile: str = "podslice"
    metrics: tuple[Literal["allocation", "stranded", "fragmentation", "refusals", "alignment"], ...] = (
        "allocation",
        "stranded",
        "fragmentation",
        "refusals",
        "alignment",
    )
