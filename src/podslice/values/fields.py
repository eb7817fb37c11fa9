"""The fields of a type of plain data, to suggest one for a name that the type does not have."""

from __future__ import annotations

import re

from msgspec import inspect

_STEP = re.compile(r"\[(\d+|\.\.\.)\]|([^.\[\]]+)")


def known_fields(kind: type, path: str) -> list[str]:
    """Return the names of the fields of the object at `path` in a value of type `kind`; none where it may have any."""
    kinds: list[inspect.Type] = [inspect.type_info(kind)]
    for step in _STEP.finditer(path):
        # Every alternative of a union is followed: which of them a document means is not known before it is decoded.
        kinds = [below for one in kinds for below in _element_types(one, step[2])]
    return [field.encode_name for one in kinds for each in _structs(one) for field in each.fields]


def _element_types(kind: inspect.Type, name: str | None) -> list[inspect.Type]:
    """Return the types of the elements of `kind`: a list's items where `name` is None, else the values under that key
    or field."""
    if isinstance(kind, inspect.UnionType):
        return [below for one in kind.types for below in _element_types(one, name)]
    if name is None and isinstance(kind, (inspect.ListType, inspect.VarTupleType)):
        return [kind.item_type]
    if isinstance(kind, inspect.DictType):
        # Keys of a mapping are free, so each name has the same type below it.
        return [kind.value_type]
    if isinstance(kind, inspect.StructType):
        return [field.type for field in kind.fields if field.encode_name == name]
    return []


def _structs(kind: inspect.Type) -> list[inspect.StructType]:
    """Return the struct types among the alternatives of `kind`."""
    if isinstance(kind, inspect.UnionType):
        return [found for one in kind.types for found in _structs(one)]
    return [kind] if isinstance(kind, inspect.StructType) else []
