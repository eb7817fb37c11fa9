"""The devices of plugins at a kubelet that decides by itself, from its PodResources API."""

from __future__ import annotations

from pathlib import Path

from podslice.machine.devices import MOST_NUMA_NODES, Device, DeviceInventory, DeviceResource
from podslice.service.kubeletresources import KubeletResources, UpstreamError
from podslice.service.proto import podresources_pb2 as api
from podslice.values.errors import InputError

SOCKET = Path("pod-resources", "kubelet.sock")


class ObservedDevices:
    """Reads the devices of the kubelet with this folder."""

    def __init__(self, folder: Path) -> None:
        self._kubelet = KubeletResources(folder / SOCKET)

    async def read(self) -> DeviceInventory:
        """Return its healthy devices; none where it has no socket. Raises `InputError` where it does not answer."""
        if not self._kubelet.path.exists():
            return DeviceInventory()
        try:
            return inventory_of(await self._kubelet.allocatable())
        except UpstreamError as error:
            raise InputError(str(error), source=str(self._kubelet.path), remedy="is the kubelet running?") from None


def inventory_of(answer: api.AllocatableResourcesResponse) -> DeviceInventory:
    """Return the allocatable devices, sorted by resource and id: the kubelet lists them in another order each time."""
    found: dict[str, dict[str, set[int] | None]] = {}
    for one in answer.devices:
        nodes = {node.ID for node in one.topology.nodes if 0 <= node.ID < MOST_NUMA_NODES}
        for name in one.device_ids:
            known = found.setdefault(one.resource_name, {}).get(name)
            found[one.resource_name][name] = (known or set()) | nodes if one.HasField("topology") else known
    return DeviceInventory(
        tuple(
            DeviceResource(
                resource,
                tuple(
                    Device(name, None if nodes is None else tuple(sorted(nodes)))
                    for name, nodes in sorted(devices.items())
                ),
            )
            for resource, devices in sorted(found.items())
        )
    )
