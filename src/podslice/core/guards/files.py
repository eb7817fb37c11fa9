"""Files of the kernel that guards change: what each should say, and what it said before.

What a file said before is kept with it, and all that is wished follows from that, so that whoever comes and goes, in
the end every file says what it said first. A file that somebody else has written since is theirs: it is left, or
guarded anew from what it says now.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from podslice.core.values.cpuset import Bits, format_bits, readable_bits

Form = Literal["list", "mask", "value"]
"""A list of CPUs, hexadecimal groups of 32 CPUs, or any other word."""
Guard = Literal["irq", "power", "partition", "units", "sandboxes"]
_GROUP = 32


class SavedFile(msgspec.Struct, frozen=True):
    """A file that was changed: what it said `before`, and the values that it may have from us (two while one is being
    replaced)."""

    path: str
    form: Form
    before: str
    written: tuple[str, ...]
    guard: Guard = "irq"


class GuardedFile(NamedTuple):
    """A file as it is now. `near`: CPUs to prefer where all of its own are guarded (those of its NUMA node). `wanted`:
    what it should say whatever it said before; None: what it said before."""

    path: str
    form: Form
    text: str
    near: Bits = 0
    guard: Guard = "irq"
    wanted: str | None = None


Wish = Callable[[GuardedFile, str], str | None]
"""What a file should say, given what it said before; None where that will do."""


class FileWrite(NamedTuple):
    """What to write; `restores`: it is what the file said before, and is forgotten then."""

    path: str
    text: str
    restores: bool


class FilePlan(NamedTuple):
    """First `saved` is stored, then the writes happen, then `after` is stored. `drifted`: files that said something
    else than we wrote; `left`: files that are somebody else's now."""

    saved: dict[str, SavedFile]
    writes: tuple[FileWrite, ...]
    after: dict[str, SavedFile]
    drifted: tuple[str, ...]
    left: tuple[str, ...]


def bits_in(text: str, form: Form) -> Bits:
    """The CPUs of a file; none where it cannot be read."""
    if form == "list":
        return readable_bits(text.strip())
    try:
        return int(text.strip().replace(",", "") or "0", 16)
    except ValueError:
        return 0


def text_of(bits: Bits, form: Form) -> str:
    """A set as such a file takes it: a list, or hexadecimal groups of 32 CPUs."""
    if form == "list":
        return format_bits(bits)
    groups: list[str] = []
    while bits or not groups:
        groups.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= _GROUP
    return ",".join(reversed(groups))


def same(one: str, other: str, form: Form) -> bool:
    """Both say the same to the kernel."""
    if form == "value":
        return one.strip() == other.strip()
    return bits_in(one, form) == bits_in(other, form)


def _comes_of(text: str, written: str, form: Form) -> bool:
    """A file says that because of what was written; a partition may become `root invalid (WHY)` later."""
    return same(text, written, form) or (form == "value" and text.startswith(f"{written} invalid"))


def plan_files(files: Iterable[GuardedFile], saved: Mapping[str, SavedFile], wish: Wish, *, online: Bits) -> FilePlan:
    """What to write so that each file says what is wished. What is given back before what is taken, deepest first."""
    during, after = dict(saved), dict(saved)
    writes: list[FileWrite] = []
    drifted: list[str] = []
    left: list[str] = []
    for file in files:
        known, form = saved.get(file.path), file.form
        ours = known is not None and any(_comes_of(file.text, one, form) for one in (*known.written, known.before))
        if known is not None and len(known.written) == 1 and not _comes_of(file.text, known.written[0], form):
            drifted.append(file.path)
        if known is not None and not ours:
            left.append(file.path)
        before = known.before if known is not None and ours else file.text.strip()
        text = wish(file, before)
        if text is None:
            during.pop(file.path, None) if not ours else None
            after.pop(file.path, None)
            if ours and not same(file.text, before, form):
                writes.append(FileWrite(file.path, _restored(before, form, online), True))
            continue
        may_be = (text,) if known is None or not ours else tuple(dict.fromkeys((*known.written, text)))
        during[file.path] = SavedFile(file.path, form, before, may_be, file.guard)
        after[file.path] = SavedFile(file.path, form, before, (text,), file.guard)
        if not same(file.text, text, form):
            writes.append(FileWrite(file.path, text, False))
    back = [one for one in reversed(writes) if one.restores]
    return FilePlan(during, (*back, *(one for one in writes if not one.restores)), after, tuple(drifted), tuple(left))


def guarded_masks(guarded: Bits, online: Bits) -> Wish:
    """What files with sets of CPUs should say while `guarded` CPUs are to be left alone; the others, what they are
    wanted to say. Where no CPU would be left over, nothing is guarded. No wish is empty, and none names a CPU that is
    not online."""
    guarded &= online
    if guarded == online:
        guarded = 0
    housekeeping = online & ~guarded

    def wish(file: GuardedFile, before: str) -> str | None:
        if file.guard != "irq":
            return file.wanted
        claimed = 0 if file.wanted is None else bits_in(file.wanted, file.form) & online
        if claimed:
            return text_of(claimed, file.form)
        first = bits_in(before, file.form)
        return (
            text_of(first & housekeeping or file.near & housekeeping or housekeeping, file.form)
            if first & guarded
            else None
        )

    return wish


def _restored(before: str, form: Form, online: Bits) -> str:
    """What the file said, without CPUs that went offline since."""
    first = 0 if form == "value" else bits_in(before, form)
    return before if not first & ~online else text_of(first & online or online, form)
