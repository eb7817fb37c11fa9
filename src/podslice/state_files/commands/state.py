"""`podslice state`: the kubelet's state files, read, checked, converted and repaired outside of a kubelet."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import click

from podslice.api.pod.spec import Pod
from podslice.cli.group import CommandGroup
from podslice.cli.options.bundle import bundle_option
from podslice.cli.options.pods import read_pods
from podslice.cli.options.release import named_version
from podslice.cli.options.running import find_known_pods, read_agent_pods
from podslice.cli.output import OUTPUT, emit, print_error, print_warnings, prose_width, write_bytes
from podslice.cli.provenance import provenance_text
from podslice.evidence.contradiction import doubt_machine
from podslice.evidence.listed import ENDED
from podslice.evidence.provenance import Provenance, contradiction_line
from podslice.host.state.statefile import replace_with_backups
from podslice.node.checkpoints.content import AllocationCheckpoint, Content
from podslice.node.checkpoints.releases import Release, release
from podslice.node.cpu.checkpoint import CPUCheckpoint
from podslice.node.memory.checkpoint import MemoryCheckpoint
from podslice.render.ansi import echo, shown_paths, style
from podslice.state_files.commands.files import (
    MENDED,
    READABLE,
    StateFile,
    convert_files,
    cpus_beside,
    decode_file,
    other_entries,
    repair_files,
    state_files,
)
from podslice.state_files.commands.migrate import migrate
from podslice.state_files.commands.node_options import read_node_options, state_node_options
from podslice.state_files.consequence import Consequence, start_consequence
from podslice.state_files.convert import Rewritten
from podslice.state_files.documents import (
    OtherFile,
    StateConversion,
    StateConversionList,
    StateFileList,
    StateFinding,
    StateRepair,
    StateRepairList,
    StateVerification,
    StateVerificationList,
    state_file,
)
from podslice.state_files.folder import passed_over, passed_over_text
from podslice.state_files.idle import find_idle, idle_text, pool_text
from podslice.state_files.repair import RunningContainer, RunningPods
from podslice.state_files.table import content_text, identity_text
from podslice.state_files.verify import verify as verify_file
from podslice.values.errors import InputError

F = TypeVar("F", bound=Callable[..., Any])
_COLOURS = {"error": "red", "warning": "yellow", "note": "cyan"}


@click.group(cls=CommandGroup)
def state() -> None:
    """Show, verify, convert and repair cpu_manager_state, memory_manager_state, kubelet_internal_checkpoint,
    podslice_policy_state and podslice_guard_state; show and verify allocated_pods_state, actuated_pods_state,
    pod_status_manager_state and dra_manager_state.

    \b
    Examples:
      podslice state show /var/lib/kubelet
      podslice state verify /var/lib/kubelet --here --config kubelet.yaml
      podslice state convert cpu_manager_state --to 1.35            # shows what would be lost
      podslice state repair /var/lib/kubelet --here --running pods.yaml --write
      podslice state migrate --before old.yaml --after new.yaml /var/lib/podslice

    Exit codes: 0 fine, 1 problems found, 2 bad input.
    """


def _release_options(flag: str, text: str) -> Callable[[F], F]:
    def add(command: F) -> F:
        command = click.option("--pod-level", is_flag=True, help="With the gate PodLevelResourceManagers on.")(command)
        names = (flag, "--kubernetes") if flag == "--kubelet-version" else (flag,)
        return click.option(*names, "version", metavar="1.N", default="1.36", show_default=True, help=text)(command)

    return add


_AUTO = "auto: of a Node object, a bundle or the agent whose folder it is."
_PATH = click.argument("path", metavar="DIR|FILE", type=click.Path(path_type=Path))


# show


@state.command()
@_PATH
@bundle_option
@click.option(
    "--pods",
    "pods_path",
    metavar="FILE",
    help="Pods of the node (kubectl get pods -o yaml), which tell init containers from others.",
)
@OUTPUT("table", "wide")
def show(path: Path, pods_path: str | None, output: str) -> None:
    """Show which pod owns what, in files of every version, and which CPUs are held for pods and init containers that
    have ended.

    \b
    Examples:
      podslice state show /var/lib/kubelet
      podslice state show /var/lib/kubelet --pods pods.yaml
      podslice state show cpu_manager_state -o json

    Exit codes: 0 shown, 1 a checksum does not fit, 2 bad input.
    """
    shown, problems, failed = [], False, False
    files = state_files(path, READABLE)
    for file in files:
        try:
            content = decode_file(file)
        except InputError as error:
            # One file of a folder that cannot be read hides none of the others.
            if len(files) == 1:
                raise
            failed = True
            print_error(error)
            continue
        problems = problems or not (content.intact or content.has_unknown_checksum)
        shown.append((file, content))
    cpus = next((one.checkpoint for _, one in shown if isinstance(one.checkpoint, CPUCheckpoint)), None)
    pods, known = _known_pods(path, pods_path, files)
    idle = None if cpus is None else find_idle(cpus, known, pods)
    if output in ("table", "wide"):
        for place, (file, content) in enumerate(shown):
            echo(f"{'' if place == 0 else chr(10)}{style(str(file.path), bold=True)}: {_title(content)}")
            if output == "wide":
                echo(identity_text(file.data, content))
            if content.kind == "cpu" and cpus is not None and idle is not None:
                texts = [text for text in (pool_text(cpus, pods), idle_text(idle, pods)) if text]
                echo("\n".join(texts) + "\n" if texts else "", nl=bool(texts))
            echo(content_text(content, cpus))
        others = passed_over_text(passed_over(other_entries(path, files)))
        if others:
            echo(f"\n{others}")
    else:
        emit(StateFileList(tuple(state_file(str(file.path), one, cpus, idle) for file, one in shown)), output)
    sys.exit(2 if failed else 1 if problems else 0)


def _known_pods(
    path: Path, pods_path: str | None, files: list[StateFile]
) -> tuple[dict[str, Pod], frozenset[str] | None]:
    """Return the given pods by UID, and the UIDs of the pods that the kubelet knows; None where that cannot be seen.
    Raises `InputError`."""
    given = read_pods((pods_path,), none_is_fine=True, validate=False).pods if pods_path else ()
    pods = {one.pod.metadata.uid: one.pod for one in given}
    known = find_known_pods(path, {file.path.name: file.data for file in files}) if path.is_dir() else None
    if known is None and pods_path is not None:
        known = frozenset(pods)
    ended = {uid for uid, pod in pods.items() if pod.status.phase in ENDED}
    return pods, None if known is None else known - ended


def _title(content: Content) -> str:
    """Return what a file holds, or its version and policy, for the line with its path."""
    if content.kind == "allocation" and content.intact:
        return "granted resources (kubelet 1.36)"
    if content.kind == "policy" and content.intact:
        return "promises, and resizes being written (podslice)"
    if content.kind == "guard":
        return "files of the kernel that guards have changed (podslice)"
    checkpoint = content.checkpoint
    if content.kind == "dra" and (content.intact or content.has_unknown_checksum):
        return "claims that the kubelet has prepared"
    if content.kind == "pod-status" and (content.intact or content.has_unknown_checksum):
        return "granted resources (kubelet before 1.33)"
    policy = f", policy {checkpoint.policy_name}" if isinstance(checkpoint, CPUCheckpoint | MemoryCheckpoint) else ""
    return f"{content.identity.matches or 'the checksum fits no known format'}{policy}"


# verify


@state.command()
@_PATH
@state_node_options
@_release_options("--kubelet-version", f"The kubelet that would start with the files; {_AUTO}")
@OUTPUT("table", "wide")
def verify(*, path: Path, version: str, pod_level: bool, output: str, **options: Any) -> None:
    """Check the files, and say what a kubelet would do with them when it starts.

    \b
    Examples:
      podslice state verify /var/lib/kubelet --here --config /var/lib/kubelet/config.yaml
      podslice state verify cpu_manager_state --kubelet-version 1.35

    Exit codes: 0 nothing wrong, 1 problems found, 2 bad input.
    """
    files = state_files(path, READABLE)
    node = read_node_options(options, files)
    version = named_version(version, options["source"], path)
    reader = node.reader(version, pod_level=pod_level)
    print_warnings(node.warn_of_other_gate(files, reader))
    facts = node.facts(reader.minor)
    found = node.contradictions(files)
    results = []
    for file in files:
        content, findings = verify_file(file.data, facts, cpus_beside(file, files))
        if content is not None and not _fits_name(file, content):
            text = f"the content is a {content.kind} state file"
            findings.append(StateFinding("error", "kind", "", text))
        kind = file.kind or (content.kind if content is not None else None)
        start = start_consequence(file.data, kind, reader, facts, _kubelet_path(file)) if kind else None
        results.append(_Verdict(file, content, findings, start))
    others = passed_over(other_entries(path, files))
    if output in ("table", "wide"):
        _print_basis(node.provenance_of(reader, found))
        for result in results:
            _print_verdict(result, wide=output == "wide")
        if others:
            echo(passed_over_text(others))
    else:
        not_checked = tuple(OtherFile(one.name, one.what) for one in others)
        provenance = node.provenance_of(reader, found)
        emit(StateVerificationList(tuple(map(_verification, results)), not_checked, found, provenance), output)
    sys.exit(1 if found or any(result.bad for result in results) else 0)


def _print_basis(provenance: Provenance, *, err: bool = False) -> None:
    """Print what an answer about a machine rests on; without a machine only what contradicts the files."""
    if provenance.machine.source:
        echo(provenance_text(provenance, prose_width()), err=err)
        return
    for one in provenance.contradictions:
        echo(style(contradiction_line(one), fg="yellow"), err=err)


def _fits_name(file: StateFile, content: Content) -> bool:
    """Whether a file holds what its name says. An empty record of granted resources looks the same in old and new
    files."""
    checkpoint = content.checkpoint
    is_empty = file.kind == "pod-status" and isinstance(checkpoint, AllocationCheckpoint) and not checkpoint.pods
    # An object without members of any manager looks like the CPU Manager's.
    is_bare = file.kind == "memory" and isinstance(checkpoint, CPUCheckpoint) and checkpoint == CPUCheckpoint()
    return file.kind in (None, content.kind) or is_empty or is_bare


class _Verdict(NamedTuple):
    """The result for one file. `content` is None where the file cannot be read, `start` where the consequence is not
    known."""

    file: StateFile
    content: Content | None
    findings: list[StateFinding]
    start: Consequence | None

    @property
    def bad(self) -> bool:
        """Whether the file prevents a start or has an error or a warning."""
        stops = self.start is not None and self.start.starts is False
        return stops or any(finding.level != "note" for finding in self.findings)


def _kubelet_path(file: StateFile) -> str:
    """Return the path that a kubelet's error names; empty (the usual path) where the given one is relative."""
    return shown_paths(str(file.path)) if file.path.is_absolute() else ""


def _print_verdict(verdict: _Verdict, *, wide: bool) -> None:
    file, content, findings, start = verdict
    echo(f"{style(str(file.path), bold=True)}: {'unreadable' if content is None else _title(content)}")
    if wide and content is not None:
        echo(identity_text(file.data, content))
    for finding in findings:
        level = style(finding.level, fg=_COLOURS[finding.level])
        echo(f"  {level} {finding.code}: {finding.path + ': ' if finding.path else ''}{finding.text}")
    if not findings:
        echo("  nothing is wrong")
    if start is not None:
        echo(f"  {start.text}")


def _verification(verdict: _Verdict) -> StateVerification:
    file, content, findings, start = verdict
    return StateVerification(
        file=str(file.path),
        kind=None if content is None else content.kind,
        version=None if content is None else content.version,
        intact=None if content is None else content.intact,
        checksum=None if content is None else content.identity.stated,
        format=None if content is None else content.identity.matches,
        findings=tuple(findings),
        start="" if start is None else start.text,
    )


# convert, repair and migrate


state.add_command(migrate)


@state.command()
@_PATH
@_release_options("--to", "The kubelet that is to read the files.")
@click.option("--containers", metavar="FILE", help="crictl ps -a -o json, for files that name container ids.")
@click.option("--write", is_flag=True, help="Replace the files; the old ones stay beside them as .bak.")
@click.option("--out", metavar="FILE", help="Write one converted file here; - is standard output.")
@OUTPUT("table", legend=False)
def convert(
    *, path: Path, version: str, pod_level: bool, containers: str | None, write: bool, out: str | None, output: str
) -> None:
    """Rewrite intact files for another kubelet, and say exactly what its format cannot hold.

    \b
    Examples:
      podslice state convert /var/lib/kubelet --to 1.35               # shows what would be lost
      podslice state convert /var/lib/kubelet --to 1.35 --write

    Exit codes: 0 nothing to say or written, 1 something would be lost, 2 bad input.
    """
    from podslice.state_files.running import load_containers

    target = release(version, pod_level=pod_level)
    known = load_containers(containers) if containers else {}
    changes = convert_files(state_files(path, MENDED), target, known)
    _finish(changes, target, out, output, write=write)


@state.command()
@_PATH
@state_node_options
@_release_options("--kubelet-version", f"The kubelet that is to read the files; {_AUTO}")
@click.option(
    "--running",
    "--pods",
    "pods",
    metavar="FILE",
    help="The pods still running: kubectl get pods -o yaml, or a short form with their CPUs (docs/state.md).",
)
@click.option("--write", is_flag=True, help="Replace the files; the old ones stay beside them as .bak.")
@click.option("--out", metavar="FILE", help="Write one repaired file here; - is standard output.")
@OUTPUT("table", legend=False)
def repair(
    *,
    path: Path,
    version: str,
    pod_level: bool,
    pods: str | None,
    write: bool,
    out: str | None,
    output: str,
    **options: Any,
) -> None:
    """Make consistent files from damaged ones. Without --write, only show what would be done.

    Where the checksum does not fit, an owner in the file may be wrong without anyone noticing: give the running pods
    with their CPUs (crictl inspect shows them) to be sure. Files that contradict a described machine are not written:
    the machine may be the wrong one.

    \b
    Examples:
      podslice state repair /var/lib/kubelet --here
      podslice state repair /var/lib/kubelet --here --pods pods.yaml --write

    Exit codes: 0 nothing to do or written, 1 something would be done, 2 bad input.
    """
    from podslice.state_files.running import load_running_pods

    files = state_files(path, MENDED)
    node = read_node_options(options, files)
    version = named_version(version, options["source"], path)
    facts, target = node.facts(), node.reader(version, pod_level=pod_level)
    print_warnings(node.warn_of_other_gate(files, target))
    running = load_running_pods(pods) if pods else _agents_running(path)
    found = node.contradictions(files)
    print_warnings(tuple(map(str, found)))
    if (write or out) and doubt_machine(found) is not None:
        raise InputError(
            "nothing is written, because the machine that you name may not be the one of these files",
            source=str(path),
            remedy="see the warnings; --here on the node, or its snapshot with --sysfs, is sure",
        )
    changes = repair_files(files, target, facts, running)
    if not changes:
        remedy = "drain the node and remove the file: a kubelet makes a new one"
        raise InputError("holds nothing to repair", source=str(path), remedy=remedy)
    if output == "table":
        _print_basis(node.provenance_of(target, ()), err=out == "-")
    _finish(changes, target, out, output, write=write, provenance=node.provenance_of(target, found))


def _agents_running(path: Path) -> RunningPods | None:
    """Return the containers of an agent's pods, which it keeps beside its state files; None for another directory.
    Raises `InputError`."""
    pods = read_agent_pods(path if path.is_dir() else path.parent)
    if pods is None:
        return None
    return {
        uid: {one.name: RunningContainer() for one in (*pod.spec.init_containers, *pod.spec.containers)}
        for uid, pod in pods.items()
    }


def _finish(
    changes: list[tuple[StateFile, Rewritten]],
    target: Release,
    out: str | None,
    output: str,
    *,
    write: bool,
    provenance: Provenance | None = None,
) -> None:
    """Report the changes, and write them where requested: those of a repair, with what it rests on, else of a
    conversion. Exits with 1 where there are remarks and nothing was written."""
    if out is not None and (write or len(changes) != 1):
        raise InputError("works for one file and without --write", path="--out")
    # The policy's file, which is the last, is written first: its promises are never in none of the files.
    new = {file.path: change.data for file, change in reversed(changes) if change.data != file.data}
    written = replace_with_backups(new) if write else {}
    backups = [written.get(file.path) for file, _ in changes]
    if out == "-":
        sys.stdout.buffer.write(changes[0][1].data)
    elif out is not None:
        write_bytes(Path(out), changes[0][1].data)
    # The file takes standard output, so the report goes to standard error.
    report = out == "-"
    if output == "table":
        for (file, change), backup in zip(changes, backups, strict=True):
            _print_change(file, change, target, backup, err=report)
    elif not report:
        done = [(file, change, backup) for (file, change), backup in zip(changes, backups, strict=True)]
        if provenance is None:
            lost = (StateConversion(**_facts_of(*one), lost=tuple(one[1].remarks)) for one in done)
            emit(StateConversionList(tuple(lost)), output)
        else:
            repairs = (StateRepair(**_facts_of(*one), actions=tuple(one[1].remarks)) for one in done)
            emit(StateRepairList(tuple(repairs), provenance), output)
    sys.exit(1 if any(change.remarks for _, change in changes) and not (write or out) else 0)


def _print_change(file: StateFile, change: Rewritten, target: Release, backup: Path | None, *, err: bool) -> None:
    same = change.data == file.data
    result = "stays as it is" if same else f"as {change.version} for kubelet {target}"
    done = f", written; the old file is {backup}" if backup else ""
    echo(f"{style(str(file.path), bold=True)}: {result}{done}", err=err)
    for remark in change.remarks:
        echo(f"  {remark}", err=err)


def _facts_of(file: StateFile, change: Rewritten, backup: Path | None) -> dict[str, Any]:
    return {
        "file": str(file.path),
        "version": change.version,
        "changed": change.data != file.data,
        "backup": None if backup is None else str(backup),
        "content": change.data.decode(),
    }
