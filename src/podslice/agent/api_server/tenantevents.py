"""Hide the names of other namespaces' pods in events about a pod.

A user who may read a pod's events must not learn which other pods run on its node. Explanations can name them, and the
user chooses which by the size of a pod that is refused. The operator's own tools (the log, `podslice agent status`)
show all names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Protocol

from podslice.service.identity import Identity

_NAMED = re.compile(r"([a-z0-9][a-z0-9.-]*)/([a-z0-9][a-z0-9.-]*[a-z0-9]|[a-z0-9])")
"""NAMESPACE/NAME, without a full stop after it."""
FOREIGN_POD = "a pod of another namespace"


class EventTarget(Protocol):
    """Takes an event about a pod, or about the node."""

    def emit(self, identity: Identity, kind: str, reason: str, message: str) -> None: ...
    def emit_node(self, kind: str, reason: str, message: str) -> None: ...


class TenantEvents:
    """Passes events on. `pods`: returns those of the node, with the refused ones."""

    def __init__(self, events: EventTarget, pods: Callable[[], Iterable[Identity]]) -> None:
        self._events, self._pods = events, pods

    def emit(self, identity: Identity, kind: str, reason: str, message: str) -> None:
        """Send an event about a pod, which users of its namespace can read."""
        self._events.emit(identity, kind, reason, hide_foreign_pods(message, identity.namespace, self._pods()))

    def emit_node(self, kind: str, reason: str, message: str) -> None:
        """Send an event about the node, for its operator."""
        self._events.emit_node(kind, reason, message)


def hide_foreign_pods(text: str, namespace: str, pods: Iterable[Identity]) -> str:
    """Return `text` without the names of pods of other namespaces."""
    if "/" not in text:
        return text
    known = {(one.namespace, one.name) for one in pods if one.namespace != namespace}

    def shown(match: re.Match[str]) -> str:
        return FOREIGN_POD if (match[1], match[2]) in known else match[0]

    return _NAMED.sub(shown, text)
