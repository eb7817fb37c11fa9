"""Generate the message modules, or with `--check` compare them with what would be generated.

Needs grpcio-tools, pinned in the development dependencies so that everybody generates the same bytes.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

FOLDER = Path(__file__).parent
PACKAGE = "podslice/wire/proto"


def generate(target: Path) -> list[str]:
    """Write the generated modules below `target`; returns their names."""
    from grpc_tools import protoc

    root = FOLDER.parents[2]
    names = []
    for source in sorted(FOLDER.glob("*.proto")):
        arguments = ["protoc", f"-I{root}", f"--python_out={target}", f"--pyi_out={target}"]
        if protoc.main([*arguments, str(source)]) != 0:
            raise SystemExit(f"{source.name}: protoc failed")
        names += [f"{source.stem}_pb2.py", f"{source.stem}_pb2.pyi"]
    return names


def main() -> None:
    if sys.argv[1:] != ["--check"]:
        generate(FOLDER.parents[2])
        return
    with tempfile.TemporaryDirectory() as folder:
        stale = [
            name
            for name in generate(Path(folder))
            if not (FOLDER / name).is_file()
            or (FOLDER / name).read_bytes() != (Path(folder, PACKAGE, name)).read_bytes()
        ]
    if stale:
        raise SystemExit(f"out of date: {', '.join(stale)} (python -m podslice.wire.proto.generate)")


if __name__ == "__main__":
    main()
