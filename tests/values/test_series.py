"""Counters have a name and labels; text is made of them at the edge."""

from __future__ import annotations

from podslice.values.series import Series, series


def test_series_are_values() -> None:
    """The same name and labels are the same key, in whatever order the labels are given."""
    one = series("allocations_total", source="node", resource_name="cpu")
    assert one == series("allocations_total", resource_name="cpu", source="node")
    assert len({one, series("allocations_total", source="pod", resource_name="cpu"), series("allocations_total")}) == 3


def test_text() -> None:
    """Recordings name a series with its labels in braces, sorted by name; without labels there are no braces."""
    assert series("a_total", b="1", a="2").text == "a_total{a=2,b=1}"
    assert Series("a_total").text == "a_total"
