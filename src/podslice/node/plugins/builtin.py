"""Built-in plugins: worked examples of every point, and useful as they are (docs/plugins.md)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

from podslice.machine.model import PCIDevice
from podslice.node.plugins.api import CPUAsk, CPUMachine, CPUNode, CPUPlugin, Factory, Layer
from podslice.node.plugins.arguments import Arguments
from podslice.node.plugins.profile import STATIC
from podslice.values.cpuset import Bits, iter_bits, union

_MOST_CACHES = 4
"""Caches of which a set is offered."""


class StaticPlugin(CPUPlugin):
    """The CPU Manager's own choice. Its Select is the end of every profile, so naming it changes nothing."""

    def __init__(self, arguments: Mapping[str, object], machine: CPUMachine) -> None:
        Arguments(arguments).end()


class Classes(CPUPlugin):
    """CPUs by the classes that a container requests, best first; `cpuClasses` implies it. Slices of a pod's own CPUs
    are only ordered."""

    def __init__(self, ownable: Mapping[str, Bits]) -> None:
        self.ownable = dict(ownable)

    def filter(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Bits:
        return cpus & union(self.ownable.get(name, 0) for name in ask.classes)

    def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
        return tuple(
            (node.machine.classes[name], -1000 * place)
            for place, name in enumerate(ask.classes)
            # The first class needs no layer: CPUs in no layer have 0, more than those of every later class.
            if place and name in node.machine.classes
        )


class Neighbours(CPUPlugin):
    """Keeps containers with the same value of a label apart: not on one core, cache or NUMA node."""

    sees_pods = True
    sees_owners = True

    def __init__(self, arguments: Mapping[str, object], machine: CPUMachine) -> None:
        given = Arguments(arguments)
        self.label = given.text("groupLabel")
        levels = {"core": machine.cores, "l3": machine.caches, "numa": machine.numa_nodes}
        self.objects = levels[given.choice("level", tuple(levels), "core")]
        given.choice("avoid", ("same",), "same")
        given.end()

    def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
        # One layer of -1 is enough: it only orders, and the CPUs outside of it come first.
        crowded = self._crowded_objects(ask, node) & cpus
        return ((crowded, -1),) if crowded else ()

    def score(self, ask: CPUAsk, candidate: Bits, node: CPUNode) -> int:
        return 100 * (candidate & ~self._crowded_objects(ask, node)).bit_count() // (candidate.bit_count() or 1)

    def _crowded_objects(self, ask: CPUAsk, node: CPUNode) -> Bits:
        """Return the CPUs of objects that hold a container of the same group already."""
        group = ask.pod.labels.get(self.label)
        if group is None:
            return 0
        taken = union(
            one.cpus for one in node.owners if one.pod.labels.get(self.label) == group and one.pod.uid != ask.pod.uid
        )
        return union(there for there in self.objects.values() if there & taken)


class BalanceNUMA(CPUPlugin):
    """Spreads pods over NUMA nodes: the fuller the fullest node would be, the fewer points."""

    def __init__(self, arguments: Mapping[str, object], machine: CPUMachine) -> None:
        Arguments(arguments).end()

    def score(self, ask: CPUAsk, candidate: Bits, node: CPUNode) -> int:
        left = node.free & ~candidate
        return min(
            (100 * (left & cpus).bit_count() // cpus.bit_count() for cpus in node.machine.numa_nodes.values()),
            default=0,
        )


class PackCaches(CPUPlugin):
    """Cache-aware packing: a container that fits one L3 cache gets the one that it leaves fullest, so that large holes
    stay whole. Select offers a set of each of the fullest caches, Score prefers sets that keep cores, caches and NUMA
    nodes whole."""

    def __init__(self, arguments: Mapping[str, object], machine: CPUMachine) -> None:
        Arguments(arguments).end()
        self.whole = _WholeObjects(machine)
        self.caches = tuple(machine.caches.values())

    def select(
        self, ask: CPUAsk, cpus: Bits, mask: Bits | None, layers: tuple[Layer, ...], node: CPUNode
    ) -> Iterable[Bits]:
        # Layers of other plugins order the CPUs; a set that ignores them would undo what they ask for.
        if ask.anchor or layers:
            return
        rooms = [free for cache in self.caches if (free := cache & cpus).bit_count() >= ask.count]
        whole = self.whole.numa_nodes(node.free) if rooms else 0
        offered = 0
        for _, _, free in sorted([(free.bit_count(), bool(free & whole), free) for free in rooms]):
            if offered < _MOST_CACHES:
                chosen = _whole_first(node.machine, free, ask.count)
                if chosen.bit_count() == ask.count:
                    offered += 1
                    yield chosen

    def score(self, ask: CPUAsk, candidate: Bits, node: CPUNode) -> int:
        return self.whole.score_kept(node.free, candidate)


class KeepWhole(CPUPlugin):
    """Keeps the largest holes whole: the more wholly free cores, caches and NUMA nodes a set breaks, the fewer
    points."""

    def __init__(self, arguments: Mapping[str, object], machine: CPUMachine) -> None:
        Arguments(arguments).end()
        self.whole = _WholeObjects(machine)

    def score(self, ask: CPUAsk, candidate: Bits, node: CPUNode) -> int:
        return self.whole.score_kept(node.free, candidate)


class _WholeObjects:
    """Cores, caches and NUMA nodes that are free as a whole, worth 1, 4 and 16; counted once for each set of free CPUs,
    because all candidates of a pick are judged against the same one."""

    def __init__(self, machine: CPUMachine) -> None:
        self._levels = tuple(
            (worth, tuple(objects.values()), {cpu: one for one in objects.values() for cpu in iter_bits(one)})
            for worth, objects in ((1, machine.cores), (4, machine.caches), (16, machine.numa_nodes))
        )
        self._of: Bits | None = None
        self._total = 0
        self._whole: tuple[Bits, ...] = ()

    def numa_nodes(self, free: Bits) -> Bits:
        """Return the CPUs of NUMA nodes that are free as a whole."""
        self._count(free)
        return self._whole[-1]

    def score_kept(self, free: Bits, chosen: Bits) -> int:
        """Return how much of the worth stays whole without these CPUs, of 100."""
        self._count(free)
        if not self._total:
            return 100
        lost = 0
        for (worth, _, object_of), whole in zip(self._levels, self._whole, strict=True):
            left = chosen & whole
            while left:
                # `left & -left` is the lowest set bit. Its object is taken out as a whole, so each broken one counts
                # once.
                left &= ~object_of[(left & -left).bit_length() - 1]
                lost += worth
        return 100 * (self._total - lost) // self._total

    def _count(self, free: Bits) -> None:
        """Find the objects that are wholly free and their total worth, unless they are known for these CPUs."""
        if free == self._of:
            return
        self._of, self._total, found = free, 0, []
        for worth, objects, _ in self._levels:
            mine = [cpus for cpus in objects if cpus & free == cpus]
            self._total += worth * len(mine)
            found.append(union(mine))
        self._whole = tuple(found)


def _whole_first(machine: CPUMachine, free: Bits, count: int) -> Bits:
    """Return CPUs of one cache: whole cores first, and of the rest the cores that are broken already."""
    chosen, missing = 0, count
    broken = 0
    left = free
    while left and missing:
        core = machine.cores[machine.core_of[(left & -left).bit_length() - 1]] & left
        left &= ~core
        if core.bit_count() <= missing and machine.cores[machine.core_of[(core & -core).bit_length() - 1]] == core:
            chosen |= core
            missing -= core.bit_count()
        else:
            broken |= core
    while missing and broken:
        low = broken & -broken
        chosen, broken, missing = chosen | low, broken ^ low, missing - 1
    return chosen


class SpreadPower(CPUPlugin):
    """Thermal and power spread: CPUs of sockets and dies with more free CPUs first, and cores whose siblings have no
    owner before others, so that heat and turbo are shared evenly."""

    def __init__(self, arguments: Mapping[str, object], machine: CPUMachine) -> None:
        Arguments(arguments).end()
        self.places = machine.dies or tuple(machine.sockets.values())
        self.cores = tuple(machine.cores.values())

    def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
        layers = [
            (there & cpus, 1000 * (there & node.free).bit_count() // there.bit_count())
            for there in self.places
            if there & cpus
        ]
        owned = node.machine.all_cpus & ~node.default
        busy = union(core for core in self.cores if core & owned)
        if busy & cpus:
            layers.append((busy & cpus, -1))
        return tuple(layers)


class NearDevices(CPUPlugin):
    """CPUs of the NUMA nodes of named devices first, then those of the same sockets: for pods that use a network card
    or a disk without requesting it from a device plugin. `devices` are globs of PCI addresses and network interfaces;
    one that the machine lacks has no effect. `labels`: only for pods that have these."""

    def __init__(self, arguments: Mapping[str, object], machine: CPUMachine) -> None:
        given = Arguments(arguments)
        names = given.texts("devices")
        self.labels = given.labels("labels")
        given.end()
        # The answers of plugins that see no pods are shared between pods; only labels make a difference here.
        self.sees_pods = bool(self.labels)
        found = [one for one in machine.pci_devices if any(_matches_glob(one, name) for name in names)]
        nodes = [machine.numa_nodes.get(one.numa_node, 0) for one in found]
        self.near = union(nodes)
        self.sockets = union(cpus for cpus in machine.sockets.values() if cpus & self.near)
        self.layers = tuple((cpus, nodes.count(cpus)) for cpus in dict.fromkeys(nodes) if cpus)
        # Where the near NUMA nodes are whole sockets, a second layer of the same CPUs would say nothing.
        if self.sockets != self.near:
            self.layers += ((self.sockets, 1),)

    def prescore(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> tuple[Layer, ...]:
        return self.layers if self._applies_to(ask) else ()

    def score(self, ask: CPUAsk, candidate: Bits, node: CPUNode) -> int:
        if not self._applies_to(ask):
            return 0
        # CPUs of a near NUMA node are in its socket, too, so they count twice: 100 of 100 points.
        near, not_far = (candidate & self.near).bit_count(), (candidate & self.sockets).bit_count()
        return 50 * (near + not_far) // (candidate.bit_count() or 1)

    def _applies_to(self, ask: CPUAsk) -> bool:
        return all(ask.pod.labels.get(key) == value for key, value in self.labels.items())


def _matches_glob(device: PCIDevice, glob: str) -> bool:
    return any(fnmatchcase(name, glob) for name in (device.address, *device.interfaces))


BUILT_IN: Mapping[str, Factory] = {
    STATIC: StaticPlugin,
    "neighbours": Neighbours,
    "balance-numa": BalanceNUMA,
    "keep-whole": KeepWhole,
    "pack-caches": PackCaches,
    "spread-power": SpreadPower,
    "near-devices": NearDevices,
}
