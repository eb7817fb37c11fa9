"""Entry points. From the import of this module on, Ctrl-C ends the process with exit code 130 and no output."""

import sys

from podslice.interrupts import leave_at_once


def main() -> None:
    """Run `podslice`."""
    if sys.argv[1:] == ["--version"]:  # what asks for it in a loop does not wait for the command line's imports
        from podslice.cli.closed_pipe import tolerate_closed_pipes
        from podslice.version import version_line

        with tolerate_closed_pipes():
            print(version_line())
        return
    from podslice.cli.main import main as command

    command()


def kubectl() -> None:
    """Run the plugin of kubectl."""
    from podslice.kubectl.commands.main import main as command

    command()


def kubectl_complete() -> None:
    """Complete the words of the plugin; kubectl runs this."""
    from podslice.kubectl.commands.complete import main as command

    command()


leave_at_once()
