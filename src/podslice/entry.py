"""Entry points. From the import of this module on, Ctrl-C ends the process with exit code 130 and no output."""

from podslice.interrupts import leave_at_once


def main() -> None:
    """Run `podslice`."""
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
