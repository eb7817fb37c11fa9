"""A node for bundles: 16 CPUs whose NUMA nodes alternate, pods that run there, and one that was refused."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet_file import config_from_dict
from podslice.host.bundle.layout import CONFIGZ, EVENTS, MACHINE, NODE, PODS, Manifest
from podslice.host.bundle.redact import redact_event, redact_node, redact_pod
from podslice.host.bundle.written import BundleParts
from podslice.host.machine_files import dump_machine, parse_machine
from podslice.node.node import Node

Json = dict[str, Any]
NAME = "n7"
MACHINE_TEXT = "pack:2 numa:1(memory=32GiB) core:4 pu:2(indexes=8*2:2*4:1*2)"
SECRET = "s3cr3t-never-in-a-bundle"
CONFIG: Json = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0,8",
    "staticPodURLHeader": {"Authorization": [f"Bearer {SECRET}"]},
}


def pod(name: str, cpus: int, *, phase: str = "Running", started: str = "2026-11-27T08:00:00Z", **status: Any) -> Json:
    """A Guaranteed pod of the node as the API server has it, with secrets wherever a pod may have some."""
    amounts = {"cpu": str(cpus), "memory": "1Gi"}
    container = {
        "name": "main",
        "image": "registry.example.com/app:1",
        "command": ["/app", f"--password={SECRET}"],
        "args": [SECRET],
        "env": [{"name": "PASSWORD", "value": SECRET}],
        "livenessProbe": {"httpGet": {"port": 80, "httpHeaders": [{"name": "Authorization", "value": SECRET}]}},
        "lifecycle": {"preStop": {"exec": {"command": [SECRET]}}},
        "resources": {"requests": amounts, "limits": amounts},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "shop",
            "uid": f"uid-{name}",
            "creationTimestamp": started,
            "annotations": {"vault/token": SECRET, "podslice.io/movable": "true"},
            "managedFields": [{"manager": SECRET}],
        },
        "spec": {
            "nodeName": NAME,
            "containers": [container],
            "volumes": [{"name": "v", "csi": {"driver": "x", "volumeAttributes": {"key": SECRET}}}],
            "imagePullSecrets": [{"name": SECRET}],
        },
        "status": {"phase": phase, "qosClass": "Guaranteed", "startTime": started, **status},
    }


RUNNING = (pod("db", 3), pod("web", 4))
REFUSED = pod(
    "big", 6, phase="Failed", started="2026-11-27T09:00:00Z", reason="TopologyAffinityError",
    message="Pod was rejected: Resources cannot be allocated with Topology locality",
)  # fmt: skip
NODE_OBJECT: Json = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"name": NAME, "annotations": {"csi.volume.kubernetes.io/nodeid": SECRET}},
    "status": {
        "capacity": {"cpu": "16", "memory": "64Gi", "pods": "110"},
        "allocatable": {"cpu": "14", "memory": "65434Mi", "pods": "110"},
        "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.36.2",
                     "bootID": SECRET},
        "addresses": [{"type": "InternalIP", "address": "10.9.8.7"}],
    },
}  # fmt: skip
EVENT: Json = {
    "metadata": {"name": "big.1", "namespace": "shop"},
    "involvedObject": {"kind": "Pod", "name": "big", "namespace": "shop", "uid": "uid-big"},
    "type": "Warning",
    "reason": "TopologyAffinityError",
    "message": "Resources cannot be allocated with Topology locality",
    "count": 1,
    "lastTimestamp": "2026-11-27T09:00:00Z",
}


def state_files(pods: tuple[Json, ...] = RUNNING) -> dict[str, bytes]:
    """The state files of the node with these pods."""
    config = {name: value for name, value in CONFIG.items() if name != "staticPodURLHeader"}
    node = Node(parse_machine(MACHINE_TEXT), config_from_dict(config).config, files={})
    for one in pods:
        decision = node.admit(pod_from_dict(copy.deepcopy(one)))
        assert decision.admitted, decision
    return dict(node.manager_files)


def parts(*, machine: bool = True, state: bool = True, api: bool = True) -> BundleParts:
    """The bundle of the node, or some of its parts."""
    made = BundleParts()
    if machine:
        made.files[MACHINE] = dump_machine(parse_machine(MACHINE_TEXT), "json").encode()
    if state:
        made.files |= {f"kubelet/{name}": data for name, data in state_files().items()}
    if api:
        made.put(NODE, redact_node(NODE_OBJECT))
        made.put(CONFIGZ, {"kubeletconfig": {k: v for k, v in CONFIG.items() if k != "staticPodURLHeader"}})
        made.put(PODS, {"apiVersion": "v1", "kind": "List", "items": [redact_pod(p) for p in (*RUNNING, REFUSED)]})
        made.put(EVENTS, {"apiVersion": "v1", "kind": "List", "items": [redact_event(EVENT)]})
    return made


def write(path: Path, **which: bool) -> Path:
    """Write the bundle of the node as an archive."""
    path.write_bytes(parts(**which).archive(Manifest(node=NAME, captured="2026-11-27T10:00:00Z", by="a test")))
    return path


def sysfs_of(text: str) -> dict[str, bytes]:
    """The files of sysfs of a machine."""
    files = {"proc/cpuinfo": b"model name : Test CPU\nflags : fpu lm\n", "sys/devices/system/cpu/online": b"0-15\n"}
    for node in parse_machine(text).nodes:
        files[f"sys/devices/system/node/node{node.id}/meminfo"] = f"Node {node.id} MemTotal: {32 << 20} kB\n".encode()
        files[f"sys/devices/system/node/node{node.id}/cpulist"] = b""
        cpus = sum(1 << cpu for core in node.cores for cpu in core.threads)
        files[f"sys/devices/system/node/node{node.id}/cpumap"] = f"{cpus:x}\n".encode()
        for number, core in enumerate(node.cores):
            for cpu in core.threads:
                base = f"sys/devices/system/cpu/cpu{cpu}/topology"
                files[f"{base}/core_id"] = f"{number}\n".encode()
                files[f"{base}/physical_package_id"] = f"{core.socket}\n".encode()
                files[f"{base}/core_cpus"] = f"{sum(1 << one for one in core.threads):x}\n".encode()
                files[f"sys/devices/system/node/node{node.id}/cpu{cpu}/online"] = b"1\n"
    return files
