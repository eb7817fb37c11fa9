"""Write a bundle: an archive of what was gathered about a node."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path
from typing import Any

import msgspec

from podslice.host.bundle.layout import KUBELET, KUBELET_CONFIG, MANIFEST, PODS_FOLDER, STATE_FILES, Manifest, Missing
from podslice.host.bundle.redact import redact_config, redact_device_file
from podslice.host.capture import record_machine
from podslice.host.filesystem import DiskFileSystem, FileSystem
from podslice.host.state.statefile import read_state
from podslice.node.checkpoints.names import DEVICE_STATE_FILE, place_of
from podslice.reading.yaml import dump, load_documents
from podslice.values.errors import InputError

_COMMAND_LINE = "proc/cmdline"
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
        recorded.files[_COMMAND_LINE] = _boot_lists(recorded.files.get(_COMMAND_LINE, ""))
        self.files |= {path: text.encode() for path, text in recorded.files.items()}
        self.folders |= recorded.folders

    def add_kubelet(self, directory: Path) -> None:
        """Add state files, configuration and names of pods below a kubelet's folder, or the reason why not."""
        for name in STATE_FILES:
            try:
                data = read_state(directory / name)
            except InputError as error:
                self.missing.append(Missing(f"{KUBELET}/{name}", str(error)))
                continue
            if data is not None:
                is_device = name == place_of(DEVICE_STATE_FILE)
                self.files[f"{KUBELET}/{name}"] = redact_device_file(data) if is_device else data
        self._add_config(directory / "config.yaml")
        if not any(name.startswith(f"{KUBELET}/") for name in self.files) and not self.missing:
            self.missing.append(Missing(KUBELET, f"{directory} holds no state file that can be read"))
            return
        try:
            pods = [entry.name for entry in (directory / PODS_FOLDER).iterdir() if entry.is_dir()]
        except OSError as error:
            self.missing.append(Missing(f"{KUBELET}/{PODS_FOLDER}", error.strerror or str(error)))
        else:
            self.folders |= {f"{KUBELET}/{PODS_FOLDER}/{name}" for name in pods}

    def _add_config(self, path: Path) -> None:
        try:
            document = load_documents(path.read_text("utf-8"), str(path))[0]
            self.files[KUBELET_CONFIG] = dump(redact_config(document)).encode()
        except FileNotFoundError:
            return
        except (OSError, UnicodeDecodeError, InputError, IndexError) as error:
            self.missing.append(Missing(KUBELET_CONFIG, str(error)))

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
    parts.add_machine(DiskFileSystem("/") if fs is None else fs)
    parts.add_kubelet(directory)
    return parts
