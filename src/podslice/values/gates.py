"""Feature gates of Kubernetes 1.36 that change what the resource managers do (cpu-topology 3.2;
pod-level-resources 0): defaults, maturity, locks and dependencies, and the errors of a wrong setting."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from podslice.values.gate_table import NEWEST, gate_dependencies, gate_states, unknown_gate_hint


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
    "PodLevelResourcesFixUpdateDefaulting": Gate(True, _BETA, later="pod_limits_not_defaulted"),
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


def join_errors(problems: Sequence[str]) -> str:
    """Return a single error as it is, several as Kubernetes prints an aggregate: `[first, second]`."""
    return problems[0] if len(problems) == 1 else f"[{', '.join(problems)}]"


def later_gates(quirks: object) -> tuple[str, ...]:
    """Return the gates of KEP-2837's fixes that exist in a profile with these quirks; v1.36.2 has none of them."""
    return tuple(name for name, gate in GATES.items() if gate.later and not getattr(quirks, gate.later))


class GateError(ValueError):
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
        cls, overrides: Mapping[str, bool], *, fixes: Collection[str] = (), other_gates_allowed: bool = True
    ) -> FeatureGates:
        """Return the defaults with `overrides`. Raises `GateError` for a locked gate or an unmet dependency.

        `fixes` names the later gates that exist (`later_gates`); the others are off, and unknown by name. Gates that do
        not matter here are listed in `unknown`. With `other_gates_allowed` False, gates of Kubernetes that do not
        matter here are checked for their locks, and those that no component has are refused.
        """
        known = {name: gate for name, gate in GATES.items() if not gate.later or name in fixes}
        effective = {name: gate.default and name in known for name, gate in GATES.items()}
        if not other_gates_allowed:
            check_gates(overrides, besides=known)
        unknown = []
        for name, value in sorted(overrides.items()):
            gate = known.get(name)
            if gate is None:
                if name in ("AllAlpha", "AllBeta"):
                    # A group is no gate of its own, so it is not unknown either.
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
        _check_dependencies(all_gates(overrides) | {name: effective[name] for name in known})
        return cls(effective, tuple(unknown))


def with_pod_level(gates: Mapping[str, bool]) -> FeatureGates:
    """Return the gates with pod-level resources and their managers turned on."""
    return FeatureGates({**gates, "PodLevelResources": True, "PodLevelResourceManagers": True})


def _locked_message(name: str, *, value: bool) -> str:
    """Return upstream's message for a locked gate."""
    shown = ("false", "true")
    return f"cannot set feature gate {name} to {shown[value]}, feature is locked to {shown[not value]}"


def check_gates(overrides: Mapping[str, bool], minor: int = NEWEST, *, besides: Collection[str] = ()) -> None:
    """Raise `GateError` for every gate that Kubernetes 1.`minor` does not have or locks; gates in `besides` are known
    too. Upstream reports only the first it meets."""
    states = gate_states(minor)
    problems, hints = [], []
    for name, value in sorted(overrides.items()):
        if name in states and states[name].locked and value != states[name].default:
            problems.append(_locked_message(name, value=value))
            hints.append("remove it")
        elif name not in states and name not in besides:
            problems.append(f"unrecognized feature gate: {name}")
            hints.append(unknown_gate_hint(name, minor))
    if problems:
        raise GateError(*problems, hint="; ".join(dict.fromkeys(hints)))


def all_gates(overrides: Mapping[str, bool]) -> dict[str, bool]:
    """Return every gate of 1.36 by name: as `overrides` sets it or its stage, else its default."""
    effective = {}
    groups = {_ALPHA: overrides.get("AllAlpha"), _BETA: overrides.get("AllBeta")}
    for name, state in gate_states().items():
        group = groups.get(state.stage)
        effective[name] = overrides.get(name, state.default if group is None else group)
    return effective


def _check_dependencies(effective: Mapping[str, bool]) -> None:
    unmet = {
        name: missing
        for name, needed in gate_dependencies().items()
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


def dependents_to_disable(overrides: Mapping[str, bool]) -> tuple[str, ...]:
    """Return, sorted, the gates that are on by default, not named in `overrides`, and need a gate that `overrides`
    turns off.

    A component does not start until these are off too.
    """
    states = gate_states()
    return tuple(
        sorted(
            name
            for name, needed in gate_dependencies().items()
            if states[name].default and name not in overrides and any(overrides.get(other) is False for other in needed)
        )
    )
