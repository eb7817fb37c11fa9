"""`podslice capture`: write the bundle of a node."""

from __future__ import annotations

import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from podslice.cli.output import PRIVATE_MODE, print_warnings, write_bytes
from podslice.host.bundle.layout import Manifest
from podslice.node.checkpoints.names import STATE_DIRECTORY
from podslice.render.ansi import echo
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.host.bundle.written import BundleParts


_SOCKET = "pod-resources/kubelet.sock"


@click.command()
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
              help="The bundle (default: NODE.podslice.tar.gz).")  # fmt: skip
@click.option("--ssh", "host", metavar="HOST", help="Capture this host through ssh; it needs a shell and tar.")
@click.option("--sudo", is_flag=True, help="With --ssh: as root, by sudo without a password.")
@click.option("--kubelet", metavar="DIR", type=click.Path(path_type=Path), default=STATE_DIRECTORY, show_default=True,
              help="The kubelet's folder.")  # fmt: skip
@click.option("--pod-resources", "socket", metavar="SOCKET", type=click.Path(path_type=Path),
              help="Print only what the kubelet answers here (List, GetAllocatableResources), as JSON.")  # fmt: skip
def capture(*, out: Path | None, host: str | None, sudo: bool, kubelet: Path, socket: Path | None) -> None:
    """Write what is known on a node into one file, a bundle: the hardware, the kubelet's state files and its
    configuration, and what the kubelet's PodResources API answers. Every command takes it with --node. It holds no
    secrets (docs/why.md).

    Without --ssh the node is this one; the state files can be read by root. `kubectl podslice capture` gathers what
    the cluster knows, and where podslice is not installed, deploy/capture.sh writes a bundle.

    \b
    Examples:
      podslice capture
      podslice capture --ssh node7 --sudo --out node7.podslice.tar.gz

    Exit codes: 0 written, 2 bad input.
    """
    if sudo and host is None:
        raise InputError("is for --ssh", path="--sudo", remedy="sudo podslice capture")
    if socket is not None:
        for name, given in (("--ssh", host), ("--out", out)):
            if given is not None:
                raise InputError("is not for --pod-resources", path=name, remedy="leave it out")
        echo(_ask(socket).decode())
        return
    if host is not None:
        manifest, data = _from_host(host, sudo=sudo)
    else:
        manifest, data = _from_here(kubelet)
    target = out or Path(f"{Path(manifest.node or 'node').name}.podslice.tar.gz")
    write_bytes(target, data, mode=PRIVATE_MODE)
    print_warnings(tuple(f"{part} is missing: {reason}" for part, reason in manifest.missing))
    echo(f"{target}: {manifest.node or 'a node'}, {len(data) // 1024} KiB; podslice explain POD.yaml --node {target}")


def _from_host(host: str, *, sudo: bool) -> tuple[Manifest, bytes]:
    from podslice.host.bundle.ssh import capture_by_ssh

    with tempfile.TemporaryDirectory(prefix="podslice-") as folder:
        path = Path(folder) / "capture"
        return capture_by_ssh(host, path, sudo=sudo), path.read_bytes()


def _from_here(kubelet: Path) -> tuple[Manifest, bytes]:
    import platform

    from podslice.host.bundle.written import capture_node

    parts = capture_node(kubelet)
    _add_answers(parts, kubelet / _SOCKET)
    captured = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    manifest = Manifest(platform.node(), captured, "podslice capture", tuple(parts.missing))
    return manifest, parts.archive(manifest)


def _add_answers(parts: BundleParts, socket: Path) -> None:
    """Add what the kubelet answers at a socket, if there is one."""
    from podslice.host.bundle.layout import POD_RESOURCES, Missing

    try:
        if socket.is_socket():
            parts.files[POD_RESOURCES] = _ask(socket)
    except (OSError, InputError) as error:
        parts.missing.append(Missing(POD_RESOURCES, str(error)))


def _ask(socket: Path) -> bytes:
    """Return what the kubelet's PodResources API answers, as JSON. Raises `InputError`."""
    import asyncio

    from google.protobuf.json_format import MessageToDict

    from podslice.service.kubeletresources import KubeletResources, UpstreamError

    async def ask() -> dict[str, Any]:
        kubelet = KubeletResources(socket)
        return {"list": MessageToDict(await kubelet.list()), "allocatable": MessageToDict(await kubelet.allocatable())}

    try:
        return msgspec.json.format(msgspec.json.encode(asyncio.run(ask())), indent=1)
    except UpstreamError as error:
        raise InputError(error.details, remedy="it is root's, and there while the kubelet runs") from None
