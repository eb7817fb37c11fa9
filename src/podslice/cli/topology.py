"""`podslice topology`: a machine as the kubelet sees it."""

from __future__ import annotations

import click

from podslice.cli.machine_option import machine_options, resolve_machine
from podslice.cli.output import emit


@click.command()
@machine_options
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "wide", "yaml", "json", "synthetic"]),
    default="table",
    show_default=True,
    help="json is cAdvisor's MachineInfo, synthetic is hwloc's one-line form.",
)
@click.option("--list", "list_gallery", is_flag=True, help="List the machines of the gallery.")
def topology(machine: str | None, sysfs: str | None, source: str | None, output: str, list_gallery: bool) -> None:
    """Show this machine, or another one, as the kubelet sees it; or convert between formats.

    \b
    Examples:
      podslice topology
      podslice topology --machine epyc-9654-nps4 -o wide
      podslice topology --sysfs snapshot.tar.xz -o yaml
      podslice topology --from 'pack:2 numa:2 core:8 pu:2' -o json
      lstopo --of xml | podslice topology --from /dev/stdin
    """
    if list_gallery:
        _list_gallery()
        return
    chosen = resolve_machine(machine, sysfs, source)
    if output in ("table", "wide"):
        from podslice.render.machine import print_machine

        print_machine(chosen, wide=output == "wide")
    elif output == "json":
        from podslice.core.machine.machineinfo import to_machineinfo

        emit(to_machineinfo(chosen), "json")
    elif output == "yaml":
        from podslice.host.machines import machine_to_dict

        emit(machine_to_dict(chosen), "yaml")
    else:
        from podslice.core.machine.synthetic import to_synthetic

        click.echo(to_synthetic(chosen))


def _list_gallery() -> None:
    from podslice.gallery import load_gallery, names
    from podslice.render.table import print_table

    rows = []
    for name in names():
        machine = load_gallery(name)
        rows.append([name, str(machine.cpu_count), str(len(machine.nodes)), machine.description])
    print_table(["MACHINE", "CPUS", "NUMA", "DESCRIPTION"], rows, right=(1, 2))
