"""The hunt for differences, with a judge of our own."""

from __future__ import annotations

import lzma
import os
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner
from tools.judge import hunt as hunting
from tools.judge.__main__ import main
from tools.judge.binary import ask, find
from tools.judge.hunt import BATCH, DRAW, Batch, draw_batch, hunt, judge_case
from tools.judge.minimise import minimise

from podslice.replay.run import run_case
from podslice.values.errors import InputError
from podslice.values.quirks import KUBELET_1_36

ROOT = Path(__file__).parents[2]


@pytest.fixture
def judge(tmp_path: Path) -> Path:
    """A program that answers like podslice, but for some names."""
    program = tmp_path / "judge"
    paths = shlex.quote(os.pathsep.join([str(ROOT), str(ROOT / "src")]))
    fake = shlex.quote(str(Path(__file__).with_name("fake_judge.py")))
    program.write_text(f'#!/bin/sh\nPYTHONPATH={paths} exec {shlex.quote(sys.executable)} {fake} "$@"\n')
    program.chmod(0o755)
    return program


@pytest.mark.parametrize("kind", DRAW)
@pytest.mark.slow
def test_cases_are_drawn_again(kind: str) -> None:
    """A seed draws the same cases each time, other numbers draw others, and podslice can run them all."""
    cases = draw_batch(Batch(kind, 7, 0, 6))
    assert cases == draw_batch(Batch(kind, 7, 0, 6))
    assert cases[3:] == draw_batch(Batch(kind, 7, 3, 3))
    assert len({str(case) for case in cases}) == 6
    for case in cases:
        assert run_case(case, KUBELET_1_36)


@pytest.mark.slow
def test_most_pods_are_admitted() -> None:
    """Histories have many restarts, and at least half of their admissions succeed."""
    counts: Counter[str] = Counter()
    for case in draw_batch(Batch("managers", 5, 0, 80)):
        hunting._count(counts, run_case(case, KUBELET_1_36))
    assert counts["admitted"] > counts["admissions"] / 2 > 100
    assert counts["restarts"] > counts["admissions"] / 6


@pytest.mark.slow
@pytest.mark.parametrize("kind", DRAW)
def test_agreement(judge: Path, kind: str) -> None:
    """Where both say the same nothing is found."""
    found = hunt(judge, Batch(kind, 3, 0, 4))
    assert found.differences == []
    assert found.counts["cases"] == found.counts["kept"] == 4


def named(monkeypatch: pytest.MonkeyPatch, name: str) -> Batch:
    """A batch of one merge with this name."""
    draw = DRAW["merge"]
    monkeypatch.setitem(DRAW, "merge", lambda r, _: draw(r, name))
    return Batch("merge", 2, 4, 1)


@pytest.mark.slow
def test_difference(judge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A firm difference is reported with a smaller case that still shows it."""
    batch = named(monkeypatch, "lie")
    (case,) = draw_batch(batch)
    found = hunt(judge, batch)
    assert found.counts["firm differences"] == 1
    (difference,) = found.differences
    assert difference.text.startswith("admit: expected")
    assert len(str(difference.case)) < len(str(case))
    assert ask(judge, [difference.case]) == [difference.result]


@pytest.mark.parametrize(
    ("name", "counted", "told"),
    [
        pytest.param("chance", "chance", "5 answers by chance, none is ours", id="chance"),
        pytest.param("slow", "timeouts", "", id="timeout"),
    ],
)
def test_nothing_firm(judge: Path, monkeypatch: pytest.MonkeyPatch, name: str, counted: str, told: str) -> None:
    """An answer of the judge that varies, or is late, is not a firm difference."""
    monkeypatch.setattr(hunting, "CONFIRMATIONS", 5)
    found = hunt(judge, named(monkeypatch, name))
    assert [one.text[: len(told)] for one in found.differences] == [told] * bool(told)
    assert found.counts[counted] == 1
    assert found.counts["firm differences"] == found.counts["kept"] == 0


def test_ours_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """A case that podslice never answers, while the judge does, is a difference."""

    def endless(record: object, quirks: object) -> None:
        while True:
            pass

    monkeypatch.setattr(hunting, "_OUR_SECONDS", 0.01)
    monkeypatch.setattr(hunting, "compare", endless)
    (case,) = draw_batch(Batch("take", 1, 0, 1))
    assert judge_case(case, {}).difference == "podslice needs more than 0.01 s"


def test_smallest_case() -> None:
    """Parts go as long as the difference stays."""
    case = {"ops": [{"op": "gc"}, {"op": "restart", "gc": False}, {"op": "gc"}], "devices": [], "kubelet": {"a": 1}}
    small = minimise(case, lambda cases: [any(one["op"] == "restart" for one in c["ops"]) for c in cases])
    assert small == {"ops": [{"op": "restart"}], "kubelet": {}}


@pytest.mark.process
def test_finding_the_judge(tmp_path: Path) -> None:
    """The variable names a binary, a folder or a packed binary, which is unpacked into the user's cache once."""
    environment = {"HOME": str(tmp_path / "home")}
    assert find(environment) is None
    folder = tmp_path / "home/.cache/podslice/judge"
    folder.mkdir(parents=True)
    (folder / "judge.xz").write_bytes(lzma.compress(b"#!/bin/sh\necho it ran\n"))
    unpacked = find(environment)
    assert unpacked is not None
    assert unpacked.parent == tmp_path / "home/.cache/podslice"
    assert subprocess.check_output([unpacked]) == b"it ran\n"
    assert find({**environment, "PODSLICE_JUDGE": str(folder)}) == unpacked
    assert find({**environment, "PODSLICE_JUDGE": str(folder / "judge.xz")}) == unpacked
    assert find({"PODSLICE_JUDGE": str(unpacked)}) == unpacked
    (folder / "judge").write_bytes(b"plain")
    assert find({"XDG_CACHE_HOME": str(tmp_path / "home/.cache")}) == folder / "judge"
    with pytest.raises(InputError):
        find({"PODSLICE_JUDGE": str(tmp_path / "nothing")})


@pytest.mark.slow
def test_command(judge: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command prints its seed and one line of counts, and writes differences to a file."""
    monkeypatch.setenv("PODSLICE_JUDGE", str(judge))
    monkeypatch.setitem(BATCH, "merge", 3)
    found = tmp_path / "found.jsonl"
    options = ["--cases", "5", "--kinds", "merge,take", "--jobs", "1", "--found", str(found)]
    done = CliRunner().invoke(main, [*options, "--seed", "12"])
    assert done.exit_code == 0
    assert done.output.startswith("judge: seed 12, 5 cases of merge, take\n5 cases, 0 admissions")
    assert not found.exists()


def test_command_without_a_judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a judge there is one line and exit 2, or 0 where it is not asked for."""
    monkeypatch.delenv("PODSLICE_JUDGE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    for options, code in (([], 2), (["--skip-without"], 0)):
        done = CliRunner().invoke(main, options)
        assert done.exit_code == code
        assert done.output.count("\n") == 1
    assert CliRunner().invoke(main, ["--kinds", "nothing"]).exit_code == 2
