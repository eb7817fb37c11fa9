'use strict';
const by=id=>document.getElementById(id),state=by('state'),grid=by('grid'),tall=by('tall'),answer=by('answer'),
text=by('pod'),file=by('file'),named=by('named'),order=by('order'),show=by('show'),detail=by('detail');
const el=(tag,props,...inside)=>{const e=document.createElement(tag);
for(const[k,v]of Object.entries(props||{}))if(v!==null&&v!==undefined)k==='class'?e.className=v:
k==='on'?e.addEventListener('click',v):e.setAttribute(k,v);e.append(...inside.flat().filter(x=>x!=null));return e};
const few=n=>Number(n).toLocaleString('en');
const pause=s=>new Promise(done=>setTimeout(done,1000*s));
async function get(path,tag){const r=await fetch(path,{headers:tag?{'If-None-Match':tag}:{},cache:'no-store'});
if(r.status===304)return null;if(!r.ok)throw new Error((await r.text()).trim()||'the service says '+r.status);return r}

// Nodes: all of them as data, only those in sight as elements

let waiting=null,room=null;const nodes=new Map();let revision='',shown=[],here=0,columns=1,cardHeight=60,cardWidth=200,widest=1,zones=1,
fits=null,reasons=new Map(),drawn=new Map(),ready=false;
const WORD={o:'owned',c:'promised',f:'free',r:'reserved',s:'shared'};
function read(tile){const parts=tile.zones.map(z=>{const[id,...runs]=z.split(' ');
return{id,runs:runs.map(r=>[parseInt(r),r.at(-1)])}});
let free=0,best=0,cpus=0,owned=0;for(const z of parts){let here=0,size=0;for(const[n,k]of z.runs){size+=n;
if(k==='f')here+=n;if(k==='o'||k==='c')owned+=n}
free+=here;cpus+=size;best=Math.max(best,here);widest=Math.max(widest,size)}
zones=Math.max(zones,parts.length);
return{name:tile.node,release:tile.kubernetes,problem:tile.problem,cordoned:tile.cordoned,parts,free,best,cpus,owned,apart:free-best}}
function label(n){const z=n.parts.map(p=>{const sums={};for(const[c,k]of p.runs)sums[k]=(sums[k]||0)+c;
return'NUMA '+p.id+': '+Object.entries(sums).map(([k,c])=>c+' '+WORD[k]).join(', ')});
const said=fits?(fits.has(n.name)?'takes the pod':reasons.get(n.name)||''):'';
return[n.name,n.release&&'Kubernetes '+n.release,n.problem,n.cordoned?'cordoned':'',said,...z].filter(Boolean).join('. ')}
async function lookNodes(){const r=await get('nodes?since='+encodeURIComponent(revision));
const data=await r.json();
if(data.whole)nodes.clear();
for(const tile of data.items)nodes.set(tile.node,read(tile));
for(const name of data.gone)nodes.delete(name);
const first=!ready;ready=true;
if(first||data.whole||data.items.length||data.gone.length){
for(const tile of data.items){const e=drawn.get(tile.node);if(e){e.remove();drawn.delete(tile.node)}}
arrange();facts()}
revision=data.revision;
state.textContent='Live, looked at '+new Date().toLocaleTimeString()}
const orders={name:null,free:(a,b)=>b.free-a.free,apart:(a,b)=>b.apart-a.apart,
fit:(a,b)=>(fits?fits.has(b.name)-fits.has(a.name):0)};
const collator=new Intl.Collator('en',{numeric:true});
function arrange(){const at=shown[here]?.name,want=named.value.trim().toLowerCase(),only=show.value;
const wanted=n=>(!want||n.name.toLowerCase().includes(want))&&(!only||
(only==='+'?fits?.has(n.name):only==='!'?n.problem||n.cordoned:reasons.get(n.name)===only.slice(1)));
shown=[...nodes.values()].filter(wanted).sort((a,b)=>(orders[order.value]?.(a,b))||collator.compare(a.name,b.name));
here=Math.max(0,shown.findIndex(n=>n.name===at));
by('count').textContent=few(shown.length)+' of '+few(nodes.size);measure();draw()}
function measure(){const room=grid.clientWidth-8;columns=Math.max(1,Math.floor(room/196));
cardWidth=Math.floor(room/columns)-6;cardHeight=26+zones*11+4;
const rows=Math.ceil(shown.length/columns);tall.style.height=rows*(cardHeight+6)+8+'px';
for(const e of drawn.values())e.remove();drawn.clear()}
function bars(n){const wide=300,cell=wide/widest,gap=Math.min(1.2,cell*.22);let out='';
n.parts.forEach((p,row)=>{let x=0;const y=row*11+5.5;for(const[c,k]of p.runs){
out+='<path class="'+k+'" d="M'+x.toFixed(1)+' '+y+'h'+(c*cell-gap).toFixed(1)+'" stroke-dasharray="'+(cell-gap).toFixed(2)+
' '+gap.toFixed(2)+'"/>';x+=c*cell}});
return'<svg viewBox="0 0 '+wide+' '+zones*11+'" height="'+zones*11+'" preserveAspectRatio="none" stroke-width="8" aria-hidden="true">'+out+'</svg>'}
function card(n,number){const e=el('div',{class:'card'+(n.problem?' silent':'')+(fits?fits.has(n.name)?' fits':' not':''),
role:'option',id:'node-'+number,'aria-posinset':number+1,'aria-setsize':shown.length,'aria-selected':number===here,
'aria-label':label(n),title:label(n).replaceAll('. ','\n')},
el('p',{},el('b',{},n.name),el('span',{},n.problem?'unconfirmed':n.cordoned?'cordoned':n.free+' free')));
e.insertAdjacentHTML('beforeend',bars(n));
e.style.cssText='width:'+cardWidth+'px;height:'+cardHeight+'px;left:'+(6+number%columns*(cardWidth+6))+'px;top:'+
(6+Math.floor(number/columns)*(cardHeight+6))+'px';
if(number===here)e.classList.add('here');
e.addEventListener('click',()=>{move(number);open(n.name)});return e}
function draw(){const step=cardHeight+6,top=Math.floor(grid.scrollTop/step)-2,
end=Math.ceil((grid.scrollTop+grid.clientHeight)/step)+2,from=Math.max(0,top)*columns,
to=Math.min(shown.length,end*columns),keep=new Set();
const fresh=document.createDocumentFragment();
for(let i=from;i<to;i++){const name=shown[i].name;keep.add(name);
if(!drawn.has(name)){const e=card(shown[i],i);drawn.set(name,e);fresh.append(e)}}
for(const[name,e]of drawn)if(!keep.has(name)){e.remove();drawn.delete(name)}
tall.append(fresh);const e=shown[here]&&drawn.get(shown[here].name);
e?grid.setAttribute('aria-activedescendant',e.id):grid.removeAttribute('aria-activedescendant');
if(ready&&drawn.size&&!performance.getEntriesByName('nodes').length)performance.mark('nodes')}
function move(to){const was=drawn.get(shown[here]?.name);was?.classList.remove('here');was?.setAttribute('aria-selected','false');
here=Math.max(0,Math.min(shown.length-1,to));
const step=cardHeight+6,y=Math.floor(here/columns)*step;
if(y<grid.scrollTop)grid.scrollTop=y;else if(y+step+8>grid.scrollTop+grid.clientHeight)grid.scrollTop=y+step+8-grid.clientHeight;
draw();const now=drawn.get(shown[here]?.name);now?.classList.add('here');now?.setAttribute('aria-selected','true')}
let framed=0;grid.addEventListener('scroll',()=>{cancelAnimationFrame(framed);framed=requestAnimationFrame(draw)},{passive:true});
new ResizeObserver(()=>{if(ready){measure();draw()}if(room)plot()}).observe(grid);
grid.addEventListener('keydown',e=>{const page=Math.max(1,Math.floor(grid.clientHeight/(cardHeight+6))-1)*columns;
const steps={ArrowRight:1,ArrowLeft:-1,ArrowDown:columns,ArrowUp:-columns,PageDown:page,PageUp:-page,Home:-1e9,End:1e9};
if(e.key in steps){e.preventDefault();move(here+steps[e.key])}
else if((e.key==='Enter'||e.key===' ')&&shown[here]){e.preventDefault();open(shown[here].name)}});
for(const e of[order,show])e.addEventListener('change',arrange);
let typed=0;named.addEventListener('input',()=>{clearTimeout(typed);typed=setTimeout(arrange,120)});
document.addEventListener('keydown',e=>{if(e.key==='/'&&!/INPUT|TEXTAREA|SELECT/.test(document.activeElement.tagName)){
e.preventDefault();named.focus()}
if(e.key==='Escape'&&detail.contains(document.activeElement)){detail.replaceChildren();grid.focus()}});
async function open(name){try{const r=await get('node?name='+encodeURIComponent(name));
detail.innerHTML=await r.text();wire(detail)}catch(e){detail.replaceChildren(el('p',{class:'problem'},e.message))}
detail.prepend(el('button',{on:()=>{detail.replaceChildren();grid.focus()}},'Close (Esc)'));detail.focus()}

// Numbers

function facts(){let cpus=0,owned=0,free=0,best=0,silent=0;for(const n of nodes.values()){
if(n.problem)silent++;else{cpus+=n.owned+n.free;owned+=n.owned;free+=n.free;best+=n.best}}
const share=(a,b)=>b?Math.round(100*a/b)+' %':'–';
const lines=[['Nodes',few(nodes.size),silent?few(silent)+' not confirmed':'all confirmed'],
['CPUs owned or promised',few(owned),share(owned,cpus)+' of '+few(cpus)],
['Free CPUs',few(free),share(free,cpus)],
['Free on each node\u2019s best NUMA node',few(best),share(best,free)+' of the free'],
['Pods that wait',waiting?few(waiting.total):'…',waiting?few(waiting.items.filter(p=>p.state==='refused').length)+' refused by all':'']];
by('facts').replaceChildren(...lines.map(([a,b,c])=>el('div',{},el('dt',{},a),el('dd',{},b+' ',el('small',{},c)))))}

// Where could a pod go?

function answered(found){answer.replaceChildren();
for(const one of found.items)answer.append(...about(one));
for(const w of found.warnings)answer.append(el('p',{class:'dim'},w));
const last=found.items.at(-1);mark(last)}
function about(fit){const out=[el('h3',{},fit.pod)];
out.push(fit.held?el('p',{class:'yes'},'Room is kept for it on '+fit.held+'.'):
fit.fitting?el('p',{class:'yes'},few(fit.fitting)+' of '+few(fit.nodes)+' nodes take it.'):
el('p',{class:'no'},'None of '+few(fit.nodes)+' nodes takes it.'));
if(fit.best.length)out.push(el('p',{},'Best: ',...fit.best.slice(0,5).flatMap((b,i)=>[i?', ':'',
el('button',{class:'link',type:'button',on:()=>open(b.node)},b.node),b.cpus?' ('+b.cpus+', NUMA '+b.numaNodes.join(',')+')':''])));
if(fit.ways&&fit.ways.length)out.push(el('p',{},el('strong',{},'What would help, cheapest first (each was tried):')),
el('ol',{},fit.ways.map(w=>el('li',{},w.text))));
else if(fit.ways)out.push(el('p',{},'No small change was found that would help.'));
if(fit.refused.length)out.push(el('div',{class:'list'},el('table',{},el('thead',{},el('tr',{},el('th',{scope:'col',class:'n'},'Nodes'),
el('th',{scope:'col'},'Why not'))),el('tbody',{},fit.refused.map(r=>el('tr',{},el('td',{class:'n'},few(r.count)),
el('td',{},el('button',{class:'link',type:'button',on:()=>{show.value='='+r.reason;arrange();grid.focus()}},r.reason))))))));
for(const n of fit.notes)out.push(el('p',{class:'dim'},n));return out}
function mark(fit){fits=new Set(fit.fittingNodes);reasons=new Map();
for(const r of fit.refused)for(const n of r.nodes)reasons.set(n,r.reason);
show.replaceChildren(el('option',{value:''},'all nodes'),el('option',{value:'!'},'not confirmed or cordoned'),
el('option',{value:'+'},'that take '+fit.pod),...fit.refused.map(r=>el('option',{value:'='+r.reason},few(r.count)+': '+r.reason)));
order.value='fit';arrange();grid.scrollTop=0}
async function asking(work){answer.setAttribute('aria-busy','true');
try{answered(await(await work()).json())}catch(e){answer.replaceChildren(el('p',{class:'problem',role:'alert'},e.message))}
answer.removeAttribute('aria-busy');answer.focus()}
function ask(){return asking(async()=>{const r=await fetch('fit?ways=1',{method:'POST',
headers:{'X-Podslice':'1','Content-Type':'application/yaml'},body:text.value});
if(!r.ok)throw new Error((await r.text()).trim());return r})}
const askAbout=name=>asking(()=>get('fit?ways=1&pod='+encodeURIComponent(name)));
async function take(f){if(f){text.value=await f.text();ask()}}
by('ask').addEventListener('submit',e=>{e.preventDefault();ask()});
text.addEventListener('keydown',e=>{if(e.key==='Enter'&&(e.ctrlKey||e.metaKey)){e.preventDefault();ask()}});
file.addEventListener('change',()=>take(file.files[0]));
document.addEventListener('dragover',e=>{e.preventDefault();document.body.classList.add('drop')});
document.addEventListener('dragleave',()=>document.body.classList.remove('drop'));
document.addEventListener('drop',e=>{e.preventDefault();document.body.classList.remove('drop');
const f=e.dataTransfer.files[0];if(f)take(f);else{const t=e.dataTransfer.getData('text');if(t){text.value=t;ask()}}});

// Pods that wait

let waitingTag='';const ways=new Map();
async function lookWaiting(search){const r=await get('pending'+(search?'?ways=1':''),search?'':waitingTag);
if(!r)return;const data=await r.json();if(!search)waitingTag=r.headers.get('ETag')||'';
if(search){ways.clear();for(const p of data.items)if(p.way)ways.set(p.uid,p.way)}
waiting=data;facts();
const rows=data.items.slice(0,200).map(p=>el('tr',{},
el('td',{},el('button',{class:'link',type:'button',on:()=>askAbout(p.namespace+'/'+p.name)},p.namespace+'/'+p.name),
p.like?el('div',{class:'dim'},'and '+few(p.like)+' like it'):null),
el('td',{},el('span',{class:p.state==='refused'||p.state==='unreadable'?'no':p.state==='nominated'?'yes':''},p.state),
el('div',{class:'dim'},p.reason),ways.has(p.uid)?el('div',{},ways.get(p.uid).text):null)));
by('waiting').replaceChildren(data.total?el('div',{class:'list',tabindex:'0','aria-label':'Pods that wait'},el('table',{},
el('thead',{},el('tr',{},el('th',{scope:'col'},'Pod'),el('th',{scope:'col'},'Why, and the cheapest way out'))),
el('tbody',{},rows))):el('p',{class:'dim'},'No pod waits for a node.'),
data.total>rows.length?el('p',{class:'dim'},'The first '+rows.length+' of '+few(data.total)+'.'):'')}

// Fragmentation

let size=null;const cpus=n=>n+(n===1?' CPU':' CPUs');
async function lookScattered(){room=await(await get('fragmentation')).json();plot()}
function plot(){const h=room.history,box=by('scattered').firstElementChild,wide=Math.max(300,Math.min(820,box?.clientWidth||640)),high=190,left=60,bottom=22,
now=h.at(-1);
if(size===null)size=Math.max(0,room.sizes.findIndex(s=>s.cpus===16));
const begin=h[0].at,span=Math.max(1,now.at-begin),most=Math.max(1,...h.map(p=>p.cpus));
const x=t=>(left+(t-begin)/span*(wide-left-8)).toFixed(1),y=v=>(8+(1-v/most)*(high-bottom-8)).toFixed(1);
const lines=[['owned',p=>p.owned],['free',p=>p.free],['usable',p=>p.usable[size]]];
const line=f=>(h.length>1?h:[{...now,at:begin-1},now]).map(p=>x(Math.max(begin,p.at))+','+y(f(p))).join(' ');
const when=t=>new Date(1000*t).toLocaleTimeString([],{hour:'2-digit',minute:'2-digit'});
let svg='<svg class="plot" width="'+wide+'" height="'+high+'" viewBox="0 0 '+wide+' '+high+'" role="img" aria-label="CPUs over time: '+few(now.owned)+' owned, '+
few(now.free)+' free, '+few(now.usable[size])+' usable for pods of '+room.sizes[size].cpus+'">';
for(const v of[0,.5,1])svg+='<path class="axis" d="M'+left+' '+y(v*most)+'H'+(wide-8)+'"/><text x="'+(left-6)+'" y="'+(+y(v*most)+4)+
'" text-anchor="end">'+few(Math.round(v*most))+'</text>';
svg+='<text x="'+left+'" y="'+(high-5)+'">'+when(begin)+'</text><text x="'+(wide-8)+'" y="'+(high-5)+'" text-anchor="end">'+when(now.at)+'</text>';
lines.forEach(([,f],i)=>{svg+=h.length>1?'<polyline class="l'+i+'" points="'+line(f)+'"/>':
'<path class="axis l'+i+'" style="stroke-width:2" d="M'+left+' '+y(f(now))+'H'+(wide-8)+'"/>'});svg+='</svg>';
const pick=el('select',{'aria-label':'Pods of so many CPUs'},room.sizes.map((s,i)=>el('option',{value:i},cpus(s.cpus))));
pick.value=size;pick.addEventListener('change',()=>{size=+pick.value;plot();by('scattered').querySelector('select').focus()});
const chart=el('div');chart.innerHTML=svg;
const table=el('table',{},el('thead',{},el('tr',{},['Pods of','find room','CPUs they can use','of the free'].map(t=>
el('th',{scope:'col',class:'n'},t)))),el('tbody',{},room.sizes.map(s=>el('tr',{},el('td',{class:'n'},cpus(s.cpus)),
el('td',{class:'n'},few(s.pods)),el('td',{class:'n'},few(s.usable)),el('td',{class:'n'},now.free?Math.round(100*s.usable/now.free)+' %':'–')))));
by('scattered').replaceChildren(el('div',{},el('p',{},el('strong',{},room.percent+' % '),
'of the free CPUs are not on their node\u2019s best NUMA node.'),chart,el('p',{class:'key'},['owned or promised','free','usable for pods of'].map((t,i)=>
el('span',{},el('i',{class:'l'+i}),t,i===2?' ':'',i===2?pick:null)))),
el('div',{},el('p',{class:'dim'},'Counted by free CPUs of each NUMA node.'),el('div',{class:'scroll'},table),
room.scattered.length?el('p',{},'Most scattered: ',room.scattered.slice(0,5).flatMap((n,i)=>[i?', ':'',
el('button',{class:'link',type:'button',on:()=>open(n.node)},n.node),' ('+n.largest+' of '+n.free+' together)'])):''))}

// All of it, again and again

async function forever(work,seconds,failed){for(;;){try{if(!document.hidden||!ready)await work()}
catch(e){failed(e)}await pause(seconds)}}
const lost=e=>{state.textContent=e instanceof TypeError?'The service is gone; trying again':e.message};
const quiet=id=>e=>{if(by(id).querySelector('.dim')?.textContent==='Loading…')by(id).replaceChildren(el('p',{class:'problem'},e.message))};
show.append(el('option',{value:'!'},'not confirmed or cordoned'));
forever(lookNodes,2,lost);
forever(()=>lookWaiting(false),5,quiet('waiting'));
forever(lookScattered,30,quiet('scattered'));
(async()=>{await pause(1);forever(()=>lookWaiting(true),60,()=>{})})();
