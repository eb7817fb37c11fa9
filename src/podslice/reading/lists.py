"""Items of Lists, as kubectl, client-go and the API server itself write them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any


def is_list(document: Any) -> bool:
    """Whether a document is a List, a PodList, a NodeList or the like, or has items and no kind."""
    return (
        isinstance(document, dict)
        and str(document.get("kind", "List")).endswith("List")
        and isinstance(document.get("items"), list)
    )


def fill_items(document: dict[str, Any]) -> Iterator[Any]:
    """Yield the items of a list. Those of a typed list omit kind and version in the API server's own answers: they get
    the list's."""
    kind = str(document.get("kind", "List"))
    shared = {} if kind == "List" else {"kind": kind.removesuffix("List"), "apiVersion": document.get("apiVersion")}
    for item in document["items"]:
        yield {**shared, **item} if isinstance(item, dict) else item


def flatten_lists(document: Any) -> Iterator[Any]:
    """Yield a document, or in place of a list its items, those of lists in it too."""
    pending = [document]
    while pending:
        one = pending.pop()
        if is_list(one):
            pending += list(fill_items(one))[::-1]
        else:
            yield one
