"""The worked examples: CPUs go and come while pods run (docs/hotplug.md)."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from podslice import Hotplug, InputError, KubeletConfig, Machine, Node, PodslicePolicy, without_cpus
from podslice.config.kubelet import MemoryReservation
from podslice.config.policy import ExclusiveResize
from podslice.machine.model import HugePages
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.cpuset import format_bits, parse_bits
from tests.node.resize.helpers import guaranteed, pod, resources

MACHINE = from_synthetic("pack:1 core:8 pu:2(indexes=pu)")
MORE = from_synthetic("pack:1 core:10 pu:2(indexes=pu)")


def node(machine: Machine = MACHINE, config: dict[str, Any] | None = None, **hotplug: Any) -> Node:
    """Reserved 0-1, a has 2-5, b has 6-9, DEFAULT is 0-1,10-15."""
    settings = {"cpu_manager_policy": "static", "reserved_system_cpus": "0-1"} | (config or {})
    made = Node(machine, KubeletConfig(**settings), policy=PodslicePolicy(hotplug=Hotplug(**hotplug)))
    for name in ("a", "b"):
        assert made.admit(pod(guaranteed("4", "16Mi"), name=name)).admitted
    return made


def off(cpus: str, machine: Machine = MACHINE) -> Machine:
    return without_cpus(machine, parse_bits(cpus))


def cpus(made: Node, name: str) -> str:
    view = made.view
    owner = view.pods[f"uid-{name}"]
    return format_bits(view.container(owner, owner.containers[0]).cpus)


def test_degrade() -> None:
    """An owner of a CPU that goes runs on the rest, its ledgers say what it owns, and it gets the CPU back."""
    made = node()
    files = dict(made.files)
    (lost,) = made.change_machine(off("5"))
    assert (lost.kind, lost.pod, str(lost.lost), str(lost.cpus)) == ("degraded", "uid-a", "5", "2-4")
    assert cpus(made, "a") == "2-4"
    assert made.files == files
    (back,) = made.change_machine(MACHINE)
    assert back.kind == "returned"
    assert cpus(made, "a") == "2-5"
    assert made.files == files


def test_replace() -> None:
    """With `replace` an owner gets another CPU for the lost one, which is shared when it returns."""
    made = node(lost_cpus="replace")
    (changed,) = made.change_machine(off("5"))
    assert (changed.kind, str(changed.lost), str(changed.cpus)) == ("replaced", "5", "2-4,10")
    assert str(made.shared_cpus) == "0-1,11-15"
    (back,) = made.change_machine(MACHINE)
    assert back.kind == "shared-grown"
    assert str(made.shared_cpus) == "0-1,5,11-15"
    assert cpus(made, "a") == "2-4,10"


@pytest.mark.parametrize("setting", ["degrade", "replace", "drain"])
def test_urgent(setting: str) -> None:
    """An owner without any CPU left gets others at once, whatever the policy says."""
    made = node(lost_cpus=setting)
    made.change_machine(off("2-5"))
    assert cpus(made, "a") == "10-13"
    assert str(made.shared_cpus) == "0-1,14-15"
    made.change_machine(MORE)
    assert str(made.shared_cpus) == "0-5,14-19"
    assert cpus(made, "a") == "10-13"


def test_more() -> None:
    """CPUs that come are shared, or with `ignore` left out."""
    made, blind = node(), node(new_cpus="ignore")
    assert [one.kind for one in made.change_machine(MORE)] == ["shared-grown"]
    assert str(made.shared_cpus) == "0-1,10-19"
    assert blind.change_machine(MORE) == ()
    assert str(blind.shared_cpus) == "0-1,10-15"


def test_a_numa_node_comes() -> None:
    """A NUMA node that comes is one more for the Topology Manager: pods are aligned on it, a growth that needs two is
    had, and no assignment changes."""
    small, wide = (from_synthetic(f"pack:1 numa:{count}(memory=8GB) core:4 pu:2(indexes=pu)") for count in (1, 2))
    config = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", topology_manager_policy="restricted")
    policy = PodslicePolicy(hotplug=Hotplug(), resize=ExclusiveResize(exclusive=True))
    made = Node(small, config, policy=policy)
    assert made.admit(pod(guaranteed("2", "16Mi"), name="a")).admitted
    assert made.admit(pod(guaranteed("4", "16Mi"), name="b")).admitted
    held = {name: cpus(made, name) for name in ("a", "b")}
    assert made.admit(pod(guaranteed("6", "16Mi"), name="c")).reason == "TopologyAffinityError"
    assert made.resize(pod(guaranteed("9", "16Mi"), name="a")).outcome == "Infeasible"
    assert [one.kind for one in made.change_machine(wide)] == ["node-added", "shared-grown"]
    assert {name: cpus(made, name) for name in ("a", "b")} == held
    assert made.admit(pod(guaranteed("6", "16Mi"), name="c")).admitted
    assert cpus(made, "c") == "8-13"
    made.remove("uid-c")
    assert made.resize(pod(guaranteed("9", "16Mi"), name="a")).outcome == "Allocated"
    assert cpus(made, "a") == "1-3,8-13"


def test_nothing_is_free() -> None:
    """An owner without CPUs gets as many as there are, and without any it shares, with its quota again."""
    made = node()
    made.admit(pod(guaranteed("3", "16Mi"), name="c"))
    changes = made.change_machine(off("2-5"))
    assert [one.kind for one in changes] == ["shared-shrunk", "replaced"] or [one.kind for one in changes] == [
        "replaced"
    ]
    assert cpus(made, "a") == "13-15"
    made.change_machine(off("2-5,13-15"))
    assert cpus(made, "a") == "0-1"
    view = made.view
    owner = view.pods["uid-a"]
    got = view.container(owner, owner.containers[0])
    assert (got.isolation, got.has_exclusive_cpus, got.cpu_quota_disabled) == ("host", False, False)
    made.change_machine(MACHINE)
    assert cpus(made, "a").count("-")
    assert view.container(owner, owner.containers[0]).isolation == "host"


def test_the_last_shared_cpu() -> None:
    """Containers that share run on the reserved CPUs if nothing else is left, under a strict reservation until others
    come."""
    strict = {"cpu_manager_policy_options": {"strict-cpu-reservation": "true"}}
    made = node(config=strict)
    assert str(made.shared_cpus) == "10-15"
    files = dict(made.files)
    assert [one.kind for one in made.change_machine(off("10-15"))] == [
        "shared-shrunk",
        "shared-grown",
        "no-shared-cpus",
    ]
    assert str(made.shared_cpus) == "0-1"
    made.change_machine(MACHINE)
    assert made.files == files
    plain = node()
    assert [one.kind for one in plain.change_machine(off("10-15"))] == ["shared-shrunk", "only-reserved"]


def test_half_a_core() -> None:
    """Under `full-pcpus-only` the other thread of a core stays with its owner, and sizes stay those of whole cores."""
    made = node(config={"cpu_manager_policy_options": {"full-pcpus-only": "true"}})
    made.change_machine(off("5"))
    assert cpus(made, "a") == "2-4"
    assert made.admit(pod(guaranteed("3", "16Mi"), name="c")).reason == "SMTAlignmentError"
    assert made.admit(pod(guaranteed("2", "16Mi"), name="d")).admitted
    assert cpus(made, "d") == "10-11"


def test_a_pod_with_cpus_as_a_whole() -> None:
    """In a pod with CPUs of its own as a whole, who owns some of them gets others first, then who shares the rest."""
    gates = {"PodLevelResourceManagers": True}
    config = {"feature_gates": gates, "topology_manager_policy": "best-effort", "topology_manager_scope": "pod"}
    budget = {"requests": {"cpu": "6", "memory": "64Mi"}, "limits": {"cpu": "6", "memory": "64Mi"}}

    def admitted(setting: str) -> Node:
        made = node(config=config, lost_cpus=setting)
        whole = pod(guaranteed("2", "16Mi", name="own"), {"name": "pool"}, name="w", pod_level=budget)
        assert made.admit(whole).admitted
        return made

    def sets(made: Node) -> dict[str, str]:
        view = made.view
        owner = view.pods["uid-w"]
        return {one.name: format_bits(view.container(owner, one).cpus) for one in owner.containers}

    made = admitted("degrade")
    assert sets(made) == {"own": "10-11", "pool": "12-15"}
    made.change_machine(off("11-12"))
    assert sets(made) == {"own": "10", "pool": "13-15"}
    files = dict(made.files)
    changes = made.change_machine(off("10-12"))
    assert [(one.kind, one.container) for one in changes] == [("shares-in-pod", "own")]
    assert sets(made) == {"own": "13-15", "pool": "13-15"}
    made.change_machine(MACHINE)
    assert sets(made) == {"own": "10-11", "pool": "12-15"}
    assert made.files == files
    made = admitted("replace")
    made.remove("uid-b")
    made.change_machine(off("11-12"))
    assert sets(made) == {"own": "6,10", "pool": "7,13-15"}


def test_memory_goes() -> None:
    """Blocks that no longer fit make their NUMA node overcommitted; pods stay, and nothing new goes there."""
    machine = from_synthetic("pack:1 numa:2(memory=4GiB) core:4 pu:2(indexes=pu)")
    reserved = {"system_reserved": {"memory": "1Gi"}, "eviction_hard": {}, "memory_manager_policy": "Static"}
    config = {**reserved, "reserved_memory": (MemoryReservation(0, {"memory": "1Gi"}),),
              "topology_manager_policy": "single-numa-node"}  # fmt: skip
    made = Node(
        machine, KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", **config), predicates=False
    )
    for name in ("a", "b"):
        assert made.admit(pod(guaranteed("1", "1Gi"), name=name)).admitted
    files = dict(made.files)
    smaller = replace(machine, nodes=tuple(replace(one, memory=one.memory - (5 << 29)) for one in machine.nodes))
    changes = made.change_machine(smaller)
    assert [one.kind for one in changes] == ["memory-changed", "memory-changed", "memory-overcommitted"]
    assert made.state.memory.short == {0: 3 << 29}
    assert made.admit(pod(guaranteed("1", "1Gi"), name="c")).admitted
    assert made.view.numa_nodes("uid-c", "c0") == 0b10
    made.remove("uid-c")
    made.remove("uid-b")
    assert made.state.memory.short == {0: 1 << 29}
    made.change_machine(machine)
    assert made.state.memory.short == {}
    assert made.admit(pod(guaranteed("1", "1Gi"), name="b")).admitted
    assert made.files == files


def test_a_numa_node_goes() -> None:
    """A container with memory on a NUMA node that is gone is bound to the rest of its nodes, or to all there are."""
    machine = from_synthetic("pack:1 numa:2(memory=4GiB) core:4 pu:2(indexes=pu)")
    config = {"memory_manager_policy": "Static", "eviction_hard": {"memory.available": "1Gi"},
              "reserved_memory": (MemoryReservation(0, {"memory": "1Gi"}),),
              "topology_manager_policy": "best-effort"}  # fmt: skip
    made = Node(
        machine, KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0", **config), predicates=False
    )
    assert made.admit(pod(guaranteed("2", "6Gi"), name="both")).admitted
    assert made.view.numa_nodes("uid-both", "c0") == 0b11
    files = dict(made.files)
    changes = made.change_machine(replace(machine, nodes=machine.nodes[:1]))
    assert [one.kind for one in changes][:2] == ["node-gone", "memory-overcommitted"]
    assert made.view.numa_nodes("uid-both", "c0") == 0b01
    made.change_machine(replace(machine, nodes=machine.nodes[1:]))
    assert made.view.numa_nodes("uid-both", "c0") == 0b10
    made.change_machine(machine)
    assert made.files["memory_manager_state"] == files["memory_manager_state"]


def test_a_kubelet_does_not_look() -> None:
    """Profile `kubelet-1.36` predicts, and a kubelet does not look at its machine while it runs."""
    made = Node(MACHINE, KubeletConfig(), profile="kubelet-1.36")
    with pytest.raises(InputError, match="does not look at its machine"):
        made.change_machine(MORE)


def test_huge_pages_change() -> None:
    """Huge pages that come or go while the node runs are counted at once; a kubelet sees them at its next start."""
    machine = from_synthetic("pack:1 numa:2(memory=4GiB) core:4 pu:2(indexes=pu)")
    reserved = {"system_reserved": {"memory": "1Gi"}, "eviction_hard": {}, "memory_manager_policy": "Static"}
    config = {**reserved, "reserved_memory": (MemoryReservation(0, {"memory": "1Gi"}),)}
    made = Node(machine, KubeletConfig(**config), predicates=False, policy=PodslicePolicy(hotplug=Hotplug()))
    amounts = {"cpu": "1", "memory": "16Mi", "hugepages-2Mi": "64Mi"}
    wants = pod({"resources": resources(dict(amounts), dict(amounts))}, name="a")
    assert not made.admit(wants).admitted
    first, second = machine.nodes
    more = replace(machine, nodes=(first, replace(second, hugepages=(HugePages(2048, 64),))))
    reports = made.change_machine(more)
    assert [(one.kind, one.text) for one in reports] == [
        ("hugepages-changed", "NUMA node 1 has 64 pages of hugepages-2Mi, 0 before")
    ]
    assert made.change_machine(more) == ()
    assert made.admit(wants).admitted
    assert made.view.numa_nodes("uid-a", "c0") == 0b10
