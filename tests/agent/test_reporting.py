"""Reports beside a decision: events, metrics of the KEP, and names of files that are really ours."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import structlog
from click.testing import CliRunner
from prometheus_client import generate_latest
from structlog.testing import LogCapture

from podslice.advise.explain.codes import ELIGIBILITY
from podslice.agent.admitting import refusal_of
from podslice.agent.records import ReportedRefusal
from podslice.agent.status.metrics import Metrics
from podslice.agent.status.report import AgentReporter
from podslice.cli.main import cli
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.node import Node
from podslice.service.identity import Identity
from tests.agent.helpers import MACHINE, World, agent_config, in_world, pod_level
from tests.conftest import make_pod


class Events:
    """A sink that remembers."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def emit(self, identity: Identity, kind: str, reason: str, message: str) -> None:
        self.reasons.append(reason)

    def emit_node(self, kind: str, reason: str, message: str) -> None:
        self.reasons.append(reason)


def test_events_of_a_decision_are_posted(tmp_path: Path) -> None:
    """A pod whose pod-level resources are ignored hears of it."""
    events = Events()

    async def test(world: World) -> None:
        await world.run(make_pod("p", ("x", "2"), ("y", None), budget="4"))
        decision = world.notes.decisions[0]
        assert decision.events
        AgentReporter(events).admitted(world.owner.pods["p"].identity, decision, world.owner.node)
        assert events.reasons == [event.reason for event in decision.events]
        assert set(events.reasons) == {"PodLevelResourcesIgnored"}

    in_world(tmp_path, test)


@pytest.mark.parametrize(("profile", "there"), [("podslice", True), ("kubelet-1.36", False)])
def test_metrics_the_kep_names(tmp_path: Path, profile: str, *, there: bool) -> None:
    """Duration in seconds and pods that could not be aligned are counted in profile podslice only."""
    metrics = Metrics(profile)
    reporter = AgentReporter(metrics=metrics)
    identity = Identity("u", "default", "p", {})
    for uid, budget in (("a", "4"), ("b", None)):
        spec = make_pod(uid, ("app", "2"), budget=budget)
        reporter.refused(identity, ReportedRefusal("TopologyAffinityError", "no", spec=spec))
    reporter.decided(0.002)
    text = generate_latest(metrics.registry).decode()
    assert ("kubelet_pod_topology_manager_pinning_errors_total 1.0" in text) is there
    assert ("kubelet_topology_manager_admission_duration_seconds_count 1.0" in text) is there
    assert "kubelet_topology_manager_admission_duration_ms_count 1.0" in text


def test_damaged_state_names_our_files(tmp_path: Path) -> None:
    """The advice of safe mode names the agent and its directory, not the kubelet's."""

    async def test(world: World) -> None:
        await world.run(make_pod("p", ("x", "2"), ("y", None), budget="4"))
        await world.kill()
        world.config = agent_config(topology_manager_scope="pod")
        await world.start()
        assert str(tmp_path / "state" / "cpu_manager_state") in world.owner.safe_mode
        assert "restarting the agent" in world.owner.safe_mode
        assert "ubelet" not in world.owner.safe_mode

    in_world(tmp_path, test, pod_level())


def test_downgraded_pods_keep_their_limits(tmp_path: Path) -> None:
    """After a conversion to the older format and a restart without the gate, containers of the pod's pool that never
    owned CPUs stay where they are and keep their quota; the one that owned some goes on without."""

    async def test(world: World) -> None:
        cpus = {
            name: one.cpus
            for name, one in (await world.run(make_pod("p", ("x", "2"), ("y", None), budget="5"))).items()
        }
        await world.kill()
        answer = CliRunner().invoke(cli, ["state", "convert", str(tmp_path / "state"), "--to", "1.35", "--write"])
        assert answer.exit_code == 0, answer.output
        world.config = agent_config(topology_manager_scope="pod")
        await world.start()
        assert world.owner.safe_mode == ""
        wanted = {record.name: world.owner.placing.wanted(record) for record in world.owner.containers.values()}
        assert {name: one.cpu_list for name, one in wanted.items()} == cpus
        assert (wanted["x"].quota_off, wanted["y"].quota_off, wanted["y"].isolation) == (True, False, "pod")

    in_world(tmp_path, test, pod_level())


@pytest.mark.parametrize(
    ("policy", "taken", "asked", "told"),
    [
        ("single-numa-node", "5", "4", "cpu: no NUMA node has enough free alone"),
        ("restricted", "5", "4", "cpu: free only on more NUMA nodes than it needs"),
        ("single-numa-node", "5", "40", "cpu: no set of NUMA nodes has enough free"),
    ],
)
def test_the_resource_whose_hints_failed(policy: str, taken: str, asked: str, told: str) -> None:
    """The refusal's event names it, at no cost beside the decision's."""
    texts: list[str] = []

    class Texts(Events):
        def emit(self, identity: Identity, kind: str, reason: str, message: str) -> None:
            texts.append(message)

    node = Node(
        from_synthetic("pack:2 numa:1(memory=64GB) core:8 pu:1"),
        agent_config(topology_manager_policy=policy),
        predicates=False,
    )
    for uid in ("a", "b"):
        assert node.admit(make_pod(uid, ("x", taken))).admitted
    decision = node.admit(make_pod("p", ("x", asked)))
    AgentReporter(Texts()).refused(Identity("p", "default", "p", {}), refusal_of(decision))
    assert texts == [f"{decision.message}; {decision.why}"]
    assert f"Not aligned: container x: {told}." in texts[0]


def test_who_could_own_cpus_is_logged() -> None:
    """At level debug: who owns CPUs, and what the others of the pod share."""
    logged = LogCapture()
    reporter = AgentReporter()
    reporter.log = structlog.wrap_logger(
        None, processors=[logged], wrapper_class=structlog.make_filtering_bound_logger(logging.DEBUG)
    )
    node = Node(from_synthetic(MACHINE), pod_level(), predicates=False)
    decision = node.admit(make_pod("p", ("x", "2"), ("y", None), budget="4"))
    reporter.admitted(Identity("p", "default", "p", {}), decision, node)
    (entry,) = [one for one in logged.entries if one["event"] == "eligibility"]
    assert entry["log_level"] == "debug"
    assert (entry["qos"], entry["exclusive"], entry["shared"]) == ("Guaranteed", ["x"], {"y": "pod"})
    assert entry["why"] == {"x": ELIGIBILITY["exclusive"], "y": ELIGIBILITY["no-cpu"]}
    assert entry["pod_cpus"] == str(decision.pod_cpus)
