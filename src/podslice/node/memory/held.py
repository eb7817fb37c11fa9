"""What a Memory Manager holds already, as hints for the same pod (memory-device 1.7)."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.api.pod.memory_demand import Amounts
from podslice.machine.memory import Block
from podslice.node.topology.hintset import HintSet, ProviderHints
from podslice.values.cpuset import bits_of


def held_blocks_as_hints(blocks: tuple[Block, ...], request: Amounts) -> ProviderHints:
    """Hints from blocks that are held already; None when they do not match the request."""
    if len(blocks) != len(request) or any(request.get(block.type) != block.size for block in blocks):
        return None
    return {block.type: HintSet.only(bits_of(block.numa_affinity or ())) for block in blocks}


def held_by_pod(held: Mapping[str, tuple[Block, ...]], request: Amounts) -> ProviderHints:
    """The nodes all containers of the pod are on; None when they are on different ones."""
    masks = {bits_of(block.numa_affinity or ()) for blocks in held.values() for block in blocks}
    if len(masks) != 1:
        return None
    return dict.fromkeys(request, HintSet.only(masks.pop()))
