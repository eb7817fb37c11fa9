"""Topology Manager policies, scopes and options, and what they demand of a machine (cpu-topology 9.1)."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.core.errors import StartError, StartKind
from podslice.core.machine.model import Machine
from podslice.core.values.golang import GoSyntaxError, atoi, parse_bool, quote

NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE = "none", "best-effort", "restricted", "single-numa-node"
POLICIES = (NONE, BEST_EFFORT, RESTRICTED, SINGLE_NUMA_NODE)
SCOPES = ("container", "pod")
DEFAULT_NUMA_LIMIT = 8
MAX_NODE_ID = 63
_CLOSEST = "prefer-closest-numa-nodes"
LIMIT_OPTION = "max-allowable-numa-nodes"
_STAGE = "topologyManager"
_UNKNOWN_OPTION = StartKind("unknown-option", "unknown Topology Manager Policy option: {option}")
_BAD_VALUE = StartKind("bad-value", "bad value for option {option}: {error}")
_NO_INTEGER = StartKind("no-integer", "unable to convert policy option to integer {option}: {error}")
_LOW_LIMIT = StartKind("low-limit", 'the minimum value of "{option}" should not be less than {least}')
_NO_DISTANCES = StartKind("no-distances", "cannot discover NUMA topology: error getting NUMA distances from cadvisor")
_MANY_NODES = StartKind(
    "many-numa-nodes",
    "unsupported on machines with more than {most} NUMA Nodes",
    "topologyManagerPolicyOptions: {{max-allowable-numa-nodes: N}} raises the number",
)
_UNKNOWN_POLICY = StartKind(
    "unknown-policy",
    "unknown policy: {policy}",
    "topologyManagerPolicy is none, best-effort, restricted or single-numa-node",
)
_NODE_IDS = StartKind("node-ids", "NUMA node ids must be between 0 and {most}: {ids}")
_UNKNOWN_SCOPE = StartKind("unknown-scope", "unknown scope: {scope}", "topologyManagerScope is container or pod")


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
            elif name == LIMIT_OPTION:
                limit = atoi(value)
            else:
                raise StartError(_STAGE, _UNKNOWN_OPTION, option=quote(name))
        except GoSyntaxError as error:
            kind = _BAD_VALUE if name == _CLOSEST else _NO_INTEGER
            raise StartError(_STAGE, kind, option=quote(name), error=str(error)) from None
        if name == LIMIT_OPTION and limit < DEFAULT_NUMA_LIMIT:
            raise StartError(_STAGE, _LOW_LIMIT, option=LIMIT_OPTION, least=DEFAULT_NUMA_LIMIT)
    return TopologyManagerOptions(closest, limit)


def check_machine(machine: Machine, policy: str, scope: str, options: TopologyManagerOptions, *, limited: bool) -> None:
    """Machine, policy and scope in upstream's order of checks (cpu-topology 9.1, steps 3 to 5). Raises `StartError`.

    `limited` False leaves out the limit on NUMA nodes, which only exists because upstream's merge is exponential.
    """
    if options.prefer_closest_numa_nodes and any(node.distances is None for node in machine.nodes):
        raise StartError(_STAGE, _NO_DISTANCES)
    if limited and len(machine.nodes) > options.max_allowable_numa_nodes:
        raise StartError(_STAGE, _MANY_NODES, most=options.max_allowable_numa_nodes)
    if policy not in POLICIES:
        raise StartError(_STAGE, _UNKNOWN_POLICY, policy=quote(policy))
    if scope not in SCOPES:
        raise StartError(_STAGE, _UNKNOWN_SCOPE, scope=quote(scope))


def check_node_ids(machine: Machine, stage: str = _STAGE) -> None:
    """Node ids must fit a mask. Raises `StartError`."""
    ids = [node.id for node in machine.nodes]
    if any(not 0 <= node <= MAX_NODE_ID for node in ids):
        raise StartError(stage, _NODE_IDS, most=MAX_NODE_ID, ids=ids)
