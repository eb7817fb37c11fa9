"""Check and repair `podslice_guard_state`."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.node.checkpoints.guard_files import SavedFile
from podslice.node.checkpoints.guard_state import GuardContent, decode, encode, problem_of
from podslice.state_files.convert import Rewritten
from podslice.state_files.documents import StateFinding
from podslice.values.go.gojson import CheckpointError


def check_guards(content: GuardContent) -> Iterator[StateFinding]:
    """Yield an error for each entry with a path that must not be written, and for each file with two entries."""
    seen = set[str]()
    for one in content.files:
        path = f"files.{one.path}"
        if problem := problem_of(one):
            yield StateFinding("error", "guarded-file", path, problem)
        if one.path in seen:
            yield StateFinding("error", "guarded-twice", path, "has two old values")
        seen.add(one.path)


def repair_guards(data: bytes) -> Rewritten:
    """Return the file without wrong entries. An unreadable file is replaced by an empty one."""
    try:
        content = decode(data)
    except CheckpointError as error:
        text = f"what it said is lost ({error}): files of the kernel stay as they are until a reboot"
        return Rewritten(encode("", ()), "v1", [text])
    kept, remarks = dict[str, SavedFile](), list[str]()
    # Of two entries for a file the first counts: it has the value from before any guard.
    for one in content.files:
        problem = problem_of(one) or ("has two old values" if one.path in kept else "")
        if problem:
            remarks.append(f"{one.path}: {problem}; dropped")
        else:
            kept[one.path] = one
    return Rewritten(encode(content.boot_id, kept.values()), "v1", remarks)
