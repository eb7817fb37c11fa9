"""Amounts that 64 bits do not hold: what v1.36.2 makes of them, and how profile podslice refuses them."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import pytest

from podslice import KubeletConfig, Node
from podslice.advise.explain.explain import explain
from podslice.agent.kubelet.sources import pod_from_annotation
from podslice.api.pod.resource_names import hugepage_size
from podslice.api.pod.spec import Pod, pod_from_dict
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.effects.huge_pages import page_size_of
from podslice.service.identity import Identity
from podslice.values.errors import InputError
from podslice.values.quantity import MAX_DIGITS, Quantity, QuantityError
from tests.conftest import make_pod

MACHINE = from_synthetic("pack:1 numa:1(memory=8GiB) core:4 pu:2")


CONFIG = KubeletConfig(
    cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy="restricted", eviction_hard={}
)


def calls_of(work: Callable[[], object]) -> int:
    """Count the functions that a piece of work calls."""
    count = 0

    def note(*_: object) -> None:
        nonlocal count
        count += 1

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def pod(cpu: str, memory: str = "1Gi") -> Pod:
    amounts = {"cpu": cpu, "memory": memory}
    resources = {"requests": amounts, "limits": amounts}
    containers = [{"name": "c", "resources": resources}]
    return pod_from_dict({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": containers}})


@pytest.mark.parametrize(
    ("cpu", "memory"),
    [("8E", "1Gi"), ("9223372036854775808", "1Gi"), ("9223372036854776", "1Gi"), ("2", "16E"), ("1e30", "1Gi")],
)
def test_refused(cpu: str, memory: str) -> None:
    """Profile podslice refuses an amount that Kubernetes would take for another, with a message about it."""
    decision = Node(MACHINE, CONFIG).admit(pod(cpu, memory))
    assert (decision.admitted, decision.reason) == (False, "AmountOverflowError")
    assert "counts cpu in 64 bits" in decision.message or "counts memory in 64 bits" in decision.message


def test_sums_are_refused() -> None:
    """Containers whose requests overflow only together are refused as well."""
    containers = [{"name": f"c{i}", "resources": {"requests": {"memory": "5E"}}} for i in range(2)]
    data = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": containers}}
    decision = Node(MACHINE, CONFIG, predicates=False).admit(pod_from_dict(data))
    assert decision.reason == "AmountOverflowError"
    assert "the pod asks for 10E memory" in decision.message


def test_upstream_counts_nothing() -> None:
    """Profile kubelet-1.36 admits 8E CPUs as v1.36.2 does, and explain names the overflow."""
    node = Node(MACHINE, CONFIG, profile="kubelet-1.36")
    explanation = explain(node, pod("8E"))
    assert explanation.trace.containers[0].eligibility == "overflow"
    assert node.admit(pod("8E")).admitted


def test_digits() -> None:
    """An amount has a limited number of digits, written out or as an exponent; leading zeros count."""
    assert Quantity.parse("9" * MAX_DIGITS).sign() == 1
    for text in ("9" * (MAX_DIGITS + 1), "1e4096", "1e1025", "0" * 5000, "1e-" + "9" * 5000):
        with pytest.raises(QuantityError, match="more than 1024 digits"):
            Quantity.parse(text)


def test_the_least_64_bits() -> None:
    """A difference that 64 bits just hold is a whole number like any other; one less has no such number
    (pod-level-resources 1.4)."""
    least = Quantity.of(1 - 2**63).sub(Quantity.of(1))
    assert least.as_int64() == -(2**63)
    assert least.sub(Quantity.of(1)).as_int64() is None


@pytest.mark.parametrize("digits", ["9" * 5000, "1e4096", "1e1000", "0"])
def test_page_sizes(digits: str) -> None:
    """A huge page resource whose name is a huge number has no page size, and nothing fails."""
    assert page_size_of(f"hugepages-{digits}") == 0
    assert hugepage_size(f"hugepages-{digits}") is None


@pytest.mark.parametrize("amount", ["1e4096", "1e1000"])
@pytest.mark.parametrize("profile", ["podslice", "kubelet-1.36"])
def test_annotation_of_huge_amounts(amount: str, profile: str) -> None:
    """590 huge page resources of huge amounts are an error or an answer, after bounded work."""
    names = {f"hugepages-{i + 1}Ki": amount for i in range(590)}
    text = json.dumps({"limits": {"cpu": "4", "memory": "1Gi", **names}}, separators=(",", ":"))
    identity = Identity("u", "ns", "n", {"podslice.io/resources": text}, "")
    if amount == "1e4096":
        with pytest.raises(InputError, match="more than 1024 digits"):
            pod_from_annotation(identity)
        return
    found = pod_from_annotation(identity)
    assert found is not None
    node = Node(MACHINE, CONFIG, profile=profile, predicates=False)
    assert calls_of(lambda: node.admit(found)) < 100_000


def test_ordinary_pods_pass() -> None:
    """Nothing of this touches a real pod."""
    assert Node(MACHINE, CONFIG).admit(make_pod("p", ("c", "2"))).admitted


@pytest.mark.parametrize(
    ("text", "stored"),
    [
        ("1000E", "1"),
        ("12000E", "12"),
        ("1000000000000000000000", "1"),
        ("123E", "123E"),
        ("1e21", "1e21"),
        ("1000Ei", str(sys.maxsize)),
    ],
)
def test_there_is_no_suffix_beyond_e(text: str, stored: str) -> None:
    """An amount of 10^21 and more in suffixes loses them as it is stored, as the API server of v1.36.2 answered to each
    of these; exponents stay."""
    assert str(Quantity.parse(text)) == stored
