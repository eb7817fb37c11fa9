"""Nodes of a live cluster, from what kubectl prints and what was copied from the nodes themselves.

What a node tells of itself comes first: captured machine, state files, its kubelet's configuration. Then what objects
of the API say of it; the rest is assumed, and said.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from podslice.fleet.engine.nodes import FleetNode
from podslice.fleet.engine.shapes import NodeTaint
from podslice.fleet.importing.kube_devices import LISTED_DEVICES, filed_devices
from podslice.fleet.importing.kube_objects import CONFIGZ, listed, name_of, part, read_documents, read_objects
from podslice.fleet.importing.kube_start import NOTHING_TOLD, KnownStart
from podslice.fleet.scenario.inputs import canonical_json
from podslice.fleet.scenario.machines import NodeClass
from podslice.fleet.scenario.scenario import AS_WRITTEN
from podslice.host.machine_files import load_described
from podslice.host.state.state_directory import read_state_directory
from podslice.machine.devices import DeviceInventory, inventory_from_data
from podslice.machine.model import Machine
from podslice.node.checkpoints.content import read_content
from podslice.node.checkpoints.names import CPU_STATE_FILE, DEVICE_STATE_FILE, MEMORY_STATE_FILE
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.devices.checkpoint import decode
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.node_objects.described import DescribedNode
from podslice.node_objects.noderesourcetopology import amounts_in_use
from podslice.node_objects.nodes import described_node
from podslice.values.errors import InputError
from podslice.values.go.gojson import CheckpointError
from podslice.values.quantity import Quantity, QuantityError

_GPU_MODEL = "nvidia.com/gpu.product"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class ClusterFolders(NamedTuple):
    """Where the rest is that is known of nodes: a file with NodeResourceTopology objects, and folders with a file or a
    folder for each node: its kubelet's configz, its captured machine, its state files."""

    topology: Path | None = None
    configurations: Path | None = None
    machines: Path | None = None
    states: Path | None = None


class ClusterNode(NamedTuple):
    """A node of a dump, its class, and what is told of the pods on it."""

    node: FleetNode
    kind: NodeClass
    told: KnownStart = NOTHING_TOLD


NO_FOLDERS = ClusterFolders()


def cluster_nodes(nodes: Path, folders: ClusterFolders = NO_FOLDERS) -> list[ClusterNode]:
    """The nodes of a cluster. Raises `InputError`."""
    topology = read_objects(folders.topology, "NodeResourceTopology") if folders.topology else []
    zones = {name_of(one): one for one in topology}
    classes: dict[bytes, NodeClass] = {}
    found = []
    for data in read_objects(nodes, "Node"):
        name = name_of(data)
        if not name:
            raise InputError("a node has no name", source=str(nodes))
        one = _NodeReader(data, name, str(nodes), zones.get(name), folders)
        made = one.kind()
        key = canonical_json([_shown(made)])
        if key not in classes:
            same = sum(known.name.startswith(made.name) for known in classes.values())
            classes[key] = made._replace(name=f"{made.name}-{same}" if same else made.name)
        found.append(ClusterNode(_node(data, name), classes[key], one.told()))
    if not found:
        raise InputError("holds no Node", source=str(nodes), remedy="kubectl get nodes -o json")
    return found


def _shown(found: NodeClass) -> list[object]:
    machine = found.machines[AS_WRITTEN]
    nodes = [(node.id, node.memory, [core.threads for core in node.cores]) for node in machine.nodes]
    allocatable = dict(found.allocatable or {})
    return [nodes, found.gpus, found.gpu_model, str(found.devices), dict(found.fields), allocatable, found.source]


class _NodeReader:
    """All that is told of one node."""

    def __init__(
        self, data: dict[str, Any], name: str, source: str, zones: dict[str, Any] | None, folders: ClusterFolders
    ) -> None:
        self._data, self._name, self._source, self._zones = data, name, source, zones
        self._configuration = _configz(folders.configurations, name)
        self._captured = captured_machine(folders.machines, name)
        self._described: DescribedNode = described_node([data if zones is None else zones], source)
        self._machine = self._captured or self._described.machine
        self._files = node_files(folders.states, name)
        self._devices, self._spread = self._described.devices, ""
        if DEVICE_STATE_FILE in self._files:
            self._read_devices(folders.states)

    def _read_devices(self, folder: Path | None) -> None:
        try:
            checkpoint = decode(self._files[DEVICE_STATE_FILE])
        except CheckpointError as error:
            place = f"state of node {self._name}"
            raise InputError(str(error), source=place, path=DEVICE_STATE_FILE, remedy="copy the file again") from None
        told = self._described.devices if self._zones else None
        found = filed_devices(checkpoint, self._machine, told, listed_devices(folder, self._name))
        self._devices = found.inventory
        self._files = {**self._files, DEVICE_STATE_FILE: found.file}
        if found.spread:
            self._spread = f"devices of {', '.join(found.spread)} that nobody holds spread evenly over NUMA nodes"

    def kind(self) -> NodeClass:
        """The class of the node; its name is not unique yet."""
        status, labels = part(self._data, "status"), part(part(self._data, "metadata"), "labels")
        allocatable = _allocatable(status.get("allocatable") or status.get("capacity") or {}, self._source, self._name)
        gpus = next((value for name, value in allocatable.items() if name.endswith("/gpu")), 0)
        memory = round(self._machine.memory / (1 << 30))
        model = str(labels.get(_GPU_MODEL, "")) if gpus else ""
        name = f"{self._machine.cpu_count}c-{memory}Gi" + (f"-{gpus}x{model or 'GPU'}" if gpus else "")
        known = self._captured is not None or self._zones is not None
        assumed = [*(() if known else self._described.assumed), *([self._spread] if self._spread else ())]
        return NodeClass(
            name,
            {AS_WRITTEN: replace(self._machine, name="", source="")},
            gpus,
            model,
            "captured" if self._captured else "nrt" if self._zones is not None else "assumed",
            "; ".join(assumed),
            self._devices,
            {**self._described.fields, **configured_by(self._files), **self._configuration},
            allocatable,
        )

    def told(self) -> KnownStart:
        """What is told of the pods on the node."""
        return KnownStart(self._files, {} if self._zones is None else amounts_in_use(self._zones))


def of_node(folder: Path | None, name: str, endings: Sequence[str]) -> Path | None:
    """The file or the folder of a node in a folder, if it is there."""
    if folder is None:
        return None
    places = (folder / f"{name}{ending}" for ending in endings)
    return next((path for path in places if path.exists()), None)


def captured_machine(folder: Path | None, name: str) -> Machine | None:
    """The captured machine of a node; None where there is none. Raises `InputError`."""
    path = of_node(folder, name, MACHINE_ENDINGS)
    return None if path is None else load_described(path).machine


MACHINE_ENDINGS = (".tar.xz", ".tar.gz", ".tar", ".yaml", ".json", ".xml", "")


def node_files(folder: Path | None, name: str) -> dict[str, bytes]:
    """The state files of a node by name; none where there are none. Raises `InputError`."""
    path = of_node(folder, name, ("",))
    return {} if path is None else read_state_directory(path)


def listed_devices(folder: Path | None, name: str) -> DeviceInventory | None:
    """What the device plugins of a node listed, where an agent told it. Raises `InputError`."""
    path = of_node(folder, name, (f"/{LISTED_DEVICES}",))
    return None if path is None else inventory_from_data(read_documents(path)[0], source=str(path))


def configured_by(files: Mapping[str, bytes]) -> dict[str, Any]:
    """What state files tell of the configuration with which they were written."""
    found: dict[str, Any] = {}
    try:
        if CPU_STATE_FILE in files:
            cpu = read_content(files[CPU_STATE_FILE]).checkpoint
            found |= {"cpuManagerPolicy": cpu.policy_name} if isinstance(cpu, CPUCheckpoint) else {}
        if MEMORY_STATE_FILE in files:
            memory = read_content(files[MEMORY_STATE_FILE]).checkpoint
            found |= _memory_configuration(memory) if isinstance(memory, MemoryCheckpoint) else {}
    except CheckpointError:
        return found
    return found


def _memory_configuration(memory: MemoryCheckpoint) -> dict[str, Any]:
    kept = {
        node: {
            name: str(table.system_reserved)
            for name, table in (ledger.memory_map or {}).items()
            if table.system_reserved
        }
        for node, ledger in (memory.machine_state or {}).items()
    }
    reserved = [{"numaNode": node, "limits": limits} for node, limits in sorted(kept.items()) if limits]
    return {"memoryManagerPolicy": memory.policy_name} | ({"reservedMemory": reserved} if reserved else {})


def _configz(folder: Path | None, name: str) -> dict[str, Any]:
    """What a kubelet is configured with, as far as it was asked."""
    path = of_node(folder, name, (".json",))
    if path is None:
        return {}
    found = next((one for one in read_objects(path) if one["kind"] in ("", CONFIGZ)), None)
    if found is None:
        remedy = "kubectl get --raw /api/v1/nodes/NODE/proxy/configz"
        raise InputError("holds no configuration of a kubelet", source=str(path), remedy=remedy)
    return {key: value for key, value in found.items() if key not in ("kind", "apiVersion")}


def _allocatable(amounts: Mapping[str, Any], source: str, node: str) -> dict[str, int]:
    found = {}
    for name, text in amounts.items():
        try:
            amount = Quantity.parse(str(text))
        except QuantityError:
            path = f"node {node}: status.allocatable[{name}]"
            raise InputError(f"{text!r} is no quantity", source=source, path=path) from None
        found[name] = amount.milli_value() if name == "cpu" else amount.value()
    return found


def _node(data: Mapping[str, Any], name: str) -> FleetNode:
    spec = part(data, "spec")
    labels = part(part(data, "metadata"), "labels")
    taints = tuple(
        NodeTaint(str(one.get("key", "")), str(one.get("value") or ""), one["effect"])
        for one in listed(spec, "taints")
        if one.get("effect") in _EFFECTS
    )
    plain = {str(key): str(value) for key, value in labels.items()}
    return FleetNode(name, 0, plain, taints, bool(spec.get("unschedulable")))
