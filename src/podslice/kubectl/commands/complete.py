"""`kubectl_complete-podslice`, which kubectl runs for completions: a line for each possible word, then a directive."""

from __future__ import annotations

import sys

from click.shell_completion import ShellComplete

from podslice.kubectl.commands.main import NAME, kubectl
from podslice.render.ansi import echo

_NO_FILES, _FILES = ":4", ":0"
"""Directives of cobra, kubectl's library for commands: no file names, or the shell's default."""


def main() -> None:
    """Print the completions; the last argument is the unfinished word."""
    *words, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(kubectl, {}, NAME, "").get_completions(words, incomplete)
    for item in found:
        if item.type == "plain":
            echo(item.value if item.help is None else f"{item.value}\t{item.help}")
    echo(_FILES if any(item.type == "file" for item in found) else _NO_FILES)
