"""Compare what a kubelet sets up for a new pod: the pod's cgroup, that of its class, its sandbox, and the values with
which each container is created."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from podslice.node.effects.cgroup import pod_cgroup_path
from podslice.values.cpuset import format_bits
from tools.prediction import commands, compare
from tools.prediction.kubelet import cgroup_version
from tools.prediction.model import Model
from tools.prediction.node import OneNode, soon
from tools.prediction.notes import Notes

Json = dict[str, Any]
_PATIENCE = 12.0


def compare_creation(notes: Notes, node: OneNode, model: Model, pod: Json, *, devices: Sequence[Json]) -> None:
    """Compare a pod just admitted on a node with these `devices`, whose containers have started."""
    inspected = commands.inspect(node.kubelet, pod, devices)
    _compare_pod_cgroup(notes, node, inspected, pod["metadata"]["uid"])
    _compare_classes(notes, node, model)
    _compare_sandbox(notes, node, model, pod["metadata"]["uid"])
    _compare_containers(notes, node, model, inspected, pod["metadata"]["uid"])


def _compare_pod_cgroup(notes: Notes, node: OneNode, inspected: commands.Inspected, uid: str) -> None:
    real = node.kubelet.cgroup_files(pod_cgroup_path(uid, inspected.qos, systemd=False))
    expected = compare.as_kernel_shows(inspected.pod)
    notes.counts["cgroup files"] += len(expected.keys() & real.keys())
    notes.same("cgroup of the pod", {name: own for name, own in real.items() if name in expected},
               {name: own for name, own in expected.items() if name in real})  # fmt: skip


def _compare_classes(notes: Notes, node: OneNode, model: Model) -> None:
    """Compare the weights of the Burstable and BestEffort classes; a kubelet writes them when it makes a pod's
    cgroup."""
    file = "cpu.weight" if cgroup_version() == 2 else "cpu.shares"
    classes = model.classes().items()
    expected = {qos: str(own.cpu_weight if cgroup_version() == 2 else own.cpu_shares) for qos, own in classes}

    def real() -> dict[str, str]:
        return {qos: node.kubelet.cgroup_files(f"/kubepods/{qos.lower()}")[file] for qos in expected}

    soon(lambda: real() == expected, _PATIENCE)
    notes.counts["cgroup files"] += len(expected)
    notes.same(f"{file} of the classes", real(), expected)


def _compare_sandbox(notes: Notes, node: OneNode, model: Model, uid: str) -> None:
    effects = model.effects(uid)
    notes.counts["sandboxes"] += 1
    notes.same("sandbox", compare.normalise_sandbox(node.runtime.sandbox_of(uid), node.kubelet.cgroup_root), {
        "cgroup_parent": pod_cgroup_path(uid, effects.qos, systemd=False),
        **compare.sandbox_values(effects.sandbox),
    })  # fmt: skip


def _compare_containers(notes: Notes, node: OneNode, model: Model, inspected: commands.Inspected, uid: str) -> None:
    predicted = compare.predict_containers(model.effects(uid))
    for container in node.runtime.of_pod(uid):
        name, created_with = container.name, container.config.linux.resources
        notes.counts["OOM scores"] += 1
        notes.same(f"OOM score of {name}", created_with.oom_score_adj, inspected.containers[name].score)
        notes.counts["containers at their creation"] += 1
        then = model.started[name]
        pins = {"cpus": format_bits(then.holds.cpus), "mems": format_bits(then.holds.memory_nodes)}
        notes.same(f"what {name} was created with", compare.normalise_linux(created_with), {**predicted[name], **pins})
        if model.has_devices:
            notes.counts["containers with their devices"] += 1
            options = model.run_options(uid, name)
            devices = sorted((own.container_path, own.host_path, own.permissions) for own in options.devices)
            notes.same(
                f"devices of {name}",
                compare.device_options(container.config),
                {"envs": options.envs, "devices": devices},
            )
        if cgroup_version() == 1:
            shown = inspected.containers[name].files
            notes.counts["files of containers"] += len(shown)
            notes.same(f"files of {name}", compare.cgroup_v1_files(created_with), shown)
