"""Nodes of a live cluster, from kubectl's output and from files of the nodes themselves.

Files of a node come first: captured machine, state files, its kubelet's configuration. Then objects of the API; the
rest is assumed, and reported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from podslice.fleet.engine.nodes import FleetNode
from podslice.fleet.importing.kube_devices import LISTED_DEVICES, read_devices
from podslice.fleet.importing.kube_objects import CONFIGZ, items_of, name_of, part, read_documents, read_objects
from podslice.fleet.importing.kube_start import NOTHING_KNOWN, KnownStart
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
from podslice.node_objects.read_nrt import amounts_in_use
from podslice.node_objects.read_object import read_described_node
from podslice.scheduling.taints import Taint
from podslice.values.errors import InputError
from podslice.values.go.gojson import CheckpointError
from podslice.values.quantity import Quantity, QuantityError
from podslice.values.releases.table import nearest_release

_GPU_MODEL = "nvidia.com/gpu.product"
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class ClusterFolders(NamedTuple):
    """Further sources: a file with NodeResourceTopology objects, and folders with a file or a folder for each node: its
    kubelet's configz, its captured machine, its state files."""

    topology: Path | None = None
    configurations: Path | None = None
    machines: Path | None = None
    states: Path | None = None


class ClusterNode(NamedTuple):
    """A node of a dump, its class, and what is known of the pods on it."""

    node: FleetNode
    kind: NodeClass
    start: KnownStart = NOTHING_KNOWN


NO_FOLDERS = ClusterFolders()


def cluster_nodes(nodes: Path, folders: ClusterFolders = NO_FOLDERS, *, by_release: bool = False) -> list[ClusterNode]:
    """Return the nodes of a cluster; `by_release`: kubelets of several releases are of several classes. Raises
    `InputError`."""
    topology = read_objects(folders.topology, "NodeResourceTopology") if folders.topology else []
    zones = {name_of(one): one for one in topology}
    classes: dict[bytes, NodeClass] = {}
    found = []
    for data in read_objects(nodes, "Node"):
        name = name_of(data)
        if not name:
            raise InputError("a node has no name", source=str(nodes))
        one = _NodeReader(data, name, str(nodes), zones.get(name), folders)
        made = one.make_class()
        if not by_release:
            made = made._replace(reported="")
        key = canonical_json([_class_key(made)])
        if key not in classes:
            same = sum(known.name.startswith(made.name) for known in classes.values())
            # Nodes of one size may differ in topology or configuration: their classes get numbers.
            classes[key] = made._replace(name=f"{made.name}-{same}" if same else made.name)
        found.append(ClusterNode(_node(data, name), classes[key], one.start()))
    if not found:
        raise InputError("holds no Node", source=str(nodes), remedy="kubectl get nodes -o json")
    return found


def _class_key(found: NodeClass) -> list[object]:
    """Return the facts in which nodes of one class are equal."""
    machine = found.machines[AS_WRITTEN]
    nodes = [(node.id, node.memory, [core.threads for core in node.cores]) for node in machine.nodes]
    allocatable = dict(found.allocatable or {})
    release = nearest_release(found.reported)
    facts = [nodes, found.gpus, found.gpu_model, str(found.devices), dict(found.fields), allocatable, found.source]
    return [*facts, str(release)] if release else facts


class _NodeReader:
    """Reads all sources about one node."""

    def __init__(
        self, data: dict[str, Any], name: str, source: str, zones: dict[str, Any] | None, folders: ClusterFolders
    ) -> None:
        self._data, self._name, self._source, self._zones = data, name, source, zones
        self._configuration = _load_configz(folders.configurations, name)
        self._captured = load_machine(folders.machines, name)
        self._described: DescribedNode = read_described_node([data if zones is None else zones], source)
        self._machine = self._captured or self._described.machine
        self._files = node_files(folders.states, name)
        self._devices, self._spread = self._described.devices, ""
        if DEVICE_STATE_FILE in self._files:
            self._read_devices(folders.states)

    def _read_devices(self, folder: Path | None) -> None:
        """Replace the devices by those of the kubelet's checkpoint."""
        try:
            checkpoint = decode(self._files[DEVICE_STATE_FILE])
        except CheckpointError as error:
            place = f"state of node {self._name}"
            raise InputError(str(error), source=place, path=DEVICE_STATE_FILE, remedy="copy the file again") from None
        reported = self._described.devices if self._zones else None
        found = read_devices(checkpoint, self._machine, reported, load_listed_devices(folder, self._name))
        self._devices = found.inventory
        self._files = {**self._files, DEVICE_STATE_FILE: found.file}
        if found.spread:
            self._spread = (
                f"devices of {', '.join(found.spread)} that are not allocated are spread evenly over NUMA nodes"
            )

    def make_class(self) -> NodeClass:
        """Return the class of the node; its name is not unique yet."""
        status, labels = part(self._data, "status"), part(part(self._data, "metadata"), "labels")
        allocatable = _allocatable(status.get("allocatable") or status.get("capacity") or {}, self._source, self._name)
        gpus = next((value for name, value in allocatable.items() if name.endswith("/gpu")), 0)
        memory = round(self._machine.memory / (1 << 30))
        model = str(labels.get(_GPU_MODEL, "")) if gpus else ""
        name = f"{self._machine.cpu_count}c-{memory}Gi" + (f"-{gpus}x{model or 'GPU'}" if gpus else "")
        known = self._captured is not None or self._zones is not None
        assumed = [*(() if known else map(str, self._described.assumed)), *([self._spread] if self._spread else ())]
        return NodeClass(
            name,
            {AS_WRITTEN: replace(self._machine, name="", source="")},
            gpus,
            model,
            "captured" if self._captured else "nrt" if self._zones is not None else "assumed",
            "; ".join(map(str, assumed)),
            self._devices,
            # Later sources are nearer to the kubelet: objects of the API, its state files, its configz.
            {**self._described.fields, **fields_of_state(self._files), **self._configuration},
            allocatable,
            reported=str(part(status, "nodeInfo").get("kubeletVersion") or ""),
        )

    def start(self) -> KnownStart:
        """Return what is known of the pods on the node."""
        return KnownStart(self._files, {} if self._zones is None else amounts_in_use(self._zones))


def find_node_path(folder: Path | None, name: str, endings: Sequence[str]) -> Path | None:
    """Return the file or the folder of a node in a folder; None where it is missing."""
    if folder is None:
        return None
    places = (folder / f"{name}{ending}" for ending in endings)
    return next((path for path in places if path.exists()), None)


def load_machine(folder: Path | None, name: str) -> Machine | None:
    """Return the captured machine of a node; None where it is missing. Raises `InputError`."""
    path = find_node_path(folder, name, MACHINE_ENDINGS)
    return None if path is None else load_described(path).machine


MACHINE_ENDINGS = (".tar.xz", ".tar.gz", ".tar", ".yaml", ".json", ".xml", "")


def node_files(folder: Path | None, name: str) -> dict[str, bytes]:
    """Return the state files of a node by name. Raises `InputError`."""
    path = find_node_path(folder, name, ("",))
    return {} if path is None else read_state_directory(path)


def load_listed_devices(folder: Path | None, name: str) -> DeviceInventory | None:
    """Return the devices that device plugins listed, where an agent reported them. Raises `InputError`."""
    path = find_node_path(folder, name, (f"/{LISTED_DEVICES}",))
    return None if path is None else inventory_from_data(read_documents(path)[0], source=str(path))


def fields_of_state(files: Mapping[str, bytes]) -> dict[str, Any]:
    """Return the fields of a kubelet's configuration that its state files reveal."""
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
    """Return the Memory Manager's policy and reservations as its state file has them."""
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


def _load_configz(folder: Path | None, name: str) -> dict[str, Any]:
    """Return the fields of a kubelet's configz, empty where it is missing."""
    path = find_node_path(folder, name, (".json",))
    if path is None:
        return {}
    found = next((one for one in read_objects(path) if one["kind"] in ("", CONFIGZ)), None)
    if found is None:
        remedy = "kubectl get --raw /api/v1/nodes/NODE/proxy/configz"
        raise InputError("holds no configuration of a kubelet", source=str(path), remedy=remedy)
    return {key: value for key, value in found.items() if key not in ("kind", "apiVersion")}


def _allocatable(amounts: Mapping[str, Any], source: str, node: str) -> dict[str, int]:
    """Return amounts in millicores, bytes and whole units. Raises `InputError`."""
    found = {}
    for name, text in amounts.items():
        try:
            amount = Quantity.parse(str(text))
        except QuantityError:
            path = f"node {node}: status.allocatable[{name}]"
            raise InputError(f"{text!r} is not a quantity", source=source, path=path) from None
        found[name] = amount.milli_value() if name == "cpu" else amount.value()
    return found


def _node(data: Mapping[str, Any], name: str) -> FleetNode:
    """Return a node of the fleet; the number of its class is not set yet."""
    spec = part(data, "spec")
    labels = part(part(data, "metadata"), "labels")
    taints = tuple(
        Taint(str(one.get("key", "")), str(one.get("value") or ""), one["effect"])
        for one in items_of(spec, "taints")
        if one.get("effect") in _EFFECTS
    )
    plain = {str(key): str(value) for key, value in labels.items()}
    return FleetNode(name, 0, plain, taints, bool(spec.get("unschedulable")))
