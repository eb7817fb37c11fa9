"""The HTML back end: one page with drawings and a table of owners, everything inside, nothing loaded from elsewhere.

Pointing at an owner, or moving to it with the keyboard, picks out its CPUs.
"""

from __future__ import annotations

from collections.abc import Sequence

import htpy as h
from markupsafe import Markup

from podslice.core.values.cpuset import format_bits
from podslice.render.palette import style_of
from podslice.render.picture import Picture
from podslice.render.svg import svg_element

PAGE_STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--dim:#59636e;--line:#d0d7de;--hover:#eaeef2;--link:#0550ae}
@media (prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#e6edf3;--dim:#9198a1;--line:#3d444d;--hover:#21262d;
--link:#79c0ff}}
body{margin:1rem auto;max-width:1280px;padding:0 1rem;background:var(--paper);color:var(--ink);
font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.35rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.4rem 0 .4rem}p{margin:.3rem 0}.dim{color:var(--dim)}
svg{max-width:100%;height:auto}@media (max-width:800px){.scroll svg{max-width:none}}
table{border-collapse:collapse;width:100%;font-size:13px}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
tr[data-o]:hover,tr[data-o]:focus{background:var(--hover);outline:none}
tr[data-o]:focus-visible{outline:2px solid var(--link);outline-offset:-2px}
.swatch{display:inline-block;width:.9em;height:.9em;border-radius:2px;margin-right:.5em;vertical-align:-.1em}
code{font-family:ui-monospace,monospace;font-size:12px;overflow-wrap:anywhere}
.scroll{overflow-x:auto}
"""
PAGE_SCRIPT = """
function pick(part,owner){const svg=part.querySelector('svg.podslice');if(!svg)return;
svg.classList.toggle('pick',owner!==null);
svg.querySelectorAll('.c').forEach(c=>c.classList.toggle('on',owner!==null&&c.dataset.o===owner))}
function wire(root){root.querySelectorAll('section.picture').forEach(part=>{
part.querySelectorAll('[data-o]').forEach(e=>{
const on=()=>pick(part,e.dataset.o),off=()=>pick(part,null);
e.addEventListener('mouseenter',on);e.addEventListener('mouseleave',off);
e.addEventListener('focus',on);e.addEventListener('blur',off)})})}
wire(document);
"""


def to_html(pictures: Sequence[tuple[str, Picture]], *, title: str = "") -> str:
    """A page with one drawing after the other, each under its heading (empty for none)."""
    name = title or (pictures[0][1].title if pictures else "podslice")
    sections = [section(heading, picture, f"s{i}") for i, (heading, picture) in enumerate(pictures)]
    return page(name, sections)


def page(title: str, content: h.Node, *, style: str = "") -> str:
    """A whole document with the style and the script that pictures need, and more style if wanted."""
    document = h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.title[f"{title} · podslice"],
            h.style[Markup(PAGE_STYLE + style)],
        ],
        h.body[content, h.script[Markup(PAGE_SCRIPT)]],
    ]
    return str(document)


def section(heading: str, picture: Picture, prefix: str) -> h.Element:
    """A drawing with its table of owners."""
    return h.section(".picture")[
        heading and h.h2[heading],
        h.div(".scroll")[svg_element(picture, prefix=prefix)],
        _owners(picture),
    ]


def _owners(picture: Picture) -> h.Element | None:
    if not picture.owners:
        return None
    head = h.tr[(h.th(scope="col")[name] for name in ("Owner", "CPUs", "Kind", "QoS", "Memory", "Devices", "Cgroup"))]
    return h.details(open=len(picture.owners) <= 12)[
        h.summary[f"Owners of CPUs ({len(picture.owners)})"],
        h.div(".scroll")[h.table[h.thead[head], h.tbody[(_row(picture, i) for i in range(len(picture.owners)))]]],
    ]


def _row(picture: Picture, index: int) -> h.Element:
    owner = picture.owners[index]
    pod = picture.pods[owner.pod]
    swatch = h.span(".swatch", style=f"background:{style_of(owner.look).fill}", aria_hidden="true")
    return h.tr(tabindex="0", data_o=str(index))[
        h.td[swatch, owner.label],
        h.td[f"{owner.cpus.bit_count()}: ", h.code[format_bits(owner.cpus)]],
        h.td[owner.kind],
        h.td[pod.qos],
        h.td[pod.memory or "–"],
        h.td[pod.devices or "–"],
        h.td[h.code[owner.cgroup]],
    ]
