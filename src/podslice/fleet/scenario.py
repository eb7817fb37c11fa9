"""The scenario file: which nodes, which pods, and which configurations are compared.

Decoded strictly; nothing in it means something that is not written here or in docs/fleet.md. Paths are relative to the
file. One cell of the comparison is a set of machines, a kubelet configuration, a scheduler, a transform and a seed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from podslice.core.errors import InputError, raise_all
from podslice.core.fleet.options import FilterName, PolicyName, Retry, TieRule
from podslice.core.fleet.shapes import Effect, Owner
from podslice.fleet.strict import Number, convert
from podslice.k8s.files import read_text
from podslice.k8s.yaml import load_documents

API_VERSION = "podslice.dev/fleet/v1"
AS_WRITTEN = "as-written"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.+-]{0,62}\Z")
_MOST_SEEDS = 1000


class _Strict(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True, kw_only=True):
    """What a scenario is made of."""


class MachineClass(_Strict, frozen=True, kw_only=True):
    """A kind of machine. `machine`: a ready-made one, any form of `podslice topology --from`, or a row of a table of
    assumptions as in `assumptions/openb.yaml#96`. `memory`: of the whole machine, instead of the machine's own. `gpus`
    of one `gpu_model`, spread evenly over the NUMA nodes. `alternatives`: other machines by name, for the matrix."""

    machine: str = msgspec.field(name="from")
    memory: Number | None = None
    gpus: int = 0
    gpu_model: str = ""
    alternatives: dict[str, str] = {}


class ScenarioTaint(_Strict, frozen=True, kw_only=True):
    """A taint of nodes."""

    key: str
    value: str = ""
    effect: Effect = "NoSchedule"


class NodesEntry(_Strict, frozen=True, kw_only=True):
    """Nodes: of a trace (`csv`, whose machines the table of assumptions `classes` tells by shape), of one class
    (`count` of them), or of a live cluster (`kubernetes`, with `topology` from NodeResourceTopology objects, and
    folders with the `configurations` of kubelets, captured `machines` and `states`, a file or a folder for each node).
    `memory`: of each node where a trace does not tell it."""

    csv: str = ""
    columns: dict[str, str] = {}
    of: str = msgspec.field(default="by-shape", name="class")
    classes: str = "assumptions/openb.yaml"
    memory: Number | None = None
    count: int = 0
    name: str = "{class}-{i:04}"
    labels: dict[str, str] = {}
    taints: tuple[ScenarioTaint, ...] = ()
    kubernetes: str = ""
    topology: str = ""
    configurations: str = ""
    machines: str = ""
    states: str = ""


class Replicas(_Strict, frozen=True, kw_only=True):
    """A GPU is offered as so many devices, as time slicing does."""

    replicas: int


class CeilAbove(_Strict, frozen=True, kw_only=True, rename="kebab"):
    """Requests above this are rounded up to whole CPUs, smaller ones stay as they are."""

    ceil_above: Number


class ReadingTime(_Strict, frozen=True, kw_only=True):
    """`scale`: times are multiplied by it. `start`, `until`: only pods that arrive between, counted from the trace's
    beginning."""

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
    """A container of the pods that rows become, and its part of what a row asks for: an amount, or a share (25%). Of
    the containers that run together one says no CPU and one no memory, and gets the rest. `gpus`: it has the GPUs; the
    first container without amounts, where none says so. `run`: an init container's part counts beside the others'."""

    name: str
    cpu: Number | None = None
    memory: Number | None = None
    gpus: bool = False
    run: Literal["app", "sidecar", "init"] = "app"


class Reading(_Strict, frozen=True, kw_only=True):
    """How rows of a trace become pods."""

    qos: Literal["guaranteed", "burstable", "by-column"] = "guaranteed"
    qos_map: dict[str, Literal["guaranteed", "burstable", "best-effort"]] = {}
    cpus: Literal["as-is", "ceil", "round"] | CeilAbove = "as-is"
    gpu_share: Literal["ignore", "whole"] | Replicas = "ignore"
    gpu_resource: str = "nvidia.com/gpu"
    containers: Literal["one"] | tuple[ContainerShare, ...] = "one"
    owner: Owner = "deployment"
    time: ReadingTime = ReadingTime()


class Inflate(_Strict, frozen=True, kw_only=True):
    """More pods, or fewer: drawn from the list until it asks for `to` times all of a resource, the whole list `copies`
    times, or `rate` times as many arrivals in the same time."""

    to: float | None = None
    of: Literal["gpu", "cpu"] = "gpu"
    keep: bool = True
    copies: int | None = None
    rate: float | None = None


class Lifetime(_Strict, frozen=True, kw_only=True):
    """How long pods run, instead of what the trace says."""

    lifetime: Literal["exponential", "constant"]
    mean: Number


class SyntheticShapes(_Strict, frozen=True, kw_only=True):
    """Shapes with their frequencies, from a trace."""

    origin: str = msgspec.field(name="from")
    columns: dict[str, str] = {}


class SyntheticShape(_Strict, frozen=True, kw_only=True):
    """One shape and how often it comes, relative to the others."""

    cpu: Number
    memory: Number = "1Gi"
    gpus: int = 0
    weight: int = 1


class Arrivals(_Strict, frozen=True, kw_only=True):
    """Pods a second: at random moments, or evenly."""

    poisson: str | None = None
    every: Number | None = None


class SyntheticLifetime(_Strict, frozen=True, kw_only=True):
    """Seconds: `lognormal` of mu and sigma, `exponential` of a mean, or `constant`."""

    lognormal: tuple[float, float] | None = None
    exponential: Number | None = None
    constant: Number | None = None


class Synthetic(_Strict, frozen=True, kw_only=True):
    """Pods that are made up."""

    shapes: SyntheticShapes | tuple[SyntheticShape, ...]
    arrivals: Arrivals
    lifetime: SyntheticLifetime | None = None
    pods: int


class WorkloadEntry(_Strict, frozen=True, kw_only=True):
    """Pods: of a trace, made up, of manifests, or those of a live cluster, which go first to where they are. `since`:
    of an imported history, the moment at which it begins."""

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
    `recommend`: not one, but every policy, scope and set of options that `whatif --recommend` tries."""

    file: str = ""
    fields: dict[str, Any] = msgspec.field(default={}, name="set")
    by_class: dict[str, dict[str, Any]] = {}
    recommend: bool = False


class SchedulerEntry(_Strict, frozen=True, kw_only=True):
    """A scheduler. `fit`: how kube-scheduler scores sums; `policy`: another policy instead. `filter`: what it knows of
    nodes beside sums. `curve`: of RequestedToCapacityRatio."""

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
    """What happens after a refusal: `retry` by the pod's owner, on the next best node at once, or never. `owner` of all
    pods instead of their own."""

    owner: Owner | None = None
    retry: Retry = "owner"
    tries: int = 200
    delay: Number = "1s"
    limit: int = 1000


class ScenarioEvent(_Strict, frozen=True, kw_only=True):
    """Something happens to the nodes whose name a pattern (`gpu96-*`) fits. `kubelet`: what a restarted one is
    configured with."""

    at: Number
    drain: str | None = None
    fail: str | None = None
    add: str | None = None
    restart: str | None = None
    kubelet: str = ""


class Sample(_Strict, frozen=True, kw_only=True):
    """How often figures are taken: by time, or whenever so many percent have arrived."""

    every: Number | None = None
    per_percent_arrived: float | None = None


class FleetScenario(_Strict, frozen=True, kw_only=True):
    """A scenario as it is written, with all defaults."""

    api_version: str
    name: str
    seeds: tuple[int, ...] = (1,)
    machines: dict[str, MachineClass] = {}
    alternatives: tuple[str, ...] = (AS_WRITTEN,)
    nodes: tuple[NodesEntry, ...]
    workload: tuple[WorkloadEntry, ...]
    kubelets: dict[str, KubeletEntry] = msgspec.field(default_factory=lambda: {"defaults": KubeletEntry()})
    schedulers: dict[str, SchedulerEntry] = msgspec.field(default_factory=lambda: {"kube": SchedulerEntry()})
    transforms: dict[str, TransformEntry] = msgspec.field(default_factory=lambda: {"identity": TransformEntry()})
    refusals: AfterRefusal = AfterRefusal()
    preemption: bool | Literal["off", "on"] = False
    node_events: tuple[ScenarioEvent, ...] = ()
    sample: Sample = Sample()
    warmup: Number = 0
    profile: Literal["podslice", "kubelet-1.36"] = "podslice"
    metrics: tuple[Literal["allocation", "stranded", "fragmentation", "refusals", "alignment"], ...] = (
        "allocation",
        "stranded",
        "fragmentation",
        "refusals",
        "alignment",
    )


def load_scenario(path: Path) -> FleetScenario:
    """The scenario of a file. Raises `InputError` with everything that is wrong in it."""
    source = str(path)
    documents = load_documents(read_text(source), source)
    if len(documents) != 1 or not isinstance(documents[0], dict):
        raise InputError("holds no scenario", source=source, remedy="podslice fleet init writes one that runs")
    return scenario_from_data(documents[0], source)


def scenario_from_data(data: dict[str, Any], source: str) -> FleetScenario:
    """The scenario of plain data. Raises `InputError`."""
    version = data.get("apiVersion")
    if version != API_VERSION:
        raise InputError(f"{version!r} is not supported", source=source, path="apiVersion",
                         remedy=f"apiVersion: {API_VERSION}")  # fmt: skip
    scenario = convert(data, FleetScenario, source=source)
    raise_all(problem.at(source=source) for problem in _problems(scenario))
    return scenario


def _problems(scenario: FleetScenario) -> list[InputError]:
    return [*_name_problems(scenario), *_entry_problems(scenario), *_value_problems(scenario)]


def _name_problems(scenario: FleetScenario) -> list[InputError]:
    named: dict[str, Mapping[str, object]] = {
        "machines": scenario.machines,
        "kubelets": scenario.kubelets,
        "schedulers": scenario.schedulers,
        "transforms": scenario.transforms,
    }
    remedy = "letters, digits and _.+- only, at most 63"
    found = [
        InputError(f"{name!r} is no name", path=field, remedy=remedy)
        for field, names in named.items()
        for name in names
        if not _NAME.match(name)
    ]
    empty = [
        InputError("is empty", path=field, remedy="name at least one, or leave it out")
        for field, names in named.items()
        if not names and field != "machines"
    ]
    known = {AS_WRITTEN, *(name for one in scenario.machines.values() for name in one.alternatives)}
    by_shape = any(entry.of == "by-shape" for entry in scenario.nodes)
    unknown = [
        InputError(f"no class has an alternative {name!r}", path="alternatives", remedy=f"one of {', '.join(known)}")
        for name in scenario.alternatives
        if name not in known and not by_shape
    ]
    return [*found, *empty, *unknown]


def _entry_problems(scenario: FleetScenario) -> list[InputError]:
    found = []
    for index, node in enumerate(scenario.nodes):
        path = f"nodes[{index}]"
        if sum(map(bool, (node.csv, node.count, node.kubernetes))) != 1:
            found.append(InputError("needs exactly one of csv, count and kubernetes", path=path))
        elif not node.kubernetes and node.of != "by-shape" and node.of not in scenario.machines:
            remedy = f"one of {', '.join(('by-shape', *scenario.machines))}"
            found.append(InputError(f"{node.of!r} is no class of machines", path=f"{path}.class", remedy=remedy))
        elif node.count and node.of == "by-shape":
            found.append(InputError("names no class", path=f"{path}.class", remedy="one of machines"))
    for index, work in enumerate(scenario.workload):
        if sum(map(bool, (work.trace, work.cluster, work.synthetic, work.manifests))) != 1:
            path = f"workload[{index}]"
            found.append(InputError("needs exactly one of trace, cluster, synthetic and manifests", path=path))
    lists: dict[str, tuple[object, ...]] = {
        "nodes": scenario.nodes,
        "workload": scenario.workload,
        "seeds": scenario.seeds,
    }
    found += [InputError("is empty", path=field) for field, entries in lists.items() if not entries]
    return found


def _value_problems(scenario: FleetScenario) -> list[InputError]:
    found = []
    if len(set(scenario.seeds)) != len(scenario.seeds) or len(scenario.seeds) > _MOST_SEEDS:
        found.append(InputError("names a seed twice, or too many", path="seeds", remedy=f"at most {_MOST_SEEDS}"))
    for index, work in enumerate(scenario.workload):
        path = f"workload[{index}]"
        if work.inflate is not None:
            ways = sum(value is not None for value in (work.inflate.to, work.inflate.copies, work.inflate.rate))
            if ways != 1:
                found.append(InputError("needs exactly one of to, copies and rate", path=f"{path}.inflate"))
        found += container_problems(work.reading.containers, f"{path}.reading.containers")
        if work.reading.time.scale <= 0:
            found.append(InputError("is not above 0", path=f"{path}.reading.time.scale"))
        if work.synthetic is not None and work.synthetic.pods < 1:
            found.append(InputError("is less than 1", path=f"{path}.synthetic.pods"))
    for index, event in enumerate(scenario.node_events):
        if sum(value is not None for value in (event.drain, event.fail, event.add, event.restart)) != 1:
            path = f"nodeEvents[{index}]"
            found.append(InputError("needs exactly one of drain, fail, add and restart", path=path))
        if event.kubelet and event.kubelet not in scenario.kubelets:
            found.append(InputError(f"no kubelet {event.kubelet!r}", path=f"nodeEvents[{index}].kubelet"))
    for name, scheduler in scenario.schedulers.items():
        if not 0 <= scheduler.percentage <= 100:
            found.append(InputError("is no percentage", path=f"schedulers.{name}.percentage"))
    return found


def container_problems(containers: Literal["one"] | tuple[ContainerShare, ...], path: str) -> list[InputError]:
    """What is wrong with a template of containers."""
    if isinstance(containers, str):
        return []
    found = []
    together = [one for one in containers if one.run != "init"]
    names = [one.name for one in containers]
    if len(set(names)) < len(names):
        found.append(InputError("two containers have the same name", path=path, remedy="give other names"))
    if not any(one.run == "app" for one in containers):
        found.append(InputError("none is an app container", path=path, remedy="run: app is the default"))
    for field in ("cpu", "memory"):
        if sum(getattr(one, field) is None for one in together) != 1:
            remedy = f"leave {field} out of the container that gets the rest"
            found.append(InputError(f"not exactly one container gets the rest of {field}", path=path, remedy=remedy))
        found += [
            InputError("is missing", path=f"{path}[{place}].{field}", remedy="an init container says its amounts")
            for place, one in enumerate(containers)
            if one.run == "init" and getattr(one, field) is None
        ]
    if sum(one.gpus for one in containers) > 1:
        found.append(InputError("two containers have the GPUs", path=path, remedy="gpus: true for one"))
    return found
