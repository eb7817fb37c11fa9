"""The plugin of kubectl as an archive and a manifest for krew: `kubectl krew install --manifest=… --archive=…`."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
from pathlib import Path

import yaml

from podslice.version import __version__

SCRIPT, LOCK = "deploy/krew/kubectl-podslice", "release/run.lock"
_DESCRIPTION = """Names the cause in one line when a kubelet refuses a pod, and the changes that make
it fit. Shows who owns which CPUs, memory and devices of the cluster's nodes.
"""
_CAVEATS = """The plugin needs Python 3.11 or newer. Its first call makes a Python environment
beside the plugin, and downloads a few packages whose digests it checks.
"""


def write_plugin(out: Path, wheel: Path, *, root: Path, when: int) -> list[Path]:
    """Write the archive and the manifest into a folder, and return their paths. The same wheel gives the same bytes."""
    archive = out / f"kubectl-podslice-{__version__}.tar.gz"
    files = {
        "kubectl-podslice": (root / SCRIPT).read_bytes(),
        "requirements.lock": (root / LOCK).read_bytes(),
        wheel.name: wheel.read_bytes(),
        "LICENSE": (root / "LICENSE").read_bytes(),
    }
    archive.write_bytes(_packed(files, when))
    manifest = out / "podslice.yaml"
    manifest.write_text(_manifest(archive), encoding="utf-8")
    return [archive, manifest]


def _packed(files: dict[str, bytes], when: int) -> bytes:
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", filename="", mtime=when) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size, member.mtime = len(content), when
            member.mode = 0o755 if name == "kubectl-podslice" else 0o644
            archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def _manifest(archive: Path) -> str:
    platform = {
        "selector": {"matchExpressions": [{"key": "os", "operator": "In", "values": ["linux", "darwin"]}]},
        # Where the archive is published; --archive takes a file in its place.
        "uri": f"https://example.com/podslice/releases/v{__version__}/{archive.name}",
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bin": "kubectl-podslice",
    }
    return yaml.safe_dump(
        {
            "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
            "kind": "Plugin",
            "metadata": {"name": "podslice"},
            "spec": {
                "version": f"v{__version__}",
                "homepage": "https://example.com/podslice",
                "shortDescription": "Say why a node refuses a pod, and who owns its CPUs",
                "description": _DESCRIPTION,
                "caveats": _CAVEATS,
                "platforms": [platform],
            },
        },
        sort_keys=False,
    )
