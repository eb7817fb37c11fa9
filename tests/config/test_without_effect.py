"""Settings without effect: which are named, and that they change no decision."""

from __future__ import annotations

import random
from typing import Any

import pytest

from podslice import KubeletConfig, Node, load_gallery
from podslice.api.pod.spec import pod_from_dict
from podslice.config.without_effect import settings_without_effect
from podslice.machine.model import CPUTopology, Machine
from podslice.machine.readers.synthetic import from_synthetic
from podslice.values.gates import FeatureGates

ALPHA = {"CPUManagerPolicyAlphaOptions": True, "TopologyManagerPolicyAlphaOptions": True}
STATIC = {"cpu_manager_policy": "static", "reserved_system_cpus": "0", "eviction_hard": {}}
NO_SMT = "pack:2 numa:2(memory=8GiB) core:8 pu:1"
ONE_NODE = "pack:1 numa:1(memory=8GiB) core:8 pu:2"
TWO_NODES = "pack:2 numa:1(memory=8GiB) core:8 pu:2"
FOUR_NODES = "pack:2 numa:2(memory=8GiB) core:4 pu:2"


def cpu(option: str) -> dict[str, Any]:
    return {"cpu_manager_policy_options": {option: "true"}}


def topology(option: str, value: str = "true") -> dict[str, Any]:
    return {"topology_manager_policy_options": {option: value}}


def fields(config: dict[str, Any], machine: Machine | None = None) -> list[str]:
    gates = FeatureGates.from_overrides(config.get("feature_gates", {}))
    found = settings_without_effect(KubeletConfig(**config), gates, None if machine is None else CPUTopology(machine))
    assert all(one.why and one.fix and one.sentence.startswith(one.field) for one in found)
    return [one.field for one in found]


SINGLE = {"topology_manager_policy": "single-numa-node"}
RESTRICTED = {"topology_manager_policy": "restricted"}


@pytest.mark.parametrize(
    ("config", "field", "better"),
    [
        ({**STATIC, **cpu("align-by-socket")}, "cpuManagerPolicyOptions[align-by-socket]", RESTRICTED),
        ({"topology_manager_scope": "pod"}, "topologyManagerScope", RESTRICTED),
        (topology("prefer-closest-numa-nodes"), "topologyManagerPolicyOptions[prefer-closest-numa-nodes]", RESTRICTED),
        ({**SINGLE, **topology("prefer-closest-numa-nodes")},
         "topologyManagerPolicyOptions[prefer-closest-numa-nodes]", RESTRICTED),
        ({**STATIC, **SINGLE, **cpu("distribute-cpus-across-numa")},
         "cpuManagerPolicyOptions[distribute-cpus-across-numa]", RESTRICTED),
        ({"cpu_manager_reconcile_period": "5s"}, "cpuManagerReconcilePeriod", STATIC),
        ({"cpu_cfs_quota": False, "cpu_cfs_quota_period": "20ms"}, "cpuCFSQuotaPeriod", {"cpu_cfs_quota": True}),
        ({"system_reserved_cgroup": "/system.slice"}, "systemReservedCgroup",
         {"enforce_node_allocatable": ("pods", "system-reserved")}),
        ({"kube_reserved_cgroup": "/kubelet.slice", "enforce_node_allocatable": ("pods", "system-reserved")},
         "kubeReservedCgroup", {"enforce_node_allocatable": ("pods", "kube-reserved-compressible")}),
        ({"qos_reserved": {"memory": "50%"}}, "qosReserved", {"feature_gates": {"QOSReserved": True}}),
        ({"memory_throttling_factor": 0.8}, "memoryThrottlingFactor", {"feature_gates": {"MemoryQoS": True}}),
        ({"feature_gates": {"InPlacePodVerticalScalingExclusiveCPUs": True}},
         "featureGates[InPlacePodVerticalScalingExclusiveCPUs]", STATIC),
        ({"feature_gates": {"PodLevelResourceManagers": True}}, "featureGates[PodLevelResourceManagers]", STATIC),
        ({"feature_gates": {"TopologyManagerPolicyAlphaOptions": True}},
         "featureGates[TopologyManagerPolicyAlphaOptions]", RESTRICTED),
    ],
)  # fmt: skip
def test_beside_other_settings(config: dict[str, Any], field: str, better: dict[str, Any]) -> None:
    """A setting is named where another one takes its effect, and not where that is different."""
    assert fields(config) == [field]
    assert fields({**config, **better}) == []


ON_MACHINES = [
    pytest.param(NO_SMT, cpu("full-pcpus-only"), TWO_NODES, id="full-pcpus-only"),
    pytest.param(ONE_NODE, cpu("distribute-cpus-across-numa"), TWO_NODES, id="distribute"),
    pytest.param("xeon-6338-2s", topology("prefer-closest-numa-nodes"), "epyc-9654-nps4", id="closest"),
    pytest.param(FOUR_NODES, topology("max-allowable-numa-nodes", "12"), "pack:3 numa:3 core:2 pu:1", id="limit"),
    pytest.param(ONE_NODE, cpu("prefer-align-cpus-by-uncorecache"), "epyc-9654-nps4", id="uncore"),
]


def machine_of(text: str) -> Machine:
    return from_synthetic(text) if ":" in text else load_gallery(text)


@pytest.mark.parametrize(("machine", "options", "other"), ON_MACHINES)
def test_on_a_machine(machine: str, options: dict[str, Any], other: str) -> None:
    """An option is named on a machine that leaves it nothing to do, not on another one or without one."""
    config = {**STATIC, **RESTRICTED, **options}
    assert len(fields(config, machine_of(machine))) == 1
    assert fields(config, machine_of(other)) == []
    assert fields(config) == []


def decisions(machine: Machine, config: dict[str, Any], seed: int) -> list[tuple[bool, tuple[str, ...]]]:
    """Return the CPUs of pods that come and go."""
    dice, node, running, found = random.Random(seed), Node(machine, KubeletConfig(**config)), [""], []
    for number in range(14):
        if len(running) > 1 and dice.random() < 0.4:
            node.remove(running.pop())
        uid, cpus = f"u{number}", [dice.choice([1, 2, 3, 4, 6, 8]) for _ in range(dice.choice([1, 2]))]
        containers = [{"name": f"c{i}", "resources": {"limits": {"cpu": str(one), "memory": "10Mi"}}}
                      for i, one in enumerate(cpus)]  # fmt: skip
        decision = node.admit(
            pod_from_dict({"metadata": {"name": uid, "uid": uid}, "spec": {"containers": containers}})
        )
        found.append((decision.admitted, tuple(str(one.cpus) for one in decision.containers)))
        running += [uid] * decision.admitted
    return found


@pytest.mark.parametrize(
    ("machine", "config"),
    [
        *(pytest.param(one.values[0], one.values[1], id=one.id) for one in ON_MACHINES),
        pytest.param(FOUR_NODES, {**SINGLE, **cpu("distribute-cpus-across-numa")}, id="distribute-single"),
        pytest.param("epyc-9654-nps4", {**SINGLE, **topology("prefer-closest-numa-nodes")}, id="closest-single"),
        pytest.param(FOUR_NODES, {"topology_manager_policy": "none", **cpu("align-by-socket")}, id="socket-none"),
    ],
)  # fmt: skip
def test_nothing_changes(machine: str, config: dict[str, Any]) -> None:
    """Pods get the same CPUs with and without the setting."""
    known = machine_of(machine)
    policies = [config["topology_manager_policy"]] if "topology_manager_policy" in config else ["none", "restricted"]
    for seed, policy in enumerate(policies):
        base = {**STATIC, "feature_gates": ALPHA, "topology_manager_policy": policy}
        assert decisions(known, base, seed) == decisions(known, {**base, **config}, seed)
