"""Images of the virtual machine: Debian's kernel, a root file system with containerd, runc and Python, two container
images. Built below the cache, each part once; a part's name holds a digest of what it is made from."""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import hashlib
import io
import json
import lzma
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from e2e.packages import FetchError, Index
from podslice import __version__

SUITE, KERNEL_SUITE = "forky", "bookworm"
PYTHON = "3.13"
_PACKAGES = ("containerd", "runc", f"python{PYTHON}", "busybox-static", "libstdc++6", "systemd")
_LEFT_OUT = (
    "debconf",
    "perl-base",
    "init-system-helpers",
    "dpkg",
    "tar",
    "tzdata",
    "media-types",
    "netbase",
)
_MODULES = ("virtio_pci", "virtio_blk", "virtio_console", "virtio_net", "veth", "ext4", "overlay")
_WHEELS = ("msgspec", "pyyaml", "click", "rich", "grpcio", "protobuf", "prometheus-client", "structlog", "lightkube")
_DISK = 32 << 20
_IMAGE_DISK = 128 << 20
_KEPT_SIZE = "512M"
_GUEST = Path(__file__).parent / "guest"
_VERSIONED = re.compile(r"linux-image-[0-9]")
_DEPENDS = re.compile(rb"\0depends=([^\0]*)\0")


def kernel(cache: Path, suite: str = KERNEL_SUITE) -> tuple[Path, Path]:
    """The kernel, and an initramfs that mounts the root file system. Raises `FetchError`."""
    index = Index(suite, cache)
    (image,) = [p for p in index.with_dependencies(["linux-image-amd64"]) if _VERSIONED.match(p.name)]
    folder = cache / f"{image.name}_{image.version.replace(':', '_')}"
    if not folder.exists():
        partial = folder.with_suffix(".part")
        shutil.rmtree(partial, ignore_errors=True)
        index.unpack([image], partial)
        partial.rename(folder)
    (linux,) = (folder / "boot").glob("vmlinuz-*")
    script = (_GUEST / "initramfs.sh").read_bytes()
    initramfs = (
        cache / f"initramfs-{_digest(image.version.encode(), script, *(name.encode() for name in _MODULES))}.cpio.gz"
    )
    if not initramfs.exists():
        initramfs.write_bytes(_initramfs(folder, guest_busybox(cache).read_bytes(), script))
    return linux, initramfs


def _initramfs(kernel_files: Path, busybox: bytes, script: bytes) -> bytes:
    modules = {
        path.name.partition(".")[0].replace("-", "_"): path
        for ending in ("*.ko", "*.ko.xz")
        for path in kernel_files.rglob(ending)
    }
    ordered: list[str] = []
    for name in _MODULES:
        _with_needs(name, modules, ordered)
    files = {"bin/busybox": busybox, "init": script, "modules.list": "\n".join(ordered).encode() + b"\n"}
    files |= {f"modules/{name}.ko": _module(modules[name]) for name in ordered}
    return gzip.compress(cpio(files), 1)


def _module(path: Path) -> bytes:
    data = path.read_bytes()
    return lzma.decompress(data) if path.suffix == ".xz" else data


def _with_needs(name: str, modules: dict[str, Path], ordered: list[str]) -> None:
    """Append a module behind the ones it needs; what is built into the kernel has no file."""
    if name not in modules or name in ordered:
        return
    match = _DEPENDS.search(_module(modules[name]))
    for needed in match[1].decode().split(",") if match else []:
        _with_needs(needed.replace("-", "_"), modules, ordered)
    if name == "ext4":
        _with_needs("crc32c_generic", modules, ordered)
    ordered.append(name)


def cpio(files: dict[str, bytes]) -> bytes:
    """An initramfs archive (`newc`) of executable files and the folders they need."""
    out = io.BytesIO()
    folders = sorted({str(parent) for name in files for parent in Path(name).parents if str(parent) != "."})
    entries = [(name, 0o040755, b"") for name in (*folders, "dev", "proc", "root")]
    entries += [(name, 0o100755, data) for name, data in files.items()]
    for number, (name, mode, data) in enumerate([*entries, ("TRAILER!!!", 0, b"")], 1):
        encoded = name.encode() + b"\0"
        fields = (number, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(encoded), 0)
        out.write(b"070701" + b"".join(b"%08X" % field for field in fields) + encoded)
        out.write(b"\0" * (-out.tell() % 4) + data)
        out.write(b"\0" * (-out.tell() % 4))
    return out.getvalue()


def root_image(cache: Path) -> Path:
    """An ext4 image of the guest's root file system. Raises `FetchError`."""
    root = _root(cache)
    guest = sorted(path for path in _GUEST.iterdir() if path.is_file())
    digest = _digest(root.name.encode(), *(path.read_bytes() for path in guest))
    image = cache / f"root-{digest}.ext4"
    if image.exists():
        return image
    opt = root / "opt/e2e"
    shutil.rmtree(opt, ignore_errors=True)
    opt.mkdir(parents=True)
    for path in guest:
        shutil.copy(path, opt / path.name)
    busybox = (root / "usr/bin/busybox").read_bytes()
    (opt / "images.tar").write_bytes(oci_archive(busybox, ("localhost/pause:1", "localhost/sleep:1")))
    return _ext4(root, image, "1200M")


def guest_busybox(cache: Path) -> Path:
    """The static busybox of the guest. Raises `FetchError`."""
    return _root(cache) / "usr/bin/busybox"


@contextlib.contextmanager
def lock_cache(cache: Path) -> Iterator[None]:
    """Hold the cache's lock: one run at a time builds what all use."""
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def program_disk(program: Path, cache: Path) -> Path:
    """An ext4 image with one program in it. Raises `FetchError`."""
    image = cache / f"{program.name}.ext4"
    if image.exists():
        return image
    with tempfile.TemporaryDirectory(prefix="disk-", dir=cache) as folder:
        (Path(folder) / program.name.partition("-")[0]).hardlink_to(program)
        return _ext4(Path(folder), image, f"{(program.stat().st_size >> 20) + 32}M")


def image_disk(archive: Path | None, disk: Path) -> Path:
    """A disk with an archive of a container image behind its first mebibyte, always as large (`checkout_archive` says
    why); without an archive an empty one."""
    with disk.open("wb") as file:
        if archive is not None:
            file.seek(1 << 20)
            file.write(archive.read_bytes())
            if file.tell() > _IMAGE_DISK:
                raise FetchError(f"{archive.name} is larger than {_IMAGE_DISK >> 20} MiB")
        file.truncate(_IMAGE_DISK)
    return disk


def empty_disk(image: Path) -> Path:
    """An ext4 image with nothing in it. Raises `FetchError`."""
    _run("mke2fs", "-q", "-t", "ext4", "-L", "kept", str(image), _KEPT_SIZE)
    return image


def _ext4(folder: Path, image: Path, size: str) -> Path:
    """A folder as a file system without journal."""
    partial = image.with_suffix(".part")
    partial.unlink(missing_ok=True)
    _run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", str(folder), "-L", "root", str(partial), size)
    partial.rename(image)
    return image


def _root(cache: Path) -> Path:
    """The guest's root as a folder: packages, Python packages, mount points."""
    index = Index(SUITE, cache)
    packages = index.with_dependencies(_PACKAGES, without=_LEFT_OUT)
    parts = (*(package.sha256 for package in packages), *_WHEELS, "compiled")
    folder = cache / f"root-{_digest(*(part.encode() for part in parts))}"
    if folder.exists():
        return folder
    partial = folder.with_suffix(".part")
    shutil.rmtree(partial, ignore_errors=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (partial / "usr" / name).mkdir(parents=True)
        (partial / name).symlink_to(f"usr/{name}")
    index.unpack(packages, partial)
    for name in ("proc", "sys", "dev", "run", "tmp", "var/lib", "etc", "root", "opt"):
        (partial / name).mkdir(parents=True, exist_ok=True)
    for name in ("doc", "man", "locale", "zoneinfo"):
        shutil.rmtree(partial / "usr/share" / name, ignore_errors=True)
    _install_wheels(partial / f"usr/lib/python{PYTHON}/dist-packages")
    _compile(partial, partial / f"usr/lib/python{PYTHON}", partial, "/")
    partial.rename(folder)
    return folder


def _compile(root: Path, folder: Path, strip: Path, prefix: str) -> None:
    """Byte code for all modules below a folder, by the guest's Python: an emulated machine takes long to make it."""
    lib = root / "usr/lib/x86_64-linux-gnu"
    python = (
        str(root / "usr/lib64/ld-linux-x86-64.so.2"),
        "--library-path",
        str(lib),
        str(root / f"usr/bin/python{PYTHON}"),
    )
    _run(
        *python, "-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash",
        "-s", str(strip), "-p", prefix, str(folder), PYTHONHOME=str(root / "usr"),
    )  # fmt: skip


def _install_wheels(target: Path) -> None:
    platforms = [f"--platform=manylinux{tag}_x86_64" for tag in ("2014", "_2_17", "_2_28")]
    _run(
        sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-compile",
        "--only-binary=:all:", f"--python-version={PYTHON}", "--implementation=cp", *platforms,
        f"--target={target}", *_WHEELS,
    )  # fmt: skip


def oci_archive(busybox: bytes, names: tuple[str, ...]) -> bytes:
    """An OCI image archive: one layer with a static busybox that sleeps until it gets SIGTERM."""
    layer = _tar({"bin/busybox": busybox, "bin/sh": None, "bin/sleep": None, "bin/cat": None})
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Entrypoint": ["/bin/sh", "-c", "trap 'exit 0' TERM; while :; do /bin/sleep 1; done"]},
        "rootfs": {"type": "layers", "diff_ids": [_sha256(layer)]},
    }
    blobs = {}

    def add(data: bytes, kind: str) -> dict[str, object]:
        blobs[f"blobs/sha256/{hashlib.sha256(data).hexdigest()}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": _sha256(data), "size": len(data)}

    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": add(json.dumps(config).encode(), "config.v1+json"),
        "layers": [add(layer, "layer.v1.tar")],
    }
    described = add(json.dumps(manifest).encode(), "manifest.v1+json")
    manifests = [{**described, "annotations": {"io.containerd.image.name": name}} for name in names]
    index = {"schemaVersion": 2, "manifests": manifests}
    files = {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": json.dumps(index).encode(), **blobs}
    return _tar(files)


def _tar(files: Mapping[str, bytes | None]) -> bytes:
    """A tar of executable files; None stands for a link to busybox."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.mode = 0o755
            if data is None:
                member.type, member.linkname = tarfile.SYMTYPE, "busybox"
            member.size = len(data or b"")
            archive.addfile(member, io.BytesIO(data or b""))
    return out.getvalue()


def snapshot_name(shape: object, initramfs: Path, root: Path) -> str:
    """The file that holds a booted machine; another shape or image is another machine."""
    return f"snapshot-{_digest(repr(shape).encode(), initramfs.name.encode(), root.name.encode())}"


def checkout_disk(repository: Path, cache: Path) -> bytes:
    """The package of this checkout with its byte code and its version, as `checkout_archive` packs it."""
    with tempfile.TemporaryDirectory(prefix="checkout-", dir=cache) as folder:
        source = Path(folder) / "src"
        shutil.copytree(repository / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        metadata = source / f"podslice-{__version__}.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: podslice\nVersion: {__version__}\n")
        _compile(_root(cache), source, source, "/opt/podslice")
        return checkout_archive(source)


def checkout_archive(source: Path) -> bytes:
    """A disk with a folder as a tar, so that a change needs no new image.

    The tar begins at 1 MiB: the kernel looks at both ends of a disk when it finds it, and the guest of a snapshot
    remembers what it saw. The size is always the same for the same reason.
    """
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for path in sorted(source.rglob("*")):
            if path.is_file():
                archive.add(path, str(path.relative_to(source)))
    return (bytes(1 << 20) + out.getvalue()).ljust(_DISK, b"\0")


def _sha256(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _digest(*parts: bytes) -> str:
    return hashlib.sha256(b"\0".join(parts)).hexdigest()[:12]


def _run(*command: str, **environment: str) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    except FileNotFoundError:
        raise FetchError(f"{command[0]} is not installed (Debian: apt-get install e2fsprogs qemu-system-x86)") from None
    if done.returncode:
        raise FetchError(f"{Path(command[0]).name} failed: {done.stderr.strip().splitlines()[-1:]}")
