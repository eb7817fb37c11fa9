"""A validation error of the API server, and what it looks like."""

from __future__ import annotations

from typing import NamedTuple


class FieldError(NamedTuple):
    """One error. Sorting gives the order of recordings; upstream's own is random."""

    field: str
    type: str
    detail: str
    bad_value: str = ""


def forbidden(field: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueForbidden", detail)


def invalid(field: str, value: str, detail: str) -> FieldError:
    return FieldError(field, "FieldValueInvalid", detail, value)
