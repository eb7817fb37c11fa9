"""Trial decisions on a copy of the node, without effects.

Device plugins are programs that prepare devices when they are called, so simulated ones take their places on the copy.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec.structs import replace

from podslice.api.pod.spec import Pod
from podslice.node.devices.plugin import SimulatedPlugin
from podslice.node.node import Node


def copy_for_trial(node: Node) -> Node:
    """Return a copy of the node whose decisions call no plugin."""
    copy = node.copy()
    state = copy.state
    device = state.device
    for resource, pool in device.pools.items():
        if pool.plugin is not None:
            # A plugin without preferred allocations is not asked for one on the copy either, so the choice is the same.
            prefers = pool.plugin.options.get_preferred_allocation_available
            plugin = SimulatedPlugin(preferred_allocation=prefers)
            device = device.with_pool(resource, replace(pool, plugin=plugin))
    # A copy shares the node's state, which is never changed in place: only a pool with a plugin needs another one.
    if device is not state.device:
        copy.state = replace(state, device=device)
    return copy


def fits_without(node: Node, pod: Pod, units: Iterable[str]) -> bool:
    """Whether the node would admit the pod once the pods with these UIDs are gone."""
    copy = copy_for_trial(node)
    for unit in units:
        copy.remove(unit)
    return copy.admit(pod).admitted
