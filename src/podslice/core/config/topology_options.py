"""Topology Manager policies, scopes and options, and what they demand of a machine (cpu-topology 9.1)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.core.errors import StartError
from podslice.core.machine.model import Machine
from podslice.core.values.golang import GoSyntaxError, atoi, parse_bool, quote

NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE = "none", "best-effort", "restricted", "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)
SCOPES = ("container", "pod")
DEFAULT_NUMA_LIMIT = 8
_CLOSEST = "prefer-closest-numa-nodes"
_LIMIT = "max-allowable-numa-nodes"
_STAGE = "topologyManager"


class TopologyManagerOptions(msgspec.Struct, frozen=True):
    """Parsed `topologyManagerPolicyOptions`."""

    prefer_closest_numa_nodes: bool = False
    max_allowable_numa_nodes: int = DEFAULT_NUMA_LIMIT


def parse_options(options: Mapping[str, str]) -> TopologyManagerOptions:
    """Raises `StartError` with upstream's text; the first wrong option in name order is reported."""
    closest, limit = False, DEFAULT_NUMA_LIMIT
    for name in sorted(options):
        value = options[name]
        try:
            if name == _CLOSEST:
                closest = parse_bool(value)
            elif name == _LIMIT:
                limit = atoi(value)
            else:
                raise StartError(_STAGE, f"unknown Topology Manager Policy option: {quote(name)}")
        except GoSyntaxError as error:
            what = (
                f"bad value for option {quote(name)}"
                if name == _CLOSEST
                else (f"unable to convert policy option to integer {quote(name)}")
            )
            raise StartError(_STAGE, f"{what}: {error}") from None
        if name == _LIMIT and limit < DEFAULT_NUMA_LIMIT:
            raise StartError(_STAGE, f'the minimum value of "{_LIMIT}" should not be less than {DEFAULT_NUMA_LIMIT}')
    return TopologyManagerOptions(closest, limit)


def check_machine(machine: Machine, policy: str, scope: str, options: TopologyManagerOptions, limited: bool) -> None:
    """Machine, policy and scope in upstream's order of checks (cpu-topology 9.1, steps 3 to 5). Raises `StartError`.

    `limited` False leaves out the limit on NUMA nodes, which only exists because upstream's merge is exponential.
    """
    if options.prefer_closest_numa_nodes and any(node.distances is None for node in machine.nodes):
        raise StartError(_STAGE, "cannot discover NUMA topology: error getting NUMA distances from cadvisor")
    if limited and len(machine.nodes) > options.max_allowable_numa_nodes:
        raise StartError(
            _STAGE, f"unsupported on machines with more than {options.max_allowable_numa_nodes} NUMA Nodes"
        )
    if policy not in POLICIES:
        raise StartError(_STAGE, f"unknown policy: {quote(policy)}")
    if scope not in SCOPES:
        raise StartError(_STAGE, f"unknown scope: {quote(scope)}")
