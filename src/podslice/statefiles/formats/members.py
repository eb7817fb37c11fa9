"""Members of the maps in a state file, remembered between two writings: most pods and NUMA nodes did not change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from podslice.statefiles.go.godump import Checksum

K = TypeVar("K", int, str)


class Member(NamedTuple):
    """One member: the value it was made from, its JSON, and its part of the text under the checksum. That part begins
    with the blank before the member. It is cut into pieces, so that text that recurs is a piece of its own."""

    source: Any
    json: str
    dump: str
    pieces: tuple[str, ...]


def member(source: Any, json: str, *pieces: str) -> Member:
    """A member of these pieces."""
    return Member(source, json, "".join(pieces), pieces)


def renew(known: Mapping[K, Member], sources: Mapping[K, Any], make: Callable[[K, Any], Member]) -> dict[K, Member]:
    """The members for `sources` in the order of their keys; one whose source is the same is taken from `known`."""
    members = {}
    for key in sorted(sources):
        source, old = sources[key], known.get(key)
        if old is None or (old.source is not source and old.source != source):
            old = make(key, source)
        members[key] = old
    return members


def json_of(members: Iterable[Member]) -> str:
    """The JSON object of the members; empty without members, as the files leave such an object out."""
    text = ",".join([one.json for one in members])
    return f"{{{text}}}" if text else ""


def add_dump(text: list[str], members: Iterable[Member], checksum: Checksum, *, opening: str = "map[") -> None:
    """Add the map (or what `opening` opens) of the members, as it is under the checksum, to a text in pieces for
    `checksum`."""
    text.append(opening)
    first = len(text)
    for one in members:
        if len(one.pieces) > 1 and checksum.knows(one.dump):
            text.append(one.dump)
        else:
            text += one.pieces
    if len(text) > first:
        text[first] = text[first][1:]
    text.append("]")
