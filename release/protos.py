"""Generate the message modules, or with `--check` compare them with what would be generated.

Needs grpcio-tools, pinned in the development dependencies so that everybody generates the same bytes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1] / "src"
PACKAGE = "podslice/wire/proto"
FOLDER = ROOT / PACKAGE


def generate(target: Path) -> list[str]:
    """Write the generated modules below `target`; returns their names."""
    from grpc_tools import protoc

    names = []
    for source in sorted(FOLDER.glob("*.proto")):
        arguments = ["protoc", f"-I{ROOT}", f"--python_out={target}", f"--pyi_out={target}"]
        if protoc.main([*arguments, str(source)]) != 0:
            raise SystemExit(f"{source.name}: protoc failed")
        names += [f"{source.stem}_pb2.py", f"{source.stem}_pb2.pyi"]
    return names


def main() -> None:
    if sys.argv[1:] != ["--check"]:
        generate(ROOT)
        return
    with tempfile.TemporaryDirectory() as folder:
        stale = [
            name
            for name in generate(Path(folder))
            if not (FOLDER / name).is_file()
            or (FOLDER / name).read_bytes() != (Path(folder, PACKAGE, name)).read_bytes()
        ]
    if stale:
        raise SystemExit(f"out of date: {', '.join(stale)} (python -m release.protos)")


if __name__ == "__main__":
    main()
