"""Every table row and example of KEP-5526 and of the resource-managers documentation, by id."""

from __future__ import annotations

import pytest

from podslice import CPUSet, Decision, Node
from podslice.api.pod.spec import pod_from_dict
from tests.conftest import make_node, make_pod

GATES = {"PodLevelResourceManagers": True}


def node(scope: str, policy: str = "restricted", **config: object) -> Node:
    return make_node(topology_manager_scope=scope, topology_manager_policy=policy, feature_gates=GATES, **config)


def sets(decision: Decision) -> dict[str, CPUSet]:
    assert decision.admitted, decision.message
    return {container.name: container.cpus for container in decision.containers}


def one_numa_node(decision: Decision) -> bool:
    return len({str(c.numa_nodes) for c in decision.containers if c.exclusive}) == 1


POD_SCOPE = [
    pytest.param(None, [("a", "3"), ("b", "1"), ("c", "1")], {"a": 3, "b": 1, "c": 1}, [], id="PS-T1"),
    pytest.param("5", [("a", "3"), ("b", "1"), ("c", "1")], {"a": 3, "b": 1, "c": 1}, [], id="PS-T2"),
    pytest.param("5", [("a", "3"), ("b", None), ("c", None)], {"a": 3, "b": 2, "c": 2}, ["bc"], id="PS-T3"),
    pytest.param("5", [("a", None), ("b", None), ("c", None)], {"a": 5, "b": 5, "c": 5}, ["abc"], id="PS-T4"),
    pytest.param("4", [("a", None), ("b", None), ("c", None)], {"a": 4, "b": 4, "c": 4}, ["abc"], id="PS-E1"),
    pytest.param("4", [("a", "2"), ("b", None), ("c", None)], {"a": 2, "b": 2, "c": 2}, ["bc"], id="PS-E2"),
    pytest.param("6", [("a", "2"), ("b", "2")], {"a": 2, "b": 2}, [], id="PS-U1"),
]


@pytest.mark.parametrize(("budget", "containers", "sizes", "sharing"), POD_SCOPE)
def test_pod_scope(
    budget: str | None, containers: list[tuple[str, str | None]], sizes: dict[str, int], sharing: list[str]
) -> None:
    """Pod scope: the pod gets one aligned budget, exclusive slices are disjoint, the rest is shared by the others."""
    decision = node("pod").admit(make_pod("p", *containers, budget=budget))
    cpus = sets(decision)
    assert {name: len(own) for name, own in cpus.items()} == sizes
    assert one_numa_node(decision) or not any(c.exclusive for c in decision.containers)
    for group in sharing:
        assert len({str(cpus[name]) for name in group}) == 1
    exclusive = [c.cpus for c in decision.containers if c.exclusive]
    assert sum(map(len, exclusive)) == len(CPUSet(cpu for own in exclusive for cpu in own))
    if budget is not None:
        assert decision.pod_cpus is not None
        assert len(decision.pod_cpus) == int(budget)
        assert all(own <= decision.pod_cpus for own in cpus.values())


@pytest.mark.parametrize(
    ("policy", "reason"),
    [
        pytest.param("best-effort", "EmptyPodSharedPoolError", id="best-effort shows the cause"),
        pytest.param("restricted", "TopologyAffinityError", id="restricted hides it behind alignment"),
    ],
)
@pytest.mark.parametrize(
    ("init", "containers", "budget"),
    [
        pytest.param((), [("a", "3"), ("b", "2"), ("c", None)], "5", id="PS-T5, PS-E3"),
        pytest.param((("s1", "1", True), ("s2", None, True)), [("main", "3")], "4", id="PS-D2"),
    ],
)
def test_empty_shared_pool_is_refused(
    init: tuple[tuple[str, str | None, bool], ...],
    containers: list[tuple[str, str | None]],
    budget: str,
    policy: str,
    reason: str,
) -> None:
    """A pod whose exclusive containers leave nothing for the others is refused, and the node is as before."""
    fresh = node("pod", policy)
    before = dict(fresh.files)
    decision = fresh.admit(make_pod("p", *containers, init=init, budget=budget))
    assert (decision.admitted, decision.reason) == (False, reason)
    assert decision.why
    assert dict(fresh.files) == before


def test_shared_sidecars_use_the_final_pool() -> None:
    """PS-D1, PS-I4: shared sidecars run on what all exclusive slices leave."""
    decision = node("pod").admit(
        make_pod("p", ("main", "2"), init=(("s1", None, True), ("s2", None, True)), budget="4")
    )
    cpus = sets(decision)
    assert (len(cpus["main"]), len(cpus["s1"])) == (2, 2)
    assert cpus["s1"] == cpus["s2"]
    assert not cpus["s1"] & cpus["main"]


def test_exclusive_is_exclusive_while_it_runs() -> None:
    """PS-I4: while an init container owns CPUs, a shared sidecar that runs already has the pool without them."""
    pod = make_pod("p", ("app", "1"), init=(("sidecar", None, True), ("init", "3", False)), budget="4")
    fresh = node("pod")
    decision = fresh.admit(pod)
    sidecar, init = decision.containers[:2]
    assert sidecar.cpus & init.cpus
    meanwhile = sidecar.during_init["init"]
    assert meanwhile
    assert not meanwhile & init.cpus
    assert meanwhile <= decision.pod_cpus
    for running, cpus in (((), sidecar.cpus), (("init",), meanwhile), (("app",), sidecar.cpus)):
        effects = fresh.effects("p", running=running)
        assert effects.containers[0].files["cpuset.cpus"] == str(cpus)
    upstream = node("pod", profile="kubelet-1.36").admit(pod)
    assert not upstream.containers[0].during_init


def test_init_container_that_leaves_nothing_to_a_sidecar() -> None:
    """An init container that owns all CPUs of its pod beside a shared sidecar is refused; on a kubelet both run."""
    pod = make_pod("p", ("app", "1"), init=(("sidecar", None, True), ("init", "4", False)), budget="4")
    decision = node("pod", "best-effort").admit(pod)
    assert (decision.admitted, decision.reason) == (False, "EmptyPodSharedPoolError")
    assert "init container init owns all cpus of the pod while it runs" in decision.message
    assert "take all of it (init 4 CPUs) and leave nothing for sidecar" in decision.why
    assert node("pod", "best-effort", profile="kubelet-1.36").admit(pod).admitted
    early = make_pod("q", ("app", "1"), init=(("init", "4", False), ("sidecar", None, True)), budget="4")
    assert node("pod", "best-effort").admit(early).admitted


def test_init_containers_reuse_and_sidecars_keep() -> None:
    """PS-I1, PS-I2, PS-I3: init CPUs are reused by apps, an exclusive sidecar's never, shared inits get the rest."""
    decision = node("pod").admit(
        make_pod(
            "p",
            ("a", "2"),
            ("b", None),
            init=(("i1", "3", False), ("s1", "1", True), ("i2", None, False), ("i3", "5", False)),
            budget="6",
        )
    )
    cpus = sets(decision)
    assert decision.pod_cpus is not None
    assert cpus["i1"] & (cpus["a"] | cpus["b"])
    for later in ("i2", "i3", "a", "b"):
        assert not cpus["s1"] & cpus[later]
    assert cpus["i2"] == decision.pod_cpus - cpus["s1"]
    assert cpus["b"] == decision.pod_cpus - cpus["s1"] - cpus["a"]


def test_pod_keeps_its_cpus_until_it_goes() -> None:
    """PS-R1: a container that ends and restarts gives nothing back; the node gets all back with the pod."""
    fresh = node("pod")
    default = fresh.kubelet.manager.cpu.state.default
    decision = fresh.admit(make_pod("p", ("a", "2"), ("b", None), budget="4"))
    fresh.kubelet.stop_container("p", "a")
    fresh.kubelet.collect()
    restarted = fresh.kubelet.start_container("p", "a")
    assert CPUSet.from_bits(restarted.holds.cpus) == sets(decision)["a"]
    fresh.remove("p")
    assert fresh.kubelet.manager.cpu.state.default == default


def test_containers_above_the_budget_are_refused_without_a_trace() -> None:
    """PS-F1: exclusive requests above the pod's budget are refused and leak nothing."""
    fresh = node("pod", "best-effort")
    before = dict(fresh.files)
    decision = fresh.admit(make_pod("p", ("a", "3"), ("b", "3"), budget="5"))
    assert not decision.admitted
    assert dict(fresh.files) == before


@pytest.mark.parametrize(
    ("budget", "reason"), [pytest.param("4", "", id="PS-S1"), pytest.param("5", "SMTAlignmentError", id="PS-S2")]
)
def test_full_pcpus_only_checks_the_budget(budget: str, reason: str) -> None:
    """With full-pcpus-only the pod's budget must be whole cores."""
    decision = node("pod", cpu_manager_policy_options={"full-pcpus-only": "true"}).admit(
        make_pod("p", ("a", None), budget=budget)
    )
    assert decision.reason == reason


def test_two_pods_by_budget() -> None:
    """PS-A1: accounting is by pod budget, so two pods of half the node each fit and are disjoint."""
    fresh = make_node("pack:1 numa:1(memory=64GB) core:9 pu:1", topology_manager_scope="pod", feature_gates=GATES)
    first = fresh.admit(make_pod("p1", ("a", None), ("b", None), budget="4"))
    second = fresh.admit(make_pod("p2", ("a", None), ("b", None), budget="4"))
    assert first.pod_cpus is not None
    assert second.pod_cpus is not None
    assert not first.pod_cpus & second.pod_cpus


@pytest.mark.parametrize("containers", [[("a", "2"), ("b", "2")], [("a", "2"), ("b", None)]], ids=["idle", "shared"])
def test_second_pod_gets_the_same_amount(containers: list[tuple[str, str | None]]) -> None:
    """PS-A2: after a large pod ends, one of the same size fits again, also when nobody used the shared pool."""
    fresh = make_node("pack:1 numa:1(memory=64GB) core:8 pu:1", topology_manager_scope="pod", feature_gates=GATES)
    for uid in ("p1", "p2"):
        decision = fresh.admit(make_pod(uid, *containers, budget="7"))
        assert decision.pod_cpus is not None
        assert len(decision.pod_cpus) == 7
        fresh.remove(uid)


CONTAINER_SCOPE = [
    pytest.param(None, [("a", "3"), ("b", "1"), ("c", "1")], {"a": 3, "b": 1, "c": 1}, id="CS-T1"),
    pytest.param("5", [("a", "3"), ("b", "1"), ("c", "1")], {"a": 3, "b": 1, "c": 1}, id="CS-T2"),
    pytest.param("5", [("a", "3"), ("b", None), ("c", None)], {"a": 3}, id="CS-T3"),
    pytest.param("5", [("a", None), ("b", None), ("c", None)], {}, id="CS-T4"),
    pytest.param("4", [("a", "2"), ("b", None), ("c", None)], {"a": 2}, id="CS-E1"),
    pytest.param("4", [("a", None), ("b", None), ("c", None)], {}, id="CS-E2"),
]


@pytest.mark.parametrize(("budget", "containers", "exclusive"), CONTAINER_SCOPE)
def test_container_scope(
    budget: str | None, containers: list[tuple[str, str | None]], exclusive: dict[str, int]
) -> None:
    """Container scope: Guaranteed containers get their own CPUs, the budget plays no role, the rest uses the node
    (ISO-host: its shared pool is `host`, with quota)."""
    fresh = node("container")
    decision = fresh.admit(make_pod("p", *containers, budget=budget))
    assert {c.name: len(c.cpus) for c in decision.containers if c.exclusive} == exclusive
    assert decision.pod_cpus is None
    pool = CPUSet.from_bits(fresh.kubelet.manager.cpu.state.default)
    for container in decision.containers:
        if not container.exclusive:
            assert container.isolation == "host"
            assert container.cfs_quota
            assert pool <= container.cpus


def test_sidecar_in_container_scope() -> None:
    """CS-D1: an exclusive sidecar beside workers on the node's shared pool."""
    decision = node("container").admit(
        make_pod("p", ("worker-1", None), ("worker-2", None), init=(("sidecar", "2", True),), budget="4")
    )
    by_name = {c.name: c for c in decision.containers}
    assert (by_name["sidecar"].isolation, len(by_name["sidecar"].cpus)) == ("container", 2)
    assert {by_name[name].isolation for name in ("worker-1", "worker-2")} == {"host"}


@pytest.mark.parametrize("scope", ["pod", "container"])
def test_gate_off_means_no_alignment(scope: str) -> None:
    """GATE-off: with PodLevelResourceManagers off a pod-level pod is admitted and shares the node."""
    decision = make_node(topology_manager_scope=scope).admit(make_pod("p", ("a", "2"), budget="4"))
    assert decision.admitted
    assert {c.isolation for c in decision.containers} == {"host"}


def test_isolation_and_quota() -> None:
    """ISO-container, ISO-pod: exclusive is `container` with quota off, the pod shared pool `pod` with quota on."""
    decision = node("pod").admit(make_pod("p", ("a", "2"), ("b", None), budget="4"))
    assert {c.name: (c.isolation, c.cfs_quota) for c in decision.containers} == {
        "a": ("container", False),
        "b": ("pod", True),
    }


DOC = [
    pytest.param({}, "BestEffort", 0, id="DOC-1"),
    pytest.param({"limits": {"memory": "200Mi"}, "requests": {"memory": "100Mi"}}, "Burstable", 0, id="DOC-2"),
    pytest.param(
        {"limits": {"memory": "200Mi", "cpu": "2"}, "requests": {"memory": "100Mi", "cpu": "1"}},
        "Burstable", 0, id="DOC-3",
    ),
    pytest.param(
        {"limits": {"memory": "200Mi", "cpu": "2"}, "requests": {"memory": "200Mi", "cpu": "2"}},
        "Guaranteed", 2, id="DOC-4",
    ),
    pytest.param(
        {"limits": {"memory": "200Mi", "cpu": "1.5"}, "requests": {"memory": "200Mi", "cpu": "1.5"}},
        "Guaranteed", 0, id="DOC-5",
    ),
    pytest.param({"limits": {"memory": "200Mi", "cpu": "2"}}, "Guaranteed", 2, id="DOC-6"),
]  # fmt: skip


@pytest.mark.parametrize(("amounts", "qos", "exclusive"), DOC)
def test_documentation_examples(amounts: dict[str, dict[str, str]], qos: str, exclusive: int) -> None:
    """Which containers get exclusive CPUs, as the documentation says."""
    pod = pod_from_dict({"metadata": {"uid": "p"}, "spec": {"containers": [{"name": "c", "resources": amounts}]}})
    decision = make_node().admit(pod)
    (container,) = decision.containers
    assert decision.qos == qos
    assert (len(container.cpus) if container.exclusive else 0) == exclusive


def test_odd_request_with_whole_cores() -> None:
    """DOC-7: five CPUs on two-way SMT are refused with full-pcpus-only."""
    decision = make_node(cpu_manager_policy_options={"full-pcpus-only": "true"}).admit(make_pod("p", ("c", "5")))
    assert decision.reason == "SMTAlignmentError"
    assert decision.message == "SMT Alignment Error: requested 5 cpus not multiple cpus per core = 2"


@pytest.mark.parametrize(
    ("strict", "text"),
    [
        pytest.param(
            "false", '{"policyName":"static","defaultCpuSet":"0-63","checksum":1058907510}', id="KEP-4540-file-off"
        ),
        pytest.param(
            "true",
            '{"policyName":"static","defaultCpuSet":"2-15,17-31,34-47,49-63","checksum":4141502832}',
            id="KEP-4540-file-on",
        ),
    ],
)
def test_strict_cpu_reservation(strict: str, text: str) -> None:
    """KEP-4540: the state file of 64 CPUs with and without strict-cpu-reservation."""
    fresh = make_node(
        "pack:2 numa:1(memory=64GB) core:16 pu:2",
        reserved_system_cpus="0,32,1,33,16,48",
        cpu_manager_policy_options={"strict-cpu-reservation": strict},
    )
    assert fresh.files["cpu_manager_state"].decode() == text
