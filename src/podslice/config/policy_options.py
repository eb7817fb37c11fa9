"""Parsing of `topologyManagerPolicyOptions` and `cpuManagerPolicyOptions`, and the demands of policies on a machine."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from podslice.machine.model import CPUTopology, Machine
from podslice.values.cpu_policy_options import CPUPolicyOptions
from podslice.values.errors import PodsliceError, StartError, StartKind
from podslice.values.golang import GoSyntaxError, atoi, parse_bool, quote
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

# The Topology Manager (cpu-topology 9.1)

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
_GATED_TOPOLOGY_OPTION = StartKind("gated-option", "{text}", "featureGates: {{{gate}: true}}, or leave the option out")
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


def parse_topology_options(
    options: Mapping[str, str], gates: Mapping[str, bool] | None = None, release: Release = DEFAULT
) -> TopologyManagerOptions:
    """Parse the options as a release does; without `gates` all maturities are allowed. Raises `StartError` with
    upstream's text for the first wrong option in name order."""
    closest, limit = False, DEFAULT_NUMA_LIMIT
    # Upstream walks the map in random order, so any of several errors could be reported; here it is the first by name.
    for name in sorted(options):
        value = options[name]
        if gates is not None:
            _check_maturity(name, gates, release)
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


def _check_maturity(name: str, gates: Mapping[str, bool], release: Release) -> None:
    """Check that the gates allow a Topology Manager option. Raises `StartError`."""
    maturity = release.topology_options.get(name)
    if maturity is None or maturity == "stable":
        return
    gate = f"TopologyManagerPolicy{maturity}Options"
    if not gates[gate]:
        text = f"Topology Manager Policy {maturity}-level Options not enabled, but option {quote(name)} provided"
        raise StartError(
            _STAGE, _GATED_TOPOLOGY_OPTION, text=text.lower() if release.lower_case_option_texts else text, gate=gate
        )


def check_machine(machine: Machine, policy: str, scope: str, options: TopologyManagerOptions, *, limited: bool) -> None:
    """Check machine, policy and scope in upstream's order (cpu-topology 9.1, steps 3 to 5). Raises `StartError`.

    `limited` False omits the limit on NUMA nodes, which exists only because upstream's merge is exponential.
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
    """Check that NUMA node ids fit a mask. Raises `StartError`."""
    ids = [node.id for node in machine.nodes]
    if any(not 0 <= node <= MAX_NODE_ID for node in ids):
        raise StartError(stage, _NODE_IDS, most=MAX_NODE_ID, ids=ids)


# The CPU Manager (cpu-topology 3.3 to 3.5)

EXCLUSIVE_PAIRS = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)
"""Options that upstream refuses together."""
_REFUSED = StartKind("refused-option", "{prefix}{error}")
_GATED = StartKind("gated-option", "{prefix}{error}", "featureGates: {{{gate}: true}}, or leave the option out")


def maturity_gate(maturity: str) -> str:
    """Return the feature gate that allows options of a maturity, `Alpha` or `Beta`."""
    return f"CPUManagerPolicy{maturity}Options"


class OptionError(PodsliceError, ValueError):
    """Raised for an option that the policy refuses; the text is upstream's. `maturity` is set where the option's
    feature gate is off."""

    def __init__(self, message: str, maturity: str = "") -> None:
        self.maturity = maturity
        super().__init__(message)

    @property
    def gate(self) -> str:
        """The feature gate that would allow the option, empty where none would."""
        return maturity_gate(self.maturity) if self.maturity else ""

    def at_start(self, prefix: str = "") -> StartError:
        """Return the error with which a kubelet does not start."""
        return StartError(
            "cpuManager", _GATED if self.gate else _REFUSED, prefix=prefix, error=str(self), gate=self.gate
        )


def parse_cpu_policy_options(
    options: Mapping[str, str], gates: Mapping[str, bool], release: Release = DEFAULT
) -> CPUPolicyOptions:
    """Parse the static policy's options as a release does. Raises `OptionError` for the first wrong one in name
    order."""
    values = {name: _parse_option(name, options[name], gates, release) for name in sorted(options)}
    # The order is upstream's: the first pair that matches is the error (cpu-topology 3.3).
    for one, other in EXCLUSIVE_PAIRS:
        if values.get(one) and values.get(other):
            raise OptionError(f"static policy options {one} and {other} can not be used at the same time")
    return CPUPolicyOptions(**{name.replace("-", "_"): value for name, value in values.items()})


def option_errors(
    options: Mapping[str, str], gates: Mapping[str, bool], release: Release = DEFAULT
) -> list[OptionError]:
    """Return the errors of single options, in name order. Upstream reports any one of them."""
    errors = []
    for name in sorted(options):
        try:
            _parse_option(name, options[name], gates, release)
        except OptionError as error:
            errors.append(error)
    return errors


def _parse_option(name: str, value: str, gates: Mapping[str, bool], release: Release) -> bool:
    maturity = release.cpu_options.get(name)
    if maturity is None:
        raise OptionError(f"unknown CPU Manager Policy option: {quote(name)}")
    # The gate counts before the value, even for an option set to false (cpu-topology 3.3).
    if maturity != "stable" and not gates[maturity_gate(maturity)]:
        text = f"CPU Manager Policy {maturity}-level Options not enabled, but option {quote(name)} provided"
        raise OptionError(text, maturity)
    try:
        return parse_bool(value)
    except GoSyntaxError as error:
        raise OptionError(f"bad value for option {quote(name)}: {error}") from None


def check_cpu_policy_options(options: CPUPolicyOptions, topology: CPUTopology, topology_policy: str) -> None:
    """Check the options against machine and Topology Manager policy (cpu-topology 3.4). Raises `OptionError`."""
    refuse_sockets_on_one_node(options, topology_policy)
    if options.align_by_socket and topology.num_sockets > len(topology.numa_nodes):
        raise OptionError(
            "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
        )


def refuse_sockets_on_one_node(options: CPUPolicyOptions, topology_policy: str) -> None:
    """Raise `OptionError` for align-by-socket beside single-numa-node, which a kubelet refuses on every machine."""
    if options.align_by_socket and topology_policy == "single-numa-node":
        raise OptionError(
            # The typing error is upstream's.
            "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option"
        )


def refuse_options_of_none_policy(options: Mapping[str, str]) -> None:
    """Raise `OptionError` for any option: policy `none` takes none (cpu-topology 3.5)."""
    if options:
        listed = " ".join(f"{name}:{options[name]}" for name in sorted(options))
        raise OptionError(f"new none policy error: None policy: received unsupported options=map[{listed}]")
