"""Derive the facts of a node from its kubelet's configuration, to check state files without that kubelet."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.advise.trial.trial import Trial
from podslice.config.kubelet import KubeletConfig
from podslice.config.reservation import parse_reserved_memory
from podslice.machine.model import Machine
from podslice.state_files.consequence import NodeFacts
from podslice.values.gate_table import gate_states
from podslice.values.gates import GATES
from podslice.values.quirks import quirks_of
from podslice.values.releases.table import DEFAULT, RELEASES


def node_facts(
    machine: Machine,
    config: KubeletConfig,
    containers: Mapping[str, tuple[str, str]] | None = None,
    *,
    minor: int = DEFAULT.minor,
) -> NodeFacts:
    """Return the facts against which a kubelet 1.`minor` with this configuration checks its files (`NodeFacts`).

    Raises `StartError` where the kubelet would not start even without files.
    """
    release = RELEASES.get(minor)
    if release is None:
        release, config = DEFAULT, _without_other_gates(config)
    view = Trial.start(machine, config, quirks_of(release), release=release).view
    memory = parse_reserved_memory(config, machine, view.reservation) if view.binds_memory else None
    return NodeFacts(
        machine=machine,
        reserved=view.reserved,
        strict=view.pins_cpus and view.cpu_options.strict_cpu_reservation,
        containers=containers or {},
        policies={"cpu": config.cpu_manager_policy, "memory": config.memory_manager_policy},
        memory_reserved=memory,
    )


def _without_other_gates(config: KubeletConfig) -> KubeletConfig:
    """Return the configuration for a kubelet of a release that is not known here, without the gates that the default
    release does not know or locks."""
    states = gate_states()
    kept = {name: on for name, on in config.feature_gates.items() if name in GATES and not states[name].locked}
    return msgspec.structs.replace(config, feature_gates=kept)
