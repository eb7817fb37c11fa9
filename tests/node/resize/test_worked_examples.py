"""The worked examples of growing, shrinking, moving machines: each row on a node, from its admission on."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest

from podslice import ExclusiveResize, KubeletConfig, Node, PodslicePolicy
from podslice.api.pod.mixed import MixedShare
from podslice.config.policy import AnnotationRules, MixedCPUs
from podslice.values.cpu_policy_options import CPU_POLICY_OPTIONS, CPUPolicyOptions
from podslice.values.cpuset import format_bits
from tests.agent.elastic import Elastic
from tests.agent.test_resizing import app, in_elastic
from tests.node.cpu.test_resize import ALLOWED
from tests.node.mixed import helpers as mixed
from tests.node.resize.test_exclusive import ALLOW, ELASTIC, MACHINE, held, one

BEST, ALONE, RESTRICTED = (
    {"topology_manager_policy": name} for name in ("best-effort", "single-numa-node", "restricted")
)
GATES = {"CPUManagerPolicyAlphaOptions": True, "CPUManagerPolicyBetaOptions": True}


def with_options(**options: str) -> dict[str, Any]:
    return {"cpu_manager_policy_options": {name.replace("_", "-"): "true" for name in options}}


FULL = with_options(full_pcpus_only="true")


@pytest.mark.parametrize(
    ("config", "rules", "lives", "outcome", "sets"),
    [
        pytest.param({}, ELASTIC, "p4 p6", "Allocated", "2-7 of 2-5", id="1"),
        pytest.param({}, ELASTIC, "p3 p6", "Allocated", "2-7 of 2-4", id="2-completes-the-core"),
        pytest.param(BEST, ELASTIC, "p4 o8 p8", "Allocated", "2-5,14-17 of 2-5", id="3-another-node"),
        pytest.param(ALONE, ELASTIC, "p4 o8 p8", "Deferred", "2-5 of 2-5", id="3-possible-later"),
        pytest.param(FULL, ELASTIC, "p4 o4 p8", "Allocated", "2-5,10-13 of 2-5", id="4-whole-cores"),
        pytest.param(BEST, ELASTIC, "p4 o8 p10 p6", "Allocated", "2-5,14-15 of 2-5", id="5-leaves-node-1"),
        pytest.param({}, ELASTIC, "p4 p12 p6", "Allocated", "2-7 of 2-5", id="6"),
        pytest.param({}, ELASTIC, "p4 p6 p2", "Infeasible", "2-7 of 2-5", id="7-promised"),
        pytest.param({}, ALLOW, "p4 p6 p2", "Allocated", "2-3 of 2-3", id="7-allowed"),
        pytest.param(RESTRICTED, ELASTIC, "p4 p20", "Allocated", "2-21 of 2-5", id="9"),
        pytest.param(ALONE, ELASTIC, "p4 p20", "Infeasible", "2-5 of 2-5", id="9-never"),
        pytest.param({}, ELASTIC, "p4 p4500m", "Infeasible", "2-5 of 2-5", id="10-eligibility"),
    ],
)
def test_rows(config: dict[str, Any], rules: ExclusiveResize, lives: str, outcome: str, sets: str) -> None:
    """Rows 1 to 10 but 8, whose set no admission gives (tests/node/cpu has it): pods come and are resized in this
    order; the last answer, what p has then and what it was promised are those of the row."""
    here = Node(
        MACHINE,
        KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1", feature_gates=GATES, **config),
        policy=PodslicePolicy(resize=rules),
    )
    answer = ""
    for step in lives.split():
        wanted = one(step[1:], name=step[0])
        if f"uid-{step[0]}" in here.pods:
            answer = here.resize(wanted).outcome
        else:
            assert here.admit(wanted).admitted
    promised = format_bits(here.state.cpu.promised("uid-p", "c0"))
    assert (answer, f"{held(here)} of {promised}") == (outcome, sets)


@pytest.mark.parametrize("free", [1, 0])
def test_row_10_mixed(free: int) -> None:
    """Row 10 with `mixed-cpus: all`: 4 CPUs become 4500m by nothing but a part of what all share. With `free: 1` the
    container had access to it before; with none the annotation was wrong at 4 CPUs and was ignored."""
    rules = AnnotationRules(invalid="ignore")
    policy = PodslicePolicy(resize=ELASTIC, annotations=rules)
    here = mixed.node(MixedCPUs(free=free), policy=policy)
    assert here.admit(mixed.pod("p", "4", asks="all")).admitted
    assert (mixed.owns(here, "p"), mixed.runs_on(here, "p")) == ("2-5", "0-31" if free else "2-5")
    assert here.resize(mixed.pod("p", "4500m", asks="all")).outcome == "Allocated"
    assert (mixed.owns(here, "p"), mixed.runs_on(here, "p")) == ("2-5", "0-31")
    assert here.mixed_shares == {"p": {"c0": MixedShare(4, 500)}}


def named(options: CPUPolicyOptions) -> dict[str, str]:
    return {name: "true" for name in CPU_POLICY_OPTIONS if getattr(options, name.replace("-", "_"))}


@pytest.mark.parametrize("options", ALLOWED, ids=lambda one: "+".join(named(one)) or "none")
def test_there_and_back(options: CPUPolicyOptions) -> None:
    """Under every option set: whatever a container grew to and others did meanwhile, back at its first size it has the
    very CPUs it was promised; asking twice changes nothing, and a refusal no byte."""
    random = Random(3)
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0-1", feature_gates=GATES,
        topology_manager_policy="best-effort", cpu_manager_policy_options=named(options),
    )  # fmt: skip
    here = Node(MACHINE, config, policy=PodslicePolicy(resize=ELASTIC))
    assert here.admit(one("6")).admitted
    promised = held(here)
    for turn in range(12):
        if here.admit(one(str(2 * random.randint(1, 3)), name=f"o{turn}")).admitted and random.random() < 0.5:
            here.remove(f"uid-o{random.randint(0, turn)}")
        size = random.choice([6, 8, 9, 10, 14, 22, 40])
        files = dict(here.files)
        outcome = here.resize(one(str(size))).outcome
        if outcome in ("Deferred", "Infeasible"):
            assert dict(here.files) == files
            here.resize(one("6"))
            continue
        files = dict(here.files)
        assert here.resize(one(str(size))).outcome == "Unchanged"
        assert dict(here.files) == files
        assert here.resize(one("6")).outcome in ("Allocated", "Unchanged")
        assert held(here) == promised


def test_a_machine_that_is_the_same_writes_nothing(tmp_path: Path) -> None:
    """A delta of nothing: no file and no cgroup is written, and nothing is reported."""

    async def test(world: Elastic) -> None:
        await world.run(app("a", "4"))
        folder = world.folder / "state"
        before = {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()}
        history = len(world.kernel.history)
        world.owner.change_machine(world.machine)
        await world.settle()
        assert {path: path.stat().st_mtime_ns for path in folder.rglob("*") if path.is_file()} == before
        assert (len(world.kernel.history), world.notes.changes) == (history, [])

    in_elastic(tmp_path, test)
