"""The agent's container image of this checkout as an OCI archive, built once for what goes into it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from release.archives import ReleaseError
from release.image import build

from e2e.packages import FetchError

_INPUTS = (
    "deploy/container",
    "src",
    "pyproject.toml",
    "requirements.lock",
    "README.md",
    "LICENSE",
    "deploy/agent.yaml",
)


def agent_image(repository: Path, cache: Path) -> Path:
    """The archive, for `ctr images import`; its image is `localhost/podslice:VERSION`. Raises `FetchError`."""
    archive = cache / f"agent-{_digest(repository)}.oci.tar"
    if not archive.exists():
        try:
            build(archive, root=repository)
        except ReleaseError as error:
            raise FetchError(f"the agent's image cannot be built: {error}") from None
    return archive


def _digest(repository: Path) -> str:
    digest = hashlib.sha256()
    for name in _INPUTS:
        top = repository / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(repository)}\0".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()[:12]
