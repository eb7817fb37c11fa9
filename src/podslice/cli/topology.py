"""`podslice topology`: show a machine, or turn its description into another form."""

from __future__ import annotations

import click

from podslice.cli.machine_option import machine_options, resolve_machine
from podslice.cli.output import coloured, emit
from podslice.contract.machines import MachineList, MachineSummary
from podslice.core.machine.model import Machine

_FORMS = ("table", "wide", "json", "yaml", "synthetic", "machineinfo")


@click.command()
@machine_options
@click.option(
    "-o", "--output", type=click.Choice(_FORMS), default="table", show_default=True, help="Form of the output."
)
@click.option("--capture", metavar="TAR", help="Write what discovery reads on this machine into a snapshot (.tar.xz).")
@click.option("--list", "list_gallery", is_flag=True, help="List the ready-made machines.")
def topology(
    machine: str | None, sysfs: str | None, source: str | None, output: str, capture: str | None, list_gallery: bool
) -> None:
    """Show a machine as the kubelet sees it: this one, a captured one, a ready-made one, or a described one.

    \b
    Examples:
      podslice topology                                    # this machine
      podslice topology --machine epyc-9654-nps4
      podslice topology --capture node7.tar.xz             # on node7
      podslice topology --sysfs node7.tar.xz -o wide       # anywhere
      podslice topology --from 'pack:2 numa:2 core:8 pu:2' -o yaml
      lstopo --of xml | podslice topology --from - -o machineinfo

    Exit codes: 0 shown, 2 bad input, or a form that cannot carry the machine.
    """
    if list_gallery:
        _list_gallery(output)
    elif capture is not None:
        from podslice.host.capture import capture_machine

        click.echo(f"podslice: wrote {capture_machine(capture)} files to {capture}", err=True)
    else:
        _show(resolve_machine(machine, sysfs, source), output)


def _show(machine: Machine, output: str) -> None:
    if output in ("table", "wide"):
        from podslice.render.machine_table import to_text

        click.echo(to_text(machine, wide=output == "wide", colour=coloured()))
        return
    from podslice.core.machine.synthetic import lost_in_synthetic
    from podslice.host.machine_files import DumpFormat, dump_machine

    form: DumpFormat = output  # type: ignore[assignment]  # one of the choices above
    click.echo(dump_machine(machine, form), nl=False)
    if output == "synthetic":
        lost = lost_in_synthetic(machine)
        if lost:
            click.echo(f"podslice: note: a synthetic description leaves out {', '.join(lost)}", err=True)


def _list_gallery(output: str) -> None:
    from podslice.gallery import gallery_names, load_gallery
    from podslice.render.machine_table import table
    from podslice.render.table import format_bytes

    machines = [load_gallery(name) for name in gallery_names()]
    if output in ("json", "yaml"):
        summaries = (MachineSummary(m.name, m.cpu_count, m.description, m.source) for m in machines)
        emit(MachineList(tuple(summaries)), output)
        return
    rows = [
        (m.name, str(m.cpu_count), str(m.socket_count), str(len(m.nodes)), format_bytes(m.memory), m.description)
        for m in machines
    ]
    header = ("NAME", "CPUS", "SOCKETS", "NUMA", "MEMORY", "DESCRIPTION")
    click.echo("\n".join(table(header, rows, left=(0, 5))))
