"""What a node decides by, as a value that can be sent: from it another process makes the same rules.

Nodes of the same machine and configuration have equal setups and share one `NodeRules` (`Rulebook`), so they also share
whatever is remembered by rules.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import msgspec
from msgspec.structs import replace

from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy
from podslice.machine.devices import DeviceInventory, DeviceResource
from podslice.machine.model import Machine
from podslice.machine.readers.form import from_data, to_data
from podslice.node.hotplug.machine_change import rules_on
from podslice.node.node import Node
from podslice.node.plugins.resolve import versions
from podslice.node.rules import NodeRules
from podslice.replica.plain import encoded, sparse
from podslice.values.errors import InputError
from podslice.values.quirks import PROFILES


class Setup(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A node's machine, configuration and devices at its start, in the forms of their files. `changed` is the machine
    as it is now, where it is another; `restored` names the state files the node began with, `plugins`
    those of its policy with their versions."""

    machine: dict[str, Any]
    config: KubeletConfig
    profile: str
    policy: PodslicePolicy = NO_POLICY
    inventory: tuple[DeviceResource, ...] = ()
    changed: dict[str, Any] | None = None
    restored: tuple[str, ...] = ()
    predicates: bool = False
    cgroup_version: int = 2
    plugins: dict[str, str] = {}

    @property
    def digests(self) -> SetupDigests:
        """What tells setups apart, by what is in them."""
        config = replace(self, machine={}, inventory=(), changed=None)
        return SetupDigests(
            _digest(msgspec.json.encode([self.machine, self.changed])),
            _digest(encoded(config)),
            _digest(msgspec.json.encode(sparse(self.inventory))),
        )


class SetupDigests(msgspec.Struct, frozen=True):
    """Hexadecimal digests of a machine, of a configuration with all that belongs to it, and of an inventory."""

    machine: str = ""
    config: str = ""
    inventory: str = ""


def setup_of(rules: NodeRules, first: NodeRules | None = None) -> Setup:
    """The setup of a node; `first` are the rules it started with, where its machine has changed since."""
    at_start = first or rules
    profile = next((name for name, quirks in PROFILES.items() if quirks == rules.quirks), None)
    if profile is None:
        raise InputError("its quirks are of no profile", path="setup.profile")
    return Setup(
        machine=_machine(at_start),
        config=rules.config,
        profile=profile,
        policy=rules.policy,
        inventory=rules.inventory.resources,
        changed=None if rules.machine == at_start.machine else _machine(rules),
        restored=tuple(sorted(rules.restored)),
        predicates=rules.predicates,
        cgroup_version=rules.cgroup_version,
        plugins=versions(rules.cpu.plugins),
    )


def rules_from(setup: Setup) -> NodeRules:
    """The rules. Raises `PodsliceError` for a setup with which no node starts."""
    node = Node(
        from_data(setup.machine, "setup.machine"),
        setup.config,
        profile=setup.profile,
        devices=DeviceInventory(setup.inventory),
        predicates=setup.predicates,
        cgroup_version=setup.cgroup_version,
        policy=setup.policy,
    )
    _check_plugins(node.rules, setup)
    rules = replace(node.rules, restored=frozenset(setup.restored))
    return rules if setup.changed is None else rules_on(rules, from_data(setup.changed, "setup.changed"))


def _check_plugins(rules: NodeRules, setup: Setup) -> None:
    """Nobody answers for a node whose plugins are others, or decide by what does not leave it."""
    for name, version in versions(rules.cpu.plugins).items():
        if version != setup.plugins.get(name):
            problem = f"{name} is version {setup.plugins.get(name)} on the node and {version} here"
            raise InputError(problem, path="setup.plugins", remedy="install the same version")
    cpu = rules.cpu
    if (cpu.plugins is not None and cpu.plugins.sees_pods) or (cpu.classes is not None and cpu.classes.sees_pods):
        problem = "its plugins or rules look at names and labels of pods, which do not leave the node"
        raise InputError(problem, path="setup.plugins", remedy="ask the node itself")


def _machine(rules: NodeRules) -> dict[str, Any]:
    """What of a machine decides: nodes that differ in their names only are equal. Plugins look at all of it."""
    machine = rules.machine
    if rules.cpu.plugins is not None:
        return to_data(replace(machine, name="", description="", source="", warnings=()))
    return to_data(
        Machine(
            machine.nodes,
            num_cores=machine.num_cores,
            num_sockets=machine.num_sockets,
            memory_capacity=machine.memory_capacity,
            hugepages=machine.hugepages,
            offline=machine.offline,
        )
    )


def _digest(data: bytes) -> str:
    return blake2b(data, digest_size=16).hexdigest()
