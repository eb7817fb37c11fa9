"""`kubectl podslice node`: pods and CPUs of a node, as they are now."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import click
import msgspec

from podslice.cli.output import OUTPUT, print_data
from podslice.draw.command import picture_form, write_picture
from podslice.kubectl.commands.options import agents_of, cluster_options, complete_node
from podslice.render.picture import Picture
from podslice.status.command import show_status
from podslice.values.errors import InputError


@click.command()
@click.argument("name", shell_complete=complete_node)
@cluster_options
@click.option("--map/--no-map", "show_map", default=True, help="Draw the node's CPU map.")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False),
              help="Write the map as a picture: .svg, .html or .txt.")  # fmt: skip
@click.option("--live", is_flag=True, help="With -o json or yaml: all that decides on the node (LiveNode).")
@OUTPUT("table", "wide")
def node(*, name: str, show_map: bool, out: Path | None, live: bool, output: str, **options: Any) -> None:
    """Show pods, sets of CPUs, refusals, drift and the CPU map of the node NAME, as its agent reports them.

    \b
    Examples:
      kubectl podslice node n7
      kubectl podslice node n7 --out n7.svg
      kubectl podslice node n7 -o json --live > n7.json

    Exit codes: 0 shown, 2 no such node, no agent on it, or no answer.
    """
    from podslice.kubectl.live import remote_node
    from podslice.kubectl.pod import read_status
    from podslice.render.picture import picture_of
    from podslice.render.terminal import to_text

    form = picture_form(None, out)
    agents = agents_of(options)
    agent = agents.on(name)
    if live:
        if output in ("table", "wide"):
            raise InputError("is for programs", path="--live", remedy="-o json or -o yaml")
        print_data(agents.ask(agent, "/node"), output)
        return
    status = read_status(agents.ask(agent, "/status"), name)
    picture: Picture | None = None
    if output in ("table", "wide") or out is not None:
        remote = remote_node(agents.ask(agent, "/node"), name)
        picture = None if remote.node is None else picture_of(remote.node.view)
        drawn = "" if picture is None else to_text(picture, width=shutil.get_terminal_size((120, 24)).columns)
        status = msgspec.structs.replace(status, map=drawn)
    if out is not None:
        if picture is None:
            raise InputError(f"there is no map of {name}: {remote.problem}", path="--out")
        write_picture(out, [("", picture)], form)
        return
    show_status(status, output, show_map=show_map)
