"""What the documents promise is what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from podslice import InputError
from podslice.core.quirks import KUBELET_1_36, PODSLICE, PROFILES, Quirks, profile

ROOT = Path(__file__).parents[1]


def test_deviations_are_the_quirks() -> None:
    """docs/deviations.md has exactly one row per quirk."""
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert rows == list(Quirks.__struct_fields__)


def test_profiles_are_all_or_nothing() -> None:
    """kubelet-1.36 has every quirk, podslice none, and other names are refused."""
    assert all(getattr(KUBELET_1_36, name) for name in Quirks.__struct_fields__)
    assert not any(getattr(PODSLICE, name) for name in Quirks.__struct_fields__)
    assert set(PROFILES) == {"podslice", "kubelet-1.36"}
    with pytest.raises(InputError, match="use one of"):
        profile("kubelet-1.0")


def test_readme_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The library example of the README runs and prints what the README shows."""
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    code, shown = re.findall(r"```python\n(.*?)```\n.*?```text\n(.*?)```", readme, re.DOTALL)[0]
    exec(compile(code, "README.md", "exec"), {})
    assert capsys.readouterr().out == shown


def test_readme_names_every_command() -> None:
    """Every command of the tool is in the README."""
    from podslice.cli.main import _COMMANDS

    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert all(f"podslice {command}" in readme for command in _COMMANDS)


def test_changelog_names_the_version() -> None:
    """The changelog has an entry for the version of the package."""
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(encoding="utf-8"), re.MULTILINE)
    assert version is not None
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_explain_codes_are_documented() -> None:
    """docs/explain.md has every stable code and every class of fixes, and no others."""
    from podslice.advise.explain.codes import CANDIDATES, ELIGIBILITY, REFUSALS
    from podslice.advise.explain.fix import COSTS

    text = (ROOT / "docs" / "explain.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (`.+?`) \|", text, re.MULTILINE)
    assert {code for row in rows for code in re.findall(r"`([a-z-]+)`", row)} == {
        *ELIGIBILITY,
        *CANDIDATES,
        *REFUSALS,
        *COSTS,
    }
