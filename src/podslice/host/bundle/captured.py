"""The output of `capture.sh` on a node: its text, or the archive that it wrote."""

from __future__ import annotations

import tempfile
from pathlib import Path

from podslice.host.archive import read_members
from podslice.host.bundle.layout import CONFIGURATION, CONFIGZ, KUBELET, MANIFEST, PODS_FOLDER, Manifest
from podslice.host.bundle.opened import open_bundle
from podslice.host.bundle.written import BundleParts
from podslice.host.snapshot import name_in_snapshot, open_snapshot

SCRIPT = Path(__file__).with_name("capture.sh")
LARGEST_CAPTURE = 64 << 20
"""Bytes of an archive of `capture.sh`. That of 768 CPUs has less than one MiB."""


def check_capture(path: Path) -> Manifest:
    """Return the manifest of a captured archive, which must hold a machine. Raises `InputError`."""
    open_snapshot(path)
    with tempfile.TemporaryDirectory(prefix="podslice-") as scratch:
        return open_bundle(path, Path(scratch)).manifest


def add_capture(parts: BundleParts, path: Path) -> Manifest:
    """Add the machine and the kubelet's files of a captured archive, and return its manifest. Raises `InputError`."""
    open_snapshot(path)  # its bounds hold for what is read below
    with tempfile.TemporaryDirectory(prefix="podslice-") as scratch:
        bundle = open_bundle(path, Path(scratch))
        for file in Path(scratch).rglob("*"):
            name = file.relative_to(scratch).as_posix()
            if file.is_file() and name.startswith(f"{KUBELET}/") and name != MANIFEST:
                parts.files[name] = file.read_bytes()
            elif file.is_dir() and file.parent.name == PODS_FOLDER:
                parts.folders.add(name)
    for member, archive in read_members(path):
        name = name_in_snapshot(member.name)
        if name and member.isfile():
            content = archive.extractfile(member)
            parts.files[name] = content.read() if content is not None else b""
        elif name:
            # Of links the names alone are read, those of CPUs in a NUMA node.
            parts.folders.add(name)
    known = CONFIGURATION if CONFIGZ in parts.files else ()
    parts.missing += [one for one in bundle.manifest.missing if not one.part.startswith(known)]
    return bundle.manifest
