"""The public names of the library."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import podslice


def _classes(hint: Any) -> Iterator[type]:
    if typing.get_args(hint):
        for argument in typing.get_args(hint):
            yield from _classes(argument)
    elif isinstance(hint, type) and hint.__module__.startswith("podslice"):
        yield hint


def _hints(thing: Any) -> Iterator[type]:
    for hint in typing.get_type_hints(thing).values():
        yield from _classes(hint)


def _named_by(public: Any) -> Iterator[type]:
    """The classes of ours that the fields and public methods of a class, or the signature of a function, name."""
    yield from _hints(public)
    for name, member in vars(public).items() if isinstance(public, type) else ():
        function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
        if inspect.isfunction(function) and (not name.startswith("_") or name == "__init__"):
            yield from _hints(function)


OPAQUE = {"NodeRules", "NodeState", "Shape"}
"""Values to keep and hand on; what is in them is read by `NodeView`."""


@pytest.mark.parametrize("name", sorted({*podslice.__all__} - OPAQUE))
def test_signatures_name_public_types(name: str) -> None:
    """Whatever a public name takes, returns or carries can be imported from `podslice`."""
    public = getattr(podslice, name)
    hidden = {one.__name__ for one in _named_by(public) if getattr(podslice, one.__name__, None) is not one}
    # a test's way to let writing fail; what is inside a node; whatever has `throttled`; a row of docs/releases.md
    assert hidden <= {"FileOperations", "Kubelet", "QuotaRule", "Row"}
    assert name in dir(podslice)


@pytest.mark.process
def test_files_and_hosts_are_imported_on_use() -> None:
    """Importing the library neither reads YAML nor touches the operating system's modules of ours."""
    program = (
        "import sys, podslice; print([m for m in ('yaml', 'podslice.host', 'podslice.reading') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_unknown_names() -> None:
    """A name that does not exist is an AttributeError, as of any module."""
    with pytest.raises(AttributeError, match="no attribute 'Nodes'"):
        _ = podslice.Nodes


PRIVATE = re.compile(r"from podslice[\w.]* import [^)]*?\b_(?!_)\w")


def test_tests_import_no_private_names() -> None:
    """A test uses what a module offers: a private name may go with the next change."""
    private = [
        f"{path.name}: {node.module}.{one.name}"
        for path in Path(__file__).parent.rglob("*.py")
        if PRIVATE.search(text := path.read_text(encoding="utf-8"))
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("podslice")
        for one in node.names
        if one.name.startswith("_") and not one.name.startswith("__")
    ]
    assert private == []
