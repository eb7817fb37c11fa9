"""What a new user does first, and does wrong first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.test_cli import run

NONE = ("examples/small.yaml", "--machine", "xeon-6338-2s")


def test_a_recommendation_without_reserved_cpus() -> None:
    """Where every other configuration fails for want of a reservation, one warning says which field to set."""
    result = run("whatif", *NONE, "--recommend")
    assert result.returncode == 0
    (warning,) = result.stderr.splitlines()
    assert warning.startswith("warning: 42 of 43 configurations do not start: ")
    assert "reservedSystemCPUs" in warning
    assert run("whatif", *NONE, "--recommend", "--set", "reservedSystemCPUs=0").stderr == ""


@pytest.mark.parametrize("command", ["explain", "whatif"])
def test_a_page_is_html(command: str, tmp_path: Path) -> None:
    """A page is not written to a file that is called a PDF."""
    page = tmp_path / "why.pdf"
    result = run(command, *NONE, "--out", str(page))
    assert result.returncode == 2
    assert result.stderr == f"podslice: error: --out: a page is HTML (use {tmp_path / 'why.html'})\n"
    assert not page.exists()


def test_a_pod_is_no_machine() -> None:
    """Of a file of another kind, the kind is named before its version."""
    result = run("topology", "--from", "examples/small.yaml")
    assert result.stderr == "podslice: error: examples/small.yaml: kind: 'Pod' is not Machine (write Machine)\n"


def test_numa_nodes_are_named_in_order() -> None:
    """The nodes that keep a machine from having a synthetic description are named by number, not by text."""
    result = run("topology", "--machine", "gb200-34-nodes", "-o", "synthetic")
    assert "NUMA nodes without CPUs: 2, 3, 4, " in result.stderr
