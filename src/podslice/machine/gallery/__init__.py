"""Ready-made machines, to ask what a server would do without having one.

Each is a short-form YAML file below `machines/` with the vendor document its facts are from.
"""

from __future__ import annotations

from difflib import get_close_matches
from importlib.resources import files

from podslice.machine.model import Machine
from podslice.machine.readers.form import from_data
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError

_SUFFIX = ".yaml"
_LONGEST_NAME = 64


def gallery_names() -> list[str]:
    """Return the names of all machines, sorted."""
    folder = files("podslice.machine.gallery").joinpath("machines")
    return sorted(file.name.removesuffix(_SUFFIX) for file in folder.iterdir() if file.name.endswith(_SUFFIX))


def similar_names(name: str) -> list[str]:
    """Return up to three names like this one, or those that contain it."""
    names = gallery_names()
    if not 0 < len(name) <= _LONGEST_NAME:
        return []
    return get_close_matches(name, names, 3, 0.4) or [known for known in names if name.lower() in known][:3]


def load_gallery(name: str) -> Machine:
    """Return the machine of that name. Raises `InputError` that offers similar names."""
    if name not in gallery_names():
        similar = similar_names(name)
        remedy = f"did you mean {', '.join(similar)}?" if similar else "podslice topology --list shows all"
        raise InputError(f"unknown machine {name!r}", remedy=remedy)
    text = files("podslice.machine.gallery").joinpath("machines", name + _SUFFIX).read_text(encoding="utf-8")
    return from_data(load_documents(text, name)[0], name)
