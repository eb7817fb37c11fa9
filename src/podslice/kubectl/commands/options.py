"""Options of every command of the plugin, for its cluster and the agents. They may also stand before the command."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from podslice.api.pod.names import check_namespace_name
from podslice.cli.output import with_options
from podslice.kubectl.agents import LABEL, Agents
from podslice.values.duration import DurationError, parse_duration
from podslice.values.errors import InputError, PodsliceError

if TYPE_CHECKING:
    from podslice.cluster_view.client import ClusterPages
    from podslice.kubectl.client import HTTPCluster

F = TypeVar("F", bound=Callable[..., Any])
_TIMEOUT, _COMPLETION_TIMEOUT = 10.0, 2.0


def cluster_options(command: F) -> F:
    """Add the options to a command, which passes their values to `agents_of`."""
    return with_options(
        command,
        click.option("--kubeconfig", metavar="FILE", help="Instead of KUBECONFIG and ~/.kube/config."),
        click.option("--context", metavar="NAME", help="A context of it (default: the current one)."),
        click.option("--cluster", metavar="NAME", help="A cluster of it instead of the context's."),
        click.option("--user", metavar="NAME", help="A user of it instead of the context's."),
        click.option("-n", "--namespace", metavar="NAME", help="Where pods are looked for (default: the context's)."),
        click.option("--request-timeout", metavar="TIME", help="How long one request may take (default: 10s)."),
        click.option("--agent-namespace", metavar="NAME", help="Where the agents run (default: podslice)."),
        click.option("--agent-label", metavar="LABEL", help=f"Which pods they are (default: {LABEL})."),
        click.option("--via", type=click.Choice(["proxy", "port-forward"]),
                     help="How to reach them (default: as each is set up)."),
    )  # fmt: skip


def agents_of(options: dict[str, Any]) -> Agents:
    """Return the agents of the cluster that the options name. Raises `InputError`."""
    given = _with_group_options(options)
    return Agents(_cluster(given), _agent_namespace(given), given["agent_label"] or LABEL, given["via"] or "")


def page_of(options: dict[str, Any]) -> ClusterPages:
    """Return the pages of `podslice cluster`, which runs in the agents' namespace. Raises `InputError`."""
    from podslice.cluster_view.client import ClusterPages

    given = _with_group_options(options)
    return ClusterPages(_cluster(given), _agent_namespace(given), via=given["via"] or "")


def _agent_namespace(given: dict[str, Any]) -> str:
    return check_namespace_name(given["agent_namespace"] or "podslice", "--agent-namespace")


def _cluster(given: dict[str, Any]) -> HTTPCluster:
    from podslice.kubectl.client import HTTPCluster
    from podslice.kubectl.kubeconfig import AccessOptions, find_access

    names = ("kubeconfig", "context", "cluster", "user", "namespace")
    chosen = AccessOptions(*(given[name] or "" for name in names))
    access = find_access(chosen, os.environ)
    return HTTPCluster(access, timeout=_seconds(given["request_timeout"]))


def _with_group_options(options: dict[str, Any]) -> dict[str, Any]:
    ctx = click.get_current_context(silent=True)
    before = (ctx.obj if ctx is not None else None) or {}
    return {name: before.get(name) if value is None else value for name, value in options.items()}


def _seconds(text: str | None) -> float:
    """Parse a time as kubectl writes it: `5s`, `1m`, or a number of seconds. 0 means no limit, which is an hour
    here."""
    if text is None:
        return _TIMEOUT
    try:
        seconds = float(text) if text.replace(".", "", 1).isdecimal() else parse_duration(text) / 1e9
    except DurationError:
        raise InputError(f"{text!r} is not a time", path="--request-timeout", remedy="write 5s or 1m") from None
    if seconds < 0:
        raise InputError(f"{text!r} is negative", path="--request-timeout", remedy="write 5s or 1m")
    return seconds or 3600.0


def complete_node(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete names of nodes with an agent, if the cluster answers within two seconds."""
    found: dict[str, Any] = dict.fromkeys(
        ("kubeconfig", "context", "cluster", "user", "namespace", "agent_namespace", "agent_label", "via")
    )
    # Options before the command are those of a parent context.
    while ctx is not None:
        found |= {name: value for name, value in ctx.params.items() if name in found and found[name] is None}
        ctx = ctx.parent  # type: ignore[assignment]
    try:
        agents = agents_of({**found, "request_timeout": str(_COMPLETION_TIMEOUT)})
        return [CompletionItem(agent.node) for agent in agents.all() if agent.node.startswith(incomplete)]
    except PodsliceError:
        return []
