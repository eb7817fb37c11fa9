"""Immutable tables: small dicts by pod UID, and by container in it, that do not change once they are made.

A change makes a new outer dict and a new dict for the one pod; all other pods' entries are shared. Python copies a dict
of a few hundred entries in about a microsecond, and a reference to the old table stays valid.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TypeAlias, TypeVar

K = TypeVar("K")
T = TypeVar("T")
ContainerIds: TypeAlias = "dict[str, dict[str, str]]"
"""The containers of the runtime, by pod UID: names by runtime id, in order of start."""


def put(table: dict[K, T], key: K, value: T) -> dict[K, T]:
    """Return the table with this entry added or replaced."""
    made = table.copy()
    made[key] = value
    return made


def drop(table: dict[K, T], key: K) -> dict[K, T]:
    """Return the table without this entry; the same table where it has none."""
    if key not in table:
        return table
    made = table.copy()
    del made[key]
    return made


def put_in(table: dict[str, dict[str, T]], pod: str, name: str, value: T) -> dict[str, dict[str, T]]:
    """Return the table with this entry of a pod added or replaced."""
    made = table.copy()
    own = table.get(pod)
    made[pod] = {name: value} if own is None else {**own, name: value}
    return made


def drop_in(table: dict[str, dict[str, T]], pod: str, name: str) -> dict[str, dict[str, T]]:
    """Return the table without this entry of a pod; the pod goes with its last entry."""
    own = table.get(pod)
    if own is None or name not in own:
        return table
    left = drop(own, name)
    return put(table, pod, left) if left else drop(table, pod)


def drop_first(table: dict[str, dict[str, T]], pod: str, value: T) -> dict[str, dict[str, T]]:
    """Return the table without the first entry of a pod that has this value; the same table where none has."""
    for name, known in table.get(pod, {}).items():
        if known == value:
            return drop_in(table, pod, name)
    return table


def container_ids(entries: Mapping[str, tuple[str, str]]) -> ContainerIds:
    """Group the containers of a runtime, (pod UID, container) by runtime id, by pod."""
    ids: ContainerIds = {}
    for container_id, (pod, container) in entries.items():
        ids.setdefault(pod, {})[container_id] = container
    return ids


def keep_pods(table: dict[str, T], pods: Container[str]) -> dict[str, T]:
    """Return the entries of these pods; the same table where it has no others."""
    if all(uid in pods for uid in table):
        return table
    return {uid: entry for uid, entry in table.items() if uid in pods}
