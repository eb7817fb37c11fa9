"""Why a pod is refused, and which machine or configuration would take it.

    python examples/why.py [FILE]

Asks the same question of several nodes: the decision carries the kubelet's reason and message, and our explanation.
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from podslice import Node, UpstreamDefectError, load_gallery, load_kubelet_config, load_pods

HERE = Path(__file__).parent


def ask(title: str, node: Node, file: str) -> None:
    """Print where the pods of a file land on an empty node, or why they do not."""
    print(title)
    for loaded in load_pods(file):
        try:
            decision = node.admit(loaded.pod)
        except UpstreamDefectError as defect:
            print(f"  {loaded.pod.metadata.name}: a v1.36.2 kubelet would fail here: {defect.name}")
            continue
        if not decision.admitted:
            print(f"  {decision.name}: {decision.reason}: {decision.message}\n    {decision.why}")
            continue
        owned = [f"{one.name} {one.cpus}" for one in decision.containers if one.exclusive]
        print(f"  {decision.name}: {decision.qos}, {'; '.join(owned) or 'shares the CPUs of the node'}")


def main(file: str = str(HERE / "pods.yaml")) -> None:
    loaded = load_kubelet_config(str(HERE / "kubelet.yaml"))
    config = loaded.config
    for warning in loaded.warnings:
        print(f"warning: {warning}", file=sys.stderr)
    ask("EPYC 9654, four NUMA nodes a socket", Node(load_gallery("epyc-9654-nps4"), config), file)
    ask("EPYC 9654, one NUMA node a socket", Node(load_gallery("epyc-9654-nps1"), config), file)
    relaxed = msgspec.structs.replace(config, topology_manager_policy="best-effort")
    ask("and with best-effort", Node(load_gallery("epyc-9654-nps4"), relaxed), file)


if __name__ == "__main__":
    main(*sys.argv[1:])
