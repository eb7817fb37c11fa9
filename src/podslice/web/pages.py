"""The parts of the local page: the shell, the node, and the answer about a pod."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import htpy as h
from markupsafe import Markup

from podslice.advise.explain.explain import Explained, Explanation, explain_each
from podslice.advise.explain.story import amount_text
from podslice.advise.explain.trace import MergeStep
from podslice.core.node import Node
from podslice.core.pod.spec import Pod
from podslice.render.explanation import losses_text
from podslice.render.html import PAGE_SCRIPT, PAGE_STYLE, page, section
from podslice.render.picture import Picture, picture_of

_MOST_ROWS = 16
_STYLE = """
main{display:block}textarea{width:100%;min-height:9rem;box-sizing:border-box;font:13px/1.4 ui-monospace,monospace;
background:var(--paper);color:var(--ink);border:1px solid var(--dim);border-radius:6px;padding:.6rem}
button{font:inherit;padding:.35rem 1rem;border-radius:6px;border:1px solid var(--dim);background:var(--hover);
color:var(--ink);cursor:pointer}button:focus-visible,textarea:focus-visible,a:focus-visible,input:focus-visible{
outline:2px solid var(--link);outline-offset:1px}.row{display:flex;gap:1rem;align-items:center;margin:.5rem 0;
flex-wrap:wrap}.drop textarea{border-style:dashed;border-color:var(--link)}.yes{color:#1a7f37}.no{color:#c1320b}
@media (prefers-color-scheme:dark){.yes{color:#3fb950}.no{color:#ff8f6b}}
.problem{border-left:4px solid #d55e00;padding:.4rem .8rem;background:var(--hover)}
#answer:not(:empty){padding:.5rem 1rem;border-radius:6px}#answer:focus{outline:1px solid var(--line)}
.skip{position:absolute;left:-99rem}.skip:focus{position:static}kbd{border:1px solid var(--line);border-radius:3px;
padding:0 .3em;font-size:12px}article+article{border-top:1px solid var(--line);margin-top:1rem}
"""
_SCRIPT = """
const node=document.getElementById('node'),answer=document.getElementById('answer'),
text=document.getElementById('pod'),form=document.getElementById('ask'),file=document.getElementById('file'),
state=document.getElementById('state');let tag='';
async function look(){try{
const r=await fetch('/node',{headers:tag?{'If-None-Match':tag}:{},cache:'no-store'});
if(r.status===200){tag=r.headers.get('ETag')||'';node.innerHTML=await r.text();wire(node);
state.textContent='Live, last change seen '+new Date().toLocaleTimeString()}
else if(r.status!==304){state.textContent='The server says '+r.status}}
catch(e){state.textContent='The server is gone; trying again'}
setTimeout(look,1000)}
async function ask(){answer.setAttribute('aria-busy','true');
try{const r=await fetch('/explain',{method:'POST',headers:{'X-Podslice':'1','Content-Type':'application/yaml'},
body:text.value});answer.innerHTML=await r.text();wire(answer)}
catch(e){answer.textContent='The server is gone.'}
answer.removeAttribute('aria-busy');answer.focus()}
async function take(f){if(f){text.value=await f.text();ask()}}
form.addEventListener('submit',e=>{e.preventDefault();ask()});
text.addEventListener('keydown',e=>{if(e.key==='Enter'&&(e.ctrlKey||e.metaKey)){e.preventDefault();ask()}});
file.addEventListener('change',()=>take(file.files[0]));
document.addEventListener('dragover',e=>{e.preventDefault();document.body.classList.add('drop')});
document.addEventListener('dragleave',()=>document.body.classList.remove('drop'));
document.addEventListener('drop',e=>{e.preventDefault();document.body.classList.remove('drop');
const f=e.dataTransfer.files[0];if(f)take(f);else{const t=e.dataTransfer.getData('text');if(t){text.value=t;ask()}}});
look();
"""


def shell(nonce: str) -> str:
    """The page around everything; its script fetches the node and asks about pods."""
    document = h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.title["podslice"],
            h.style[Markup(PAGE_STYLE + _STYLE)],
        ],
        h.body[
            h.a(".skip", href="#pod")["Skip to the pod"],
            h.header[h.h1["What would this node do with a pod?"], h.p("#state.dim", role="status")["Loading…"]],
            h.main[
                h.form("#ask")[
                    h.label(for_="pod")["A pod as YAML or JSON: type, paste, choose a file, or drop it on the page"],
                    h.textarea("#pod", spellcheck="false", placeholder="apiVersion: v1\nkind: Pod\n…"),
                    h.div(".row")[
                        h.button(type="submit")["Try it"],
                        h.span(".dim")[h.kbd["Ctrl"], " + ", h.kbd["Enter"], " tries it as well; nothing is changed"],
                        h.label[h.span(".dim")["File: "], h.input("#file", type="file", accept=".yaml,.yml,.json")],
                    ],
                ],
                h.div("#answer", tabindex="-1", aria_live="polite"),
                h.div("#node"),
            ],
            h.script(nonce=nonce)[Markup(PAGE_SCRIPT + _SCRIPT)],
        ],
    ]
    return str(document)


def node_fragment(node: Node) -> str:
    """The node as it is now."""
    picture = picture_of(node.view)
    pods = len(node.pods)
    return str(section(f"The node now: {pods} pod{'s' if pods != 1 else ''}", picture, "n"))


def problem_fragment(text: str) -> str:
    return str(h.p(".problem", role="alert")[text])


Answer: TypeAlias = "tuple[Explanation, Picture | None]"
"""An explanation, and for an admitted pod the picture of the node with it."""


def answer_fragment(answers: Sequence[Answer], warnings: Sequence[str] = ()) -> str:
    """Verdict, story, table and fixes of each pod, and the picture with it."""
    told = (h.p(".problem", role="alert")[f"warning: {warning}"] for warning in warnings)
    return str(h.div[told, (_answer(*answer, prefix=f"a{i}-") for i, answer in enumerate(answers))])


def answer_page(answers: Sequence[Answer]) -> str:
    """The answers as a page of its own, for a file."""
    names = ", ".join(explanation.trace.name for explanation, _ in answers)
    articles = [_answer(*answer, prefix=f"a{i}-") for i, answer in enumerate(answers)]
    return page(f"Explained: {names}", [h.h1["What this node does with each pod"], articles], style=_STYLE)


def _answer(explanation: Explanation, picture: Picture | None, *, prefix: str) -> h.Element:
    trace = explanation.trace
    verdict = "would be admitted" if trace.admitted else f"would be refused: {trace.reason}"
    return h.article[
        h.h2[f"{trace.namespace}/{trace.name} ", h.span(".yes" if trace.admitted else ".no")[verdict]],
        h.details(open=not trace.admitted)[
            h.summary["The story"],
            h.ul[(h.li[sentence.strip()] for sentence in explanation.story[1:])],
        ],
        _fixes(explanation),
        _table(trace.steps[-1]),
        section("With this pod (changed CPUs are framed)", picture._replace(distances=()), prefix)
        if picture is not None
        else None,
    ]


def _fixes(explanation: Explanation) -> h.Element | None:
    if explanation.trace.admitted:
        return None
    if not explanation.fixes:
        return h.p["No change in the searched classes makes it fit."]
    return h.div[
        h.h3["What makes it fit, smallest change first (each was tried)"],
        h.ol[
            (
                h.li[
                    fix.text,
                    h.span(".no")[f" Lost: {losses_text(fix)}."] if fix.losses else None,
                    h.ul[(h.li[h.code[f"{e.path}: {e.before} → {e.after or '–'}"]] for e in fix.edits)]
                    if fix.edits
                    else None,
                ]
                for fix in explanation.fixes
            )
        ],
    ]


def _table(step: MergeStep) -> h.Element | None:
    rows = [row for row in step.candidates if len(row.nodes) == 1][:_MOST_ROWS]
    if not rows or not rows[0].cells:
        return None
    head = ["NUMA", *(f"{cell.resource} needed / free" for cell in rows[0].cells), "Verdict"]
    return h.details[
        h.summary["What each NUMA node has"],
        h.div(".scroll")[
            h.table[
                h.thead[h.tr[(h.th(scope="col")[name] for name in head)]],
                h.tbody[
                    (
                        h.tr[
                            h.td[str(row.nodes)],
                            (h.td[_amounts(cell.resource, cell.need, cell.free)] for cell in row.cells),
                            h.td[row.verdict],
                        ]
                        for row in rows
                    )
                ],
            ]
        ],
    ]


def _amounts(resource: str, need: int, free: int) -> str:
    return f"{amount_text(resource, need)} / {amount_text(resource, free)}"


def explained(node: Node, pods: Iterable[Pod], *, fixes: bool = True) -> list[Answer]:
    """Explain what a node does with one pod after the other, with a picture of each that is admitted; admitted pods
    are there for those after them. The node itself stays as it is."""
    return [answer_of(one) for one in explain_each(node.kubelet, pods, fixes=fixes)]


def answer_of(one: Explained) -> Answer:
    """The explanation, with a picture of the node where the pod was admitted."""
    admitted = one.explanation.trace.admitted
    return one.explanation, picture_of(one.after, before=picture_of(one.before)) if admitted else None
