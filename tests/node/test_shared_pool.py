"""The sentence about the shared pool: how much it is, and who owns the rest."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from podslice.advise.explain.explain import explain
from podslice.cli.main import cli
from podslice.node.shared_pool import describe_pool, describe_pool_of
from podslice.values.cpuset import parse_bits
from tests.conftest import make_node, make_pod

EIGHT = parse_bits("0-7")


@pytest.mark.parametrize(
    ("owned", "more", "text"),
    [
        ({}, {}, ""),
        ({}, {"held": parse_bits("4")}, "Shared pool: 4 of 8 CPUs (0-3)"),
        ({"a/b": parse_bits("4-7")}, {}, "Shared pool: 4 of 8 CPUs (0-3); owned: 4 (a/b 4)"),
        (
            {"a": parse_bits("4"), "b": parse_bits("5-6"), "d": parse_bits("7"), "e": parse_bits("8")},
            {},
            "Shared pool: 4 of 8 CPUs (0-3); owned: 5 (b 2, a 1, d 1, 1 more pod 1)",
        ),
        (
            {"a": parse_bits("5-7")},
            {"reserved": parse_bits("4")},
            "Shared pool: 4 of 8 CPUs (0-3); owned: 3 (a 3); reserved and not shared: 1",
        ),
    ],
)
def test_the_sentence(owned: dict[str, int], more: dict[str, int], text: str) -> None:
    """The largest owners are named, the others counted; reserved CPUs count where they are not in the pool."""
    assert describe_pool_of(parse_bits("0-3"), EIGHT, owned, **more) == text


def test_of_a_node() -> None:
    """On a node the numbers add up to its CPUs."""
    node = make_node(reserved_system_cpus="0")
    assert describe_pool(node.view) == ""
    assert node.admit(make_pod("db", ("main", "4"))).admitted
    total, shared = node.view.topology.num_cpus, node.view.shared.bit_count()
    assert shared + 4 == total
    assert describe_pool(node.view).startswith(f"Shared pool: {shared} of {total} CPUs (0")
    assert describe_pool(node.view).endswith("owned: 4 (default/db 4)")


def test_strict_reservations_are_no_part_of_the_pool() -> None:
    """With strict-cpu-reservation the reserved CPUs are named beside the owners."""
    options = {"strict-cpu-reservation": "true"}
    node = make_node(reserved_system_cpus="0", cpu_manager_policy_options=options)
    assert node.admit(make_pod("db", ("main", "2"))).admitted
    assert describe_pool(node.view).endswith("owned: 2 (default/db 2); reserved and not shared: 1")


def test_explain_tells_who_shares() -> None:
    """A pod that shares learns in the first three sentences what throttles it and who owns the other CPUs; one that
    owns CPUs does not ask for the pool."""
    node = make_node(reserved_system_cpus="0")
    assert node.admit(make_pod("db", ("main", "4"))).admitted
    story = explain(node, make_pod("web", ("main", "500m"))).story
    assert story[1] == "CPU quota: main 500m."
    assert story[2].endswith("owned: 4 (default/db 4).")
    assert not any(one.startswith("Shared pool") for one in explain(node, make_pod("own", ("main", "2"))).story)


def test_state_show_says_it_before_the_table(tmp_path: Path) -> None:
    """The file alone says who owns what; names come from --pods."""
    file = tmp_path / "cpu_manager_state"
    file.write_text('{"policyName":"static","defaultCpuSet":"0-3,5-7","entries":{"gone":{"app":"4"}},"checksum":0}')
    shown = CliRunner().invoke(cli, ["state", "show", str(file)]).output
    assert shown.index("Shared pool: 7 CPUs (0-3,5-7); owned: 1 (gone 1).") < shown.index("CONTAINER")
