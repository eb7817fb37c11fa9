"""Devices survive a restart through their own checkpoint."""

from __future__ import annotations

from pathlib import Path

from podslice import Pod
from podslice.api.pod.spec import pod_from_dict
from podslice.host.state.store import NodeStore
from podslice.machine.devices import inventory_from_data
from podslice.node.checkpoints.identify import identify
from tests.state_files.test_crash import CONFIG, MACHINE

DEVICES = inventory_from_data(
    [{"resource": "example.com/gpu", "devices": [{"id": "g0", "numa": [0]}, {"id": "g1", "numa": [1]}]}]
)


def gpu_pod(uid: str) -> Pod:
    amounts = {"cpu": "1", "memory": "1Gi", "example.com/gpu": "1"}
    resources = {"requests": amounts, "limits": amounts}
    return pod_from_dict(
        {"metadata": {"name": uid, "uid": uid}, "spec": {"containers": [{"name": "c", "resources": resources}]}}
    )


def test_devices_are_kept(tmp_path: Path) -> None:
    """A restarted node gives running pods the devices that they had, and no other pod the same ones."""
    store = NodeStore(tmp_path, MACHINE, CONFIG, devices=DEVICES)
    first = store.admit(gpu_pod("a")).containers[0]
    assert first.devices == {"example.com/gpu": ["g0"]}
    file = tmp_path / "device-plugins" / "kubelet_internal_checkpoint"
    assert identify(file.read_bytes()).version is not None
    again = NodeStore(tmp_path, MACHINE, CONFIG, devices=DEVICES, running=[gpu_pod("a")])
    assert again.refused == []
    assert again.node.kubelet.manager.device.devices_of("a", "c") == first.devices
    assert again.admit(gpu_pod("b")).containers[0].devices == {"example.com/gpu": ["g1"]}
    assert not again.admit(gpu_pod("c")).admitted
