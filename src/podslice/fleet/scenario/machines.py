"""The machine of each node of a scenario: written in it, from a table of assumptions, or from a live cluster.

No topology is assumed silently: every class has the source of its machine, and an assumed one has a reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from podslice.fleet.scenario.inputs import Inputs
from podslice.fleet.scenario.scenario import AS_WRITTEN, MachineClass
from podslice.fleet.scenario.strict import convert, quantity, release_name
from podslice.fleet.traces.trace import TraceNode
from podslice.fleet.traces.trace_facts import memory_text
from podslice.host.machine_files import load_described, parse_described
from podslice.machine.devices import Device, DeviceInventory, DeviceResource
from podslice.machine.gallery import gallery_names, load_gallery
from podslice.machine.model import Machine
from podslice.reading.files import read_text
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError
from podslice.values.quantity import plural

Source = Literal["captured", "nrt", "assumed"]


class NodeClass(NamedTuple):
    """Nodes of one machine.

    - `machines`: by alternative, `AS_WRITTEN` among them.
    - `assumed`: what was assumed and why, empty where nothing was.
    - `fields`: of the kubelet's configuration, which come with nodes of a live cluster.
    - `kubernetes`: the release of its kubelets, empty for that of the profile; `reported`: the version that the Node
      objects of a live cluster state.
    """

    name: str
    machines: Mapping[str, Machine]
    gpus: int = 0
    gpu_model: str = ""
    source: Source = "assumed"
    assumed: str = ""
    devices: DeviceInventory | None = None
    fields: Mapping[str, object] = {}
    allocatable: Mapping[str, int] | None = None
    kubernetes: str = ""
    reported: str = ""

    def machine(self, alternative: str) -> Machine:
        """Return the machine of an alternative; the one as written where this class has no such alternative."""
        return self.machines.get(alternative) or self.machines[AS_WRITTEN]


class _AssumedRow(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine that is assumed for a number of CPUs, why, and alternatives by name."""

    machine: str
    why: str = ""
    alternatives: dict[str, str] = {}


class _AssumedTable(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    classes: dict[str, _AssumedRow]


class Assumptions:
    """A table of assumed machines by number of CPUs. Raises `InputError`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        source = str(path)
        documents = load_documents(read_text(source), source)
        if len(documents) != 1:
            raise InputError("holds no table of machines", source=source)
        self.rows = convert(documents[0], _AssumedTable, source=source).classes

    def row(self, key: str) -> _AssumedRow:
        """Return the row for a number of CPUs. Raises `InputError`."""
        if key not in self.rows:
            known = ", ".join(self.rows)
            remedy = f"add a row; there are {known}"
            raise InputError(f"has no machine of {key} CPUs", source=str(self.path), path="classes", remedy=remedy)
        return self.rows[key]


def class_from_entry(name: str, entry: MachineClass, inputs: Inputs) -> NodeClass:
    """Return the class of an entry of the scenario's `machines`. Raises `InputError`."""
    where = f"machines.{name}.from"
    text, alternatives, why = entry.machine, dict(entry.alternatives), ""
    # A description in JSON or XML may contain `#` itself.
    if "#" in text and not text.lstrip().startswith(("{", "<")):
        table, _, key = text.partition("#")
        row = Assumptions(inputs.path(table, where=where)).row(key)
        text, alternatives, why = (
            row.machine,
            {**row.alternatives, **alternatives},
            f"{_describe(parse_described(row.machine).machine)}, because {row.why}",
        )
    memory = None if entry.memory is None else quantity(entry.memory, f"machines.{name}.memory").value()
    texts = {AS_WRITTEN: text, **alternatives}
    try:
        machines = {key: _machine(one, inputs, where) for key, one in texts.items()}
    except InputError as error:
        raise error.at(path=where) from None
    if memory is not None:
        machines = {key: with_memory(machine, memory) for key, machine in machines.items()}
    if machines[AS_WRITTEN].memory == 0:
        raise InputError("has no memory", path=where, remedy=f"add machines.{name}.memory, such as 384Gi")
    # Its numbers of CPUs may be assumed of a machine that is written down, too.
    lines = [one for one in machines[AS_WRITTEN].assumptions if memory is None or one.about != "memory"]
    source: Source = "assumed" if why else "captured"
    assumed = why or "; ".join(map(str, lines))
    release = release_name(entry.kubernetes, f"machines.{name}.kubernetes")
    return NodeClass(name, machines, entry.gpus, entry.gpu_model, source, assumed, kubernetes=release)


def _machine(text: str, inputs: Inputs, where: str) -> Machine:
    """Return a ready-made machine, one of a file, or one of its description."""
    if text in gallery_names():  # before a file of that name, as everywhere
        return load_gallery(text)
    if (inputs.folder / text).exists() and len(text) < 4096:
        return load_described(inputs.path(text, where=where)).machine
    return parse_described(text, source=where).machine


def class_from_shape(node: TraceNode, table: Assumptions, memory: int | None) -> NodeClass:
    """Return the class of a node of a trace, by its amounts; `memory`: bytes where the trace has none. Raises
    `InputError`."""
    amount = node.memory if node.memory is not None else memory
    if amount is None:
        remedy = "give it for all of them: memory: 512Gi beside csv"
        raise InputError(f"node {node.name} has no memory in the trace", path="nodes", remedy=remedy)
    # A machine has whole CPUs; a fraction means that the column holds something else, such as the allocatable amount.
    if node.cpu % 1000:
        raise InputError(f"node {node.name} has {node.cpu}m CPUs", path="nodes", remedy="nodes have whole CPUs")
    cpus = node.cpu // 1000
    row = table.row(str(cpus))
    texts = {AS_WRITTEN: row.machine, **row.alternatives}
    machines = {key: with_memory(parse_described(text).machine, amount) for key, text in texts.items()}
    for key, machine in machines.items():
        if machine.cpu_count != cpus:
            problem = f"the machine for {cpus} CPUs has {machine.cpu_count} ({key})"
            raise InputError(problem, source=str(table.path), path=f"classes.{cpus}")
    gpus = f"-{node.gpus}x{node.model or 'GPU'}" if node.gpus else ""
    name = f"{cpus}c-{memory_text(amount).removesuffix(' GiB')}Gi{gpus}"
    return NodeClass(
        name,
        machines,
        node.gpus,
        node.model,
        "assumed",
        f"{_describe(parse_described(row.machine).machine)}, because {row.why}",
    )


def _describe(machine: Machine) -> str:
    """Describe a machine in a few words: `2 sockets × 24 cores × 2 threads, 2 NUMA nodes`."""
    cores = sum(len(node.cores) for node in machine.nodes)
    threads = machine.cpu_count // max(cores, 1)
    sockets = machine.socket_count
    ending = "s" if sockets > 1 else ""
    numa = plural(len(machine.nodes), "NUMA node")
    return f"{sockets} socket{ending} × {cores // max(sockets, 1)} cores × {threads} threads, {numa}"


def with_memory(machine: Machine, memory: int) -> Machine:
    """Return the machine with this much memory (bytes), spread evenly over the NUMA nodes that have CPUs; the remainder
    goes to the lowest."""
    owners = [node.id for node in machine.nodes if node.cores]
    share, rest = divmod(memory, len(owners))
    # Divided by bytes; the remainder is less than the number of nodes, so it does not matter where it goes.
    amounts = {node: share + (rest if place == 0 else 0) for place, node in enumerate(owners)}
    nodes = tuple(msgspec.structs.replace(node, memory=amounts.get(node.id, 0)) for node in machine.nodes)
    return msgspec.structs.replace(machine, nodes=nodes)


def spread_devices(machine: Machine, resource: str, count: int, replicas: int) -> DeviceInventory:
    """Return `count` GPUs spread evenly over the NUMA nodes, odd ones on the lowest; each is offered as `replicas`
    devices."""
    owners = [node.id for node in machine.nodes if node.cores]
    share, rest = divmod(count, len(owners))
    # Consecutive GPUs on one node, as a driver numbers them by PCI address.
    places = [node for place, node in enumerate(owners) for _ in range(share + (place < rest))]
    devices = tuple(
        Device(f"gpu-{number}" if replicas == 1 else f"gpu-{number}-{part}", (node,))
        for number, node in enumerate(places)
        for part in range(replicas)
    )
    return DeviceInventory((DeviceResource(resource, devices),)) if devices else DeviceInventory()
