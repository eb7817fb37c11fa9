"""Plugins of installed packages: found by name, tried by `python -m podslice.plugins.check`."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from podslice import Node, PodslicePolicy, StartError
from podslice.config.policy import PluginEntry, PluginRules
from podslice.config.policy_file import load_policy
from podslice.machine.readers.synthetic import from_synthetic
from tests.conftest import make_pod
from tests.node.plugins.helpers import TWO_NODES, config, cpus_of

SOURCE = '''
import random
import time

from podslice.plugins import CPUPlugin


class Quiet(CPUPlugin):
    """The upper half of the CPUs only."""

    version = "3"

    def __init__(self, arguments, machine):
        self.upper = machine.all_cpus & ~((1 << machine.all_cpus.bit_length() // 2) - 1)

    def filter(self, ask, cpus, node):
        return cpus & self.upper


class Impure(Quiet):
    def prescore(self, ask, cpus, node):
        return tuple((1 << cpu, hash(f"{cpu}") % 100) for cpu in range(128))


class Slow(Quiet):
    def filter(self, ask, cpus, node):
        end = time.perf_counter() + 0.02
        while time.perf_counter() < end:
            pass
        return cpus


class Wrong(Quiet):
    def score(self, ask, candidate, node):
        return 101


def nothing(arguments, machine):
    return None


def fails(arguments, machine):
    raise ValueError("no licence")
'''
NAMES = ("Quiet", "Impure", "Slow", "Wrong", "nothing", "fails")


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package with plugins, on the path."""
    (tmp_path / "quiet_plugins.py").write_text(SOURCE)
    about = tmp_path / "quiet_plugins-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: quiet-plugins\nVersion: 1.0\n")
    lines = "".join(f"{name.lower()} = quiet_plugins:{name}\n" for name in NAMES)
    (about / "entry_points.txt").write_text(f"[podslice.cpu_plugins]\n{lines}")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    return tmp_path


def policy_file(folder: Path, name: str) -> Path:
    """A policy that names one plugin."""
    file = folder / f"{name}.yaml"
    kind = "apiVersion: podslice.io/v1alpha1\nkind: PodslicePolicy\n"
    file.write_text(f"{kind}spec: {{plugins: {{profile: [{{name: {name}}}]}}}}\n")
    return file


def test_an_installed_plugin(installed: Path) -> None:
    """A policy names a plugin of an installed package, and it decides; its version is part of the rules."""
    policy = load_policy(str(policy_file(installed, "quiet")))
    node = Node(from_synthetic(TWO_NODES), config(), policy=policy)
    node.admit(make_pod("a", ("c", "4")))
    assert cpus_of(node, "a") == "16-19"
    assert node.rules.cpu.plugins is not None
    assert node.rules.cpu.plugins.identity == (("quiet", "3"),)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("nothing", "plugin nothing does not start: its factory returns a NoneType, not a CPUPlugin"),
        ("fails", "plugin fails does not start: no licence"),
        ("quietly", "plugins.profile names quietly, which is not installed"),
    ],
)
def test_a_factory_that_fails(installed: Path, name: str, problem: str) -> None:
    """A plugin that cannot be made keeps the node from starting, and is named."""
    policy = PodslicePolicy(plugins=PluginRules((PluginEntry(name),)))
    with pytest.raises(StartError) as error:
        Node(from_synthetic(TWO_NODES), config(), policy=policy)
    assert problem in str(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "code", "said"),
    [
        ("quiet", 0, "every plugin answers the same twice\n"),
        ("impure", 1, "plugin impure: answers differ from process to process\n"),
        ("slow", 1, "plugin slow: Filter: took more than 10 ms 5 times in a row\n"),
        ("wrong", 1, "plugin wrong: Score: 101 is not a score from 0 to 100\n"),
        ("quietly", 2, ""),
    ],
)
@pytest.mark.process
def test_check(installed: Path, name: str, code: int, said: str) -> None:
    """The check names plugins that are impure, slow or break their contract."""
    ran = subprocess.run(
        [sys.executable, "-m", "podslice.plugins.check", str(policy_file(installed, name))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (code, said), ran.stderr
    assert ran.stderr.count("\n") == (code == 2)
