"""Values that show themselves: as plain data, as JSON, and in notebooks."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import msgspec


class Shown:
    """A base of public values. Notebooks call `_repr_html_` of the last value of a cell."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the value as plain data, as its JSON has it; CPU sets and quantities are text."""
        return plain_data(self)

    def to_json(self) -> str:
        """Return `to_dict()` as JSON text."""
        return msgspec.json.encode(self.to_dict()).decode()

    def _repr_html_(self) -> str | None:
        return show(self, "html_of")


def plain_data(value: object) -> dict[str, Any]:
    """Return a struct as the data that its JSON holds."""
    data: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(value, enc_hook=str))
    return data


def show(value: object, form: str) -> str | None:
    """Return a value in a form of `podslice.notebook`; None where it has none."""
    # By name: tables and pictures are rooms above this one, and nothing that decides may know them.
    shown: str | None = getattr(import_module("podslice.notebook"), form)(value)
    return shown
