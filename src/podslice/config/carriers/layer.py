"""Layers of a configuration: what a file, a drop-in or a command line says, and where each field stands in it.

A carrier is read into layers, and the layers are merged as the kubelet or the platform merges them. The result goes the
way of every configuration: decode, default, validate, start.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal, NamedTuple

from podslice.config.kubelet import IgnoredField
from podslice.config.schema import ROOT, fields_of

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"
_HEAD = ("apiVersion", "kind", "metadata")

Merge = Literal["drop-in", "flags", "fields"]
"""How a layer overrides those below it. `drop-in`: structs and maps are merged key by key, lists are replaced
(KEP-3983). `flags`: maps are replaced too, but for feature gates. `fields`: every field is replaced whole."""


class FieldPlace(NamedTuple):
    """Where a field stands in a file: the zero-based document and the path there.

    `text`: the value at that path is itself YAML or JSON, with the field in its document `inner` at the path `within`.
    `line`, counted from 1, in files that are not YAML. `source` is the file, empty where there is only one.
    """

    document: int = 0
    path: str = ""
    text: str = ""
    inner: int = 0
    within: str = ""
    line: int = 0
    source: str = ""

    def below(self, name: str) -> FieldPlace:
        """Return the place of a field below this one."""
        if self.text:
            return self._replace(within=join_path(self.within, name))
        return self._replace(path=join_path(self.path, name))


def join_path(above: str, path: str) -> str:
    """Return a path below another one."""
    return f"{above}{path}" if not above or not path or path.startswith("[") else f"{above}.{path}"


class Layer(NamedTuple):
    """Fields of a KubeletConfiguration.

    `origin` says where they were taken from. `base` is the place of all fields, `places` that of fields that stand
    elsewhere or under another name. `assumed`: what the source leaves open. `in_order`: they were read from JSON, whose
    fields a kubelet decodes in the order written.
    """

    fields: Mapping[str, Any]
    origin: str
    base: FieldPlace = FieldPlace()
    places: Mapping[str, FieldPlace] = {}
    merge: Merge = "drop-in"
    assumed: tuple[str, ...] = ()
    ignored: tuple[IgnoredField, ...] = ()
    in_order: bool = False


class Places(NamedTuple):
    """Places of the fields of a merged configuration: of single ones, and of all others."""

    base: FieldPlace = FieldPlace()
    fields: Mapping[str, FieldPlace] = {}

    def find(self, path: str) -> tuple[FieldPlace, str]:
        """Return the place that holds a field such as `kubeReserved.cpu`, and the field's path from there."""
        for name in _prefixes(path):
            if name in self.fields:
                return self.fields[name], path[len(name) :].lstrip(".")
        return self.base, path

    def describe(self, path: str) -> str:
        """Return the path of a field in the file, for messages; the field itself where it stands in lines of text."""
        place, rest = self.find(path)
        if place.source:
            return f"{place.source}: {path}"
        if place.line:
            return f"line {place.line}: {path}"
        if place == FieldPlace(place.document):
            return path
        if place.text:
            return f"{place.path}: {path}"
        where = join_path(place.path, rest)
        return where if where.endswith(path) else f"{where}: {path}"


class Configuration(NamedTuple):
    """A kubelet's configuration that a file holds: layers, the lowest first, and the name under which messages know
    it."""

    name: str
    layers: tuple[Layer, ...]
    of_control_plane: bool = False


class ConfigDocument(NamedTuple):
    """A configuration before decoding.

    `data` is plain, with kind and version. `is_json`: a kubelet decodes the fields in the order written. `ignored`:
    what a kubelet ignores, as all but the last of repeated keys. `origins` say what was taken from where, `assumed`
    what the source leaves open; both are empty for the file that a kubelet loads.
    """

    data: dict[str, Any]
    is_json: bool = False
    ignored: tuple[IgnoredField, ...] = ()
    origins: tuple[str, ...] = ()
    assumed: tuple[str, ...] = ()
    places: Places = Places()


def merge_layers(layers: Iterable[Layer]) -> ConfigDocument:
    """Merge layers, the lowest first."""
    lowest, *others = layers
    # A document that says its kind is checked for its version too, as a kubelet does it.
    head = {} if "kind" in lowest.fields else {"apiVersion": API_VERSION, "kind": KIND}
    data: dict[str, Any] = {**head, **lowest.fields}
    places = dict(lowest.places)
    for layer in others:
        fields = {name: value for name, value in layer.fields.items() if name not in _HEAD}
        data = {**data, **_merge_struct(data, fields, ROOT, layer.merge)}
        places |= {name: layer.base.below(name) for name in fields} | dict(layer.places)
    every = [lowest, *others]
    return ConfigDocument(
        data,
        is_json=lowest.in_order and not others,
        ignored=tuple(one for layer in every for one in layer.ignored),
        origins=tuple(dict.fromkeys(layer.origin for layer in every if layer.origin)),
        assumed=tuple(dict.fromkeys(one for layer in every for one in layer.assumed)),
        places=Places(lowest.base, places),
    )


def _merge_struct(below: Mapping[str, Any], above: Mapping[str, Any], struct: str, how: Merge) -> dict[str, Any]:
    """Return the fields of a struct after a layer."""
    known = fields_of(struct)
    merged = dict(below)
    for name, value in above.items():
        kind, old = known.get(name), below.get(name)
        if how == "fields" or not isinstance(value, dict) or not isinstance(old, dict) or kind is None:
            merged[name] = value
        elif kind.kind == "struct":
            merged[name] = _merge_struct(old, value, kind.name, how)
        elif how == "drop-in" or name == "featureGates":
            merged[name] = {**old, **value}
        else:
            merged[name] = value
    return merged


def _prefixes(path: str) -> Iterable[str]:
    """Yield a path and the paths above it, the longest first."""
    yield path
    for at in range(len(path) - 1, 0, -1):
        if path[at] in ".[":
            yield path[:at]
