"""The picture of a node as plain data: hardware and its owners. Back ends (terminal, SVG, HTML) only draw it.

Sockets hold NUMA nodes, those hold L3 groups, those cores, those CPUs. Every CPU has an owner or belongs to the shared
or the reserved pool; owners are containers, and the shared rest of the pod CPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import NamedTuple

from podslice.api.pod.claim_holder import HOLDER_NAMESPACE, claim_uid_of_holder
from podslice.api.pod.eligibility import AdmissionPod
from podslice.machine.model import CPUTopology, Machine, NUMANode
from podslice.node.effects.cgroup import pod_cgroup_path
from podslice.node.shared_pool import idle_notes
from podslice.node.view import NodeView
from podslice.render.table import format_bytes
from podslice.values.cpuset import Bits, format_bits, iter_bits

RESERVED, SHARED, EXCLUSIVE, POD_SHARED, POOLED = "reserved", "shared", "exclusive", "pod shared", "shared pool"


class Holder(NamedTuple):
    """An owner of CPUs, or of devices while it runs in the shared pool (kind `shared pool`, no CPUs). `pod` is an
    index into `Picture.pods`; `look` numbers colours, patterns and letters, the same for the same owner before and
    after a change. `growth` are those of its CPUs that came on top of what was promised at its admission, `shares`
    those that it runs on besides and that are not its own."""

    label: str
    cpus: Bits
    kind: str
    pod: int
    look: int = 0
    growth: Bits = 0
    shares: Bits = 0

    @property
    def remark(self) -> str:
        """Remark on an owner with more CPUs than promised, or with shared CPUs too; empty for others."""
        parts = []
        if self.growth:
            parts.append(f"{format_bits(self.cpus & ~self.growth)} promised, {format_bits(self.growth)} growth")
        if self.shares:
            parts.append(f"also on shared CPUs {format_bits(self.shares)}")
        return "; ".join(parts)


class PodEntry(NamedTuple):
    """A pod; `pod_cpus` are the CPUs of a pod with pod-level resources, 0 for others. `cgroup` is empty where the
    manifest has no UID, from which the path is made. `pooled`: it owns no CPUs and runs in the node's shared pool."""

    label: str
    qos: str
    pod_cpus: Bits
    memory: str
    devices: str
    cgroup: str
    pooled: bool


class CPU(NamedTuple):
    """One CPU: its pool or the index of its owner, the index of the pod among whose pod CPUs it is, whether its owner
    changed since the picture this one is compared with, whether it is beyond what was promised, and its class."""

    id: int
    kind: str
    owner: int | None
    pod: int | None
    changed: bool
    growth: bool = False
    cpu_class: str = ""


class CoreBox(NamedTuple):
    id: int
    cpus: tuple[CPU, ...]


class CacheBox(NamedTuple):
    """Cores that share an L3 cache; `shown` is False where there is one per NUMA node or socket."""

    id: int
    cpus: Bits
    shown: bool
    cores: tuple[CoreBox, ...]


class Memory(NamedTuple):
    """Bytes of one memory type on one NUMA node. `used` is None where no Memory Manager counts."""

    resource: str
    total: int
    reserved: int
    used: int | None


class DeviceBox(NamedTuple):
    resource: str
    id: str
    healthy: bool
    owner: str


class Want(NamedTuple):
    """A line about what a refused pod finds on a NUMA node; `short` where that is in its way."""

    text: str
    short: bool


class NUMABox(NamedTuple):
    """The part of a NUMA node that lies on one socket (socket None: memory only). `free` CPUs can be given out
    exclusively; None where no container owns CPUs (CPU Manager policy none). `wants` is filled for a refused pod."""

    id: int
    cpus: Bits
    free: int | None
    caches: tuple[CacheBox, ...]
    memory: tuple[Memory, ...]
    devices: tuple[DeviceBox, ...]
    wants: tuple[Want, ...] = ()


class SocketBox(NamedTuple):
    id: int | None
    nodes: tuple[NUMABox, ...]


class Picture(NamedTuple):
    """A node. `distances` are (NUMA node id, distances) of the nodes that are drawn, by id, empty where the machine
    does not report all of them. Nodes with neither CPUs nor memory are not drawn; `details` says how many there are."""

    title: str
    details: tuple[str, ...]
    sockets: tuple[SocketBox, ...]
    owners: tuple[Holder, ...]
    pods: tuple[PodEntry, ...]
    reserved: Bits
    shared: Bits
    distances: tuple[tuple[int, tuple[int, ...]], ...]
    loose_devices: tuple[DeviceBox, ...]
    classes: tuple[tuple[str, Bits], ...] = ()
    """CPU classes of the policy."""
    basis: tuple[str, ...] = ()
    """The facts that the picture rests on, in lines."""
    notes: tuple[str, ...] = ()
    pool: str = ""
    """How much the shared pool is and who owns the rest, for texts: a picture shows it."""
    """Sentences about CPUs that are neither used nor free."""
    refusals: tuple[str, ...] = ()
    """Why pods are refused that the picture was made for; what they find on each NUMA node is in `NUMABox.wants`."""

    @property
    def cpu_count(self) -> int:
        return sum(node.cpus.bit_count() for socket in self.sockets for node in socket.nodes)

    @property
    def grows(self) -> bool:
        """Whether any owner has more CPUs than promised."""
        return any(owner.growth for owner in self.owners)

    def refusing(self, refusals: tuple[str, ...], wants: Mapping[int, Sequence[Want]]) -> Picture:
        """Return the picture with what refused pods find on each NUMA node, by the nodes' ids."""
        sockets = tuple(
            socket._replace(nodes=tuple(node._replace(wants=tuple(wants.get(node.id, ()))) for node in socket.nodes))
            for socket in self.sockets
        )
        return self._replace(sockets=sockets, refusals=refusals)

    def cpus(self) -> Iterator[CPU]:
        for socket in self.sockets:
            for node in socket.nodes:
                for cache in node.caches:
                    for core in cache.cores:
                        yield from core.cpus


def picture_of(view: NodeView, *, before: Picture | None = None, title: str = "", basis: Sequence[str] = ()) -> Picture:
    """Return the picture of a node; with `before`, CPUs whose owner changed since then are marked. `basis` is what it
    rests on."""
    pods, owners = _owners(view)
    owners = _assign_looks(owners, () if before is None else before.owners)
    classes = () if view.cpu_classes is None else tuple(view.cpu_classes.cpus.items())
    painter = _Painter(view.topology, view.reserved, owners, pods, before, classes)
    boxes: dict[int | None, list[NUMABox]] = {}
    for node in sorted(view.machine.nodes, key=lambda node: node.id):
        mine = view.topology.numa_nodes.get(node.id, 0)
        for socket, cpus in ((s, bits & mine) for s, bits in view.topology.sockets.items()):
            if cpus:
                free = (cpus & view.ownable_next).bit_count() if view.pins_cpus else None
                boxes.setdefault(socket, []).append(_numa_box(view, node.id, cpus, free, painter))
        # A node without CPUs lies on no socket; it is drawn in a box of its own if it has memory.
        if not mine and _has_memory(node):
            boxes.setdefault(None, []).append(_numa_box(view, node.id, 0, 0, painter))
    ordered = sorted(boxes, key=lambda socket: (socket is None, socket or 0))
    return Picture(
        title=title or view.machine.name or "machine",
        details=_details(view),
        sockets=tuple(SocketBox(socket, tuple(boxes[socket])) for socket in ordered),
        owners=tuple(owners),
        pods=tuple(pods),
        reserved=view.reserved,
        shared=view.shared if view.pins_cpus else view.topology.all_cpus,
        distances=_distances(view.machine),
        loose_devices=tuple(_devices(view, None)),
        classes=classes,
        basis=tuple(basis),
        notes=tuple(idle_notes(view)),
    )


def _has_memory(node: NUMANode) -> bool:
    return bool(node.memory or any(pool.num_pages for pool in node.hugepages))


def _distances(machine: Machine) -> tuple[tuple[int, tuple[int, ...]], ...]:
    """Return NUMA distances with rows and columns by node id, as the kernel lists columns; the machine's nodes may have
    another order."""
    nodes = sorted(machine.nodes, key=lambda node: node.id)
    if any(node.distances is None or len(node.distances) != len(nodes) for node in nodes):
        return ()
    drawn = [place for place, node in enumerate(nodes) if node.cores or _has_memory(node)]
    return tuple((nodes[row].id, tuple((nodes[row].distances or ())[place] for place in drawn)) for row in drawn)


def _details(view: NodeView) -> tuple[str, ...]:
    config, machine = view.config, view.machine
    nodes = len(machine.nodes)
    empty = sum(not node.cores and not _has_memory(node) for node in machine.nodes)
    hidden = f", {empty} without CPUs and memory not drawn" if empty else ""
    policy = config.topology_manager_policy
    scope = f" ({config.topology_manager_scope} scope)" if policy != "none" else ""
    return (
        f"{machine.cpu_count} CPUs",
        f"{nodes} NUMA node{'s' if nodes != 1 else ''}{hidden}",
        f"CPU manager {config.cpu_manager_policy}",
        f"Topology manager {policy}{scope}",
    )


# Owners


def _owners(view: NodeView) -> tuple[list[PodEntry], list[Holder]]:
    pods: list[PodEntry] = []
    owners: list[Holder] = []
    for pod in view.pods.values():
        mine = list(_owners_of_pod(view, pod, len(pods)))
        entry = _pod_entry(view, pod, pooled=not mine)
        if entry.pooled and entry.devices:
            mine.append(Holder(entry.label, 0, POOLED, len(pods)))
        pods.append(entry)
        owners += mine
    return pods, owners


def _assign_looks(owners: list[Holder], before: Iterable[Holder]) -> list[Holder]:
    """Give each owner the look that it had `before`; new owners get unused looks."""
    # By label and kind, not by index: between two pictures pods come and go.
    known = {(owner.label, owner.kind): owner.look for owner in before}
    unused = (look for look in count() if look not in known.values())
    looks = (known.get((owner.label, owner.kind)) for owner in owners)
    return [
        owner._replace(look=next(unused) if look is None else look) for owner, look in zip(owners, looks, strict=True)
    ]


def _pod_entry(view: NodeView, pod: AdmissionPod, *, pooled: bool) -> PodEntry:
    held: dict[tuple[str, tuple[int, ...]], int] = {}
    devices: list[str] = []
    for block in view.booked(pod.uid, [container.name for container in pod.containers]):
        key = block.type, tuple(block.numa_affinity or ())
        held[key] = held.get(key, 0) + block.size
    for container in pod.containers:
        devices += [name for ids in view.devices_of(pod.uid, container.name).values() for name in ids]
    memory = "; ".join(
        f"{format_bytes(size)} {kind} on NUMA {','.join(map(str, nodes))}"
        for (kind, nodes), size in held.items()
        if size
    )
    pod_cpus = view.pod_cpus.get(pod.uid, 0)
    return PodEntry(label_of(pod), pod.qos, pod_cpus, memory, ", ".join(devices), _cgroup(pod), pooled)


def _cgroup(pod: AdmissionPod) -> str:
    """Return the path of the pod's cgroup; empty for a claim, and for a pod without a UID in its manifest, whose UID is
    made from its name."""
    made_up = label_of(pod).replace("/", ".")
    return "" if pod.holds_claim or f"{pod.uid}.".startswith(f"{made_up}.") else pod_cgroup_path(pod.uid, pod.qos)


def label_of(pod: AdmissionPod) -> str:
    """Return the name of a pod or of the holder of a claim."""
    metadata = pod.spec.metadata
    if pod.holds_claim:
        named = metadata.namespace == HOLDER_NAMESPACE
        return f"claim {metadata.name.replace('.', '/', 1) if named else claim_uid_of_holder(pod.uid)}"
    return f"{metadata.namespace or 'default'}/{metadata.name or pod.uid}"


def _owners_of_pod(view: NodeView, pod: AdmissionPod, index: int) -> Iterator[Holder]:
    """Yield containers with CPUs of their own, init containers only for CPUs that no later container took over; then
    the pod's shared pool."""
    shared = 0
    taken = 0
    found: list[Holder] = []
    # Backwards: an init container owns only what the containers after it did not take over.
    for container in reversed(pod.containers):
        cpus = view.assignment(pod.uid, container.name)
        if cpus is None:
            continue
        if view.isolation(pod, container) == "pod":
            shared |= 0 if container.plain_init else cpus
            continue
        left = cpus & ~taken & ~shared if container.plain_init else cpus
        if left:
            taken |= cpus
            growth = left & ~view.promised(pod.uid, container.name)
            shares = view.shared_part(pod.uid, container.name)
            found.append(
                Holder(f"{label_of(pod)}/{container.name}", left, EXCLUSIVE, index, growth=growth, shares=shares)
            )
    yield from reversed(found)
    pod_cpus = view.pod_cpus.get(pod.uid, 0)
    shared = (shared or pod_cpus) & ~taken
    if shared:
        yield Holder(label_of(pod), shared, POD_SHARED, index, growth=shared & view.pod_loans.get(pod.uid, 0))


# Boxes


class _Painter:
    """Resolves the owner of each CPU of a node."""

    def __init__(
        self,
        topology: CPUTopology,
        reserved: Bits,
        owners: Iterable[Holder],
        pods: Iterable[PodEntry],
        before: Picture | None,
        classes: Iterable[tuple[str, Bits]] = (),
    ) -> None:
        self.topology = topology
        self.reserved = reserved
        self.owners = tuple(owners)
        self.owner_of = {cpu: index for index, owner in enumerate(self.owners) for cpu in iter_bits(owner.cpus)}
        self.pod_of = {cpu: index for index, pod in enumerate(pods) for cpu in iter_bits(pod.pod_cpus)}
        self.class_of = {cpu: name for name, cpus in classes for cpu in iter_bits(cpus)}
        self.before = None if before is None else {cpu.id: _holder(before, cpu) for cpu in before.cpus()}

    def cpu(self, cpu: int) -> CPU:
        owner = self.owner_of.get(cpu)
        kind = self.owners[owner].kind if owner is not None else RESERVED if self.reserved >> cpu & 1 else SHARED
        growth = owner is not None and bool(self.owners[owner].growth >> cpu & 1)
        drawn = CPU(cpu, kind, owner, self.pod_of.get(cpu), False, growth, self.class_of.get(cpu, ""))
        if self.before is None:
            return drawn
        label = self.owners[owner].label if owner is not None else kind
        return drawn._replace(changed=self.before.get(cpu) != label)

    def caches(self, cpus: Bits) -> tuple[CacheBox, ...]:
        topology = self.topology
        groups = [(key, bits & cpus) for key, bits in topology.uncore_caches.items() if bits & cpus]
        # One cache for the whole box says nothing that the box does not.
        shown = len(groups) > 1
        return tuple(CacheBox(key, bits, shown, tuple(self._cores(bits))) for key, bits in groups)

    def _cores(self, cpus: Bits) -> Iterator[CoreBox]:
        for key, bits in self.topology.cores.items():
            if bits & cpus:
                yield CoreBox(key, tuple(self.cpu(cpu) for cpu in iter_bits(bits & cpus)))


def _holder(picture: Picture, cpu: CPU) -> str:
    return cpu.kind if cpu.owner is None else picture.owners[cpu.owner].label


def _numa_box(view: NodeView, node: int, cpus: Bits, free: int | None, painter: _Painter) -> NUMABox:
    return NUMABox(node, cpus, free, painter.caches(cpus), tuple(_memory(view, node)), tuple(_devices(view, node)))


def _memory(view: NodeView, node: int) -> Iterator[Memory]:
    if view.binds_memory:
        tables = view.memory[node].memory_map or {}
        for name in sorted(tables, reverse=True):
            table = tables[name]
            if name != "memory" and not table.allocatable + table.system_reserved:
                continue
            yield Memory(name, table.allocatable + table.system_reserved, table.system_reserved, table.reserved)
        return
    found = next(n for n in view.machine.nodes if n.id == node)
    yield Memory("memory", found.memory, 0, None)


def _devices(view: NodeView, node: int | None) -> Iterator[DeviceBox]:
    """Yield the devices of a NUMA node; those of several nodes belong to the first. None: devices without a node."""
    holders = {
        (resource, name): _name(view, uid)
        for uid, named in view.device_ids.items()
        for container in named
        for resource, names in view.devices_of(uid, container).items()
        for name in names
    }
    for resource in view.devices.resources:
        for device in resource.devices:
            home = min(device.numa) if device.numa else None
            if home == node:
                owner = holders.get((resource.resource, device.id), "")
                yield DeviceBox(resource.resource, device.id, device.healthy, owner)


def _name(view: NodeView, uid: str) -> str:
    pod = view.pods.get(uid)
    return uid if pod is None else label_of(pod)


def tip(picture: Picture, cpu: CPU) -> str:
    """Return the tooltip of a CPU: id, owner, its CPUs, cgroup."""
    if cpu.owner is None:
        text = f"CPU {cpu.id}: {'reserved for the system' if cpu.kind == RESERVED else 'shared pool of the node'}"
    else:
        owner = picture.owners[cpu.owner]
        text = f"CPU {cpu.id}: {owner.label} ({owner.kind}: {format_bits(owner.cpus)})"
        cgroup = picture.pods[owner.pod].cgroup
        text += f"\n{cgroup}" if cgroup else ""
        text += "\nbeyond what was promised at its admission" if cpu.growth else ""
        text += f"\nits owner runs on shared CPUs {format_bits(owner.shares)} too" if owner.shares else ""
    if cpu.pod is not None:
        pod = picture.pods[cpu.pod]
        text += f"\namong the CPUs of {pod.label} ({format_bits(pod.pod_cpus)})"
    text += f"\nclass {cpu.cpu_class}" if cpu.cpu_class else ""
    return text + ("\nchanged" if cpu.changed else "")
