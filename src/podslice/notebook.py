"""Values of the library as tables and pictures in notebooks (`_repr_html_` and `_repr_svg_`)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import singledispatch
from hashlib import sha256

import htpy as h

from podslice.advise.explain.explain import Explanation
from podslice.advise.explain.page import explanation_article
from podslice.machine.model import Machine
from podslice.node.decision import ContainerDecision, Decision
from podslice.node.node import Node
from podslice.render.picture import picture_of
from podslice.render.svg import to_svg
from podslice.render.table import format_bytes
from podslice.values.errors import PodsliceError
from podslice.values.quantity import plural

_COLUMNS = ("Container", "CPUs", "NUMA nodes", "Isolation", "Memory", "Devices")


@singledispatch
def html_of(_: object) -> str | None:
    """Return a value as HTML; None for one that a notebook shows as text."""
    return None


@html_of.register
def _decision(decision: Decision) -> str:
    verdict = f"admitted, {decision.qos}" if decision.admitted else f"refused: {decision.reason}"
    return str(
        h.div[
            h.p[h.strong[f"{decision.namespace or 'default'}/{decision.name}"], f" {verdict}"],
            None if decision.admitted else (h.p[text] for text in (decision.message, decision.why) if text),
            _table(_COLUMNS, map(_container, decision.containers)) if decision.containers else None,
        ]
    )


@html_of.register
def _explanation(explanation: Explanation) -> str:
    return str(explanation_article(explanation))


def _container(one: ContainerDecision) -> tuple[str, ...]:
    memory = ", ".join(f"{name} {format_bytes(amount)}" for name, amount in one.memory.items())
    bound = f" on NUMA {one.memory_nodes}" if one.memory_nodes else ""
    devices = ", ".join(f"{name} {' '.join(ids)}" for name, ids in one.devices.items())
    return (
        one.name,
        f"{plural(len(one.cpus), 'CPU')}: {one.cpus}",
        str(one.numa_nodes),
        one.isolation,
        f"{memory}{bound}" if memory else "",
        devices,
    )


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> h.Element:
    return h.table[
        h.thead[h.tr[(h.th(style="text-align:left")[head] for head in heads)]],
        h.tbody[(h.tr[(h.td(style="text-align:left")[cell] for cell in row)] for row in rows)],
    ]


@singledispatch
def svg_of(_: object) -> str | None:
    """Return a value as a picture; None for one that has none."""
    return None


@svg_of.register
def _node(node: Node) -> str:
    picture = picture_of(node.view)
    # Pictures on one page must not share the ids of their patterns.
    mark = sha256(to_svg(picture).encode()).hexdigest()[:8]
    return to_svg(picture, prefix=f"p{mark}-")


@svg_of.register
def _machine(machine: Machine) -> str | None:
    try:
        return _node(Node(machine))
    except PodsliceError:  # no kubelet starts on it, so there is no node to draw
        return None
