"""Loading of a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) as a kubelet of v1.36.2 does it.

Steps: `read_document` parses the file, `load_document` decodes the fields by their Go types (`decode`), defaults zero
values (`KubeletConfig`) and keeps what was ignored. `validate` then checks the values, and `Node` parses amounts and
thresholds against a machine while it starts (memory-device 3.11).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple, NoReturn

import msgspec

from podslice.config.decode import decode
from podslice.config.kubelet import DEFAULT_EVICTION_HARD, IgnoredField, KubeletConfig
from podslice.config.schema import field_names
from podslice.reading.files import read_text
from podslice.reading.yaml import load_documents
from podslice.values.decoding import abbreviate
from podslice.values.errors import InputError, raise_all

API_VERSION = "kubelet.config.k8s.io/v1beta1"
KIND = "KubeletConfiguration"


class ConfigDocument(NamedTuple):
    """A configuration before decoding: its plain data; whether it was JSON, which a kubelet reads in the order written;
    and what a kubelet ignores: all but the last of repeated keys, and further documents."""

    data: dict[str, Any]
    is_json: bool = False
    ignored: tuple[IgnoredField, ...] = ()


class LoadedConfig(NamedTuple):
    """The configuration, and the parts of the file that have no effect."""

    config: KubeletConfig
    unknown_fields: tuple[IgnoredField, ...]

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each part of the file that has no effect."""
        return tuple(map(str, self.unknown_fields))


def load_kubelet_config(path: str) -> LoadedConfig:
    """Read a KubeletConfiguration from a file. Raises `InputError`; unknown fields are warnings."""
    try:
        return load_document(read_document(read_text(path)))
    except InputError as error:
        raise error.at(source=path) from None


def read_document(text: str) -> ConfigDocument:
    """Parse the first document of a text; the last of repeated keys wins. The answer of a running kubelet's `configz`,
    which has no kind, is accepted too. Raises `InputError`."""
    # YAML is a superset of JSON that would read more than a kubelet's JSON decoder accepts.
    check_json(text)
    duplicates: list[str] = []
    documents = load_documents(text, duplicates=duplicates)
    if not documents:
        raise InputError(f"holds nothing, not one {KIND}")
    # A kubelet reads the first document only; the others become a warning (memory-device 3.11).
    if not isinstance(documents[0], dict):
        found = "a list" if isinstance(documents[0], list) else f"only {abbreviate(documents[0])}"
        raise InputError(f"holds {found}, not an object of kind {KIND}")
    ignored = [IgnoredField(name, problem="is there more than once; the last one counts") for name in duplicates]
    if len(documents) > 1:
        ignored.append(IgnoredField("", problem=f"only the first of {len(documents)} documents is read"))
    return ConfigDocument(unwrap_configz(documents[0]), is_json(text), tuple(ignored))


def is_json(text: str) -> bool:
    """Whether a kubelet reads the text as JSON: it begins with a brace."""
    return text.lstrip()[:1] == "{"


def check_json(text: str) -> None:
    """Raise `InputError` for text that a kubelet reads as JSON and only a YAML reader accepts: with a trailing comma,
    or with anything behind the object."""
    if not is_json(text):
        return
    try:
        # Only the syntax matters here: numbers stay text, so that one of a million digits costs nothing.
        json.loads(text, parse_int=str, parse_float=str, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        problem = f"is not valid JSON: {error.msg} in line {error.lineno} column {error.colno}"
        raise InputError(problem, remedy="a kubelet reads a file that begins with { as JSON") from None
    except RecursionError:
        raise InputError("is nested too deeply") from None


def _refuse_constant(name: str) -> NoReturn:
    raise InputError(f"is not valid JSON: {name} is no number")


def load_config_data(path: str, kind: str = KIND) -> dict[str, Any]:
    """Return the plain data of a file that holds one object of a kind. Raises `InputError`."""
    text = read_text(path)
    try:
        if kind == KIND:
            return read_document(text).data
        documents = load_documents(text)
        if len(documents) != 1:
            raise InputError(f"holds {f'{len(documents)} documents' if documents else 'nothing'}, not one {kind}")
        (document,) = documents
        if not isinstance(document, dict):
            found = "a list" if isinstance(document, list) else f"only {abbreviate(document)}"
            raise InputError(f"holds {found}, not an object of kind {kind}")
    except InputError as error:
        raise error.at(source=path) from None
    return document


def unwrap_configz(document: dict[str, Any]) -> dict[str, Any]:
    """Return the object in the answer of a kubelet's `configz`, which omits kind and version; any other document
    unchanged."""
    served = document.get("kubeletconfig") if len(document) == 1 else None
    return {"kind": KIND, "apiVersion": API_VERSION, **served} if isinstance(served, dict) else document


def config_from_fields(fields: Mapping[str, Any]) -> LoadedConfig:
    """Return a KubeletConfiguration from its fields alone, without kind and version. Raises `InputError` as
    `config_from_dict`."""
    return config_from_dict({"apiVersion": API_VERSION, "kind": KIND, **fields})


def config_from_dict(data: dict[str, Any]) -> LoadedConfig:
    """Return a KubeletConfiguration from plain data. Raises `InputError` with the field path."""
    return load_document(ConfigDocument(data))


def load_document(document: ConfigDocument) -> LoadedConfig:
    """Decode and default a KubeletConfiguration.

    Raises `InputError` with the field path and Go's message for every field that cannot be decoded; the first is the
    one that a kubelet reports.
    """
    kind, version = document.data.get("kind"), document.data.get("apiVersion")
    if kind != KIND:
        raise InputError(f"{kind!r} is not KubeletConfiguration", path="kind", remedy=f"kind: {KIND}")
    if version != API_VERSION:
        raise InputError(f"{version!r} is not supported", path="apiVersion", remedy=f"apiVersion: {API_VERSION}")
    decoded = decode(document.data, ordered=document.is_json)
    raise_all(InputError(message, path=path, remedy=remedy) for path, message, remedy in decoded.problems)
    fields = {name: value for name, value in decoded.fields.items() if name in _MODELLED}
    # Without this field, thresholds in the file replace all the defaults, not only those of the same signals.
    if decoded.fields.get("mergeDefaultEvictionSettings") and "evictionHard" in fields:
        fields["evictionHard"] = {**DEFAULT_EVICTION_HARD, **fields["evictionHard"]}
    fields["otherFields"] = {name: value for name, value in decoded.fields.items() if name not in _MODELLED}
    for reservation in fields.get("reservedMemory", ()):
        # Go's zero value of an absent number.
        reservation.setdefault("numaNode", 0)
    config = msgspec.convert(fields, KubeletConfig)
    return LoadedConfig(config, (*map(_unknown_field, decoded.unknown), *document.ignored))


_MODELLED = {field.encode_name for field in msgspec.structs.fields(KubeletConfig)} - {"otherFields"}


def _unknown_field(path: str) -> IgnoredField:
    close = get_close_matches(path, field_names(), 1) if "." not in path else []
    return IgnoredField(path, close[0] if close else "")
