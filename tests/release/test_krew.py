"""The plugin of kubectl for krew."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml
from release.archives import ROOT
from release.krew import write_plugin


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    path = tmp_path / "podslice-9-py3-none-any.whl"
    path.write_bytes(b"wheel")
    return path


def test_the_manifest_names_the_archive(tmp_path: Path, wheel: Path) -> None:
    """Digest and name of the program are those of the archive, whose bytes are the same each time."""
    (tmp_path / "again").mkdir()
    archive, manifest = write_plugin(tmp_path, wheel, root=ROOT, when=7)
    (platform,) = yaml.safe_load(manifest.read_text(encoding="utf-8"))["spec"]["platforms"]
    assert platform["sha256"] == hashlib.sha256(archive.read_bytes()).hexdigest()
    assert platform["uri"].endswith(archive.name)
    with tarfile.open(archive) as members:
        modes = {member.name: member.mode for member in members}
    assert modes[platform["bin"]] == 0o755
    assert {wheel.name, "requirements.lock", "LICENSE"} < set(modes)
    again, _ = write_plugin(tmp_path / "again", wheel, root=ROOT, when=7)
    assert again.read_bytes() == archive.read_bytes()


@pytest.mark.process
def test_the_first_call_makes_the_environment(tmp_path: Path, wheel: Path) -> None:
    """Through krew's link the script finds its folder; a later call goes straight to the program."""
    store = tmp_path / "store"
    store.mkdir()
    archive, _ = write_plugin(tmp_path, wheel, root=ROOT, when=7)
    with tarfile.open(archive) as members:
        members.extractall(store, filter="data")
    link = tmp_path / "kubectl-podslice"
    link.symlink_to(store / "kubectl-podslice")
    # Stands in for the interpreter: `venv` leaves one that logs what pip is asked for, and the plugin.
    python = tmp_path / "python"
    python.write_text(
        f"""#!/bin/sh
case "$*" in
  *venv*) mkdir -p "$3/bin"
    printf '#!/bin/sh\\necho "$*" >> {tmp_path}/asked\\n' > "$3/bin/python"
    printf '#!/bin/sh\\necho plugin "$@"\\n' > "$3/bin/kubectl-podslice"
    chmod +x "$3/bin/python" "$3/bin/kubectl-podslice" ;;
  *) exec {sys.executable} "$@" ;;
esac
"""
    )
    python.chmod(0o755)
    environment = {**os.environ, "PODSLICE_PYTHON": str(python)}
    for _ in range(2):
        ran = subprocess.run([link, "why", "a b"], env=environment, capture_output=True, text=True, check=True)
        assert ran.stdout == "plugin why a b\n"
    asked = (tmp_path / "asked").read_text().splitlines()
    assert [line.partition("version-check ")[2] for line in asked] == [
        f"--require-hashes -r {store}/requirements.lock",
        f"--no-index --no-deps {store}/{wheel.name}",
    ]
