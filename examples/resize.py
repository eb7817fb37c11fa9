"""In-place resizes on a node: granted, waiting for room, refused for good; and what would be written.

python examples/resize.py
"""

from __future__ import annotations

from podslice import KubeletConfig, Node, Pod, ResizeDecision, load_machine, pod_from_dict


def web(name: str, cpu: str, memory: str = "1Gi") -> Pod:
    """A Burstable pod; it shares CPUs, so a static CPU manager does not stand in the way of its resize."""
    return pod_from_dict(
        {
            "metadata": {"name": name, "uid": f"uid-{name}"},
            "spec": {"containers": [{"name": "nginx", "resources": {"requests": {"cpu": cpu, "memory": memory}}}]},
        }
    )


def owner(cpu: str) -> Pod:
    """A Guaranteed pod, which owns its CPUs."""
    limits = {"cpu": cpu, "memory": "1Gi"}
    return pod_from_dict(
        {
            "metadata": {"name": "database", "uid": "uid-database"},
            "spec": {"containers": [{"name": "postgres", "resources": {"limits": limits}}]},
        }
    )


def tell(decision: ResizeDecision) -> None:
    print(f"{decision.name}: {decision.outcome}{': ' if decision.message else ''}{decision.message}")
    for event in decision.events:
        print(f"  event {event.reason}")


def main() -> None:
    machine = load_machine("pack:1 numa:1(memory=32GiB) core:8 pu:1")
    node = Node(machine, KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"))
    for pod in (web("front", "2"), web("back", "2"), owner("2")):
        assert node.admit(pod).admitted
    tell(node.resize(web("front", "3")))
    tell(node.resize(web("back", "4")))
    print("waiting:", ", ".join(node.pending_resizes))
    tell(node.resize(owner("3")))
    node.remove("uid-database")
    for decision in node.retry_resizes("pods_removed"):
        tell(decision)
    print("cpu.weight of back:", node.effects("uid-back").files["cpu.weight"])


if __name__ == "__main__":
    main()
