"""A node starts on state files while its machine is another: CPUs went or came while no kubelet ran."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from podslice import Hotplug, KubeletConfig, Machine, Node, PodslicePolicy, StartError, without_cpus
from podslice.config.policy import ExclusiveResize
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.cpuset import bits_of, parse_bits
from tests.advise.explain.random_nodes import random_config, random_machine, random_pod
from tests.node.hotplug.test_examples import MACHINE, MORE, cpus, node, off
from tests.node.hotplug.test_properties import check, check_memory
from tests.node.resize.helpers import guaranteed, pod

PODS = [pod(guaranteed("4", "16Mi"), name=name) for name in ("a", "b")]


def again(files: dict[str, bytes], machine: Machine, config: dict[str, Any] | None = None, **hotplug: Any) -> Node:
    settings = {"cpu_manager_policy": "static", "reserved_system_cpus": "0-1"} | (config or {})
    made = Node(machine, KubeletConfig(**settings), files=files, policy=PodslicePolicy(hotplug=Hotplug(**hotplug)))
    assert not made.readmit(PODS)
    made.replace_lost()
    return made


def test_degraded() -> None:
    """The start takes a state that names CPUs which are offline, and they are their owner's when they return."""
    files = dict(node().files)
    made = again(files, off("5,10"))
    assert cpus(made, "a") == "2-4"
    assert str(made.shared_cpus) == "0-1,11-15"
    made.change_machine(MACHINE)
    assert made.files["cpu_manager_state"] == files["cpu_manager_state"]


def test_replaced() -> None:
    """With `replace`, and where nothing is left, owners get others once they are there again."""
    files = dict(node().files)
    assert cpus(again(files, off("5"), lost_cpus="replace"), "a") == "2-4,10"
    assert cpus(again(files, off("2-5")), "a") == "10-13"


def test_more() -> None:
    """CPUs that came meanwhile are shared, or with `ignore` left out."""
    files = dict(node().files)
    assert str(again(files, MORE).shared_cpus) == "0-1,10-19"
    blind = again(files, MORE, new_cpus="ignore")
    assert str(blind.shared_cpus) == "0-1,10-15"
    assert blind.change_machine(MORE) == ()


def test_the_last_shared_cpu() -> None:
    """Under a strict reservation that is lent because nothing else is left, a node starts again, and gives it back."""
    strict = {"cpu_manager_policy_options": {"strict-cpu-reservation": "true"}}
    made = node(config=strict)
    files = dict(made.files)
    made.change_machine(off("10-15"))
    made = again(dict(made.files), off("10-15"), strict)
    assert str(made.shared_cpus) == "0-1"
    made = again(dict(made.files), MACHINE, strict)
    assert made.files == files


def test_reserved_cpus() -> None:
    """A reserved CPU that is offline stays reserved; one that does not exist is an error, and so are all offline."""
    made = again(dict(node().files), off("1"))
    assert str(made.shared_cpus) == "0,10-15"
    assert made.rules.reservation["cpu"].value() == 1
    made.change_machine(MACHINE)
    assert str(made.shared_cpus) == "0-1,10-15"
    assert str(made.assignable_cpus) == "10-15"
    settings = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1,16")
    with pytest.raises(StartError, match="is not a subset of online-cpus"):
        Node(off("1"), settings)
    settings = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")
    with pytest.raises(StartError, match="is not a subset of online-cpus"):
        Node(off("0-1"), settings)
    with pytest.raises(StartError, match="is not a subset of online-cpus"):
        Node(off("1"), settings, profile="kubelet-1.36")


def test_reserved_by_number() -> None:
    """A reservation by number is never on a CPU that has an owner."""
    by_number = {"reserved_system_cpus": "", "kube_reserved": {"cpu": "2"}}
    made = node(config=by_number)
    assert str(made.shared_cpus) == "0-1,10-15"
    made = again(dict(made.files), off("0"), by_number)
    assert str(made.reserved_cpus) == "1,10"
    assert cpus(made, "a") == "2-5"


def test_not_without_the_section() -> None:
    """Without `hotplug` a state of another machine keeps the node from starting, as before; and so does one that names
    CPUs that the machine does not have at all."""
    files, settings = dict(node().files), KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")
    with pytest.raises(StartError, match="doesn't match with CPUs in state"):
        Node(off("5"), settings, files=files)
    smaller = from_synthetic("pack:1 core:7 pu:2(indexes=pu)")
    with pytest.raises(StartError, match="doesn't match with CPUs in state"):
        again(files, smaller)


@pytest.mark.parametrize("seed", range(60))
def test_lives(seed: int) -> None:
    """Whatever went or came while no kubelet ran, the node starts, keeps every pod, and all that holds of a node whose
    machine changes while it runs."""
    random = Random(seed)
    policy = PodslicePolicy(
        resize=ExclusiveResize(exclusive=random.random() < 0.3),
        hotplug=Hotplug(lost_cpus=random.choice(["degrade", "replace", "drain"])),
    )
    whole, config = random_machine(random), random_config(random)
    try:
        made = Node(whole, config, predicates=False, policy=policy)
    except StartError:
        return
    pods = {}
    reserved = made.reserved_cpus.bits
    for step in range(12):
        new = random_pod(random, f"p{step}", gpus=False)
        if made.admit(new).admitted:
            pods[f"p{step}"] = new
        if random.random() < 0.5:
            gone = bits_of(random.sample(sorted(whole.cpus), random.randrange(len(whole.cpus) // 2)))
            if not reserved & ~gone:
                continue
            machine = without_cpus(whole, gone)
            if random.random() < 0.5:
                made.change_machine(machine)
            else:
                made = Node(machine, config, predicates=False, policy=policy, files=made.files)
                assert made.readmit(pods.values()) == []
                made.replace_lost()
            check(made)
            check_memory(made)
    assert parse_bits(str(made.shared_cpus)) & ~made.topology.all_cpus == 0
