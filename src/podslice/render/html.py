"""The HTML back end: one page with drawings and a table of owners, everything inside, nothing loaded from elsewhere.

Pointing at an owner, or moving to it with the keyboard, picks out its CPUs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import htpy as h
from markupsafe import Markup

from podslice.render.picture import POOLED, Picture
from podslice.render.svg import NARROW, pattern_element, svg_element, swatch
from podslice.values.cpuset import format_bits

PAGE_STYLE = """
:root{color-scheme:light dark;--paper:#fff;--ink:#1b1f24;--dim:#59636e;--line:#d0d7de;--hover:#eaeef2;--link:#0550ae}
@media (prefers-color-scheme:dark){:root{--paper:#0d1117;--ink:#e6edf3;--dim:#9198a1;--line:#3d444d;--hover:#21262d;
--link:#79c0ff}}
body{margin:1rem auto;max-width:1280px;padding:0 1rem;background:var(--paper);color:var(--ink);
font:15px/1.45 system-ui,sans-serif}
h1{font-size:1.35rem;margin:.2rem 0}h2{font-size:1.1rem;margin:1.4rem 0 .4rem}p{margin:.3rem 0}.dim{color:var(--dim)}
svg{max-width:100%;height:auto}@media (max-width:800px){.scroll svg:not(.podslice){max-width:none}}
.podslice .c{transition:opacity .1s}.podslice.pick .c:not(.on){opacity:.18}
svg.patterns{position:absolute}.podslice.narrow{display:none}
@media (max-width:700px){.podslice.narrow{display:block}.podslice.wide{display:none}
body{padding:0 .8rem}}
table{border-collapse:collapse;width:100%;font-size:13px}th{white-space:nowrap}td:nth-child(-n+2){min-width:7rem}
th,td{text-align:left;padding:.25rem .6rem;border-bottom:1px solid var(--line);vertical-align:top}
tr[data-o]:hover,tr[data-o]:focus{background:var(--hover);outline:none}
tr[data-o]:focus-visible{outline:2px solid var(--link);outline-offset:-2px}
svg.swatch{width:15px;height:15px;margin-right:.5em;vertical-align:-.15em;background:none}
.problem{border-left:4px solid #d55e00;padding:.4rem .8rem;background:var(--hover)}
code{font-family:ui-monospace,monospace;font-size:12px;overflow-wrap:anywhere}
.scroll,pre{overflow-x:auto}
@media (max-width:700px){.owners thead{display:none}.owners tr{display:block;padding:.3rem 0;
border-bottom:1px solid var(--line)}.owners td{display:block;border:0;padding:.1rem 0}
.owners td[data-title]::before{content:attr(data-title) ": ";color:var(--dim)}}
"""
_NO_UID = "known when the pod has a UID"
PAGE_SCRIPT = """
function pick(part,owner){part.querySelectorAll('svg.podslice').forEach(svg=>{
svg.classList.toggle('pick',owner!==null);
svg.querySelectorAll('.c').forEach(c=>c.classList.toggle('on',owner!==null&&c.dataset.o===owner))})}
function wire(root){root.querySelectorAll('section.picture').forEach(part=>{
part.querySelectorAll('[data-o]').forEach(e=>{
const on=()=>pick(part,e.dataset.o),off=()=>pick(part,null);
e.addEventListener('mouseenter',on);e.addEventListener('mouseleave',off);
e.addEventListener('focus',on);e.addEventListener('blur',off)})})}
wire(document);
"""


def to_html(pictures: Sequence[tuple[str, Picture]], *, title: str = "") -> str:
    """Return a page with the drawings one after the other, each under its heading (empty for none)."""
    name = title or (pictures[0][1].title if pictures else "podslice")
    sections = [section(heading, picture, f"s{i}") for i, (heading, picture) in enumerate(_once(pictures))]
    return page(name, sections)


def _once(pictures: Sequence[tuple[str, Picture]]) -> Iterator[tuple[str, Picture]]:
    """Yield the pictures, each without the distances and the basis that an earlier one has already shown."""
    shown: set[object] = set()
    for heading, picture in pictures:
        yield (
            heading,
            picture._replace(
                distances=() if picture.distances in shown else picture.distances,
                basis=() if picture.basis in shown else picture.basis,
            ),
        )
        shown |= {picture.distances, picture.basis}


def page(title: str, content: h.Node, *, style: str = "") -> str:
    """Return a whole document with the style and the script that pictures need, plus additional `style`."""
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
    """Return a drawing, wide and for a telephone, with its table of owners."""
    bare = picture._replace(basis=())
    return h.section(".picture")[
        heading and h.h2[heading],
        basis_lines(picture.basis),
        h.div(".scroll")[
            pattern_element(bare, prefix),
            svg_element(bare, prefix=prefix, kind="wide"),
            svg_element(bare, prefix=prefix, width=NARROW, kind="narrow"),
        ],
        _owners(picture, prefix),
    ]


def basis_lines(lines: Sequence[str]) -> Iterator[h.Element]:
    """Yield what a picture or an answer rests on: the first line small, what contradicts it below in full."""
    for place, line in enumerate(lines):
        yield h.p(".problem" if place else ".dim")[line]


_HEADS = ("Owner", "CPUs", "Kind", "QoS", "Memory of the pod", "Devices of the pod", "Cgroup")


def _owners(picture: Picture, prefix: str) -> h.Element | None:
    if not picture.pods:
        return None
    head = h.tr[(h.th(scope="col")[name] for name in _HEADS)]
    # Owners first; the sort is stable, so each group keeps the order of admission.
    order = sorted(range(len(picture.pods)), key=lambda pod: picture.pods[pod].pooled)
    return h.details(open=len(picture.owners) + len(picture.pods) <= 24)[
        h.summary[_count(picture)],
        h.div(".scroll")[h.table(".owners")[h.thead[head], h.tbody[(_rows(picture, pod, prefix) for pod in order)]],],
    ]


def _count(picture: Picture) -> str:
    pooled = sum(pod.pooled for pod in picture.pods)
    shared = f", {pooled} pod{'s' if pooled != 1 else ''} in the shared pool" if pooled else ""
    return f"Owners of CPUs ({sum(owner.kind != POOLED for owner in picture.owners)}){shared}"


def _rows(picture: Picture, number: int, prefix: str) -> Iterator[h.Element]:
    """Yield a row for each owner of a pod; what belongs to the pod as a whole is in the first one."""
    pod = picture.pods[number]
    mine = [index for index, owner in enumerate(picture.owners) if owner.pod == number]
    facts = (pod.qos, pod.memory or "–", pod.devices or "–", h.code[pod.cgroup] if pod.cgroup else _NO_UID)
    whole = [
        h.td(rowspan=str(len(mine)) if len(mine) > 1 else None, data_title=name)[fact]
        for name, fact in zip(_HEADS[3:], facts, strict=True)
    ]
    if not mine:
        yield h.tr[h.td[pod.label], h.td(data_title="CPUs")["shared pool"], h.td(data_title="Kind")[POOLED], whole]
    for index in mine:
        owner = picture.owners[index]
        cpus = [f"{owner.cpus.bit_count()}: ", h.code[format_bits(owner.cpus)]] if owner.cpus else "shared pool"
        yield h.tr(tabindex="0", data_o=str(index))[
            h.td[swatch(picture, index, prefix), owner.label],
            h.td(data_title="CPUs")[cpus, (owner.remark and h.div(".dim")[owner.remark]) or None],
            h.td(data_title="Kind")[owner.kind],
            whole if index == mine[0] else None,
        ]
