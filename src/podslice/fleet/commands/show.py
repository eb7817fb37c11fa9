"""`podslice fleet show`: a node of a run."""

from __future__ import annotations

from pathlib import Path

import click

from podslice.cli.output import check_page_name, legend_option, print_warnings, prose_width, write_shown
from podslice.fleet.scenario.node_history import replay_node
from podslice.fleet.scenario.run import open_study
from podslice.fleet.scenario.store import RunStore
from podslice.render.ansi import echo
from podslice.values.errors import InputError


@click.command()
@click.argument("folder", metavar="RUN", type=click.Path(path_type=Path))
@click.option("--node", "name", metavar="NAME", help="The node; without it the fullest nodes are listed.")
@click.option("--cell", "part", default="", metavar="TEXT", help="The first cell with this in its key.")
@click.option("--out", metavar="FILE.html", type=click.Path(path_type=Path, dir_okay=False),
              help="Write a page with the picture.")  # fmt: skip
@legend_option
def show(*, folder: Path, name: str | None, part: str, out: Path | None) -> None:
    """Show a node of a run as it was at the end: its CPUs and their owners, as `podslice draw` shows a node.

    \b
    Examples:
      podslice fleet show fleet-openb/which-kubelet-run
      podslice fleet show fleet-openb/which-kubelet-run --node node-000 --cell single
      podslice fleet show fleet-openb/which-kubelet-run --node node-000 --out node.html

    Exit codes: 0 shown, 2 bad input.
    """
    check_page_name(out)
    store = RunStore(folder)
    keys = [key for key in store.list_keys() if part in key]
    if not keys:
        raise InputError(f"no cell's key has {part!r} in it", path="--cell")
    outcome = store.read_outcome(keys[0])
    if name is None:
        _list(keys[0], store)
        return
    study = open_study(store)
    if study is None:
        raise InputError("does not hold all its inputs", source=str(folder), remedy="they are larger than 64 MiB")
    cell = next(one for one in study.cells if one.key == keys[0])
    found = replay_node(study, cell, outcome, name)
    if not found.exact:
        print_warnings(("pods left this node and came back; its CPUs are those of its last pods only",))
    from podslice.render.picture import picture_of

    picture = picture_of(found.node.view, title=f"{name} · {found.kind.name}")
    if out is not None:
        from podslice.render.html import to_html

        write_shown(out, to_html([("", picture)], title=name))
        return
    from podslice.render.terminal import to_text

    echo(f"{name}, {found.kind.name}, {keys[0]}: {len(found.node.pods)} pods of {found.came} that came")
    echo(to_text(picture, width=prose_width() or 100))


def _list(key: str, store: RunStore) -> None:
    """Print the nodes with the most CPUs stranded for the mix."""
    from podslice.render.table import print_table

    outcome = store.read_outcome(key)
    nodes = outcome.result.nodes
    order = sorted(range(len(outcome.nodes)), key=lambda node: (-nodes.expected[node], node))[:20]
    rows = [
        [
            outcome.nodes[node],
            outcome.classes[outcome.kind[node]].name,
            str(nodes.pods[node]),
            f"{(outcome.classes[outcome.kind[node]].cpu - nodes.cpu_milli[node]) / 1000:g}",
            str(nodes.assignable[node]),
            str(nodes.largest[node]),
        ]
        for node in order
    ]
    echo(f"{key}: the nodes with the most CPUs that the mix could not get\n")
    print_table(["NODE", "CLASS", "PODS", "NOT REQUESTED", "FREE", "LARGEST POD"], rows, right=[2, 3, 4, 5])
