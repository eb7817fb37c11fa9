"""The HTML of the page, and of one node. Style and script are inside; nothing is loaded from elsewhere."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

import htpy as h
from markupsafe import Markup

from podslice.cluster.page.queries import NodeLook
from podslice.node.node import Node
from podslice.render.html import PAGE_SCRIPT, PAGE_STYLE, section
from podslice.render.picture import picture_of

_LEGEND = (("o", "owned"), ("c", "promised"), ("f", "free"), ("r", "reserved"), ("s", "shared only"))


@cache
def _part(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def shell(nonce: str) -> str:
    """Return the page; its script fetches all data."""
    document = h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.title["Cluster · podslice"],
            h.style[Markup(PAGE_STYLE + _part("page.css"))],
        ],
        h.body[
            h.a(".skip", href="#grid")["Skip to the nodes"],
            h.header[
                h.h1["What can the nodes of this cluster still take?"], h.p("#state.dim", role="status")["Loading…"]
            ],
            h.main[
                h.dl("#facts", aria_label="The cluster in numbers"),
                h.div(".sides")[h.div[_ask(), h.div("#answer", tabindex="-1", aria_live="polite")], _waiting()],
                _nodes(),
                _fragmentation(),
            ],
            h.script(nonce=nonce)[Markup(PAGE_SCRIPT + _part("page.js"))],
        ],
    ]
    return str(document)


def _ask() -> h.Element:
    return h.section(aria_labelledby="ask-title")[
        h.h2("#ask-title")["Where could a pod go?"],
        h.form("#ask")[
            h.label(for_="pod")[
                "A pod or workload as YAML or JSON: type, paste, choose a file, or drop it on the page"
            ],
            h.textarea("#pod", spellcheck="false", placeholder="apiVersion: v1\nkind: Pod\n…"),
            h.div(".row")[
                h.button(type="submit")["Ask all nodes"],
                h.span(".dim")[h.kbd["Ctrl"], " + ", h.kbd["Enter"], " asks as well; nothing is created"],
                h.label[h.span(".dim")["File: "], h.input("#file", type="file", accept=".yaml,.yml,.json")],
            ],
        ],
    ]


def _waiting() -> h.Element:
    return h.section(aria_labelledby="waiting-title")[
        h.h2("#waiting-title")["Pods that wait"], h.div("#waiting")[h.p(".dim")["Loading…"]]
    ]


def _nodes() -> h.Element:
    orders = (("name", "name"), ("free", "most free"), ("apart", "most scattered"), ("fit", "takes the pod first"))
    return h.section(aria_labelledby="nodes-title")[
        h.h2("#nodes-title")["Nodes"],
        h.div(".row.bar")[
            h.label["Name has ", h.input("#named", type="search", autocomplete="off")],
            h.label["Order ", h.select("#order")[(h.option(value=value)[text] for value, text in orders)]],
            h.label["Show ", h.select("#show")[h.option(value="")["all nodes"]]],
            h.span("#count.dim", role="status"),
            h.span(".legend", aria_hidden="true")[(_mark(letter, text) for letter, text in _LEGEND)],
        ],
        h.div("#grid", role="listbox", tabindex="0", aria_label="Nodes; arrow keys move, Enter opens one")[
            h.div("#tall", role="presentation")
        ],
        h.div("#detail", tabindex="-1", aria_live="polite"),
    ]


def _mark(letter: str, text: str) -> h.Element:
    return h.span[h.i(class_=f"mark {letter}"), text]


def _fragmentation() -> h.Element:
    return h.section(aria_labelledby="scattered-title")[
        h.h2("#scattered-title")["Fragmentation"], h.div("#scattered")[h.p(".dim")["Loading…"]]
    ]


def node_fragment(name: str, look: NodeLook) -> str:
    """Return one node with its pods, and those on their way to it."""
    node = Node.of(look.rules, look.state)
    pods = len(node.pods)
    counted = f"{pods} pod{'s' if pods != 1 else ''}, those on their way among them"
    heading = f"{name}: Kubernetes {look.rules.release}, {counted}"
    problem = h.p(".problem")[look.problem] if look.problem else None
    return str(h.div[problem, section(heading, picture_of(node.view, title=name), "n")])
