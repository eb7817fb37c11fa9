"""`podslice cluster pending|fit|fragmentation`: questions to a running service at its address."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from podslice.cli.output import OUTPUT, quiet_option, with_options

if TYPE_CHECKING:
    from podslice.cluster_view.client import PageAtAddress

F = TypeVar("F", bound=Callable[..., Any])
_URL = "http://127.0.0.1:9101"

ways_option = click.option(
    "--ways/--no-ways",
    default=True,
    help="Search for changes that would help pods that no node takes (default), or not.",
)


def fit_options(command: F) -> F:
    """Add the options that name pods."""
    return with_options(
        command,
        click.option(
            "-f", "--filename", "files", multiple=True, metavar="FILE", help="Pods, or workloads; - is stdin."
        ),
        click.option("--pod", "pods", multiple=True, metavar="[NAMESPACE/]NAME", help="A pod that waits for a node."),
        ways_option,
    )


def _address_options(command: F) -> F:
    return with_options(
        command,
        click.option("--url", default=_URL, show_default=True, envvar="PODSLICE_CLUSTER_URL",
                     help="Its --page-address."),
        click.option("--token-file", metavar="FILE", default="", help="Its token, where it requires one."),
        click.option("--ca-file", metavar="FILE", default="", help="CA file for its certificate."),
    )  # fmt: skip


def _page(url: str, token_file: str, ca_file: str) -> PageAtAddress:
    """Return the page that the options name. Raises `InputError`."""
    from podslice.cluster_view.client import PageAtAddress
    from podslice.service.tokens import read_access_token

    return PageAtAddress(url.rstrip("/"), read_access_token(token_file, "--token-file") if token_file else "", ca_file)


@click.command()
@_address_options
@ways_option
@quiet_option
@OUTPUT("table", "wide")
def pending(*, url: str, token_file: str, ca_file: str, ways: bool, output: str) -> None:
    """List the pods that wait for a node, the most important first: room is kept for them, they are queued, or no node
    takes them and why, with the cheapest way out.

    \b
    Examples:
      podslice cluster pending
      podslice cluster pending --no-ways -o json

    Exit codes: 0 listed, 1 some are refused by all nodes, 2 bad input, or the service does not answer.
    """
    from podslice.cluster_view.commands.printing import print_pending

    sys.exit(print_pending(_page(url, token_file, ca_file), ways=ways, output=output))


@click.command()
@_address_options
@fit_options
@quiet_option
@OUTPUT("table", "wide")
def fit(
    *,
    url: str,
    token_file: str,
    ca_file: str,
    files: tuple[str, ...],
    pods: tuple[str, ...],
    ways: bool,
    output: str,
) -> None:
    """Show which nodes of the cluster take each pod of FILE now, the best first, why the others do not, and what would
    help where none does. Each pod is tried by itself; nothing is created or reserved.

    \b
    Examples:
      podslice cluster fit -f pod.yaml
      podslice cluster fit --pod shop/trainer -o wide

    Exit codes: 0 all can go somewhere, 1 some nowhere, 2 bad input, or the service does not answer.
    """
    from podslice.cluster_view.commands.printing import print_fit

    check_named(files, pods)
    names = tuple(name if "/" in name else f"default/{name}" for name in pods)
    sys.exit(print_fit(_page(url, token_file, ca_file), files, names, ways=ways, output=output))


def check_named(files: tuple[str, ...], pods: tuple[str, ...]) -> None:
    """Raise `UsageError` where no pod is named."""
    if not files and not pods:
        raise click.UsageError("names no pod (give -f FILE or --pod NAMESPACE/NAME)")


@click.command()
@_address_options
@quiet_option
@OUTPUT("table", "wide")
def fragmentation(*, url: str, token_file: str, ca_file: str, output: str) -> None:
    """Show how scattered the free CPUs of the cluster are: how many pods of each size find room on one NUMA node, the
    most scattered nodes, and the history.

    \b
    Examples:
      podslice cluster fragmentation
      podslice cluster fragmentation -o json

    Exit codes: 0 shown, 2 the service does not answer.
    """
    from podslice.cluster_view.commands.printing import print_fragmentation

    sys.exit(print_fragmentation(_page(url, token_file, ca_file), output=output))
