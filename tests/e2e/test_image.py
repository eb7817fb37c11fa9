"""The image that the virtual machine boots."""

from __future__ import annotations

import io
import json
import tarfile
from pathlib import Path

from e2e.image import checkout_archive, cpio, oci_archive


def test_initramfs_archive() -> None:
    """Folders come before what is in them, sizes are aligned, and the end is marked."""
    data = cpio({"bin/tool": b"abc", "init": b"#!"})
    names = []
    place = 0
    while place < len(data):
        assert data[place : place + 6] == b"070701"
        size, length = int(data[place + 54 : place + 62], 16), int(data[place + 94 : place + 102], 16)
        names.append(data[place + 110 : place + 110 + length - 1].decode())
        place = -(-(place + 110 + length) // 4) * 4
        place = -(-(place + size) // 4) * 4
    assert names[0] == "bin"
    assert names.index("bin") < names.index("bin/tool")
    assert names[-1] == "TRAILER!!!"


def test_container_images() -> None:
    """Every blob is named by its digest and the index names the images."""
    with tarfile.open(fileobj=io.BytesIO(oci_archive(b"busybox", ("localhost/a:1", "localhost/b:1")))) as archive:
        files = {member.name: archive.extractfile(member).read() for member in archive}  # type: ignore[union-attr]
    index = json.loads(files["index.json"])
    assert [m["annotations"]["io.containerd.image.name"] for m in index["manifests"]] == [
        "localhost/a:1",
        "localhost/b:1",
    ]
    manifest = json.loads(files["blobs/sha256/" + index["manifests"][0]["digest"].removeprefix("sha256:")])
    assert "blobs/sha256/" + manifest["layers"][0]["digest"].removeprefix("sha256:") in files


def test_checkout_as_a_disk(tmp_path: Path) -> None:
    """All files of the folder, behind the first mebibyte, always as large."""
    (tmp_path / "podslice").mkdir()
    (tmp_path / "podslice/a.py").write_text("x = 1\n")
    disk = checkout_archive(tmp_path)
    with tarfile.open(fileobj=io.BytesIO(disk[1 << 20 :])) as archive:
        assert archive.getnames() == ["podslice/a.py"]
    assert len(disk) == 32 << 20
