"""The `podslice` command. Sub-commands load when they are called, so that each starts fast."""

from __future__ import annotations

import os
import sys

import click

from podslice.cli.closed_pipe import tolerate_closed_pipes
from podslice.cli.completion import register
from podslice.cli.group import LazyCommand, top_group
from podslice.cli.output import make_printable, print_error, use_colours
from podslice.interrupts import INTERRUPTED, interruptible
from podslice.render.ansi import echo
from podslice.values.errors import PodsliceError

_ANYWHERE = "Anywhere, no cluster needed"
_NODE = "On a node"
_CLUSTER = "For clusters"
_DEVELOPERS = "For scripts and developers"

COMMANDS = {
    "why": LazyCommand(
        "podslice.advise.why.command", "Say why a pod was refused, waits, or runs where it does.", _ANYWHERE
    ),
    "explain": LazyCommand(
        "podslice.advise.explain.command", "Say why a pod is refused, and what would make it fit.", _ANYWHERE
    ),
    "admit": LazyCommand("podslice.admit.command", "Decide where pods land on a node, and show it.", _ANYWHERE),
    "draw": LazyCommand("podslice.draw.command", "Draw a node: terminal, SVG, PNG or HTML; watch it live.", _ANYWHERE),
    "serve": LazyCommand("podslice.serve.command", "Show a node on a local page and try pods there.", _ANYWHERE),
    "inspect": LazyCommand(
        "podslice.advise.inspect.command", "Show what Kubernetes makes of a pod's resources, on one page.", _ANYWHERE
    ),
    "lint": LazyCommand(
        "podslice.advise.lint.command", "Warn about pods and kubelet configurations before they hurt.", _ANYWHERE
    ),
    "whatif": LazyCommand(
        "podslice.advise.whatif.command", "Compare kubelet configurations and machines for the same pods.", _ANYWHERE
    ),
    "upgrade": LazyCommand(
        "podslice.advise.upgrade.command", "Say what another release of the kubelet changes.", _ANYWHERE
    ),
    "reserve": LazyCommand(
        "podslice.advise.reserve.command", "Advise what a node should keep for its system.", _ANYWHERE
    ),
    "defrag": LazyCommand(
        "podslice.advise.defrag.command", "Plan the fewest moves that make room for a pod.", _ANYWHERE
    ),
    "topology": LazyCommand("podslice.topology.command", "Show a machine as the kubelet sees it.", _ANYWHERE),
    "capture": LazyCommand(
        "podslice.host.bundle.command", "Write what is known on a node into one file.", _NODE, linux=True
    ),
    "state": LazyCommand("podslice.state_files.commands.state", "Show, verify, convert and repair state files.", _NODE),
    "audit": LazyCommand("podslice.audit.command", "Compare a node's cgroups with its state files.", _NODE, linux=True),
    "probe": LazyCommand(
        "podslice.isolation.command", "Measure how late a thread wakes on its CPUs.", _NODE, linux=True
    ),
    "agent": LazyCommand("podslice.agent.command", "Run the node agent.", _NODE),
    "status": LazyCommand("podslice.status.command", "Show what the agent on this node does.", _NODE, linux=True),
    "guards": LazyCommand(
        "podslice.guards.command", "Show what the agent changed in the kernel, and restore it.", _NODE, linux=True
    ),
    "cluster": LazyCommand("podslice.cluster.command", "Give kube-scheduler the exact model of every node.", _CLUSTER),
    "fleet": LazyCommand("podslice.fleet.commands", "Simulate and compare whole clusters.", _CLUSTER),
    "replay": LazyCommand("podslice.replay.command", "Run recorded decisions of Kubernetes and compare.", _DEVELOPERS),
    "schema": LazyCommand("podslice.cli.schema", "Print the JSON Schema of a kind of document.", _DEVELOPERS),
    "man": LazyCommand("podslice.cli.man", "Print manual pages.", _DEVELOPERS),
    "version": LazyCommand("podslice.cli.version", "Print the version.", _DEVELOPERS),
}


@top_group(
    COMMANDS,
    epilog="Exit codes: 0 all well, 1 the answer is no (pods refused, cases differ), 2 bad input.",
)
@click.option("--version", "ask_version", is_flag=True, help="Print the version and exit.")
@click.pass_context
def cli(ctx: click.Context, *, ask_version: bool) -> None:
    """Make the kubelet's CPU, memory, device and topology decisions without a cluster, and show why.

    \b
    Examples:
      podslice admit pod.yaml                         # on this very machine
      podslice admit pod.yaml --machine epyc-9654-nps4 --config kubelet.yaml
      podslice topology --machine epyc-9654-nps4
    """
    if ask_version:
        from podslice.cli.version import version

        ctx.invoke(version, output="table")
    elif ctx.invoked_subcommand is None:
        echo(ctx.get_help())


def main() -> None:
    """Entry point of `podslice`."""
    run_command(cli, "podslice")


def run_command(command: click.Command, name: str) -> None:
    """Run a command under the name it is called by. Our errors become one line and exit code 2. Without a terminal, or
    with NO_COLOR set, output has no colours."""
    make_printable()
    with tolerate_closed_pipes():
        _run(command, name)


def _run(command: click.Command, name: str) -> None:
    variable = f"_{name.replace(' ', '_').upper()}_COMPLETE"
    if variable in os.environ:
        register()
    try:
        with interruptible():
            command(
                prog_name=name, standalone_mode=False, color=None if use_colours() else False, complete_var=variable
            )
            sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        sys.exit(2)
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else name
        _fail(f"{_plain(error.format_message())}; {where} --help says more")
    except click.ClickException as error:
        _fail(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        sys.exit(INTERRUPTED)
    except PodsliceError as error:
        _fail(error)
    except OSError as error:
        what = error.filename or "the output cannot be written"
        print_error(f"{what}: {error.strerror or error}")
        _give_up_output(2)
    except MemoryError:
        # Reported below: while the error is handled, its traceback still holds the memory.
        pass
    else:
        return
    _fail("there is not enough memory for this input; give it less, or raise the limit (ulimit -v)")


def _fail(problem: object) -> None:
    print_error(problem)
    sys.exit(2)


def _plain(message: str) -> str:
    """Return click's message in the form of ours: one line, no capital, no full stop."""
    text = " ".join(message.split()).replace("'. (Did", "' (did")
    return text[:1].lower() + text[1:].rstrip(".")


def _give_up_output(code: int) -> None:
    """Leave without writing what is still buffered."""
    # The interpreter flushes standard output when it exits, and would report the full disk a second time.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
