"""Debian packages as files: found in a suite's index, fetched with their dependencies, unpacked into a folder.

Nothing is installed. What is fetched is kept in the cache and checked against the SHA-256 of the index.
"""

from __future__ import annotations

import hashlib
import io
import lzma
import re
import tarfile
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

MIRROR = "http://deb.debian.org/debian"
_ALTERNATIVE = re.compile(r"\s*([a-z0-9][a-z0-9+.-]*)")


class FetchError(Exception):
    """Something the test needs cannot be had; the text is one line for a person."""


class Package(NamedTuple):
    """A binary package of an index; `needs` are the first alternatives of its dependencies."""

    name: str
    version: str
    file: str
    sha256: str
    needs: tuple[str, ...]


def fetch(url: str) -> bytes:
    """The bytes behind a URL. Raises `FetchError`."""
    try:
        with urllib.request.urlopen(url, timeout=120) as answer:
            data: bytes = answer.read()
            return data
    except (urllib.error.URLError, OSError) as error:
        raise FetchError(f"{url} cannot be fetched: {error}") from None


class Index:
    """The packages of one suite, read once and kept in the cache."""

    def __init__(self, suite: str, cache: Path, mirror: str = MIRROR) -> None:
        self.suite = suite
        self._mirror = mirror
        self._cache = cache / "packages"
        self._cache.mkdir(parents=True, exist_ok=True)
        path = self._cache / f"{suite}.Packages.xz"
        if not path.exists():
            url = f"{mirror}/dists/{suite}/main/binary-amd64/Packages.xz"
            _write(path, fetch(url))
        self._packages = dict(_parse(lzma.decompress(path.read_bytes()).decode()))

    def with_dependencies(self, names: Iterable[str], without: Iterable[str] = ()) -> list[Package]:
        """The packages and everything they depend on, as far as the suite has it, less `without`.

        Raises `FetchError` for a named package that the suite lacks.
        """
        found: dict[str, Package] = {}
        skipped = set(without)
        queue = list(names)
        for name in queue:
            if name not in self._packages:
                raise FetchError(f"Debian {self.suite} has no package {name}")
        while queue:
            name = queue.pop()
            if name in found or name in skipped or name not in self._packages:
                continue
            found[name] = self._packages[name]
            queue += found[name].needs
        return [found[name] for name in sorted(found)]

    def unpack(self, packages: Iterable[Package], root: Path) -> None:
        """Put the files of packages below `root`. Raises `FetchError`."""
        for package in packages:
            path = self._cache / Path(package.file).name
            if not path.exists():
                data = fetch(f"{self._mirror}/{package.file}")
                if hashlib.sha256(data).hexdigest() != package.sha256:
                    raise FetchError(f"{package.file} is not what the index of {self.suite} describes")
                _write(path, data)
            unpack_deb(path.read_bytes(), root)


def _parse(text: str) -> Iterator[tuple[str, Package]]:
    for paragraph in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in paragraph.split("\n") if ": " in line and line[0] != " ")
        if "Package" not in fields:
            continue
        relations = ",".join(fields.get(key, "") for key in ("Pre-Depends", "Depends"))
        needs = tuple(match[1] for part in relations.split(",") if (match := _ALTERNATIVE.match(part)))
        package = Package(fields["Package"], fields["Version"], fields["Filename"], fields["SHA256"], needs)
        yield package.name, package


def _write(path: Path, data: bytes) -> None:
    partial = path.with_suffix(path.suffix + ".part")
    partial.write_bytes(data)
    partial.rename(path)


def unpack_deb(data: bytes, root: Path) -> None:
    """Unpack the files of a .deb below a folder; its scripts are not run."""
    for name, content in _ar_members(data):
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                for member in archive:
                    _extract(archive, member, root)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, root: Path) -> None:
    """One member; `/bin`, `/lib` and `/sbin` are links into `/usr`, as on every current Debian."""
    target = root / member.name.removeprefix("./")
    if member.isdev():
        return
    if member.isdir():
        if not target.exists():
            target.mkdir(parents=True)
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_symlink() or target.exists():
        target.unlink()
    if member.issym():
        target.symlink_to(member.linkname)
    elif member.islnk():
        target.hardlink_to(root / member.linkname.removeprefix("./"))
    else:
        content = archive.extractfile(member)
        assert content is not None
        target.write_bytes(content.read())
        target.chmod(member.mode & 0o7777)


def _ar_members(data: bytes) -> Iterator[tuple[str, bytes]]:
    if not data.startswith(b"!<arch>\n"):
        raise FetchError("a package is not an ar archive")
    place = 8
    while place + 60 <= len(data):
        header = data[place : place + 60]
        name, size = header[:16].decode().strip().rstrip("/"), int(header[48:58])
        yield name, data[place + 60 : place + 60 + size]
        place += 60 + size + size % 2
