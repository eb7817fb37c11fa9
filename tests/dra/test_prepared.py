"""Prepared claims hold CPUs and memory in the node's ledgers, which no pod gets besides."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from podslice import KubeletConfig, Node, PodslicePolicy, StartError
from podslice.agent.dra.driver import claimable_amounts
from podslice.api.pod.claim_holder import claim_uid_of_holder, is_holder
from podslice.api.pod.spec import from_dict
from podslice.config.annotations import container_movability
from podslice.config.kubelet import MemoryReservation
from podslice.config.policy import (
    ClaimDevices,
    ClaimMemory,
    ClaimRules,
    ClassMatch,
    CPUClass,
    Defragmentation,
)
from podslice.dra.devices import machine_devices
from podslice.dra.objects import ResourceClaim
from podslice.dra.prepared import (
    ClaimError,
    NodeDevice,
    PreparedClaim,
    PreparedDevice,
    check_memory,
    node_devices,
    prepare,
)
from podslice.machine.model import cpu_topology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.rules import claim_memory
from podslice.replica.journal import Journal
from podslice.replica.replica import Replica
from podslice.replica.rulebook import Rulebook
from podslice.values.cpuset import parse_bits, union
from tests.conftest import make_pod

MACHINE = from_synthetic("pack:2 [numa(memory=8GiB)] core:8 pu:2(indexes=pu)")
CLAIMS = ClaimRules("8-15,24-31")
"""Four cores of each NUMA node."""
DEVICES = node_devices((0, 1), cpu_topology(MACHINE), {})


def node(*, rules: ClaimRules | None = CLAIMS, more: dict[str, Any] | None = None, **config: Any) -> Node:
    """CPUs 0-1 are reserved."""
    fields = {"cpu_manager_policy": "static", "reserved_system_cpus": "0-1", **config}
    return Node(MACHINE, KubeletConfig(**fields), predicates=False, policy=PodslicePolicy(claims=rules, **(more or {})))


def claim(name: str, *devices: tuple[int, int]) -> PreparedClaim:
    """With CPUs on NUMA nodes."""
    listed = [PreparedDevice("cpus", "n/podslice.io", f"podslice-numa-{numa}", numa, cpus) for numa, cpus in devices]
    return PreparedClaim(f"uid-{name}", "default", name, tuple(listed), ("pod",))


def hold(on: Node, one: PreparedClaim) -> bool:
    """Admit its holder."""
    pod = one.holder_pod()
    assert pod is not None
    return on.admit(pod).admitted


def test_zone() -> None:
    """A claim gets CPUs of its NUMA node that are for claims, in whole cores, and only as many as there are."""
    on = node()
    assert hold(on, claim("a", (1, 6)))
    (cpus,) = on.view.owners["claim/uid-a"].values()
    assert cpus.bit_count() == 6
    assert not cpus & ~(parse_bits(CLAIMS.cpus) & on.topology.numa_nodes[1])
    assert all((core & cpus) in (0, core) for core in on.topology.cores.values())
    assert not hold(on, claim("b", (1, 3)))
    assert hold(on, claim("c", (1, 2)))
    assert hold(on, claim("d", (0, 8)))


def test_spec_side() -> None:
    """No container owns CPUs of claims by its requests, but all share those that no claim holds."""
    on = node()
    free = on.topology.all_cpus & ~parse_bits(CLAIMS.cpus) & ~parse_bits("0-1")
    assert not on.admit(make_pod("large", ("c", str(free.bit_count() + 1)))).admitted
    assert on.admit(make_pod("all", ("c", str(free.bit_count())))).admitted
    assert on.view.shared & parse_bits(CLAIMS.cpus) == parse_bits(CLAIMS.cpus)
    assert hold(on, claim("a", (0, 8)))
    assert on.view.shared == parse_bits(CLAIMS.cpus) & on.topology.numa_nodes[1] | parse_bits("0-1")


def test_annotation_names_no_claims() -> None:
    """A pod cannot request the class of claims."""
    on = node(more={"cpu_classes": (CPUClass("fast"),)})
    for name in ("claims/0", "claims/0!"):
        pod = make_pod("p", ("c", "2"))
        pod = replace(pod, metadata=replace(pod.metadata, annotations={"podslice.io/cpu-class": name}))
        assert "is not a CPU class" in on.try_admit(pod).message


@pytest.mark.parametrize("scope", ["container", "pod"])
@pytest.mark.parametrize("policy", ["none", "best-effort", "restricted", "single-numa-node"])
def test_every_policy(policy: str, scope: str) -> None:
    """A claim over two NUMA nodes holds CPUs of each under every policy, also after a restart."""
    config = {"topology_manager_policy": policy, "topology_manager_scope": scope}
    on = node(**config)
    both = claim("a", (0, 4), (1, 2))
    assert hold(on, both)
    held = on.view.owners["claim/uid-a"]
    again = Node(MACHINE, on.rules.config, predicates=False, policy=on.rules.policy, files=on.manager_files)
    pod = both.holder_pod()
    assert pod is not None
    assert again.readmit([pod]) == []
    assert again.view.owners["claim/uid-a"] == held
    numa = on.topology.numa_nodes
    assert [(held[both.container(n)] & numa[n]).bit_count() for n in (0, 1)] == [4, 2]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["claim", "pod", "leave"]), st.integers(0, 1), st.integers(1, 8)), max_size=20)
)
def test_one_book(steps: list[tuple[str, int, int]]) -> None:
    """Whatever comes and goes: claims get every number of CPUs up to what is free in their zone, pods and claims never
    meet, and a replica of the node that hears its journal knows the same."""
    on = node()
    journal = Journal(on.rules, on.state, epoch=1, version="1")
    replica = Replica(Rulebook(), {"1"})
    replica.apply(journal.whole_state())
    zones = [parse_bits(CLAIMS.cpus) & on.topology.numa_nodes[n] for n in (0, 1)]
    for number, (kind, numa, cpus) in enumerate(steps):
        before = on.state
        if kind == "leave":
            if on.pods:
                uid = on.pods[cpus % len(on.pods)]
                on.remove(uid)
                replica.apply(journal.record_removal(on.rules, before, on.state, uid))
            continue
        pod = (
            claim(str(number), (numa, cpus)).holder_pod()
            if kind == "claim"
            else make_pod(f"p{number}", ("c", str(cpus)))
        )
        assert pod is not None
        room = (zones[numa] & on.view.shared).bit_count()
        decision = on.admit(pod)
        if kind == "claim":
            assert decision.admitted == (cpus <= room)
        if decision.admitted:
            applied = replica.apply(
                journal.record_admission(on.rules, before, on.state, on.view.pods[decision.uid].spec)
            )
            assert applied.outcome == "equal"
        owned = [held for named in on.view.owners.values() for held in named.values()]
        assert sum(held.bit_count() for held in owned) == union(owned).bit_count()
        for uid, named in on.view.owners.items():
            assert bool(union(named.values()) & union(zones)) == is_holder(uid)


def test_not_moved() -> None:
    """Plans that make room move no claim."""
    on = node(more={"defrag": Defragmentation(movable="all")})
    assert hold(on, claim("a", (0, 2)))
    pod = on.view.pods["claim/uid-a"].spec
    assert set(container_movability(on.rules.policy, pod).values()) == {"false"}
    assert claim_uid_of_holder(pod.metadata.uid) == "uid-a"


def test_memory_is_kept() -> None:
    """Memory of claims is given to no pod by its requests, and claims together get no more than there is."""
    kept = ClaimRules("8-9", (ClaimMemory(0, {"memory": "1Gi"}), ClaimMemory(1, {"memory": "512Mi"})))
    config = {
        "memory_manager_policy": "Static",
        "reserved_memory": (MemoryReservation(0, {"memory": "1Gi"}),),
        "kube_reserved": {"memory": "924Mi"},
    }
    ledger = node(rules=kept, **config).view.memory[0].memory_map["memory"].allocatable
    assert ledger == node(rules=None, **config).view.memory[0].memory_map["memory"].allocatable - (1 << 30)
    room = claim_memory(kept)
    held = [PreparedClaim("a", "d", "a", (PreparedDevice("r", "p", "d", 0, memory={"memory": 1 << 29}),))]
    check_memory(held[0], held, room)
    with pytest.raises(ClaimError, match="where claims may have 536870912"):
        check_memory(
            PreparedClaim("b", "d", "b", (PreparedDevice("r", "p", "d", 1, memory={"memory": 1 << 30}),)), held, room
        )
    with pytest.raises(StartError, match="needs a memory ledger"):
        node(rules=kept)


@pytest.mark.parametrize(
    ("cpus", "said"),
    [("0-3", "names CPUs 0-1, which are reserved"), ("99", "claims.cpus names 99"), ("x", "claims.cpus")],
)
def test_bad_cpus(cpus: str, said: str) -> None:
    """A node does not start with CPUs for claims that it does not have or that are reserved."""
    with pytest.raises(StartError, match=said):
        node(rules=ClaimRules(cpus))


def allocated(**changes: Any) -> ResourceClaim:
    """As the scheduler leaves it."""
    result = {"request": "cpus", "driver": "podslice.io", "pool": "n/podslice.io", "device": "podslice-numa-1",
              "shareID": "s", "consumedCapacity": {"podslice.io/cpu": "4", "podslice.io/memory": "1Gi"}}  # fmt: skip
    other = {"request": "gpu", "driver": "gpu.example.com", "pool": "n", "device": "gpu-0"}
    reserved = [{"resource": "pods", "name": "p", "uid": "pod-uid"}, *changes.pop("reserved", [])]
    results = [other, result | changes]
    status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
    return from_dict({"metadata": {"name": "c", "namespace": "default", "uid": "u"}, "status": status}, ResourceClaim)


def test_read_of_an_allocation() -> None:
    """The scheduler's allocation of our driver, by request, NUMA node, CPUs and bytes."""
    found = prepare(allocated(), uid="u", node="n", devices=DEVICES)
    device = PreparedDevice("cpus", "n/podslice.io", "podslice-numa-1", 1, 4, {"memory": 1 << 30}, "s")
    assert found == PreparedClaim("u", "default", "c", (device,), ("pod-uid",))
    assert prepare(allocated(request="cpus/large"), uid="u", node="n", devices=DEVICES).devices[0].request == "cpus"
    pages = allocated(consumedCapacity={"podslice.io/hugepages2Mi": "4Mi"})
    assert prepare(pages, uid="u", node="n", devices=DEVICES).devices[0].memory == {"hugepages-2Mi": 4 << 20}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"pool": "other/podslice.io"}, "pool other/podslice.io, this node's is n/podslice.io"),
        ({"device": "podslice-numa-7"}, "device podslice-numa-7, which this node does not have"),
        ({"device": "podslice-numa-01"}, "device podslice-numa-01"),
        ({"device": "gpu"}, "device gpu, which"),
        ({"consumedCapacity": {"podslice.io/cpu": "1500m"}}, "only whole amounts"),
        ({"consumedCapacity": {"podslice.io/cpu": "0", "podslice.io/memory": "0"}}, "for nothing; name capacity"),
        ({"consumedCapacity": None}, "for nothing"),
        ({"consumedCapacity": {"podslice.io/gpus": "1"}}, "allocated gpus"),
        ({"adminAccess": True}, "with adminAccess"),
        ({"driver": "other"}, "has 0 devices of podslice.io"),
        ({"reserved": [{"resource": "pods", "name": "q", "uid": "q"}]}, "reserved for 2 pods"),
    ],
)  # fmt: skip
def test_refused(changes: dict[str, Any], said: str) -> None:
    """A refusal is one line that fits an event."""
    with pytest.raises(ClaimError, match=said) as error:
        prepare(allocated(**changes), uid="u", node="n", devices=DEVICES)
    assert len(str(error.value)) <= 256


def test_made_again() -> None:
    """A claim of the same name with another UID is refused; so is one without allocation."""
    with pytest.raises(ClaimError, match="deleted and made again"):
        prepare(allocated(), uid="old", node="n", devices=DEVICES)
    bare = from_dict({"metadata": {"name": "c", "namespace": "d", "uid": "u"}}, ResourceClaim)
    with pytest.raises(ClaimError, match="is not allocated"):
        prepare(bare, uid="u", node="n", devices=DEVICES)


@pytest.mark.parametrize("options", [{}, {"full-pcpus-only": "true"}, {"strict-cpu-reservation": "true"}])
@pytest.mark.parametrize("devices", ["perCPU", "partitions"])
def test_devices_of_their_own(devices: ClaimDevices, options: dict[str, str]) -> None:
    """The owner of a device that stands for CPUs gets exactly these, as many as the slices say; no claim gets one that
    overlaps it."""
    rules = ClaimRules("2-31" if options else CLAIMS.cpus, devices=devices)
    on = node(rules=rules, cpu_manager_policy_options=options)
    classes = on.view.cpu_classes
    assert classes is not None
    amounts = claimable_amounts(on)
    assert amounts is not None
    known = node_devices((0, 1), on.topology, classes.parts)
    offered = [one for one in machine_devices(MACHINE, amounts) if "allowMultipleAllocations" not in one.device]
    assert offered
    for number, one in enumerate(offered):
        name = one.device["name"]
        device = known(name)
        assert device is not None
        assert str(device.cpus) == one.device["capacity"]["podslice.io/cpu"]["value"]
        held = PreparedDevice("r", "n/podslice.io", name, device.numa_node, device.cpus or 0)
        whole = PreparedClaim(f"uid-{number}", "default", "c", (held,), ("pod",))
        assert hold(on, whole)
        assert list(on.view.owners[whole.holder].values()) == [one.part.cpus]
        again = replace(whole, uid=f"other-{number}")
        assert not hold(on, again)
        on.remove(whole.holder)


def test_class_of_a_numa_node() -> None:
    """Claims take CPUs of the class whose device they were allocated, also where that is of the same NUMA node."""
    fast = CPUClass("fast", ClassMatch(cpus="8-9"))
    on = node(more={"cpu_classes": (fast,)})
    classes = on.view.cpu_classes
    assert classes is not None
    known = node_devices((0, 1), on.topology, classes.parts)
    assert known("podslice-numa-0-fast") == NodeDevice(0)
    assert known("podslice-numa-1-fast") is None
    held = PreparedDevice("r", "n/podslice.io", "podslice-numa-0-fast", 0, 2)
    one = PreparedClaim("uid-a", "default", "a", (held,), ("pod",))
    assert hold(on, one)
    assert list(on.view.owners[one.holder].values()) == [parse_bits("8-9")]
    assert not hold(on, replace(one, uid="uid-b"))


def test_long_class() -> None:
    """A device's name has an end."""
    with pytest.raises(StartError, match="too long for a device of claims"):
        node(more={"cpu_classes": (CPUClass("a" * 41),)})
