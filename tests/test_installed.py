"""What podslice says about its own installation."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import podslice
from podslice.extras import install_extra
from podslice.version import running_version, version_line
from tests.shell import ROOT


@pytest.fixture
def origin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which an installer records where a distribution came from."""
    (tmp_path / "METADATA").write_text("Metadata-Version: 2.1\nName: podslice\n")
    monkeypatch.setattr(metadata, "distribution", lambda _: metadata.PathDistribution(tmp_path))
    return tmp_path / "direct_url.json"


def test_an_extra_comes_from_where_podslice_came(origin: Path, tmp_path: Path) -> None:
    """A folder, an archive and a repository are installed again with the extra, in quotes for the shell."""
    checkout = tmp_path / "my checkout"
    checkout.mkdir()
    origin.write_text(json.dumps({"url": checkout.as_uri(), "dir_info": {}}))
    assert install_extra("agent") == f"pip install '{checkout}[agent]'"
    origin.write_text(json.dumps({"url": "https://example.com/podslice.git", "vcs_info": {"vcs": "git"}}))
    assert install_extra("png") == "pip install 'podslice[png] @ git+https://example.com/podslice.git'"
    origin.write_text(json.dumps({"url": "https://example.com/podslice.whl", "archive_info": {}}))
    assert install_extra("png") == "pip install 'podslice[png] @ https://example.com/podslice.whl'"


@pytest.mark.parametrize("recorded", ["", "{", "{}", '{"url": "file:///gone/podslice"}'])
def test_an_unknown_origin_is_the_wheel_of_this_version(origin: Path, recorded: str) -> None:
    """No index is named: whoever registers the name there would be installed."""
    origin.write_text(recorded)
    assert (
        install_extra("agent,cluster")
        == f"pip install 'podslice-{podslice.__version__}-py3-none-any.whl[agent,cluster]'"
    )


def test_the_version_is_one(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`__version__`, the metadata that the build writes, and the command agree."""
    from podslice import entry

    assert metadata.version("podslice") == podslice.__version__ == running_version()
    monkeypatch.setattr(sys, "argv", ["podslice", "--version"])
    entry.main()
    assert capsys.readouterr().out == version_line() + "\n"


@pytest.mark.process
def test_the_version_needs_no_command_line() -> None:
    """`podslice --version` imports neither click nor msgspec nor the metadata of packages: 30 ms of CPU."""
    program = (
        "import sys; sys.argv = ['podslice', '--version']; from podslice.entry import main; main();"
        "print(sorted({'click', 'msgspec', 'typing_extensions', 'importlib.metadata'} & {*sys.modules}))"
    )
    # -S leaves out the site packages, whose .pth files import more than podslice does.
    env = {**os.environ, "PYTHONPATH": str(Path(podslice.__file__).parents[1])}
    ran = subprocess.run([sys.executable, "-S", "-c", program], capture_output=True, text=True, check=True, env=env)
    assert ran.stdout.splitlines()[1] == "[]"


@pytest.mark.process
def test_admit_imports_what_it_uses() -> None:
    """A ready-made machine and plain pods need no readers of other machines, of operators' objects or of state files,
    and few modules at all."""
    program = (
        "import sys; from podslice.entry import main\n"
        "sys.argv = ['podslice', 'admit', 'examples/small.yaml', '--machine', 'epyc-9654-nps4']\n"
        "try: main()\n"
        "except SystemExit: print(*sys.modules)"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(ran.stdout.splitlines()[-1].split())
    unused = {
        "api.manifests.custom",
        "evidence.state_check",
        "host.discover",
        "machine.listings.reading",
        "draw.command",
    }
    assert loaded & {"importlib.metadata", *(f"podslice.{one}" for one in unused)} == set()
    assert sum(one.startswith("podslice") for one in loaded) < 295
