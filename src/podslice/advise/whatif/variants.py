"""The configurations that `whatif --recommend` tries: the present one, and every policy, scope and set of options that
the release has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import combinations

import msgspec

from podslice.advise.reserve.advise import advise, advised_config
from podslice.advise.whatif.compare import Scenario
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy_options import EXCLUSIVE_PAIRS, POLICIES, SCOPES, maturity_gate
from podslice.node.node import Node
from podslice.values.errors import InputError, StartError
from podslice.values.quirks import PROFILE_RELEASES
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT

replace = msgspec.structs.replace
COMPARED_OPTIONS = ("full-pcpus-only", "distribute-cpus-across-numa", "prefer-align-cpus-by-uncorecache")
"""The CPU Manager options that decide which CPUs a container gets and take none from other pods."""


def option_sets(release: Release = DEFAULT) -> tuple[tuple[str, ...], ...]:
    """Return the sets of `COMPARED_OPTIONS` that a kubelet of the release takes, fewer options first."""
    names = [name for name in COMPARED_OPTIONS if name in release.cpu_options]
    return tuple(
        options
        for size in range(len(names) + 1)
        for options in combinations(names, size)
        if not any(set(pair) <= set(options) for pair in EXCLUSIVE_PAIRS)
    )


def variants(
    scenario: Scenario, *, release: Release = DEFAULT, base: KubeletConfig | None = None, notes: tuple[str, ...] = ()
) -> Iterator[Scenario]:
    """Yield the scenario as it is, then its machine under every other Topology Manager policy and scope, with every set
    of options that the `release` has, fewer options first.

    `base`: the configuration to vary where it is another one than the present, with the `notes` that say why. An alpha
    option comes with the feature gate that it needs.
    """
    present = scenario.config
    enabled = [name for name, value in present.cpu_manager_policy_options.items() if value.lower() == "true"]
    as_is = _variant_name(present, enabled)
    if present.cpu_manager_policy != "static":
        as_is += f" (CPU manager {present.cpu_manager_policy})"
    scenario = replace(scenario, present=present)
    yield replace(scenario, name=f"as it is: {as_is}")
    static = replace(base or present, cpu_manager_policy="static")
    for options in option_sets(release):
        gates, stages = _stages(options, static, release)
        for policy in POLICIES:
            for scope in SCOPES if policy != "none" else (static.topology_manager_scope,):
                config = replace(
                    static,
                    topology_manager_policy=policy,
                    topology_manager_scope=scope,
                    cpu_manager_policy_options=dict.fromkeys(options, "true"),
                    feature_gates={**static.feature_gates, **gates},
                )
                name = _variant_name(config, options)
                # The present configuration comes first, under a name of its own.
                if name != as_is:
                    yield replace(scenario, name=name, config=config, notes=(*notes, *stages))


def _variant_name(config: KubeletConfig, options: Iterable[str]) -> str:
    policy = config.topology_manager_policy
    return " +".join((policy if policy == "none" else f"{policy}/{config.topology_manager_scope}", *sorted(options)))


def _stages(options: Iterable[str], config: KubeletConfig, release: Release) -> tuple[dict[str, bool], tuple[str, ...]]:
    """Return the feature gates that the options need and do not have, and a sentence for each option that is not
    stable."""
    gates, notes = dict[str, bool](), list[str]()
    for name in options:
        stage = release.cpu_options[name]
        if stage == "stable":
            continue
        gate = maturity_gate(stage)
        if stage == "Alpha" or config.feature_gates.get(gate) is False:
            gates[gate] = True
            needs = f"set featureGates {gate}: true"
        else:
            needs = f"its feature gate {gate} is on by default"
        notes.append(f"option {name} is {stage.lower()} in Kubernetes {release}: {needs}")
    return gates, tuple(notes)


def recommended_variants(scenario: Scenario, *, profile: str = "podslice") -> list[Scenario]:
    """Return the variants of a scenario on the release of the profile. Where the static CPU Manager does not start for
    lack of a reservation, the variants have the one that `reserve` advises."""
    base, notes = _with_reservation(scenario, profile)
    return list(variants(scenario, release=PROFILE_RELEASES[profile], base=base, notes=notes))


def _with_reservation(scenario: Scenario, profile: str) -> tuple[KubeletConfig | None, tuple[str, ...]]:
    """Return the configuration with an advised reservation where static policies need one, and a sentence about it."""
    static = replace(scenario.config, cpu_manager_policy="static", cpu_manager_policy_options={})
    try:
        Node(scenario.machine, static, profile=profile, devices=scenario.devices)
    except StartError as problem:
        if problem.stage != "cpuManager":
            return None, ()
        try:
            advice = advise(scenario.machine, static, devices=scenario.devices, profile=profile)
        except (InputError, StartError):
            # Then no variant starts, and their rows say why.
            return None, ()
        return advised_config(static, advice), (
            f"nothing is reserved for the system now, which the static policy needs: CPUs {advice.cpus} and "
            f"{advice.memory} of memory are (podslice reserve shows why)",
        )
    return None, ()
