"""Whatever number a finding advises was seen to work on the empty node."""

from __future__ import annotations

import random
import re
from typing import Any

import pytest

from podslice import KubeletConfig
from podslice.advise.lint.attempt import SEARCH_ON
from podslice.advise.lint.engine import lint_pod
from podslice.advise.lint.subject import NodeSubject, PodSubject, TrialBudget
from podslice.api.pod.spec import pod_from_dict
from podslice.machine.devices import inventory_from_data
from podslice.machine.readers.synthetic import from_synthetic

RULES = frozenset({"PS102", "PS105", "PS202", "PS501"})
MACHINES = ("pack:2 numa:1(memory=16GiB) core:4 pu:2", "pack:2 numa:2(memory=8GiB) core:5 pu:1")
NUMBERS = re.compile(r"ask for (?:at most )?(\d+)(?: or (\d+))?(?: instead of \d+)? CPUs")


def subject(dice: random.Random) -> NodeSubject:
    """Return a node of some machine and configuration, perhaps with devices."""
    config = KubeletConfig(
        cpu_manager_policy="static",
        reserved_system_cpus=dice.choice(["0", "0-1"]),
        topology_manager_policy=dice.choice(["none", "restricted", "single-numa-node"]),
        topology_manager_scope=dice.choice(["container", "pod"]),
        cpu_manager_policy_options=dice.choice([{}, {"full-pcpus-only": "true"}]),
        eviction_hard={},
    )
    devices = inventory_from_data([{"resource": "x.io/nic", "perNUMANode": {0: 1, 1: 1}}])
    profile = dice.choice(["podslice", "kubelet-1.36"])
    return NodeSubject(config, from_synthetic(dice.choice(MACHINES)), devices=devices, profile=profile)


def pod(cpus: str, nics: int) -> dict[str, Any]:
    limits = {"cpu": cpus, "memory": "1Gi", **({"x.io/nic": str(nics)} if nics else {})}
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}]}}


@pytest.mark.parametrize("seed", range(60))
def test_numbers_work(seed: int) -> None:
    """A pod with an advised number of CPUs is admitted and owns them; a refused pod gets advice or the plain word that
    nothing helps."""
    dice = random.Random(seed)
    node = subject(dice)
    cpus, nics = dice.choice(["1", "3", "5", "7", "8", "9", "11", "2500m", "30"]), dice.choice([0, 0, 1, 2])
    for finding in lint_pod(PodSubject(pod_from_dict(pod(cpus, nics)), node), RULES):
        assert finding.fix
        found = NUMBERS.fullmatch(finding.fix.removesuffix(" in container c"))
        for number in found.groups() if found else ():
            if number is not None:
                decision = node.new_node().admit(pod_from_dict(pod(number, nics)))
                assert decision.admitted, (finding, number)
                assert len(decision.containers[0].exclusive_cpus) == int(number)
                if finding.id == "PS202" and "at most" in finding.fix:
                    assert len(decision.containers[0].numa_nodes) == 1


def test_numbers_are_found() -> None:
    """The advice of the test above has numbers in many cases, so that it tests something."""
    seen = 0
    for seed in range(60):
        dice = random.Random(seed)
        node = subject(dice)
        cpus, nics = dice.choice(["1", "3", "5", "7", "8", "9", "11", "2500m", "30"]), dice.choice([0, 0, 1, 2])
        findings = lint_pod(PodSubject(pod_from_dict(pod(cpus, nics)), node), RULES)
        seen += sum("ask for" in one.fix for one in findings)
    assert seen > 15


def test_search_for_advice_is_bounded() -> None:
    """A linter stops after some hundred trials and says where to go on; the next finding has its own."""
    budget = TrialBudget(2)
    assert [budget.is_spent() for _ in range(3)] == [False, False, True]
    budget.refill()
    assert not budget.is_spent()
    node = subject(random.Random(0))
    node.trials = TrialBudget(0)
    refused = PodSubject(pod_from_dict(pod("30", 0)), node)
    assert [one.fix for one in lint_pod(refused, {"PS501"})] == [SEARCH_ON]
