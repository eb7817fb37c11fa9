"""Small random clusters: real nodes with pods on them, and the model that is fed with their states."""

from __future__ import annotations

from random import Random

from msgspec.structs import replace
from tools.judge.pods import PodDrawer
from tools.judge.values import draw_node

from podslice import Node, Pod
from podslice.api.pod.spec import pod_from_dict
from podslice.cluster.model.holds import PlanPolicy
from podslice.cluster.model.model import ClusterModel, ModelLimits
from podslice.values.errors import UpstreamDefectError


def named_pod(pod: Pod, uid: str) -> Pod:
    return replace(pod, metadata=replace(pod.metadata, uid=uid, name=uid))


def admits(node: Node, pod: Pod) -> bool:
    """Whether the node itself would admit the pod; a kubelet that crashes admits none."""
    try:
        decision = node.try_admit(pod)
    except UpstreamDefectError:
        return False
    return decision.admitted and not decision.preempted


class DrawnCluster:
    """`nodes` by name, some of them equal, with pods on them; `drawers` draw pods for their machines. `profile`: of all
    nodes, or several, of which each node has one."""

    def __init__(self, r: Random, profile: str, *, nodes: int, policy: PlanPolicy = "compare", fill: int = 12) -> None:
        self.r = r
        self.nodes: dict[str, Node] = {}
        self.drawers: list[PodDrawer] = []
        self.count = 0
        self.model = ClusterModel(ModelLimits(best=1000, budget=100_000))
        while len(self.nodes) < nodes:
            profiles = profile.split()
            drawn = draw_node(r, profiles[0] if len(profiles) == 1 else r.choice(profiles))
            if drawn is None:
                continue
            node, drawer = drawn
            self.drawers.append(drawer)
            for _ in range(r.choice([1, 1, 2])):
                twin = Node.of(node.rules, node.state)
                self.nodes[f"n{len(self.nodes)}"] = twin
                for _ in range(r.randrange(fill)):
                    try:
                        twin.admit(self.pod(drawer))
                    except UpstreamDefectError:
                        break
        for name, node in self.nodes.items():
            self.model.add_node(name, node.rules, node.state, policy=policy)

    def pod(self, drawer: PodDrawer | None = None) -> Pod:
        """Return a pod that no cache has seen."""
        self.count += 1
        drawer = drawer or self.r.choice(self.drawers)
        drawn = drawer.pod(pod_level=self.r.random() < 0.2)
        return named_pod(pod_from_dict(drawn), f"pod-{self.count}")
