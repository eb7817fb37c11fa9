"""`podslice fleet init`: a scenario that runs."""

from __future__ import annotations

from pathlib import Path

import click

from podslice.cli.output import write_text
from podslice.fleet.scenario.starter import KINDS, sample_cluster, sample_nodes, sample_pods, starter_files
from podslice.fleet.traces.trace_write import write_trace
from podslice.render.ansi import echo
from podslice.values.errors import InputError


@click.command()
@click.argument("kind", type=click.Choice(list(KINDS)), default="openb")
@click.option(
    "--out",
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="Output folder; the default is fleet-KIND.",
)
def init(*, kind: str, out: Path | None) -> None:
    """Write a commented scenario that runs as it is, with a small synthetic trace.

    \b
    openb     which kubelet configuration serves a list of pods best
    compare   what pod-level resources save
    capacity  how many nodes a workload needs
    live      a cluster as `fleet import` finds it

    \b
    Examples:
      podslice fleet init openb
      podslice fleet run fleet-openb/scenario.yaml

    Exit codes: 0 written, 2 it cannot be written.
    """
    folder = out or Path(f"fleet-{kind}")
    if folder.exists() and any(folder.iterdir()):
        raise InputError("is not empty", source=str(folder), remedy="name another --out")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", source=str(folder)) from None
    for name, text in starter_files(kind):
        write_text(folder / name, text.rstrip("\n"))
    if kind in ("openb", "capacity"):
        write_trace(folder / "pods.csv", sample_pods(), nodes=False)
    if kind == "openb":
        write_trace(folder / "nodes.csv", sample_nodes(), nodes=True)
    if kind == "live":
        for name, text in zip(("nodes.json", "pods.json"), sample_cluster(), strict=True):
            write_text(folder / name, text)
    echo(f"podslice: wrote {folder}; podslice fleet run {folder}/scenario.yaml runs it", err=True)
