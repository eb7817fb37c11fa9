"""Changes that rest on evidence which other evidence contradicts: they are not proposed."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from podslice.advise.explain.explain import Explanation
from podslice.advise.explain.fixes.fix import Fix
from podslice.evidence.contradiction import Contradiction, doubt_node
from podslice.values import reasons

_MEMORY = ("memory", "hugepages-")
_TOO_LITTLE = ("small", "short")


def without_doubtful_fixes(explanation: Explanation, found: Sequence[Contradiction]) -> Explanation:
    """Return the explanation without the changes that rest on what is in doubt: none at all where that is the machine
    or the configuration, or the memory that decided; none that changes amounts of memory where the memory is; none that
    concerns a pod that is."""
    if explanation.trace.admitted:
        return explanation
    memory = next((one for one in found if one.about == "memory"), None)
    doubt = doubt_node(found) or (memory if _is_short_of_memory(explanation) else None)
    if doubt is not None:
        text = f"No change is proposed: it would rest on the {doubt.about}, which is in doubt (see above)."
        return msgspec.structs.replace(explanation, fixes=(), unsearched=text)
    kept = tuple(fix for fix in explanation.fixes if memory is None or not _changes_memory(fix))
    doubtful = {uid for one in found for uid in one.pods}
    kept = tuple(fix for fix in kept if not doubtful & set(getattr(fix.change, "uids", ())))
    if len(kept) == len(explanation.fixes):
        return explanation
    text = "Changes that concern pods or memory whose evidence is contradicted are left out (see above)."
    return msgspec.structs.replace(explanation, fixes=kept, unsearched=text)


def _is_short_of_memory(explanation: Explanation) -> bool:
    """Whether the amount of memory of some NUMA node speaks against the pod."""
    trace = explanation.trace
    if trace.reason.startswith(tuple(reasons.out_of(name) for name in _MEMORY)):
        return True
    cells = (cell for step in trace.steps[-1:] for row in step.candidates for cell in row.cells)
    return any(cell.resource.startswith(_MEMORY) and cell.verdict in _TOO_LITTLE for cell in cells)


def _changes_memory(fix: Fix) -> bool:
    return any(name in edit.path for edit in fix.edits for name in _MEMORY)
