"""Commands that need no node run on macOS and Windows, where no module, function or file of Linux is."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from podslice.cli.main import COMMANDS

pytestmark = [pytest.mark.process, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
NODE = ("--machine", "epyc-9654-nps4", "--config", "examples/kubelet.yaml")
REFUSED = ("examples/pods.yaml", *NODE)


def ask(system: str, *commands: tuple[str, ...]) -> list[tuple[int, str, str]]:
    """Run commands in one process that takes itself for `system`; exit code, output and errors of each."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.cli.other_system", system],
        input=json.dumps(commands), capture_output=True, text=True, cwd=ROOT,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    return [tuple(answer) for answer in json.loads(ran.stdout)]


@pytest.fixture(params=["win32", "darwin"])
def system(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_questions_have_their_answers(system: str, tmp_path: Path) -> None:
    """The answers are those of Linux, character for character, on standard output and in files."""
    commands = [
        ("admit", *REFUSED),
        ("explain", *REFUSED, "--only-refused"),
        ("draw", "--pods", "examples/pods.yaml", *NODE),
        ("inspect", "examples/small.yaml", *NODE),
        ("lint", "examples/pods.yaml", "--config", "examples/kubelet.yaml", "-o", "sarif"),
        ("whatif", "examples/small.yaml", "--machine", "laptop-i5-8250u"),
        ("upgrade", "--from", "1.36", "--to", "1.37", *NODE, "--pods", "examples/pods.yaml"),
        ("reserve", *NODE),
        ("defrag", "examples/small.yaml", *NODE),
        ("topology", "--list"),
        ("topology", "--machine", "epyc-9654-nps4", "-o", "nrt"),
        ("fleet", "init", "compare", "--out", "FOLDER/fleet"),
        ("draw", "--pods", "examples/pods.yaml", *NODE, "--out", "FOLDER/node.svg"),
        ("explain", *REFUSED, "--out", "FOLDER/explain.html"),
    ]  # fmt: skip

    def answers(name: str, folder: Path) -> tuple[list[tuple[int, str, str]], dict[str, bytes]]:
        folder.mkdir()
        there = [tuple(word.replace("FOLDER", str(folder)) for word in words) for words in commands]
        found = [tuple(str(part).replace(str(folder), "") for part in one) for one in ask(name, *there)]
        return found, {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}  # type: ignore[return-value]

    here, elsewhere = answers("linux", tmp_path / "linux"), answers(system, tmp_path / system)
    assert [answer for answer in here[0] if answer[0] == "2"] == []
    assert set(here[1]) == {"explain.html", "node.svg"}
    assert elsewhere == here


def test_every_command_has_help(system: str) -> None:
    """`--help` and manual pages of all commands are there, also of those that run on nodes."""
    answers = ask(system, *((name, "--help") for name in COMMANDS), *(("man", name) for name in COMMANDS))
    assert [answer for answer in answers if answer[0]] == []


def test_the_agents_configuration_can_be_checked(system: str) -> None:
    """A configuration for a named machine is checked before it reaches a node; the agent itself does not start."""
    agent = ("agent", "--config", "deploy/agent.yaml", "--machine", "epyc-9654-nps4")
    checked, started = ask(system, (*agent, "--check-config"), agent)
    assert (checked[0], checked[1].partition(";")[0]) == (0, "deploy/agent.yaml: good")
    assert started[0] == 2
    assert "podslice agent runs on a Linux node" in started[2]


def test_a_node_is_elsewhere(system: str) -> None:
    """What looks at this machine says that it is no node, and which options name one."""
    name = {"win32": "Windows", "darwin": "Darwin"}[system]
    for code, output, errors in ask(
        system, ("topology",), ("admit", "examples/small.yaml"), ("explain", "examples/small.yaml")
    ):
        assert (code, output) == (2, "")
        assert f"this machine runs {name} (name a machine: --machine NAME" in errors
    for code, output, errors in ask(system, ("capture",), ("audit",), ("probe",), ("status",), ("guards",)):
        assert (code, output) == (2, "")
        assert f"runs on a Linux node, and this machine runs {name} (run it there" in errors


@pytest.mark.parametrize("encoding", ["latin-1", "utf-8"])
def test_an_encoding_without_our_characters(encoding: str) -> None:
    """Where the user's encoding lacks a character, a question mark stands for it, and the answer is printed."""
    command = [sys.executable, "-m", "podslice", "admit", *REFUSED]
    ran = subprocess.run(command, capture_output=True, env={**os.environ, "PYTHONIOENCODING": encoding}, cwd=ROOT)
    assert ran.returncode == 1
    assert f" A A {'┊' if encoding == 'utf-8' else '?'} A A " in ran.stdout.decode(encoding)
