"""Layers from objects that have a kubelet's fields under their own names, or as its flags spell them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podslice.config.carriers.flags import parse_value
from podslice.config.carriers.layer import Configuration, FieldPlace, Layer, Merge
from podslice.config.carriers.objects import Held, key_step
from podslice.config.kubelet import IgnoredField
from podslice.config.schema import ROOT, fields_of
from podslice.values.errors import InputError


def own_fields(
    held: Held, path: str, *, origin: str = "", assumed: tuple[str, ...] = (), merge: Merge = "drop-in"
) -> Layer | None:
    """Return the layer of an object below `path` that has the fields of a KubeletConfiguration; None without one."""
    fields = held.mapping(path)
    if fields is None:
        return None
    return Layer(_plain(fields), origin or f"{held.name}, {path}", held.at(path), {}, merge, assumed)


def assume_reservation(configuration: Configuration, platform: str, field: str, cpu: str) -> Configuration:
    """Return a configuration with the CPUs that a platform reserves itself, where the static policy needs some and the
    file does not say how many. Without them a kubelet would not start."""
    every = [layer.fields for layer in configuration.layers]
    wanted = any(fields.get("cpuManagerPolicy") == "static" for fields in every)
    maps = [fields.get(name) for fields in every for name in ("kubeReserved", "systemReserved")]
    # A value of another kind is reported when it is decoded.
    named = any(bool(value) and (not isinstance(value, dict) or "cpu" in value) for value in maps)
    if not wanted or named or any(fields.get("reservedSystemCPUs") for fields in every):
        return configuration
    first, *others = configuration.layers
    fields = {**first.fields, field: {**(first.fields.get(field) or {}), "cpu": cpu}}
    line = f"{field} cpu {cpu}: {platform} reserves CPUs itself, and the file does not say how many"
    changed = first._replace(fields=fields, assumed=(line, *first.assumed))
    return configuration._replace(layers=(changed, *others))


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return fields without type metadata, which a carrier may leave out or repeat."""
    return {name: value for name, value in fields.items() if name not in ("kind", "apiVersion")}


def renamed_fields(
    fields: Mapping[str, Any],
    place: FieldPlace,
    names: Mapping[str, str],
    *,
    origin: str,
    assumed: tuple[str, ...] = (),
    silent: frozenset[str] = frozenset(),
    merge: Merge = "fields",
) -> Layer:
    """Return the layer of fields under other names: `names` gives the field of the configuration for each, dotted for
    fields of structs. Names that are in neither `names` nor `silent` are reported as ignored. Raises `InputError`."""
    found: dict[str, Any] = {}
    places: dict[str, FieldPlace] = {}
    ignored: list[IgnoredField] = []
    for name, value in fields.items():
        if value is None or name in silent:
            continue
        field = names.get(name)
        if field is None:
            ignored.append(IgnoredField(str(name), problem=f"of {origin} is not read"))
            continue
        at = place.below(key_step(name))
        *above, last = field.split(".")
        into = found
        for step in above:
            into = into.setdefault(step, {})
        try:
            into[last] = _value(field, value)
        except InputError as error:
            raise error.at(path=at.path) from None
        places[field] = at
    return Layer(found, origin, place, places, merge, assumed, tuple(ignored))


def _value(field: str, value: Any) -> Any:
    """Return a value as the field has it; texts in the form of flags become lists and maps."""
    first, *others = field.split(".")
    kind = fields_of(ROOT)[first]
    for step in others:
        kind = fields_of(kind.name)[step]
    if isinstance(value, str) and kind.kind in ("list", "map", "bool", "int32", "int64"):
        # Thresholds have their own separator on the command line.
        return parse_value("eviction-hard" if field in ("evictionHard", "evictionSoft") else "", value, kind)
    if kind.kind == "map" and isinstance(value, dict) and kind.element is not None and kind.element.kind == "bool":
        return {key: parse_value("", one, kind.element) if isinstance(one, str) else one for key, one in value.items()}
    if kind.kind == "map" and isinstance(value, dict):
        # YAML reads an amount without quotes as a number; what is no amount is left for decoding to refuse.
        return {key: str(one) if _is_number(one) else one for key, one in value.items()}
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
