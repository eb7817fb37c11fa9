"""`podslice audit`: compare a node with its state files, and find others on exclusive CPUs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from podslice.audit.audit import audit as audit_node
from podslice.audit.containers import container_names
from podslice.audit.report import AuditReport
from podslice.audit.state import RecordedState, load_state
from podslice.cli.options.node import policy_option
from podslice.cli.options.node_files import load_policy
from podslice.cli.output import OUTPUT, check_page_name, emit, prose_width, write_shown
from podslice.host.filesystem import DiskFileSystem
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.render.ansi import echo, style
from podslice.values.errors import InputError

_KUBELET, _AGENT = Path("/var/lib/kubelet"), Path("/var/lib/podslice")


@click.command()
@click.option("--state", "state_folder", metavar="DIR", help="State files (default: the agent's, else the kubelet's).")
@click.option("--cgroup-root", default="/sys/fs/cgroup", show_default=True, metavar="DIR", help="cgroup v2 mount.")
@click.option("--proc", "proc_folder", default="/proc", show_default=True, metavar="DIR", help="Process file system.")
@click.option("--logs", default="/var/log/containers", show_default=True, metavar="DIR",
              help="The kubelet's container logs, for the containers' names.")  # fmt: skip
@click.option("--strict", is_flag=True, help="Count processes outside pods on exclusive CPUs as findings, too.")
@policy_option
@click.option("--report", "isolation", is_flag=True, help="Report instead how isolated exclusive CPUs really are.")
@click.option(
    "--seconds",
    type=click.FloatRange(0.0, 3600),
    default=10.0,
    show_default=True,
    help="How long --report observes the node.",
)
@click.option("--sys", "sys_folder", default="/sys", show_default=True, metavar="DIR", help="Device file system.")
@click.option(
    "--out", metavar="FILE.html", type=click.Path(path_type=Path, dir_okay=False), help="With --report: write a page."
)
@OUTPUT("table")
def audit(
    *,
    state_folder: str | None,
    cgroup_root: str,
    proc_folder: str,
    logs: str,
    strict: bool,
    policy_path: str | None,
    isolation: bool,
    seconds: float,
    sys_folder: str,
    out: Path | None,
    output: str,
) -> None:
    """Compare what every container of this node has with what the state files assign. Needs no agent and no kubelet.
    With --policy, also report what that policy would not have allowed. With --report, observe for some seconds what
    else runs on exclusive CPUs, interrupts them or takes time from them: a grade for each container, the evidence, and
    what helps.

    \b
    Examples:
      podslice audit
      podslice audit --report --seconds 30 --out isolation.html
      podslice audit --state /var/lib/kubelet -o json

    Exit codes: 0 no findings, 1 findings (with --report: a grade is fail), 2 bad input.
    """
    check_page_name(out)
    if out is not None and not isolation:
        raise InputError("is for --report", path="--out", remedy="--report --out FILE.html")
    # Where an agent runs, its own state decides what containers get.
    folder = Path(state_folder) if state_folder is not None else _AGENT if _AGENT.is_dir() else _KUBELET
    state = load_state(folder)
    tree = CgroupTree(cgroup_root)
    if not tree.usable:
        raise InputError("is not a cgroup v2 mount with cpu and cpuset", source=cgroup_root, remedy="--cgroup-root DIR")
    if isolation:
        _report(state, tree, seconds, folders=(proc_folder, sys_folder, logs), out=out, output=output)
        return
    policy = None if policy_path is None else load_policy(policy_path, "podslice")
    report = audit_node(state, tree, DiskFileSystem(proc_folder), container_names(Path(logs)), policy=policy)
    if output == "table":
        _print(report, folder)
    else:
        emit(report, output)
    if report.findings or (strict and report.outsiders):
        sys.exit(1)


def _report(
    state: RecordedState,
    tree: CgroupTree,
    seconds: float,
    *,
    folders: tuple[str, str, str],
    out: Path | None,
    output: str,
) -> None:
    """Print the isolation report; `folders` are those of processes, devices and logs."""
    from podslice.audit.isolation import node_isolation
    from podslice.isolation.report import FAIL, isolation_report
    from podslice.isolation.table import isolation_page, isolation_text

    def wait() -> float:
        began = time.monotonic()
        time.sleep(seconds)
        return time.monotonic() - began

    proc, sys_files, logs = folders
    names = container_names(Path(logs))
    facts = node_isolation(state, tree, names, proc=DiskFileSystem(proc), sys=DiskFileSystem(sys_files), wait=wait)
    report = isolation_report(facts)
    if out is not None:
        write_shown(out, isolation_page(report))
    if output == "table":
        echo(isolation_text(report, prose_width()))
    else:
        emit(report, output)
    if report.grade == FAIL:
        sys.exit(1)


def _print(report: AuditReport, folder: Path) -> None:
    from podslice.render.table import print_table
    from podslice.values.quantity import plural

    echo(f"{folder}: {plural(report.pods, 'pod')}, {plural(report.containers, 'container')}")
    echo(f"exclusive {report.exclusive or '-'}, shared {report.shared or '-'}")
    if report.findings:
        echo("")
        rows = [[style(f.kind, fg="red"), f.where, f.wanted or "-", f.found or "-", f.message] for f in report.findings]
        print_table(["FINDING", "WHERE", "WANTED", "FOUND", "WHAT IT MEANS"], rows)
    else:
        echo(style("every container has what the state assigns", fg="green"))
    if report.promised:
        echo("")
        beyond = [[one.pod, one.container or "(whole pod)", one.promised, one.beyond] for one in report.promised]
        print_table(["POD", "CONTAINER", "PROMISED", "BEYOND IT"], beyond)
    if report.outsiders:
        count = sum(report.outsiders.values())
        most = sorted(report.outsiders.items(), key=lambda item: -item[1])[:5]
        names = ", ".join(f"{name} ({number})" for name, number in most)
        echo(f"\n{count} processes outside pods may run on exclusive CPUs: {names}")
