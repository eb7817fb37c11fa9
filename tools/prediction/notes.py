"""What a comparison counts, and where a kubelet and podslice part."""

from __future__ import annotations

from collections import Counter

import msgspec

_CONTEXT = 300


class Difference(msgspec.Struct):
    """Where the two part: the step, what was compared, and both."""

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
    """One history's counts and differences; `step` is what happens now."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.differences: list[Difference] = []
        self.step = "start"

    def same(self, what: str, real: object, predicted: object) -> None:
        """Both should say the same."""
        self.note(what, real == predicted, str(real), str(predicted))

    def note(self, what: str, same: bool, real: str, predicted: str) -> None:
        """One comparison."""
        self.counts["comparisons"] += 1
        if not same:
            self.counts["differences"] += 1
            self.differences.append(Difference(self.step, what, real, predicted))
