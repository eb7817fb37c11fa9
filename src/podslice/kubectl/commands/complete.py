"""What kubectl asks `kubectl_complete-podslice` for: a line for each word that could come, and whether files could."""

from __future__ import annotations

import sys

from click.shell_completion import ShellComplete

from podslice.kubectl.commands.main import NAME, kubectl
from podslice.render.ansi import echo

_NO_FILES, _FILES = ":4", ":0"


def main() -> None:
    """The last argument is the word that is being written."""
    *words, incomplete = sys.argv[1:] or [""]
    found = ShellComplete(kubectl, {}, NAME, "").get_completions(words, incomplete)
    for item in found:
        if item.type == "plain":
            echo(item.value if item.help is None else f"{item.value}\t{item.help}")
    echo(_FILES if any(item.type == "file" for item in found) else _NO_FILES)
