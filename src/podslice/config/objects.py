"""Objects in files: those of some kinds, and those of podslice's own API group."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from podslice.config.policy import API_VERSION
from podslice.reading.lists import flatten_lists
from podslice.values.errors import InputError


def iter_objects(documents: list[Any], kinds: Collection[str]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects of these kinds, those inside Lists too, with the zero-based number of their document."""
    for number, document in enumerate(documents):
        for one in flatten_lists(document):
            if isinstance(one, dict) and one.get("kind") in kinds:
                yield number, one


def check_object(data: Mapping[str, Any], kind: str, *, below: str, remedy: str) -> None:
    """Raise `InputError` for an object of another kind or version, or with a field other than its metadata and `below`,
    which holds all the rest."""
    for field, expected in (("kind", kind), ("apiVersion", API_VERSION)):
        if data.get(field) != expected:
            raise InputError(f"{data.get(field)!r} is not {expected}", path=field, remedy=f"{field}: {expected}")
    unknown = sorted(str(name) for name in data.keys() - {"apiVersion", "kind", "metadata", below})
    if unknown:
        raise InputError("unknown field", path=unknown[0], remedy=remedy)
