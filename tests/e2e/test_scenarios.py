"""The end-to-end scenarios as a list; they themselves need a virtual machine (`make e2e`)."""

from __future__ import annotations

import re

import pytest
from e2e.__main__ import SHORT, Outcome, markdown
from e2e.scenarios import SCENARIOS
from e2e.vm import SHAPES

from podslice.agent.settings import settings_from_dict


def ids(letters: str, *numbers: int) -> set[str]:
    return {f"{letters}{number:02}" for number in numbers}


def test_every_row_of_the_checklist_is_there() -> None:
    """Rows about the kubelet's own part are named in docs/development/e2e.md as left out."""
    expected = (
        ids("C", *range(1, 40))
        | ids("P", *range(1, 25))
        | ids("M", *range(1, 10))
        | ids("MP", *range(1, 22))
        | ids("T", *range(1, 7))
        | ids("R", 1, 2, 3, 5, 6, 7)
        | ids("X", 1, 2, 3, 4, 8, 11, 12)
    )
    assert {re.split(r"[/-]", ident)[0] for ident in SCENARIOS} - {"X"} == expected


def test_every_scenario_has_a_machine() -> None:
    """And all machines have scenarios; the short set is a part of the whole."""
    assert all(one.shapes for one in SCENARIOS.values())
    assert {shape for one in SCENARIOS.values() for shape in one.shapes} == set(SHAPES)
    assert set(SHORT) <= set(SCENARIOS)


@pytest.mark.parametrize("ident", sorted(SCENARIOS))
def test_configurations_are_valid(ident: str) -> None:
    """Each scenario's configuration is one the agent starts with."""
    one = SCENARIOS[ident]
    for name in one.shapes:
        config = one.config(SHAPES[name]) if callable(one.config) else one.config
        settings = {
            "apiVersion": "podslice.io/v1alpha1",
            "kind": "AgentConfiguration",
            "resources": config,
            **one.agent,
        }
        assert settings_from_dict(settings).warnings == ()


def test_results_as_a_table() -> None:
    """A row per scenario, also those that never ran, a column per machine, and how many passed; a row or cell that does
    not run again stays, with the commit that it is of."""
    first = [
        Outcome("C01", "2x2x4x2", 1.0, ""),
        Outcome("C01", "1x4-l3", 1.0, "no"),
        Outcome("P01", "2x2x4x2", 1.0, ""),
    ]
    page = markdown(first)
    assert "2 of 3 that ran passed" in page
    assert [line for line in page.splitlines() if line.startswith("| C01")] == [
        "| C01 | pass | FAIL | - | not run | - |"
    ]
    again = markdown([Outcome("C01", "1x4-l3", 1.0, ""), Outcome("C02", "2x2x4x2", 1.0, "no")], page)
    assert "3 of 4 that ran passed" in again
    rows = {line.split(" | ")[0]: line.split(" | ")[1:3] for line in again.splitlines() if line.startswith("| ")}
    assert (rows["| C02"], rows["| C01"], rows["| P01"]) == (["FAIL", "not run"], ["pass", "pass"], ["pass", "not run"])
    assert rows["| C03"] == ["not run", "not run"]
    assert rows.keys() == {"| id", "| ---", *(f"| {ident}" for ident in SCENARIOS)}
    assert markdown([], again) == again
    later = markdown([Outcome("C01", "2x2x4x2", 1.0, "")], again, "6deda9864")
    assert "| C01 | pass 6deda9864 | pass | - | not run | - |" in later.splitlines()
    assert "3 of 4 that ran passed" in later
    assert markdown([], later, "0123456789") == later
