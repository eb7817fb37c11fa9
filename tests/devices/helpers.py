"""A node with devices and nothing else, and pods that ask for them."""

from __future__ import annotations

from typing import Any

from podslice.core.errors import AdmissionError
from podslice.core.hints.hint import Hint
from podslice.core.machine.devices import Device
from podslice.core.managers.context import NodeContext
from podslice.core.managers.device_plugin import DevicePlugin, SimulatedPlugin
from podslice.core.managers.devices import DeviceManager
from podslice.core.pod.eligibility import AdmissionPod
from podslice.core.pod.spec import pod_from_dict
from podslice.core.quirks import PODSLICE, Quirks
from podslice.core.values.cpuset import bits_of
from podslice.core.values.gates import FeatureGates

GPU, NIC = "example.com/gpu", "example.com/nic"
ANYWHERE = Hint(None, True)


def near(*nodes: int) -> Hint:
    """A preferred affinity for these NUMA nodes."""
    return Hint(bits_of(nodes), True)


def gpus(*nodes: int | tuple[int, ...] | None, health: str = "Healthy") -> list[Device]:
    """Devices g0, g1, … on the given NUMA nodes; None for one without topology."""
    return [Device(f"g{i}", (node,) if isinstance(node, int) else node, health) for i, node in enumerate(nodes)]


def manager(
    devices: list[Device] | None = None,
    *,
    nodes: tuple[int, ...] = (0, 1),
    quirks: Quirks = PODSLICE,
    plugin: DevicePlugin | None = None,
    gates: dict[str, bool] | None = None,
) -> DeviceManager:
    """A Device Manager, with GPUs if `devices` is given."""
    built = DeviceManager(nodes, NodeContext(FeatureGates.from_overrides(gates or {}), quirks))
    built.start(None)
    if devices is not None:
        built.register(GPU, devices, plugin or SimulatedPlugin())
    return built


def pod(
    uid: str,
    *app: dict[str, int],
    init: tuple[dict[str, int], ...] = (),
    sidecars: tuple[dict[str, int], ...] = (),
    resources: dict[str, Any] | None = None,
    gates: dict[str, bool] | None = None,
) -> AdmissionPod:
    """A pod whose containers have these limits: sidecars s0 …, init containers i0 …, app containers c0 …."""

    def container(prefix: str, number: int, limits: dict[str, int], **extra: str) -> dict[str, Any]:
        texts = {name: str(amount) for name, amount in limits.items()}
        return {"name": f"{prefix}{number}", "resources": {"limits": texts, "requests": texts}, **extra}

    spec: dict[str, Any] = {
        "initContainers": [container("s", i, limits, restartPolicy="Always") for i, limits in enumerate(sidecars)]
        + [container("i", i, limits) for i, limits in enumerate(init)],
        "containers": [container("c", i, limits) for i, limits in enumerate(app)],
    }
    if resources is not None:
        spec["resources"] = resources
    return AdmissionPod.of(
        pod_from_dict({"metadata": {"name": uid, "uid": uid}, "spec": spec}), FeatureGates.from_overrides(gates or {})
    )


def admit(devices: DeviceManager, wanted: AdmissionPod, affinity: Hint = ANYWHERE) -> str:
    """Allocate for every container; the error's text, empty for success. A refused pod leaves the node."""
    devices.context.activate(wanted)
    try:
        for container in wanted.containers:
            devices.allocate(wanted, container, affinity)
    except AdmissionError as refusal:
        devices.context.deactivate(wanted.uid)
        return refusal.message
    return ""


def remove(devices: DeviceManager, uid: str) -> None:
    """The pod is gone and leftovers are collected."""
    devices.context.deactivate(uid)
    devices.remove_stale()
