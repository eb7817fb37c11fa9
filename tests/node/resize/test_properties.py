"""A node under any sequence of resizes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podslice.api.pod.spec import Pod
from podslice.node.checkpoints.allocation import encode as encode_allocations
from podslice.node.checkpoints.allocation import load
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity
from tests.node.resize.helpers import burstable, pod, resources
from tests.node.resize.test_node import node

NAMES = st.sampled_from(["a", "b", "c"])
CPUS = st.integers(1, 16)
ACTIONS = st.lists(st.tuples(st.sampled_from(["admit", "resize", "remove", "retry"]), NAMES, CPUS), max_size=15)
CAPACITY = 15


def sized(name: str, cpus: int) -> Pod:
    """A Burstable pod; `b` asks at pod level."""
    if name == "b":
        return pod({}, name=name, pod_level=resources({"cpu": str(cpus), "memory": "1Gi"}))
    return pod(burstable(str(cpus)), name=name)


def granted(one: Pod) -> int:
    own = one.spec.resources.requests if one.spec.resources else one.spec.containers[0].resources.requests
    return (own or {}).get("cpu", Quantity.of(0)).value()


@given(ACTIONS, st.sampled_from(["podslice", "kubelet-1.36"]))
def test_ledger_balance(actions: list[tuple[str, str, int]], profile: str) -> None:
    """The node never grants more than it has, a pod changes only when its resize is granted, who waits is here, and
    trying again without a reason grants nothing."""
    here = node(profile)
    sizes: dict[str, int] = {}
    for action, name, cpus in actions:
        uid = f"uid-{name}"
        decided = []
        if action == "admit" and name not in sizes:
            if here.admit(sized(name, cpus)).admitted:
                sizes[name] = cpus
        elif action == "remove":
            here.remove(uid)
            sizes.pop(name, None)
        elif action == "resize" and name in sizes:
            try:
                decision = here.resize(sized(name, cpus))
            except InputError:
                # More than the node ever has never reaches a kubelet.
                assert cpus > CAPACITY
                continue
            decided = [decision, *decision.others]
        elif action == "retry":
            decided = here.retry_resizes()
        for one in decided:
            if one.outcome == "Allocated":
                sizes[one.name] = granted(here.kubelet.active[one.uid].spec)
        assert {key.removeprefix("uid-"): granted(p.spec) for key, p in here.kubelet.active.items()} == sizes
        assert sum(sizes.values()) <= CAPACITY
        assert set(here.pending_resizes) <= set(here.kubelet.active)
    here.retry_resizes()
    assert all(one.outcome == "Deferred" for one in here.retry_resizes())
    records = here.kubelet.allocations()
    assert load(encode_allocations(records)) == records
