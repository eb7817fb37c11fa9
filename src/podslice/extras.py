"""Libraries that only some commands need, and how to install them from where this podslice came."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec

from podslice.values.errors import InputError
from podslice.version import __version__


def need_modules(subject: str, modules: Iterable[str], *, extras: str) -> None:
    """Raise `InputError` where a module is missing that `subject` needs: `extras` of podslice bring it."""
    missing = [name for name in modules if not _is_installed(name)]
    if missing:
        raise InputError(f"{subject} needs {', '.join(missing)}", remedy=install_extra(extras))


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def install_extra(extra: str) -> str:
    """Return the command that installs podslice again with an extra, such as `agent` or `agent,cluster`.

    It names the folder, archive or repository that podslice was installed from (PEP 610). No index is asked: until
    podslice is published there, the name could be anybody's.
    """
    return f"pip install '{_origin(extra)}'"


def _origin(extra: str) -> str:
    # Imported here: together they take longer than a decision, and hardly anybody needs them.
    import json
    from importlib import metadata
    from pathlib import Path
    from urllib.parse import urlsplit
    from urllib.request import url2pathname

    try:
        recorded = json.loads(metadata.distribution("podslice").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        recorded = {}
    url = urlsplit(recorded.get("url", ""))
    if url.scheme == "file":
        path = Path(url2pathname(url.path))
        if path.exists():
            return f"{path}[{extra}]"
    elif url.scheme:
        kind = recorded.get("vcs_info", {}).get("vcs")
        return f"podslice[{extra}] @ {f'{kind}+' if kind else ''}{url.geturl()}"
    return f"podslice-{__version__}-py3-none-any.whl[{extra}]"
