"""A node under any sequence of pods keeps its ledgers: nothing owned twice, nothing lost."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from msgspec.structs import replace

from podslice import Decision, KubeletConfig, Node, Pod
from podslice.api.pod.spec import Container
from podslice.config.kubelet import MemoryReservation
from podslice.machine.devices import inventory_from_data
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node import readmission
from podslice.values.cpu_policy_options import CPU_POLICY_OPTIONS
from podslice.values.cpuset import bits_of, format_bits
from podslice.values.quantity import Quantity
from tests.conftest import make_node, make_pod

MACHINES = (
    "pack:1 numa:1 core:4 pu:2",
    "pack:2 numa:1 core:4 pu:2",
    "pack:2 numa:2 l3:2 core:2 pu:2",
    "pack:1 numa:4 core:3 pu:1",
    "pack:2 numa:3 core:2 pu:4",
)
OPTIONS: tuple[dict[str, str], ...] = (
    {},
    *({name: "true"} for name in CPU_POLICY_OPTIONS),
    {"full-pcpus-only": "true", "distribute-cpus-across-numa": "true"},
)
CPUS = st.sampled_from([None, "500m", "1", "2", "3", "4", "6"])


GPU = "example.com/gpu"


def with_gpus(pod: Pod, gpus: list[int]) -> Pod:
    """The pod with so many GPUs for its containers, init containers first."""

    def with_gpu(container: Container, count: int) -> Container:
        if not count or container.resources.limits is None:
            return container
        limits = {**container.resources.limits, GPU: Quantity.parse(str(count))}
        return replace(container, resources=replace(container.resources, limits=limits))

    counts = iter([*gpus, *[0] * 5])
    init = tuple(with_gpu(container, next(counts)) for container in pod.spec.init_containers)
    apps = tuple(with_gpu(container, next(counts)) for container in pod.spec.containers)
    return replace(pod, spec=replace(pod.spec, init_containers=init, containers=apps))


class NodeMachine(RuleBasedStateMachine):
    """Random machines and configurations, random admissions, removals and restarts."""

    @initialize(
        machine=st.sampled_from(MACHINES),
        options=st.sampled_from(OPTIONS),
        policy=st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
        scope=st.sampled_from(["container", "pod"]),
        managers=st.booleans(),
        reserved=st.sampled_from(["0", "0-1", "1,3"]),
        memory=st.booleans(),
    )
    def start(
        self,
        machine: str,
        options: dict[str, str],
        policy: str,
        scope: str,
        managers: bool,
        reserved: str,
        memory: bool,
    ) -> None:
        if "align-by-socket" in options and policy == "single-numa-node":
            policy = "restricted"
        self.config = KubeletConfig(
            cpu_manager_policy="static",
            cpu_manager_policy_options=options,
            topology_manager_policy=policy,
            topology_manager_scope=scope,
            reserved_system_cpus=reserved,
            eviction_hard={},
            memory_manager_policy="Static" if memory else "None",
            system_reserved={"memory": "512Mi"},
            reserved_memory=(MemoryReservation(0, {"memory": "512Mi"}),),
            feature_gates={"PodLevelResourceManagers": managers, "CPUManagerPolicyAlphaOptions": True},
        )
        self.machine = from_synthetic(re.sub(r"numa:(\d)", r"numa:\1(memory=20GiB)", machine))
        devices = inventory_from_data([{"resource": GPU, "count": 4}])
        self.node = Node(self.machine, self.config, devices=devices)
        self.fresh = dict(self.node.files)
        self.strict = "strict-cpu-reservation" in options
        self.counter = 0
        self.running: list[str] = []

    @rule(
        apps=st.lists(CPUS, min_size=1, max_size=3),
        init=st.lists(st.tuples(CPUS, st.booleans()), max_size=2),
        budget=st.sampled_from([None, None, "2", "4", "6"]),
        memory=st.sampled_from(["1Gi", "1Gi", "3Gi", "24Gi"]),
        gpus=st.lists(st.integers(0, 3), max_size=5),
    )
    def admit(
        self,
        apps: list[str | None],
        init: list[tuple[str | None, bool]],
        budget: str | None,
        memory: str,
        gpus: list[int],
    ) -> None:
        self.counter += 1
        uid = f"p{self.counter}"
        pod = make_pod(
            uid,
            *((f"c{i}", cpu) for i, cpu in enumerate(apps)),
            init=tuple((f"i{i}", cpu, sidecar) for i, (cpu, sidecar) in enumerate(init)),
            budget=budget,
            memory=memory,
        )
        pod = with_gpus(pod, gpus)
        before = dict(self.node.files)
        decision = self.node.admit(pod)
        if decision.admitted:
            self.running.append(uid)
            self.undo_is_exact(pod, decision, before)
        else:
            assert dict(self.node.files) == before
            assert decision.reason
            assert decision.message

    def undo_is_exact(self, pod: Pod, decision: Decision, before: dict[str, bytes]) -> None:
        """A pod that goes leaves the node as it was, and gets the same when it comes again."""
        uid, after = pod.metadata.uid, dict(self.node.files)
        self.node.remove(uid)
        assert dict(self.node.files) == before
        assert self.node.admit(pod) == decision
        assert dict(self.node.files) == after

    @precondition(lambda self: bool(self.running))
    @rule(data=st.data())
    def remove(self, data: st.DataObject) -> None:
        uid = data.draw(st.sampled_from(self.running))
        self.running.remove(uid)
        self.node.remove(uid)
        if not self.running:
            assert dict(self.node.files) == self.fresh

    @rule()
    def restart(self) -> None:
        """A new kubelet on the same files gives every running pod the same CPUs again."""
        kubelet = self.node.kubelet
        before: dict[str, Any] = {"files": dict(self.node.files)}
        kubelet.restart()
        assert [admitted.refusal for admitted in readmission.readmit(kubelet)] == [None] * len(self.running)
        kubelet.sources_ready()
        kubelet.collect()
        assert dict(self.node.files) == before["files"]

    @invariant()
    def ledger_balance(self) -> None:
        manager = self.node.kubelet.manager.cpu
        state = manager.state
        everything = manager.topology.all_cpus & ~(manager.reserved if self.strict else 0)
        assert everything == bits_of(range(self.machine.cpu_count)) & ~(manager.reserved if self.strict else 0)
        union = state.default
        owned = 0
        for uid in {*state.assignments, *state.pod_cpus}:
            held = state.pod_cpus.get(uid, 0)
            for cpus in state.assignments.get(uid, {}).values():
                assert not state.pod_cpus.get(uid) or cpus & ~state.pod_cpus[uid] == 0
                held |= cpus
            assert not held & owned, f"{uid} shares {format_bits(held & owned)}"
            assert not held & state.default
            assert not held & manager.reserved
            owned |= held
            union |= held
        assert union == everything
        assert state.default, "the shared pool of the node is empty"

    @invariant()
    def memory_is_booked_once(self) -> None:
        memory = self.node.kubelet.manager.memory
        held = 0
        for uid, named in memory.assignments.items():
            blocks = memory.pod_assignments.get(uid) or [block for own in named.values() for block in own]
            held += sum(block.size for block in blocks)
        booked = 0
        for ledger in memory.machine_state.values():
            for table in (ledger.memory_map or {}).values():
                assert table.free + table.reserved == table.allocatable
                assert 0 <= table.free <= table.allocatable
                booked += table.reserved
            if any(table.reserved for table in (ledger.memory_map or {}).values()):
                assert ledger.number_of_assignments > 0
        assert booked == held

    @invariant()
    def long_running_containers_do_not_share_exclusive_cpus(self) -> None:
        manager = self.node.kubelet.manager.cpu
        for uid, pod in self.node.kubelet.active.items():
            seen = 0
            for container in pod.containers:
                if container.exclusive_cpus and not container.plain_init:
                    cpus = manager.state.assignment(uid, container.name) or 0
                    assert not cpus & seen
                    seen |= cpus

    @invariant()
    def init_containers_own_what_they_run_on(self) -> None:
        """While an init container runs that owns CPUs, nobody else of its pod runs on them, and everybody has some."""
        manager = self.node.kubelet.manager.cpu
        for uid, pod in self.node.kubelet.active.items():
            for place, init in enumerate(pod.containers):
                if not (init.plain_init and init.exclusive_cpus and manager.isolation(pod, init) == "container"):
                    continue
                own = manager.affinity(uid, init.name)
                for other in pod.containers[:place]:
                    if other.restartable:
                        beside = manager.affinity_beside(pod, other, (init.name,))
                        assert beside
                        assert not beside & own


NodeMachine.TestCase.settings = settings(max_examples=120, stateful_step_count=25, deadline=None)
TestNode = pytest.mark.slow(NodeMachine.TestCase)


def test_refusal_keeps_what_a_gone_pod_gave_back() -> None:
    """A pod that is refused right after another one left undoes only its own part."""
    node = make_node("pack:1 numa:1(memory=16GB) core:4 pu:2", topology_manager_policy="single-numa-node")
    assert node.admit(make_pod("first", ("c", "4"))).admitted
    node.kubelet.remove_pod("first")
    assert not node.admit(make_pod("second", ("c", "99"))).admitted
    assert format_bits(node.kubelet.manager.cpu.state.default) == "0-7"
