"""The text of a synthetic description, word by word, as levels."""

from __future__ import annotations

import re
from collections.abc import Iterator

from podslice.machine.readers.synthetic_levels import REMEDY, Attributes, Level, check_order
from podslice.values.errors import InputError

_COUNTS = r"[0-9]{1,9}(?:,[0-9]{1,9})*"
_TOKEN = re.compile(
    rf"\s*(?:(\[)\s*|)(?:([A-Za-z][\w-]*)\s*)?(?:(:)?\s*({_COUNTS})(?![0-9,]))?\s*(?:\(([^()]*)\))?\s*(\])?"
)
_WORD = re.compile(r"(?:\[[A-Za-z]\w*\])+|\[?[A-Za-z]\w*(?::\d[\d,]*)?\]?")
_TYPES = (
    ("machine", "machine"), ("package", "package"), ("socket", "package"), ("numanode", "numa"), ("node", "numa"),
    ("group", "group"), ("die", "die"), ("core", "core"), ("pu", "pu"), ("thread", "pu"),
)  # fmt: skip
_CACHE = re.compile(r"l([1-5])(d|i|u)?(?:cache)?")
_GUESSES = {
    1: ("pu",),
    2: ("numa", "pu"),
    3: ("package", "numa", "pu"),
    4: ("package", "numa", "core", "pu"),
    5: ("package", "numa", "l2u", "core", "pu"),
    6: ("package", "numa", "l2u", "l1d", "core", "pu"),
    7: ("package", "numa", "l3u", "l2u", "l1d", "core", "pu"),
}
"""Types that hwloc assumes for bare numbers, by how many there are."""

_ATTRIBUTES = ("memory", "size", "indexes")
_MEMORY = re.compile(r"([0-9]{1,18})([kmgtp]?)(i?)b?", re.IGNORECASE)
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4, "p": 5}
_LONGEST_TEXT = 128 << 10
"""Most characters of a description; one that numbers `MAX_CPUS` CPUs individually has 96 KiB."""


def looks_synthetic(text: str) -> bool:
    """Whether the text is meant as a synthetic description: words like `pack:2`, or bare numbers."""
    if len(text) > _LONGEST_TEXT:
        return False
    words = re.sub(r"\([^()]*\)", "", text).split()
    typed = [word for word in words if _WORD.fullmatch(word)]
    bare = [word for word in words if word.isdigit()]
    return len(typed) + len(bare) == len(words) > 0 and (not typed or re.search(r"\w:\d|\[", text) is not None)


def parse_levels(text: str, source: str) -> list[Level]:
    """Return the levels of a description, the machine itself first. `source` names it in messages. Raises
    `InputError`."""
    if len(text) > _LONGEST_TEXT:
        problem = f"a description of {len(text)} characters"
        raise InputError(problem, source=source[:40], remedy=f"at most {_LONGEST_TEXT}")
    root = Level("machine", (1,), Attributes(), [])
    levels = [root, *_levels(text, root, source)]
    check_order(levels, source)
    return levels


def _levels(text: str, root: Level, source: str) -> Iterator[Level]:
    words = list(_parse_words(text, root, source))
    bare = [level for level in words if not level.type]
    if len(bare) == len(words):
        types = _GUESSES.get(len(bare), ())
    else:
        types = ("pu",) if bare == words[-1:] else ()
    if len(types) != len(bare):
        raise InputError(f"cannot guess the types of {len(bare)} levels", source=source, remedy=REMEDY)
    for level, kind in zip(bare, types, strict=True):
        level.type = kind
    yield from words


def _parse_words(text: str, root: Level, source: str) -> Iterator[Level]:
    text = text.rstrip()
    position = 0
    last = root
    while position < len(text):
        match = _TOKEN.match(text, position)
        word = repr(text[position:].split()[0][:20])
        if match is None or match.end() == position:
            raise InputError(f"cannot read {word}", source=source, remedy=REMEDY)
        bracket, name, colon, counts, attributes, closing = match.groups()
        parsed = _parse_attributes(attributes or "", source)
        if bracket or closing:
            if not (bracket and closing) or counts or parse_type(name or "", source) != "numa":
                raise InputError(f"cannot read {word}", source=source, remedy="attach memory as [numa]")
            last.attached.append(parsed)
        elif not name and not counts:
            if position or attributes is None:
                raise InputError(f"cannot read {word}", source=source, remedy=REMEDY)
            root.attributes = parsed
        else:
            numbers = tuple(map(int, counts.split(","))) if counts else ()
            if bool(name) != bool(colon) or not all(numbers) or not numbers:
                remedy = "a level is type:count, such as core:8 or core:8,6"
                raise InputError(f"cannot read {word}", source=source, remedy=remedy)
            last = Level(parse_type(name, source) if name else "", numbers, parsed, [])
            if last.type == "machine":
                last.type = "group"
            yield last
        position = match.end()


def is_cache(kind: str) -> bool:
    """Whether a type is that of a cache."""
    return _CACHE.fullmatch(kind) is not None


def parse_type(name: str, source: str) -> str:
    """Return the type that a name or its beginning means, `l3u` for any L3 cache. Raises `InputError`."""
    lowered = name.lower()
    cache = _CACHE.fullmatch(lowered)
    if cache:
        return f"l{cache[1]}{cache[2] or ('d' if cache[1] == '1' else 'u')}"
    for full, kind in _TYPES:
        if len(lowered) >= 2 and full.startswith(lowered):
            return kind
    raise InputError(f"unknown type {name!r}", source=source, remedy="package, numa, die, group, l3, l2, l1, core, pu")


def _parse_attributes(text: str, source: str) -> Attributes:
    values: dict[str, str] = {}
    for word in text.split():
        name, equals, value = word.partition("=")
        # A word that is passed over would be a machine without what it says.
        if not equals or name.lower() not in _ATTRIBUTES or name.lower() in values or value.endswith(","):
            problem = f"cannot read {word[:40]!r} in ({' '.join(text.split())[:60]})"
            remedy = f"attributes are {', '.join(f'{known}=' for known in _ATTRIBUTES)}, each once, without spaces"
            raise InputError(problem, source=source, remedy=remedy)
        values[name.lower()] = value
    return Attributes(
        memory=_parse_sizes(values["memory"], source) if "memory" in values else (),
        size=_parse_sizes(values["size"], source) if "size" in values else (),
        indexes=values.get("indexes", ""),
    )


def _parse_sizes(text: str, source: str) -> tuple[int, ...]:
    return tuple(_parse_bytes(one, source) for one in text.split(","))


def _parse_bytes(text: str, source: str) -> int:
    match = _MEMORY.fullmatch(text)
    if match is None:
        raise InputError(f"{text[:40]!r} is not a size", source=source, remedy="write a number with kB, MB, GB or TB")
    base: int = 1024 if match[3] else 1000
    power: int = base ** _POWERS[match[2].lower()]
    return int(match[1]) * power
