"""Objects of large clusters, as an API server lists them, in files."""

from __future__ import annotations

from pathlib import Path
from random import Random
from uuid import UUID

import msgspec
from msgspec.structs import replace

from benchmarks.cluster import Bench
from podslice.replica.journal import Journal
from podslice.replica.nodestate import build_status, new_node_state

VERSION = "0.1.0"


class DrawnPods(Bench):
    """Pods with names and UIDs as API servers give them."""

    def pod(self, template: object = None) -> object:  # type: ignore[override]
        """Return a pod of one of the usual sizes."""
        one = self.r.choices(self.pods, self.weights)[0]
        uid = str(UUID(int=self.r.getrandbits(128)))
        named = replace(one.metadata, name=f"web-{uid[:8]}-{uid[24:29]}", uid=uid, namespace="default")
        return replace(one, metadata=named)


def draw(folder: Path, nodes: int) -> None:
    """Write the objects of `nodes` nodes: `states`, a NodeState a line, and `pods`, the fields in which pods differ."""
    bench = DrawnPods(1)
    bench.r = Random(nodes)
    with (folder / "states").open("wb") as states, (folder / "pods").open("w") as pods:
        for number in range(nodes):
            state, name = bench.state(), f"node-{number:05}.example.internal"
            state_message = Journal(bench.kind.rules, state, epoch=1_000_000 + number, version=VERSION).whole_state()
            states.write(msgspec.json.encode(new_node_state(name) | {"status": build_status(state_message)}) + b"\n")
            for uid, pod in state.pods.items():
                print(uid, pod.spec.metadata.name, name, pod.cpus, file=pods)
