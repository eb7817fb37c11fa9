"""Nodes with plugins, for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec.structs import replace

from podslice import KubeletConfig, Node, PodslicePolicy
from podslice.config.policy import NO_POLICY, OnError, PluginEntry, PluginRules
from podslice.machine.model import cpu_topology
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.plugins.api import CPUMachine, CPUPlugin
from podslice.node.plugins.profile import PluginProfile
from podslice.values.cpuset import format_bits

TWO_NODES = "pack:2 numa:1(memory=64GB) core:8 pu:2(indexes=pu)"
"""CPUs 0-15 and 16-31; 0-1, 2-3, … are cores."""


class Base(CPUPlugin):
    """A plugin of a test, made without arguments."""

    def __init__(self, arguments: Mapping[str, object] | None = None, machine: CPUMachine | None = None) -> None:
        self.arguments = arguments or {}


def config(**settings: Any) -> KubeletConfig:
    """Static CPU Manager, CPUs 0 and 1 reserved, best-effort."""
    given: dict[str, Any] = {
        "cpu_manager_policy": "static",
        "reserved_system_cpus": "0-1",
        "topology_manager_policy": "best-effort",
        **settings,
    }
    return KubeletConfig(**given)


def named(*names: str, machine: str = TWO_NODES, hint_scores: bool = False, **settings: Any) -> Node:
    """Return a node with built-in plugins."""
    rules = PluginRules(tuple(map(PluginEntry, names)), hint_scores=hint_scores)
    return Node(from_synthetic(machine), config(**settings), policy=PodslicePolicy(plugins=rules))


def own(
    *plugins: CPUPlugin,
    machine: str = TWO_NODES,
    on_error: OnError = "refuse",
    hint_scores: bool = False,
    most: int = 16,
    policy: PodslicePolicy = NO_POLICY,
    **settings: Any,
) -> Node:
    """Return a node with plugins that are made here; each is named after its class, in small letters."""
    made = from_synthetic(machine)
    plugins_named = replace(policy, plugins=PluginRules((PluginEntry("static"),)))
    node = Node(made, config(**settings), policy=plugins_named)
    known = CPUMachine(made, cpu_topology(made))
    entries = [(PluginEntry(type(one).__name__.lower(), on_error=on_error), one) for one in plugins]
    profile = PluginProfile(known, entries, hint_scores=hint_scores, max_candidates=most)
    return Node.of(replace(node.rules, cpu=replace(node.rules.cpu, plugins=profile)), node.state)


def cpus_of(node: Node, uid: str) -> str:
    """Return the CPUs of the only container of a pod."""
    (cpus,) = node.view.owners[uid].values()
    return format_bits(cpus)
