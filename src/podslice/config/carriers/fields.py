"""Layers from objects that have a kubelet's fields under their own names, or as its flags spell them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from podslice.config.carriers.flags import parse_value
from podslice.config.carriers.layer import Configuration, FieldPlace, Layer, Merge
from podslice.config.carriers.objects import Held, key_step
from podslice.config.kubelet import DEFAULT_EVICTION_HARD, IgnoredField
from podslice.config.schema import ROOT, fields_of
from podslice.values.errors import InputError
from podslice.values.quantity import ZERO, Quantity, QuantityError

_THRESHOLD = "memory.available"


def own_fields(
    held: Held, path: str, *, origin: str = "", assumed: tuple[str, ...] = (), merge: Merge = "drop-in"
) -> Layer | None:
    """Return the layer of an object below `path` that has the fields of a KubeletConfiguration; None without one."""
    fields = held.mapping(path)
    if fields is None:
        return None
    return Layer(_plain(fields), origin or f"{held.name}, {path}", held.at(path), {}, merge, assumed)


def assume_reservation(configuration: Configuration, platform: str, field: str, cpu: str) -> Configuration:
    """Return a configuration with what a platform reserves itself, where a static policy needs some and the file does
    not say how much. Without it a kubelet would not start."""
    every = [layer.fields for layer in configuration.layers]
    added: dict[str, Any] = {}
    lines = []
    if _lacks_cpus(every):
        added[field] = {**(every[0].get(field) or {}), "cpu": cpu}
        lines.append(f"{field} cpu {cpu}: {platform} reserves CPUs itself, and the file does not say how many")
    if memory := _lacking_memory(every):
        added["reservedMemory"] = [{"numaNode": 0, "limits": {"memory": memory}}]
        lines.append(
            f"reservedMemory {memory} of NUMA node 0: {platform} sets it itself, and the file does not say how much"
        )
    if not added:
        return configuration
    first, *others = configuration.layers
    changed = first._replace(fields={**first.fields, **added}, assumed=(*lines, *first.assumed))
    return configuration._replace(layers=(changed, *others))


def _lacks_cpus(every: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the static CPU Manager policy is set and no layer reserves CPUs."""
    wanted = any(fields.get("cpuManagerPolicy") == "static" for fields in every)
    maps = [fields.get(name) for fields in every for name in ("kubeReserved", "systemReserved")]
    # A value of another kind is reported when it is decoded.
    named = any(bool(value) and (not isinstance(value, dict) or "cpu" in value) for value in maps)
    return wanted and not named and not any(fields.get("reservedSystemCPUs") for fields in every)


def _lacking_memory(every: Sequence[Mapping[str, Any]]) -> str:
    """Return what reservedMemory must add up to where the Static Memory Manager policy is set and no layer has it;
    empty where it is not, or where an amount depends on the machine or is reported when it is decoded."""
    merged = {name: value for fields in every for name, value in fields.items() if value is not None}
    if merged.get("memoryManagerPolicy") != "Static" or "reservedMemory" in merged:
        return ""
    eviction = {} if "evictionHard" in merged else DEFAULT_EVICTION_HARD
    total = ZERO
    for name, key, amounts in (
        ("kubeReserved", "memory", {}),
        ("systemReserved", "memory", {}),
        ("evictionHard", _THRESHOLD, eviction),
    ):
        for fields in every:
            given = fields.get(name)
            amounts = {**amounts, **given} if isinstance(given, dict) else amounts
        try:
            total = total.add(Quantity.parse(amounts.get(key, "0")))
        except (QuantityError, TypeError):
            return ""
    return "" if total.is_zero() else total.canonical()


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
        # YAML reads an amount without quotes as a number; what is not an amount is left for decoding to refuse.
        return {key: str(one) if _is_number(one) else one for key, one in value.items()}
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
