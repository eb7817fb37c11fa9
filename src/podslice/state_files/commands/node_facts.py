"""Derive the facts of a node from its kubelet's configuration, to check state files without that kubelet."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.advise.trial.trial import Trial
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy_options import OptionError, parse_cpu_policy_options
from podslice.config.reservation import parse_reserved_memory
from podslice.machine.model import Machine
from podslice.node.container import refused_gates_error
from podslice.state_files.consequence import NodeFacts
from podslice.values.gate_table import NEWEST, OLDEST, gate_states
from podslice.values.gates import GATES, FeatureGates, GateError, check_gates
from podslice.values.quirks import KUBELET_1_36


def node_facts(
    machine: Machine,
    config: KubeletConfig,
    containers: Mapping[str, tuple[str, str]] | None = None,
    *,
    minor: int = NEWEST,
) -> NodeFacts:
    """Return the facts against which a kubelet 1.`minor` with this configuration checks its files (`NodeFacts`).

    Raises `StartError` where the kubelet would not start even without files.
    """
    if minor != NEWEST:
        config = _as_of(config, minor)
    view = Trial.start(machine, config, KUBELET_1_36).view
    memory = parse_reserved_memory(config, machine, view.reservation) if view.binds_memory else None
    return NodeFacts(
        machine=machine,
        reserved=view.reserved,
        strict=view.pins_cpus and view.cpu_options.strict_cpu_reservation,
        containers=containers or {},
        policies={"cpu": config.cpu_manager_policy, "memory": config.memory_manager_policy},
        memory_reserved=memory,
    )


def _as_of(config: KubeletConfig, minor: int) -> KubeletConfig:
    """Return the configuration without the gates that only another release knows or locks. Raises `StartError` where
    release 1.`minor` refuses them; releases outside of the gate table refuse none.
    """
    overrides = config.feature_gates
    newest = gate_states()
    kept = {name: on for name, on in overrides.items() if name in GATES and not newest[name].locked}
    try:
        if OLDEST <= minor <= NEWEST:
            check_gates(overrides, minor)
        if config.cpu_manager_policy == "static":
            gates = FeatureGates.from_overrides(kept)
            parse_cpu_policy_options(config.cpu_manager_policy_options, gates, minor)
    except GateError as error:
        raise refused_gates_error(error) from None
    except OptionError as error:
        raise error.at_start() from None
    return msgspec.structs.replace(config, feature_gates=kept)
