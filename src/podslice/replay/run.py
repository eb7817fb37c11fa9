"""Run recorded cases and compare the outcome with the recording.

A recording is the judge of this project, so the comparison is strict: deep equality of the whole result. Two exceptions
are upstream's own failures. Where the recording says that v1.36.2 never answered (`timeout`) or crashed (`panic`), our
outcome must be a typed defect at that very point, and nothing after it is compared.
"""

from __future__ import annotations

import gzip
import importlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from podslice.replay.outcome import ONE_OF
from podslice.values.errors import InputError, UpstreamDefectError
from podslice.values.quirks import Quirks
from podslice.values.releases.release import Release
from podslice.values.releases.table import DEFAULT, parse_release

Json = dict[str, Any]

_MODULES = ("managers", "take", "hints", "merge", "checkpoint", "quantity", "cpuset", "api.run")
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MemoryError, msgspec.ValidationError)
_LONGEST_LINE = 8 << 20
_RELEASE_NAME = re.compile(r"(?<![\d.])1\.[2-9]\d(?!\d)")
_RUNNERS: dict[str, Callable[[Json, Quirks, Release], Json]] = {}


class ReplayedCase(NamedTuple):
    """One compared case. `difference` is empty when identical; `defect` names a declared deviation."""

    name: str
    type: str
    difference: str
    defect: str = ""
    expected: Any = None
    actual: Any = None


def read_cases(path: Path) -> Iterator[Json]:
    """Yield the cases of a recording (`.jsonl` or `.jsonl.gz`). Raises `InputError` that names file and line."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
            blank = 0
            for number in count(1):
                line = lines.readline(_LONGEST_LINE)
                if not line:
                    return
                # Blank lines are bounded together: a compressed file of nothing but line breaks would never end.
                if len(line) == _LONGEST_LINE or blank > _LONGEST_LINE:
                    raise InputError(f"line {number} is longer than {_LONGEST_LINE >> 20} MiB", source=str(path))
                if line.strip():
                    yield _parse_line(line, path, number)
                else:
                    blank += len(line)
    except UnicodeDecodeError:
        raise InputError("is not UTF-8 text", source=str(path)) from None
    except (OSError, EOFError) as error:
        problem = getattr(error, "strerror", None) or error
        raise InputError(f"cannot be read: {problem}", source=str(path)) from error


def _parse_line(line: str, path: Path, number: int) -> Json:
    try:
        record = json.loads(line)
    except RecursionError:
        raise InputError(f"line {number} is nested too deeply", source=str(path)) from None
    except ValueError as error:
        raise InputError(f"line {number} is not JSON: {error}", source=str(path)) from None
    if not isinstance(record, dict) or not isinstance(record.get("case"), dict):
        raise InputError(f"line {number} has no object `case`", source=str(path), remedy="see vectors/FORMAT.md")
    return record


def release_of(file: Path, case: Json) -> Release:
    """Return the release that recorded a case: the one it states as `kubernetes`, else the one in the name of its file
    or folder. Raises `InputError` for one that is not known."""
    stated = case.get("kubernetes")
    if stated is not None:
        return parse_release(str(stated))
    named = _RELEASE_NAME.search(f"{file.resolve().parent.name}/{file.name}")
    return parse_release(named[0]) if named else DEFAULT


def case_type(case: Json) -> str:
    """Return the type of a case. Node histories have no `type`, API-level pods may lack it."""
    if "type" in case:
        return str(case["type"])
    return "managers" if "machine" in case and "kubelet" in case else "pod"


def runner(kind: str) -> Callable[[Json, Quirks, Release], Json]:
    """Return the function that runs cases of a type. Raises `InputError` for unknown types."""
    if not _RUNNERS:
        for name in _MODULES:
            module = importlib.import_module(f"podslice.replay.{name}")
            _RUNNERS.update(dict.fromkeys(module.TYPES, module.run))
    try:
        return _RUNNERS[kind]
    except KeyError:
        raise InputError(f"unknown case type {kind!r}", remedy=f"use one of: {', '.join(sorted(_RUNNERS))}") from None


def run_case(case: Json, quirks: Quirks, release: Release = DEFAULT) -> Json:
    """Return our outcome of one case on a kubelet of `release`, in the recording's shape; `{"defect": name}` where
    upstream would hang or crash. Raises `InputError` for a case that is not as FORMAT.md describes it."""
    run = runner(case_type(case))
    try:
        return run(case, quirks, release)
    except UpstreamDefectError as defect:
        return {"defect": defect.name}
    except _MALFORMED as error:
        problem = f"cannot be run: {type(error).__name__}: {error}"
        raise InputError(problem, path=f"case {case.get('name', '')!r}", remedy="see vectors/FORMAT.md") from error


def compare(record: Json, quirks: Quirks, release: Release = DEFAULT) -> ReplayedCase:
    """Run one recorded case and compare."""
    case, expected = record["case"], record["result"]
    if not isinstance(expected, dict):
        raise InputError("has a result that is not an object", path=f"case {case.get('name', '')!r}")
    actual = run_case(case, quirks, release)
    name, kind = str(case.get("name", case.get("in", ""))), case_type(case)
    defect = find_declared_defect(expected, actual)
    if defect:
        return ReplayedCase(name, kind, "", defect)
    difference = first_difference(expected, actual)
    if not difference:
        return ReplayedCase(name, kind, "")
    return ReplayedCase(name, kind, difference, expected=expected, actual=actual)


def find_declared_defect(expected: Json, actual: Json) -> str:
    """Return the defect that our outcome declares for an upstream hang or crash; empty where they do not correspond
    (FORMAT.md)."""
    if expected.get("timeout") is True or "panic" in expected:
        return str(actual.get("defect", ""))
    before, ours = expected.get("ops"), actual.get("ops")
    if not (isinstance(before, list) and isinstance(ours, list)) or not before or len(ours) < len(before):
        return ""
    # A recording of a history ends with the operation that crashed the kubelet; ours may go on after it.
    last = len(before) - 1
    if "panic" not in before[last] or "defect" not in ours[last]:
        return ""
    same = first_difference({**expected, "ops": before[:last]}, {**actual, "ops": ours[:last]}) == ""
    return str(ours[last]["defect"]) if same else ""


def first_difference(expected: Any, actual: Any, path: str = "") -> str:
    """Describe where two results differ first; empty when they are equal, or where a crash of upstream corresponds to a
    defect that we declare."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        if "panic" in expected and "defect" in actual:
            return ""
        for key in [*expected, *(k for k in actual if k not in expected)]:
            if key == ONE_OF or (key == "error" and expected[key] in actual.get(ONE_OF, ())):
                continue
            here = f"{path}.{key}" if path else str(key)
            if key not in actual:
                return f"{here}: missing, expected {_short(expected[key])}"
            if key not in expected:
                return f"{here}: unexpected {_short(actual[key])}"
            difference = first_difference(expected[key], actual[key], here)
            if difference:
                return difference
        return ""
    if isinstance(expected, list) and isinstance(actual, list):
        for index, (one, other) in enumerate(zip(expected, actual, strict=False)):
            difference = first_difference(one, other, f"{path}[{index}]")
            if difference:
                return difference
        if len(expected) != len(actual):
            return f"{path}: {len(expected)} elements expected, {len(actual)} found"
        return ""
    # 1 and 1.0 are the same number in JSON; True and 1 are not the same value, though Python calls them equal.
    if type(expected) is not type(actual) and not _both_numbers(expected, actual):
        return f"{path}: expected {_short(expected)}, found {_short(actual)}"
    return "" if expected == actual else f"{path}: expected {_short(expected)}, found {_short(actual)}"


def _both_numbers(one: Any, other: Any) -> bool:
    return all(isinstance(value, int | float) and not isinstance(value, bool) for value in (one, other))


def _short(value: Any, limit: int = 300) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def compare_all(records: Iterable[Json], quirks: Quirks, release: Release = DEFAULT) -> list[ReplayedCase]:
    """Compare a batch; the unit of work of one process."""
    return [compare(record, quirks, release) for record in records]
