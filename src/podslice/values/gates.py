"""Feature gates that change what the resource managers do (cpu-topology 3.2; pod-level-resources 0): defaults,
maturity, locks and dependencies in each release, and the errors of a wrong setting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import NamedTuple

from podslice.values.errors import PodsliceError
from podslice.values.gate_table import gate_dependencies, gate_states, is_gate, last_state, unknown_gate_hint
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT


class Gate(NamedTuple):
    """Default and stage of a gate (`""` is GA), and whether the default is locked.

    `later`: the quirk that a fix announced in KEP-2837 removes, and that v1.36.2 still has. The gate exists only in
    profiles without this quirk.
    """

    default: bool
    stage: str = ""
    locked: bool = False
    later: str = ""


_ALPHA, _BETA, _DEPRECATED = "ALPHA", "BETA", "DEPRECATED"
GATES: dict[str, Gate] = {
    "CPUManagerPolicyAlphaOptions": Gate(False, _ALPHA),
    "CPUManagerPolicyBetaOptions": Gate(True, _BETA),
    "CPUManagerPolicyOptions": Gate(True, locked=True),
    "CustomCPUCFSQuotaPeriod": Gate(True),
    "DRAExtendedResource": Gate(True, _BETA),
    "DRANodeAllocatableResources": Gate(False, _ALPHA),
    "DisableCPUQuotaWithExclusiveCPUs": Gate(True, _DEPRECATED),
    "DynamicResourceAllocation": Gate(True, locked=True),
    "ExtendWebSocketsToKubelet": Gate(True, _BETA),
    "InPlacePodLevelResourcesVerticalScaling": Gate(True, _BETA),
    "InPlacePodVerticalScaling": Gate(True, locked=True),
    "InPlacePodVerticalScalingExclusiveCPUs": Gate(False, _ALPHA),
    "InPlacePodVerticalScalingExclusiveMemory": Gate(False, _ALPHA),
    "InPlacePodVerticalScalingInitContainers": Gate(True, _BETA),
    "KubeletPodResourcesDynamicResources": Gate(True, locked=True),
    "KubeletPodResourcesGet": Gate(True, locked=True),
    "KubeletPodResourcesListUseActivePods": Gate(True, _DEPRECATED),
    "MemoryQoS": Gate(False, _ALPHA),
    "NodeDeclaredFeatures": Gate(True, _BETA),
    "PodLevelResourceManagers": Gate(False, _ALPHA),
    "PodLevelResources": Gate(True, _BETA),
    "PodLevelResourcesFixKubeletQOSClass": Gate(True, _BETA, later="empty_resources_hide_containers"),
    "PodLevelResourcesFixDefaulting": Gate(True, _BETA, later="pod_limits_not_defaulted"),
    "PodLevelResourcesLimitRange": Gate(False, _ALPHA, later="limit_range_without_pod_defaults"),
    "QOSReserved": Gate(False, _ALPHA),
    "ResourceHealthStatus": Gate(True, _BETA),
    "RestartAllContainersOnContainerExits": Gate(True, _BETA),
    "SidecarContainers": Gate(True, locked=True),
    "TopologyManagerPolicyAlphaOptions": Gate(False, _ALPHA),
    "TopologyManagerPolicyBetaOptions": Gate(True, _BETA),
    "TopologyManagerPolicyOptions": Gate(True, locked=True),
    "WindowsCPUAndMemoryAffinity": Gate(False, _ALPHA),
}
"""The gates that code reads, as 1.36 has them; `gates_of` has those of another release."""
_GONE = ("MemoryManager",)
"""Gates that code reads, and that 1.36 no longer has."""


@cache
def gates_of(minor: int = DEFAULT.minor) -> dict[str, Gate | None]:
    """Return the gates that code reads as 1.`minor` has them; None for those that it does not know by name."""
    if minor == DEFAULT.minor:
        return {**GATES, **dict.fromkeys(_GONE)}
    states = gate_states(minor)
    return {
        name: Gate(*states[name]) if name in states else gate if gate is not None and gate.later else None
        for name, gate in {**GATES, **dict.fromkeys(_GONE)}.items()
    }


def join_errors(problems: Sequence[str]) -> str:
    """Return a single error as it is, several as Kubernetes prints an aggregate: `[first, second]`."""
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def later_gates(quirks: object) -> tuple[str, ...]:
    """Return the gates of KEP-2837's fixes that exist in a profile with these quirks; v1.36.2 has none of them."""
    return tuple(name for name, gate in GATES.items() if gate.later and not getattr(quirks, gate.later))


class GateError(PodsliceError, ValueError):
    """Raised for a gate setting with which a component does not start; the text is upstream's, `hint` says what to do.

    Upstream prints several `problems` in random order; here they are in the order of the gates' names.
    """

    def __init__(self, *problems: str, hint: str = "") -> None:
        self.problems = problems
        self.hint = hint
        super().__init__(join_errors(problems))


class FeatureGates(dict[str, bool]):
    """The effective gates, immutable by convention. Reading an unknown name raises `KeyError`."""

    __slots__ = ("unknown",)

    def __init__(self, effective: Mapping[str, bool], unknown: tuple[str, ...] = ()) -> None:
        super().__init__(effective)
        self.unknown = unknown

    @classmethod
    def from_overrides(
        cls,
        overrides: Mapping[str, bool],
        *,
        fixes: Collection[str] = (),
        other_gates_allowed: bool = True,
        release: Release = DEFAULT,
    ) -> FeatureGates:
        """Return the defaults of a release with `overrides`. Raises `GateError` for a locked gate or an unmet
        dependency.

        `fixes` names the later gates that exist (`later_gates`); the others are off, and unknown by name. So are the
        gates of later releases; a gate that is gone has the default it had last. Gates that do not matter here are
        listed in `unknown`. With `other_gates_allowed` False, gates of Kubernetes that do not matter here are checked
        for their locks, and those that no component has are refused.
        """
        minor = release.minor
        every = gates_of(minor)
        known = {name: gate for name, gate in every.items() if gate and (not gate.later or name in fixes)}
        effective = {name: known[name].default if name in known else _has_become(name, minor) for name in every}
        if not other_gates_allowed:
            check_gates(overrides, minor, besides=known)
        unknown = []
        for name, value in sorted(overrides.items()):
            gate = known.get(name)
            if gate is None:
                if name in ("AllAlpha", "AllBeta"):
                    # A group is not a gate of its own, so it is not unknown either.
                    continue
                unknown.append(name)
            elif gate.locked and value != gate.default:
                raise GateError(_locked_message(name, value=value))
            else:
                effective[name] = value
        for group, stage in (("AllAlpha", _ALPHA), ("AllBeta", _BETA)):
            if group in overrides:
                effective |= {
                    name: overrides[group]
                    for name, gate in known.items()
                    # A gate named by itself wins over its group, as in upstream.
                    if gate.stage == stage and name not in overrides
                }
        # Dependencies are checked on all gates of Kubernetes, also on those that no manager reads.
        _check_dependencies(all_gates(overrides, minor) | {name: effective[name] for name in known}, minor)
        return cls(effective, tuple(unknown))


def _has_become(name: str, minor: int) -> bool:
    """Whether the feature of a gate that 1.`minor` does not have is on: it has become part of Kubernetes."""
    last = last_state(name, minor)
    return last is not None and last.default


def with_pod_level(gates: Mapping[str, bool]) -> FeatureGates:
    """Return the gates with pod-level resources and their managers turned on."""
    return FeatureGates({**gates, "PodLevelResources": True, "PodLevelResourceManagers": True})


def _locked_message(name: str, *, value: bool) -> str:
    """Return upstream's message for a locked gate."""
    shown = ("false", "true")
    return f"cannot set feature gate {name} to {shown[value]}, feature is locked to {shown[not value]}"


def check_gates(overrides: Mapping[str, bool], minor: int = DEFAULT.minor, *, besides: Collection[str] = ()) -> None:
    """Raise `GateError` for every gate that Kubernetes 1.`minor` does not have or locks; gates in `besides` are known
    too. Upstream reports only the first it meets.

    The table has every gate of the default release. Of the others it may lack some that client libraries register, so a
    name that no release in it has passes there.
    """
    states = gate_states(minor)
    problems, hints = [], []
    for name, value in sorted(overrides.items()):
        if name in states and states[name].locked and value != states[name].default:
            problems.append(_locked_message(name, value=value))
            hints.append("remove it")
        elif name not in states and name not in besides and (minor == DEFAULT.minor or is_gate(name)):
            problems.append(f"unrecognized feature gate: {name}")
            hints.append(unknown_gate_hint(name, minor))
    if problems:
        raise GateError(*problems, hint="; ".join(dict.fromkeys(hints)))


def all_gates(overrides: Mapping[str, bool], minor: int = DEFAULT.minor) -> dict[str, bool]:
    """Return every gate of 1.`minor` by name: as `overrides` sets it or its stage, else its default."""
    effective = {}
    groups = {_ALPHA: overrides.get("AllAlpha"), _BETA: overrides.get("AllBeta")}
    for name, state in gate_states(minor).items():
        group = groups.get(state.stage)
        effective[name] = overrides.get(name, state.default if group is None else group)
    return effective


def _check_dependencies(effective: Mapping[str, bool], minor: int) -> None:
    unmet = {
        name: missing
        for name, needed in gate_dependencies(minor).items()
        if effective[name] and (missing := [other for other in needed if not effective[other]])
    }
    if unmet:
        raise GateError(
            *(
                f"{name} is enabled, but depends on features that are disabled: [{' '.join(missing)}]"
                for name, missing in unmet.items()
            ),
            hint=f"set to false too: {', '.join(unmet)}",
        )


def dependents_to_disable(overrides: Mapping[str, bool], minor: int = DEFAULT.minor) -> tuple[str, ...]:
    """Return, sorted, the gates that are on by default, not named in `overrides`, and need a gate that `overrides`
    turns off.

    A component does not start until these are off too.
    """
    states = gate_states(minor)
    return tuple(
        sorted(
            name
            for name, needed in gate_dependencies(minor).items()
            if states[name].default and name not in overrides and any(overrides.get(other) is False for other in needed)
        )
    )
