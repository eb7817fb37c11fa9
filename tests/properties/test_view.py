"""A `NodeView` says what the managers hold, and goes on saying it when they hold something else."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from podslice import CPUSet, KubeletConfig, Node, NodeView, load_gallery
from podslice.config.kubelet import MemoryReservation
from podslice.machine.devices import inventory_from_data
from podslice.machine.readers.synthetic import from_synthetic
from tests.conftest import make_pod
from tests.properties.test_node import GPU, with_gpus

MACHINE = from_synthetic("pack:2 numa:2(memory=20GiB) l3:1 core:3 pu:2")
CPUS = st.sampled_from([None, "500m", "1", "2", "4"])


def node_of(profile: str, scope: str, *, managed: bool) -> Node:
    config = KubeletConfig(
        cpu_manager_policy="static",
        topology_manager_policy="restricted",
        topology_manager_scope=scope,
        reserved_system_cpus="0-1",
        eviction_hard={},
        memory_manager_policy="Static",
        system_reserved={"memory": "512Mi"},
        reserved_memory=(MemoryReservation(0, {"memory": "512Mi"}),),
        feature_gates={"PodLevelResourceManagers": managed},
    )
    return Node(MACHINE, config, profile=profile, devices=inventory_from_data([{"resource": GPU, "count": 4}]))


def content(view: NodeView) -> str:
    """All a view says, as text."""
    return repr(msgspec.structs.asdict(view))


def agrees(node: Node) -> None:
    """Every answer of the view is that of the managers."""
    view, kubelet = node.view, node.kubelet
    cpu, memory, device = kubelet.manager.cpu, kubelet.manager.memory, kubelet.manager.device
    assert (view.shared, view.reserved, view.assignable) == (cpu.state.default, cpu.reserved, cpu.assignable)
    assert (view.assigned, view.allocatable_cpus) == (cpu.state.assigned(), cpu.allocatable)
    assert (dict(view.memory), tuple(view.pods)) == (memory.machine_state, node.pods)
    assert (view.pins_cpus, view.binds_memory) == (cpu.static, memory.static)
    topology = kubelet.manager.topology
    assert (view.aligns, view.aligns_pods) == (topology.merger is not None, topology.scope == "pod")
    for uid, pod in view.pods.items():
        names = [container.name for container in pod.containers]
        assert view.booked(uid, names) == memory.state.charged_blocks(uid, names, pod_level=memory.rules.pod_level)
        assert view.pod_has_exclusive_cpus(pod) == cpu.pod_has_exclusive_cpus(pod)
        assert view.admission(pod.spec) == kubelet.admission(pod.spec)
        for container in pod.containers:
            held = view.container(pod, container)
            assert held == kubelet.inspect(pod, container)
            assert list(map(list, held.devices.values())) == list(device.devices_of(uid, container.name).values())
            beside = cpu.affinity_beside(pod, container, names)
            assert view.affinity_beside(pod, container, names) == beside


@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
@given(
    steps=st.lists(
        st.tuples(
            st.lists(CPUS, min_size=1, max_size=2),
            st.lists(st.tuples(CPUS, st.booleans()), max_size=1),
            st.sampled_from([None, "2", "4"]),
            st.lists(st.integers(0, 2), max_size=3),
            st.booleans(),
        ),
        max_size=6,
    ),
    scope=st.sampled_from(["container", "pod"]),
    managed=st.booleans(),
)
@settings(max_examples=60)
@pytest.mark.slow
def test_a_view_is_the_node_when_it_was_taken(
    profile: str,
    steps: list[tuple[list[str | None], list[tuple[str | None, bool]], str | None, list[int], bool]],
    scope: str,
    managed: bool,
) -> None:
    """After any history the view answers as the managers do, and views taken before are what they were."""
    node = node_of(profile, scope, managed=managed)
    taken: list[tuple[NodeView, str]] = []
    for number, (apps, init, budget, gpus, leaves) in enumerate(steps):
        pod = make_pod(
            f"p{number}",
            *((f"c{i}", cpu) for i, cpu in enumerate(apps)),
            init=tuple((f"i{i}", cpu, sidecar) for i, (cpu, sidecar) in enumerate(init)),
            budget=budget,
        )
        node.admit(with_gpus(pod, gpus))
        if leaves and node.pods:
            node.remove(node.pods[0])
        agrees(node)
        taken.append((node.view, content(node.view)))
    for view, text in taken:
        assert content(view) == text


def test_a_view_is_made_once() -> None:
    """While a node stays as it is its view is one and the same object, also for its copies; a refusal leaves an equal
    one."""
    node = node_of("podslice", "container", managed=False)
    assert node.admit(make_pod("a", ("c", "2"))).admitted
    view = node.view
    assert node.view is view
    assert node.copy().view is view
    assert not node.admit(make_pod("b", ("c", "40"))).admitted
    assert node.view == view
    assert node.admit(make_pod("b", ("c", "1"))).admitted
    assert node.view != view
    assert tuple(view.pods) == ("a",)


def test_a_view_cannot_be_changed() -> None:
    """A view's fields cannot be set."""
    with pytest.raises(AttributeError):
        node_of("podslice", "pod", managed=True).view.shared = 0  # type: ignore[misc]


def test_what_is_left_by_numa_node() -> None:
    """Sets of a view and of the topology go together: what is left on one NUMA node, and whose the rest is."""
    node = Node(load_gallery("laptop-i5-8250u"), KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"))
    node.admit(make_pod("a", ("c", "2")))
    view = node.view
    assert str(CPUSet.from_bits(view.assignable & view.topology.numa_nodes[0])) == "2-4,6-7"
    assert {uid: str(CPUSet.from_bits(view.owned_by(uid))) for uid in view.pods} == {"a": "1,5"}
    assert view.owned | view.shared == view.topology.all_cpus
    assert not view.owned & view.shared
