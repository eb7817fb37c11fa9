"""Nodes of several releases beside one service: each state is that of its node's release."""

from __future__ import annotations

import pytest

from podslice import KubeletConfig, Node
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.holding import digest
from podslice.replica.events import decode, encode
from podslice.replica.journal import Journal
from podslice.replica.replica import Replica
from podslice.replica.rulebook import Rulebook
from podslice.replica.signature import find_wants
from tests.replica.lives import VERSION

AMOUNTS = {"requests": {"cpu": "4", "memory": "1Gi"}, "limits": {"cpu": "4", "memory": "1Gi"}}
CONFIG = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0")


def level_pod(name: str, own: object = AMOUNTS, whole: object = AMOUNTS) -> Pod:
    """A pod with pod-level resources, whose container asks for whole CPUs too."""
    container = {"name": "c", "image": "i", "resources": own}
    metadata = {"name": name, "namespace": "default", "uid": name}
    return pod_from_dict({"metadata": metadata, "spec": {"containers": [container], "resources": whole}})


@pytest.mark.parametrize("order", [("1.33", "1.36"), ("1.36", "1.33")])
def test_equal_pods_on_nodes_of_two_releases(order: tuple[str, str]) -> None:
    """A pod with pod-level resources owns CPUs under 1.33 and shares those of 1.36; replicas of one rulebook agree with
    both nodes, on what is there and on what comes."""
    rulebook, owned = Rulebook(), {}
    for release in order:
        node = Node(from_synthetic("pack:2 core:8 pu:2"), CONFIG, kubernetes=release, predicates=False)
        assert node.admit(level_pod("first")).admitted
        journal = Journal(node.rules, node.state, epoch=1, version=VERSION)
        replica = Replica(rulebook, {VERSION})
        assert replica.apply(decode(encode(journal.whole_state()))).outcome == "adopted"
        assert replica.state is not None
        assert str(replica.rules.release) == release
        assert replica.state.pods["first"].ignored == node.state.pods["first"].ignored == (release == "1.36")
        before = node.state
        second = level_pod("second")
        node.admit(second)
        journal.record_admission(node.rules, before, node.state, second)
        for event in journal.events_after(replica.epoch, replica.sequence):
            assert replica.apply(decode(encode(event))).outcome == "equal"
        assert replica.digest == digest(node.state)
        owned[release] = node.view.owned.bit_count()
    assert owned == {"1.33": 8, "1.36": 0}


def test_what_a_pod_could_get_on_a_node_of_any_release() -> None:
    """Where pod-level resources are dropped, containers decide; where they count, the pod does."""
    burstable = {"requests": {"cpu": "4"}, "limits": {"cpu": "8", "memory": "1Gi"}}
    assert find_wants(level_pod("a", AMOUNTS, burstable)).cpus
    assert not find_wants(level_pod("b", burstable, burstable)).cpus
    shared = {"requests": {"cpu": "500m", "memory": "1Gi"}, "limits": {"cpu": "500m", "memory": "1Gi"}}
    assert not find_wants(level_pod("c", shared, shared)).cpus
