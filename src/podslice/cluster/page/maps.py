"""Every node as a small map, drawn again only when the node changed, and sent only to clients with an older one.

Each `look` that finds changes makes a revision. Nodes in equal states share a map, so the cost is that of the changes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import TypeAlias

from podslice.cluster.model.classes import NodeKind
from podslice.cluster.model.holds import HeldNode
from podslice.cluster.model.signature_column import NOT_CONFIRMED
from podslice.cluster.page.slices import Slices
from podslice.cluster.placements import Placements
from podslice.cluster_view.answers import ClusterNodes, NodeTile
from podslice.values.cpuset import Bits, iter_bits

_MOST_GONE = 20_000
_MOST_DRAWN = 8192
_Zone: TypeAlias = "tuple[int, tuple[int, ...]]"


class NodeMaps:
    """The maps of all nodes. `boot` marks the revisions of this process."""

    def __init__(self, placing: Placements, boot: str) -> None:
        self._placing = placing
        self._boot = boot
        self._revision = 0
        self._clock = -1
        self._tiles: OrderedDict[str, tuple[int, NodeTile]] = OrderedDict()
        """Revision and map by name, the latest revision last."""
        self._gone: deque[tuple[int, str]] = deque(maxlen=_MOST_GONE)
        self._forgotten = 0
        """A client with an older revision than this gets everything."""
        self._orders: dict[int, tuple[NodeKind, tuple[_Zone, ...]]] = {}
        self._drawn: OrderedDict[tuple[int, int, int], tuple[str, ...]] = OrderedDict()

    async def look(self, slices: Slices) -> None:
        """Draw the maps of changed nodes, in slices."""
        placing, table = self._placing, self._placing.model.verdicts.table
        changed = set(table.names_written_since(self._clock))
        self._clock = table.clock
        nodes = placing.places.nodes
        new: list[NodeTile] = []
        # Copied, because nodes come and go while other work has the loop.
        for name, place in list(nodes.items()):
            known = self._tiles.get(name)
            if known is None or name in changed or known[1].cordoned != place.unschedulable:
                tile = self._tile(name)
                if tile is not None and (known is None or known[1] != tile):
                    new.append(tile)
            await slices.turn()
        self._put(new, [name for name in self._tiles if name not in nodes])

    def _put(self, new: Iterable[NodeTile], gone: Iterable[str]) -> None:
        tiles, left = list(new), list(gone)
        if not tiles and not left:
            return
        self._revision += 1
        for tile in tiles:
            self._tiles[tile.node] = self._revision, tile
            self._tiles.move_to_end(tile.node)
        for name in left:
            del self._tiles[name]
            if len(self._gone) == _MOST_GONE:
                # The oldest departure drops out of the queue, so earlier revisions cannot be completed any more.
                self._forgotten = self._gone[0][0]
            self._gone.append((self._revision, name))

    @property
    def revision(self) -> str:
        """The current revision."""
        return f"{self._boot}.{self._revision}"

    def since(self, revision: str) -> ClusterNodes:
        """Return the changes since a revision; everything for one that is too old or of another process."""
        boot, _, text = revision.partition(".")
        # The text is a client's: ASCII digits only, and not many of them.
        number = int(text) if boot == self._boot and text.isascii() and text.isdigit() and len(text) < 16 else -1
        if not self._forgotten <= number <= self._revision:
            tiles = tuple(tile for _, tile in self._tiles.values())
            return ClusterNodes(self.revision, whole=True, items=tiles, gone=())
        return ClusterNodes(
            self.revision,
            whole=False,
            items=tuple(self._newer(number)),
            # A node that left may be there again.
            gone=tuple(sorted({name for at, name in self._gone if at > number and name not in self._tiles})),
        )

    def _newer(self, number: int) -> Iterator[NodeTile]:
        for at, tile in reversed(self._tiles.values()):
            if at <= number:
                return
            yield tile

    # Drawing

    def _tile(self, name: str) -> NodeTile | None:
        place = self._placing.places.nodes.get(name)
        if place is None:
            return None
        node = self._placing.model.verdicts.nodes.get(name)
        if node is None:
            return NodeTile(name, NOT_CONFIRMED, place.unschedulable, ())
        problem, release = "" if node.confirmed else NOT_CONFIRMED, str(node.kind.rules.release)
        return NodeTile(name, problem, place.unschedulable, self._zones(node), release)

    def _zones(self, node: HeldNode) -> tuple[str, ...]:
        key = node.kind.number, node.base.number, node.state.number
        order = self._orders.get(node.kind.number)
        if order is None or order[0] is not node.kind:
            # Numbers of kinds are used again: then whatever was drawn may be of another kind.
            order = self._orders[node.kind.number] = node.kind, tuple(_zones_of(node.kind))
            self._drawn.clear()
        known = self._drawn.get(key)
        if known is None:
            known = self._drawn[key] = tuple(_runs(node, zone) for zone in order[1])
            if len(self._drawn) > _MOST_DRAWN:
                self._drawn.popitem(last=False)
        return known


def _zones_of(kind: NodeKind) -> Iterator[_Zone]:
    """Yield NUMA nodes with their CPUs in the order of cores."""
    topology = kind.rules.cpu.topology
    for number, cpus in sorted(topology.numa_nodes.items()):
        if cpus:
            yield number, tuple(sorted(iter_bits(cpus), key=lambda cpu: (topology.core_of[cpu], cpu)))


def _runs(node: HeldNode, zone: _Zone) -> str:
    letter = letter_of(node.kind, node.base.cpus, node.state.cpus)
    number, cpus = zone
    runs = (f"{len(list(run))}{kind}" for kind, run in groupby(map(letter, cpus)))
    return f"{number} {' '.join(runs)}"


def letter_of(kind: NodeKind, reported: Bits, expected: Bits) -> Callable[[int], str]:
    """Return a function that gives the letter of a CPU. `reported` is the shared pool in the node's own state,
    `expected` the one with the pods on their way."""
    if not kind.rules.cpu.static:
        return lambda cpu: "s"
    reserved = kind.rules.cpu.reserved

    def letter(cpu: int) -> str:
        bit = 1 << cpu
        if reserved & bit:
            return "r"
        if not reported & bit:
            return "o"
        return "f" if expected & bit else "c"

    return letter
