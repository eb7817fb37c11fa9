"""Reports on CPU classes, plugins and mixed containers by admit, explain, inspect and lint."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from podslice import KubeletConfig, PodslicePolicy, lint
from podslice.admit.command import admit
from podslice.advise.explain.explain import explain
from podslice.advise.explain.trace import Trace
from podslice.advise.inspect.build import inspect_pod
from podslice.api.pod.spec import Pod
from podslice.config.policy import MixedCPUs
from podslice.node.node import Node
from podslice.plugins import Bits, CPUAsk, CPUNode
from tests.conftest import make_pod
from tests.node.mixed.helpers import node as mixed_node
from tests.node.mixed.helpers import pod as mixed_pod
from tests.node.plugins.helpers import Base, own
from tests.node.plugins.test_classes import STRICT, WHOLE, node, pod

STATIC = KubeletConfig(cpu_manager_policy="static", reserved_system_cpus="0-1")
CLASSES = """
apiVersion: podslice.io/v1alpha1
kind: PodslicePolicy
spec:
  cpuClasses:
  - {name: performance, match: {coreType: performance}}
  - {name: efficiency, match: {coreType: efficiency}}
  assign: [{namespaces: [kube-system], classes: [efficiency]}, {classes: [performance]}]
"""
PODS = """
{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: kube-system}, spec: {containers: [{name: c, image: x}]}}
---
{apiVersion: v1, kind: Pod, metadata: {name: b}, spec: {containers: [{name: c, image: x}]}}
"""


class Keeping(Base):
    """Keeps back all CPUs but four."""

    def filter(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Bits:
        return cpus & 0b111100


class Failing(Base):
    """Fails."""

    def score(self, ask: CPUAsk, candidate: Bits, node: CPUNode) -> int:
        raise KeyError


def traced(of: Node, asked: Pod) -> Trace:
    """The trace of an admission."""
    return explain(of, asked, fixes=False).trace


@pytest.mark.parametrize(
    ("of", "asked", "code"),
    [
        (lambda: node(STRICT), lambda: pod("a", "15"), "cpu-class-full"),
        (lambda: node(STRICT, cpu_manager_policy_options=WHOLE), lambda: pod("a", "7"), "smt-sizes"),
        (lambda: own(Keeping()), lambda: make_pod("a", ("c", "5")), "cpus-filtered"),
        (lambda: own(Failing(), hint_scores=True), lambda: make_pod("a", ("c", "5")), "plugin-broken"),
        (lambda: node(STRICT), lambda: pod("a", "2", annotation="fast"), "invalid-annotation"),
    ],
    ids=["class", "sizes", "filter", "plugin", "annotation"],
)
def test_codes_of_policies(of: object, asked: object, code: str) -> None:
    """Each way in which a policy refuses a pod has a code of its own."""
    assert traced(of(), asked()).code == code  # type: ignore[operator]


def test_candidates_count_the_class() -> None:
    """The table of candidates has the free CPUs of the classes that a container may get, and no others."""
    (row,) = traced(node(STRICT), pod("a", "15")).steps[0].candidates
    assert [(cell.need, cell.free, cell.verdict) for cell in row.cells] == [(15, 14, "small")]
    (row,) = traced(node(STRICT), pod("a", "4", annotation="efficiency!")).steps[0].candidates
    assert [(cell.need, cell.free, cell.verdict) for cell in row.cells] == [(4, 6, "fits")]


@pytest.mark.parametrize(("quota", "limit"), [("off", "max 100000"), ("total", "550000 100000")])
def test_limits_of_mixed_containers(quota: str, limit: str) -> None:
    """inspect shows the CPU limit that a mixed container has in the end, and none for its pod."""
    of = mixed_node(MixedCPUs(quota=quota))  # type: ignore[arg-type]
    page = inspect_pod(mixed_pod("a", "5500m", asks="5"), of.rules.gates, of.rules.quirks, node=of)
    whole, container = (group.files["cpu.max"] for group in page.cgroups)
    assert (whole.split()[0], container) == ("max", limit)
    assert any("CFS quota is off" in note for note in page.cgroup_notes) == (quota == "off")


def test_mixed_is_no_mistake() -> None:
    """lint takes a fraction of a CPU for a mistake only where it is not shared on purpose."""
    asked, policy = mixed_pod("a", "5500m", asks="5"), PodslicePolicy(mixed=MixedCPUs())
    assert [one.id for one in lint(asked, config=STATIC, policy=policy) if one.id == "PS102"] == []
    assert [one.id for one in lint(mixed_pod("a", "5500m"), config=STATIC, policy=policy) if one.id == "PS102"]
    assert [one.id for one in lint(asked, config=STATIC) if one.id == "PS102"]


def test_who_shares_a_class(tmp_path: Path) -> None:
    """admit names the CPUs that containers of a class share, and the shared pool only where that is all of it."""
    (tmp_path / "policy.yaml").write_text(CLASSES)
    (tmp_path / "pods.yaml").write_text(PODS)
    options = ["--machine", "hybrid-i9-12900k", "--set", "cpuManagerPolicy=static", "--set", "reservedSystemCPUs=16"]
    given = [str(tmp_path / "pods.yaml"), *options]
    with_classes = CliRunner().invoke(admit, [*given, "--policy", str(tmp_path / "policy.yaml")]).output
    assert [line.split()[4:6] for line in with_classes.splitlines() if "admitted" in line] == [
        ["8", "16-23"],
        ["16", "0-15"],
    ]
    without = CliRunner().invoke(admit, given).output
    assert [line.split()[4:7] for line in without.splitlines() if "admitted" in line] == [["24", "shared", "pool"]] * 2
