"""Admission and removal of one pod over machines from 2 to 64 NUMA nodes, and what a node does in its life."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.measure import Case
from benchmarks.nodes import ALL_RESOURCES, Prepare, config, devices, machine, pod
from podslice import Digester, ExclusiveResize, KubeletConfig, Node, PodslicePolicy, decide, release, shape_of
from podslice.api.pod.spec import Pod
from podslice.api.server.defaults import default_pod
from podslice.host.state.store import NodeStore
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import Machine
from podslice.node import node_resize

SIZES = (2, 4, 8, 16, 32, 34, 64)
CYCLES_PER_SECOND = 6000


def _machines(nodes: int) -> tuple[Machine, Machine]:
    """Return a machine without and one with huge pages; 34 nodes are two with 72 CPUs each and 32 without, as on
    GB200."""
    if nodes == 34:
        wide = partial(machine, 2, cpus_per_node=72, without_cpus=32)
    else:
        wide = partial(machine, nodes, cpus_per_node=32 if nodes <= 2 else 16)
    return wide(huge=False), wide(huge=True)


def cases() -> Iterator[Case]:
    yield from _by_nodes("admit", admission)
    big = machine(64, cpus_per_node=8)
    wanted = pod(cpus=4, containers=2, further={"example.com/gpu": "1", "example.com/nic": "1"})
    for policy in ("restricted", "best-effort", "single-numa-node"):
        name = f"64 NUMA x 512 CPUs, CPU + memory + 2 devices, pod scope, {policy}"
        yield Case("admit", name, partial(admission, big, config(memory=True, scope="pod", policy=policy), wanted,
                                          devices(64)))  # fmt: skip
    wide = config(memory=True, scope="pod", policy="best-effort")
    yield Case("admit", "64 NUMA x 512 CPUs, CPU + memory of 40 nodes", partial(admission, big, wide, pod(cpus=320)))
    yield from _by_nodes("remove", removal)


def _by_nodes(group: str, timed: Callable[..., Prepare]) -> Iterator[Case]:
    """Yield cases for 2 to 64 NUMA nodes, three kinds of pods, both scopes."""
    for nodes in SIZES:
        made, huge = _machines(nodes)
        for scope in ("container", "pod"):
            settings = config(memory=True, scope=scope)
            kinds: dict[str, Callable[[], Prepare]] = {
                "CPU": partial(timed, made, config(memory=False, scope=scope), pod()),
                "CPU + memory": partial(timed, made, settings, pod()),
                "six resources": partial(timed, huge, settings, pod(further=ALL_RESOURCES), devices(nodes)),
            }
            for kind, setup in kinds.items():
                on_curve = group == "admit" and scope == "pod" and nodes != 34
                name = f"{nodes} NUMA, {kind}, {scope} scope"
                yield Case(group, name, setup, curve=kind, nodes=nodes if on_curve else 0)


def admission(made: Machine, settings: KubeletConfig, one: Pod, inventory: DeviceInventory | None = None) -> Prepare:
    """Time the admission of one pod, not its removal."""
    node = Node(made, settings, devices=inventory, predicates=False)
    decision = node.kubelet.admit(one)
    assert decision is None, decision

    def prepare() -> Callable[[], Any]:
        node.kubelet.remove_pod(one.metadata.uid)
        node.kubelet.collect()
        return lambda: node.kubelet.admit(one)

    return prepare


def removal(made: Machine, settings: KubeletConfig, one: Pod, inventory: DeviceInventory | None = None) -> Prepare:
    """Time the removal of one pod until its resources are free, not its admission."""
    kubelet = Node(made, settings, devices=inventory, predicates=False).kubelet

    def remove() -> None:
        kubelet.remove_pod(one.metadata.uid)
        kubelet.collect()

    def prepare() -> Callable[[], Any]:
        assert kubelet.admit(one) is None
        return remove

    return prepare


def _cycle(profile: str) -> Prepare:
    node = Node(machine(2, cpus_per_node=32), config(memory=True), profile=profile, predicates=False)
    kubelet = node.kubelet
    pods = [pod(f"p{i}") for i in range(16)]
    turn = count()

    def cycle() -> None:
        one = pods[next(turn) % len(pods)]
        assert kubelet.admit(one) is None
        kubelet.remove_pod(one.metadata.uid)

    return lambda: cycle


def _readmission(number: int) -> Prepare:
    """Time the re-admission of `number` pods after a restart, state files included."""
    made = machine(8, cpus_per_node=64)
    settings = config(memory=True, policy="best-effort")
    node = Node(made, settings)
    pods = [pod(f"p{i}", cpus=1) for i in range(number)]
    assert all(node.admit(one).admitted for one in pods)
    files = dict(node.files)
    return lambda: lambda: Node(made, settings, files=files).readmit(pods)


def _encoding() -> Prepare:
    """Time the encoding of both state files with fifty pods and one just admitted."""
    node = Node(machine(8, cpus_per_node=32), config(memory=True, policy="best-effort"))
    for i in range(50):
        node.admit(pod(f"p{i}", cpus=2))
    one = pod(cpus=2)

    def prepare() -> Callable[[], Any]:
        node.remove("bench")
        node.admit(one)
        return lambda: node.files

    return prepare


def _writing(folder: Path) -> Prepare:
    """Time the admission and the write of one more pod beside fifty."""
    made = machine(8, cpus_per_node=32)
    store = NodeStore(folder, made, config(memory=True, policy="best-effort"))
    for i in range(50):
        store.admit(pod(f"p{i}", cpus=2))
    one = pod(cpus=2)

    def prepare() -> Callable[[], Any]:
        store.remove("bench")
        return lambda: store.admit(one)

    return prepare


def lives() -> Iterator[Case]:
    for profile in ("podslice", "kubelet-1.36"):
        yield Case("life", f"admit + remove, 2 NUMA x 64 CPUs, CPU + memory, {profile}", partial(_cycle, profile),
                   None, 1e6 / CYCLES_PER_SECOND)  # fmt: skip
    yield Case("life", "re-admit 250 pods after a restart", partial(_readmission, 250))
    yield Case("life", "make both state files, 51 pods, one of them new", _encoding)
    with tempfile.TemporaryDirectory() as folder:
        yield Case("life", "decide and write both state files, 51 pods", partial(_writing, Path(folder)))


def values() -> Iterator[Case]:
    """Yield cases of states as values, as a scheduler or a simulation uses them."""
    for policy in ("none", "restricted", "single-numa-node"):
        yield Case("values", f"decide + release, 2 NUMA x 96 CPUs, 8 devices, CPU + memory, {policy}",
                   partial(decision_and_release, policy))  # fmt: skip
    for policy, pods in (("best-effort", 60), ("restricted", 8), ("single-numa-node", 8)):
        yield Case("values", f"resize decision, 4 to 8 CPUs, 8 NUMA x 256 CPUs, {pods} pods, {policy}",
                   partial(_resizing, policy, pods))  # fmt: skip
    yield Case("values", "copy a node of 60 pods", _copying)
    yield Case("values", "go on from a state of 60 pods", _going_on)
    yield Case("values", "digest of a state of 60 pods, one of them new", _digest)


def decision_and_release(policy: str) -> Prepare:
    node = Node(machine(2, cpus_per_node=48), config(memory=True, policy=policy), devices=devices(2))
    wanted = {"example.com/gpu": "1"}
    for i in range(3):
        assert node.admit(pod(f"p{i}", further=wanted)).admitted
    rules, state = node.rules, node.state
    one = shape_of(rules, pod(further=wanted))

    def cycle() -> None:
        decided = decide(rules, state, one)
        assert decided.refusal is None
        release(rules, decided.state, "bench")

    return lambda: cycle


def _resizing(policy: str, pods: int) -> Prepare:
    """Time a container's growth among others, without the checks of the API server."""
    elastic = PodslicePolicy(resize=ExclusiveResize(exclusive=True))
    node = Node(machine(8, cpus_per_node=32), config(memory=False, policy=policy), policy=elastic)
    for i in range(pods - 2):
        assert node.admit(pod(f"p{i}", cpus=2)).admitted
    for uid in ("bench", "beside"):
        assert node.admit(pod(uid, cpus=4)).admitted
    state, bigger = node.state, default_pod(pod(cpus=8), node.rules.gates)

    def grow() -> None:
        (attempt,) = node_resize.resize(node.kubelet, bigger)
        assert attempt.verdict.outcome == "Allocated"

    def prepare() -> Callable[[], Any]:
        node.state = state
        return grow

    return prepare


def _full() -> Node:
    node = Node(machine(8, cpus_per_node=32), config(memory=True, policy="best-effort"))
    for i in range(60):
        assert node.admit(pod(f"p{i}", cpus=2)).admitted
    return node


def _copying() -> Prepare:
    node = _full()
    return lambda: node.copy


def _going_on() -> Prepare:
    node = _full()
    rules, state = node.rules, node.state
    return lambda: lambda: Node.of(rules, state).kubelet


def _digest() -> Prepare:
    node, digester = _full(), Digester()
    one = pod(cpus=2)

    def prepare() -> Callable[[], Any]:
        node.remove("bench")
        digester.of(node.state)
        node.admit(one)
        return lambda: digester.of(node.state)

    return prepare
