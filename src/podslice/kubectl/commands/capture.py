"""`kubectl podslice capture`: write what the cluster and the node know of a node into one file."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from podslice.cli.output import PRIVATE_MODE, is_quiet, print_warnings, with_options, write_bytes
from podslice.host.bundle.layout import Manifest
from podslice.kubectl.commands.options import agents_of, cluster_options, complete_node
from podslice.node.checkpoints.names import STATE_DIRECTORY
from podslice.render.ansi import echo
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.host.bundle.written import BundleParts
    from podslice.kubectl.agents import Agents

F = TypeVar("F", bound=Callable[..., Any])
_SECONDS = 120


def capture_options(command: F) -> F:
    """Add the options about looking on a node; the command passes them to `gather_node`."""
    return with_options(
        command,
        click.option("--ssh", "host", metavar="HOST", help="Look on the node through ssh, not with a pod."),
        click.option("--sudo", is_flag=True, help="With --ssh: as root, by sudo without a password."),
        click.option("--image", metavar="IMAGE", help="Of the pod; with a shell and tar (default: the agent's)."),
        click.option("--pod-namespace", metavar="NAME", default="kube-system", show_default=True,
                     help="Where the pod is made."),
        click.option("--kubelet", metavar="DIR", default=STATE_DIRECTORY, show_default=True,
                     help="The kubelet's folder on the node."),
        click.option("--patience", metavar="SECONDS", type=click.IntRange(5, 3600), default=_SECONDS,
                     show_default=True, help="How long the pod may take; then it ends by itself."),
        click.option("-y", "--yes", is_flag=True, help="Make the pod without asking."),
    )  # fmt: skip


class Gathered(NamedTuple):
    """The parts of a bundle, and its manifest."""

    parts: BundleParts
    manifest: Manifest


@click.command()
@click.argument("node", metavar="NODE", shell_complete=complete_node)
@cluster_options
@click.option("--pod/--no-pod", "with_pod", default=True, help="Look on the node with a pod, or ask the cluster only.")
@capture_options
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
              help="The bundle (default: NODE.podslice.tar.gz).")  # fmt: skip
def capture(*, node: str, with_pod: bool, out: Path | None, **options: Any) -> None:
    """Write what is known of NODE into one file, a bundle, which every command of podslice takes with --node: what the
    API server and the node's agent have, and, with a short-lived pod or through ssh, what only the node knows. It holds
    no secrets (docs/why.md).

    The pod reads /sys, /proc and the kubelet's folder, and writes nothing. It is shown before it is made, and deleted
    afterwards.

    \b
    Examples:
      kubectl podslice capture n7
      kubectl podslice capture n7 --image busybox:1.36 --yes --out n7.podslice.tar.gz
      kubectl podslice capture n7 --no-pod

    Exit codes: 0 written, 2 bad input, or no answer.
    """
    how = {key: options.pop(key) for key in CAPTURE_KEYS}
    agents = agents_of(options)
    gathered = gather_node(agents, node, None, how, with_pod=with_pod and how["host"] is None)
    target = out or Path(f"{node}.podslice.tar.gz")
    size = write_bundle(target, gathered)
    print_warnings(tuple(f"{part} is missing: {reason}" for part, reason in gathered.manifest.missing))
    echo(f"{target}: {node}, {size // 1024} KiB; podslice explain POD.yaml --node {target}")


CAPTURE_KEYS = ("host", "sudo", "image", "pod_namespace", "kubelet", "patience", "yes")
"""Parameters of `capture_options`."""


def gather_node(
    agents: Agents, node: str, events_of: tuple[str, str] | None, how: Mapping[str, Any], *, with_pod: bool
) -> Gathered:
    """Gather what is known of a node; nothing for an empty name. `how` are the values of `capture_options`. Raises
    `InputError`."""
    from podslice.host.bundle.captured import add_capture
    from podslice.host.bundle.written import BundleParts
    from podslice.kubectl.why.gather import gather, gather_events

    if with_pod and how["host"] is not None:
        raise InputError("--capture and --ssh both look on the node", remedy="give one of them")
    if how["sudo"] and how["host"] is None:
        raise InputError("is for --ssh", path="--sudo", remedy="leave it out: the pod runs as root")
    if node:
        parts = gather(agents, node, events_of)
    else:
        parts = BundleParts() if events_of is None else gather_events(agents.cluster, events_of)
    if node and (with_pod or how["host"] is not None):
        agent_files = {name: data for name, data in parts.files.items() if name.startswith("kubelet/")}
        with tempfile.TemporaryDirectory(prefix="podslice-") as folder:
            path = Path(folder) / "capture"
            _capture(agents, node, how, path)
            add_capture(parts, path)
        parts.files |= agent_files
    captured = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return Gathered(parts, Manifest(node, captured, "kubectl podslice", tuple(parts.missing)))


def write_bundle(path: Path, gathered: Gathered) -> int:
    """Write a bundle, and return its size in bytes. Raises `InputError`."""
    data = gathered.parts.archive(gathered.manifest)
    write_bytes(path, data, mode=PRIVATE_MODE)
    return len(data)


def _capture(agents: Agents, node: str, how: Mapping[str, Any], target: Path) -> None:
    """Look on the node, and write what came back. Raises `InputError`."""
    if how["host"] is not None:
        from podslice.host.bundle.ssh import capture_by_ssh

        capture_by_ssh(how["host"], target, sudo=how["sudo"])
        return
    from podslice.api.pod.names import check_namespace_name
    from podslice.kubectl.why.capture_pod import CapturePlan, capture_by_pod, new_pod, shown_pod
    from podslice.reading.yaml import dump

    if not how["kubelet"].startswith("/") or ".." in how["kubelet"].split("/"):
        raise InputError(f"{how['kubelet']!r} is not an absolute path", path="--kubelet", remedy="/var/lib/kubelet")
    plan = CapturePlan(
        node,
        how["image"] or _agent_image(agents, node),
        check_namespace_name(how["pod_namespace"], "--pod-namespace"),
        how["kubelet"],
        how["patience"],
    )
    pod = new_pod(plan)
    if not is_quiet():
        echo(dump(shown_pod(pod)), err=True, nl=False)
    if not how["yes"]:
        if not sys.stdin.isatty():
            raise InputError("there is no terminal to ask on", path="--capture", remedy="--yes makes the pod above")
        if not click.confirm(f"Make this pod on {node}, and delete it afterwards?", err=True):
            raise InputError("no pod was made", remedy="without --capture the cluster alone is asked, or --ssh HOST")
    capture_by_pod(agents.cluster, pod, target, warn=lambda line: print_warnings((line,)))


def _agent_image(agents: Agents, node: str) -> str:
    """Return the image of the agent on a node, or of any. Raises `InputError` where there is none."""
    remedy = "--image names one with a shell and tar, such as busybox:1.36"
    try:
        found = agents.all()
        agent = next((one for one in found if one.node == node), found[0])
        image = agents.cluster.read(agent.path)["spec"]["containers"][0]["image"]
    except (InputError, KeyError, IndexError, TypeError) as error:
        problem = error.problem if isinstance(error, InputError) else "its agents have no image"
        raise InputError(f"no image is known: {problem}", path="--image", remedy=remedy) from None
    return str(image)
