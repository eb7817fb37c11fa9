"""The CPU map of every node, drawn by the page's script from facts in the page.

A cell's outcome has the owners of CPUs at the end, its machines have their topology. Both are embedded as compact text,
the nodes with the most stranded CPUs first, up to a limit; nothing is loaded.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import htpy as h
from markupsafe import Markup

from podslice.fleet.scenario.cells import FleetCell, Study
from podslice.fleet.scenario.codec import CellOutcome
from podslice.machine.model import Core
from podslice.values.cpuset import bits_of, format_bits

MOST_TEXT = 1_000_000
"""Characters of all maps of a page, which is to stay below 2 MiB."""
MAP_STYLE = """
.map{border:1px solid var(--line);border-radius:6px;padding:.6rem .8rem;margin:.6rem 0;min-height:3rem}
.map .numa{display:inline-block;vertical-align:top;border:1px solid var(--line);border-radius:4px;padding:.3rem .4rem;
margin:.2rem .4rem .2rem 0;max-width:100%;box-sizing:border-box}
.map .cores{display:flex;flex-wrap:wrap;gap:3px}.map .core{display:flex;border:1px solid var(--line);border-radius:3px}
.map .cpu{width:1.7rem;height:1.5rem;font:11px/1.5rem ui-monospace,monospace;text-align:center;overflow:hidden}
.map .cpu.r{background:repeating-linear-gradient(45deg,transparent 0 4px,var(--line) 4px 6px);color:var(--dim)}
.map .cpu.f{color:var(--dim)}.map .cpu.o{color:#111;font-weight:600}
.map select{font:inherit;max-width:100%;background:var(--paper);color:var(--ink);border:1px solid var(--line)}
.map td:nth-child(-n+2){min-width:0}.map .scroll{max-height:22rem;overflow:auto}
.map tr.on td{background:var(--hover)}.map .cpu.dimmed{opacity:.25}
svg.plot g[data-n]{cursor:pointer}svg.plot g[data-n]:hover .hit{stroke:var(--ink);stroke-opacity:1}
svg.plot g[data-n].on .hit{stroke:var(--link);stroke-opacity:1;stroke-width:2}
"""
MAP_SCRIPT = """
(()=>{const facts=document.getElementById('node-maps');if(!facts)return;const data=JSON.parse(facts.textContent);
const box=document.getElementById('map'),pick=document.getElementById('map-node');
const colours=['#8ecae6','#ffcf70','#8fd6b4','#f2a679','#e0a3c6','#b6e0fb','#cdbff0','#c9ced6'];
const make=(tag,kind,text)=>{const one=document.createElement(tag);if(kind)one.className=kind;
if(text!==undefined)one.textContent=text;return one};
const letters=n=>{let t='';do{t=String.fromCharCode(97+n%26)+t;n=Math.floor(n/26)-1}while(n>=0);return t};
const list=text=>text?text.split(',').flatMap(part=>{const [a,b]=part.split('-').map(Number);
return b===undefined?[a]:Array.from({length:b-a+1},(_,i)=>a+i)}):[];
const by=new Map(data.nodes.map(one=>[one[0],one]));
function show(name){box.replaceChildren();const node=by.get(name);
if(!node){box.append(make('p','dim',name+': not in this page. podslice fleet show '+data.run+' --node '+name));return}
const [,kind,shared,owners]=node,machine=data.classes[kind],owner=new Map();
owners.forEach(([pod,shape,cpus],i)=>list(cpus).forEach(cpu=>owner.set(cpu,i)));
const reserved=new Set(list(machine.reserved));let free=0;const grids=[];
machine.numa.forEach(([id,cores])=>{const part=make('div','numa'),grid=make('div','cores');
part.append(make('div','dim','NUMA node '+id));
cores.forEach(text=>{const core=make('div','core');list(text).forEach(cpu=>{const i=owner.get(cpu);
const state=i!==undefined?'o':reserved.has(cpu)?'r':'f';if(state==='f')free++;
const cell=make('div','cpu '+state,state==='o'?letters(i):state==='r'?'r':cpu);
cell.title='CPU '+cpu+': '+(state==='o'?'pod '+owners[i][0]+', '+data.shapes[owners[i][1]]:
state==='r'?'reserved':'free');
if(i!==undefined){cell.style.background=colours[i%8];cell.dataset.i=i}core.append(cell)});grid.append(core)});
part.append(grid);grids.push(part)});
box.append(make('p','',name+', '+machine.name+': '+owners.length+' pods own CPUs, '+shared+' share the other '+free),
...grids);
if(owners.length){const rows=make('div','scroll'),table=make('table');owners.forEach(([pod,shape,cpus],i)=>{
const row=make('tr');row.tabIndex=0;const mark=make('td','',letters(i));mark.style.background=colours[i%8];
mark.style.color='#111';row.append(mark,make('td','','pod '+pod),make('td','',data.shapes[shape]),make('td','',cpus));
const dim=on=>box.querySelectorAll('.cpu').forEach(c=>c.classList.toggle('dimmed',on&&c.dataset.i!==String(i)));
row.onmouseenter=row.onfocus=()=>{dim(true);row.className='on'};
row.onmouseleave=row.onblur=()=>{dim(false);row.className=''};
table.append(row)});rows.append(table);box.append(rows)}}
const rows=[...document.querySelectorAll('svg.plot g[data-n]')];
const has=(row,name)=>row.dataset.n.split(' ').some(n=>data.names[n]===name);
function mark(name){rows.forEach(row=>row.classList.toggle('on',has(row,name)))}
function choose(names){const had=names.includes(pick.value)?names[(names.indexOf(pick.value)+1)%names.length]:names[0];
pick.value=had;show(had);mark(had)}
rows.forEach(row=>row.addEventListener('click',()=>choose(row.dataset.n.split(' ').map(n=>data.names[n]))));
data.names.forEach(name=>{const one=make('option','',name);one.value=name;pick.append(one)});
pick.addEventListener('change',()=>{show(pick.value);mark(pick.value)});
pick.value=data.nodes[0][0];show(pick.value);mark(pick.value)})();
"""


class _OnNode(NamedTuple):
    """Pods of a node at the end: those that own CPUs (pod, shape, CPU list), and the number that share the rest."""

    owners: list[list[Any]]
    shared: int


def node_maps(study: Study, cell: FleetCell, outcome: CellOutcome, run: str) -> h.Node:
    """Return the element for the map of a node, with the facts of as many nodes as there is room for."""
    here = _on_nodes(outcome)
    stranded = outcome.result.nodes.expected
    order = sorted(range(len(outcome.nodes)), key=lambda node: (-stranded[node], node))
    nodes, size = [], 0
    for node in order:
        facts_of_node = [outcome.nodes[node], outcome.kind[node], here[node].shared, here[node].owners]
        size += len(json.dumps(facts_of_node))
        if size > MOST_TEXT:
            break
        nodes.append(facts_of_node)
    facts = {
        "run": run,
        "classes": list(_classes(study, cell)),
        "shapes": [shape.name for shape in outcome.shapes],
        "names": list(outcome.nodes),
        "nodes": nodes,
    }
    # Names are the user's: `</script>` in one must not end the element.
    text = json.dumps(facts, separators=(",", ":")).replace("<", "\\u003c")
    return [
        h.p[h.label(for_="map-node")["Node, or click one above: "], h.select("#map-node")],
        h.div("#map.map", aria_live="polite")[h.noscript["A browser with scripts shows the map of a node here."]],
        h.p(".dim")[
            "A letter is the pod that owns the CPU, r is reserved, a number is free. CPUs in one frame are a core."
        ],
        h.script("#node-maps", type="application/json")[Markup(text)],
    ]


def _on_nodes(outcome: CellOutcome) -> list[_OnNode]:
    """Return the pods of each node at the end."""
    pods = outcome.result.pods
    found = [_OnNode([], 0) for _ in outcome.nodes]
    for pod, node in enumerate(pods.node):
        if node < 0 or pods.bound[pod] < 0 or pods.ended[pod] >= 0 or pods.verdict[pod]:
            continue
        cpus = pods.cpus[pod] if pods.cpus else 0
        if cpus:
            found[node].owners.append([pod, outcome.shape[pod], format_bits(cpus)])
        else:
            found[node] = found[node]._replace(shared=found[node].shared + 1)
    return found


def _in_order(cores: Iterable[Core]) -> list[Core]:
    return sorted(cores, key=lambda core: sorted(core.threads))


def _classes(study: Study, cell: FleetCell) -> Iterator[dict[str, Any]]:
    """Yield the topology of each class; classes of restarted nodes follow the first ones."""
    for one in study.start(cell).classes:
        yield {
            "name": one.name,
            "reserved": format_bits(one.rules.cpu.reserved),
            "numa": [
                [node.id, [format_bits(bits_of(core.threads)) for core in _in_order(node.cores)]]
                for node in one.rules.machine.nodes
            ],
        }
