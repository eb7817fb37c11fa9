"""Drop-in files of a kubelet (`--config-dir`, KEP-3983): the files `*.conf` of a folder, merged in the order of their
names over the file that `--config` names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podslice.config.carriers.layer import API_VERSION, KIND, FieldPlace, Layer
from podslice.config.kubelet import DEFAULT_EVICTION_HARD
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError

SUFFIX = ".conf"


def read_drop_ins(texts: Mapping[str, str]) -> list[Layer]:
    """Return the layers of drop-in files, given by their paths, in order. Raises `InputError`."""
    return [_read_drop_in(path, texts[path]) for path in sorted(texts)]


def _read_drop_in(path: str, text: str) -> Layer:
    documents = load_documents(text, path, duplicates=[])
    data = documents[0] if documents else {}
    if not isinstance(data, dict):
        raise InputError(f"holds no object of kind {KIND}", source=path)
    for field, wanted in (("kind", KIND), ("apiVersion", API_VERSION)):
        # A kubelet refuses a drop-in without type metadata, however partial it is otherwise.
        if data.get(field) != wanted:
            raise InputError(f"is not {wanted}", source=path, path=field, remedy=f"{field}: {wanted}")
    fields = {name: value for name, value in data.items() if value is not None}
    return Layer(fields, path, FieldPlace(source=path))


def fill_default_thresholds(base: Layer, drop_ins: list[Layer]) -> tuple[Layer, tuple[str, ...]]:
    """Return the layer below drop-ins and what is assumed of it.

    Maps are merged key by key, and below a drop-in with `evictionHard` are the kubelet's default thresholds unless the
    main file has its own.
    """
    if "evictionHard" in base.fields or not any("evictionHard" in layer.fields for layer in drop_ins):
        return base, ()
    fields: dict[str, Any] = {**base.fields, "evictionHard": dict(DEFAULT_EVICTION_HARD)}
    line = "evictionHard of a drop-in is merged with the kubelet's default thresholds"
    return base._replace(fields=fields), (line,)
