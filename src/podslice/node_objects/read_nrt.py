"""A machine from a NodeResourceTopology (topology.node.k8s.io): amounts of each NUMA node, distances, and the Topology
Manager's configuration. Koordinator's annotations are read where present, because they list CPUs and cores."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from podslice.config.policy_options import LIMIT_OPTION, POLICIES, SCOPES
from podslice.machine.build import MEMORY_PER_CPU, CPUFacts, NUMANodeFacts, build_nodes, check_machine
from podslice.machine.devices import DeviceInventory, inventory_from_data, is_extended_resource_name
from podslice.machine.model import Machine
from podslice.node_objects.described import (
    HUGE_PAGES,
    DescribedNode,
    Zone,
    build_machine,
    first_cpus,
    guess_threads,
    parse_page_size,
    parse_quantity,
    parse_whole,
    require_list,
    require_mapping,
)
from podslice.values.assumption import Assumption
from podslice.values.cpuset import CPUSet, CPUSetError, bits_of, format_bits
from podslice.values.decoding import abbreviate
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, plural

GROUP = "topology.node.k8s.io"
VERSIONS = (f"{GROUP}/v1alpha1", f"{GROUP}/v1alpha2")
"""Versions that are read; the last one is written."""
_NUMBER = re.compile(r"(?:^|.*\D)([0-9]{1,6})\Z")
_DEPRECATED = {
    "None": ("none", "container"),
    "BestEffort": ("best-effort", "container"),
    "Restricted": ("restricted", "container"),
    "SingleNUMANode": ("single-numa-node", "container"),
}
OPTION = "topologyManagerOption"
_OPTIONS = {"preferclosestnumanodes": "prefer-closest-numa-nodes", "maxallowablenumanodes": LIMIT_OPTION}
LIMIT = "topologyManagerMaxNUMANodes"
CPU_TOPOLOGY = "node.koordinator.sh/cpu-topology"
CPU_POLICY = "kubelet.koordinator.sh/cpu-manager-policy"


class _Amount(NamedTuple):
    """A zone's amounts of one resource."""

    capacity: int
    allocatable: int
    available: int


class _ReportedZone(NamedTuple):
    id: int
    name: str
    path: str
    amounts: dict[str, _Amount]
    costs: dict[int, int]

    def capacity(self, resource: str) -> int:
        return self.amounts[resource].capacity if resource in self.amounts else 0


def from_node_resource_topology(data: Mapping[Any, Any]) -> DescribedNode:
    """Return the node that the object describes. Raises `InputError` with the field's path."""
    if data.get("apiVersion") not in VERSIONS:
        problem = f"{abbreviate(data.get('apiVersion'))} is not supported"
        raise InputError(problem, path="apiVersion", remedy=f"one of {', '.join(VERSIONS)}")
    metadata = require_mapping(data.get("metadata"), "metadata")
    annotations = require_mapping(metadata.get("annotations"), "metadata.annotations")
    zones, assumed = _read_zones(data)
    machine, more = _machine(zones, str(metadata.get("name") or ""), annotations)
    fields, about_topology = _topology_manager_fields(data)
    cpu, about_cpus = _cpu_manager_fields(zones, machine, annotations)
    fields |= cpu | _memory_fields(zones)
    settled = tuple(Assumption("configuration", line) for line in (*about_topology, *about_cpus))
    return DescribedNode(machine, fields, _devices(zones), (*assumed, *more, *_usage_lines(zones)), settled)


def total_amounts(data: Mapping[Any, Any]) -> tuple[dict[str, Quantity], dict[str, Quantity]]:
    """Return capacity and allocatable of all zones together. Raises `InputError` with the field's path."""
    capacity: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    for zone in _read_zones(data)[0]:
        for name, amount in zone.amounts.items():
            capacity[name] = capacity.get(name, 0) + amount.capacity
            allocatable[name] = allocatable.get(name, 0) + amount.allocatable
    return _quantities(capacity), _quantities(allocatable)


def amounts_in_use(data: Mapping[Any, Any]) -> dict[int, dict[str, int]]:
    """Return the amounts in use on each NUMA node, in whole units by resource: allocatable less available. Raises
    `InputError` with the field's path."""
    return {
        zone.id: {name: amount.allocatable - amount.available for name, amount in zone.amounts.items()}
        for zone in _read_zones(data)[0]
    }


def _quantities(amounts: Mapping[str, int]) -> dict[str, Quantity]:
    return {name: Quantity.of(amount) for name, amount in amounts.items()}


# Zones


def _read_zones(data: Mapping[Any, Any]) -> tuple[list[_ReportedZone], list[Assumption]]:
    """Return the zones that are NUMA nodes, by number, and a line about other zones."""
    listed = require_list(data.get("zones"), "zones")
    # Consumers skip zones of other types, so these do as well (cluster-integration B.1.1).
    wanted = [(place, zone) for place, zone in enumerate(listed) if zone.get("type") == "Node"]
    if not wanted:
        raise InputError(
            "none is of type Node", path="zones", remedy="a zone for each NUMA node, named node-0, node-1 …"
        )
    numbers: dict[str, int] = {}
    for place, zone in wanted:
        number = _zone_number(zone.get("name"), f"zones[{place}].name")
        if number in numbers.values():
            raise InputError(
                f"NUMA node {number} is listed twice", path=f"zones[{place}].name", remedy="one zone for each"
            )
        numbers[str(zone["name"])] = number
    zones = {}
    for place, zone in wanted:
        path, name = f"zones[{place}]", str(zone["name"])
        costs, amounts = _costs(zone, path, numbers), _amounts(zone, path)
        zones[numbers[name]] = _ReportedZone(numbers[name], name, path, amounts, costs)
    others = sorted({str(zone.get("type")) for zone in listed} - {"Node"})
    lines = [Assumption("nodes", f"zones of type {', '.join(others)} count for nothing")] if others else []
    found = [zones[number] for number in sorted(zones)]
    if not any("cpu" in zone.amounts for zone in found):
        raise InputError("report no CPUs", path="zones", remedy="resources of a zone: {name: cpu, capacity: 16, …}")
    return found, lines


def _zone_number(name: Any, path: str) -> int:
    match = _NUMBER.fullmatch(name) if isinstance(name, str) else None
    if match is None:
        raise InputError(f"{abbreviate(name)} has no number of a NUMA node", path=path, remedy="node-0")
    return int(match[1])


def _costs(zone: Mapping[str, Any], path: str, numbers: Mapping[str, int]) -> dict[int, int]:
    costs = {}
    for place, cost in enumerate(require_list(zone.get("costs"), f"{path}.costs")):
        where, name = f"{path}.costs[{place}]", str(cost.get("name"))
        if name not in numbers:
            raise InputError(
                f"{name!r} is not a zone here", path=f"{where}.name", remedy=f"one of {', '.join(numbers)}"
            )
        value = parse_whole(cost.get("value"), f"{where}.value")
        # The range of a SLIT distance, where 10 is the node itself.
        if not 10 <= value <= 255:
            raise InputError(f"{value} is not a distance", path=f"{where}.value", remedy="10 for itself, to 255")
        costs[numbers[name]] = value
    return costs


def _amounts(zone: Mapping[str, Any], path: str) -> dict[str, _Amount]:
    amounts: dict[str, _Amount] = {}
    for place, resource in enumerate(require_list(zone.get("resources"), f"{path}.resources")):
        where, name = f"{path}.resources[{place}]", resource.get("name")
        if not isinstance(name, str) or not name:
            raise InputError("has no name", path=where)
        if name in amounts:
            raise InputError(f"{name} is listed twice", path=f"{where}.name")
        amounts[name] = _amount(resource, where)
    return amounts


def _amount(resource: Mapping[str, Any], path: str) -> _Amount:
    """Read a resource. Exporters may omit `available`, older ones `allocatable` too; each then equals the one
    before."""
    values: list[int] = []
    for field in ("capacity", "allocatable", "available"):
        given = resource.get(field)
        values.append(values[-1] if given is None and values else parse_quantity(given, f"{path}.{field}").value())
        if len(values) > 1 and values[-1] > values[-2]:
            before = ("capacity", "allocatable")[len(values) - 2]
            raise InputError(
                f"{given} is more than {before}, {values[-2]}",
                path=f"{path}.{field}",
                remedy="the two contradict each other",
            )
    return _Amount(*values)


# The machine


def _machine(zones: list[_ReportedZone], name: str, annotations: Mapping[str, Any]) -> tuple[Machine, list[Assumption]]:
    facts, lines = _zone_facts(zones)
    if CPU_TOPOLOGY in annotations:
        return _koordinator(facts, name, annotations), lines
    threads, line = guess_threads([zone.cpus for zone in facts if zone.cpus])
    texts = [line, "each NUMA node on a socket of its own"] if len(zones) > 1 else [line]
    texts += ["CPUs numbered as Linux does: first threads of all cores, then second ones"] if threads > 1 else []
    lines += [Assumption("cpus", text) for text in texts]
    return build_machine(facts, threads=threads, name=name), lines


def _zone_facts(zones: list[_ReportedZone]) -> tuple[list[Zone], list[Assumption]]:
    lines = []
    has_memory = any("memory" in zone.amounts for zone in zones)
    if not has_memory:
        text = f"{MEMORY_PER_CPU >> 30} GiB of memory for each CPU, because no zone reports its memory"
        lines.append(Assumption("memory", text))
    whole_costs = all(set(zone.costs) == {other.id for other in zones} for zone in zones)
    if not whole_costs and len(zones) > 1:
        text = "distances 10 and 20, because the costs of the zones do not list all of them"
        lines.append(Assumption("nodes", text))
    facts = []
    for zone in zones:
        cpus = zone.capacity("cpu")
        memory = zone.capacity("memory") if has_memory else cpus * MEMORY_PER_CPU
        costs = zone.costs if whole_costs else {other.id: 10 if other.id == zone.id else 20 for other in zones}
        facts.append(Zone(zone.id, cpus, memory, dict(_pages(zone)), tuple(costs[other.id] for other in zones)))
    return facts, lines


def _pages(zone: _ReportedZone) -> Iterator[tuple[int, int]]:
    for name, amount in zone.amounts.items():
        if name.startswith(HUGE_PAGES):
            path = f"{zone.path}.resources[{name}]"
            size = parse_page_size(name, path)
            if amount.capacity % (size * 1024):
                raise InputError(f"{amount.capacity} bytes are not whole pages", path=path)
            yield size, amount.capacity


def _koordinator(zones: list[Zone], name: str, annotations: Mapping[str, Any]) -> Machine:
    """Return the machine with the CPUs, cores and sockets of Koordinator's annotation. Raises `InputError` where they
    contradict the zones."""
    path = f"metadata.annotations[{CPU_TOPOLOGY}]"
    found = require_mapping(_json(annotations, CPU_TOPOLOGY), path)
    facts = []
    for place, cpu in enumerate(require_list(found.get("detail"), f"{path}.detail")):
        where = f"{path}.detail[{place}]"
        numbers = [parse_whole(cpu.get(field, 0), f"{where}.{field}") for field in ("id", "core", "socket", "node")]
        facts.append(CPUFacts(*numbers))
    for zone in zones:
        listed = sum(fact.node == zone.id for fact in facts)
        if listed != zone.cpus:
            problem = f"lists {plural(listed, 'CPU')} of NUMA node {zone.id}, its zone has {zone.cpus}"
            raise InputError(problem, path=path, remedy="the two contradict each other")
    nodes = (NUMANodeFacts(zone.id, zone.memory, distances=zone.distances or None) for zone in zones)
    return check_machine(Machine(nodes=build_nodes(facts, nodes), name=name))


def _json(annotations: Mapping[str, Any], name: str) -> Any:
    try:
        return json.loads(str(annotations[name]))
    except (ValueError, RecursionError):
        raise InputError("is not JSON", path=f"metadata.annotations[{name}]") from None


# The kubelet's configuration


def _topology_manager_fields(data: Mapping[Any, Any]) -> tuple[dict[str, Any], list[str]]:
    attributes = _attributes(data)
    old_policy, old_scope = _deprecated_policy(data)
    # Attributes win over the deprecated `topologyPolicies` (cluster-integration B.1.1).
    policy = _choice(attributes, "topologyManagerPolicy", POLICIES) or old_policy or "none"
    scope = _choice(attributes, "topologyManagerScope", SCOPES) or old_scope or "container"
    lines = []
    for field, value, old in (
        ("topologyManagerPolicy", policy, old_policy),
        ("topologyManagerScope", scope, old_scope),
    ):
        if old and old != value:
            lines.append(f"{field} {value}, as attributes say; topologyPolicies says {old}")
    if not old_policy and "topologyManagerPolicy" not in attributes:
        lines.append("topologyManagerPolicy none, because the object does not say (--set or --config says another)")
    options, unknown = {}, []
    for name, value in attributes.items():
        if name.startswith(OPTION):
            option = _OPTIONS.get(name.removeprefix(OPTION).lower())
            options.update({option: value} if option else {})
            unknown += [] if option else [name]
    if LIMIT in attributes:
        options[LIMIT_OPTION] = attributes[LIMIT]
    lines += [f"nothing of attribute {name}, which this version does not know" for name in unknown]
    fields: dict[str, Any] = {"topologyManagerPolicy": policy, "topologyManagerScope": scope}
    return fields | ({"topologyManagerPolicyOptions": options} if options else {}), lines


def _attributes(data: Mapping[Any, Any]) -> dict[str, str]:
    found: dict[str, str] = {}
    for place, attribute in enumerate(require_list(data.get("attributes"), "attributes")):
        name, value = str(attribute.get("name")), str(attribute.get("value"))
        if found.setdefault(name, value) != value:
            raise InputError(f"{name} is {found[name]} and {value}", path=f"attributes[{place}]", remedy="say it once")
    return found


def _choice(attributes: Mapping[str, str], name: str, known: tuple[str, ...]) -> str:
    value = attributes.get(name, "")
    if value and value not in known:
        raise InputError(f"{value!r} is unknown", path=f"attributes[{name}]", remedy=f"one of {', '.join(known)}")
    return value


def _deprecated_policy(data: Mapping[Any, Any]) -> tuple[str, str]:
    """Return policy and scope of the deprecated field `topologyPolicies`, empty where it does not say."""
    listed = data.get("topologyPolicies") or []
    if not isinstance(listed, list):
        raise InputError(f"{abbreviate(listed)} is not a list", path="topologyPolicies")
    if not listed:
        return "", ""
    text = str(listed[0])
    for suffix, scope in (("ContainerLevel", "container"), ("PodLevel", "pod"), ("", "")):
        name = text.removesuffix(suffix) if suffix else text
        if name in _DEPRECATED and (not suffix or text != name):
            return _DEPRECATED[name][0], scope or _DEPRECATED[name][1]
    raise InputError(
        f"{text!r} is unknown", path="topologyPolicies[0]",
        remedy=f"one of {', '.join(_DEPRECATED)}, with ContainerLevel or PodLevel behind it",
    )  # fmt: skip


def _cpu_manager_fields(
    zones: list[_ReportedZone], machine: Machine, annotations: Mapping[str, Any]
) -> tuple[dict[str, Any], list[str]]:
    """Return the fields for CPU policy and reserved CPUs, and lines about assumptions."""
    cpu_policy = require_mapping(_json(annotations, CPU_POLICY), CPU_POLICY) if CPU_POLICY in annotations else {}
    policy = str(cpu_policy.get("policy") or "static")
    fields: dict[str, Any] = {"cpuManagerPolicy": policy}
    options = require_mapping(cpu_policy.get("options"), f"metadata.annotations[{CPU_POLICY}].options")
    if options:
        fields["cpuManagerPolicyOptions"] = {name: str(value) for name, value in options.items()}
    lines = (
        []
        if cpu_policy
        else ["cpuManagerPolicy static, because the object does not say (--set or --config says another)"]
    )
    if cpu_policy.get("reservedCPUs"):
        return {**fields, "reservedSystemCPUs": _cpu_list(cpu_policy["reservedCPUs"])}, lines
    kept = {
        zone.id: zone.amounts["cpu"].capacity - zone.amounts["cpu"].allocatable
        for zone in zones
        if "cpu" in zone.amounts
    }
    # A kubelet does not start the static policy without a reserved CPU.
    if not any(kept.values()) and policy == "static":
        kept = {zones[0].id: 1}
        lines.append("one CPU reserved, because static needs one and the object keeps none from pods")
    reserved = format_bits(bits_of(first_cpus(machine, kept)))
    if reserved:
        lines.append(f"reservedSystemCPUs {reserved}: the first CPUs of each zone, as many as it keeps from pods")
        fields["reservedSystemCPUs"] = reserved
    return fields, lines


def _cpu_list(text: Any) -> str:
    try:
        return str(CPUSet.parse(str(text)))
    except CPUSetError as error:
        raise InputError(error.problem, path=f"metadata.annotations[{CPU_POLICY}].reservedCPUs") from None


def _memory_fields(zones: list[_ReportedZone]) -> dict[str, Any]:
    """Return the fields that keep memory from pods. Huge pages are a part of the memory that is not for pods either."""
    kept = sum(
        zone.amounts["memory"].capacity - zone.amounts["memory"].allocatable
        for zone in zones
        if "memory" in zone.amounts
    )
    # The zones' difference is all that is kept, so no default threshold may be subtracted again.
    return {"evictionHard": {}, "systemReserved": {"memory": str(kept)} if kept else {}}


def _usage_lines(zones: list[_ReportedZone]) -> Iterator[Assumption]:
    """Yield a line for each zone in which pods hold amounts: the object does not name them."""
    for zone in zones:
        held = {
            name: amount.allocatable - amount.available
            for name, amount in zone.amounts.items()
            if amount.available < amount.allocatable
        }
        if held:
            text = ", ".join(f"{number} {name}" for name, number in held.items())
            line = f"nothing runs, though pods hold {text} of {zone.name} (--pods or --state says which)"
            yield Assumption("pods", line)


def _devices(zones: list[_ReportedZone]) -> DeviceInventory:
    names = dict.fromkeys(name for zone in zones for name in zone.amounts if is_extended_resource_name(name))
    listed = [
        {"resource": name, "perNUMANode": {zone.id: zone.capacity(name) for zone in zones if zone.capacity(name)}}
        for name in names
    ]
    try:
        return inventory_from_data([one for one in listed if one["perNUMANode"]])
    except InputError as error:
        raise error.at(path="zones") from None
