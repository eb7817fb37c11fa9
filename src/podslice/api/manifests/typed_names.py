"""Names that people type, before they become part of a request: a path knows no spaces, and `?` ends it."""

from __future__ import annotations

from podslice.api.pod.names import label_problems, subdomain_problems
from podslice.values.errors import InputError

_OF_A_LABEL = "lower-case letters, digits and '-', at most 63"
_OF_A_DOMAIN = "lower-case letters, digits, '-' and '.', at most 253"


def node_name(text: str) -> str:
    """Raises `InputError`."""
    return _good(text, subdomain_problems(text), "a node", f"{_OF_A_DOMAIN}; kubectl get nodes lists them")


def pod_name(text: str) -> str:
    """Without its namespace. Raises `InputError`."""
    return _good(text, subdomain_problems(text), "a pod", _OF_A_DOMAIN)


def namespace_name(text: str, option: str) -> str:
    """As an option has it. Raises `InputError`."""
    return _good(text, label_problems(text), "a namespace", _OF_A_LABEL, option)


def _good(text: str, problems: list[str], what: str, remedy: str, option: str = "") -> str:
    if problems:
        raise InputError(f"{text!r} is no name of {what}", path=option, remedy=remedy)
    return text
