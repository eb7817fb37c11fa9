"""Where the facts of an answer come from, as one value that every document has and one line that every answer prints.

An answer about another machine, or without half of the pods, looks like a right one. So it names the machine, the
configuration, the release and the pods that it counts, where each of them comes from, and what is assumed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from podslice.config.kubelet import KubeletConfig
from podslice.evidence.contradiction import Contradiction
from podslice.machine.model import Machine
from podslice.values.assumption import Assumption
from podslice.values.quantity import plural
from podslice.values.quirks import PROFILE_RELEASES
from podslice.values.releases.table import DEFAULT

RELEASE = str(DEFAULT)
_UNPROVEN = "Kubernetes {release} decides as its release notes and documentation say: it is not recorded"
"""The Kubernetes release whose decisions are taken."""
HERE = "this machine, because no option names another"
"""Origin of the machine that a command takes without an option."""
DEFAULTS = "a kubelet's defaults, because no option names a configuration"
"""Origin of a configuration without any option."""
_MOST_NAMES = 3
_NO_NODE = "No machine and no configuration is given"

Reason = Literal["ended", "pending", "other-node"]
_REASONS: dict[Reason, str] = {"ended": "ended", "pending": "Pending without a node", "other-node": "of other nodes"}


class Origin(msgspec.Struct, frozen=True):
    """A machine or a configuration: `what` it is in a few words, the option or file that it comes `source` from, and
    in `details` a line for each part that comes from elsewhere. All are empty where the answer needs none."""

    what: str = ""
    source: str = ""
    details: tuple[str, ...] = ()


class LeftOut(msgspec.Struct, frozen=True):
    """Pods of a list that are not counted as running on the node, as NAMESPACE/NAME: `ended`, `pending` (no node has
    them yet), or of an `other-node`."""

    reason: Reason
    pods: tuple[str, ...]


class CountedPods(msgspec.Struct, frozen=True, rename="camel"):
    """The number of pods that are counted as running on the node, and the listed ones that are not."""

    counted: int = 0
    left_out: tuple[LeftOut, ...] = ()


class Provenance(msgspec.Struct, frozen=True, rename="camel"):
    """The facts that an answer rests on. `release` is the Kubernetes release whose decisions are taken, `profile` names
    the deviations from it; `state` is the folder of the state files, empty without one. `pods` is null where no pod has
    to run on the node. `assumptions` are facts of machine and configuration that nothing gives, `passed_over` names
    objects of the input of which no pod can be read, `contradictions` are the evidence that speaks against what is
    given."""

    machine: Origin = Origin()
    configuration: Origin = Origin()
    release: str = RELEASE
    profile: str = ""
    state: str = ""
    pods: CountedPods | None = None
    assumptions: tuple[Assumption, ...] = ()
    passed_over: tuple[str, ...] = ()
    contradictions: tuple[Contradiction, ...] = ()


def provenance_of(profile: str) -> Provenance:
    """Return the provenance of a profile: its release, and that the release is not proven where it is not. Raises
    `InputError` for an unknown profile."""
    release = PROFILE_RELEASES[profile]
    unproven = () if release.proof == "recorded" else (Assumption("release", _UNPROVEN.format(release=release)),)
    return Provenance(release=str(release), profile=profile, assumptions=unproven)


def describe_machine(machine: Machine) -> str:
    """Return the name of a machine with its CPUs and NUMA nodes."""
    nodes = len(machine.nodes)
    counts = f"{plural(machine.cpu_count, 'CPU')}, {plural(nodes, 'NUMA node')}"
    return f"{machine.name}, {counts}" if machine.name else counts


def describe_configuration(config: KubeletConfig) -> str:
    """Return the policies of a configuration in a few words."""
    topology = config.topology_manager_policy
    scope = f" ({config.topology_manager_scope} scope)" if config.aligns else ""
    return f"CPU manager {config.cpu_manager_policy}, Topology manager {topology}{scope}"


def from_agent(machine: Machine, config: KubeletConfig, pods: int, source: str, profile: str) -> Provenance:
    """Return the provenance of a node that an agent reports; `source` names the agent, `profile` what decides."""
    return msgspec.structs.replace(
        provenance_of(profile),
        machine=Origin(describe_machine(machine), source),
        configuration=Origin(describe_configuration(config), source),
        pods=CountedPods(pods),
    )


def provenance_line(provenance: Provenance) -> str:
    """Return all of it in one line, for people."""
    parts = [
        _NO_NODE if not provenance.machine.source and not provenance.configuration.source else "",
        _origin_text("Machine", provenance.machine),
        _origin_text("configuration", provenance.configuration),
        _release_text(provenance) if provenance.release else "",
        _pods_text(provenance.pods) if provenance.pods is not None else "",
        f"state files of {provenance.state}" if provenance.state else "",
        *([f"assumed: {'; '.join(map(str, provenance.assumptions))}"] if provenance.assumptions else []),
    ]
    return " · ".join(filter(None, parts))


def provenance_lines(provenance: Provenance) -> tuple[str, ...]:
    """Return the line, and one for each contradiction."""
    return provenance_line(provenance), *map(contradiction_line, provenance.contradictions)


def contradiction_line(found: Contradiction) -> str:
    """Return a contradiction in one line, for people."""
    return f"Contradiction: {found}"


def _origin_text(title: str, origin: Origin) -> str:
    if not origin.source:
        return ""
    source = "; ".join((origin.source, *origin.details))
    return f"{title}: {origin.what} ({source})" if origin.what else f"{title}: {source}"


def _release_text(provenance: Provenance) -> str:
    profile = f", profile {provenance.profile}" if provenance.profile else ""
    return f"Kubernetes {provenance.release}{profile}"


def _pods_text(pods: CountedPods) -> str:
    counted = f"{plural(pods.counted, 'running pod')} counted" if pods.counted else "no running pods"
    parts = [f"{len(one.pods)} {_REASONS[one.reason]} ({_names(one.pods)})" for one in pods.left_out]
    return f"{counted}, left out: {', '.join(parts)}" if parts else counted


def _names(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_MOST_NAMES]) + (" …" if len(listed) > _MOST_NAMES else "")
