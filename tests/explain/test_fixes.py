"""Every printed fix works, and a fix is found where there is one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations

import msgspec
import pytest

from podslice import Node, Pod
from podslice.core.explain.edits import is_valid, places, with_amounts
from podslice.core.explain.explain import find_fixes
from podslice.core.explain.pod_fixes import differences
from podslice.core.merge.options import POLICIES, SCOPES
from podslice.core.pod.defaults import default_pod
from podslice.core.values.quantity import Quantity
from tests.explain.random_nodes import Setup, refusals
from tests.explain.reapply import works

SEEDS = range(40)


def check_fixes(setup: Setup, pod: Pod) -> int:
    """Apply every fix of a refusal; returns their number."""
    node = setup.node()
    before = dict(node.files)
    fixes = find_fixes(node.kubelet, pod)
    assert dict(node.files) == before, "looking for fixes changed the node"
    for fix in fixes:
        assert works(setup, pod, fix), f"{fix.text} does not help {pod.metadata.name}"
    costs = [fix.cost for fix in fixes]
    assert costs == sorted(costs)
    return len(fixes)


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fix_admits_the_pod(seed: int) -> None:
    """Whatever is printed works when it is applied to a node built anew."""
    for setup, pod in refusals(seed):
        check_fixes(setup, pod)


@pytest.mark.parametrize("seed", range(1000, 1010))
def test_fixes_work_with_upstream_defects(seed: int) -> None:
    """In profile kubelet-1.36, where refused pods leave traces, fixes work as well."""
    for setup, pod in refusals(seed, profile="kubelet-1.36"):
        check_fixes(setup, pod)


def check_complete(setup: Setup, pod: Pod) -> None:
    """Brute force over the searched classes: where any change helps, a fix of that class is found."""
    node = setup.node()
    fixes = find_fixes(node.kubelet, pod)
    codes = {fix.code for fix in fixes}
    defaulted = default_pod(pod, node.kubelet.manager.context.gates)
    for place, name, amounts in _smaller_amounts(defaulted):
        best = next((a for a in amounts if _admits_edited(setup, defaulted, place, name, a)), None)
        if best is not None:
            found = [
                fix for fix in fixes if fix.code == "shrink" and _reduces(defaulted, fix, place, name) >= best.nano
            ]
            assert found, f"{place or 'pod'} {name} {best.canonical()} would do"
    if any(_admits_without(setup, pod, gone) for size in (1, 2) for gone in combinations(setup.running, size)):
        assert "evict-pods" in codes
        fewest = 1 if any(_admits_without(setup, pod, (one,)) for one in setup.running) else 2
        assert min(len(fix.change.uids) for fix in fixes if fix.code == "evict-pods") == fewest  # type: ignore[union-attr]
    if setup.running and setup.empty().admit(pod).admitted:
        assert "empty-node" in codes
    if any(_admits_with(setup, pod, policy, scope) for policy in POLICIES for scope in SCOPES):
        assert codes & {"config", "repack"}


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
    return is_valid(edited) and setup.node().admit(edited).admitted


def _reduces(pod: Pod, fix: object, place: str, name: str) -> int:
    """The amount a fix leaves in one place, in billionths; -1 if it changes another one."""
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


def _admits_with(setup: Setup, pod: Pod, policy: str, scope: str) -> bool:
    config = msgspec.structs.replace(setup.config, topology_manager_policy=policy, topology_manager_scope=scope)
    try:
        node: Node = setup.empty(config)
        return all(node.admit(other).admitted for other in (*setup.running, pod))
    except Exception:  # a configuration that does not start is no fix
        return False


@pytest.mark.parametrize("seed", range(2000, 2025))
def test_a_fix_is_found_where_there_is_one(seed: int) -> None:
    """Compared with trying everything on small machines, no class of fixes misses one, and reductions are smallest."""
    for setup, pod in refusals(seed):
        check_complete(setup, pod)
