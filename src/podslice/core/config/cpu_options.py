"""Parsing `cpuManagerPolicyOptions` (cpu-topology 3.3 to 3.5)."""

from __future__ import annotations

from collections.abc import Mapping

from podslice.core.errors import StartError, StartKind
from podslice.core.machine.topology import CPUTopology
from podslice.core.values.cpu_policy_options import CPUPolicyOptions
from podslice.core.values.gate_table import NEWEST
from podslice.core.values.golang import GoSyntaxError, parse_bool, quote

MATURITY = {
    "full-pcpus-only": ((22, "Alpha"), (23, "Beta"), (33, "stable")),
    "strict-cpu-reservation": ((32, "Alpha"), (33, "Beta"), (35, "stable")),
    "prefer-align-cpus-by-uncorecache": ((32, "Alpha"), (34, "Beta"), (36, "stable")),
    "distribute-cpus-across-numa": ((23, "Alpha"), (33, "Beta")),
    "align-by-socket": ((25, "Alpha"),),
    "distribute-cpus-across-cores": ((31, "Alpha"),),
}
"""Since which minor version of Kubernetes 1.x an option has which maturity."""
EXCLUSIVE_PAIRS = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)
"""Options that upstream refuses together."""


_REFUSED = StartKind("refused-option", "{prefix}{error}")
_GATED = StartKind("gated-option", "{prefix}{error}", "featureGates: {{{gate}: true}}, or leave the option out")


def gate_of(maturity: str) -> str:
    """The feature gate that allows options of a maturity, `Alpha` or `Beta`."""
    return f"CPUManagerPolicy{maturity}Options"


class OptionError(ValueError):
    """An option the policy refuses; the text is upstream's. `maturity` of an option whose feature gate is off."""

    def __init__(self, message: str, maturity: str = "") -> None:
        self.maturity = maturity
        super().__init__(message)

    @property
    def gate(self) -> str:
        """The feature gate that would allow the option, empty where none would."""
        return gate_of(self.maturity) if self.maturity else ""

    def at_start(self, prefix: str = "") -> StartError:
        """What a kubelet makes of it, which does not start."""
        return StartError(
            "cpuManager", _GATED if self.gate else _REFUSED, prefix=prefix, error=str(self), gate=self.gate
        )


def parse_cpu_policy_options(
    options: Mapping[str, str], gates: Mapping[str, bool], minor: int = NEWEST
) -> CPUPolicyOptions:
    """Options of the static policy by name, as Kubernetes 1.`minor` reads them. Raises `OptionError`; the first wrong
    one in name order is reported."""
    values = {name: _parse_option(name, options[name], gates, minor) for name in sorted(options)}
    for one, other in EXCLUSIVE_PAIRS:
        if values.get(one) and values.get(other):
            raise OptionError(f"static policy options {one} and {other} can not be used at the same time")
    return CPUPolicyOptions(**{name.replace("-", "_"): value for name, value in values.items()})


def _parse_option(name: str, value: str, gates: Mapping[str, bool], minor: int) -> bool:
    maturity = next((stage for since, stage in reversed(MATURITY.get(name, ())) if since <= minor), None)
    if maturity is None:
        raise OptionError(f"unknown CPU Manager Policy option: {quote(name)}")
    if maturity != "stable" and not gates[gate_of(maturity)]:
        text = f"CPU Manager Policy {maturity}-level Options not enabled, but option {quote(name)} provided"
        raise OptionError(text, maturity)
    try:
        return parse_bool(value)
    except GoSyntaxError as error:
        raise OptionError(f"bad value for option {quote(name)}: {error}") from None


def check_cpu_policy_options(options: CPUPolicyOptions, topology: CPUTopology, topology_policy: str) -> None:
    """Options against machine and Topology Manager policy (cpu-topology 3.4). Raises `OptionError`."""
    if not options.align_by_socket:
        return
    if topology_policy == "single-numa-node":
        raise OptionError(
            "Topolgy manager single-numa-node policy is incompatible with CPUManager align-by-socket policy option"
        )
    if topology.num_sockets > len(topology.numa_nodes):
        raise OptionError(
            "Align by socket is not compatible with hardware where number of sockets are more than number of NUMA"
        )


def refuse_options_of_none_policy(options: Mapping[str, str]) -> None:
    """Policy `none` takes no options (cpu-topology 3.5). Raises `OptionError`."""
    if options:
        listed = " ".join(f"{name}:{options[name]}" for name in sorted(options))
        raise OptionError(f"new none policy error: None policy: received unsupported options=map[{listed}]")
