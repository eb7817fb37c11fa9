"""Checksums of state files: FNV-1a over a one-line dump of Go structs (spec cpu-topology 8.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

V = TypeVar("V")


def fnv1a(text: str) -> int:
    """FNV-1a, 32 bit, over the UTF-8 bytes."""
    value = 2166136261
    for byte in text.encode("utf-8", errors="surrogatepass"):
        value = ((value ^ byte) * 16777619) & 0xFFFFFFFF
    return value


def dump_map(members: Mapping[str, V] | None, dump: Callable[[V], str]) -> str:
    """`map[key:value …]` with keys in byte order; `<nil>` for an absent map."""
    if members is None:
        return "<nil>"
    keys = sorted(members, key=lambda key: key.encode("utf-8", errors="surrogatepass"))
    return f"map[{' '.join(f'{key}:{dump(members[key])}' for key in keys)}]"


def dump_list(items: Iterable[V] | None, dump: Callable[[V], str] = str) -> str:
    """`[item …]`; `<nil>` for an absent list."""
    return "<nil>" if items is None else f"[{' '.join(map(dump, items))}]"
