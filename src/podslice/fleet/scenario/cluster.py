"""The nodes of a scenario and their classes, and a started kubelet for each class and configuration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from podslice.config.carriers.layer import API_VERSION, KIND
from podslice.config.kubelet import KubeletConfig
from podslice.config.kubelet_file import config_from_dict, load_config_data
from podslice.config.policy import NO_POLICY, PodslicePolicy, check_policy
from podslice.config.policy_file import load_policy
from podslice.config.validation import validate
from podslice.fleet.engine.nodes import Fleet, FleetClass, FleetNode
from podslice.fleet.importing.kube import ClusterFolders, ClusterNode, cluster_nodes
from podslice.fleet.importing.kube_start import KnownStart
from podslice.fleet.scenario.inputs import Inputs
from podslice.fleet.scenario.machines import Assumptions, NodeClass, class_from_entry, class_from_shape, spread_devices
from podslice.fleet.scenario.scenario import AUTO, FleetScenario, NodesEntry, Replicas
from podslice.fleet.scenario.strict import quantity, release_name
from podslice.fleet.traces.columns import Column
from podslice.fleet.traces.pods import columns_of
from podslice.fleet.traces.trace import TraceNode, open_trace
from podslice.machine.devices import DeviceInventory
from podslice.node.node import Node
from podslice.scheduling.predicates import amounts
from podslice.values.errors import InputError, PodsliceError, StartError
from podslice.values.quirks import PROFILE_RELEASES, PROFILES, profile_of_release

_MOST_NODES = 1_000_000


class NamedNodes(NamedTuple):
    """The nodes of a scenario before any kubelet starts: classes, and the nodes with the position of their class.
    `starts`: by node number, what is known of the pods that run at the beginning."""

    classes: tuple[NodeClass, ...]
    nodes: tuple[FleetNode, ...]
    starts: Mapping[int, KnownStart]


class ClassStartError(PodsliceError):
    """Raised when a kubelet of a configuration does not start on a class of nodes."""

    def __init__(self, kubelet: str, name: str, problem: str, remedy: str = "") -> None:
        advice = f" ({remedy})" if remedy else ""
        super().__init__(f"kubelet {kubelet} does not start on nodes of class {name}: {problem}{advice}")
        self.kubelet = kubelet


def read_cluster(scenario: FleetScenario, inputs: Inputs) -> NamedNodes:
    """Return the nodes of a scenario in their order. Raises `InputError`."""
    numbers: dict[str, int] = {}
    classes: list[NodeClass] = []
    nodes: list[FleetNode] = []
    starts: dict[int, KnownStart] = {}
    written = {name: class_from_entry(name, entry, inputs) for name, entry in scenario.machines.items()}
    by_release = any(entry.kubernetes == AUTO for entry in scenario.kubelets.values())
    names: set[str] = set()
    for index, entry in enumerate(scenario.nodes):
        where = f"nodes[{index}]"
        for node, found, start in _nodes_of_entry(entry, written, inputs, where, by_release=by_release):
            if node.name in names:
                raise InputError(f"two nodes are called {node.name}", path=where, remedy="give other names")
            names.add(node.name)
            if found.name not in numbers:
                numbers[found.name] = len(classes)
                classes.append(found)
            if start.files or start.zones:
                starts[len(nodes)] = start
            nodes.append(node._replace(kind=numbers[found.name]))
        if len(nodes) > _MOST_NODES:
            raise InputError(f"makes more than {_MOST_NODES} nodes", path=where)
    return NamedNodes(tuple(classes), tuple(nodes), starts)


def _nodes_of_entry(
    entry: NodesEntry, written: Mapping[str, NodeClass], inputs: Inputs, where: str, *, by_release: bool
) -> Iterator[ClusterNode]:
    """Yield the nodes of one entry with their classes; the numbers of the classes are not set yet."""
    if entry.is_live:
        path = inputs.path(str(entry.kubernetes), where=f"{where}.kubernetes")
        yield from cluster_nodes(path, _folders(entry, inputs, where), by_release=by_release)
        return
    release = release_name(entry.kubernetes, f"{where}.kubernetes")
    for name, found in _nodes_with_class(entry, written, inputs, where, release):
        kind = found._replace(name=f"{found.name}-{release}", kubernetes=release) if release else found
        yield ClusterNode(FleetNode(name, 0, entry.labels, entry.taints), kind)


def _folders(entry: NodesEntry, inputs: Inputs, where: str) -> ClusterFolders:
    def folder(name: str, field: str) -> Path | None:
        return inputs.directory(name, where=f"{where}.{field}") if name else None

    return ClusterFolders(
        inputs.path(entry.topology, where=f"{where}.topology") if entry.topology else None,
        folder(entry.configurations, "configurations"),
        folder(entry.machines, "machines"),
        folder(entry.states, "states"),
    )


def _nodes_with_class(
    entry: NodesEntry, written: Mapping[str, NodeClass], inputs: Inputs, where: str, release: str
) -> Iterator[tuple[str, NodeClass]]:
    """Yield names and classes of the nodes of a class, or of a trace; `release` becomes part of names."""
    if entry.count:
        called = f"{entry.of}-{release}" if release else entry.of
        for number in range(entry.count):
            try:
                name = entry.name.format(i=number, **{"class": called})
            except (KeyError, IndexError, ValueError):
                problem, remedy = f"{entry.name!r} is not a pattern", 'write "{class}-{i:04}"'
                raise InputError(problem, path=f"{where}.name", remedy=remedy) from None
            yield name, written[entry.of]
        return
    rows = read_nodes(inputs.path(entry.csv, where=f"{where}.csv"), columns_of(entry.columns, where))
    if entry.of != "by-shape":
        yield from ((node.name, written[entry.of]) for node in rows)
        return
    table = Assumptions(inputs.path(entry.classes, where=f"{where}.classes"))
    memory = None if entry.memory is None else quantity(entry.memory, f"{where}.memory").value()
    known: dict[tuple[object, ...], NodeClass] = {}
    for node in rows:
        key = (node.cpu, node.memory, node.gpus, node.model)
        if key not in known:
            known[key] = class_from_shape(node, table, memory)
        yield node.name, known[key]


@cache
def read_nodes(path: Path, columns: tuple[tuple[str, Column], ...]) -> tuple[TraceNode, ...]:
    """Return all nodes of a trace, read once in a process. Raises `InputError`."""
    with open_trace(path, dict(columns), rows="nodes", in_file=True) as opened:
        return tuple(opened.nodes())


class GPUOffer(NamedTuple):
    """The resource name under which GPUs are offered to pods, and as how many devices each."""

    resource: str
    replicas: int


def gpu_offer(scenario: FleetScenario) -> GPUOffer:
    """Return the offer of GPUs, about which all readings of a scenario must agree. Raises `InputError`."""
    readings = [entry.reading for entry in scenario.workload]
    readings += [one.reading for one in scenario.transforms.values() if one.reading is not None]
    found = {
        GPUOffer(one.gpu_resource, one.gpu_share.replicas if isinstance(one.gpu_share, Replicas) else 1)
        for one in readings
    }
    if len(found) > 1:
        raise InputError("readings offer GPUs in different ways", path="workload", remedy="use one gpuShare")
    return found.pop() if found else GPUOffer("nvidia.com/gpu", 1)


def kubelet_config(
    scenario: FleetScenario, inputs: Inputs, name: str, found: NodeClass, extra: Mapping[str, Any] | None = None
) -> KubeletConfig:
    """Return the configuration of a kubelet of the scenario on nodes of a class. Raises `InputError`."""
    entry = scenario.kubelets[name]
    where = f"kubelets.{name}"
    data: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND, **found.fields}
    if entry.file:
        # Later sources win: fields of the live cluster, then the file, then `set`, then `byClass`.
        data |= load_config_data(str(inputs.path(entry.file, where=f"{where}.file")))
    data |= entry.fields
    for pattern, fields in entry.by_class.items():
        if fnmatchcase(found.name, pattern):
            data |= fields
    try:
        loaded = config_from_dict({**data, **(extra or {})})
    except InputError as error:
        raise error.at(path=where) from None
    for ignored in loaded.unknown_fields:
        raise InputError(f"unknown field {ignored.name}", path=f"{where}.set",
                         remedy=f"did you mean {ignored.close}?" if ignored.close else "")  # fmt: skip
    return loaded.config


def kubelet_policy(scenario: FleetScenario, inputs: Inputs, name: str, found: NodeClass) -> PodslicePolicy:
    """Return the PodslicePolicy of a kubelet of the scenario on nodes of a class. Raises `InputError`."""
    entry = scenario.kubelets[name]
    where, file = f"kubelets.{name}.policy", entry.policy
    for pattern, other in entry.policy_by_class.items():
        if fnmatchcase(found.name, pattern):
            where, file = f"kubelets.{name}.policyByClass[{pattern}]", other
    policy = load_policy(str(inputs.path(file, where=where))) if file else NO_POLICY
    try:
        check_policy(policy, PROFILES[scenario.profile])
    except InputError as error:
        raise error.at(path=where) from None
    return policy


def kubelet_profile(scenario: FleetScenario, name: str, found: NodeClass) -> str:
    """Return the profile of a kubelet of the scenario on nodes of a class: that of the scenario, for the release that
    the configuration names, or else the nodes. Raises `InputError`."""
    where, named = f"kubelets.{name}.kubernetes", scenario.kubelets[name].kubernetes
    release = (found.reported or found.kubernetes) if named == AUTO else str(named) or found.kubernetes
    try:
        return profile_of_release(scenario.profile, release) if release else scenario.profile
    except InputError as error:
        raise error.at(path=where) from None


def start_fleet(
    cluster: NamedNodes,
    configs: Mapping[int, KubeletConfig],
    policies: Sequence[PodslicePolicy],
    *,
    kubelet: str,
    alternative: str,
    gpus: GPUOffer,
    profiles: Sequence[str],
) -> Fleet:
    """Start a kubelet for each class; `configs`, `policies` and `profiles` by class. Raises `ClassStartError`."""
    common = {"kubelet": kubelet, "alternative": alternative}
    classes = tuple(
        _start_class(found, configs[number], policies[number], gpus=gpus, profile=profiles[number], **common)
        for number, found in enumerate(cluster.classes)
    )
    return Fleet(classes, cluster.nodes)


def _start_class(
    found: NodeClass,
    config: KubeletConfig,
    policy: PodslicePolicy,
    *,
    kubelet: str,
    alternative: str,
    gpus: GPUOffer,
    profile: str,
) -> FleetClass:
    """Start a kubelet on the machine of a class. Raises `ClassStartError`."""
    machine = found.machine(alternative)
    devices = found.devices
    if devices is None:
        devices = spread_devices(machine, gpus.resource, found.gpus, gpus.replicas)
    problems = validate(config, PROFILE_RELEASES[profile])
    if problems:
        raise ClassStartError(kubelet, found.name, str(problems[0]))
    try:
        node = Node(machine, config, profile=profile, devices=devices or DeviceInventory(), policy=policy)
    except StartError as error:
        raise ClassStartError(kubelet, found.name, error.message, error.remedy) from None
    own = amounts(node.kubelet.node_resources().allocatable)
    return FleetClass(
        name=found.name,
        rules=node.rules,
        state=node.state,
        # Nodes of a live cluster have Node objects, with whose amounts their scheduler counts.
        allocatable=found.allocatable or own,
        gpus=found.gpus,
        gpu_model=found.gpu_model,
        source=found.source,
        kubelet_allocatable=own,
    )
