"""The setup of a node as a message: machine, configuration and devices, from which a reader builds equal rules.

Nodes with equal machines and configurations have equal setups and share one `NodeRules` (`Rulebook`), and with it every
cache that is keyed by rules.
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
from podslice.replica.json_values import to_json, to_plain
from podslice.values.errors import InputError
from podslice.values.quirks import profile_name


class Setup(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Machine, configuration and devices of a node at its start, in the forms of their files.

    - `changed`: the machine as it is now, where hotplug changed it.
    - `restored`: names of the state files that the node started from.
    - `plugins`: versions of the policy's plugins by name.
    """

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
        """Digests of the contents, for comparing setups."""
        config = replace(self, machine={}, inventory=(), changed=None)
        return SetupDigests(
            _digest(msgspec.json.encode([self.machine, self.changed])),
            _digest(to_json(config)),
            _digest(msgspec.json.encode(to_plain(self.inventory))),
        )


class SetupDigests(msgspec.Struct, frozen=True):
    """Hexadecimal digests: of the machine, of the configuration with all other fields, and of the device inventory."""

    machine: str = ""
    config: str = ""
    inventory: str = ""


def setup_of(rules: NodeRules, first: NodeRules | None = None) -> Setup:
    """Return the setup of a node. `first` are the rules of its start, where its machine has changed since. Raises
    `InputError` for quirks that no profile has."""
    at_start = first or rules
    # A setup names the profile, so quirks that no profile has cannot be sent.
    profile = profile_name(rules.release, rules.quirks)
    if not profile:
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


def build_rules(setup: Setup) -> NodeRules:
    """Build the rules of a setup. Raises `PodsliceError` for a setup with which no node starts."""
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
    """Raise `InputError` for a node whose plugins differ from ours, or read what is not in a `StateMessage`: then no
    replica could decide as the node does."""
    for name, version in versions(rules.cpu.plugins).items():
        if version != setup.plugins.get(name):
            problem = f"{name} is version {setup.plugins.get(name)} on the node and {version} here"
            raise InputError(problem, path="setup.plugins", remedy="install the same version")
    cpu = rules.cpu
    if (cpu.plugins is not None and cpu.plugins.sees_pods) or (cpu.classes is not None and cpu.classes.sees_pods):
        problem = "its plugins or rules look at names and labels of pods, which do not leave the node"
        raise InputError(problem, path="setup.plugins", remedy="ask the node itself")


def _machine(rules: NodeRules) -> dict[str, Any]:
    """Return the parts of a machine that decisions read, so that nodes differing only in names have equal setups. With
    plugins all of it, because a plugin may read any part."""
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
