"""Every printed fix works, and a fix is found where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

import msgspec
import pytest

from podslice import CPUSet, KubeletConfig, Node, Pod, StartError
from podslice.advise.explain.explain import Explainer, find_fixes
from podslice.advise.explain.fixes.changes import EditPod
from podslice.advise.explain.fixes.edits import is_valid, places, with_amounts
from podslice.advise.explain.fixes.pod_fixes import differences
from podslice.advise.trial.trial import Trial
from podslice.api.server.defaults import default_pod
from podslice.api.server.validate import validate_pod
from podslice.config.kubelet import MemoryReservation
from podslice.config.policy_options import POLICIES, SCOPES
from podslice.machine.model import HugePages, Machine
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.cpu_policy_options import CPU_POLICY_OPTIONS
from podslice.values.quantity import Quantity
from tests.advise.explain.fix_truth import check_distinct, check_sentences
from tests.advise.explain.random_nodes import Setup, refusals
from tests.advise.explain.reapply import works
from tests.conftest import make_node, make_pod

SEEDS = range(40)


def check_fixes(setup: Setup, pod: Pod) -> int:
    """Apply every fix of a refusal; return their number."""
    node = setup.node()
    before = dict(node.files)
    gates = node.view.gates
    fixes = find_fixes(node, pod)
    assert dict(node.files) == before, "looking for fixes changed the node"
    for fix in fixes:
        assert works(setup, pod, fix), f"{fix.text} does not help {pod.metadata.name}"
        after = fix.change.pod if isinstance(fix.change, EditPod) else default_pod(pod, gates)
        assert not validate_pod(default_pod(after, gates), gates), f"{fix.text} leads to an invalid pod"
        check_sentences(setup, pod, fix)
    check_distinct(fixes)
    ranks = [(bool(fix.losses), fix.cost) for fix in fixes]
    assert ranks == sorted(ranks)
    return len(fixes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_every_fix_admits_the_pod(seed: int) -> None:
    """Whatever is printed works when it is applied to a new node."""
    for setup, pod in refusals(seed):
        check_fixes(setup, pod)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1010))
def test_fixes_work_with_upstream_defects(seed: int) -> None:
    """In profile kubelet-1.36, where refused pods leave traces, fixes work as well."""
    for setup, pod in refusals(seed, profile="kubelet-1.36"):
        check_fixes(setup, pod)


def check_complete(setup: Setup, pod: Pod) -> None:
    """Brute force over the searched classes: where any change helps, a fix of that class is found."""
    node = setup.node()
    fixes = find_fixes(node, pod)
    codes = {fix.code for fix in fixes}
    defaulted = default_pod(pod, node.view.gates)
    for place, name, amounts in _smaller_amounts(defaulted):
        best = next((a for a in amounts if _admits_edited(setup, defaulted, place, name, a)), None)
        if best is not None:
            edits = [fix for fix in fixes if isinstance(fix.change, EditPod)]
            found = [fix for fix in edits if _reduces(defaulted, fix, place, name) >= best.nano]
            assert found, f"{place or 'pod'} {name} {best.canonical()} would do"
    if not is_valid(defaulted, node.view.gates):
        assert all(isinstance(fix.change, EditPod) for fix in fixes)
        return
    if any(_admits_without(setup, pod, gone) for size in (1, 2) for gone in combinations(setup.running, size)):
        removals = [fix for fix in fixes if fix.code in ("evict-pods", "move-pods")]
        assert removals
        fewest = 1 if any(_admits_without(setup, pod, (one,)) for one in setup.running) else 2
        assert min(len(fix.change.uids) for fix in removals) == fewest  # type: ignore[union-attr]
    if setup.running and setup.empty().admit(pod).admitted:
        assert "empty-node" in codes
    policies = [
        {"topology_manager_policy": policy, "topology_manager_scope": scope} for policy in POLICIES for scope in SCOPES
    ]
    if any(_admits_with(setup, pod, change) for change in (*policies, *_other_options(setup.config))):
        assert codes & {"config", "repack"}
    if any(_admits_with(setup, pod, {"reserved_system_cpus": left}) for left in _fewer_reserved(setup)):
        assert codes & {"reservation", "split-reservation", "repack"}
    if any(_admits_on(setup, pod, machine) for machine in _other_pages(setup, defaulted)):
        assert codes & {"hugepages", "repack"}


def _smaller_amounts(pod: Pod) -> Iterator[tuple[str, str, list[Quantity]]]:
    for place, resources in places(pod):
        for name, amount in (resources.requests or {}).items():
            if name == "cpu":
                step, unit = 1, 1
            elif name == "memory":
                step, unit = 128, 1 << 20
            else:
                continue
            top = (
                (amount.value() // unit - 1) // step * step if amount.milli_value() % 1000 == 0 else amount.value() - 1
            )
            yield place, name, [Quantity.of(n * unit) for n in range(top, 0, -step)]


def _admits_edited(setup: Setup, pod: Pod, place: str, name: str, amount: Quantity) -> bool:
    edited = with_amounts(pod, {(place, name): amount})
    node = setup.node()
    return is_valid(edited, node.view.gates) and node.admit(edited).admitted


def _reduces(pod: Pod, fix: object, place: str, name: str) -> int:
    """Return the amount that a fix leaves in one place, in billionths; -1 if it changes another one."""
    edited = fix.change.pod  # type: ignore[attr-defined]
    if {edit.path.rsplit(".", 1)[1] for edit in differences(pod, edited)} != {name}:
        return -1
    was, now = dict(places(pod)), dict(places(edited))
    if was[place] == now[place]:
        return -1
    left = (now[place].requests or {}).get(name)
    return left.nano if left else 0


def _admits_without(setup: Setup, pod: Pod, gone: tuple[Pod, ...]) -> bool:
    node = setup.node()
    for other in gone:
        node.remove(other.metadata.uid)
    return node.admit(pod).admitted


def _other_options(config: KubeletConfig) -> Iterator[dict[str, Any]]:
    """Yield one CPU Manager option more or less."""
    options = config.cpu_manager_policy_options
    for name in CPU_POLICY_OPTIONS:
        if name in options:
            changed = {key: value for key, value in options.items() if key != name}
        else:
            changed = {**options, name: "true"}
        yield {"cpu_manager_policy_options": changed}


def _fewer_reserved(setup: Setup) -> Iterator[str]:
    """Yield every smaller set of reserved CPUs."""
    reserved = list(CPUSet.parse(setup.config.reserved_system_cpus))
    for size in range(1, len(reserved)):
        for left in combinations(reserved, size):
            yield str(CPUSet(left))


def _other_pages(setup: Setup, pod: Pod) -> Iterator[Machine]:
    """Yield fewer 2 MiB pages on one NUMA node, in steps of 32; more only where the pod requests some."""
    asks = any("hugepages-2Mi" in (resources.requests or {}) for _, resources in places(pod))
    for node in setup.machine.nodes:
        now = sum(pool.num_pages for pool in node.hugepages)
        for pages in range(0, 1025 if asks else now, 32):
            if now and pages * 2 << 20 <= node.memory:
                changed = msgspec.structs.replace(node, hugepages=(HugePages(2048, pages),) if pages else ())
                nodes = tuple(changed if other is node else other for other in setup.machine.nodes)
                yield msgspec.structs.replace(setup.machine, nodes=nodes, hugepages=None)


def _admits_on(setup: Setup, pod: Pod, machine: Machine) -> bool:
    try:
        node: Node = setup.empty(machine=machine)
        return all(node.admit(other).admitted for other in (*setup.running, pod))
    except StartError:
        return False


def _admits_with(setup: Setup, pod: Pod, change: dict[str, Any]) -> bool:
    config = msgspec.structs.replace(setup.config, **change)
    try:
        node: Node = setup.empty(config)
        return all(node.admit(other).admitted for other in (*setup.running, pod))
    except Exception:  # a configuration that does not start is not a fix
        return False


def test_unused_huge_pages_are_released() -> None:
    """Where memory is short because huge pages lie idle, as many as needed are released, and no more than idle ones."""
    machine = from_synthetic("pack:1 numa:1(memory=8GiB) core:4 pu:1")
    pages = tuple(msgspec.structs.replace(node, hugepages=(HugePages(2048, 2048),)) for node in machine.nodes)
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", eviction_hard={})
    node = Node(msgspec.structs.replace(machine, nodes=pages, hugepages=None), config)
    pod = make_pod("big", ("c", "2"), memory="5Gi")
    texts = [fix.text for fix in find_fixes(node, pod)]
    assert "Release 512 unused hugepages-2Mi pages on NUMA node 0 and restart the kubelet" in texts


def test_an_empty_node_needs_no_draining() -> None:
    """A fix that changes the state files of a node without pods starts the kubelet without the old ones."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus="0",
        topology_manager_policy="single-numa-node",
        memory_manager_policy="Static",
        system_reserved={"memory": "512Mi"},
        reserved_memory=(MemoryReservation(0, {"memory": "512Mi"}),),
        eviction_hard={},
    )
    node = Node(from_synthetic("pack:1 numa:2(memory=2GiB) core:2 pu:1"), config, predicates=False)
    texts = [fix.text for fix in find_fixes(node, make_pod("big", ("c", "1"), memory="3Gi"))]
    assert any(text.endswith("and restart the kubelet without its old state files") for text in texts)
    assert not any("drained" in text for text in texts)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2025))
def test_a_fix_is_found_where_there_is_one(seed: int) -> None:
    """Compared with trying everything on small machines, no class of fixes misses one, and reductions are smallest."""
    for setup, pod in refusals(seed):
        check_complete(setup, pod)


def test_a_pod_over_its_budget_is_only_mended_by_edits() -> None:
    """Containers that request more than their pod get no other configuration or node as a fix, since the API server
    refuses the pod on all of them."""
    pod = make_pod("exceed", ("a", "3"), ("b", "2"), budget="4")
    config = {"topology_manager_policy": "restricted", "topology_manager_scope": "pod"}
    fixes = find_fixes(make_node(**config, feature_gates={"PodLevelResourceManagers": True}), pod)
    assert fixes
    assert all(isinstance(fix.change, EditPod) for fix in fixes)


def test_guarantees_come_before_size() -> None:
    """A pod too large for a NUMA node: a smaller request comes first, then changes that give up alignment or exclusive
    CPUs, each with its losses."""
    options = {"full-pcpus-only": "true"}
    node = make_node(
        "pack:2 numa:1(memory=64GB) core:8 pu:2",
        topology_manager_policy="single-numa-node",
        cpu_manager_policy_options=options,
    )
    fixes = find_fixes(node, make_pod("hana", ("c", "20")))
    kept = [bool(fix.losses) for fix in fixes]
    assert kept == sorted(kept)
    assert (fixes[0].code, fixes[0].losses) == ("shrink", ())
    lost = {fix.text: fix.losses for fix in fixes}
    assert lost["Set topologyManagerPolicy: restricted (now single-numa-node) and restart the kubelet"] == (
        "alignment",
    )
    off = next(text for text in lost if text.startswith("Set cpuManagerPolicy: none"))
    assert lost[off] == ("exclusive-cpus", "full-cores")
    share = next(text for text in lost if text.startswith("Leave out the CPU limit"))
    assert lost[share] == ("exclusive-cpus",)


class Asked:
    """Counts how often the search calls `given_up`; it returns True from `patience` on."""

    def __init__(self, patience: float = float("inf")) -> None:
        self.patience = patience
        self.times = 0

    def __call__(self) -> bool:
        self.times += 1
        return self.times > self.patience


def test_looking_for_fixes_can_be_given_up() -> None:
    """Once the search is given up it ends at its next trial; the explanation says so and has no fixes."""
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", eviction_hard={})
    node = Node(from_synthetic("pack:1 numa:1(memory=32GiB) core:8 pu:1"), config)
    asked = Asked(patience=3)
    pod = make_pod("p", ("c", "9"))
    answer = Explainer(Trial.of(node), asked).explain(pod)
    assert (asked.times, answer.fixes) == (4, ())
    assert answer.unsearched.startswith("The search for changes that make it fit was stopped")
    assert Explainer(Trial.of(node)).explain(pod).fixes


@pytest.mark.slow
def test_fixes_of_very_many_containers_are_in_proportion() -> None:
    """Each trial looks at all containers, so the more there are the fewer are edited."""
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", eviction_hard={})
    node = Node(from_synthetic("pack:1 numa:1(memory=320GiB) core:32 pu:2"), config)
    looked_at = {}
    for count in (40, 160):
        asked = Asked()
        pod = make_pod("p", *((f"c{number}", f"{1 + number % 50}") for number in range(count)), memory="16Mi")
        Explainer(Trial.of(node), asked).explain(pod)
        looked_at[count] = asked.times * count
    assert 0 < looked_at[160] < 4 * looked_at[40]
