"""Memory under any sequence of pods: every byte is booked once, and none is lost."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from podslice.api.pod.spec import Pod
from podslice.node import readmission
from podslice.node.kubelet import Kubelet
from podslice.values.quirks import PODSLICE
from tests.node.memory.helpers import HUGE, check_ledger, config, machine, memory, pod

SIZES = st.sampled_from(["1Gi", "2Gi", "3Gi", "5Gi", "9Gi", "12Gi"])
AMOUNTS = st.builds(memory, SIZES) | st.builds(lambda size: memory(size, huge="1Gi"), SIZES)
MACHINES = st.sampled_from(
    [
        machine(12, huge={0: 2}),
        machine(10, 9, huge={0: 3, 1: 0}),
        machine(10, 9, 9, huge={2: 2}),
        machine(6, 4, 8, 10, huge={0: 1, 1: 1, 2: 1, 3: 1}),
    ]
)


class MemoryLife(RuleBasedStateMachine):
    """Random machines and policies; pods with sidecars, init containers and budgets; partial starts and restarts."""

    @initialize(
        hardware=MACHINES,
        policy=st.sampled_from(["none", "best-effort", "restricted", "single-numa-node"]),
        scope=st.sampled_from(["container", "pod"]),
        pod_level=st.booleans(),
    )
    def begin(self, hardware, policy: str, scope: str, pod_level: bool) -> None:
        self.gates = {"PodLevelResourceManagers": pod_level}
        settings = config(
            {0: {"memory": "1Gi"}}, self.gates, topology_manager_policy=policy, topology_manager_scope=scope
        )
        self.kubelet = Kubelet(hardware, settings, PODSLICE)
        self.kubelet.start()
        self.fresh = self.file
        self.counter = 0

    @property
    def file(self) -> bytes:
        self.kubelet.save()
        return self.kubelet.files["memory_manager_state"]

    @property
    def ledger(self):
        return self.kubelet.manager.memory

    @rule(
        app=st.lists(AMOUNTS, min_size=1, max_size=3),
        init=st.lists(AMOUNTS, max_size=2),
        sidecars=st.lists(AMOUNTS, max_size=1),
        order=st.sampled_from(["si", "is"]),
        shared=st.booleans(),
        budget=st.sampled_from([None, None, "3Gi", "9Gi", "14Gi"]),
        started=st.integers(0, 6),
    )
    def admit(self, app, init, sidecars, order, shared, budget, started) -> None:
        """Admit a pod: a refused one changes nothing, an admitted one starts some of its containers."""
        self.counter += 1
        pod_level = None if budget is None else {"cpu": "12", "memory": budget, HUGE: "1Gi"}
        apps = [*app, {}] if shared and budget else app
        uid = f"p{self.counter}"
        described: Pod = pod(uid, *apps, init=tuple(init), sidecars=tuple(sidecars), budget=pod_level, order=order).spec
        self.kubelet.collect()
        before = self.file
        if self.kubelet.admit(described) is not None:
            self.kubelet.collect()
            assert self.file == before
            return
        self.kubelet.start_containers(uid, started)

    @precondition(lambda self: bool(self.kubelet.active))
    @rule(data=st.data(), collect=st.booleans())
    def remove(self, data: st.DataObject, collect: bool) -> None:
        """Pods leave; what they held is collected now or later."""
        self.kubelet.remove_pod(data.draw(st.sampled_from(sorted(self.kubelet.active))))
        if collect:
            self.kubelet.collect()

    @precondition(lambda self: bool(self.kubelet.active))
    @rule(data=st.data())
    def start_more(self, data: st.DataObject) -> None:
        """More containers of a pod start, so earlier init containers end."""
        uid = data.draw(st.sampled_from(sorted(self.kubelet.active)))
        self.kubelet.start_containers(uid, data.draw(st.integers(1, 6)))

    @precondition(lambda self: bool(self.kubelet.active))
    @rule(data=st.data())
    def admit_again(self, data: st.DataObject) -> None:
        """Admitting a running pod again changes nothing."""
        uid = data.draw(st.sampled_from(sorted(self.kubelet.active)))
        self.kubelet.collect()
        before = self.file
        assert self.kubelet.admit(self.kubelet.active[uid].spec) is None
        assert self.file == before

    @rule()
    def restart(self) -> None:
        """Restart the kubelet on the same file; it admits every pod again, with the same memory."""
        self.kubelet.collect()
        before = self.file
        self.kubelet.restart()
        assert [admitted.refusal for admitted in readmission.readmit(self.kubelet)] == [None] * len(self.kubelet.active)
        self.kubelet.sources_ready()
        self.kubelet.collect()
        assert self.file == before

    @invariant()
    def ledger_balance(self) -> None:
        check_ledger(self.ledger)

    @invariant()
    def running_containers_have_their_memory(self) -> None:
        for uid, running in self.kubelet.active.items():
            if running.ignored or not running.guaranteed:
                continue
            held = self.ledger.assignments.get(uid, {})
            for container in running.containers:
                if not container.plain_init and (container.guaranteed or not running.managed):
                    assert held[container.name]

    def teardown(self) -> None:
        if not hasattr(self, "kubelet"):
            return
        for uid in list(self.kubelet.active):
            self.kubelet.remove_pod(uid)
        self.kubelet.collect()
        assert self.file == self.fresh


MemoryLife.TestCase.settings = settings(max_examples=100, stateful_step_count=25, deadline=None)
TestMemoryLife = pytest.mark.slow(MemoryLife.TestCase)
