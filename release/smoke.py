"""Smoke test of a wheel as a user has it: installed in a clean environment, away from the checkout."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from release.archives import ROOT, ReleaseError

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
NODE = ("--machine", "epyc-9654-nps4", "--config", str(ROOT / "examples" / "kubelet.yaml"))
OWNED = {"postgres": "2-9,194-201", "proxy": "10,202", "engine": "11-14,203-206", "logger": "15,207"}
"""Output of `make demo`: owners of CPUs, containers and pods, on the example machine."""


def find_python(version: str) -> str | None:
    """Find an interpreter of this minor version, on the path or among pyenv's. None where there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    kept = sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)
    found = shutil.which(f"python{version}")
    for candidate in [*([found] if found else []), *map(str, kept)]:
        asked = subprocess.run(
            [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
        if asked.stdout.strip() == version:
            return candidate
    return None


def try_wheel(wheel: Path, python: str) -> str:
    """Install the wheel with its dependencies, run the smoke tests, and return a line about what ran.

    Raises `ReleaseError` at the first thing that is not as it should be.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        _run(home, python, "-m", "venv", str(home / "venv"))
        tool = str(home / "venv" / "bin" / "python")
        _run(home, tool, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel))
        return "; ".join(smoke_tests(home, tool))


def smoke_tests(home: Path, tool: str) -> Iterator[str]:
    """Run the tool installed beside the interpreter `tool`, from the folder `home` that holds both; return what ran.

    Raises `ReleaseError`.
    """
    command = str(Path(tool).with_name("podslice"))
    yield _run(home, command, "--version").strip()
    where = _run(home, tool, "-c", "import podslice; print(podslice.__file__)").strip()
    if not Path(where).is_relative_to(home):
        raise ReleaseError(f"import podslice finds {where}, not what was installed")
    report = _run(home, command, "admit", str(ROOT / "examples" / "pods.yaml"), *NODE, "-o", "json", code=1)
    owned = {
        container["name"]: container["cpus"]
        for pod in json.loads(report)["pods"]
        for container in pod["containers"]
        if container["isolation"] != "host"
    }
    if owned != OWNED:
        raise ReleaseError(f"podslice admit gives {owned}, not {OWNED}")
    yield "admit as in make demo"
    kinds = [line.split()[0] for line in _run(home, command, "schema").splitlines()[1:]]
    for kind in kinds:
        json.loads(_run(home, command, "schema", kind))
    yield f"{len(kinds)} schemas"
    _run(home, tool, str(ROOT / "examples" / "why.py"))
    yield "examples/why.py"


def _run(home: Path, *command: str, code: int = 0) -> str:
    """Run a command in a folder without a checkout, and return its output. Raises `ReleaseError` for another exit
    code."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    ran = subprocess.run(command, cwd=home, env=variables, capture_output=True, text=True)
    if ran.returncode != code:
        last = (ran.stderr or ran.stdout).strip().splitlines()[-1:] or ["no output"]
        raise ReleaseError(f"{' '.join(command)} ended with {ran.returncode}, not {code}: {last[0]}")
    return ran.stdout
