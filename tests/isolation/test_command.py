"""`podslice audit --report` on files as a node has them."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner

from podslice.cli.main import cli
from podslice.values.cpuset import parse_bits
from tests.audit.test_audit import FakeHost
from tests.read_documents import read_document


def disturb(host: FakeHost) -> None:
    """Change the files that the report reads beside the audit's."""
    app = host.folder / "cgroup" / host.app
    (app / "cpuset.cpus.effective").write_text(f"{host.own}\n")
    (app / "cgroup.threads").write_text("100\n")
    (app / "cpu.stat").write_text("usage_usec 5\nnr_throttled 0\n")
    (app / "memory.numa_stat").write_text("anon N0=4096\n")
    lines = [f"cpu{cpu} 0 0 0 0 0 0 0 0 0 0" for cpu in range(32)]
    (host.folder / "proc" / "stat").write_text("\n".join(lines) + "\n")
    (host.folder / "proc" / "interrupts").write_text("      CPU0\n 24:   1  IO-APIC  5-edge  ACPI:Ged\n")


def test_report_of_a_node(tmp_path: Path) -> None:
    """Each container that owns CPUs is one block of a document with a schema and of a page; a fail is exit code 1."""
    host = FakeHost(tmp_path)
    disturb(host)
    page = tmp_path / "page.html"
    arguments = ["audit", "--report", "--seconds=0", f"--sys={tmp_path / 'sys'}", f"--out={page}", *host.options]
    result = CliRunner().invoke(cli, [*arguments, "-o", "json"])
    document = read_document(result.stdout, "IsolationReport")
    assert result.exit_code == 0
    (container,) = document["containers"]
    assert (container["container"], container["cpus"]) == ("app", host.own)
    grades = {one["check"]: one["grade"] for one in container["checks"]}
    assert grades["cpus"] == grades["throttling"] == grades["interrupts"] == "pass"
    assert "Are exclusive CPUs alone?" in page.read_text()
    assert "container app" in CliRunner().invoke(cli, arguments).stdout
    (host.folder / "cgroup" / host.app / "cpuset.cpus.effective").write_text("0-31\n")
    assert CliRunner().invoke(cli, [*arguments, "-o", "json"]).exit_code == 1


def test_other_cgroups(tmp_path: Path) -> None:
    """A shared container on the CPUs fails, a sandbox or a slice of the system warns."""
    host = FakeHost(tmp_path)
    disturb(host)
    host.tree.add("system.slice", cpuset_cpus="", cpuset_cpus_effective="0-31")
    arguments = ["audit", "--report", "--seconds=0", f"--sys={tmp_path / 'sys'}", *host.options, "-o", "json"]

    def sets() -> tuple[str, str]:
        document = json.loads(CliRunner().invoke(cli, arguments).stdout)
        (found,) = (one for one in document["containers"][0]["checks"] if one["check"] == "sets")
        return found["grade"], found["observed"]

    assert sets() == ("warn", "1 (other)")
    (host.folder / "cgroup" / host.web / "cpuset.cpus.effective").write_text("0-31\n")
    assert parse_bits(host.own)
    assert sets() == ("fail", "2 (container, other)")


def test_a_page_needs_the_report(tmp_path: Path) -> None:
    """`--out` without `--report` is an error that says so."""
    result = CliRunner().invoke(cli, ["audit", *FakeHost(tmp_path).options, "--out", str(tmp_path / "a.html")])
    assert "--report --out" in str(result.exception)
