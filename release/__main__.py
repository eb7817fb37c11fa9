"""`make dist`: build the archives of a release twice, compare them, and try the wheel with every Python at hand.

What is in `dist` afterwards can be published: the wheel, the sdist, the plugin of kubectl for
krew, the bill of materials and SHA256SUMS. Exit codes: 0 all well, 1 not.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from release.archives import ROOT, ReleaseError, build_twice, digests, epoch
from release.krew import write_plugin
from release.sbom import make_sbom
from release.smoke import PYTHONS, find_python, try_wheel

DIST = ROOT / "dist"


def release(dist: Path) -> None:
    """Make the archives and put them into `dist`. Raises `ReleaseError`; `dist` is then as it was."""
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "dist")
        sums = build_twice(built)
        for name, digest in sums.items():
            print(f"{digest}  {name}", flush=True)
        print("the same bytes from a second build, and the same wheel from the sdist", flush=True)
        (wheel,) = built.glob("*.whl")
        tried = 0
        for version in PYTHONS:
            python = find_python(version)
            if python is None:
                print(f"Python {version}: not here, left out", flush=True)
                continue
            print(f"Python {version}: {try_wheel(wheel, python)}", flush=True)
            tried += 1
        if not tried:
            raise ReleaseError(f"no Python of {', '.join(PYTHONS)} is here to try the wheel with")
        bill = make_sbom(ROOT, when=epoch(), digests=sums)
        name = f"{wheel.name.split('-py3')[0]}.cdx.json"
        (built / name).write_text(bill, encoding="utf-8")
        write_plugin(built, wheel, root=ROOT, when=epoch())
        sums = digests(built)
        (built / "SHA256SUMS").write_text("".join(f"{digest}  {name}\n" for name, digest in sums.items()))
        shutil.rmtree(dist, ignore_errors=True)
        shutil.copytree(built, dist)


def main() -> int:
    try:
        release(DIST)
    except ReleaseError as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
