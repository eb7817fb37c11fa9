"""Metrics of a policy's sections on the agent's page."""

from __future__ import annotations

import re

from podslice import Node, PodslicePolicy
from podslice.agent.status.metrics import manager_metrics
from podslice.config.policy import ClassMatch, CPUClass
from podslice.machine.readers.synthetic import from_synthetic
from podslice.plugins import Bits, CPUAsk, CPUNode
from tests.agent.test_metrics import POLICY
from tests.conftest import make_pod
from tests.node.plugins.helpers import TWO_NODES, Base, config, own
from tests.node.plugins.test_scored import GPU, SCORED, asking, device_node


class Failing(Base):
    """Fails."""

    def filter(self, ask: CPUAsk, cpus: Bits, node: CPUNode) -> Bits:
        raise KeyError


def page(node: Node) -> dict[str, float]:
    """The node's metrics of policies; types and labels are those of the table."""
    text = manager_metrics(node, ())
    types = dict(re.findall(r"^# TYPE (podslice_\w+) (\w+)$", text, re.MULTILINE))
    assert types == {name: POLICY[name][0] for name in types}
    values = {}
    for name, labels, value in re.findall(r"^(podslice_\w+)\{(.*)\} ([\d.]+)$", text, re.MULTILINE):
        assert " ".join(re.findall(r'(\w+)="', labels)) == POLICY[name][1]
        values[f"{name}{{{labels}}}"] = float(value)
    return values


def test_a_broken_plugin() -> None:
    """The page goes on to be written, with the plugin, the point and the number of times."""
    node = own(Failing(), on_error="skip")
    node.admit(make_pod("a", ("c", "2")))
    assert page(node)['podslice_plugin_errors_total{plugin="failing",point="Filter"}'] >= 1


def test_classes() -> None:
    """CPUs by class and by who has them."""
    low, high = CPUClass("low", ClassMatch(cpus="0-3")), CPUClass("high", shared=False)
    policy = PodslicePolicy(cpu_classes=(low, high))
    node = Node(from_synthetic(TWO_NODES), config(reserved_system_cpus="0"), policy=policy)
    node.admit(make_pod("a", ("c", "2")))
    shown = page(node)
    counts = {state: shown[f'podslice_class_cpus{{class="low",state="{state}"}}']
              for state in ("owned", "shared", "reserved", "offline")}  # fmt: skip
    assert counts == {"owned": 2, "shared": 1, "reserved": 1, "offline": 0}
    assert shown['podslice_class_cpus{class="high",state="shared"}'] == 28
    assert shown['podslice_class_fallbacks_total{class="low"}'] == 0


def test_fallbacks() -> None:
    """A class whose shared CPUs are all owned: who starts then is told and counted."""
    low, high = CPUClass("low", ClassMatch(cpus="2-3")), CPUClass("high", shared=False)
    node = Node(from_synthetic(TWO_NODES), config(), policy=PodslicePolicy(cpu_classes=(low, high)))
    assert node.admit(make_pod("before", ("c", None))).events == ()
    assert str(node.admit(make_pod("owner", ("c", "2"))).containers[0].cpus) == "2-3"
    (event,) = node.admit(make_pod("late", ("c", None))).events
    assert (event.reason, event.message) == (
        "PodsliceClassFallback",
        "no CPUs of class low are shared: container c runs on 0-1,4-31",
    )
    assert page(node)['podslice_class_fallbacks_total{class="low"}'] == 1


def test_scored_merges() -> None:
    """Merges that were scored, by whether upstream takes the same nodes; those in which all agree are none."""
    agree, differ = (f'podslice_scored_merges_total{{agrees="{one}"}}' for one in ("true", "false"))
    for taken, counted in ((4, {}), (5, {agree: 1.0}), (6, {differ: 1.0})):
        node = device_node(SCORED, taken=(taken, 0))
        before = page(node)
        assert before.keys() == {agree, differ}
        assert node.admit(asking("p", {"cpu": "4", "memory": "1Gi", GPU: "1"})).admitted
        after = page(node)
        assert {name: after[name] - before[name] for name in after if after[name] != before[name]} == counted
    assert page(device_node(PodslicePolicy(), taken=(6, 0))) == {}
