"""Loading of a KubeletConfiguration (kubelet.config.k8s.io/v1beta1) as a kubelet of v1.36.2 does it.

Steps: `read_document` parses the file, `load_document` decodes the fields by their Go types (`decode`), defaults zero
values (`KubeletConfig`) and keeps what was ignored. `validate` then checks the values, and `Node` parses amounts and
thresholds against a machine while it starts (memory-device 3.11).
"""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import msgspec

from podslice.config.carriers.layer import API_VERSION, KIND, ConfigDocument
from podslice.config.decode import decode
from podslice.config.kubelet import IgnoredField, KubeletConfig
from podslice.config.schema import field_names
from podslice.reading.files import PathOrText, is_text, read_text
from podslice.reading.yaml import load_documents
from podslice.values.decoding import abbreviate
from podslice.values.errors import MOST_HINTS, InputError, raise_all


class LoadedConfig(NamedTuple):
    """The configuration, and the parts of the file that have no effect."""

    config: KubeletConfig
    unknown_fields: tuple[IgnoredField, ...]
    origins: tuple[str, ...] = ()
    """The values and the places they were taken from; empty for a file that a kubelet loads."""
    assumed: tuple[str, ...] = ()
    """Assumptions about what the source leaves open."""

    @property
    def warnings(self) -> tuple[str, ...]:
        """A line for each part of the file that has no effect."""
        return tuple(map(str, self.unknown_fields))

    @property
    def provenance(self) -> tuple[str, ...]:
        """A line that says where the configuration was taken from, and one for each assumption."""
        taken = (f"configuration: taken from {', then '.join(self.origins)}",) if self.origins else ()
        return (*taken, *(f"assumed: {line}" for line in self.assumed))


def load_kubelet_config(source: PathOrText) -> LoadedConfig:
    """Read a KubeletConfiguration from a file or the text of one, also one that carries it (docs/config.md). Raises
    `InputError`; unknown fields are warnings."""
    # Imported here: fields that are at hand need no reader of a platform.
    from podslice.config.carriers.recognize import read_document

    text = str(source) if is_text(source) else read_text(str(source))
    try:
        return load_document(read_document(text))
    except InputError as error:
        raise error.at(source="the text" if is_text(source) else str(source)) from None


def load_config_data(path: str, kind: str = KIND) -> dict[str, Any]:
    """Return the plain data of a file that holds one object of a kind. Raises `InputError`."""
    text = read_text(path)
    try:
        if kind == KIND:
            from podslice.config.carriers.recognize import read_document

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
        problem = f"{kind!r} is not {KIND}" if kind else "is not there"
        raise InputError(problem, path="kind", remedy=f"kind: {KIND}")
    if version != API_VERSION:
        problem = f"{version!r} is not supported" if version else "is not there"
        raise InputError(problem, path="apiVersion", remedy=f"apiVersion: {API_VERSION}")
    decoded = decode(document.data, ordered=document.is_json)
    raise_all(
        InputError(message, path=document.places.describe(path), remedy=remedy)
        for path, message, remedy in decoded.problems
    )
    fields = {name: value for name, value in decoded.fields.items() if name in _MODELLED}
    fields["otherFields"] = {name: value for name, value in decoded.fields.items() if name not in _MODELLED}
    for reservation in fields.get("reservedMemory", ()):
        # Go's zero value of an absent number.
        reservation.setdefault("numaNode", 0)
    config = msgspec.convert(fields, KubeletConfig)
    unknown = [_unknown_field(path, hinted=place < MOST_HINTS) for place, path in enumerate(decoded.unknown)]
    ignored = (*unknown, *document.ignored)
    return LoadedConfig(config, ignored, document.origins, document.assumed)


_MODELLED = {field.encode_name for field in msgspec.structs.fields(KubeletConfig)} - {"otherFields"}


def _unknown_field(path: str, *, hinted: bool) -> IgnoredField:
    close = get_close_matches(path, field_names(), 1) if hinted and "." not in path else []
    return IgnoredField(path, close[0] if close else "")
