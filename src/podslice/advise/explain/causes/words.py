"""Causes in sentences: what is short where, who has it, and which rule demands it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from podslice.advise.explain.causes.cause import Cause, Causes, Holder
from podslice.advise.explain.codes import REFUSALS
from podslice.config.policy_options import RESTRICTED, SINGLE_NUMA_NODE
from podslice.node.cpu.picking.picker import SMT_FRACTION, SMT_SIZES
from podslice.values.cpuset import CPUSet
from podslice.values.quantity import BINARY_SI, Quantity

_MOST_HOLDERS = 4
_UNITS = (("Ti", 40), ("Gi", 30), ("Mi", 20), ("Ki", 10))
_POLICY = "topologyManagerPolicy: "
_UNIT_OF = {"cpu": "CPUs"}


def sentences(causes: Causes, code: str) -> tuple[str, ...]:
    """Return the causes in words, the binding one first. `code` is the refusal's."""
    if not causes.found:
        return ()
    lines = list(_lines(list(causes.found[0].chain), code))
    for other in causes.found[1:]:
        lines.append(f"Or: {next(_lines(list(other.chain), code))}")
    if causes.cut_short:
        lines.append("Not everything was tried: the search for causes is bounded.")
    return tuple(lines)


def _lines(chain: Sequence[Cause], code: str) -> Iterator[str]:
    """Yield the sentences of a chain: causes at the same place together, then those that come up afterwards."""
    here = list(chain[0].together)
    yield from _at_one_place(here, code)
    if len(chain) > len(here):
        later = _statement(chain[len(here)], code)
        # Names of options and of NUMA nodes keep their letters.
        yield f"After that: {later[:1].lower()}{later[1:]}" if later[1:2].islower() else f"After that: {later}"


def _at_one_place(causes: Sequence[Cause], code: str) -> Iterator[str]:
    short = [one for one in causes if one.code == "short"]
    narrow = [one for one in causes if one.code == "narrowest"]
    if short:
        yield _shortage(short)
    if narrow:
        yield _narrowest(narrow[0])
    for one in causes:
        if one.code not in ("short", "narrowest"):
            yield _statement(one, code)
    named = {one.resource: text for one in causes if (text := holders_text(one))}
    if named:
        yield " ".join(named.values())
    rule = _rule(causes)
    if rule:
        yield rule


# Statements


def _statement(cause: Cause, code: str) -> str:
    """Return one cause as a sentence."""
    made = _STATEMENTS.get(cause.code)
    if made is not None:
        return made(cause)
    return f"{_capital(REFUSALS.get(code, REFUSALS['other']))}."


def _shortage(causes: Sequence[Cause]) -> str:
    first = causes[0]
    amounts = [amounts_in(one, one.short, one.need, one.free) for one in causes]
    missing = " and ".join(_missing(one, texts[0]) for one, texts in zip(causes, amounts, strict=True))
    parts = []
    for place, (one, (_, need, free)) in enumerate(zip(causes, amounts, strict=True)):
        subject = f"{who(one)} needs" if place == 0 else "needs"
        named = f" {one.resource}" if len(causes) > 1 and one.unit != "CPUs" else ""
        parts.append(f"{subject} {need}{named}, and {_free(one, free)} free")
    return f"{_capital(where(first.nodes))} {_is(first.nodes)} short of {missing}: {'; '.join(parts)}."


def _missing(cause: Cause, amount: str) -> str:
    return f"{amount} {_noun(cause, cause.short)}"


def _too_big(cause: Cause) -> str:
    need, most = amounts_in(cause, cause.need, cause.capacity)
    place = "one NUMA node" if cause.nodes is not None and len(cause.nodes) == 1 else where(cause.nodes)
    has = f"{where(cause.nodes)} would have {most}"
    return f"{_capital(who(cause))} needs {need} {_noun(cause, cause.need)} on {place}; without other pods {has}."


def _own(cause: Cause) -> str:
    need, free = amounts_in(cause, cause.need, cause.free)
    if cause.facts:
        return (
            f"{_capital(who(cause))} needs {need} {_noun(cause, cause.need)}, and {_free(cause, free)} free"
            f"{_on(cause.nodes)}; of more, the containers of the pod before it would take some first."
        )
    return (
        f"{_capital(who(cause))} needs {need} {_noun(cause, cause.need)}, and {_free(cause, free)} left"
        f"{_on(cause.nodes)} after the containers of the pod before it."
    )


def _group(cause: Cause) -> str:
    assert cause.nodes is not None
    if len(cause.nodes) == 1:
        return (
            f"{_capital(where(cause.nodes))} is not given away alone: its memory belongs to a group of NUMA nodes that "
            f"a pod uses together."
        )
    need, free = amounts_in(cause, cause.need, cause.free)
    rule = "the Memory Manager does not join NUMA nodes of which some are in use alone or in another group"
    if cause.free < cause.need:
        return f"{_capital(rule)}, as {where(cause.nodes)} are."
    return (
        f"{_capital(where(cause.nodes))} have {free} {cause.resource} free for the {need} of {who(cause)}, but {rule}."
    )


def _counted(cause: Cause) -> str:
    assert cause.nodes is not None
    kept = "reserved CPUs" if cause.code == "reserved-counted" else "unhealthy devices"
    width = next(int(fact.split("=")[2]) for fact in cause.facts if fact.startswith(f"{cause.resource}="))
    need, most = amounts_in(cause, cause.need, cause.capacity)
    fewest = "one NUMA node" if width == 1 else f"{width} NUMA nodes"
    return (
        f"The kubelet counts {kept} when it looks for the fewest NUMA nodes: it wants {need} "
        f"{_noun(cause, cause.need)} on {fewest}, where pods can have at most {most}, and so it never takes "
        f"{where(cause.nodes)}."
    )


def _narrowest(cause: Cause) -> str:
    wants = []
    for fact in cause.facts:
        resource, need, width = fact.split("=")
        one = replace(cause, resource=resource, need=int(need), unit=_UNIT_OF.get(resource, _unit(resource)))
        (amount,) = amounts_in(one, one.need)
        wants.append(f"{amount} {_noun(one, one.need)} on {_few(int(width))}")
    return (
        f"restricted wants every resource of {who(cause)} on as few NUMA nodes as could hold it: {series(wants)}. No "
        f"set of NUMA nodes is all of that, whatever runs here."
    )


def _few(width: int) -> str:
    return "one NUMA node" if width == 1 else str(width)


def _unit(resource: str) -> str:
    return "bytes" if resource == "memory" or resource.startswith("hugepages-") else "devices"


def _no_common(cause: Cause) -> str:
    return (
        f"No set of NUMA nodes that {cause.rule.removeprefix(_POLICY)} takes has enough {series(cause.facts)} for "
        f"{who(cause)}, even without other pods."
    )


def _elsewhere(cause: Cause) -> str:
    if not cause.facts:
        return (
            f"Init containers leave what {who(cause)} must use on {where(cause.nodes)}, and there it cannot have "
            f"all it needs."
        )
    need, free = amounts_in(cause, cause.need, cause.free)
    other = where(CPUSet.parse(cause.facts[0]))
    return (
        f"{_capital(who(cause))} must use what init containers leave on {where(cause.nodes)}, where it needs {need} "
        f"{_noun(cause, cause.need)} and {_free(cause, free)} free; without them {other} would do."
    )


def _whole_cores(cause: Cause) -> str:
    kind, size = cause.facts
    (need,) = amounts_in(cause, cause.need)
    if kind == SMT_SIZES:
        return f"full-pcpus-only gives whole cores (of {size} CPUs), and no free ones make up {need} CPUs."
    if kind == SMT_FRACTION and cause.need % int(size):
        return f"full-pcpus-only gives whole cores of {size} CPUs, and {who(cause)} asks for {need}."
    return (
        f"The node is short of {cause.short} {'CPU' if cause.short == 1 else 'CPUs'} for full-pcpus-only: "
        f"{who(cause)} needs {need}, and {_free(cause, str(cause.free))} free on cores without reserved CPUs."
    )


def _budget(cause: Cause) -> str:
    if cause.facts:
        return f"{_capital(cause.facts[0])}."
    need, free, whole = amounts_in(cause, cause.need, cause.free, cause.capacity)
    return f"The pod has {whole} CPUs as a whole; one of its containers needs {need}, and {free} are left for it."


def _node_pool(cause: Cause) -> str:
    return (
        "The pod would take the last CPU on which other pods may run: strict-cpu-reservation keeps the reserved ones "
        "from them."
    )


def _total(cause: Cause) -> str:
    short, need, free, whole = amounts_in(cause, cause.short, cause.need, cause.free, cause.capacity)
    if cause.free <= 0:
        free = "nothing"
    name = cause.resource if cause.unit != "milliCPUs" else "CPU" if cause.short == 1000 else "CPUs"
    return (
        f"All pods together would request {short} {name} more than the node has for them: this one requests {need}, "
        f"and the others leave {free} of {whole}."
    )


def _pods(cause: Cause) -> str:
    return f"The node takes no more than {cause.capacity} pods, and has them."


def _defect(cause: Cause) -> str:
    return f"{_capital(cause.facts[0].rstrip('.'))}."


_STATEMENTS = {
    "defect": _defect,
    "short": lambda cause: _shortage([cause]),
    "too-big": _too_big,
    "own-containers": _own,
    "group": _group,
    "reserved-counted": _counted,
    "unhealthy-counted": _counted,
    "narrowest": _narrowest,
    "no-common-nodes": _no_common,
    "held-elsewhere": _elsewhere,
    "whole-cores": _whole_cores,
    "pod-budget": _budget,
    "node-pool": _node_pool,
    "node-total": _total,
    "pod-count": _pods,
}


# Holders


def holders_text(cause: Cause) -> str:
    """Return who has the rest of a resource, as a sentence; empty where there is none to name."""
    holders = [one for one in cause.holders if one.kind != "own" or one.container or one.amount]
    if not holders or cause.code == "pod-count":
        return ""
    amounts = [one.amount for one in holders]
    rest = sum(amounts[_MOST_HOLDERS:])
    *texts, rest_text = amounts_in(cause, *amounts, rest)
    parts = [_holder(one, text, cause) for one, text in zip(holders, texts, strict=True)]
    shown = parts[:_MOST_HOLDERS]
    if len(parts) > _MOST_HOLDERS:
        shown.append(f"{len(parts) - _MOST_HOLDERS} more {_verb(cause)} {rest_text}")
    listed = series(shown)
    if cause.code == "node-total":
        return f"Of the other pods, {listed}."
    noun = {"CPUs": "CPUs", "bytes": cause.resource}.get(cause.unit, f"{cause.resource}")
    return f"Of the {noun} of {where(cause.nodes)}, {listed}."


def _verb(cause: Cause) -> str:
    return "request" if cause.code == "node-total" else "have"


def _holder(holder: Holder, amount: str, cause: Cause) -> str:
    if holder.kind == "reserved":
        return f"{amount} {'is' if holder.amount == 1 else 'are'} reserved for the system"
    if holder.kind == "sibling":
        return f"{amount} {'is' if holder.amount == 1 else 'are'} on cores with reserved CPUs"
    if holder.kind == "unhealthy":
        return f"{amount} {'is' if holder.amount == 1 else 'are'} unhealthy"
    across = f" across NUMA nodes {holder.nodes}" if holder.nodes is not None and len(holder.nodes) > 1 else ""
    on = f" on NUMA node {holder.nodes}" if holder.nodes is not None and len(holder.nodes) == 1 else ""
    if holder.kind == "ended-init":
        return f"{holder.name} keeps {amount} for init container {holder.container}, which has ended"
    if holder.kind == "own":
        name = f"container {holder.container} of this pod" if holder.container else "earlier containers of this pod"
        verb = "has" if holder.container else "have"
        return f"{name} {verb} {amount}" if holder.amount else f"{name} {verb} some"
    verb = "requests" if cause.code == "node-total" else "has"
    return f"{holder.name} {verb} {amount if holder.amount else 'some'}{across}{on}"


# Rules


def _rule(causes: Sequence[Cause]) -> str:
    first = causes[0]
    if first.code != "short" or first.nodes is None:
        return ""
    if first.rule == f"{_POLICY}{SINGLE_NUMA_NODE}":
        return f"single-numa-node takes all from one NUMA node, and {first.nodes} comes closest."
    if first.rule == f"{_POLICY}{RESTRICTED}":
        one = len(first.nodes) == 1
        fewest = "one NUMA node" if one else f"{len(first.nodes)} NUMA nodes"
        verb = "comes" if one else "come"
        return f"restricted takes as few NUMA nodes as could hold it ({fewest}), and {first.nodes} {verb} closest."
    return ""


# Words


def who(cause: Cause) -> str:
    """Return the container that lacks something, or the pod as a whole."""
    return f"container {cause.container}" if cause.container else "the pod"


def where(nodes: CPUSet | None) -> str:
    """Return a set of NUMA nodes in words; None is the whole node."""
    if nodes is None:
        return "the node"
    return f"NUMA node{'' if len(nodes) == 1 else 's'} {nodes}"


def _on(nodes: CPUSet | None) -> str:
    return "" if nodes is None else f" on {where(nodes)}"


def _is(nodes: CPUSet | None) -> str:
    return "is" if nodes is None or len(nodes) == 1 else "are"


def _are(cause: Cause, amount: int) -> str:
    return "is" if cause.unit == "bytes" or amount in (0, 1) else "are"


def _free(cause: Cause, text: str) -> str:
    return f"{text if cause.free > 0 else 'none'} {_are(cause, cause.free)}"


def _noun(cause: Cause, amount: int) -> str:
    if cause.unit == "CPUs":
        return "CPU" if amount == 1 else "CPUs"
    return cause.resource


def amounts_in(cause: Cause, *amounts: int) -> tuple[str, ...]:
    """Return amounts of a cause in one unit, exactly."""
    if cause.unit == "bytes":
        return bytes_in_one_unit(amounts)
    if cause.unit == "milliCPUs":
        return tuple(Quantity.parse(f"{amount}m").canonical() for amount in amounts)
    return tuple(map(str, amounts))


def bytes_in_one_unit(amounts: Iterable[int]) -> tuple[str, ...]:
    """Return bytes exactly in the largest binary unit of which all are whole multiples."""
    listed = tuple(amounts)
    for suffix, shift in _UNITS:
        if all(amount % (1 << shift) == 0 for amount in listed):
            return tuple(f"{amount >> shift}{suffix}" if amount else "0" for amount in listed)
    return tuple(str(Quantity.of(amount, BINARY_SI)) for amount in listed)


def series(names: Sequence[str]) -> str:
    """Return names as one text: `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _capital(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"
