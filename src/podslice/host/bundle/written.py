"""Write a bundle: an archive of what was gathered about a node."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import msgspec

from podslice.config.carriers.layer import KIND
from podslice.host.bundle.layout import (
    COMMAND_LINE,
    DROP_INS,
    KUBELET,
    KUBELET_CONFIG,
    MANIFEST,
    PODS_FOLDER,
    STATE_FILES,
    Manifest,
    Missing,
)
from podslice.host.bundle.process import PROGRAM, find_flags, list_drop_ins, value_of
from podslice.host.bundle.redact import redact_config, redact_device_file
from podslice.host.capture import record_machine
from podslice.host.filesystem import DiskFileSystem, FileSystem
from podslice.host.state.statefile import read_state
from podslice.node.checkpoints.names import DEVICE_STATE_FILE, place_of
from podslice.reading.yaml import dump, load_documents
from podslice.values.errors import InputError

_KERNEL_LINE = "proc/cmdline"
_NO_FLAGS = f"no process is named {PROGRAM}: its flags and drop-ins are not known"
_BOOT_LISTS = ("rcu_nocbs",)


class BundleParts:
    """Files of a bundle by name, folders, and what could not be had; `archive` makes the bundle of them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.folders: set[str] = set()
        self.missing: list[Missing] = []

    def put(self, name: str, data: Any) -> None:
        """Add an object as JSON."""
        self.files[name] = msgspec.json.format(msgspec.json.encode(data), indent=1)

    def add_machine(self, fs: FileSystem) -> None:
        """Add what discovery reads of a machine, or the reason why it cannot."""
        try:
            recorded = record_machine(fs)
        except InputError as error:
            self.missing.append(Missing("machine", str(error)))
            return
        recorded.files[_KERNEL_LINE] = _boot_lists(recorded.files.get(_KERNEL_LINE, ""))
        self.files |= {path: text.encode() for path, text in recorded.files.items()}
        self.folders |= recorded.folders

    def add_kubelet(self, directory: Path) -> None:
        """Add state files and names of pods below a kubelet's folder, or the reason why not."""
        for name in STATE_FILES:
            try:
                data = read_state(directory / name)
            except InputError as error:
                self.missing.append(Missing(f"{KUBELET}/{name}", str(error)))
                continue
            if data is not None:
                is_device = name == place_of(DEVICE_STATE_FILE)
                self.files[f"{KUBELET}/{name}"] = redact_device_file(data) if is_device else data
        if not any(name.startswith(f"{KUBELET}/") for name in self.files) and not self.missing:
            self.missing.append(Missing(KUBELET, f"{directory} holds no state file that can be read"))
            return
        try:
            pods = [entry.name for entry in (directory / PODS_FOLDER).iterdir() if entry.is_dir()]
        except OSError as error:
            self.missing.append(Missing(f"{KUBELET}/{PODS_FOLDER}", error.strerror or str(error)))
        else:
            self.folders |= {f"{KUBELET}/{PODS_FOLDER}/{name}" for name in pods}

    def add_configuration(self, directory: Path, fs: FileSystem) -> None:
        """Add what the kubelet that runs takes its configuration from: its flags, the file and the drop-ins that they
        name. Without a kubelet that runs, add the file in its folder, where it usually is."""
        try:
            flags = find_flags(fs)
        except InputError as error:
            self.missing.append(Missing(COMMAND_LINE, str(error)))
            return
        if flags is None:
            self.missing.append(Missing(COMMAND_LINE, _NO_FLAGS))
            self._add_config(DiskFileSystem(directory), "config.yaml", KUBELET_CONFIG)
            return
        self.files[COMMAND_LINE] = "".join(f"{word}\0" for word in (PROGRAM, *flags)).encode()
        if path := value_of(flags, "config"):
            self._add_config(fs, path.lstrip("/"), KUBELET_CONFIG, named=path)
        if path := value_of(flags, "config-dir"):
            found = list_drop_ins(fs, path.strip("/"))
            if not found:
                self.missing.append(Missing(DROP_INS, f"{path} holds no drop-in that can be read"))
            for name, place in found.items():
                self._add_config(fs, place, f"{DROP_INS}/{name}", named=f"/{place}")

    def _add_config(self, fs: FileSystem, path: str, part: str, *, named: str = "") -> None:
        """Add a file, without secrets. One that a flag `named` may be any file, and has to say what it is."""
        try:
            document = load_documents(fs.read(path), named or path)[0]
            if not isinstance(document, dict) or (named and document.get("kind") != KIND):
                raise InputError(f"is not a {KIND}", source=named)
            self.files[part] = dump(redact_config(document)).encode()
        except FileNotFoundError:
            if named:
                self.missing.append(Missing(part, f"{named} is not there"))
        except (OSError, InputError, IndexError) as error:
            why = f"{named or path} cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
            self.missing.append(Missing(part, why))

    def archive(self, manifest: Manifest) -> bytes:
        """Return the bundle as a tar.gz. Small files come first, so that a reader finds them soon."""
        files = {MANIFEST: msgspec.json.format(msgspec.json.encode(manifest), indent=1), **self.files}
        target = io.BytesIO()
        with tarfile.open(fileobj=target, mode="w:gz", compresslevel=6) as archive:
            for path in sorted(self.folders, key=_rank):
                member = tarfile.TarInfo(path)
                member.type, member.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(member)
            for path in sorted(files, key=_rank):
                member = tarfile.TarInfo(path)
                member.size = len(files[path])
                archive.addfile(member, io.BytesIO(files[path]))
        return target.getvalue()


def _boot_lists(text: str) -> str:
    """Return the words of a kernel's command line that concern CPUs: others may be secrets."""
    return " ".join(word for word in text.split() if word.partition("=")[0] in _BOOT_LISTS) + "\n"


def _rank(path: str) -> tuple[bool, bool, str]:
    return path.startswith(("sys/", "proc/")), path != MANIFEST, path


def capture_node(directory: Path, fs: FileSystem | None = None) -> BundleParts:
    """Gather machine and kubelet of this very node."""
    parts = BundleParts()
    files = DiskFileSystem("/") if fs is None else fs
    parts.add_machine(files)
    parts.add_kubelet(directory)
    parts.add_configuration(directory, files)
    return parts
