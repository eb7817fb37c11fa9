"""The `podslice` command. Sub-commands load when they are called, so that each starts fast."""

from __future__ import annotations

import importlib
import sys

import click

from podslice.core.errors import PodsliceError

_COMMANDS = {
    "admit": "Decide where pods land on a node, and show it.",
    "agent": "Run the node agent.",
    "audit": "Compare a node's cgroups with its state files.",
    "defrag": "Plan the fewest moves that make room for a pod.",
    "draw": "Draw a node: terminal, SVG or HTML; watch it live.",
    "explain": "Say why a pod is refused, and what would make it fit.",
    "inspect": "Show what Kubernetes makes of a pod's resources, on one page.",
    "lint": "Warn about pods and kubelet configurations before they hurt.",
    "replay": "Run recorded decisions of Kubernetes and compare.",
    "serve": "Show a node on a local page and try pods there.",
    "state": "Show, verify, convert and repair state files.",
    "status": "Show what the agent on this node does.",
    "topology": "Show a machine as the kubelet sees it.",
    "version": "Print the version.",
    "whatif": "Compare kubelet configurations and machines for the same pods.",
}


class _LazyGroup(click.Group):
    """Knows every sub-command's name and one-line help without importing it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _COMMANDS:
            return None
        module = importlib.import_module(f"podslice.cli.{cmd_name}")
        command = getattr(module, cmd_name)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, _COMMANDS[name]) for name in sorted(_COMMANDS)])


@click.group(
    cls=_LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit codes: 0 all well, 1 the answer is no (pods refused, cases differ), 2 bad input.",
)
def cli() -> None:
    """podslice takes the kubelet's CPU, memory, device and topology decisions, and shows why.

    \b
    Examples:
      podslice admit pod.yaml                         # on this very machine
      podslice admit pod.yaml --machine epyc-9654-nps4 --config kubelet.yaml
      podslice topology --machine epyc-9654-nps4
    """


def main() -> None:
    """Entry point: errors of ours become one line and exit code 2."""
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(2)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(130)
    except PodsliceError as error:
        click.echo(f"podslice: error: {error}", err=True)
        sys.exit(2)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(141)


if __name__ == "__main__":
    main()
