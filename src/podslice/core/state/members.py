"""Members of the maps in a state file, remembered between two writings: most pods and NUMA nodes did not change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

K = TypeVar("K", int, str)


class Member(NamedTuple):
    """One member: a copy of what it was made from, its JSON, and its part of the text under the checksum in pieces, of
    which the first begins with the blank before the member."""

    source: Any
    json: str
    dump: tuple[str, ...]


def renew(known: Mapping[K, Member], sources: Mapping[K, Any], make: Callable[[K, Any], Member]) -> dict[K, Member]:
    """The members for `sources` in the order of their keys; one whose source is the same is taken from `known`."""
    members = {}
    for key in sorted(sources):
        source, member = sources[key], known.get(key)
        members[key] = member if member is not None and member.source == source else make(key, source)
    return members


def json_of(members: Iterable[Member]) -> str:
    """The JSON object of the members; empty without members, as the files leave such an object out."""
    text = ",".join([member.json for member in members])
    return f"{{{text}}}" if text else ""


def dump_of(members: Iterable[Member]) -> list[str]:
    """The map of the members as it is under the checksum, in pieces."""
    pieces = [piece for member in members for piece in member.dump]
    if pieces:
        pieces[0] = pieces[0][1:]
    return ["map[", *pieces, "]"]
