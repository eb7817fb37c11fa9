"""The device plugin as the Device Manager sees it, be it a gRPC peer, a simulation or a test.

The types follow the device plugin API v1beta1 (memory-device 2.2), reduced to what decides and what a container gets.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from podslice.values.errors import PodsliceError


class PluginError(PodsliceError):
    """Raised when a call to the plugin failed; the text is the error the kubelet would have got."""


class PluginOptions(msgspec.Struct, frozen=True):
    """DevicePluginOptions."""

    pre_start_required: bool = False
    get_preferred_allocation_available: bool = False


class Mount(msgspec.Struct, frozen=True):
    """A host path mounted into the container."""

    container_path: str
    host_path: str
    read_only: bool = False


class DeviceNode(msgspec.Struct, frozen=True):
    """A device file given to the container; `permissions` as in `rwm`."""

    container_path: str
    host_path: str
    permissions: str = ""


class AllocateResponse(msgspec.Struct, frozen=True):
    """ContainerAllocateResponse: what the container needs to use its devices."""

    envs: dict[str, str] = {}
    mounts: tuple[Mount, ...] = ()
    devices: tuple[DeviceNode, ...] = ()
    annotations: dict[str, str] = {}
    cdi_devices: tuple[str, ...] = ()


class RunOptions(AllocateResponse, frozen=True):
    """Options that all devices of a container add to its runtime request (memory-device 2.10): the first value of an
    environment variable wins, device files and mounts are unique by container path, CDI names by name."""

    @classmethod
    def combine(cls, responses: list[AllocateResponse]) -> RunOptions:
        """Return the options of one container from the responses for its resources."""
        envs: dict[str, str] = {}
        annotations: dict[str, str] = {}
        mounts: dict[str, Mount] = {}
        devices: dict[str, DeviceNode] = {}
        names: dict[str, None] = {}
        for response in responses:
            # The right operand wins, so what an earlier resource set stays.
            envs = response.envs | envs
            annotations = response.annotations | annotations
            mounts = {mount.container_path: mount for mount in response.mounts} | mounts
            devices = {device.container_path: device for device in response.devices} | devices
            names |= dict.fromkeys(response.cdi_devices)
        return cls(envs, tuple(mounts.values()), tuple(devices.values()), annotations, tuple(names))


class DevicePlugin(Protocol):
    """A plugin that serves one resource. Every call may raise `PluginError`."""

    @property
    def options(self) -> PluginOptions: ...

    def get_preferred_allocation(self, available: list[str], must_include: list[str], size: int) -> list[str] | None:
        """Return the `size` of the `available` ids that it prefers, the `must_include` ones among them."""

    def allocate(self, ids: list[str]) -> AllocateResponse | None:
        """Prepare devices for a container; None when the answer holds no container response."""

    def pre_start(self, ids: list[str]) -> None:
        """Prepare devices before the container starts; called only if the options require it."""


class SimulatedPlugin:
    """A plugin of devices that do not exist. It prefers the lowest ids in byte order, or has no preference."""

    def __init__(self, *, preferred_allocation: bool = True) -> None:
        self.options = PluginOptions(get_preferred_allocation_available=preferred_allocation)

    def get_preferred_allocation(self, available: list[str], must_include: list[str], size: int) -> list[str] | None:
        chosen = list(must_include)
        others = sorted(set(available) - set(must_include))
        return (chosen + others)[:size]

    def allocate(self, ids: list[str]) -> AllocateResponse | None:
        return AllocateResponse()

    def pre_start(self, ids: list[str]) -> None:
        return None
