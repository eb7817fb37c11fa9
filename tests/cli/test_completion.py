"""Completion in bash, zsh and fish, and manual pages."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.shell_completion import FishComplete, ZshComplete

from podslice.cli.completion import Bash
from podslice.cli.main import cli
from podslice.cli.man import manual_pages
from podslice.kubectl.commands.main import NAME, kubectl
from podslice.values.errors import InputError
from tests.test_docs_commands import all_commands

WORDS = {
    "bash": lambda line: {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)},
    "zsh": lambda line: {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)},
    "fish": lambda line: {"COMP_WORDS": line, "COMP_CWORD": line.split()[-1]},
}
CASES = [
    ("podslice ad", "admit"),
    ("podslice admit --ma", "--machine"),
    ("podslice admit --machine epyc", "epyc-9654-nps4"),
    ("podslice whatif --machine epyc", "epyc-9654-nps4"),
    ("podslice admit -o js", "json"),
    ("podslice lint --explain PS10", "PS101"),
    ("podslice lint --select PS101,PS20", "PS101,PS202"),
    ("podslice lint --ignore nearly", "nearly-guaranteed"),
    ("podslice schema admis", "AdmissionReport"),
    ("podslice state sh", "show"),
    ("podslice admit --set topologyManagerPo", "topologyManagerPolicy=single-numa-node"),
    ("podslice admit --set maxP", "maxPods="),
    ("podslice whatif --set featureGates.MemoryQ", "featureGates.MemoryQoS=true"),
    ("podslice admit --set cpuManagerPolicyOptions.full", "cpuManagerPolicyOptions.full-pcpus-only=true"),
]


SHELLS = {"bash": Bash, "zsh": ZshComplete, "fish": FishComplete}


def answers(shell: str, **variables: str) -> list[str]:
    """Return the completions for a shell with these variables."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in variables.items():
            patch.setenv(name, value)
        return SHELLS[shell](cli, {}, "podslice", "_PODSLICE_COMPLETE").complete().splitlines()


@pytest.mark.parametrize("shell", WORDS)
def test_every_shell_is_answered(shell: str) -> None:
    """Commands, options, values, machines, rules, kinds, fields of --set: each shell gets them in its own form."""
    for line, wanted in CASES:
        lines = answers(shell, **WORDS[shell](line))
        found = lines[1::3] if shell == "zsh" else [one.partition(",")[2].partition("\t")[0] for one in lines]
        assert wanted in found, (shell, line, found[:10])


@pytest.mark.parametrize("shell", WORDS)
def test_files_are_left_to_the_shell(shell: str) -> None:
    """Where a file is wanted the shell is told to complete one."""
    for line in (
        "podslice admit po",
        "podslice admit --config ku",
        "podslice admit --devices d",
        "podslice state show c",
    ):
        assert any(one.startswith("file") for one in answers(shell, **WORDS[shell](line))), line


def test_bash_gets_what_follows_the_equals_sign() -> None:
    """bash cuts words at `=`; the answer is the value alone, and `--set=FIELD=` works as well."""
    for words, place in (
        ("podslice admit --set cpuManagerPolicy = st", 5),
        ("podslice admit --set = cpuManagerPolicy = st", 6),
        ("podslice admit --set cpuManagerPolicy =", 4),
    ):
        assert "plain,static" in answers("bash", COMP_WORDS=words, COMP_CWORD=str(place)), words


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.process
def test_bash_really_completes(tmp_path: Path) -> None:
    """The function that bash is given offers the values, and no space after a field that wants a value."""
    (tmp_path / "podslice").write_text(f'#!/bin/sh\nexec {sys.executable} -m podslice "$@"\n')
    (tmp_path / "podslice").chmod(0o755)
    script = """
        eval "$(_PODSLICE_COMPLETE=bash_source podslice)" 2>/dev/null
        compopt() { echo compopt "$@"; }
        COMP_WORDS=(podslice admit --set cpuManagerPolicy = s) COMP_CWORD=5
        _podslice_completion podslice; echo "${COMPREPLY[@]}"
        COMPREPLY=() COMP_WORDS=(podslice admit --set maxP) COMP_CWORD=3
        _podslice_completion podslice; echo "${COMPREPLY[@]}"
    """
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    result = subprocess.run(["bash", "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert result.stdout.split("\n")[:3] == ["static", "compopt -o nospace", "maxPods="]


PAGES = {**dict(manual_pages(cli, "podslice")), **dict(manual_pages(kubectl, NAME))}


def test_every_command_has_a_page() -> None:
    """One page for each command; it names every option with its help."""
    commands = {"podslice": cli, NAME: kubectl, **dict(all_commands(cli)), **dict(all_commands(kubectl, NAME))}
    assert set(PAGES) == set(commands)
    for path, command in commands.items():
        context = click.Context(command, info_name=path)
        plain = PAGES[path].replace("\\-", "-").replace("\\&", "")
        for param in command.get_params(context):
            if isinstance(param, click.Option) and not param.hidden:
                assert all(name in plain for name in param.opts), (path, param.opts)
        assert ".SH NAME" in plain


@pytest.mark.parametrize("path", PAGES)
@pytest.mark.process
def test_pages_are_good_roff(path: str) -> None:
    """Lines that begin with a dot are requests we mean, nothing but ASCII, and groff has nothing to say."""
    text = PAGES[path]
    assert text.isascii()
    requests = {line.split()[0] for line in text.splitlines() if line.startswith((".", "'"))}
    assert requests <= {".TH", ".SH", ".PP", ".TP", ".B", ".nf", ".fi"}
    if shutil.which("groff") is not None:
        checked = subprocess.run(["groff", "-man", "-Tutf8", "-ww"], input=text, capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, "")


def test_man_command(tmp_path: Path) -> None:
    """`man` prints a page, `--out` writes all of them, and a command that does not exist is one line."""
    from click.testing import CliRunner

    runner = CliRunner()
    assert runner.invoke(cli, ["man", "state", "show"]).stdout == PAGES["podslice state show"]
    assert runner.invoke(cli, ["man"]).stdout == PAGES["podslice"]
    assert runner.invoke(cli, ["man", "kubectl", "podslice", "top"]).stdout == PAGES["kubectl podslice top"]
    assert runner.invoke(cli, ["man", "--out", str(tmp_path / "man1")]).exit_code == 0
    assert {file.name for file in (tmp_path / "man1").iterdir()} == {f"{path.replace(' ', '-')}.1" for path in PAGES}
    failed = runner.invoke(cli, ["man", "brew"])
    assert isinstance(failed.exception, InputError)
    assert "no such command 'brew'" in str(failed.exception)
