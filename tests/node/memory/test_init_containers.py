"""Memory of init containers: who still runs, and who takes it over."""

from __future__ import annotations

from podslice.machine.memory import Block
from podslice.node.memory.reuse import shrink_init_blocks
from tests.node.memory.helpers import STATE, admit, machine, manager, memory, pod, sizes

GIB = 1 << 30


def test_a_running_init_container_has_not_ended() -> None:
    """The state file is lost while the init container runs: it gets its memory again, and the app after it reuses it.
    Once the app was started as well, the init container has ended and gets nothing."""
    wanted = pod("p", memory("3Gi"), init=(memory("2Gi"),))
    for started, expected in (("i0",), {"i0", "c0"}), (("i0", "c0"), {"c0"}):
        lost = manager(machine(8))
        lost.start(None, {f"id-{name}": ("p", name) for name in started}, STATE)
        lost.context.sources_ready = False
        assert admit(lost, wanted) == ""
        assert set(sizes(lost, "p")) == expected


def test_what_is_taken_over_is_taken_off_once() -> None:
    """Two ended init containers hold 2 GiB each on one node. An app that takes over 2 GiB has them from the first,
    3 GiB from both, and those on another node are not touched."""
    two = pod("p", memory("2Gi"), init=(memory("2Gi"), memory("2Gi")))
    app = two.containers[-1]

    def left(*sizes: int) -> list[list[int]]:
        entries = {"i0": (Block((0,), "memory", 2 * GIB),), "i1": (Block((0,), "memory", 2 * GIB),)}
        blocks = [Block((0,), "memory", size * GIB) for size in sizes]
        shrunk = shrink_init_blocks(two, app, blocks, entries)
        return [[block.size // GIB for block in shrunk[name]] for name in ("i0", "i1")]

    assert left(2) == [[0], [2]]
    assert left(3) == [[0], [1]]
    elsewhere = {"i0": (Block((1,), "memory", 2 * GIB),)}
    assert shrink_init_blocks(two, app, [Block((0,), "memory", GIB)], elsewhere) == elsewhere
