"""Execute examples/notebook.ipynb and store what its cells show; `--check` compares instead.

Jupyter is not needed: a cell is Python, and its last expression is shown as a notebook shows it.
Exit codes: 0 written or as stored, 1 different.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

from release.archives import ROOT

NOTEBOOK = ROOT / "examples" / "notebook.ipynb"
_FORMS = {"_repr_svg_": "image/svg+xml", "_repr_html_": "text/html"}


def executed(notebook: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return the notebook with the outputs of its cells, executed in order in `folder`."""
    names: dict[str, Any] = {}
    cells, count = [], 0
    with contextlib.chdir(folder):
        for cell in notebook["cells"]:
            if cell["cell_type"] == "code":
                count += 1
                cell = {**cell, "execution_count": count, "outputs": _outputs("".join(cell["source"]), names, count)}
            cells.append(cell)
    return {**notebook, "cells": cells}


def _outputs(source: str, names: dict[str, Any], count: int) -> list[dict[str, Any]]:
    tree = ast.parse(source)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    printed, value = io.StringIO(), None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if printed.getvalue():
        outputs.append(
            {"name": "stdout", "output_type": "stream", "text": printed.getvalue().splitlines(keepends=True)}
        )
    if value is not None:
        data = dict(_shown(value))
        outputs.append({"data": data, "execution_count": count, "metadata": {}, "output_type": "execute_result"})
    return outputs


def _shown(value: Any) -> list[tuple[str, list[str]]]:
    found = [(form, getattr(value, name)()) for name, form in _FORMS.items() if hasattr(value, name)]
    texts = [*((form, text) for form, text in found if text), ("text/plain", repr(value))]
    return [(form, text.splitlines(keepends=True)) for form, text in texts]


def text_of(notebook: dict[str, Any]) -> str:
    """Return a notebook as the text of its file."""
    return json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--check", action="store_true")
    stored = NOTEBOOK.read_text(encoding="utf-8")
    made = text_of(executed(json.loads(stored), NOTEBOOK.parent))
    if parser.parse_args().check:
        return int(made != stored)
    NOTEBOOK.write_text(made, encoding="utf-8")
    print(f"{os.path.relpath(NOTEBOOK)}: {len(made) >> 10} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
