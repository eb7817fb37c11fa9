"""Reading a PodslicePolicy file (podslice.io/v1alpha1)."""

from __future__ import annotations

import builtins
import re
from typing import Any, Literal, get_args, get_origin

import msgspec

from podslice.config.kubelet_file import load_config_data
from podslice.config.objects import check_object
from podslice.config.policy import KIND, PodslicePolicy
from podslice.machine.drift import parse_drift_tolerance
from podslice.values.decoding import MAP_KEY, decoding_problem, with_value
from podslice.values.errors import InputError, did_you_mean

_PLACE = re.compile(r"\[[^]]*\]")


def load_policy(path: str) -> PodslicePolicy:
    """Read a PodslicePolicy from a file. Raises `InputError` in one line with the place."""
    try:
        return policy_from_dict(load_config_data(path, KIND))
    except InputError as error:
        raise error.at(source=path) from None


def policy_from_dict(data: dict[str, Any]) -> PodslicePolicy:
    """Return a PodslicePolicy from plain data. Raises `InputError` with the field path, also for unknown fields."""
    check_object(data, KIND, below="spec", remedy="everything but the name is below spec")
    spec = data.get("spec") or {}
    try:
        policy = msgspec.convert(spec, PodslicePolicy)
    except msgspec.ValidationError as error:
        raise _translate_error(spec, str(error)) from None
    if policy.hotplug is not None:
        try:
            parse_drift_tolerance(policy.hotplug.drift_tolerance)
        except InputError as error:
            raise error.at(path="spec.hotplug.driftTolerance") from None
    return policy


def _translate_error(spec: object, text: str) -> InputError:
    found = decoding_problem(text)
    allowed = allowed_values(PodslicePolicy, found.path)
    found = found._replace(path=_name_map_key(spec, found.path, text))
    path = f"spec.{found.path}".rstrip(".")
    if not found.unknown:
        return InputError(with_value(found, spec), path=path, remedy=found.remedy or allowed)
    from podslice.values.fields import known_fields  # its types take a while to import

    remedy = did_you_mean(found.unknown, known_fields(PodslicePolicy, found.path))
    return InputError("unknown field", path=f"{path}.{found.unknown}", remedy=remedy)


def _name_map_key(spec: object, path: str, text: str) -> str:
    """Return `path` with the key in place of `[...]`, which is all that the decoder says of a map: the key whose value
    alone has the same problem."""
    before, marker, after = path.partition(MAP_KEY)
    steps = before.split(".")
    table: Any = spec
    for step in steps:
        table = table.get(step) if isinstance(table, dict) else None
    if not marker or not isinstance(table, dict):
        return path
    for key, value in table.items():
        alone: Any = {key: value}
        for step in reversed(steps):
            alone = {step: alone}
        try:
            msgspec.convert(alone, PodslicePolicy)
        except msgspec.ValidationError as error:
            if str(error) == text:
                return f"{before}[{key}]{after}"
    return path


def allowed_values(document: Any, path: str) -> str:
    """Return the values of a document's field that has only some, or the form of its text; empty for other fields."""
    *parents, name = _field_steps(path) or [""]
    fields = document
    for step in parents:
        fields = next(_section_type(one.type) for one in msgspec.structs.fields(fields) if one.encode_name == step)
        if not isinstance(fields, builtins.type(msgspec.Struct)):
            return ""
    found = [one.type for one in msgspec.structs.fields(fields) if one.encode_name == name]
    for kind in (*found, *(part for one in found for part in get_args(one))):
        if get_origin(kind) is Literal:
            return f"one of {', '.join(get_args(kind))}"
        for meta in getattr(kind, "__metadata__", ()):
            if meta.description is not None:
                return str(meta.description)
    return ""


def _field_steps(path: str) -> list[str]:
    """Return the field names of a path, without indices of lists and keys of maps."""
    return [step for step in _PLACE.sub("", path).split(".") if step]


def _section_type(type: Any) -> Any:
    """Return the struct type of a section, of an optional one, or of a list's elements."""
    return next((one for one in get_args(type) if isinstance(one, builtins.type(msgspec.Struct))), type)
