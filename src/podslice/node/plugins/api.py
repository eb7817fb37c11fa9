"""The interface of plugins of the CPU Manager: their arguments and their answers (docs/plugins.md).

Everything here is a value. A plugin that keeps its arguments keeps a past state; nothing that it does to them changes a
node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from podslice.api.pod.eligibility import AdmissionContainer, AdmissionPod
from podslice.machine.model import CPUTopology, Machine
from podslice.node.cpu.state import CPUState
from podslice.values.cpuset import Bits, format_bits

ContainerKind: TypeAlias = Literal["app", "init", "sidecar", "bubble"]
Operation: TypeAlias = Literal["admit", "resize", "restart"]
Layer: TypeAlias = tuple[Bits, int]
"""CPUs, and the points that each of them gets."""
NOTHING: Mapping[str, str] = MappingProxyType({})


class AskingPod(NamedTuple):
    """The pod that requests or owns CPUs, as plugins see it; `owners` are the kinds of its owner references."""

    uid: str
    namespace: str
    name: str
    labels: Mapping[str, str]
    annotations: Mapping[str, str]
    qos: str
    priority: int
    priority_class: str
    owners: tuple[str, ...]

    @classmethod
    def of(cls, pod: AdmissionPod, *, named: bool = True) -> AskingPod:
        """Return a pod under admission as plugins see it; without `named` everything that identifies it is left out."""
        metadata, spec = pod.spec.metadata, pod.spec.spec
        if not named:
            return cls("", "", "", NOTHING, NOTHING, pod.qos, spec.priority or 0, spec.priority_class_name, ())
        return cls(
            pod.uid,
            metadata.namespace or "default",
            metadata.name,
            MappingProxyType(metadata.labels) if metadata.labels else NOTHING,
            MappingProxyType(metadata.annotations) if metadata.annotations else NOTHING,
            pod.qos,
            spec.priority or 0,
            spec.priority_class_name,
            tuple(owner.kind for owner in metadata.owner_references or ()),
        )


# Records of requests keep the older name "bubble".
class CPUAsk(msgspec.Struct, frozen=True, rename={"of_pod_cpus": "of_bubble"}):
    """A request for CPUs for one container, or for a pod as a whole (kind `bubble`, container empty).

    `count`: how many it is to have in all. `anchor`: CPUs that are among them in any case. `baseline`: those promised
    at the first admission. `whole_cores`: only whole cores are given away. `of_pod_cpus`: a slice of the pod's CPUs.
    `classes`: the CPU classes that it may get, best first; `classes_required`: no other class will do. `shared`:
    thousandths of a CPU that it takes of shared ones besides. `memo`: the plugin's own note on the container, passed to
    Allocate after a restart and a resize, and to Deallocate.
    """

    pod: AskingPod
    container: str
    kind: ContainerKind
    operation: Operation
    count: int
    anchor: Bits = 0
    baseline: Bits = 0
    whole_cores: bool = False
    of_pod_cpus: bool = False
    classes: tuple[str, ...] = ()
    classes_required: bool = False
    shared: int = 0
    memo: str = ""


class CPUOwner(NamedTuple):
    """A container that owns CPUs, or a pod where `container` is empty."""

    pod: AskingPod
    container: str
    cpus: Bits


class CPUMachine:
    """The machine of a node: CPUs by the id of what they belong to, and known facts of single CPUs and of PCI devices.

    `core_types` by name (`performance`, `efficiency`), `classes` those of the policy. `capacities` and
    `max_frequencies` (kHz) only for CPUs that report them.
    """

    __slots__ = (
        "_known",
        "all_cpus",
        "caches",
        "capacities",
        "classes",
        "core_of",
        "core_types",
        "cores",
        "dies",
        "distances",
        "isolated",
        "max_frequencies",
        "nohz_full",
        "numa_nodes",
        "numa_of",
        "pci_devices",
        "rcu_nocbs",
        "sockets",
    )

    def __init__(
        self, machine: Machine, topology: CPUTopology, classes: Mapping[str, Bits] = MappingProxyType({})
    ) -> None:
        self.all_cpus = topology.all_cpus
        self.numa_nodes = MappingProxyType(topology.numa_nodes)
        self.sockets = MappingProxyType(topology.sockets)
        self.cores = MappingProxyType(topology.cores)
        self.caches = MappingProxyType(topology.uncore_caches)
        self.core_of = MappingProxyType(topology.core_of)
        self.numa_of = MappingProxyType(topology.numa_of)
        self.dies = tuple(group.cpus.bits for group in machine.groups_of("die"))
        self.distances = MappingProxyType({node.id: node.distances or () for node in machine.nodes})
        self.core_types = MappingProxyType({one.name: one.cpus.bits for one in machine.core_types})
        self.capacities = MappingProxyType(
            {cpu: one.capacity for one in machine.core_types if one.capacity for cpu in one.cpus}
        )
        self.max_frequencies = MappingProxyType({cpu: one.khz for one in machine.max_frequencies for cpu in one.cpus})
        self.isolated = machine.isolated.bits
        self.nohz_full = machine.nohz_full.bits
        self.rcu_nocbs = machine.rcu_nocbs.bits
        self.pci_devices = machine.pci_devices
        self.classes = MappingProxyType(dict(classes))
        self._known = True

    def __setattr__(self, name: str, value: object) -> None:
        if getattr(self, "_known", False):
            raise AttributeError(f"a machine does not change: {name}")
        super().__setattr__(name, value)


class CPUNode:
    """A node at one moment. `free`: CPUs that can be given away, `default`: those that are shared, `reserved`: those
    kept for the system. Owners are there only for plugins with `sees_owners`."""

    __slots__ = ("_named", "_owners", "_pods", "_state", "default", "free", "machine", "reserved")

    def __init__(
        self,
        machine: CPUMachine,
        *,
        free: Bits,
        default: Bits,
        reserved: Bits,
        state: CPUState | None = None,
        pods: Mapping[str, AdmissionPod] | None = None,
        named: bool = True,
    ) -> None:
        self._named = named
        self.machine = machine
        self.free = free
        self.default = default
        self.reserved = reserved
        self._state = state
        self._pods = pods or {}
        self._owners: tuple[CPUOwner, ...] | None = None

    @property
    def owners(self) -> tuple[CPUOwner, ...]:
        """All owners of CPUs, in the order of their lowest CPU."""
        if self._owners is None:
            self._owners = tuple(sorted(self._iter_owners(), key=_lowest_first))
        return self._owners

    def owner_of(self, cpu: int) -> CPUOwner | None:
        """Return the owner of this CPU, a container rather than its pod; None where it has none."""
        found = self.owners_on(1 << cpu)
        return max(found, key=lambda one: bool(one.container)) if found else None

    def owners_on(self, cpus: Bits) -> tuple[CPUOwner, ...]:
        """Return the owners of some of these CPUs."""
        return tuple(one for one in self.owners if one.cpus & cpus)

    def after(self, moves: Iterable[CPUMove]) -> CPUNode:
        """Return the node once containers have moved. Raises `ValueError` for a move that cannot be made."""
        if not self._named:
            raise ValueError("a plugin that moves containers must say sees_pods and sees_owners")
        owners, free = list(self.owners), self.free
        for move in moves:
            place = next(
                (n for n, one in enumerate(owners) if (one.pod.uid, one.container) == (move.uid, move.container)), None
            )
            if place is None or not move.container:
                raise ValueError(f"{move.container or 'the whole'} of pod {move.uid} owns no CPUs")
            held = owners[place].cpus
            if move.cpus.bit_count() != held.bit_count() or move.cpus & ~(free | held):
                raise ValueError(f"{move.container} cannot go from {format_bits(held)} to {format_bits(move.cpus)}")
            free = (free | held) & ~move.cpus
            owners[place] = owners[place]._replace(cpus=move.cpus)
        default = (self.default & ~self.free) | free
        made = CPUNode(self.machine, free=free, default=default, reserved=self.reserved, named=self._named)
        made._owners = tuple(sorted(owners, key=_lowest_first))
        return made

    def _iter_owners(self) -> Iterable[CPUOwner]:
        """Yield the owners, pods with pod CPUs before their containers."""
        if self._state is None:
            return
        for uid, pod in self._pods.items():
            own, pod_cpus = self._state.assignments.get(uid), self._state.pod_cpus.get(uid)
            if not own and not pod_cpus:
                continue
            asking = AskingPod.of(pod, named=self._named)
            if pod_cpus:
                yield CPUOwner(asking, "", pod_cpus)
            for name, cpus in (own or {}).items():
                yield CPUOwner(asking, name, cpus)


def _lowest_first(one: CPUOwner) -> tuple[Bits, str]:
    return one.cpus & -one.cpus, one.container


class Shortage(NamedTuple):
    """Filters leave too few CPUs: `missing` more are needed. `filtered`: the CPUs each plugin removed."""

    missing: int
    left: Bits
    filtered: Mapping[str, Bits]


class Relax(NamedTuple):
    """Ignore the filter of this plugin, which must be soft."""

    plugin: str


class Wait(NamedTuple):
    """Try the pod again later; `text` says when."""

    text: str


class CPUMove(NamedTuple):
    """Move the container of a running pod from the CPUs it owns to as many others; `cpus` are all that it then has."""

    uid: str
    container: str
    cpus: Bits


class Moves(NamedTuple):
    """Moves of containers, one after the other, after which the request would fit. The pod is refused all the same; a
    plan that makes room for it begins with these moves. Only from a plugin that sees pods and owners."""

    moves: tuple[CPUMove, ...]


Remedy: TypeAlias = Relax | Wait | Moves


class CPUEffects(msgspec.Struct, frozen=True):
    """Effects of a grant on a container: variables for its environment, names of a power profile and of a cache class,
    the requested handling of interrupts, and a note that the plugin keeps, at most 4 KiB."""

    environment: dict[str, str] = {}
    power_profile: str = ""
    cache_class: str = ""
    irq: str = ""
    memo: str = ""


class CPUPlugin:
    """Base class of plugins. They override any of the methods; methods that are not overridden are not called.

    Every method is a function of its arguments: no clock, files, randomness, globals, nor the order of a set. `soft`: a
    Filter that may be relaxed. `sees_pods`: it reads names, labels, annotations and owners of pods, `sees_owners`: it
    reads the owners of CPUs; a plugin without them gets neither. `version` changes with every change of its decisions:
    processes with other versions do not answer for each other's nodes.
    """

    version: str = "1"
    soft: bool = False
    sees_pods: bool = False
    sees_owners: bool = False

    def sort_key(self, pod: AskingPod) -> tuple[int, ...]:
        """Sort: pods that wait together are tried in ascending order."""
        raise NotImplementedError

    def filter(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Bits:
        """Filter: return those of `cpus` that this container may get, whatever `ask.count` is."""
        raise NotImplementedError

    def post_filter(self, ask: CPUAsk, node: CPUNode, short: Shortage) -> Remedy | None:
        """PostFilter: return a remedy where the filtered CPUs are too few, None for none."""
        raise NotImplementedError

    def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
        """PreScore: return points for CPUs, -1 000 000 to 1 000 000 each layer."""
        raise NotImplementedError

    def select(
        self, ask: CPUAsk, cpus: Bits, mask: Bits | None, layers: tuple[Layer, ...], node: CPUNode
    ) -> Iterable[Bits]:
        """Select: return sets of exactly `ask.count` CPUs within `cpus`, the anchor included, best first. `mask`: the
        NUMA nodes of the affinity."""
        raise NotImplementedError

    def score(self, ask: CPUAsk, candidate: Bits, node: CPUNode) -> int:
        """Score: return 0 to 100 for a whole set."""
        raise NotImplementedError

    def allocate(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> CPUEffects | None:
        """Allocate: return the effects on a container that has got the CPUs."""
        raise NotImplementedError

    def deallocate(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> CPUEffects | None:
        """Deallocate: return the effects on a container that has released these CPUs."""
        raise NotImplementedError


Factory: TypeAlias = Callable[[Mapping[str, object], CPUMachine], CPUPlugin]
"""Make a plugin from the arguments in the policy, once per node. Raises `ValueError` for wrong arguments."""


def kind_of(container: AdmissionContainer) -> ContainerKind:
    """Return the kind of a container."""
    if container.restartable:
        return "sidecar"
    return "init" if container.init else "app"
