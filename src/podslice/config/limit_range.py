"""LimitRange objects from files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from podslice.api.server.limitrange import LimitRange, limit_range_from_dict
from podslice.api.server.validate_limitrange import limit_range_errors
from podslice.config.objects import iter_objects
from podslice.reading.files import read_text
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError


def load_limit_ranges(path: str, gates: Mapping[str, bool]) -> list[LimitRange]:
    """Return the LimitRange objects of a file, with the defaults of their items; other objects are skipped.

    Raises `InputError`, also for a LimitRange that the API server refuses, and for a file without any.
    """
    found = [_load(one, path, gates) for _, one in iter_objects(load_documents(read_text(path), path), ("LimitRange",))]
    if not found:
        raise InputError("holds no LimitRange", source=path)
    return found


def _load(data: dict[str, Any], path: str, gates: Mapping[str, bool]) -> LimitRange:
    try:
        limit_range = limit_range_from_dict(data)
    except InputError as error:
        raise error.at(source=path) from None
    errors = limit_range_errors(limit_range, gates)
    if errors:
        raise InputError(str(errors[0]), source=path, remedy="the API server refuses this LimitRange")
    return limit_range
