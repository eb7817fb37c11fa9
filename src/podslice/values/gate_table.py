"""The feature gates of every known release: default, stage and lock of each, and the gates that others need.

The releases' modules say what changes from one to the next. One line per gate: its name, the stage (`a`lpha, `b`eta,
`g`eneral, `d`eprecated), `+` for on by default or `-`, and `!` where that is locked; or `gone`.
"""

from __future__ import annotations

from difflib import SequenceMatcher, get_close_matches
from functools import cache
from typing import NamedTuple

from podslice.values.releases.table import DEFAULT, RELEASES, releases_up_to

_STAGES = {"a": "ALPHA", "b": "BETA", "g": "", "d": "DEPRECATED"}


class GateState(NamedTuple):
    """A gate in one version; `stage` is empty for general availability."""

    default: bool
    stage: str
    locked: bool


@cache
def gate_states(minor: int = DEFAULT.minor) -> dict[str, GateState]:
    """Return all gates of 1.`minor` by name. Raises `KeyError` for a release outside the table."""
    if minor not in RELEASES:
        raise KeyError(minor)
    before = releases_up_to(minor - 1)
    states = dict(gate_states(before[-1])) if before else {}
    for line in RELEASES[minor].gates.split("\n"):
        name, _, state = line.partition(" ")
        if state == "gone":
            del states[name]
        elif name:
            states[name] = GateState("+" in state, _STAGES[state[0]], "!" in state)
    return dict(sorted(states.items()))


@cache
def gate_dependencies(minor: int = DEFAULT.minor) -> dict[str, tuple[str, ...]]:
    """Return the gates that each gate of 1.`minor` needs, by its name; none before 1.35. Raises `KeyError` for a
    release outside the table."""
    if minor not in RELEASES:
        raise KeyError(minor)
    before = releases_up_to(minor - 1)
    needs = dict(gate_dependencies(before[-1])) if before else {}
    for line in RELEASES[minor].needs.split("\n"):
        name, *needed = line.split() or [""]
        if name:
            needs[name] = tuple(needed)
    # A gate that is gone needs nothing, and is needed by none: its feature is part of Kubernetes, or is not there.
    there = gate_states(minor)
    return {name: tuple(one for one in needs[name] if one in there) for name in sorted(needs.keys() & there)}


@cache
def last_state(name: str, minor: int) -> GateState | None:
    """Return the state of a gate in 1.`minor`, or where it is gone by then the last it had; None where it came
    later."""
    for release in reversed(releases_up_to(minor)):
        if name in gate_states(release):
            return gate_states(release)[name]
    return None


def is_gate(name: str) -> bool:
    """Whether any known release has a gate of this name."""
    return any(name in gate_states(minor) for minor in RELEASES)


_REMOVED_BEFORE = {
    "DevicePlugins": 27,
    "DownwardAPIHugePages": 28,
    "EphemeralContainers": 26,
    "HugePageStorageMediumSize": 24,
    "KubeletCredentialProviders": 28,
    "KubeletPodResources": 29,
    "KubeletPodResourcesGetAllocatable": 29,
    "LocalStorageCapacityIsolation": 26,
    "RotateKubeletClientCertificate": 21,
    "SeccompDefault": 28,
    "TopologyManager": 28,
}
"""The last release with gates of the kubelet that became part of it before the oldest release in the table, as the
Kubernetes documentation lists them."""


def unknown_gate_hint(name: str, minor: int = DEFAULT.minor) -> str:
    """Return what to do about a gate that 1.`minor` does not have: the version that adds or removed it, or a name that
    differs by a typing error. Another gate is never proposed for one that exists elsewhere."""
    having = [version for version in RELEASES if name in gate_states(version)]
    if having and having[0] > minor:
        return f"Kubernetes 1.{having[0]} has it"
    if having or name in _REMOVED_BEFORE:
        last = having[-1] if having else _REMOVED_BEFORE[name]
        is_part = not having or gate_states(last)[name].default
        since = ", and its feature is always on since" if is_part else " and its feature is gone"
        return f"remove it: Kubernetes 1.{last} is the last to have it{since}"
    close = [one for one in get_close_matches(name, gate_states(minor), 3, 0.8) if _is_misspelt(name, one)]
    return f"did you mean {close[0]}?" if close else "remove it"


def _is_misspelt(written: str, name: str) -> bool:
    """Whether two names differ in case, or by at most a letter that is wrong or two that are missing or too many."""
    if written.casefold() == name.casefold():
        return True
    common = sum(block.size for block in SequenceMatcher(None, written, name, autojunk=False).get_matching_blocks())
    return len(written) + len(name) - 2 * common <= 2


def gate_warnings(overrides: dict[str, bool], minor: int = DEFAULT.minor) -> list[str]:
    """Return the warnings a component logs about gates that are set and will be removed."""
    words = {"": "GA", "DEPRECATED": "deprecated"}
    states = gate_states(minor)
    return [
        f"Warning: setting {words[states[name].stage]} feature gate. It will be removed in a future release. "
        f'featureGate="{name}" value={str(value).lower()}'
        for name, value in sorted(overrides.items())
        if name in states and states[name].stage in words
    ]
