"""`make image`: the agent's container image as an OCI archive, built by buildah from deploy/container/Containerfile.

The base is one named by digest (`--base`), or one made of Debian's packages by mmdebstrap, for places that reach no
registry of images. Before the archive is put into its place, the image is tried: the agent checks the shipped
configuration, and an unprivileged user runs the tool. Exit codes: 0 all well, 1 not.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import NamedTuple

from release.archives import ROOT, ReleaseError, epoch

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "podslice-image"
SUITE = "trixie"
PACKAGES = "python3-venv,ca-certificates,libstdc++6"  # the last for gRPC
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")
"""Certificates of the host, used while packages are fetched, so that a build behind a proxy with its own works."""
_UNNEEDED = ("doc", "info", "locale", "man")
_BY_DIGEST = re.compile(r"\S+@sha256:[0-9a-f]{64}")
_NO_REASON = re.compile(r"exit(ed with)? status")
_MOST_IMAGES = 40
"""Most images in the cache, leftovers of earlier builds included; about eight builds."""


class Built(NamedTuple):
    """The archive, the digest of the image in it, and the output of the trial run."""

    archive: Path
    digest: str
    tried: str


def version(root: Path = ROOT) -> str:
    """Return the version of the checkout."""
    text = (root / "src" / "podslice" / "version.py").read_text(encoding="utf-8")
    return next(line.split('"')[1] for line in text.splitlines() if line.startswith("__version__ = "))


class Buildah:
    """The builder with a store of its own, apart from the user's images."""

    def __init__(self, store: Path) -> None:
        self._command = ("buildah", "--root", str(store / "images"), "--runroot", str(store / "run"))

    def __call__(self, *arguments: str) -> str:
        return run(*self._command, *arguments)

    def digest(self, name: str) -> str:
        """Return the digest of an image in the store; empty where it has none of that name."""
        found = self("images", "--format", "{{.Name}}:{{.Tag}} {{.Digest}}").splitlines()
        return next((line.split()[1] for line in found if line.split()[0] == name), "")


def run(*command: str, **environment: str) -> str:
    """Run a program and return its output. Raises `ReleaseError` with its last line, or with what to install."""
    try:
        ran = subprocess.run(command, capture_output=True, text=True, env={**os.environ, **environment})
    except FileNotFoundError:
        raise ReleaseError(f"{command[0]} is not installed (Debian: apt-get install buildah crun mmdebstrap)") from None
    if ran.returncode:
        said = [line for line in (ran.stderr or ran.stdout).splitlines() if line and not _NO_REASON.search(line)]
        raise ReleaseError(f"{command[0]} ended with {ran.returncode}: {said[-1] if said else 'no output'}")
    return ran.stdout.strip()


def debian_base(buildah: Buildah, suite: str = SUITE) -> str:
    """Make a base image of Debian's packages (Python and what it needs) once, and return its name with digest."""
    name = f"localhost/podslice-base:{suite}-{hashlib.sha256(PACKAGES.encode()).hexdigest()[:8]}"
    if not buildah.digest(name):
        with tempfile.TemporaryDirectory() as folder:
            archive = Path(folder, "base.tar")
            leave_out = [f"--dpkgopt=path-exclude=/usr/share/{unneeded}/*" for unneeded in _UNNEEDED]
            run(
                "mmdebstrap", "--quiet", "--variant=essential", f"--include={PACKAGES}", *leave_out, suite, str(archive)
            )
            container = buildah("from", "scratch")
            buildah("add", "--quiet", container, str(archive), "/")
            buildah("config", "--env", "LANG=C.UTF-8", container)
            buildah("commit", "--quiet", "--rm", container, name)
    return f"{name.rpartition(':')[0]}@{buildah.digest(name)}"


def build(out: Path, base: str = "", *, root: Path = ROOT, cache: Path = CACHE) -> Built:
    """Build the image of a checkout on a base, try it, and write the archive. Raises `ReleaseError`."""
    if base and not _BY_DIGEST.fullmatch(base):
        raise ReleaseError(f"{base} is whatever it points to today; name the base by its digest: NAME@sha256:…")
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        buildah = Buildah(cache)
        built = _build(buildah, out, base or debian_base(buildah), root)
        if len(buildah("images", "--all", "--quiet").split()) > _MOST_IMAGES:
            buildah("rmi", "--prune", "--force")
    return built


def _build(buildah: Buildah, out: Path, base: str, root: Path) -> Built:
    container_files = root / "deploy" / "container"
    name = f"localhost/podslice:{version(root)}"
    trust = [f"--volume={CERTIFICATES}:{CERTIFICATES}:ro"] if CERTIFICATES.exists() else []
    image = buildah(
        "build", "--quiet", "--isolation=chroot", "--layers", f"--timestamp={epoch(root)}", *trust,
        f"--file={container_files / 'Containerfile'}", f"--ignorefile={container_files / 'containerignore'}",
        f"--build-arg=BASE_IMAGE={base}", f"--tag={name}", str(root),
    )  # fmt: skip
    tried = try_image(buildah, image, root / "deploy" / "agent.yaml")
    partial = out.with_suffix(".part")
    partial.unlink(missing_ok=True)
    buildah("push", "--quiet", image, f"oci-archive:{partial}:{name}")
    partial.rename(out)
    return Built(out, archive_digest(out), tried)


def archive_digest(archive: Path) -> str:
    """Return the digest of the one image in an OCI archive, the value for `image.digest` of the chart."""
    with tarfile.open(archive) as files:
        index = files.extractfile("index.json")
        assert index is not None
        (image,) = json.load(index)["manifests"]
    return str(image["digest"])


_IMPORT_ALL = """
import importlib, pkgutil, podslice.agent
found = pkgutil.walk_packages(podslice.agent.__path__, "podslice.agent.")
print(len([importlib.import_module(module.name) for module in found]), "modules of the agent")
"""


def try_image(buildah: Buildah, image: str, configuration: Path) -> str:
    """Run what a node would run first, and say in one line what answered. Raises `ReleaseError`."""
    container = buildah("from", "--quiet", image)
    try:
        inside = f"{configuration}:/etc/podslice/agent.yaml:ro"
        start = ("run", "--isolation=chroot")
        command = ("podslice", "agent", "--config", "/etc/podslice/agent.yaml", "--check-config")
        checked = buildah(*start, f"--volume={inside}", container, "--", *command).splitlines()[0]
        unprivileged = (*start, "--user=65534:65534", container, "--")
        who = buildah(*unprivileged, "podslice", "--version")
        imported = buildah(*unprivileged, "python3", "-c", _IMPORT_ALL)
        return f"{who}; {checked}; {imported}"
    finally:
        buildah("rm", container)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m release.image", description="Build the agent's container image.")
    parser.add_argument("--base", default="", metavar="NAME@sha256:…", help=f"default: one made of Debian {SUITE}")
    parser.add_argument("--out", type=Path, default=ROOT / "dist" / f"podslice-{version()}.oci.tar")
    options = parser.parse_args(arguments)
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        built = build(options.out, options.base)
    except ReleaseError as error:
        print(f"image: {error}", file=sys.stderr)
        return 1
    print(f"{built.archive}  {built.archive.stat().st_size / 1e6:.0f} MB  {built.digest}\n{built.tried}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
