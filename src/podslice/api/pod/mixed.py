"""Containers with exclusive and shared CPUs: the two parts of their CPU request (docs/policy.md).

A packet processing container needs whole CPUs for the threads that poll, and a fraction of any CPU for those that log.
Its annotation says how many CPUs of its request are exclusive; the rest is its remainder, which it takes of shared
ones.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from podslice.api.pod.demand import is_container_equivalent_guaranteed
from podslice.api.pod.spec import Container
from podslice.values.quantity import ZERO, cpus_text

ALL: Final = "all"
"""Annotation value for as many exclusive CPUs as a request has whole ones."""


class MixedShare(NamedTuple):
    """`exclusive`: CPUs of the container's own; `remainder`: millicores that it requests besides."""

    exclusive: int
    remainder: int


class MixedProblem(NamedTuple):
    """Why a container's request cannot be split as annotated, in words."""

    text: str


def split_request(container: Container, count: str, *, pod_guaranteed: bool) -> MixedShare | MixedProblem:
    """Split a container's CPU request where `count` CPUs, or `all`, shall be exclusive."""
    name = container.name
    if not pod_guaranteed:
        return MixedProblem(f"is about container {name}, whose pod is not Guaranteed")
    if not is_container_equivalent_guaranteed(container):
        return MixedProblem(f"is about container {name}, whose CPU and memory limits are not its requests")
    milli = (container.resources.requests or {}).get("cpu", ZERO).milli_value()
    whole = milli // 1000
    if not whole:
        return MixedProblem(f"is about container {name}, which asks for {cpus_text(milli)}, less than a whole one")
    exclusive = whole if count == ALL else int(count)
    if exclusive > whole:
        return MixedProblem(f"wants {exclusive} exclusive CPUs for container {name}, which asks for {cpus_text(milli)}")
    return MixedShare(exclusive, milli - 1000 * exclusive)
