"""Keys of counters: a metric's short name and its labels, as Prometheus distinguishes time series.

Counters are kept under `Series`; text is made of them only where it is read: the agent's `/metrics` and the recordings
that are replayed.
"""

from __future__ import annotations

from typing import TypeAlias

import msgspec

Labels: TypeAlias = tuple[tuple[str, str], ...]


# Series are the keys of every counter, so their hash is computed once.
class Series(msgspec.Struct, frozen=True, order=True, cache_hash=True):
    """A time series. `labels` are sorted by name; the function `series` makes one."""

    name: str
    labels: Labels = ()

    @property
    def text(self) -> str:
        """`name{label=value,…}`, as in recordings."""
        if not self.labels:
            return self.name
        return f"{self.name}{{{','.join(f'{label}={value}' for label, value in self.labels)}}}"


def labels_text(labels: Labels) -> str:
    """Return `{name="value",…}` as Prometheus reads it; empty for no labels."""
    return "{" + ",".join(f'{name}="{value}"' for name, value in labels) + "}" if labels else ""


def series(name: str, **labels: str) -> Series:
    """Return the time series of a metric with these labels."""
    # Sorted, because two orders of the same labels are one series.
    return Series(name, tuple(sorted(labels.items())))
