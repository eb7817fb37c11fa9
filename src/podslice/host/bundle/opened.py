"""Open a bundle: a folder as it is, an archive with its small files unpacked into a folder.

Only files that the layout names leave an archive, under these names: no other name, link or device in it has an effect.
Files of `sys/` and `proc/` stay in the archive, where the reader of snapshots finds them.
"""

from __future__ import annotations

import lzma
import posixpath
import re
import stat
import tarfile
import zlib
from pathlib import Path
from typing import NamedTuple

from podslice.host.archive import AbsurdArchiveError, read_members
from podslice.host.bundle.devices import find_devices
from podslice.host.bundle.layout import (
    CLAIMS,
    CLASSES,
    COMMAND_LINE,
    CONFIGZ,
    DEVICES,
    DROP_INS,
    FILES,
    KUBELET,
    KUBELET_CONFIG,
    LARGEST,
    MACHINE,
    MANIFEST,
    MOST_DROP_INS,
    MOST_PODS,
    NODE,
    POD_RESOURCES,
    PODS,
    PODS_FOLDER,
    POLICY,
    SLICES,
    STATE_FILES,
    TOPOLOGY,
    Manifest,
    is_drop_in,
    read_manifest,
)
from podslice.host.bundle.redact import restore_device_sum
from podslice.values.errors import InputError

_REMEDY = "podslice capture and deploy/capture.sh write a bundle; a machine or a Node object alone is for --from"
_SYSTEM = "sys/devices/system"
_POD = re.compile(rf"{KUBELET}/{PODS_FOLDER}/([A-Za-z0-9][A-Za-z0-9_.:-]{{0,252}})(?:/|$)")
_FOUND = "devices.json"
_DEVICE_FILE = f"{KUBELET}/{STATE_FILES[2]}"


class Bundle(NamedTuple):
    """An opened bundle. `name` is the path that the user gave; `folder` has its files; `machine` is its snapshot, None
    where it has none; `found_devices` are those that follow from its other files; `unknown` are lines about what
    does not follow."""

    name: str
    folder: Path
    manifest: Manifest
    machine: Path | None
    found_devices: Path | None = None
    unknown: tuple[str, ...] = ()

    def find(self, *names: str) -> Path | None:
        """Return the first of these files that there is."""
        return next((self.folder / name for name in names if (self.folder / name).is_file()), None)

    @property
    def sources(self) -> tuple[str, ...]:
        """The files that describe the machine: a snapshot, with the Node object beside it; an agent's machine; else
        objects."""
        node = self.find(NODE)
        if self.machine is not None:
            return (str(self.machine), *([str(node)] if node else []))
        known = self.find(MACHINE)
        if known is not None:
            return (str(known), *([str(node)] if node else []))
        described = self.find(TOPOLOGY, NODE)
        return (str(described),) if described else ()

    @property
    def objects(self) -> tuple[str, ...]:
        """The Node object, which states the release of the kubelet."""
        node = self.find(NODE)
        return () if node is None else (str(node),)

    @property
    def config(self) -> Path | None:
        """The configuration: as the kubelet runs with it, else its file, else its drop-ins or its flags alone."""
        return self.find(CONFIGZ, KUBELET_CONFIG) or self._drop_ins or self.find(COMMAND_LINE)

    @property
    def drop_ins(self) -> Path | None:
        """The folder of drop-ins that count above the file that is the configuration."""
        return None if self.find(KUBELET_CONFIG) != self.config else self._drop_ins

    @property
    def command_line(self) -> Path | None:
        """The flags that count above files that are the configuration."""
        found = self.find(COMMAND_LINE)
        return None if self.config in (found, self.folder / CONFIGZ) else found

    @property
    def _drop_ins(self) -> Path | None:
        folder = self.folder / DROP_INS
        return folder if next(folder.rglob("*.conf"), None) is not None else None

    @property
    def pods(self) -> Path | None:
        return self.find(PODS)

    @property
    def state(self) -> Path | None:
        """The folder of the state files."""
        return self.folder / KUBELET if self.find(*(f"{KUBELET}/{name}" for name in STATE_FILES[:3])) else None

    @property
    def slices(self) -> Path | None:
        return self.find(SLICES)

    @property
    def claims(self) -> Path | None:
        """The allocated claims of the node."""
        return self.find(CLAIMS)

    @property
    def classes(self) -> Path | None:
        """The DeviceClasses that claims for devices of the node may name."""
        return self.find(CLASSES)

    @property
    def devices(self) -> Path | None:
        """The plugin devices: as an agent knows them, else as they follow from the other files."""
        return self.find(DEVICES) or self.found_devices

    @property
    def policy(self) -> Path | None:
        return self.find(POLICY)


def open_bundle(path: Path, scratch: Path) -> Bundle:
    """Open a bundle; an archive is unpacked into the empty folder `scratch`. Raises `InputError`."""
    folder, has_machine = (path, (path / _SYSTEM).is_dir()) if path.is_dir() else (scratch, _unpack(path, scratch))
    if folder is path:
        _check_folder(path)
    manifest = folder / MANIFEST
    found = read_manifest(manifest.read_bytes(), str(path)) if manifest.is_file() else Manifest()
    bundle = Bundle(str(path), folder, found, path if has_machine else None)
    if not has_machine and bundle.find(*FILES - {MANIFEST}) is None:
        raise InputError("holds nothing of a bundle", source=str(path), remedy=_REMEDY)
    return _with_devices(bundle, scratch / _FOUND)


def _with_devices(bundle: Bundle, target: Path) -> Bundle:
    """Write the devices that follow from the files of a bundle, and return the bundle with them."""
    if bundle.find(DEVICES) is not None:
        return bundle
    found = find_devices(bundle.machine, bundle.find(NODE), bundle.find(_DEVICE_FILE), bundle.find(POD_RESOURCES))
    if found is None:
        return bundle
    target.write_bytes(found.data)
    return bundle._replace(found_devices=target, unknown=found.unplaced)


def is_bundle(path: Path) -> bool:
    """Whether a path leads to a folder, or to a file that begins as an archive does."""
    if path.is_dir():
        return True
    try:
        with path.open("rb") as file:
            # A tar archive that is not compressed has its mark at byte 257.
            start = file.read(262)
    except OSError:
        return False
    return start.startswith((b"\xfd7zXZ\x00", b"\x1f\x8b", b"BZh")) or start.endswith(b"ustar")


def _check_folder(root: Path) -> None:
    """Raise `InputError` for a file of the layout that is a link, or that is too large: the folder may be an unpacked
    archive of a stranger, and a link in it may lead anywhere."""
    total = 0
    _check_links(root, DROP_INS)
    drop_ins = [one.relative_to(root).as_posix() for one in (root / DROP_INS).rglob("*") if not _is_real_folder(one)]
    if len(drop_ins) > MOST_DROP_INS:
        raise InputError(f"absurd size: more than {MOST_DROP_INS} drop-ins", source=str(root), remedy=_too_much())
    for name in sorted((*FILES, *drop_ins)):
        place = root / name
        _check_links(root, name)
        try:
            status = place.stat()
        except FileNotFoundError:
            continue
        except OSError as error:
            raise InputError(f"cannot be read: {error.strerror}", source=str(place)) from None
        if not stat.S_ISREG(status.st_mode):
            raise InputError("is not a file", source=str(place), remedy=_REMEDY)
        total += status.st_size
    if total > LARGEST:
        raise InputError(f"absurd size: {total >> 20} MiB of files", source=str(root), remedy=_too_much())


def _is_real_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _check_links(root: Path, name: str) -> None:
    """Raise `InputError` where a file, or a folder on the way to it, is a link."""
    place = root
    for part in name.split("/"):
        place = place / part
        if place.is_symlink():
            raise InputError("is a link", source=str(place), remedy="a bundle holds the files themselves")


def _too_much() -> str:
    return f"a bundle has at most {LARGEST >> 20} MiB beside sys/ and proc/"


def _unpack(path: Path, folder: Path) -> bool:
    """Unpack the files of the layout, and return whether the archive has a machine. Raises `InputError`."""
    try:
        return _write_members(path, folder)
    except FileNotFoundError:
        raise InputError("does not exist", source=str(path), remedy=_REMEDY) from None
    except AbsurdArchiveError as error:
        raise InputError(f"absurd size: {error}", source=str(path), remedy=_too_much()) from None
    except (tarfile.TarError, lzma.LZMAError, zlib.error, EOFError, OSError, ValueError, MemoryError) as error:
        problem = "" if isinstance(error, tarfile.ReadError) else f": {error}"
        raise InputError(f"is not a readable tar archive{problem}", source=str(path), remedy=_REMEDY) from None


def _write_members(path: Path, folder: Path) -> bool:
    has_machine, total, pods, drop_ins = False, 0, set[str](), 0
    for member, archive in read_members(path):
        name = _inner_name(member.name)
        has_machine = has_machine or f"{_SYSTEM}/" in name
        if (pod := _POD.match(name)) is not None:
            pods.add(pod[1])
            if len(pods) > MOST_PODS:
                raise AbsurdArchiveError(f"more than {MOST_PODS} pods")
            (folder / KUBELET / PODS_FOLDER / pod[1]).mkdir(parents=True, exist_ok=True)
        if not member.isfile() or not (name in FILES or is_drop_in(name)):
            continue
        drop_ins += is_drop_in(name)
        if drop_ins > MOST_DROP_INS:
            raise AbsurdArchiveError(f"more than {MOST_DROP_INS} drop-ins")
        total += member.size
        # Checked before the content is read.
        if total > LARGEST:
            raise AbsurdArchiveError(f"more than {LARGEST >> 20} MiB of files beside sys/ and proc/")
        content = archive.extractfile(member)
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        data = content.read() if content is not None else b""
        place.write_bytes(restore_device_sum(data) if name == _DEVICE_FILE else data)
    return has_machine


def _inner_name(name: str) -> str:
    """Return a member's name without the folder around the whole bundle. What climbs out of the archive matches no name
    of the layout."""
    path = posixpath.normpath(name)
    if path in FILES or path.startswith((f"{KUBELET}/", "api/", "sys/", "proc/")):
        return path
    return path.partition("/")[2]
