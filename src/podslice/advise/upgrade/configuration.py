"""Compare what two releases make of a kubelet configuration: gates and policy options that one lacks, locks or has
promoted, and gates whose default is another one."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import NODEFAULT
from msgspec.structs import fields, replace

from podslice.config.kubelet import KubeletConfig, fields_in, unknown_fields
from podslice.config.validation import validate
from podslice.values.gate_table import GateState, gate_states, last_state, unknown_gate_hint
from podslice.values.gates import gates_of
from podslice.values.releases.release import Maturity, Release

_GROUPS = ("AllAlpha", "AllBeta")


class Setting(NamedTuple):
    """What becomes of a field of the configuration; `stops`: the kubelet does not start with it."""

    subject: str
    text: str
    stops: bool = False


class Adjusted(NamedTuple):
    """A configuration without the settings that a release does not take, and these settings."""

    config: KubeletConfig
    problems: tuple[Setting, ...]


def adjust(config: KubeletConfig, release: Release) -> Adjusted:
    """Leave out gates and options that a release does not have, gates that it has locked to another value, and fields
    whose values it refuses."""
    states, problems, gates = gate_states(release.minor), list[Setting](), dict[str, bool]()
    for name, value in config.feature_gates.items():
        state = states.get(name)
        if state is None and name not in _GROUPS:
            hint = unknown_gate_hint(name, release.minor)
            text = f"{release} does not know this gate ({hint}): the kubelet does not start with it"
        elif state is not None and state.locked and state.default != value:
            text = f"{release} has locked it {_on_off(state)}: the kubelet does not start with {str(value).lower()}"
        else:
            gates[name] = value
            continue
        problems.append(Setting(f"featureGates.{name}", text, stops=True))
    changed = {"feature_gates": gates}
    for field, path, known in (
        ("cpu_manager_policy_options", "cpuManagerPolicyOptions", release.cpu_options),
        ("topology_manager_policy_options", "topologyManagerPolicyOptions", release.topology_options),
    ):
        given: Mapping[str, str] = getattr(config, field)
        problems += [
            Setting(f"{path}.{name}", f"{release} does not have this option: the kubelet does not start with it", True)
            for name in given
            if name not in known
        ]
        changed[field] = {name: value for name, value in given.items() if name in known}  # type: ignore[misc]
    taken = replace(config, **changed)
    refused = {_name(one.field) for one in validate(fields_in(taken, release), release)}
    own = {field.encode_name: field for field in fields(KubeletConfig) if field.default is not NODEFAULT}
    problems += [
        Setting(name, "the kubelet does not start with its value", stops=True)
        for name in refused
        if name in own or name in config.other_fields
    ]
    others = {name: value for name, value in config.other_fields.items() if name not in refused}
    defaults = {own[name].name: own[name].default for name in refused if name in own}
    return Adjusted(replace(taken, other_fields=others, **defaults), tuple(problems))


def _name(path: str) -> str:
    """Return the field at the top of a path such as `crashLoopBackOff.maxContainerRestartPeriod`."""
    return re.split(r"[.[]", path, maxsplit=1)[0]


def configuration_changes(config: KubeletConfig, old: Release, new: Release) -> Iterator[Setting]:
    """Yield what else becomes of the gates and options of a configuration, and gates with another default."""
    before, after = gate_states(old.minor), gate_states(new.minor)
    for name, value in sorted(config.feature_gates.items()):
        was, now = before.get(name), after.get(name)
        if now is not None and was != now:
            text = f"was {_stage(was)}, is {_stage(now)}"
            if now.default == value and (was is None or was.default != value):
                text += "; it need not be set any more"
            yield Setting(f"featureGates.{name}", text)
    for path, given, known_before, known in (
        ("cpuManagerPolicyOptions", config.cpu_manager_policy_options, old.cpu_options, new.cpu_options),
        (
            "topologyManagerPolicyOptions",
            config.topology_manager_policy_options,
            old.topology_options,
            new.topology_options,
        ),
    ):
        for name in sorted(given):
            if name in known and known_before.get(name) != known[name]:
                yield Setting(f"{path}.{name}", f"was {_maturity(known_before.get(name))}, is {_maturity(known[name])}")
    ignored_before, ignored = unknown_fields(config, old), unknown_fields(config, new)
    for name in sorted({*ignored_before, *ignored}):
        if name not in ignored:
            yield Setting(name, f"ignored by {old}, acted on by {new}")
        elif name not in ignored_before:
            yield Setting(name, f"acted on by {old}, ignored by {new}")
    for gate, was_on, is_on in default_changes(old, new):
        if gate not in config.feature_gates:
            yield Setting(f"featureGates.{gate}", f"not set; {_word(was_on)} by default before, {_word(is_on)} now")


def default_changes(old: Release, new: Release) -> Iterator[tuple[str, bool, bool]]:
    """Yield the gates that can be set in the newer release, where the default is another one: name, the older default
    and the newer one."""
    for name, was_on, is_on in gate_changes(old, new):
        if can_be_set(name, new):
            yield name, was_on, is_on


def gate_changes(old: Release, new: Release) -> Iterator[tuple[str, bool, bool]]:
    """Yield the gates that podslice acts on and that are on in one release and off in the other by default: name, the
    older default and the newer one."""
    for name in gates_of(new.minor):
        # A gate that is gone has become part of Kubernetes, with the default that it had last.
        was, now = last_state(name, old.minor), last_state(name, new.minor)
        was_on, is_on = was is not None and was.default, now is not None and now.default
        if was_on != is_on:
            yield name, was_on, is_on


def can_be_set(name: str, release: Release) -> bool:
    """Whether a release has a gate that is not locked."""
    gate = gates_of(release.minor).get(name)
    return gate is not None and not gate.locked and not gate.later


def _stage(state: GateState | None) -> str:
    if state is None:
        return "unknown"
    stage = {"": "GA"}.get(state.stage, state.stage.lower())
    return f"{stage} and {'locked ' if state.locked else ''}{_on_off(state)}"


def _on_off(state: GateState) -> str:
    return _word(state.default)


def _word(value: bool) -> str:  # noqa: FBT001
    return "on" if value else "off"


def _maturity(maturity: Maturity | None) -> str:
    return "unknown" if maturity is None else maturity.lower()
