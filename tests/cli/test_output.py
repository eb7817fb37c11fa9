"""Output as it comes, bars for people who wait, and no more than was asked for."""

from __future__ import annotations

import errno
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from podslice.advise.explain.command import explain
from podslice.cli.output import write_text
from podslice.cli.progress import progress
from podslice.values.errors import InputError
from tests.shell import podslice as run

NODE = ("--machine", "epyc-9654-nps4", "--config", "examples/kubelet.yaml")


class Terminal(io.StringIO):
    """A terminal that remembers all it was sent."""

    def isatty(self) -> bool:
        return True


def test_a_bar_appears_after_two_seconds() -> None:
    """Nothing is drawn at first; then a bar while the next item is made, wiped before each item and in the end."""
    now, terminal = [0.0], Terminal()
    drawn = []

    def slow() -> Iterator[int]:
        for number in range(4):
            now[0] += 1.0
            drawn.append(terminal.getvalue().rsplit("\r\x1b[K", 1)[-1])
            yield number

    seen = []
    for number in progress(slow(), total=4, what="pods", stream=terminal, clock=lambda: now[0]):
        assert not terminal.getvalue() or terminal.getvalue().endswith("\r\x1b[K")
        seen.append(number)
    assert seen == [0, 1, 2, 3]
    assert drawn == ["", "", "[############............] 2 of 4 pods", "[##################......] 3 of 4 pods"]
    assert terminal.getvalue().endswith("\r\x1b[K")


def test_no_bar_without_a_terminal() -> None:
    """Where standard error is not a terminal nothing is written, however long the work takes."""
    stream = io.StringIO()
    clock = iter(range(0, 1000, 10)).__next__
    assert list(progress("abc", total=3, what="pods", stream=stream, clock=clock)) == ["a", "b", "c"]
    assert stream.getvalue() == ""


def test_explanations_are_printed_as_they_come(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The first pod's text is out before the second pod is looked at."""
    from podslice.advise.explain import explain as module

    outputs = []
    original = module.explain_each

    def watched(*args: Any, **options: Any) -> Iterator[Any]:
        for one in original(*args, **options):
            yield one
            outputs.append(capsys.readouterr().out)

    monkeypatch.setattr(module, "explain_each", watched)
    with pytest.raises(SystemExit):
        explain.main(["examples/pods.yaml", *NODE], standalone_mode=False)
    assert len(outputs) == 4
    assert all(" is " in text and ("would be admitted" in text or "would be refused" in text) for text in outputs)


@pytest.mark.slow
def test_only_refused_pods() -> None:
    """--only-refused leaves admitted pods out, in every form; exit codes and decisions are the same."""
    whole = json.loads(run("explain", "examples/pods.yaml", *NODE, "-o", "json").stdout)
    result = run("explain", "examples/pods.yaml", *NODE, "--only-refused", "-o", "json")
    assert result.returncode == 1
    assert json.loads(result.stdout)["items"] == [pod for pod in whole["items"] if not pod["admitted"]]
    text = run("explain", "examples/pods.yaml", *NODE, "--only-refused").stdout
    assert "would be admitted" not in text
    assert text.index("What makes it fit") < text.index("Candidates for")
    admitted = json.loads(run("admit", "examples/pods.yaml", *NODE, "--only-refused", "-o", "json").stdout)
    assert [pod["admitted"] for pod in admitted["pods"]] == [False]
    assert run("inspect", "examples/pods.yaml", "--only-refused").stdout == ""


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("explain", "examples/pods.yaml", *NODE),
        ("admit", "examples/pods.yaml", *NODE),
        ("inspect", "examples/pods.yaml"),
        ("defrag", "examples/pods.yaml", *NODE),
        ("whatif", "examples/pods.yaml", "--machine", "laptop-i5-8250u"),
        ("lint", "examples/pods.yaml"),
    ],
)
def test_quiet_says_it_with_the_exit_code(arguments: tuple[str, ...]) -> None:
    """--quiet prints nothing and keeps the exit code; mistakes are still told."""
    loud, quiet = run(*arguments), run(*arguments, "--quiet")
    assert loud.stdout
    assert (quiet.stdout, quiet.stderr, quiet.returncode) == ("", "", loud.returncode)
    wrong = run(arguments[0], "missing.yaml", *arguments[2:], "-q")
    assert wrong.returncode == 2
    assert "missing.yaml" in wrong.stderr


def test_quiet_restores_standard_output() -> None:
    """After a quiet command in the same process printing works as before."""
    runner = CliRunner()
    quiet = runner.invoke(explain, ["examples/small.yaml", *NODE, "-q"])
    loud = runner.invoke(explain, ["examples/small.yaml", *NODE])
    assert quiet.output == ""
    assert "was " in loud.output


def test_a_full_disk_leaves_the_older_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No half picture takes the place of a whole one, and none is left beside it."""
    picture = tmp_path / "node.svg"
    picture.write_text("old")

    def full(path: Path, data: bytes) -> int:
        with path.open("wb") as file:
            file.write(data[:2])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        write_text(picture, "new picture")
    monkeypatch.undo()
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("node.svg", "old")]


def test_a_picture_keeps_its_mode_and_its_link(tmp_path: Path) -> None:
    """A file is overwritten as an editor would: mode and links stay."""
    picture, link = tmp_path / "node.svg", tmp_path / "link.svg"
    picture.write_text("old")
    picture.chmod(0o640)
    link.symlink_to(picture)
    write_text(link, "new")
    assert (picture.read_text(), picture.stat().st_mode & 0o777, link.is_symlink()) == ("new\n", 0o640, True)
