"""Searches whose budget runs out: a good answer, the same every time, and a note about it."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from click.testing import CliRunner

from podslice import KubeletConfig, Machine, Node
from podslice.admit.command import print_admissions
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Decision
from podslice.node.topology.intersect import ClosestFit
from podslice.node.topology.needs import Need, pick_enough
from podslice.node.topology.search import SearchBudget, Span, fewest, lowest
from podslice.values.cpuset import Bits, iter_bits, lowest_bits


def machine(nodes: int) -> Machine:
    """NUMA nodes of four CPUs, all distances different."""
    random = Random(1)
    made = from_synthetic(f"numa:{nodes} core:2 pu:2")
    far = [[random.randint(11, 250) for _ in range(nodes)] for _ in range(nodes)]
    listed = [
        msgspec.structs.replace(node, distances=tuple(10 if i == node.id else far[node.id][i] for i in range(nodes)))
        for node in made.nodes
    ]
    return msgspec.structs.replace(made, nodes=tuple(listed))


def node_of(nodes: int) -> Node:
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy="restricted",
        topology_manager_policy_options={"prefer-closest-numa-nodes": "true"},
    )
    return Node(machine(nodes), config, predicates=False)


def pod_of(cpus: int) -> Pod:
    amounts = {"cpu": str(cpus), "memory": "1Mi"}
    one = {"name": "c", "resources": {"requests": amounts, "limits": amounts}}
    return pod_from_dict({"metadata": {"name": "p", "namespace": "x", "uid": "u"}, "spec": {"containers": [one]}})


def decide(nodes: int, cpus: int) -> Decision:
    return node_of(nodes).admit(pod_of(cpus))


@pytest.mark.slow
def test_a_decision_says_that_a_better_one_may_exist() -> None:
    """The closest 20 of 40 nodes without any order in their distances: a set of 20, always the same, marked."""
    decision = decide(40, 79)
    assert decision.admitted
    assert len(decision.containers[0].numa_nodes) == 20
    assert decision.ended_early == ("the best NUMA nodes for the pod's resources together",)
    assert decision == decide(40, 79)


def test_a_proven_decision_says_nothing() -> None:
    """The same on 16 nodes is searched to its end, and so is a small pod on 40."""
    assert decide(16, 31).ended_early == ()
    assert decide(40, 4).ended_early == ()


@pytest.mark.slow
def test_every_try_may_search_as_long() -> None:
    """The decisions that one try of a pod spends on searches are not taken from the next."""
    kubelet = node_of(40).kubelet
    left = set()
    for _ in range(3):
        assert kubelet.rehearse(kubelet.admission(pod_of(79)))
        left.add(kubelet.manager.context.search_budget.left)
    assert len(left) == 1
    assert kubelet.manager.context.ended_early == ()


def test_the_command_line_prints_it() -> None:
    """`podslice admit` names what was not proven."""
    decision = decide(40, 79)
    node = Node(machine(2), KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0"))
    with CliRunner().isolation() as (out, *_):
        print_admissions(node, [decision], [], wide=False, show_map=False)
        text = out.getvalue().decode()
    assert "x/p not proven to be the best there is: the best NUMA nodes for the pod's resources together" in text


def test_given_up_sizes_are_large_enough() -> None:
    """A size is large enough also if the smallest one is not found in time."""
    for seed in range(200):
        random = Random(seed)
        n = random.randint(2, 20)
        needs = []
        for _ in range(random.randint(2, 3)):
            values = {node: random.randint(0, 9) for node in range(n)}
            needs.append(Need(values, random.randint(1, max(1, sum(values.values())))))
        nodes = (1 << n) - 1
        exact = fewest(nodes, needs, search_budget=SearchBudget(1 << 40))
        rough = fewest(nodes, needs, search_budget=SearchBudget(0))
        if exact is None:
            assert rough is None
            continue
        assert rough is not None
        assert exact.nodes <= rough.nodes <= n
        assert exact.proven
        assert exact.nodes == rough.nodes or not rough.proven
        assert all(need.is_met_by(pick_enough(nodes, needs)) for need in needs)


def test_socket_spans_by_definition() -> None:
    """The lowest set on so many sockets is what trying all sets finds, also for nodes on two sockets."""
    for seed in range(300):
        random = Random(seed)
        n = random.randint(2, 7)
        sockets_of = {node: 1 << random.randint(0, 2) | (1 << 3 if random.random() < 0.1 else 0) for node in range(n)}
        span = Span(sockets_of, random.randint(1, 4))
        needs = [Need({node: random.randint(0, 4) for node in range(n)}, random.randint(0, 9)) for _ in range(2)]
        size = random.randint(1, n)
        fitting = [
            mask
            for mask in range(1, 1 << n)
            if mask.bit_count() == size and span.holds(mask) and all(need.is_met_by(mask) for need in needs)
        ]
        found = lowest((1 << n) - 1, size, needs, SearchBudget(1 << 40), span=span)
        assert found == min(fitting, default=None), (seed, list(iter_bits(found or 0)))


@pytest.mark.timeout(60)
@pytest.mark.parametrize(("nodes", "size"), [(24, 12), (32, 10)])
def test_ties_end_an_exchange(nodes: int, size: int) -> None:
    """On a ring every neighbourhood is as close as the next one: a search that exchanges nodes because there is no time
    for more ends with the lowest, and does not walk around for ever."""
    distances = {one: tuple(10 + min(-step % nodes, step % nodes) for step in range(-one, nodes - one))
                 for one in range(nodes)}  # fmt: skip
    fit = ClosestFit(dict(distances), {one: one for one in range(nodes)})
    asked: list[Bits] = []

    def find(among: Bits, needs: Sequence[Need]) -> Bits | None:
        asked.append(among)
        return lowest_bits(among, size) if not needs and among.bit_count() >= size else None

    assert fit.best((1 << nodes) - 1, size, find, SearchBudget(exact_nodes=8)) == (1 << size) - 1
    assert len(asked) > 20, "no nodes were exchanged"
