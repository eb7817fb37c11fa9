"""Generate the message modules, or with `--check` compare them with what would be generated.

Needs grpcio-tools, pinned in the development dependencies so that everybody generates the same bytes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

CHECKOUT = Path(__file__).parents[1]
PLACES = ((CHECKOUT / "src", "podslice/service/proto"), (CHECKOUT, "e2e/guest"))
"""Folders of packages, each with the packages in it that have messages."""


def generate(root: Path, package: str, target: Path) -> list[str]:
    """Write a package's generated modules below `target`; returns their paths there."""
    from grpc_tools import protoc

    names = []
    for source in sorted((root / package).glob("*.proto")):
        arguments = ["protoc", f"-I{root}", f"--python_out={target}", f"--pyi_out={target}"]
        if protoc.main([*arguments, str(source)]) != 0:
            raise SystemExit(f"{source.name}: protoc failed")
        names += [f"{package}/{source.stem}_pb2.py", f"{package}/{source.stem}_pb2.pyi"]
    return names


def main() -> None:
    if sys.argv[1:] != ["--check"]:
        for root, package in PLACES:
            generate(root, package, root)
        return
    stale = []
    for root, package in PLACES:
        with tempfile.TemporaryDirectory() as folder:
            for name in generate(root, package, Path(folder)):
                kept, made = root / name, Path(folder, name)
                if not kept.is_file() or kept.read_bytes() != made.read_bytes():
                    stale.append(name)
    if stale:
        raise SystemExit(f"out of date: {', '.join(stale)} (python -m release.protos)")


if __name__ == "__main__":
    main()
