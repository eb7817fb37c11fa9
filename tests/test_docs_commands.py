"""Every command that README, docs and `--help` show is one the tool understands, and prints what they show."""

from __future__ import annotations

import contextlib
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import click
import pytest

from podslice.cli.main import cli, main
from podslice.kubectl.commands.main import NAME, kubectl

ROOT = Path(__file__).parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def command_lines(text: str) -> Iterator[str]:
    """The lines of a text that call the tool, without prompt, what is piped into them, and where their output goes.
    "podslice reads no such annotation" is what the tool says."""
    for line in text.replace("\\\n", " ").splitlines():
        if not re.match(r"\s+|\$ ", line):
            continue
        found = re.match(r"\s*(?:\$ )?(?:[^|`]*\| )?((?:kubectl )?podslice [^|>]+)", line)
        if found is not None and not found[1].startswith("podslice reads no"):
            yield found[1].strip()


def documented() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for line in command_lines(page.read_text(encoding="utf-8")):
            yield page.name, line


def all_commands(group: click.Group, prefix: str = "podslice") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group, info_name=prefix)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield f"{prefix} {name}", command
        if isinstance(command, click.Group):
            yield from all_commands(command, f"{prefix} {name}")


def is_option(words: list[str]) -> bool:
    """Where no command follows: the group does something by itself."""
    return not words or words[0].startswith("-")


def parse(line: str) -> click.Context:
    """Let click read a command line, options and their values, without running it."""
    words = [word for word in shlex.split(line, comments=True) if word not in ("...", "…")]
    command: click.Command = cli
    if words[0] == "kubectl":
        command, words = kubectl, words[1:]
    context = click.Context(command, info_name="podslice")
    assert words.pop(0) == "podslice"
    while isinstance(command, click.Group) and not (command.name == "cluster" and is_option(words[:1])):
        name = words.pop(0)
        found = command.get_command(context, name)
        assert found is not None, name
        command = found
    # The files of the documents do not exist here; a bundle is the only one that is opened while options are read.
    with mock.patch("podslice.cli.options.bundle.use_bundle"):
        read = command.make_context(command.name, words, parent=context)
    read.close()  # --quiet has opened the null device
    return read


@pytest.mark.parametrize(("page", "line"), list(documented()), ids=lambda value: value)
def test_documented_commands_are_understood(page: str, line: str) -> None:
    """A command line in the documents has a command and options that exist; what it does may stand beside it."""
    assert parse(re.sub(r"\s{3,}\S.*", "", line)).command is not None


ALL = [*all_commands(cli), *all_commands(kubectl, NAME)]


@pytest.mark.parametrize(("name", "command"), ALL, ids=lambda value: str(value))
def test_help_has_examples_that_are_understood(name: str, command: click.Command) -> None:
    """Every command's help shows an example and the exit codes, and every example is one the tool understands."""
    lines = list(command_lines(command.help or ""))
    assert lines, f"{name} has no example"
    assert "Exit codes: 0 " in (command.help or "") or name in ("podslice version", "podslice serve")
    for line in lines:
        assert parse(line).command is not None


def shown() -> Iterator[tuple[str, str, str]]:
    for page in PAGES:
        for block in re.findall(r"```text\n\$ (podslice .*?)```", page.read_text(encoding="utf-8"), re.DOTALL):
            line, _, output = block.partition("\n")
            yield page.name, line, output


@pytest.mark.parametrize(("page", "line", "output"), list(shown()), ids=lambda value: value[:60])
def test_documented_output_is_what_is_printed(
    page: str, line: str, output: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The output below a command in a document is that of the command; a line with … leaves something out."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    with contextlib.suppress(SystemExit):
        main()
    printed = capsys.readouterr().out.splitlines()
    place = 0
    for wanted in output.splitlines():
        if not wanted.strip(" ….|") or not wanted.strip():
            continue
        if place and wanted.strip() in printed[place - 1]:  # the end of a line that was left out in the middle
            continue
        begin = wanted.partition("…")[0].rstrip()
        place = next((at for at in range(place, len(printed)) if printed[at].startswith(begin)), len(printed))
        assert place < len(printed), f"{page} shows {wanted!r}, which is not printed there"
        place += 1


OTHER_MEANINGS = {("--strict", "audit"), ("--devices", "topology"), ("--strict", "reserve"), ("--pods", "reserve"),
                  ("--node", "fleet show")}  # fmt: skip
"""Options that only have their name in common with those of the table."""


def test_option_table_is_complete() -> None:
    """docs/cli.md names, for each option that means the same everywhere, exactly the commands that have it."""
    having: dict[str, set[str]] = {}
    for path, command in all_commands(cli):
        name = path.removeprefix("podslice ")
        for param in command.params:
            for option in (*param.opts, *param.secondary_opts) if isinstance(param, click.Option) else ():
                if (option, name) not in OTHER_MEANINGS:
                    having.setdefault(option, set()).add(name)
            if param.name == "output" and isinstance(param.type, click.Choice) and "wide" in param.type.choices:
                having.setdefault("-o wide", set()).add(name)
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`-.*?`) \| (`.*?`) \| ", text, re.MULTILINE)
    documented = {
        option: set(re.findall(r"`(.+?)`", commands))
        for options, commands in rows
        for option in re.findall(r"`(-o wide|--?[a-z-]+)", options)
    }
    assert documented == {option: having[option] for option in documented}
    shared = {option for option, commands in having.items() if len(commands) >= 5 and option.startswith("--")}
    assert shared - {"--output", "--predicates", "--validate"} <= set(documented)
