"""Counts of a comparison, and the differences between a kubelet and podslice."""

from __future__ import annotations

from collections import Counter

import msgspec

_CONTEXT = 300


class Difference(msgspec.Struct):
    """A difference: the step, what was compared, and both sides."""

    step: str
    what: str
    kubelet: str
    podslice: str

    def __str__(self) -> str:
        pairs = zip(self.kubelet, self.podslice, strict=False)
        at = next((place for place, (one, other) in enumerate(pairs) if one != other), 0)
        start = max(0, at - _CONTEXT)
        kubelet, podslice = (text[start : at + _CONTEXT] or "nothing" for text in (self.kubelet, self.podslice))
        return f"{self.step}: {self.what}: kubelet {kubelet}, podslice {podslice}"


class Notes:
    """Counts and differences of one history; `step` is the current step."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.differences: list[Difference] = []
        self.step = "start"

    def same(self, what: str, real: object, predicted: object) -> None:
        """Compare both sides, which should be equal."""
        self.note(what, real == predicted, str(real), str(predicted))

    def note(self, what: str, same: bool, real: str, predicted: str) -> None:
        """Note one comparison."""
        self.counts["comparisons"] += 1
        if not same:
            self.counts["differences"] += 1
            self.differences.append(Difference(self.step, what, real, predicted))
