"""Files of the kernel that hold a set of CPUs (interrupts, workqueues): what each should say while CPUs are guarded.

What a file said before is kept with it, and all that is wished follows from that and from the guarded CPUs, so that
whoever comes and goes, in the end every file says what it said first. A file that somebody else has written since is
theirs: it is left, or guarded anew from what it says now.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

import msgspec

from podslice.core.values.cpuset import Bits, format_bits, readable_bits

Form = Literal["list", "mask"]
_GROUP = 32


class SavedFile(msgspec.Struct, frozen=True):
    """A file that was changed: what it said `before`, and the values that it may have from us (two while one is being
    replaced)."""

    path: str
    form: Form
    before: str
    written: tuple[str, ...]


class MaskFile(NamedTuple):
    """A file as it is now. `near`: CPUs to prefer where all of its own are guarded (those of its NUMA node)."""

    path: str
    form: Form
    text: str
    near: Bits = 0


class MaskWrite(NamedTuple):
    """What to write; `restores`: it is what the file said before, and is forgotten then."""

    path: str
    text: str
    restores: bool


class MaskPlan(NamedTuple):
    """First `saved` is stored, then the writes happen, then `after` is stored. `drifted`: files that said something
    else than we wrote; `left`: files that are somebody else's now."""

    saved: dict[str, SavedFile]
    writes: tuple[MaskWrite, ...]
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


def plan_masks(files: Iterable[MaskFile], saved: Mapping[str, SavedFile], *, guarded: Bits, online: Bits) -> MaskPlan:
    """What the files should say while `guarded` CPUs are to be left alone. Where no CPU would be left over, nothing is
    guarded. No wish is empty, and none names a CPU that is not online."""
    guarded &= online
    if guarded == online:
        guarded = 0
    during, after = dict(saved), dict(saved)
    writes: list[MaskWrite] = []
    drifted: list[str] = []
    left: list[str] = []
    for file in files:
        known, now = saved.get(file.path), bits_in(file.text, file.form)
        ours = known is not None and now in {bits_in(one, file.form) for one in (*known.written, known.before)}
        if known is not None and len(known.written) == 1 and now != bits_in(known.written[0], file.form):
            drifted.append(file.path)
        if known is not None and not ours:
            left.append(file.path)
        before = known.before if known is not None and ours else file.text.strip()
        first = bits_in(before, file.form)
        wish = _wish(first, file.near, guarded, online)
        if not first & guarded:
            during.pop(file.path, None) if not ours else None
            after.pop(file.path, None)
            if ours and now != first:
                writes.append(MaskWrite(file.path, _restored(before, first, file.form, online), True))
            continue
        text = text_of(wish, file.form)
        may_be = (text,) if known is None or not ours else tuple(dict.fromkeys((*known.written, text)))
        during[file.path] = SavedFile(file.path, file.form, before, may_be)
        after[file.path] = SavedFile(file.path, file.form, before, (text,))
        if now != wish:
            writes.append(MaskWrite(file.path, text, False))
    return MaskPlan(during, tuple(writes), after, tuple(drifted), tuple(left))


def _wish(first: Bits, near: Bits, guarded: Bits, online: Bits) -> Bits:
    house = online & ~guarded
    return first & house or near & house or house


def _restored(before: str, first: Bits, form: Form, online: Bits) -> str:
    """What the file said, without CPUs that went offline since."""
    return before if not first & ~online else text_of(first & online or online, form)
