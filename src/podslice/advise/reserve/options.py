"""The option of the CPU Manager that advice adds, where the release has it, with its stage and feature gate."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from podslice.config.kubelet import KubeletConfig
from podslice.config.policy_options import maturity_gate
from podslice.values.errors import InputError
from podslice.values.gates import FeatureGates, GateError
from podslice.values.releases.release import Release
from podslice.values.releases.table import RELEASES

STRICT: Final = "strict-cpu-reservation"


class OptionLines(NamedTuple):
    """Lines of a KubeletConfiguration about options, and notes about their stage."""

    lines: dict[str, Any]
    notes: tuple[str, ...]


def option_lines(config: KubeletConfig, release: Release, *, strict: bool) -> OptionLines:
    """Return the options of the present configuration, with `strict-cpu-reservation` if asked for, and the feature gate
    that the release needs for it. Raises `InputError` where the release does not have the option."""
    options = dict(config.cpu_manager_policy_options)
    lines: dict[str, Any] = {}
    notes: tuple[str, ...] = ()
    if strict:
        options[STRICT] = "true"
        gate = _gate_of(release)
        if gate:
            needed = "" if _is_on(gate, config, release) else ", which the lines below set"
            if needed:
                lines["featureGates"] = {**config.feature_gates, gate: True}
            stage = release.cpu_options[STRICT].lower()
            notes = (f"{STRICT} is {stage} in Kubernetes {release}: it needs feature gate {gate}{needed}",)
    return OptionLines(({"cpuManagerPolicyOptions": options} if options else {}) | lines, notes)


def _is_on(gate: str, config: KubeletConfig, release: Release) -> bool:
    try:
        return FeatureGates.from_overrides(config.feature_gates, release=release)[gate]
    except GateError:
        # A kubelet does not start with these gates; its start says so.
        return False


def _gate_of(release: Release) -> str:
    """Return the feature gate that the option needs, empty for a stable one. Raises `InputError`."""
    maturity = release.cpu_options.get(STRICT)
    if maturity is None:
        first = min(one.minor for one in RELEASES.values() if STRICT in one.cpu_options)
        raise InputError(
            f"Kubernetes {release} has no option {STRICT}: it is new in 1.{first}",
            path="--strict",
            remedy=f"leave it out, or upgrade to 1.{first}",
        )
    return "" if maturity == "stable" else maturity_gate(maturity)
