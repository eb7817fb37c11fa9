"""The agent's image is built by a real builder, and what it is named by is what is in it."""

from __future__ import annotations

import hashlib
import io
import json
import shutil
import tarfile
from pathlib import Path

import pytest
from release.archives import ReleaseError
from release.image import Buildah, archive_digest, build, main, run, version

BUILDERS = [name for name in ("buildah", "crun", "mmdebstrap") if shutil.which(name) is None]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(bool(BUILDERS), reason="needs apt-get install buildah crun mmdebstrap")
def test_image_is_built_and_runs(tmp_path: Path) -> None:
    """The image has the agent, which accepts the shipped configuration; its bytes are those that its digest says."""
    built = build(tmp_path / "podslice.oci.tar")
    assert f"podslice {version()}" in built.tried
    assert "/etc/podslice/agent.yaml: good" in built.tried
    with tarfile.open(built.archive) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive if member.isfile()}  # type: ignore[union-attr]
    manifest_text = files["blobs/sha256/" + built.digest.removeprefix("sha256:")]
    assert hashlib.sha256(manifest_text).hexdigest() == built.digest.removeprefix("sha256:")
    manifest = json.loads(manifest_text)
    config = json.loads(files["blobs/sha256/" + manifest["config"]["digest"].removeprefix("sha256:")])["config"]
    assert (config["Entrypoint"], config["User"]) == (["podslice", "agent"], "0:0")
    layer = files["blobs/sha256/" + manifest["layers"][-1]["digest"].removeprefix("sha256:")]
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        names = {member.name for member in archive}
    modules = {name for name in names if name.endswith("site-packages/podslice/agent/owner.py")}
    assert len(modules) == 1
    assert any("podslice/agent/__pycache__/owner.cpython-" in name for name in names)
    assert not any("/site-packages/pip/" in name or "/site-packages/pytest/" in name for name in names)


def test_digest_of_an_archive(tmp_path: Path) -> None:
    """The digest is that of the index, whatever else is in the archive."""
    index = json.dumps({"manifests": [{"digest": "sha256:" + "1" * 64}]}).encode()
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        member = tarfile.TarInfo("index.json")
        member.size = len(index)
        archive.addfile(member, io.BytesIO(index))
    assert archive_digest(tmp_path / "a.tar") == "sha256:" + "1" * 64


@pytest.mark.process
def test_failures_are_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without a builder the line says what to install, and nothing is written."""
    with pytest.raises(ReleaseError, match="sh ended with 3: told so"):
        run("sh", "-c", "echo told so >&2; exit 3")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ReleaseError, match="buildah is not installed"):
        Buildah(tmp_path).digest("localhost/podslice:1")
    out = tmp_path / "out.tar"
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1")
    assert main(["--base", "python@sha256:" + "0" * 64, "--out", str(out)]) == 1
    assert capsys.readouterr().err.startswith("image: buildah is not installed")
    assert main(["--base", "python:3.12-slim", "--out", str(out)]) == 1
    assert "name the base by its digest" in capsys.readouterr().err
    assert not out.exists()
