"""Eight commands as processes: the installed programs start, read their streams, and end with their exit codes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.shell import ROOT, podslice, podslice_process

pytestmark = pytest.mark.process
EXAMPLE = ("admit", "examples/pods.yaml", "--machine", "epyc-9654-nps4", "--config", "examples/kubelet.yaml")


@pytest.mark.parametrize(
    ("words", "stdin", "code"),
    [
        pytest.param(("version",), "", 0, id="version"),
        pytest.param(("topology", "--list"), "", 0, id="list"),
        pytest.param(EXAMPLE, "", 1, id="refused"),
        pytest.param((*EXAMPLE, "-o", "json"), "", 1, id="json"),
        pytest.param(("admit", "-"), (ROOT / "examples" / "small.yaml").read_text(), 0, id="stdin"),
        pytest.param(("admit", "missing.yaml"), "", 2, id="missing"),
        pytest.param(("topolgy",), "", 2, id="misspelt"),
    ],
)
def test_a_process_answers_as_a_call(words: tuple[str, ...], stdin: str, code: int) -> None:
    """Tests that run commands in their own process see the output of a terminal."""
    answer = podslice_process(*words, stdin=stdin)
    assert answer.returncode == code
    assert answer == podslice(*words, stdin=stdin)


def test_the_plugin_of_kubectl() -> None:
    """The installed program that kubectl finds explains itself."""
    program = Path(sys.executable).with_name("kubectl-podslice")
    done = subprocess.run([program, "--help"], capture_output=True, text=True, check=True)
    assert "kubectl podslice" in done.stdout
