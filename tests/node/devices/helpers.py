"""A node with devices and nothing else, and pods that ask for them."""

from __future__ import annotations

from typing import Any

from podslice.api.pod.eligibility import AdmissionPod
from podslice.api.pod.spec import pod_from_dict
from podslice.machine.devices import Device
from podslice.node.context import NodeContext
from podslice.node.devices.manager import DeviceManager
from podslice.node.devices.plugin import DevicePlugin, SimulatedPlugin
from podslice.node.topology.hint import Hint
from podslice.values.cpuset import bits_of
from podslice.values.errors import AdmissionError
from podslice.values.gates import FeatureGates
from podslice.values.quirks import PODSLICE, Quirks

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
    """Remove a pod and collect what it leaves."""
    devices.context.deactivate(uid)
    devices.remove_stale()
