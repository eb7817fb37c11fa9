"""`kubectl podslice` as people use it, with the shipped roles: through the API server and the node's real kubelet."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from e2e.cluster import MANIFEST, NODE, ONLINE, Cluster
from e2e.cluster_daemonset import DaemonSetCluster
from e2e.cluster_refusals import SINGLE
from e2e.cluster_scenarios import REACHED, in_cluster
from e2e.pods import gu, ngu, pod
from e2e.world import check
from podslice.values.cpuset import parse_bits

Json = dict[str, Any]
MOVES: Json = {
    "policy": {
        "apiVersion": "podslice.io/v1alpha1",
        "kind": "PodslicePolicy",
        "spec": {"defrag": {"carryOut": "onRequest"}},
    }
}
_RIGHTS = "rbac.authorization.k8s.io"
_LONGEST = 300


class Operator:
    """A user with the roles of deploy/manifests/kubectl.yaml, first without the one that moves."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        for document in yaml.safe_load_all(MANIFEST.with_name("kubectl.yaml").read_text()):
            cluster.apply(document)
        account = {"apiVersion": "v1", "kind": "ServiceAccount"}
        cluster.apply({**account, "metadata": {"name": "ops", "namespace": "podslice"}})
        self._bind("ClusterRole", "podslice-kubectl", {"name": "ops"})
        self._bind("Role", "podslice-kubectl", {"name": "ops", "namespace": "podslice"})
        self._config = cluster.plane.folder / "ops.kubeconfig"
        self._config.write_text(json.dumps(cluster.plane.kubeconfig_of(cluster.token("ops"))))

    def may_move(self) -> None:
        self._bind("Role", "podslice-kubectl-move", {"name": "ops-move", "namespace": "podslice"})

    def _bind(self, kind: str, role: str, metadata: Json) -> None:
        self._cluster.apply(
            {
                "apiVersion": f"{_RIGHTS}/v1",
                "kind": f"{kind}Binding",
                "metadata": metadata,
                "roleRef": {"apiGroup": _RIGHTS, "kind": kind, "name": role},
                "subjects": [{"kind": "ServiceAccount", "name": "ops", "namespace": "podslice"}],
            }
        )

    def defrag(self, *words: str, code: int) -> subprocess.CompletedProcess[str]:
        """`kubectl podslice defrag`, which ends with this exit code."""
        start = "from podslice.entry import kubectl; kubectl()"
        command = [sys.executable, "-c", start, "defrag", "--node", NODE, *words, "--request-timeout", "2m"]
        environment = {**os.environ, "KUBECONFIG": str(self._config)}
        ended = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=_LONGEST)
        check(ended.returncode == code, f"{words} ended with {ended.returncode}: {ended.stdout}{ended.stderr}"[-700:])
        return ended


@in_cluster("X-K46", SINGLE, node=REACHED, settings=MOVES)
def room_is_made_from_afar(cluster: Cluster) -> None:
    """By `kubectl podslice defrag --apply` with the shipped roles, through the API server and the kubelet's exec, a
    running container moves and who shares makes way; the pod that fitted nowhere runs, and without it the move is
    undone; nothing moves without the right to exec, or by a plan that is stale."""
    assert isinstance(cluster, DaemonSetCluster)
    operator, file = Operator(cluster), cluster.plane.folder / "big.json"
    moves, shares = _fragment(cluster)
    before, shared = cluster.exclusive(moves, "c", 1), cluster.cpus(shares, "c")
    file.write_text(json.dumps(pod("big", gu("c", 4))))
    plan = Path(file).with_name("plan.json")
    plan.write_text(operator.defrag("-f", str(file), "-o", "json", code=0).stdout)
    (move,) = json.loads(plan.read_text())["items"][0]["plan"]["moves"]
    check(move["name"] == "moves", f"the plan moves {move['name']}")

    said = operator.defrag("-f", str(file), "--apply", "--yes", code=2).stderr
    check("podslice-kubectl-move" in said, f"without the right it says {said}")
    check(cluster.exclusive(moves, "c", 1) == before, "it was moved without the right")

    operator.may_move()
    operator.defrag("-f", str(file), "--apply", "--yes", code=0)
    after = cluster.exclusive(moves, "c", 1)
    check(after == parse_bits(move["containers"][0]["cpusAfter"]) != before, f"it runs on {after:b}")
    cluster.agree()
    check(cluster.cpus(shares, "c") == shared & ~after | before, "who shares has not made way")
    ended = operator.defrag("--plan", str(plan), "--apply", "--yes", code=1)
    check("plan anew" in ended.stdout + ended.stderr, f"a stale plan: {ended.stdout}{ended.stderr}")

    big = cluster.run(pod("big", gu("c", 4)))
    check(cluster.exclusive(big, "c", 4) == ONLINE & 0xF0, "the pod is not on the NUMA node that was freed")
    operator.defrag("--undo", "--yes", code=1)
    cluster.delete("big", grace=1)
    operator.defrag("--undo", "--yes", code=0)
    check(cluster.exclusive(moves, "c", 1) == before, "it is not where it was")
    cluster.agree()
    check(cluster.cpus(shares, "c") == shared, "who shares is not where they were")


def _fragment(cluster: Cluster) -> tuple[Json, Json]:
    """Five free CPUs, of which no NUMA node has four; the container that may move, and one that shares."""
    cluster.run(pod("fills", gu("c", 3)))
    moves = cluster.run(pod("moves", gu("c", 1), annotations={"podslice.io/movable": "true"}))
    check(cluster.exclusive(moves, "c", 1) & 0xF0 != 0, "it is not on the NUMA node without the reserved CPU")
    shares = cluster.run(pod("shares", ngu("c")))
    cluster.delete("fills", grace=1)
    cluster.until("what it owned is free", lambda: len(cluster.owners()) == 1)
    cluster.agree()
    return moves, shares
