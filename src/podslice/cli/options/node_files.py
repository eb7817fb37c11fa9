"""Read the files that describe a node: configuration with `--set`, devices, policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from podslice.cli.options.config import ConfigSource, read_source
from podslice.config.kubelet import fields_in, ignored_fields
from podslice.config.policy import NO_POLICY, PodslicePolicy, check_policy
from podslice.config.without_effect import settings_without_effect
from podslice.values.errors import InputError, raise_all
from podslice.values.gate_table import gate_warnings
from podslice.values.gates import gates_of
from podslice.values.quirks import PROFILE_RELEASES, PROFILES
from podslice.values.releases.release import Release

if TYPE_CHECKING:
    from podslice.config.kubelet_file import LoadedConfig

_NOTHING: Mapping[str, Any] = {}


def load_config(
    source: ConfigSource | None,
    overrides: tuple[str, ...],
    *,
    strict: bool = False,
    defaults: Mapping[str, Any] = _NOTHING,
    release: Release | None = None,
) -> LoadedConfig:
    """Load a configuration and apply `--set FIELD=VALUE`; `defaults` are its fields where no file is given. Fields that
    `release` does not have are warned of, and stay. Raises `InputError`, for unknown fields only when `strict`."""
    from podslice.config.carriers.layer import API_VERSION, KIND, ConfigDocument, merge_layers
    from podslice.config.kubelet_file import load_document

    document = ConfigDocument({"apiVersion": API_VERSION, "kind": KIND, **defaults})
    try:
        if source is not None:
            document = merge_layers(read_source(source))
        for override in overrides:
            field, equals, value = override.partition("=")
            if not equals or not field:
                raise InputError(
                    f"{override!r} is not FIELD=VALUE", path="--set", remedy="--set cpuManagerPolicy=static"
                )
            _override(document.data, field, value)
        loaded = load_document(document)
        if release is not None:
            late = ignored_fields(loaded.config, release)
            loaded = loaded._replace(unknown_fields=(*loaded.unknown_fields, *late))
    except InputError as error:
        raise error.at(source="" if source is None else str(source)) from None
    if strict:
        raise_all(InputError(warning, source=str(source or "--set")) for warning in loaded.warnings)
    return loaded


def load_config_and_gates(
    source: ConfigSource | None,
    overrides: tuple[str, ...],
    *,
    strict: bool = False,
    defaults: Mapping[str, Any] = _NOTHING,
    profile: str = "podslice",
) -> tuple[LoadedConfig, tuple[str, ...]]:
    """Load as `load_config`, and add to the warnings what the kubelet of the profile would log about its gates, and the
    settings that have no effect beside the others."""
    release = PROFILE_RELEASES[profile]
    loaded = load_config(source, overrides, strict=strict, defaults=defaults, release=release)
    config = fields_in(loaded.config, release)
    gates = {name: gate.default for name, gate in gates_of(release.minor).items() if gate is not None}
    idle = (one.sentence for one in settings_without_effect(config, gates))
    return loaded, (*loaded.warnings, *gate_warnings(config.feature_gates, release.minor), *idle)


def _override(data: dict[str, Any], field: str, value: str) -> None:
    """Set a field, or with `FIELD.KEY` the entry of a map (`featureGates.MemoryQoS`); a key may contain dots."""
    from podslice.config.schema import is_text
    from podslice.reading.yaml import load_documents

    documents = load_documents(value, f"--set {field}")
    # Text fields take the value as it is: reservedSystemCPUs=0 is the list "0", not a number.
    given = value if is_text(field) else documents[0] if documents else ""
    name, dot, key = field.partition(".")
    if not dot:
        data[name] = given
        return
    known = data.get(name)
    if known is not None and not isinstance(known, dict):
        raise InputError(f"{name} is not a map", path=f"--set {field}", remedy=f"--set {name}=VALUE")
    data[name] = {**(known or {}), key: given}


def load_policy(path: str | None, profile: str) -> PodslicePolicy:
    """Load the policy of a file and check it against a profile; empty without a file. Raises `InputError`."""
    if path is None:
        return NO_POLICY
    from podslice.config.policy_file import load_policy as load

    policy = load(path)
    try:
        check_policy(policy, PROFILES[profile])
    except InputError as error:
        raise error.at(source=path) from None
    return policy
