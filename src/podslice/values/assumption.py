"""Facts that nothing gives and that an answer takes for true."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

AssumedAbout: TypeAlias = Literal[
    "cpus", "nodes", "memory", "memory-rounding", "hugepages", "devices", "pods", "configuration", "release"
]
"""Subjects of assumptions: ids, cores, sockets and caches of CPUs; the number and size of NUMA nodes; amounts of
memory; that these are rounded as a program prints them; huge pages; devices; running pods; the kubelet's configuration;
the decisions of a Kubernetes release."""


class Assumption(msgspec.Struct, frozen=True):
    """A fact that is assumed: its subject, and a line for people."""

    about: AssumedAbout
    text: str

    def __str__(self) -> str:
        return self.text
