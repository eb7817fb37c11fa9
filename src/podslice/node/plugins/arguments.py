"""Read the arguments of a plugin; an error is a `ValueError` in one clause."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from podslice.values.errors import did_you_mean


class Arguments:
    """Reads arguments one by one; `end` refuses those that were not read."""

    def __init__(self, given: Mapping[str, object]) -> None:
        self._given = given
        self._taken: list[str] = []

    def text(self, name: str) -> str:
        """Return a required text."""
        value = self._take(name)
        if not isinstance(value, str) or not value:
            raise ValueError(f"arguments.{name} is not a text")
        return value

    def choice(self, name: str, among: Sequence[str], default: str) -> str:
        """Return one of some words, or the default."""
        value = self._take(name)
        if value is None:
            return default
        if value not in among:
            raise ValueError(f"arguments.{name} {value!r} is none of {', '.join(among)}")
        return cast(str, value)

    def texts(self, name: str) -> tuple[str, ...]:
        """Return a required list of texts."""
        value = self._take(name)
        if not isinstance(value, list | tuple) or not value or not all(isinstance(one, str) for one in value):
            raise ValueError(f"arguments.{name} is not a list of texts")
        return tuple(value)

    def labels(self, name: str) -> Mapping[str, str]:
        """Return labels with their values; none where the argument is missing."""
        value = self._take(name)
        if value is None:
            return {}
        if not isinstance(value, Mapping) or not all(isinstance(one, str) for one in (*value, *value.values())):
            raise ValueError(f"arguments.{name} is not labels with their values")
        return dict(value)

    def end(self) -> None:
        """Refuse arguments that were not read."""
        unknown = sorted(self._given.keys() - set(self._taken))
        if unknown:
            remedy = did_you_mean(unknown[0], self._taken)
            raise ValueError(f"arguments.{unknown[0]} is unknown" + (f": {remedy}" if remedy else ""))

    def _take(self, name: str) -> object:
        self._taken.append(name)
        return self._given.get(name)
