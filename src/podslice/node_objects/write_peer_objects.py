"""Formats of other schedulers for a node: Koordinator's annotations of a NodeResourceTopology, Volcano's Numatopology.
They are made from the same view of a node; nothing writes them by itself (cluster-integration B.4, B.5)."""

from __future__ import annotations

import json
from typing import Any

from podslice.machine.model import Machine
from podslice.node.view import NodeView
from podslice.node_objects.read_nrt import CPU_POLICY, CPU_TOPOLOGY
from podslice.values.cpuset import format_bits

Json = dict[str, Any]
_NUMATOPOLOGY = "nodeinfo.volcano.sh/v1alpha1"


def koordinator_annotations(view: NodeView) -> dict[str, str]:
    """Return annotations of the node's NodeResourceTopology for Koordinator: its CPUs, the CPU Manager's policy, the
    CPUs that pods own (`managedByKubelet`: Koordinator's scheduler leaves them alone), and the shared pool by NUMA
    node."""
    policy = {
        "policy": view.config.cpu_manager_policy,
        "options": dict(view.config.cpu_manager_policy_options or {}),
        "reservedCPUs": format_bits(view.reserved),
    }
    owners = [
        {
            "namespace": pod.spec.metadata.namespace,
            "name": pod.spec.metadata.name,
            "uid": uid,
            "cpuset": format_bits(view.owned_by(uid)),
            "managedByKubelet": True,
        }
        for uid, pod in view.pods.items()
        if view.owned_by(uid)
    ]
    pools = [
        {"socket": node.cores[0].socket, "node": node.id, "cpuset": format_bits(shared)}
        for node in view.machine.nodes
        if (shared := view.topology.numa_nodes.get(node.id, 0) & view.shared)
    ]
    return {
        CPU_TOPOLOGY: _text({"detail": cpu_detail(view.machine)}),
        CPU_POLICY: _text(policy),
        "node.koordinator.sh/pod-cpu-allocs": _text(owners),
        "node.koordinator.sh/cpu-shared-pools": _text(pools),
    }


def cpu_detail(machine: Machine) -> list[Json]:
    """Return each CPU with its core, socket and NUMA node; a core has the id of its lowest CPU, which is unique."""
    found = [
        {"id": cpu, "core": min(core.threads), "socket": core.socket, "node": node.id}
        for node in machine.nodes
        for core in node.cores
        for cpu in core.threads
    ]
    return sorted(found, key=lambda own: own["id"])


def numatopology(view: NodeView) -> Json:
    """Return Volcano's Numatopology of a node."""
    free = format_bits(view.assignable if view.pins_cpus else view.shared)
    detail = {
        str(own["id"]): {
            name: own[field] for name, field in (("numa", "node"), ("socket", "socket"), ("core", "core")) if own[field]
        }
        for own in cpu_detail(view.machine)
    }
    return {
        "apiVersion": _NUMATOPOLOGY,
        "kind": "Numatopology",
        "metadata": {"name": view.machine.name or "machine"},
        "spec": {
            "policies": {
                "CPUManagerPolicy": view.config.cpu_manager_policy,
                "TopologyManagerPolicy": view.config.topology_manager_policy,
            },
            "resReserved": {name: str(amount) for name, amount in view.reservation.items()},
            "numares": {"cpu": {"allocatable": free, "capacity": view.topology.all_cpus.bit_count()}},
            "cpuDetail": detail,
        },
    }


def _text(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))
