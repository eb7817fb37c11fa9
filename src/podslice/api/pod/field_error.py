"""Errors of API validation: which field, what kind of error, and upstream's sentence (pod-level-resources 0)."""

from __future__ import annotations

import msgspec

from podslice.values.golang import quote

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
FORBIDDEN = "FieldValueForbidden"
NOT_SUPPORTED = "FieldValueNotSupported"
NOT_FOUND = "FieldValueNotFound"
DUPLICATE = "FieldValueDuplicate"

_TITLES = {
    INVALID: "Invalid value",
    REQUIRED: "Required value",
    FORBIDDEN: "Forbidden",
    NOT_SUPPORTED: "Unsupported value",
    NOT_FOUND: "Not found",
    DUPLICATE: "Duplicate value",
}
_WITHOUT_VALUE = (REQUIRED, FORBIDDEN)


class FieldError(msgspec.Struct, frozen=True, rename="camel", order=True):
    """A violated rule. Prints as the API server reports it; sorts by field, type, detail and value.

    `type` is upstream's cause, `bad_value` the offending text or number (empty where none is shown).
    """

    field: str
    type: str
    detail: str = ""
    bad_value: str | int = ""

    def __str__(self) -> str:
        # `[]` is how Go prints an empty field path.
        return f"{self.field or '[]'}: {self.sentence}"

    @property
    def sentence(self) -> str:
        """The error without the field."""
        title = _TITLES[self.type]
        if self.type not in _WITHOUT_VALUE:
            title += f": {quote(self.bad_value) if isinstance(self.bad_value, str) else self.bad_value}"
        return f"{title}: {self.detail}" if self.detail else title


def invalid(field: str, value: object, detail: str) -> FieldError:
    """Return an error for a value that breaks a rule."""
    return FieldError(field, INVALID, detail, value if isinstance(value, int) else str(value))


def required(field: str, detail: str = "") -> FieldError:
    """Return an error for an absent value."""
    return FieldError(field, REQUIRED, detail)


def forbidden(field: str, detail: str) -> FieldError:
    """Return an error for a field that may not be set or changed."""
    return FieldError(field, FORBIDDEN, detail)


def not_supported(field: str, value: object, supported: tuple[str, ...]) -> FieldError:
    """Return an error for a value outside a list of valid ones."""
    listed = ", ".join(f'"{name}"' for name in supported)
    return FieldError(field, NOT_SUPPORTED, f"supported values: {listed}", str(value))


def not_found(field: str, value: object, detail: str = "") -> FieldError:
    """Return an error for a reference to a missing entry."""
    return FieldError(field, NOT_FOUND, detail, str(value))


def duplicate(field: str, value: object) -> FieldError:
    """Return an error for a repeated entry."""
    return FieldError(field, DUPLICATE, "", str(value))
