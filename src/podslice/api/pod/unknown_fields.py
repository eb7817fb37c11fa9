"""Fields of a pod, or of an object with a pod template, that Kubernetes does not know.

The API server drops them: with field validation Warn it says so, with Strict it refuses the object. A dropped field is
often one the author meant (`limit` for `limits`), so each comes with the nearest known field.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

from podslice.api.pod.field_table import field_table


class UnknownField(NamedTuple):
    """`path` leads to the field, `kind` is the type that lacks it, `suggestion` a known field below the same parent
    (`resources.limits` where the field belongs one level deeper), empty where none is near."""

    path: str
    kind: str
    suggestion: str

    def __str__(self) -> str:
        """Return the API server's text."""
        return f'unknown field "{self.path}"'

    @property
    def hint(self) -> str:
        """`did you mean limits?`, or what Kubernetes does with the field."""
        return f"did you mean {self.suggestion}?" if self.suggestion else "Kubernetes drops it"


def find_unknown_fields(value: Any, kind: str = "Pod", path: str = "") -> Iterator[UnknownField]:
    """Yield the unknown fields of plain data, in its order. Raises `KeyError` for a kind that is not in the table."""
    if isinstance(value, dict):
        fields = field_table()[kind]
        for name, field in value.items():
            here = f"{path}.{name}" if path else str(name)
            # None for an unknown field, empty for one whose content is not in the table.
            below = fields.get(name)
            if below is None:
                yield UnknownField(here, kind, _suggest(str(name), fields))
            elif below:
                yield from _walk_field(field, below, here)


def _walk_field(field: Any, kind: str, path: str) -> Iterator[UnknownField]:
    if not kind.startswith("[]"):
        yield from find_unknown_fields(field, kind, path)
    elif isinstance(field, list):
        for index, one in enumerate(field):
            yield from find_unknown_fields(one, kind[2:], f"{path}[{index}]")


def _suggest(name: str, fields: Mapping[str, str]) -> str:
    same = [field for field in fields if field.lower() == name.lower()]
    if same:
        return same[0]
    deeper = [f"{field}.{name}" for field, kind in fields.items() if name in field_table().get(kind, ())]
    # A near name beats the same name one level deeper, which beats a name that is only a little similar.
    close = get_close_matches(name, fields, 1, 0.75) or deeper or get_close_matches(name, fields, 1)
    return close[0] if close else ""
