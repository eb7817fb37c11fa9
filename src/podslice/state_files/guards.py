"""Checking and repairing `podslice_guard_state`."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.node.checkpoints.guard_files import SavedFile
from podslice.node.checkpoints.guard_state import GuardContent, decode, encode, problem_of
from podslice.state_files.convert import Rewritten
from podslice.state_files.finding import StateFinding
from podslice.values.go.gojson import CheckpointError


def check_guards(content: GuardContent) -> Iterator[StateFinding]:
    """Entries that nobody may write by, and files with two."""
    seen = set[str]()
    for one in content.files:
        path = f"files.{one.path}"
        if problem := problem_of(one):
            yield StateFinding("error", "guarded-file", path, problem)
        if one.path in seen:
            yield StateFinding("error", "guarded-twice", path, "has two old values")
        seen.add(one.path)


def repair_guards(data: bytes) -> Rewritten:
    """Without wrong entries; of two for a file the first, which is the older one. What cannot be read is begun anew."""
    try:
        content = decode(data)
    except CheckpointError as error:
        text = f"what it said is lost ({error}): files of the kernel stay as they are until a reboot"
        return Rewritten(encode("", ()), "v1", [text])
    kept, remarks = dict[str, SavedFile](), list[str]()
    for one in content.files:
        problem = problem_of(one) or ("has two old values" if one.path in kept else "")
        if problem:
            remarks.append(f"{one.path}: {problem}; dropped")
        else:
            kept[one.path] = one
    return Rewritten(encode(content.boot_id, kept.values()), "v1", remarks)
