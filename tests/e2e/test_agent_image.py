"""The image that the cluster's nodes run is that of this checkout."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.agent_image import agent_image
from e2e.packages import FetchError
from release.archives import ReleaseError

from e2e import agent_image as module


def test_built_again_only_when_something_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same files use the archive that is there; a changed one makes another; byte code counts for nothing."""
    built: list[Path] = []

    def build(out: Path, *, root: Path) -> None:
        out.write_bytes(b"")
        built.append(out)

    monkeypatch.setattr(module, "build", build)
    repository, cache = tmp_path / "checkout", tmp_path
    (repository / "src" / "__pycache__").mkdir(parents=True)
    for name in ("pyproject.toml", "requirements.lock", "README.md", "LICENSE", "src/a.py"):
        (repository / name).write_text(name)
    (repository / "deploy").mkdir()
    (repository / "deploy" / "agent.yaml").write_text("")
    first = agent_image(repository, cache)
    (repository / "src" / "__pycache__" / "a.pyc").write_text("new")
    assert agent_image(repository, cache) == first
    (repository / "src" / "a.py").write_text("changed")
    second = agent_image(repository, cache)
    assert second != first
    assert built == [first, second]


def test_no_builder_is_a_fetch_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a builder ends the run in one line, as with any other missing program."""

    def build(out: Path, *, root: Path) -> None:
        raise ReleaseError("buildah is not installed")

    monkeypatch.setattr(module, "build", build)
    with pytest.raises(FetchError, match="the agent's image cannot be built: buildah is not installed"):
        agent_image(Path(__file__).parents[2], tmp_path)
