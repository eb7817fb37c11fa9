"""A release is the same bytes for everybody, and holds what it should."""

from __future__ import annotations

import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from release.archives import EARLIEST, ROOT, ReleaseError, build, build_twice, compare, epoch
from release.smoke import find_python, smoke_tests

from release import smoke

pytestmark = pytest.mark.process


@pytest.mark.slow
def test_a_build_can_be_repeated(tmp_path: Path) -> None:
    """Two builds and the wheel out of the sdist are equal; the wheel has the package and nothing else."""
    sums = build_twice(tmp_path)
    assert len(sums) == 2
    (wheel,) = tmp_path.glob("*.whl")
    names = set(zipfile.ZipFile(wheel).namelist())
    source = {f"podslice/{file.relative_to(ROOT / 'src' / 'podslice')}" for file in (ROOT / "src").rglob("*.py")}
    assert source <= names
    assert {"podslice/py.typed", "podslice/machine/gallery/__init__.py"} <= names
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"podslice"}
    (sdist,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        held = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "CHANGELOG.md", "SECURITY.md", "Makefile", "docs/README.md", "tests/conftest.py"} <= held


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A small package whose builder writes the hash seed of the build into the wheel."""
    root = tmp_path / "tree"
    (root / "src" / "tiny").mkdir(parents=True)
    (root / "src" / "tiny" / "__init__.py").write_text("")
    (root / "pyproject.toml").write_text(
        "[build-system]\nrequires = ['hatchling']\nbuild-backend = 'hatchling.build'\n"
        "[project]\nname = 'tiny'\nversion = '1'\n[tool.hatch.build.targets.wheel]\npackages = ['src/tiny']\n"
        "[tool.hatch.build.hooks.custom]\npath = 'hook.py'\n"
    )
    (root / "hook.py").write_text(
        "import os\nfrom pathlib import Path\n"
        "from hatchling.builders.hooks.plugin.interface import BuildHookInterface\n"
        "class Hook(BuildHookInterface):\n"
        "    def initialize(self, version, build_data):\n"
        "        Path(self.root, 'src/tiny/seed.py').write_text(os.environ.get('PYTHONHASHSEED', ''))\n"
    )
    return root


@pytest.mark.slow
def test_a_build_that_differs_is_refused(tree: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that depends on its environment does not become a release; the archives are named."""
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    with pytest.raises(ReleaseError, match=r"a second build gives other bytes: .*tiny-1-\S+\.whl, tiny-1\.tar\.gz"):
        build_twice(tmp_path / "out", tree)


def test_what_cannot_be_built(tmp_path: Path) -> None:
    """A tree without a package is refused in one line."""
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    with pytest.raises(ReleaseError, match=r"cannot be built: \S+") as caught:
        build(tmp_path / "out", "wheel", root=tmp_path, when=EARLIEST)
    assert "\n" not in str(caught.value)


def test_differences_are_named() -> None:
    """Another digest, a missing and an additional file are differences."""
    compare({"a": "1"}, {"a": "1"}, "it")
    with pytest.raises(ReleaseError, match="it gives other bytes: a, b, c"):
        compare({"a": "1", "b": "1", "d": "1"}, {"a": "2", "c": "1", "d": "1"}, "it")


def test_time_of_the_archives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SOURCE_DATE_EPOCH wins; outside a checkout it is 1980, the earliest time a zip file holds."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert epoch(tmp_path) == 1700000000
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert epoch(tmp_path) == EARLIEST
    monkeypatch.delenv("SOURCE_DATE_EPOCH")
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert epoch(tmp_path) == EARLIEST


def test_pythons_are_asked_who_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name on the path that does not answer, or is another version, is passed over for one that pyenv keeps."""
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    shims, kept = tmp_path / "shims", tmp_path / "pyenv" / "versions" / f"{version}.9" / "bin"
    for folder in (shims, kept):
        folder.mkdir(parents=True)
    shim = shims / f"python{version}"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    monkeypatch.setenv("PATH", str(shims))
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path / "pyenv"))
    assert find_python(version) is None
    (kept / "python").symlink_to(sys.executable)
    assert find_python(version) == str(kept / "python")
    assert find_python("3.99") is None


def test_the_smoke_tests_find_what_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed tool that runs from elsewhere, or decides something else, is refused."""
    with pytest.raises(ReleaseError, match="not what was installed"):
        list(smoke_tests(tmp_path, sys.executable))
    monkeypatch.setattr(smoke, "OWNED", {"postgres": "0"})
    with pytest.raises(ReleaseError, match=r"podslice admit gives .*'postgres': '2-9,194-201'"):
        list(smoke_tests(Path("/"), sys.executable))
