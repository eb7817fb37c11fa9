"""The UIDs of a node's pods as one text, which takes a quarter of a set of them: asked seldom, kept for many nodes."""

from __future__ import annotations

from collections.abc import Iterable


def names_of(uids: Iterable[str]) -> str:
    """All of them."""
    text = "\n".join(uids)
    return f"\n{text}\n" if text else ""


def is_named(uid: str, names: str) -> bool:
    """True when it is one of them. A UID with line breaks in it is none."""
    return f"\n{uid}\n" in names
