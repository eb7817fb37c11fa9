"""What would be: decisions on a copy of the node, of which nothing real hears.

Device plugins are programs that prepare devices when they are asked, so on the copy others stand in for them.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from podslice.api.pod.spec import Pod
from podslice.node.devices.plugin import SimulatedPlugin
from podslice.node.node import Node


def on_paper(node: Node) -> Node:
    """A copy that calls nobody."""
    copy = node.copy()
    state = copy.state
    device = state.device
    for resource, pool in device.pools.items():
        if pool.plugin is not None:
            prefers = pool.plugin.options.get_preferred_allocation_available
            plugin = SimulatedPlugin(preferred_allocation=prefers)
            device = device.with_pool(resource, replace(pool, plugin=plugin))
    if device is not state.device:
        copy.state = replace(state, device=device)
    return copy


def fits_without(node: Node, pod: Pod, units: Iterable[str]) -> bool:
    """True when the node would admit the pod once these pods, by UID, are gone."""
    copy = on_paper(node)
    for unit in units:
        copy.remove(unit)
    return copy.admit(pod).admitted
