"""ResourceSlices of a machine (cluster-integration A.2)."""

from __future__ import annotations

from typing import Any

from podslice.dra.counters import add_counters
from podslice.dra.devices import EVERYTHING, ClaimableAmounts, machine_devices
from podslice.dra.names import DRIVER, pool_name
from podslice.machine.model import Machine

Json = dict[str, Any]
_MOST_DEVICES, _MOST_WITH_COUNTERS = 128, 64


def machine_slices(machine: Machine, node: str, amounts: ClaimableAmounts = EVERYTHING) -> list[Json]:
    """Return the slices of a node of that name; counters are in a slice of their own."""
    sets, devices = add_counters(machine_devices(machine, amounts))
    # The API server halves the devices of a slice as soon as one consumes counters (cluster-integration A.1.1).
    most = _MOST_WITH_COUNTERS if sets else _MOST_DEVICES
    # A slice has devices or counters, never both, so a pool with counters has two slices at least.
    parts: list[Json] = [{"sharedCounters": sets}] if sets else []
    parts += [{"devices": devices[first : first + most]} for first in range(0, len(devices), most)]
    width = len(f"{max(len(parts) - 1, 0):x}")
    pool = {"name": pool_name(node), "generation": 1, "resourceSliceCount": len(parts)}
    return [
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{index:0{width}x}-{DRIVER}-{node}"},
            "spec": {"driver": DRIVER, "nodeName": node, "pool": pool, **part},
        }
        for index, part in enumerate(parts)
    ]
