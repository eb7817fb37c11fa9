"""`podslice topology`: show a machine, or turn its description into another form."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
import msgspec

from podslice.cli.options.machine import Sources, machine_options, resolve_node
from podslice.cli.output import emit, legend_option, print_data, prose_width, use_colours
from podslice.cli.provenance import machine_origin, provenance_text
from podslice.evidence.provenance import Provenance
from podslice.machine.documents import MachineList, MachineSummary, device_inventory
from podslice.machine.model import Machine
from podslice.render.ansi import echo
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.config.policy import ClaimDevices

_FORMS = ("table", "wide", "json", "yaml", "synthetic", "machineinfo", "nrt", "slices")
_CLAIM_DEVICES = ("perNUMANode", "perCPU", "partitions")


@click.command()
@machine_options
@legend_option
@click.option(
    "-o", "--output", type=click.Choice(_FORMS), default="table", show_default=True, help="Form of the output."
)
@click.option("--capture", metavar="TAR", help="Write what discovery reads on this machine into a snapshot (.tar.xz).")
@click.option(
    "--devices", "show_devices", is_flag=True, help="Show GPUs and NICs instead; -o yaml writes a --devices file."
)
@click.option(
    "--resource",
    "resources",
    multiple=True,
    metavar="KEY=NAME",
    help="With --devices: the resource of a kind (gpu, nic, vf), vendor (10de) or model (8086:1889); empty leaves out.",
)
@click.option("--claim-cpus", metavar="CPUS", help="With -o slices: the CPUs that claims may have (default: all).")
@click.option("--whole-cores", is_flag=True, help="With -o slices: claims get cores with all their threads.")
@click.option(
    "--claim-devices",
    type=click.Choice(_CLAIM_DEVICES),
    help="With -o slices: what one device comprises (default: perNUMANode).",
)
@click.option(
    "--numa-list", is_flag=True, help="With -o slices: the attribute numaNode lists near NUMA nodes too (KEP-6072)."
)
@click.option("--node-name", metavar="NAME", help="With -o slices: the node's name (default: the machine's).")
@click.option("--list", "list_gallery", is_flag=True, help="List the ready-made machines.")
def topology(
    *,
    machine: str | None,
    sysfs: str | None,
    source: Sources,
    output: str,
    capture: str | None,
    show_devices: bool,
    resources: tuple[str, ...],
    claim_cpus: str | None,
    whole_cores: bool,
    claim_devices: ClaimDevices | None,
    node_name: str | None,
    numa_list: bool,
    list_gallery: bool,
) -> None:
    """Show a machine as the kubelet sees it: this one, a captured one, a ready-made one, or a described one.

    \b
    Examples:
      podslice topology                                    # this machine
      podslice topology --machine epyc-9654-nps4
      podslice topology --capture node7.tar.xz             # on node7
      podslice topology --sysfs node7.tar.xz -o wide       # anywhere
      podslice topology --from 'pack:2 numa:2 core:8 pu:2' -o yaml
      podslice topology --devices -o yaml > devices.yaml   # GPUs and NICs, for podslice admit --devices
      lstopo --of xml | podslice topology --from - -o machineinfo
      kubectl get node n7 -o yaml | podslice topology --from -
      podslice topology --machine xeon-8380-2s -o nrt      # a NodeResourceTopology of the empty node
      podslice topology --machine xeon-8380-2s -o slices --claim-cpus 2-79   # for podslice admit --slices

    Exit codes: 0 shown, 2 bad input, or a form that cannot carry the machine.
    """
    if list_gallery:
        _list_gallery(output)
    elif capture is not None:
        if machine is not None or sysfs is not None or source is not None:
            remedy = "leave --machine, --sysfs and --from out"
            raise InputError("only this machine can be captured", path="--capture", remedy=remedy)
        from podslice.host.capture import capture_machine

        echo(f"podslice: wrote {capture_machine(capture)} files to {capture}", err=True)
    elif show_devices:
        if machine is not None or source is not None:
            remedy = "leave --machine and --from out, or give --sysfs"
            raise InputError(
                "only this machine and captured ones have a PCI bus to read", path="--devices", remedy=remedy
            )
        _show_devices(sysfs, resources, output)
    elif output == "slices":
        found = resolve_node(machine, sysfs, source).machine
        name = found.name or "node" if node_name is None else _node_name(node_name)
        devices = claim_devices or "perNUMANode"
        _show_slices(found, name, claim_cpus, whole_cores=whole_cores, devices=devices, numa_list=numa_list)
    # Options of slices without -o slices would be ignored in silence.
    elif whole_cores or numa_list or any(one is not None for one in (claim_cpus, claim_devices, node_name)):
        given = {"--claim-cpus": claim_cpus, "--claim-devices": claim_devices, "--whole-cores": whole_cores or None}
        given["--numa-list"] = numa_list or None
        option = next((name for name, value in given.items() if value is not None), "--node-name")
        raise InputError("is about the slices of a node", path=option, remedy="add -o slices")
    else:
        described = resolve_node(machine, sysfs, source)
        found = described.machine
        origin = machine_origin(found, name=machine, sysfs=sysfs, source=source)
        if output in ("table", "wide"):
            echo(provenance_text(Provenance(machine=origin, release=""), prose_width()) + "\n")
            # A written form leaves out what follows from the machine itself: it is read to the same machine.
            found = msgspec.structs.replace(found, warnings=described.warnings)
        _show(found, output)


def _show_devices(sysfs: str | None, resources: tuple[str, ...], output: str) -> None:
    """Print GPUs and NICs with their NUMA nodes."""
    from podslice.host.discover import discover
    from podslice.host.filesystem import DiskFileSystem
    from podslice.host.pci import group_by_resource, parse_resource_names, read_pci_functions
    from podslice.host.snapshot import open_snapshot

    names = parse_resource_names(resources)
    # A machine of the gallery or a description has no PCI bus to read.
    fs = DiskFileSystem("/") if sysfs is None else open_snapshot(sysfs)
    functions = read_pci_functions(fs, discover(fs))
    inventory = group_by_resource(functions, names)
    if output in ("json", "yaml"):
        emit(device_inventory(inventory), output)
        return
    if output not in ("table", "wide"):
        raise InputError(f"-o {output} cannot carry devices", path="--devices", remedy="-o table, json or yaml")
    from podslice.render.table import print_table

    facts = {function.address: function for function in functions}
    rows = [
        [resource.resource, one.id, str(facts[one.id].numa if one.numa else "-"), facts[one.id].kind,
         ":".join(filter(None, (facts[one.id].vendor, facts[one.id].model))) or "-"]
        for resource in inventory.resources
        for one in resource.devices
    ]  # fmt: skip
    if rows:
        print_table(["RESOURCE", "DEVICE", "NUMA", "KIND", "PCI ID"], rows)
    else:
        echo("No GPU and no NIC is on the PCI bus.")


def _show(machine: Machine, output: str) -> None:
    if output in ("table", "wide"):
        from podslice.topology.table import to_text

        echo(to_text(machine, wide=output == "wide", colour=use_colours()))
        return
    if output == "nrt":
        from podslice.node_objects.write_nrt import machine_topology

        print_data(machine_topology(machine), "yaml")
        return
    from podslice.host.machine_files import DumpFormat, dump_machine
    from podslice.machine.readers.synthetic_writing import facts_lost_in_synthetic

    form: DumpFormat = output  # type: ignore[assignment]  # one of the choices above
    echo(dump_machine(machine, form), nl=False)
    if output == "synthetic":
        lost = facts_lost_in_synthetic(machine)
        if lost:
            echo(f"podslice: note: a synthetic description leaves out {', '.join(lost)}", err=True)


def _node_name(text: str) -> str:
    """Return the name of a node. Raises `InputError`."""
    from podslice.api.pod.names import check_node_name

    try:
        return check_node_name(text)
    except InputError as error:
        raise error.at(path="--node-name") from None


def _show_slices(
    machine: Machine, node: str, claim_cpus: str | None, *, whole_cores: bool, devices: ClaimDevices, numa_list: bool
) -> None:
    """Print the ResourceSlices of the machine. Raises `InputError`."""
    from podslice.dra.devices import ClaimableAmounts
    from podslice.dra.slices import machine_slices
    from podslice.values.cpuset import CPUSet, CPUSetError

    try:
        cpus = None if claim_cpus is None else CPUSet.parse(claim_cpus)
    except CPUSetError as error:
        raise InputError(error.problem, path="--claim-cpus", remedy="a list such as 2-15,18") from None
    there = CPUSet(one for numa in machine.nodes for core in numa.cores for one in core.threads)
    if cpus is not None and cpus - there:
        raise InputError(f"the machine has no CPUs {cpus - there}", path="--claim-cpus", remedy=f"it has {there}")
    amounts = ClaimableAmounts(cpus, whole_cores=whole_cores, devices=devices, numa_list=numa_list)
    slices = machine_slices(machine, node, amounts)
    print_data({"apiVersion": "v1", "kind": "List", "items": slices}, "yaml")


def _list_gallery(output: str) -> None:
    from podslice.machine.gallery import gallery_names, load_gallery
    from podslice.render.table import format_bytes
    from podslice.topology.table import table

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
    echo("\n".join(table(header, rows, left=(0, 5))))
