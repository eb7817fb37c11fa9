"""The page of results of the scenarios in a cluster: a run writes its own rows and keeps the others."""

from __future__ import annotations

import datetime
import re
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent
_HEAD = ("id", "promise", "result", "seconds", "run")
_RULE = ("---", "---", "---", "---:", "---")
_ROW = re.compile(r"\| (X-K\d\d) \| .* \| (pass|FAIL)[^|]* \| (\d*) \| ([^|]*) \|\Z")
_NOT_RUN = "not run"


class ClusterOutcome(NamedTuple):
    """One scenario. An empty `problem` is a pass; `stopped`: its machine did not answer any more."""

    ident: str
    seconds: float
    problem: str
    stopped: bool = False


class _Kept(NamedTuple):
    """The result of a scenario, its seconds, and the run that it is of."""

    result: str
    seconds: str
    run: str


def this_run() -> str:
    """The day, and the commit that the checkout is at."""
    command = ["git", "-C", str(REPOSITORY), "rev-parse", "--short=9", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"{datetime.datetime.now(datetime.UTC):%Y-%m-%d} {done.stdout.strip()}".strip()


def markdown(outcomes: Iterable[ClusterOutcome], promises: Mapping[str, str], run: str, before: str = "") -> str:
    """The page: a row for each of `promises`, from these outcomes, else as the page `before` has it."""
    kept = {
        match[1]: _Kept(match[2], match[3], match[4]) for line in before.splitlines() if (match := _ROW.match(line))
    }
    for one in outcomes:
        kept[one.ident] = _Kept("FAIL" if one.problem else "pass", f"{one.seconds:.0f}", run)
    rows = [(ident, promise, *kept.get(ident, _Kept(_NOT_RUN, "", ""))) for ident, promise in sorted(promises.items())]
    table = "\n".join(f"| {' | '.join(row)} |" for row in (_HEAD, _RULE, *rows))
    return f"# Results in a cluster\n\n{_summary([row[2] for row in rows], {row[4] for row in rows})}\n\n{table}\n"


def _summary(results: list[str], runs: set[str]) -> str:
    passed = results.count("pass")
    how = "at one commit" if len(runs) == 1 else "each when its row says"
    return (
        f"{passed} of {len(results)} scenarios passed, {how} ([e2e.md](e2e.md#in-a-cluster)). A run is a day and the\n"
        "commit that the checkout was at. Seconds are those of an emulated machine."
    )
