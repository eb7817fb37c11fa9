"""The first code of the command. From its import on, Ctrl-C ends the process with exit code 130 and no words."""

from podslice.interrupts import leave_at_once


def main() -> None:
    """The command line."""
    from podslice.cli.main import main as command

    command()


def kubectl() -> None:
    """The plugin of kubectl."""
    from podslice.kubectl.commands.main import main as command

    command()


def kubectl_complete() -> None:
    """What kubectl runs to complete the plugin's words."""
    from podslice.kubectl.commands.complete import main as command

    command()


leave_at_once()
