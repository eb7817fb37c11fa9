"""docs/fleet.md is a tutorial whose commands print what it shows; `podslice fleet` costs other commands nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fleet.test_runs import fleet

pytestmark = pytest.mark.process

PAGE = Path(__file__).parents[2] / "docs" / "fleet.md"


@pytest.mark.slow
def test_the_tutorials_comparison_is_what_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands of the comparison, run in an empty folder, print the block that the page shows."""
    block = re.search(r"```console\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert block is not None
    lines = block[1].splitlines()
    commands = [line.split()[3:] for line in lines if line.startswith("$ podslice fleet ")]
    monkeypatch.chdir(tmp_path)
    printed = ""
    for command in commands:
        result = fleet(*command)
        assert result.exit_code == 0, result.output
        printed += result.stdout
    assert printed.strip() == "\n".join(line for line in lines if not line.startswith("$ ")).strip()


def test_help_imports_nothing_of_simulations() -> None:
    """`podslice --help` and `podslice fleet --help` load neither numpy nor the modules that simulate."""
    for words in (["--help"], ["fleet", "--help"]):
        code = (
            f"import sys; sys.argv = ['podslice', *{words!r}]\n"
            "from podslice.cli.main import cli\n"
            "try:\n    cli()\nexcept SystemExit:\n    pass\n"
            "loaded = [name for name in sys.modules if name == 'numpy' or name.startswith('podslice.fleet.')"
            " and name != 'podslice.fleet.commands']\n"
            "print('LOADED', loaded)"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        assert found.stdout.splitlines()[-1] == "LOADED []"
