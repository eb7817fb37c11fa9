"""Plan the writes to kernel files that guards change: each file's wanted text, and its text before.

The text before a guard's first write is kept, and everything wanted is derived from it, so that in the end every file
has its first text again, whatever guards came and went. A file that another writer has changed since belongs to that
writer: it is left, or guarded anew from its present text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from podslice.values.cpuset import Bits, format_bits, parse_bits_or_empty

Form = Literal["list", "mask", "value", "schemata"]
"""A list of CPUs, hexadecimal groups of 32 CPUs, any other word, or resctrl's lines of resources."""
Guard = Literal["irq", "partition", "units", "sandboxes", "kthreads", "power", "cache"]
_GROUP = 32


class SavedFile(msgspec.Struct, frozen=True):
    """A file that was changed: its text `before`, and the texts that it may have from us (two while one is being
    replaced)."""

    path: str
    form: Form
    before: str
    written: tuple[str, ...]
    guard: Guard = "irq"


class GuardedFile(NamedTuple):
    """A file with its present text and what a guard wants: `wanted`, whatever the text before; else the text before
    without the CPUs to `avoid`, and where nothing is left of it, those of `rest`. `made`: the file came with a folder
    that a guard has made, goes with it, and has no old text."""

    path: str
    form: Form
    text: str
    guard: Guard = "irq"
    wanted: str | None = None
    avoid: Bits = 0
    rest: Bits = 0
    made: bool = False


class FileWrite(NamedTuple):
    """A text to write; `restores`: it is the text before, which is then forgotten."""

    path: str
    text: str
    restores: bool


class FilePlan(NamedTuple):
    """A plan in three steps: store `saved`, do the writes, store `after`. Each step can be the last before a crash.
    `drifted`: files whose text was not the one we wrote; `left`: files that belong to another writer now."""

    saved: dict[str, SavedFile]
    writes: tuple[FileWrite, ...]
    after: dict[str, SavedFile]
    drifted: tuple[str, ...]
    left: tuple[str, ...]


def bits_in(text: str, form: Form) -> Bits:
    """Return the CPUs of a file; none where it cannot be read."""
    if form == "list":
        return parse_bits_or_empty(text.strip())
    try:
        return int(text.strip().replace(",", "") or "0", 16)
    except ValueError:
        return 0


def text_of(bits: Bits, form: Form) -> str:
    """Return a set as such a file takes it: a list, or hexadecimal groups of 32 CPUs."""
    if form == "list":
        return format_bits(bits)
    groups: list[str] = []
    while bits or not groups:
        groups.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= _GROUP
    return ",".join(reversed(groups))


def same(one: str, other: str, form: Form) -> bool:
    """Whether both texts mean the same to the kernel. Of resctrl's lines only those of `other` are compared."""
    if form == "schemata":
        return schemata_in(other).items() <= schemata_in(one).items()
    if form == "value":
        return one.strip() == other.strip()
    return bits_in(one, form) == bits_in(other, form)


def schemata_in(text: str) -> dict[tuple[str, str], int | str]:
    """Return the values in resctrl's lines (`L3:0=ff0;1=ff0`) by resource and domain; masks as numbers, since the
    kernel may print them with leading zeros."""
    found: dict[tuple[str, str], int | str] = {}
    for line in text.splitlines():
        resource, _, domains = line.strip().partition(":")
        for domain in domains.split(";"):
            name, between, value = domain.strip().partition("=")
            if between:
                found[resource, name] = _mask(value) if resource.startswith("L") else value.strip()
    return found


def _mask(text: str) -> int | str:
    try:
        return int(text, 16)
    except ValueError:
        return text


def _results_from(text: str, written: str, form: Form) -> bool:
    """Whether a text is the result of what was written; a partition may become `root invalid (WHY)` later."""
    return same(text, written, form) or (form == "value" and text.startswith(f"{written} invalid"))


def plan_files(files: Iterable[GuardedFile], saved: Mapping[str, SavedFile], *, online: Bits) -> FilePlan:
    """Return the writes after which each file has its wanted text. Restored texts come before new ones, in reverse
    order, so the deepest come first."""
    during, after = dict(saved), dict(saved)
    writes: list[FileWrite] = []
    drifted: list[str] = []
    left: list[str] = []
    for file in files:
        known, form = saved.get(file.path), file.form
        ours = known is not None and any(_results_from(file.text, one, form) for one in (*known.written, known.before))
        if known is not None and len(known.written) == 1 and not _results_from(file.text, known.written[0], form):
            drifted.append(file.path)
        if known is not None and not ours:
            left.append(file.path)
        before = known.before if known is not None and ours else file.text.strip()
        text = wanted_text(file, before, online)
        if file.made:
            if text is not None and not same(file.text, text, form):
                writes.append(FileWrite(file.path, text, False))
            continue
        if text is None:
            during.pop(file.path, None) if not ours else None
            after.pop(file.path, None)
            if ours and not same(file.text, before, form):
                writes.append(FileWrite(file.path, _restore_text(before, form, online), True))
            continue
        # Both texts are stored before the write: after a crash either may be in the file.
        may_be = (text,) if known is None or not ours else tuple(dict.fromkeys((*known.written, text)))
        during[file.path] = SavedFile(file.path, form, before, may_be, file.guard)
        after[file.path] = SavedFile(file.path, form, before, (text,), file.guard)
        if not same(file.text, text, form):
            writes.append(FileWrite(file.path, text, False))
    # In reverse, so that the deepest files are restored first.
    back = [one for one in reversed(writes) if one.restores]
    return FilePlan(during, (*back, *(one for one in writes if not one.restores)), after, tuple(drifted), tuple(left))


def wanted_text(file: GuardedFile, before: str, online: Bits) -> str | None:
    """Return the text a file should have, given its text before; None where that will do. A set without `avoid` never
    becomes empty and never names a CPU that is offline, because the kernel refuses both."""
    if file.wanted is not None:
        return file.wanted
    first, left = bits_in(before, file.form) if file.avoid else 0, online & ~file.avoid
    return text_of(first & left or file.rest & left or left, file.form) if first & file.avoid and left else None


def is_open(file: GuardedFile, saved: Mapping[str, SavedFile], online: Bits) -> bool:
    """Whether a file lacks its wanted text."""
    known = saved.get(file.path)
    text = wanted_text(file, file.text if known is None else known.before, online)
    return text is not None and not same(file.text, text, file.form)


def _restore_text(before: str, form: Form, online: Bits) -> str:
    """Return the text before, without CPUs that went offline since."""
    first = bits_in(before, form) if form in ("list", "mask") else 0
    return before if not first & ~online else text_of(first & online or online, form)
