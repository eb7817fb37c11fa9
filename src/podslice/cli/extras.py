"""Libraries that only some commands need."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from podslice.values.errors import InputError


def need_modules(subject: str, modules: Iterable[str], *, extras: str) -> None:
    """Raise `InputError` where a module is missing that `subject` needs: `extras` of podslice bring it."""
    missing = [name for name in modules if not _is_installed(name)]
    if missing:
        raise InputError(f"{subject} needs {', '.join(missing)}", remedy=f"pip install 'podslice[{extras}]'")


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
