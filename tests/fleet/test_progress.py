"""Progress of a run: shares of cells at work, from the loop of a cell to the output for people and programs."""

from __future__ import annotations

import json
from array import array
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from podslice.fleet.commands.progress import RunProgress, span_text
from podslice.fleet.engine.options import CellOptions
from podslice.fleet.engine.run import run_cell
from podslice.fleet.engine.workload import Workload
from podslice.fleet.scenario.plan import PlanTerms, plan_nodes
from podslice.fleet.workers.progress import ProgressPipe, ProgressReporter, report_through
from tests.fleet.fleets import churn, fleet_of, shape
from tests.fleet.test_equivalence import load_study
from tests.fleet.test_runs import SCENARIO, files_of, fleet


class Stream:
    """A stream that remembers, and says whether it is a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        self.text = ""
        self.terminal = terminal

    def write(self, text: str) -> int:
        self.text += text
        return len(text)

    def flush(self) -> None:
        """Nothing is kept back."""

    def isatty(self) -> bool:
        return self.terminal


class Display:
    """A `RunProgress` with a clock of its own."""

    def __init__(self, total: int, form: str = "auto", *, terminal: bool = False, **more: Any) -> None:
        self.now = 0.0
        self.stream: Any = Stream(terminal=terminal)
        self.progress = RunProgress(total, form, stream=self.stream, clock=lambda: self.now, **more)
        self.progress.begin()

    @property
    def lines(self) -> list[str]:
        return self.stream.text.splitlines()

    @property
    def documents(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


def test_progress_in_lines() -> None:
    """Without a terminal a line comes at once, then every ten seconds, and at the end."""
    display = Display(3)
    for at, key in ((4.0, "a"), (12.0, "b"), (13.0, "c")):
        display.now = at
        display.progress.count(key)
    assert display.lines == [
        "podslice: 0 of 3 cells",
        "podslice: 2 of 3 cells, about 6 s left",
        "podslice: 3 of 3 cells",
    ]


def test_one_long_cell_is_shown() -> None:
    """A single cell of minutes has a line every ten seconds, with its share and the time that the rest takes."""
    display = Display(1)
    for second in range(31):
        display.now = float(second)
        display.progress.report("now~kube~s1", second / 100)
    assert display.lines == [
        "podslice: 0 of 1 cells",
        "podslice: 0 of 1 cells, about 90 s left; now~kube~s1 10 %",
        "podslice: 0 of 1 cells, about 80 s left; now~kube~s1 20 %",
        "podslice: 0 of 1 cells, about 70 s left; now~kube~s1 30 %",
    ]


def test_lines_name_the_furthest_cells() -> None:
    """Of many cells in work the four that are furthest are named; one that is done is in work no more, whatever
    comes late."""
    display = Display(6)
    for place in range(6):
        display.progress.report(f"c{place}", 0.0)
        display.progress.report(f"c{place}", place / 10)
    display.progress.count("c5")
    display.progress.report("c5", 0.9)
    display.now = 10.0
    display.progress.tick()
    assert display.lines[-1] == (
        "podslice: 1 of 6 cells, about 20 s left; c4 40 %, c3 30 %, c2 20 %, c1 10 % and 1 more"
    )


def test_what_a_checkpoint_had_took_no_time() -> None:
    """A cell that goes on at 80 % and is at 90 % after ten seconds needs ten more, not one."""
    display = Display(1, "json")
    display.progress.report("a", 0.8)
    display.now = 10.0
    display.progress.report("a", 0.9)
    assert display.documents[-1]["secondsLeft"] == 10.0


def test_equivalent_cells_are_counted_without_work() -> None:
    """Cells that are not simulated count as done, and not for the time that is left."""
    display = Display(4, "json", work={"a", "c"})
    display.now = 5.0
    display.progress.count("a")
    display.progress.count("b")
    assert display.documents[-1] == {
        "done": 2, "total": 4, "cell": "b", "secondsLeft": 5.0, "share": 0.5, "shares": {}
    }  # fmt: skip


def test_progress_in_json() -> None:
    """A line for every cell, and every second one with the shares of cells in work."""
    display = Display(2, "json")
    display.progress.report("a", 0.25)
    display.now = 1.0
    display.progress.report("b", 0.5)
    display.progress.count("a")
    assert [(one["done"], one["share"], one["shares"]) for one in display.documents] == [
        (0, 0.0, {}),
        (0, 0.375, {"a": 0.25, "b": 0.5}),
        (1, 0.75, {"b": 0.5}),
    ]


def test_progress_as_bars(monkeypatch: pytest.MonkeyPatch) -> None:
    """A terminal has a bar for all and one for each cell in work, which are wiped at the end."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    display = Display(2, terminal=True)
    display.progress.report("now~kube~s1", 0.0)
    display.now = 1.0
    display.progress.report("now~kube~s1", 0.5)
    assert "50 % now~kube~s1" in display.stream.text
    assert "25 % 0 of 2 cells, about 3 s left" in display.stream.text
    display.now = 2.0
    display.progress.count("now~kube~s1")
    assert "50 % 1 of 2 cells" in display.stream.text
    display.progress.end()
    assert display.stream.text.endswith("\x1b[2K")


def test_spans_for_people() -> None:
    """Seconds, minutes, hours."""
    assert [span_text(value) for value in (0.5, 40, 200, 9000)] == ["0.5 s", "40 s", "3 min", "2.5 h"]


# Shares of cells


def test_a_cell_reports_the_share_of_its_arrivals() -> None:
    """From 0 to 1, never back, with steps of no more pods than there are events between two words."""
    found: list[float] = []
    run_cell(fleet_of(4), churn([shape("1")], 2000), CellOptions(), 1, progress=found.append)
    assert (found[0], found[-1]) == (0.0, 1.0)
    assert found == sorted(found)
    assert max(after - before for before, after in pairwise(found)) <= 256 / 2000


def test_progress_of_pods_that_arrive_at_one_moment() -> None:
    """The ends of pods that arrive at one moment count too: half of the arrivals are no half of the cell."""
    pods = 1024
    lengths = array("q", (1000 * (pod + 1) for pod in range(pods)))
    work = Workload.of([shape("10m")], [0] * pods, [0] * pods, lengths)
    found: list[float] = []
    run_cell(fleet_of(20), work, CellOptions(), 1, progress=found.append)
    assert any(0.45 < share < 0.55 for share in found)
    assert any(0.7 < share < 0.9 for share in found)
    assert found[-1] == 1.0


def test_a_cell_that_goes_on_begins_where_it_was() -> None:
    """The first word about a cell with a checkpoint is its share, and the run comes to the same."""
    work = churn([shape("1")], 2000)
    kept: list[bytes] = []
    whole = run_cell(fleet_of(4), work, CellOptions(), 1, offer=lambda take: kept.append(take()))
    found: list[float] = []
    again = run_cell(fleet_of(4), work, CellOptions(), 1, saved=kept[-1], progress=found.append)
    assert found[0] > 0.8
    assert again.summary == whole.summary


def test_a_cell_without_pods_is_done() -> None:
    """Nothing to wait for."""
    found: list[float] = []
    run_cell(fleet_of(1), Workload.of((), [], []), CellOptions(), 1, progress=found.append)
    assert found == [1.0, 1.0]


# The pipe


def test_reports_are_half_a_second_apart() -> None:
    """The first report comes at once, those in between are dropped."""
    now = [0.0]
    found: list[tuple[str, float]] = []
    reporter = ProgressReporter("a", lambda key, share: found.append((key, share)), lambda: now[0])
    for step in range(10):
        now[0] = step / 10
        reporter(step / 10)
    assert found == [("a", 0.0), ("a", 0.5)]


def test_a_full_pipe_loses_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker does not wait for the reader, and complete lines arrive; without a reader it works on."""
    monkeypatch.setattr("podslice.fleet.workers.progress._SINK", type("Sink", (), {})())
    pipe = ProgressPipe()
    report_through(pipe.writer)
    for number in range(20_000):
        ProgressReporter("a key with spaces")(number / 20_000)
    heard = list(pipe.read_new())
    assert 100 < len(heard) < 20_000
    assert {key for key, _ in heard} == {"a key with spaces"}
    assert [share for _, share in heard] == sorted(share for _, share in heard)
    ProgressReporter("b")(0.5)
    assert list(pipe.read_new()) == [("b", 0.5)]
    pipe.close()
    ProgressReporter("c")(0.5)


@pytest.mark.slow
@pytest.mark.process
def test_workers_report_and_the_bytes_stay(tmp_path: Path) -> None:
    """Two processes report shares of their cells; the run is the same as one without reports."""
    path = tmp_path / "scenario.yaml"
    path.write_text(json.dumps(SCENARIO))
    result = fleet("run", path, "--out", tmp_path / "reporting", "--workers", 2, "--progress", "json")
    quiet = fleet("run", path, "--out", tmp_path / "quiet", "--workers", 1, "--progress", "none")
    assert (result.exit_code, quiet.exit_code) == (0, 0), result.output
    lines = [json.loads(line) for line in result.stderr.splitlines() if line.startswith("{")]
    assert (lines[0]["share"], lines[-1]["share"], lines[-1]["done"]) == (0.0, 1.0, 8)
    shares = {key: share for line in lines for key, share in line["shares"].items()}
    assert shares
    assert all(0 <= share < 1 and key.endswith(("~s1", "~s2")) for key, share in shares.items())
    assert "share" not in quiet.stderr
    assert files_of(tmp_path / "reporting") == files_of(tmp_path / "quiet")


def test_a_plan_reports_shares_too(tmp_path: Path) -> None:
    """Of a cell whose nodes are looked for the share rises from question to question, and then it is done."""
    study = load_study(tmp_path, {**SCENARIO, "seeds": [1], "schedulers": {"kube": {}}})
    said: list[tuple[str, float]] = []

    class Listener:
        def report(self, key: str, share: float) -> None:
            said.append((key, share))

        def tick(self) -> None:
            """Nothing happens in one process."""

        def count(self, key: str) -> None:
            said.append((key, -1.0))

    plan_nodes(study, PlanTerms(5.0, 300_000), Listener())
    first, second = (cell.key for cell in study.cells)
    assert (first, 0.0) in said
    assert said.index((first, 1.0)) < said.index((second, 1.0))
    assert sum(share == -1.0 for _, share in said) == 2
    assert all(share < 1 or share == 1.0 for _, share in said)
