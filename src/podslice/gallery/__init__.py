"""Ready-made descriptions of common machines, one short YAML file each, with its source."""

from __future__ import annotations

from difflib import get_close_matches
from importlib.resources import files

from podslice.core.errors import InputError
from podslice.core.machine.model import Machine
from podslice.core.machine.shape import expand, shape_from_dict
from podslice.k8s.yaml import load_documents


def names() -> list[str]:
    """Names of all machines in the gallery."""
    return sorted(
        entry.name.removesuffix(".yaml") for entry in files(__name__).iterdir() if entry.name.endswith(".yaml")
    )


def load_gallery(name: str) -> Machine:
    """A machine of the gallery. Raises `InputError` with close names."""
    if name not in names():
        close = get_close_matches(name, names(), 3, 0.3)
        raise InputError(
            f"unknown machine {name!r}",
            path="--machine",
            remedy=f"did you mean {' or '.join(close)}?" if close else "podslice topology --list names them all",
        )
    text = files(__name__).joinpath(f"{name}.yaml").read_text(encoding="utf-8")
    return expand(shape_from_dict({"name": name, **load_documents(text, name)[0]}))
