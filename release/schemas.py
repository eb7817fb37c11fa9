"""`python -m release.schemas`: write all schemas, and the schema, the defaults and the page of the chart's values.

With `--check` only say whether they are current.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import msgspec

from podslice.documents.kinds import KINDS
from podslice.documents.schema import make_schema
from podslice.replica.stream_messages import Down, Up
from podslice.values.quantity import Quantity
from release.chart import values_schema
from release.values import FOLDER, defaults_text, readme_text

CHART = FOLDER / "values.schema.json"
STREAM = Path(__file__).parents[1] / "src/podslice/replica/messages.schema.json"
"""The messages between agents and the cluster service."""
_FOLDER = Path(__file__).parents[1] / "src/podslice/documents/schemas"


def find_outdated(folder: Path = _FOLDER) -> list[Path]:
    """Return the schemas that are missing, differ from the types, or belong to no kind."""
    wanted = {folder / f"{kind}.json": _text(kind) for kind in KINDS}
    wrong = [path for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text]
    return [*wrong, *sorted(set(folder.glob("*.json")) - set(wanted))]


def write(folder: Path = _FOLDER) -> None:
    """Write all schemas and remove those of no kind."""
    for path in find_outdated(folder):
        if path.stem in KINDS:
            path.write_text(_text(path.stem), encoding="utf-8")
        else:
            path.unlink()


def _text(kind: str) -> str:
    return json.dumps(make_schema(kind), indent=2) + "\n"


def chart_text() -> str:
    """Return the schema of the chart's values as its file holds it."""
    return json.dumps(values_schema(), indent=2) + "\n"


def stream_text() -> str:
    """Return the schema of the stream's messages. A quantity is text, or the list of its parts; fields with their
    default are left out."""
    quantity = {"anyOf": [{"type": "string"}, {"type": "array", "minItems": 5, "maxItems": 5}]}
    known: dict[type, Any] = {Quantity: quantity}
    (schema,), parts = msgspec.json.schema_components([Up | Down], schema_hook=known.__getitem__)
    header = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Message of an agent or the service"}
    return json.dumps({**header, **schema, "$defs": parts}, indent=2) + "\n"


def main() -> None:
    others = {
        CHART: chart_text(),
        FOLDER / "README.md": readme_text(),
        FOLDER / "files/defaults.json": defaults_text(),
        STREAM: stream_text(),
    }
    if "--check" not in sys.argv[1:]:
        write()
        for path, text in others.items():
            path.write_text(text, encoding="utf-8")
        return
    wrong = find_outdated()
    wrong.extend(path for path, text in others.items() if not path.is_file() or path.read_text("utf-8") != text)
    if wrong:
        names = ", ".join(path.name for path in wrong)
        sys.exit(f"not current: {names} (python -m release.schemas)")


if __name__ == "__main__":
    main()
