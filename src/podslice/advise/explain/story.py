"""The story of a decision in plain sentences, made from its trace."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.explain.candidates import Candidate, single_nodes
from podslice.advise.explain.causes.words import bytes_in_one_unit
from podslice.advise.explain.codes import ELIGIBILITY
from podslice.advise.explain.columns import Cell
from podslice.advise.explain.trace import Answer, ContainerFacts, MergeStep, Trace
from podslice.config.policy_options import SINGLE_NUMA_NODE
from podslice.node.pod_remarks import describe_reserved
from podslice.values.quantity import BINARY_SI, Quantity
from podslice.values.reasons import UPSTREAM_DEFECT

_MOST_ROWS = 4
_MIB = 1 << 20
_MANAGERS = {"cpu": "CPU Manager", "memory": "Memory Manager", "device": "Device Manager"}


def story(trace: Trace) -> list[str]:
    """Return sentences in the order of the decision."""
    sentences = [_opening(trace), *_reserved(trace)]
    sentences += [_container(facts) for facts in trace.containers]
    for step in trace.steps:
        sentences += _merge(step, trace)
    if trace.admitted:
        sentences += list(_picks(trace))
    else:
        sentences += _ending(trace)
    return sentences


def amount_text(resource: str, amount: int) -> str:
    """Return an amount with its unit: bytes in binary units, everything else as a number."""
    if resource == "memory" or resource.startswith("hugepages-"):
        text = Quantity.of(amount, BINARY_SI).canonical()
        return text if not text.isdigit() or amount < 1024 else f"{amount >> 20}Mi"
    return str(amount)


def amount_texts(resource: str, need: int, free: int) -> tuple[str, str]:
    """Return two amounts in one unit, so that they can be compared: bytes in the largest unit of which both are whole,
    or in whole MiB, what is needed rounded up and what is free rounded down."""
    if resource != "memory" and not resource.startswith("hugepages-"):
        return str(need), str(free)
    texts = bytes_in_one_unit((need, free))
    if all(text == "0" or text[-2:] in ("Ti", "Gi", "Mi") for text in texts) or need < _MIB:
        return texts[0], texts[1]
    return f"{-(-need // _MIB)}Mi", f"{free // _MIB}Mi"


def _opening(trace: Trace) -> str:
    verdict = "be admitted" if trace.admitted else "be refused"
    if trace.reason == UPSTREAM_DEFECT:
        verdict = "get no answer"
    return f"{trace.namespace}/{trace.name} is {trace.qos} and would {verdict}."


def _reserved(trace: Trace) -> Iterator[str]:
    owners = {facts.name for facts in trace.containers if facts.exclusive_cpus}
    for pick in () if not trace.admitted else trace.picks:
        if pick.container in owners and (given := pick.cpus & trace.reserved):
            text = describe_reserved(pick.container or "", given)
            yield f"{text[:1].upper()}{text[1:]}."


def _container(facts: ContainerFacts) -> str:
    who = f"{facts.kind.capitalize()} {facts.name}" if facts.name else "The pod as a whole"
    requests = ", ".join(f"{r.resource} {r.amount} ({r.source})" for r in facts.requested) or "nothing"
    owned = f" ({facts.exclusive_cpus})" if facts.exclusive_cpus else ""
    return f"{who} asks for {requests}; {ELIGIBILITY[facts.eligibility]}{owned}."


def _merge(step: MergeStep, trace: Trace) -> Iterator[str]:
    who = f"container {step.container}" if step.container else "the pod"
    if step.policy == "none":
        return
    if not step.answers:
        yield f"For {who} no manager prefers any NUMA node."
        return
    for answer in step.answers:
        manager = _MANAGERS[answer.provider]
        some = "" if answer.complete else "; too many sets to list them all"
        shown = (
            "none, nothing of the pod's budget is left to share" if _pool_empty(step, answer) else _sets(answer.hints)
        )
        yield f"The {manager}'s hints for {answer.resource} of {who}: {shown}{some}."
    if step.admitted:
        nodes = "any NUMA node" if step.nodes is None else f"NUMA {step.nodes}"
        chosen = "preferred by all" if step.preferred else "the best there is, though not preferred"
        yield f"Merged under {step.policy}: {nodes}, {chosen}."
        return
    yield f"Merged under {step.policy}: no set of NUMA nodes is preferred by all."
    # Sets that single-numa-node never takes need no reason of their own.
    single = step.policy == SINGLE_NUMA_NODE
    taken = single_nodes(step.candidates) if single else step.candidates
    killed = [row for row in taken if row.verdict not in ("fits", "wide-single")]
    killed.sort(key=_distance)
    for row in killed[:_MOST_ROWS]:
        yield f"  NUMA {row.nodes}: {'; '.join(_killer(row))}."
    if len(killed) > _MOST_ROWS:
        yield f"  … and {len(killed) - _MOST_ROWS} more sets (the table has them)."


def _distance(row: Candidate) -> tuple[bool, int, float, int]:
    """Return how far a set is from being taken; the sets that decide are the nearest."""
    shortage = sum(max(0, cell.need - cell.free) / cell.need for cell in row.cells if cell.need)
    hopeless = any(cell.verdict in ("small", "bare", "apart", "pool") for cell in row.cells)
    return hopeless, len(row.killers), shortage, len(row.nodes)


def _pool_empty(step: MergeStep, answer: Answer) -> bool:
    cells = step.candidates[0].cells if step.candidates else ()
    return any(cell.resource == answer.resource and cell.verdict == "pool" for cell in cells)


def _sets(hints: tuple[object, ...] | None) -> str:
    if hints is None:
        return "no preference"
    if not hints:
        return "nothing, no set of NUMA nodes has enough"
    preferred = [_set(hint) for hint in hints if getattr(hint, "preferred", False)]
    others = len(hints) - len(preferred)
    shown = ", ".join(preferred[: _MOST_ROWS * 2])
    more = f" and {len(preferred) - _MOST_ROWS * 2} more" if len(preferred) > _MOST_ROWS * 2 else ""
    rest = f"{others} wider set{'s' if others != 1 else ''} not preferred" if others else ""
    return "; ".join(part for part in (f"{{{shown}}}{more}" if preferred else "no preferred set", rest) if part)


def _set(hint: object) -> str:
    nodes = getattr(hint, "nodes", None)
    return "any" if nodes is None else str(nodes)


def _killer(row: Candidate) -> Iterator[str]:
    for cell in row.cells:
        if cell.verdict != "fits":
            yield cell_text(cell)


def cell_text(cell: Cell) -> str:
    """Describe what speaks against one resource of a candidate, with numbers."""
    need, free = amount_texts(cell.resource, cell.need, cell.free)
    if cell.verdict == "short":
        return f"{cell.resource} needs {need}, {free} free"
    if cell.verdict == "small":
        return f"{cell.resource} needs {need}, has only {amount_text(cell.resource, cell.capacity)} when empty"
    if cell.verdict == "wide":
        return (
            f"{cell.resource} is free, but not preferred: "
            "counting what is reserved and in use, fewer NUMA nodes are enough"
        )
    if cell.verdict == "group":
        return f"{cell.resource} is tied to another group of NUMA nodes"
    if cell.verdict == "joint":
        return f"{cell.resource} would fit, but is taken together with what does not"
    if cell.verdict == "apart":
        return f"{cell.resource} the pod holds already lies elsewhere"
    if cell.verdict == "bare":
        return f"{cell.resource} would fit, but no hint is made for sets with NUMA nodes that have none of it"
    if cell.verdict == "pool":
        return f"{cell.resource}: no hint, the pod's exclusive containers leave nothing of its budget"
    if cell.verdict == "unhinted":
        return f"{cell.resource}: enough is free, but no hint is made for this set"
    return f"{cell.resource} fits"


def _picks(trace: Trace) -> Iterator[str]:
    owners = {facts.name for facts in trace.containers if facts.exclusive_cpus}
    for pick in trace.picks:
        if pick.container is not None and pick.container not in owners:
            yield f"Container {pick.container} shares CPUs {pick.cpus} with its pod."
            continue
        who = f"Container {pick.container}" if pick.container else "The pod"
        order = [f"{unit.what} {unit.id}" for unit in pick.order]
        shown = ", ".join(order[:12]) + (f" and {len(order) - 12} more" if len(order) > 12 else "")
        yield f"{who} gets CPUs {pick.cpus}: {shown}."


def _ending(trace: Trace) -> Iterator[str]:
    if trace.failed:
        yield f"Allocation failed in {trace.failed}."
    if trace.reason == UPSTREAM_DEFECT:
        yield f"{trace.message[:1].upper()}{trace.message[1:]}."
        return
    yield f"Refused with {trace.reason} ({trace.code}). The kubelet's message would be: {trace.message}"
