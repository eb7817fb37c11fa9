"""Picks by plugins on 256 CPUs and 8 NUMA nodes, and their share of an admission."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.measure import Case
from benchmarks.nodes import Prepare
from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import PluginEntry, PluginRules, PodslicePolicy
from podslice.machine.model import cpu_topology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.cpu.hints import cpu_topology_hints
from podslice.node.cpu.picking.picker import Picker
from podslice.node.devices.hints import Coverage
from podslice.node.node import Node
from podslice.node.plugins.api import AskingPod, CPUAsk, CPUMachine, CPUNode
from podslice.node.plugins.profile import PluginProfile
from podslice.node.plugins.resolve import make_plugin
from podslice.node.topology.hintset import ProviderHints
from podslice.node.topology.merge import Merger
from podslice.node.topology.scored import ScoredMerge
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.cpuset import bits_of
from podslice.values.quirks import PODSLICE

MACHINE = "pack:2 numa:4(memory=64GB) l3:4 core:4 pu:2"
PROFILES: dict[str, tuple[str, ...]] = {
    "no plugins": (),
    "static": ("static",),
    "spread-power": ("spread-power",),
    "spread-power, balance-numa": ("spread-power", "balance-numa"),
    "pack-caches": ("pack-caches",),
}
DISTRIBUTED = CPUPolicyOptions(distribute_cpus_across_numa=True)


def cases() -> Iterator[Case]:
    for name, plugins in PROFILES.items():
        for count in (4, 64):
            yield Case(
                "plugin picks", f"{count} of 256 CPUs, {name}", partial(_pick, plugins, count, CPUPolicyOptions())
            )
        yield Case("plugin picks", f"distributed, 64 of 256 CPUs, {name}", partial(_pick, plugins, 64, DISTRIBUTED))
    yield from score_merges()
    for name in ("no plugins", "spread-power, balance-numa"):
        yield Case("plugin admissions", f"4 CPUs, 8 NUMA, {name}", partial(_admit, PROFILES[name]))


def score_merges() -> Iterator[Case]:
    """Yield merges of four resources that no set of eight NUMA nodes suits."""
    for name, weights in (("upstream", None), ("scored", {"cpu": 10, "memory": 5, "devices": 3})):
        yield Case("scored merges", f"8 NUMA, 4 resources, {name}", partial(_merge, weights))


def _merge(weights: dict[str, int] | None) -> Prepare:
    topology = cpu_topology(from_synthetic(MACHINE))
    free = bits_of(cpu for cpu in range(256) if cpu % 32 < 3 + cpu // 32)
    cpus = cpu_topology_hints(topology, free, 0, 24, align_by_socket=False)
    near = [Coverage({node: 1 << node for node in some}, tuple(range(8))) for some in ((0, 1), (2, 3), (4,))]
    hints: list[ProviderHints] = [
        {f"example.com/d{place}": one.hints(one.placed, 1) for place, one in enumerate(near)},
        {"cpu": cpus},
    ]
    scorer = None if weights is None else ScoredMerge(weights, 0xFF)
    merger = Merger("best-effort", [(node, None) for node in range(8)], scored=scorer)
    return lambda: lambda: merger.merge(hints)


def _pick(names: tuple[str, ...], count: int, options: CPUPolicyOptions) -> Prepare:
    machine = from_synthetic(MACHINE)
    topology = cpu_topology(machine)
    free = bits_of(cpu for cpu in range(256) if cpu * 7 % 64 < 45)
    picker = Picker(topology, options, PODSLICE)
    if not names:
        return lambda: lambda: picker.take(free, count)
    known = CPUMachine(machine, topology)
    profile = PluginProfile(known, [(PluginEntry(name), make_plugin(PluginEntry(name), known)) for name in names])
    ask = CPUAsk(AskingPod("", "", "", {}, {}, "", 0, "", ()), "c", "app", "admit", count)

    def pick() -> object:
        node = CPUNode(known, free=free, default=free, reserved=0)
        left = profile.filter(ask, free, node, _ignore_fault)
        return profile.propose(ask, left, None, node, picker, search_budget=None, on_broken=_ignore_fault)

    return lambda: pick


def _admit(names: tuple[str, ...]) -> Prepare:
    amounts = {"cpu": "4", "memory": "1Gi"}
    resources = {"requests": amounts, "limits": amounts}
    pod = pod_from_dict(
        {"metadata": {"name": "p", "uid": "p"}, "spec": {"containers": [{"name": "c", "resources": resources}]}}
    )
    config = KubeletConfig(
        cpu_manager_policy="static", reserved_system_cpus="0-1", topology_manager_policy="restricted"
    )
    rules = PluginRules(tuple(map(PluginEntry, names)), hint_scores=True)
    node = Node(from_synthetic(MACHINE), config, policy=PodslicePolicy(plugins=rules))
    begun = node.state

    def prepare() -> object:
        node.state = begun
        return lambda: node.admit(pod)

    return prepare  # type: ignore[return-value]


def _ignore_fault(plugin: str, point: str, problem: str) -> None:
    """Ignore a fault of a plugin."""
