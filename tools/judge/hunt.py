"""Hunt through one batch of new cases: draw, judge, compare, then confirm and minimise what differs."""

from __future__ import annotations

import json
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import NamedTuple

import msgspec

from podslice.replay.run import ReplayedCase, case_type, compare
from podslice.values.errors import InputError
from podslice.values.quirks import KUBELET_1_36
from tools.judge.binary import ask
from tools.judge.chance import Json
from tools.judge.edits import draw_edit, draw_file
from tools.judge.histories import draw_history
from tools.judge.minimise import minimise
from tools.judge.units import draw_hints, draw_merge, draw_take

DRAW: dict[str, Callable[[Random, str], Json]] = {
    "managers": draw_history,
    "edits": draw_edit,
    "files": draw_file,
    "take": draw_take,
    "hints": draw_hints,
    "merge": draw_merge,
}
BATCH = {"managers": 40, "edits": 40, "files": 40, "take": 400, "hints": 400, "merge": 400}
CONFIRMATIONS = 60
_OUR_SECONDS = 10.0
_CANNOT_RUN = "podslice cannot run it"
_PATIENCE = {"managers": 10.0, "edits": 10.0}


class Batch(NamedTuple):
    """A range of cases to draw: `size` cases of a kind and seed, beginning with number `first`."""

    kind: str
    seed: int
    first: int
    size: int


class Difference(msgspec.Struct):
    """A case on which podslice and the judge differ. A firm difference has the smallest case that shows it. `result` is
    the judge's, `text` says where ours departs from it."""

    name: str
    case: Json
    result: Json
    text: str


class Outcome(msgspec.Struct):
    """Counts and differences of one batch."""

    counts: Counter[str]
    differences: list[Difference]


def draw_batch(batch: Batch) -> list[Json]:
    """Draw the cases of a batch. The same batch always gives the same cases."""
    draw = DRAW[batch.kind]
    cases = []
    for number in range(batch.first, batch.first + batch.size):
        name = f"{batch.kind}-{batch.seed}-{number}"
        cases.append(draw(Random(name), name))
    return cases


def hunt(judge: Path, batch: Batch) -> Outcome:
    """Run one batch; the unit of work of one process.

    A case on which both agree is done. Upstream iterates over unordered maps in places, so a case on which they differ
    is put to the judge many times more; unless its answers are all the same, the difference is chance and is dropped.
    """
    cases = draw_batch(batch)
    patience = _PATIENCE.get(batch.kind, 3.0)
    found = Outcome(Counter(cases=len(cases)), [])
    try:
        results = ask(judge, cases, patience)
    except RuntimeError:
        found.counts["unanswered"] += len(cases)
        return found
    for case, result in zip(cases, results, strict=True):
        comparison = judge_case(case, result)
        if result.get("timeout") and not comparison.defect:
            found.counts["timeouts"] += 1
        elif comparison.difference:
            _confirm(judge, case, result, comparison, found, patience)
        else:
            _count(found.counts, result)
            found.counts["predicted"] += bool(comparison.defect)
    return found


def judge_case(case: Json, result: Json) -> ReplayedCase:
    """Compare our outcome with the judge's, in profile kubelet-1.36."""
    try:
        with _limit_cpu_time(_OUR_SECONDS):
            comparison = compare({"case": case, "result": result}, KUBELET_1_36)
    except InputError as error:
        return ReplayedCase(str(case["name"]), case_type(case), f"{_CANNOT_RUN}: {error}")
    except TimeoutError:
        return ReplayedCase(str(case["name"]), case_type(case), f"podslice needs more than {_OUR_SECONDS:g} s")
    if comparison.difference and _same_but_for_presentation(
        comparison, files="files" in json.dumps(case.get("ops", []))
    ):
        return comparison._replace(difference="")
    return comparison


@contextmanager
def _limit_cpu_time(seconds: float) -> Iterator[None]:
    """Raise `TimeoutError` in the block after `seconds` of CPU time."""

    def give_up(signum: int, frame: object) -> None:
        raise TimeoutError

    before = signal.signal(signal.SIGVTALRM, give_up)
    # CPU time, not the clock: several hunts share the machine, and a busy one must not make a case too slow.
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)


def _same_but_for_presentation(comparison: ReplayedCase, *, files: bool) -> bool:
    """Whether a difference is only in how state files are shown.

    The judge sorts the lists of a memory state file and marks it (`memoryCheckpointReordered`). With edited `files` it
    rewrites such a file in the kubelet's version, even one that verified in no version; podslice shows it as it is.
    """
    return _strip_presentation(comparison.expected, files=files) == _strip_presentation(comparison.actual, files=files)


def _strip_presentation(value: object, *, files: bool) -> object:
    if isinstance(value, dict):
        return {
            key: _content(key, own) if files else _strip_presentation(own, files=False)
            for key, own in value.items()
            if key != "memoryCheckpointReordered"
        }
    if isinstance(value, list):
        return [_strip_presentation(own, files=files) for own in value]
    return value


def _content(key: str, value: object) -> object:
    if key in ("memoryCheckpoint", "memory_manager_state") and isinstance(value, str):
        try:
            content = json.loads(value)
        except ValueError:
            return value
        if isinstance(content, dict):
            return {name: own for name, own in content.items() if name not in ("checksum", "podEntries")}
    return _strip_presentation(value, files=True)


def _count(counts: Counter[str], result: Json) -> None:
    counts["kept"] += 1
    if "panic" in result:
        counts["panics"] += 1
    for operation in result.get("ops", ()):
        if "panic" in operation:
            counts["panics"] += 1
        if "skipped" in operation:
            continue
        if operation.get("op") == "admit":
            counts["admissions"] += 1
            counts["admitted"] += bool(operation.get("ok"))
        elif operation.get("op") == "restart":
            counts["restarts"] += 1
            counts["re-admissions"] += len(operation.get("readmit") or ())
        else:
            counts["other operations"] += 1


def _confirm(judge: Path, case: Json, result: Json, comparison: ReplayedCase, found: Outcome, patience: float) -> None:
    """Put a case to the judge again, `CONFIRMATIONS` times. Varying answers are chance; timeouts prove nothing."""
    answers = ask(judge, [case] * CONFIRMATIONS, patience)
    if any(answer.get("timeout") for answer in answers):
        found.counts["timeouts"] += 1
        return
    if any(answer != result for answer in answers):
        found.counts["chance"] += 1
        if len({judge_case(case, answer).difference.partition(":")[0] for answer in answers}) == 1:
            found.counts["chance without our answer"] += 1
            text = f"{CONFIRMATIONS} answers by chance, none is ours there: {comparison.difference}"
            found.differences.append(Difference(case["name"], case, result, text))
        return
    _count(found.counts, result)
    found.counts["firm differences"] += 1
    small = minimise(case, lambda cases: _still_different(judge, cases, patience))
    answer = ask(judge, [small], patience)[0]
    text = judge_case(small, answer).difference or comparison.difference
    found.differences.append(Difference(case["name"], small, answer, text))


def _still_different(judge: Path, cases: list[Json], patience: float) -> list[bool]:
    """Whether each case still differs: the judge gives the same answer five times, and podslice another."""
    try:
        answers = [ask(judge, cases, patience) for _ in range(5)]
    except RuntimeError:  # a case that is not a case any more ends the judge
        return (
            [False] * len(cases) if len(cases) == 1 else [_still_different(judge, [one], patience)[0] for one in cases]
        )
    verdicts = []
    for place, case in enumerate(cases):
        own = [answer[place] for answer in answers]
        alike = all(answer == own[0] for answer in own) and not own[0].get("timeout")
        verdicts.append(alike and _differs(case, own[0]))
    return verdicts


def _differs(case: Json, result: Json) -> bool:
    """Whether podslice's outcome differs from `result`; False for a case that we cannot run."""
    try:
        difference = judge_case(case, result).difference
    except Exception:  # a minimised case may be invalid, such as one that starts a container of a pod that is gone
        return False
    return difference != "" and not difference.startswith(_CANNOT_RUN)
