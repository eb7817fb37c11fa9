"""What the package imports is declared in pyproject.toml, where it is needed; what is declared is imported."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

from tests.source_files import SOURCE

_PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
_EXTRAS = {
    "agent": {"agent"},
    "cluster": {"agent", "cluster"},
    "dra": {"claims"},
    "fleet": {"fleet", "fleet-parquet", "fleet-dask"},
    "host/bundle": {"agent"},
    "kubectl": {"agent"},
    "render": {"png"},
    "service": {"agent"},
}
"""Extras that the modules of a room may need. Everything else stands on `dependencies` alone."""


_IMPORT = re.compile(
    r"""^\s*(?:from (\w+)[\w.]* import |import (\w+)[\w.]*(?: as \w+)?$)|import_module\("(\w+)""", re.MULTILINE
)


def _name(requirement: str) -> str:
    for end in "<>=~![ ":
        requirement = requirement.partition(end)[0]
    return requirement.lower()


_ALWAYS = {_name(one) for one in _PROJECT["dependencies"]}
_TOOLS = {"docs"}
"""Extras of programs that are run beside the package."""
_OF_EXTRA = {
    extra: {_name(one) for one in needs}
    for extra, needs in _PROJECT["optional-dependencies"].items()
    if extra not in _TOOLS
}


def _needs() -> Iterator[tuple[str, set[str]]]:
    """Yield each module of the package with the distributions that may hold what it imports."""
    known = packages_distributions()
    for path in sorted(SOURCE.rglob("*.py")):
        # pytest itself loads its plugin.
        if path.name.endswith("_pb2.py") or path.name == "pytest_plugin.py":
            continue
        for match in _IMPORT.finditer(path.read_text(encoding="utf-8")):
            top = match[match.lastindex or 0]
            if top != "podslice" and top != "_typeshed" and top not in sys.stdlib_module_names:
                yield (
                    path.relative_to(SOURCE).as_posix(),
                    {one.lower().replace("_", "-") for one in known.get(top, [top])},
                )


def test_imports_are_declared_where_they_are_needed() -> None:
    undeclared: list[str] = []
    used: set[str] = set()
    for module, distributions in _needs():
        used |= distributions
        extras = next((extras for room, extras in _EXTRAS.items() if module.startswith(f"{room}/")), set())
        if not distributions & _ALWAYS.union(*(_OF_EXTRA[one] for one in extras)):
            undeclared.append(f"{module}: {', '.join(distributions)}")
    assert undeclared == []
    assert _ALWAYS.union(*_OF_EXTRA.values()) - used == set()
