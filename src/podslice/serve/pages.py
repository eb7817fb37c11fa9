"""The parts of the local page: the shell, the node, and problems."""

from __future__ import annotations

import htpy as h
from markupsafe import Markup

from podslice.advise.explain.page import ANSWER_STYLE
from podslice.evidence.provenance import Provenance, provenance_lines
from podslice.node.node import Node
from podslice.render.html import PAGE_SCRIPT, PAGE_STYLE, section
from podslice.render.picture import picture_of

_SCRIPT = """
const node=document.getElementById('node'),answer=document.getElementById('answer'),
text=document.getElementById('pod'),form=document.getElementById('ask'),file=document.getElementById('file'),
state=document.getElementById('state');let tag='';
async function look(){try{
const r=await fetch('/node',{headers:tag?{'If-None-Match':tag}:{},cache:'no-store'});
if(r.status===200){tag=r.headers.get('ETag')||'';node.innerHTML=await r.text();wire(node);
state.textContent='Live, last change seen '+new Date().toLocaleTimeString()}
else if(r.status!==304){state.textContent='The server answers '+r.status}}
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
    """Return the page around everything; its script fetches the node and the answers about pods."""
    document = h.html(lang="en")[
        h.head[
            h.meta(charset="utf-8"),
            h.meta(name="viewport", content="width=device-width, initial-scale=1"),
            h.title["podslice"],
            h.style[Markup(PAGE_STYLE + ANSWER_STYLE)],
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


def node_fragment(node: Node, provenance: Provenance) -> str:
    """Return the node as it is now, with what it rests on."""
    picture = picture_of(node.view, basis=provenance_lines(provenance))
    pods = len(node.pods)
    return str(section(f"The node now: {pods} pod{'s' if pods != 1 else ''}", picture, "n"))


def problem_fragment(text: str) -> str:
    return str(h.p(".problem", role="alert")[text])
