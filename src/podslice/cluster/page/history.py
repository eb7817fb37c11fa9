"""The fragmentation of free CPUs over time, in bounded memory: older points are farther apart."""

from __future__ import annotations

from podslice.cluster.model.model import ClusterModel
from podslice.cluster.model.room import SIZES, Room, measure_room
from podslice.cluster_view.answers import ClusterFragmentation, FragmentationPoint, ScatteredNode, SizeRoom

MOST_POINTS = 360
MOST_SCATTERED = 20
SAMPLE_SECONDS = 30.0


def measure_room_now(model: ClusterModel) -> Room:
    """Measure the room on all nodes that take pods."""
    kinds = (kind.rules.cpu for kind in model.classes.numbered)
    ownable = [(cpu.topology.all_cpus & ~cpu.reserved).bit_count() if cpu.static else 0 for cpu in kinds]
    return measure_room(model.verdicts.table, ownable, most=MOST_SCATTERED)


class FragmentationHistory:
    """The points so far. Where there are too many, every second one of the older half is dropped."""

    def __init__(self, most: int = MOST_POINTS) -> None:
        self._most = most
        self.points: list[FragmentationPoint] = []

    def take(self, room: Room, at: float) -> None:
        """Add a point at a Unix time. Where the clock was set back, points of the future are dropped."""
        if self.points and self.points[-1].at > at:
            self.points = [point for point in self.points if point.at <= at]
        self.points.append(_point(room, at))
        if len(self.points) > self._most:
            half = len(self.points) // 2
            self.points = self.points[:half:2] + self.points[half:]

    def document(self, room: Room, at: float) -> ClusterFragmentation:
        """Return the document, with a last point for now that is not kept."""
        percent = round(100 * (room.free - room.largest) / room.free) if room.free else 0
        sizes = (SizeRoom(*one) for one in zip(SIZES, room.pods, room.usable, strict=True))
        scattered = tuple(ScatteredNode(*one) for one in room.scattered)
        return ClusterFragmentation(room.nodes, percent, tuple(sizes), (*self.points, _point(room, at)), scattered)


def _point(room: Room, at: float) -> FragmentationPoint:
    return FragmentationPoint(round(at, 1), room.cpus, room.cpus - room.free, room.free, room.largest, room.usable)
