"""Read what is left of a damaged CPU or memory state file.

Broken JSON is cut at the fault and closed again, which keeps everything before it; members of a wrong type are left
out. The result is only a proposal: `repair` takes from it what does not contradict itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Set
from typing import Any

from podslice.values.errors import InputError
from podslice.values.go.gojson import CheckpointError, Members, Number, parse

_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_CLOSERS = {"{": "}", "[": "]"}
_MAX_DEPTH = 64


def salvage(data: bytes) -> tuple[dict[str, Any], bool]:
    """Return the top-level members of a file by lower-case key, as plain values (numbers as int), and whether the JSON
    was whole. An unreadable file gives no members."""
    try:
        value, whole = parse(data), True
    except CheckpointError:
        value, whole = _parse_longest(data), False
    plain = _plain(value)
    return ({key.lower(): member for key, member in plain.items()} if isinstance(plain, dict) else {}), whole


def _parse_longest(data: bytes) -> Any:
    """Parse the longest prefix that is JSON once its brackets are closed; None where there is none."""
    text = data.decode("utf-8", errors="replace")
    # From the end: the first that parses keeps the most.
    for end, closers in reversed(_cuts(text)):
        try:
            return parse((text[:end] + closers).encode())
        except CheckpointError:
            continue
    return None


def _cuts(text: str) -> list[tuple[int, str]]:
    """Return offsets behind whole members, each with the closing brackets that it needs; the last 200."""
    cuts: list[tuple[int, str]] = []
    open_brackets: list[str] = []
    at = 0
    while at < len(text) and len(open_brackets) <= _MAX_DEPTH:
        char = text[at]
        if char == '"':
            match = _STRING.match(text, at)
            if match is None:
                break
            at = match.end()
            continue
        if char in "{[":
            open_brackets.append(char)
            cuts.append((at + 1, _closing(open_brackets)))
        elif char in "}]":
            if not open_brackets or _CLOSERS[open_brackets.pop()] != char:
                break
            cuts.append((at + 1, _closing(open_brackets)))
        elif char == ",":
            cuts.append((at, _closing(open_brackets)))
        at += 1
    # Bounded, since each cut may cost a parse of the whole text.
    cuts.append((at, _closing(open_brackets)))
    return cuts[-200:]


def _closing(open_brackets: list[str]) -> str:
    return "".join(_CLOSERS[bracket] for bracket in reversed(open_brackets))


def _plain(value: Any) -> Any:
    if isinstance(value, Members):
        return {key: _plain(member) for key, member in value}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, Number):
        return int(value.text) if re.fullmatch(r"-?\d{1,20}", value.text) else None
    return value


def read_damaged(data: bytes, known: Set[str]) -> tuple[dict[str, Any], list[str]]:
    """Return the members of a damaged file, and remarks. `known` are the members, in lower case, of which such a file
    has at least one. Raises `InputError` for whole JSON that has none and no checksum: it is not a damaged state file,
    but another file."""
    members, whole = salvage(data)
    inner = data_string(members)
    ours = inner is None and "checksum" in members
    if inner is not None:
        members, inner_whole = salvage(inner)
        whole = whole and inner_whole
    if whole and not ours and not known & members.keys():
        has = f"it has {', '.join(sorted(members)[:3])} instead" if members else "it is empty"
        remedy = f"a state file has {', '.join(sorted(known))}; is it the right file?"
        raise InputError(f"is JSON and no state file: {has}", remedy=remedy)
    if not members:
        return {}, ["the file is unreadable; nothing of it is used"]
    return members, [] if whole else ["the file is broken; what comes before the fault is used"]


def data_string(members: dict[str, Any]) -> bytes | None:
    """Return the content of a file that holds it as a string under `data`; None for others."""
    inner = members.get("data")
    if not isinstance(inner, str):
        return None
    return inner.encode("utf-8", errors="replace")


def text_map(value: Any) -> dict[str, str]:
    """Return the members whose values are strings; empty for what is not an object."""
    return {k: v for k, v in value.items() if isinstance(v, str)} if isinstance(value, dict) else {}


def object_map(value: Any) -> dict[str, dict[str, Any]]:
    """Return the members whose values are objects; empty for what is not an object."""
    return {k: v for k, v in value.items() if isinstance(v, dict)} if isinstance(value, dict) else {}


def dumps(value: Any) -> str:
    """Return a value as JSON for messages, at most 60 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."
