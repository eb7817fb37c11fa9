"""`podslice fleet import`: a live cluster as a scenario."""

from __future__ import annotations

from pathlib import Path

import click

from podslice.cli.output import prose_width
from podslice.fleet.importing.kube_import import Imported, import_cluster
from podslice.render.ansi import echo
from podslice.render.prose import wrap_lines
from podslice.values.quantity import plural

_SOURCES = {"nrt": "from NodeResourceTopology", "assumed": "assumed", "captured": "captured"}


@click.command("import")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--out", required=True, metavar="DIR", type=click.Path(path_type=Path, file_okay=False),
              help="Folder of the scenario and its files.")  # fmt: skip
@click.option("--since", default="", metavar="TIME",
              help="Make a history of several dumps of pods, from this time on (2026-01-31T12:00:00Z).")  # fmt: skip
@click.option("--anonymise", is_flag=True, help="Hashes instead of names, and only labels of the machine.")
def import_(*, folder: Path, out: Path, anonymise: bool, since: str) -> None:
    """Make a scenario of a live cluster from the dumps in DIR, and print what is missing and assumed. Output of kubectl
    is recognized by its content, files of nodes by their path:

    \b
    kubectl get nodes -o json > dump/nodes.json
    kubectl get pods -A -o json > dump/pods.json
    kubectl get noderesourcetopologies -o json > dump/nrt.json
    kubectl get --raw /api/v1/nodes/NODE/proxy/configz > dump/configz/NODE.json
    podslice topology --capture dump/machines/NODE.tar.xz         # on the node
    cp -r /var/lib/kubelet/*_state dump/state/NODE/                # on the node
    kubectl get nodestates -o json > dump/nodestates.json          # of podslice's agents
    curl -G PROMETHEUS/api/v1/query -d 'query=kube_pod_container_resource_requests[7d]' > dump/requests.json

    With state files (kubelet_internal_checkpoint among them) pods start with exactly their CPUs, memory and devices;
    with NodeResourceTopology they are placed so that its sums agree; else they are admitted again. Metrics are a
    history of pods, as several dumps are.

    \b
    Examples:
      podslice fleet import dump --out cluster
      podslice fleet import dump --out history --since 2026-01-31T12:00:00Z
      podslice fleet run cluster/scenario.yaml

    Exit codes: 0 imported, 2 bad input.
    """
    _print(import_cluster(folder, out, anonymise=anonymise, since=since), out)


def _print(found: Imported, out: Path) -> None:
    machines = ", ".join(f"{_SOURCES[source]} for {count}" for source, count in sorted(found.by_source.items()))
    echo(f"{plural(found.nodes, 'node')}: machines {machines}")
    if found.since:
        echo(f"{plural(found.placed, 'pod')} on nodes at {found.since}, {found.pending} come later")
    else:
        echo(f"{plural(found.placed, 'pod')} on nodes, {found.pending} pending")
    for line in found.started:
        echo(wrap_lines(line, prose_width()))
    for title, lines in (("Missing", found.missing), ("Assumed", found.assumed), ("Left out", found.problems)):
        for line in lines:
            echo(wrap_lines(f"{title}: {line}", prose_width()))
    echo(f"podslice: wrote {out}; podslice fleet run {out}/scenario.yaml runs it", err=True)
