"""`podslice state`: look at, check, convert and mend the CPU Manager's state file of a node."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click
import msgspec

from podslice.cli.machine_option import machine_options, resolve_machine
from podslice.cli.output import OUTPUT, emit
from podslice.core.errors import InputError
from podslice.core.machine.topology import CPUTopology
from podslice.core.state import inspect
from podslice.core.state.gojson import CheckpointError
from podslice.core.state.identify import identify
from podslice.core.state.inspect_memory import VERSIONS, convert_memory, repair_memory
from podslice.core.values.cpuset import format_bits
from podslice.host.statefile import read_state, write_atomically

_FILES = ("cpu_manager_state", "memory_manager_state", "kubelet_internal_checkpoint")


@click.group()
def state() -> None:
    """Look at the state files of a kubelet: who owns what, are they sound, what would a kubelet do with them.

    \b
    Examples:
      podslice state show /var/lib/kubelet
      podslice state verify /var/lib/kubelet --machine xeon-6338-2s
      podslice state convert cpu_manager_state --to v2 --write
      podslice state repair cpu_manager_state --running pods.yaml --write
    """


def _paths(target: str) -> list[Path]:
    path = Path(target)
    if not path.is_dir():
        return [path]
    places = [path / name for name in _FILES] + [path / "device-plugins" / _FILES[2]]
    found = [place for place in places if place.exists()]
    if not found:
        raise InputError("holds no state files", source=target, remedy=f"looked for {', '.join(_FILES)}")
    return found


def _read(path: Path) -> bytes:
    data = read_state(path)
    if data is None:
        raise InputError("does not exist", source=str(path))
    return data


def _topology(machine: str | None, sysfs: str | None, source: str | None) -> CPUTopology | None:
    if machine is None and sysfs is None and source is None:
        return None
    return CPUTopology(resolve_machine(machine, sysfs, source))


@state.command()
@click.argument("target", metavar="DIR|FILE")
@OUTPUT("table")
def show(target: str, output: str) -> None:
    """Print who owns which CPUs."""
    rows: list[dict[str, Any]] = []
    for path in _paths(target):
        data = _read(path)
        identity = identify(data)
        if identity.kind != "cpu":
            rows += _other_owners(path, data, identity.kind)
            continue
        content = _content(data, path)
        rows.append({"file": path.name, "owner": "shared pool", "cpus": format_bits(content.default)})
        for owner in content.owners:
            name = f"{owner.pod}/{owner.container}" if owner.container else f"{owner.pod} (pod)"
            rows.append({"file": path.name, "owner": name, "cpus": format_bits(owner.cpus)})
    if output != "table":
        emit(rows, output)
        return
    from podslice.render.table import print_table

    shown = [[r["file"], r["owner"], str(r.get("cpus", r.get("holds", ""))) or "none"] for r in rows]
    print_table(["FILE", "OWNER", "HOLDS"], shown)


def _other_owners(path: Path, data: bytes, kind: str) -> list[dict[str, Any]]:
    """Rows for memory and device files; a file that cannot be read is one row that says so."""
    rows: list[dict[str, Any]] = []
    try:
        if kind == "memory":
            for owner, block in inspect.memory_owners(data):
                nodes = ",".join(map(str, block.numa_affinity or ()))
                rows.append({"file": path.name, "owner": owner, "holds": f"{block.type} {block.size} on NUMA {nodes}"})
        elif kind == "devices":
            for owner, devices in inspect.device_owners(data):
                rows.append({"file": path.name, "owner": owner, "holds": devices})
    except CheckpointError as error:
        return [{"file": path.name, "owner": "unreadable", "holds": str(error)}]
    return rows or [{"file": path.name, "owner": f"nobody ({kind})", "holds": ""}]


def _content(data: bytes, path: Path) -> inspect.Content:
    try:
        return inspect.read_content(data)
    except CheckpointError as error:
        raise InputError(f"cannot be read: {error}", source=str(path), remedy="podslice state repair") from None


@state.command()
@click.argument("target", metavar="DIR|FILE")
@machine_options
@OUTPUT("table")
def verify(target: str, machine: str | None, sysfs: str | None, source: str | None, output: str) -> None:
    """Check checksum, structure, overlaps and, with a machine, coverage; say what a kubelet would do at start.

    Exit codes: 0 sound, 1 problems found, 2 bad input.
    """
    topology = _topology(machine, sysfs, source)
    reports = [_report(path, topology) for path in _paths(target)]
    if output == "table":
        for report in reports:
            _print_report(report)
    else:
        emit(reports, output)
    if any(report["problems"] for report in reports):
        sys.exit(1)


def _report(path: Path, topology: CPUTopology | None) -> dict[str, Any]:
    data = _read(path)
    identity = identify(data)
    found = [] if identity.verified else [identity.problem]
    readings: list[inspect.Reading] = []
    if identity.kind == "cpu":
        try:
            content = inspect.read_content(data)
            found += inspect.problems(content, topology)
            readings = inspect.kubelet_readings(data, content.policy, topology)
        except CheckpointError as error:
            found.append(str(error))
    return {
        "file": str(path),
        "identity": msgspec.to_builtins(identity),
        "problems": list(dict.fromkeys(found)),
        "kubelets": [reading._asdict() for reading in readings],
    }


def _print_report(report: dict[str, Any]) -> None:
    identity = report["identity"]
    verdict = click.style("sound", fg="green") if not report["problems"] else click.style("damaged", fg="red")
    kind = f"{identity['kind']} {identity['format']}".strip()
    click.echo(f"{click.style(report['file'], bold=True)}: {kind}, {verdict}")
    for problem in report["problems"]:
        click.echo(f"  {problem}")
    for reading in report["kubelets"]:
        click.echo(f"  kubelet {reading['kubelet']}: {reading['verdict']}")


@state.command()
@click.argument("file", metavar="FILE")
@click.option(
    "--to",
    "version",
    type=click.Choice(["v1", *inspect.VERSIONS]),
    required=True,
    help="CPU: v2, v3 (1.36 with PodLevelResourceManagers), v4 (1.37). Memory: v1, v2 (with that gate).",
)
@click.option("--write", is_flag=True, help="Replace FILE; the old one is kept as FILE.bak (.bak.2 …).")
def convert(file: str, version: str, write: bool) -> None:
    """Rewrite a state file for another kubelet, without draining the node; says what the format cannot hold."""
    path = Path(file)
    data = _read(path)
    identity = identify(data)
    versions = {"cpu": inspect.VERSIONS, "memory": VERSIONS}.get(identity.kind, ())
    if not identity.verified or not versions:
        problem = identity.problem or "is neither a CPU nor a memory state file"
        raise InputError(problem, source=file, remedy="podslice state repair")
    if version not in versions:
        raise InputError(f"a {identity.kind} state file has no {version}", path="--to", remedy=" or ".join(versions))
    try:
        converted = convert_memory(data, version) if identity.kind == "memory" else inspect.convert(data, version)
    except CheckpointError as error:
        raise InputError(str(error), source=file) from None
    _finish(path, data, converted, write, "lost")


@state.command()
@click.argument("file", metavar="FILE")
@machine_options
@click.option("--running", metavar="FILE", help="Manifest of the pods that still run (with their UIDs).")
@click.option("--write", is_flag=True, help="Replace FILE; the old one is kept as FILE.bak (.bak.2 …).")
def repair(
    file: str, machine: str | None, sysfs: str | None, source: str | None, running: str | None, write: bool
) -> None:
    """Make a consistent state file from a damaged one (CPU or memory). Without --write it is only printed."""
    path = Path(file)
    data = _read(path)
    topology = _topology(machine, sysfs, source)
    uids = None
    if running is not None:
        from podslice.k8s.manifest import load_pods

        uids = {loaded.pod.metadata.uid for loaded in load_pods(running)}
    try:
        if b'"machineState"' in data:
            repaired = repair_memory(data, uids)
        else:
            content = inspect.read_content(data)
            everything = topology.all_cpus if topology is not None else inspect.all_cpus_of(content)
            repaired = inspect.repair(data, everything, uids)
    except CheckpointError as error:
        raise InputError(
            f"nothing can be recovered: {error}", source=file, remedy="delete it; the kubelet writes a fresh one"
        ) from None
    _finish(path, data, repaired, write, "changed")


def _finish(path: Path, before: bytes, converted: inspect.Converted, write: bool, verb: str) -> None:
    for note in converted.lost:
        click.echo(f"{verb}: {note}", err=True)
    if not write:
        click.echo(converted.data.decode())
        return
    backup = _backup_name(path)
    write_atomically(backup, before)
    write_atomically(path, converted.data)
    click.echo(f"{path} written, the old file is {backup}")


def _backup_name(path: Path) -> Path:
    backup = path.with_name(f"{path.name}.bak")
    number = 2
    while backup.exists():
        backup = path.with_name(f"{path.name}.bak.{number}")
        number += 1
    return backup
