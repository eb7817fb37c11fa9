"""What is counted: a metric's short name and its labels, as Prometheus tells time series apart.

Whatever counts keeps `Series` as keys; text is made of them where somebody reads it: the agent's `/metrics` and the
recordings that are replayed.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Labels: TypeAlias = tuple[tuple[str, str], ...]


class Series(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """One time series. `labels` are sorted by name; `series` makes one."""

    name: str
    labels: Labels = ()

    @property
    def text(self) -> str:
        """`name{label=value,…}`, as recordings have it."""
        if not self.labels:
            return self.name
        return f"{self.name}{{{','.join(f'{label}={value}' for label, value in self.labels)}}}"


def labels_text(labels: Labels) -> str:
    """`{name="value",…}`, as Prometheus reads it; empty for no labels."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""


def series(name: str, **labels: str) -> Series:
    """The time series of a metric with these labels."""
    return Series(name, tuple(sorted(labels.items())))
