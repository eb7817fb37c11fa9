"""`kubectl podslice why`: why a pod of the cluster was refused, waits, or runs where it does."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from podslice.cli.output import OUTPUT, quiet_option
from podslice.kubectl.commands.capture import CAPTURE_KEYS, capture_options, gather_node, write_bundle
from podslice.kubectl.commands.options import agents_of, cluster_options, complete_node
from podslice.render.ansi import show_path_as
from podslice.values.errors import InputError


@click.command()
@click.argument("name", metavar="[NAMESPACE/]POD")
@cluster_options
@click.option("--node", "where", metavar="NODE", default="", shell_complete=complete_node,
              help="For a pod without a node: what would this node say?")  # fmt: skip
@click.option("--capture", is_flag=True, help="Also look on the node, with a pod that is deleted afterwards.")
@capture_options
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
              help="Keep what was gathered, as a bundle for every command's --node.")  # fmt: skip
@click.option("--fixes/--no-fixes", default=True, help="Search for changes that would admit a refused pod.")
@quiet_option
@OUTPUT("table", "wide")
def why(*, name: str, where: str, capture: bool, out: Path | None, fixes: bool, output: str, **options: Any) -> None:
    """Say why a pod is as it is: why its kubelet refused it, why it has no node, why it waits, or which CPUs it has.
    All that the API server has is gathered first: the pod, its node and its events, the kubelet's configuration, the
    pods of the node, ResourceSlices, NodeResourceTopology, and what the node's agent knows.

    CPU numbers, NUMA nodes and the kubelet's state files are on the node alone. Without an agent there, --capture
    fetches them with a short-lived pod, which is shown before it is made, or --ssh through ssh; otherwise the machine
    is assumed, and the answer says so.

    \b
    Examples:
      kubectl podslice why shop/web-0
      kubectl podslice why -n shop web-0 --capture
      kubectl podslice why shop/web-0 --ssh node7 --sudo --out node7.podslice.tar.gz

    Exit codes: 0 it runs, waits as usual or has succeeded, 1 it was refused, has no node or fails, 2 bad input, or no
    answer.
    """
    from podslice.advise.why.command import answer_bundle
    from podslice.api.manifests.fields import part_of
    from podslice.api.manifests.manifest import pods_from_documents
    from podslice.host.bundle.opened import open_bundle
    from podslice.kubectl.why.gather import node_pod, read_pod

    namespace, slash, short = name.rpartition("/")
    if not short or "/" in namespace or (slash and not namespace):
        raise InputError(f"{name!r} is not a pod", remedy="write NAMESPACE/NAME, or -n NAMESPACE NAME")
    how = {key: options.pop(key) for key in CAPTURE_KEYS}
    agents = agents_of(options)
    namespace = namespace or agents.cluster.namespace
    data = read_pod(agents.cluster, namespace, short)
    node = str(part_of(data, "spec").get("nodeName") or where)
    (asked,) = pods_from_documents([node_pod(node, data)], "the API server").pods
    with tempfile.TemporaryDirectory(prefix="podslice-") as folder:
        path = out or Path(folder) / "bundle"
        scratch = Path(folder) / "open"
        scratch.mkdir()
        gathered = gather_node(agents, node, (namespace, short), how, with_pod=capture)
        write_bundle(path, gathered)
        ctx = click.get_current_context()
        show_path_as(ctx, str(scratch), str(out or node or "the cluster"))
        show_path_as(ctx, folder, str(node or "the cluster"))
        code = answer_bundle(open_bundle(path, scratch), asked, fixes=fixes, output=output)
        sys.stdout.flush()
    sys.exit(code)
