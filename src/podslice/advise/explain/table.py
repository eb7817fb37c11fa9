"""An explanation for the terminal: the story, the table of candidates, the fixes."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.explain.candidates import Candidate
from podslice.advise.explain.codes import CANDIDATES
from podslice.advise.explain.columns import MOST_CANDIDATES, Cell
from podslice.advise.explain.explain import Explanation
from podslice.advise.explain.fixes.fix import Fix
from podslice.advise.explain.fixes.losses import LOSSES
from podslice.advise.explain.resize import ResizeExplanation
from podslice.advise.explain.story import amount_texts
from podslice.advise.explain.trace import MergeStep
from podslice.config.policy_options import SINGLE_NUMA_NODE
from podslice.evidence.contradiction import Contradiction
from podslice.evidence.provenance import contradiction_line
from podslice.node.topology.scored import MILLION
from podslice.render.ansi import style
from podslice.render.prose import wrap_lines
from podslice.render.table import format_table
from podslice.values.quantity import plural

_MOST_ROWS = 16
NOTHING_HELPS = "No change was found that makes it fit; docs/explain.md lists what was tried."
_FITS = "What makes it fit, best first (each one was tried):"
_LETS_IN = "What lets it in, best first (each one was tried):"


def to_text(
    explanation: Explanation,
    *,
    wide: bool = False,
    width: int | None = None,
    contradiction: Contradiction | None = None,
) -> str:
    """Return the whole explanation of one pod: how it contradicts the pod's status comes first, then of a refused one
    the reason and the fixes. `wide` shows every
    candidate and the edits of every fix. Sentences are broken at `width` columns, if given."""
    refused = not explanation.trace.admitted
    story = list(_story(explanation))
    said = [] if explanation.said is None else [f"The kubelet said (status in the file): {explanation.said}"]
    head = [story[0], *explanation.why, *([story.pop()] if refused else ()), *said]
    head += () if refused else story[1:]
    parts = [wrap_lines("\n".join(head), width)]
    if contradiction is not None:
        parts.insert(0, style(wrap_lines(contradiction_line(contradiction), width), fg="yellow"))
    if refused:
        parts.append(wrap_lines(fixes_text(explanation.fixes, explanation.unsearched, wide=wide), width))
        parts.append(wrap_lines("\n".join(story[1:]), width))
    last = explanation.trace.steps[-1]
    if last.candidates and last.candidates[0].cells and (wide or refused or last.answers):
        parts.append(_candidates(last, wide=wide, failed=bool(explanation.trace.failed)))
    parts += [_scores(step) for step in explanation.trace.steps if step.scores]
    if wide and not refused:
        rows = [(w.where, w.owner, w.value) for w in explanation.trace.writes]
        parts.append(format_table(("WRITTEN TO", "FOR", "VALUE"), rows, bold=True))
    return "\n\n".join(parts)


def resize_text(explanation: ResizeExplanation, *, wide: bool = False, width: int | None = None) -> str:
    """Return the explanation of one resize: its story, and the changes that would let it in."""
    first, *rest = explanation.story
    colour = "green" if explanation.granted else "red"
    parts = [wrap_lines("\n".join([style(first, fg=colour, bold=True), *rest]), width)]
    if not explanation.granted:
        text = fixes_text(explanation.fixes, explanation.unsearched, wide=wide, title=_LETS_IN)
        parts.append(wrap_lines(text, width))
    return "\n\n".join(parts)


def _story(explanation: Explanation) -> Iterator[str]:
    for place, sentence in enumerate(explanation.story):
        colour = "green" if explanation.trace.admitted else "red"
        yield style(sentence, fg=colour, bold=True) if place == 0 else sentence


def _candidates(step: MergeStep, *, wide: bool, failed: bool) -> str:
    # A machine with 8 NUMA nodes has 255 sets.
    rows = list(step.candidates) if wide else _interesting(step)
    resources = [cell.resource for cell in rows[0].cells]
    headings = ["NUMA", *(name.upper() for name in resources), "VERDICT"]
    table = [[str(row.nodes), *(_cell(cell) for cell in row.cells), _verdict(row, step, failed=failed)] for row in rows]
    who = f"container {step.container}" if step.container else "the pod"
    title = style(f"Candidates for {who} (needed/free)", bold=True)
    text = format_table(headings, table, right=tuple(range(1, len(resources) + 1)), bold=True)
    hidden = len(step.candidates) - len(rows)
    notes = [f"… {plural(hidden, 'more set')} (-o wide shows them)"] if hidden else []
    if 2 ** sum(len(row.nodes) == 1 for row in step.candidates) - 1 > MOST_CANDIDATES:
        notes.append(f"Of all sets of this machine's NUMA nodes the smallest {MOST_CANDIDATES} were looked at.")
    return "\n".join([title, text, *notes])


def _scores(step: MergeStep) -> str:
    """Return the table of what each set of NUMA nodes is worth, by resource."""
    resources = [part.resource for part in step.scores[0].parts]
    headings = ["NUMA", *(name.upper() for name in resources), "SCORE", ""]
    table = []
    for row in step.scores:
        chosen = f"chosen for {', '.join(row.taken_for)}" if row.taken_for else "chosen"
        note = style(chosen, fg="green") if row.taken_for or row.nodes == step.nodes else ""
        note = ", ".join(filter(None, (note, "upstream's choice" if row.upstream else "")))
        shares = [f"{part.weight} × {part.millionths / MILLION:.2f}" for part in row.parts]
        table.append([str(row.nodes), *shares, f"{row.score / MILLION:.2f}", note])
    who = f"container {step.container}" if step.container else "the pod"
    title = style(f"Scores for {who} (weight × share of the need × smallest/nodes)", bold=True)
    return "\n".join([title, format_table(headings, table, right=tuple(range(1, len(resources) + 2)), bold=True)])


def _interesting(step: MergeStep) -> list[Candidate]:
    """Return single nodes, the chosen set, and as many further sets as fit, those that nearly fit first."""
    singles = [row for row in step.candidates if len(row.nodes) == 1][:_MOST_ROWS]
    chosen = [row for row in step.candidates if row.nodes == step.nodes and row not in singles]
    wider = [row for row in step.candidates if len(row.nodes) > 1 and row not in chosen]
    if step.policy == SINGLE_NUMA_NODE:
        wider = []
    wider.sort(key=lambda row: (row.verdict != "fits", len(row.killers), len(row.nodes)))
    shown = {row.nodes for row in (*singles, *chosen, *wider[: max(0, _MOST_ROWS - len(singles) - len(chosen))])}
    return [row for row in step.candidates if row.nodes in shown]


def _cell(cell: Cell) -> str:
    text = "/".join(amount_texts(cell.resource, cell.need, cell.free))
    return text if cell.verdict == "fits" else style(text, fg="red" if cell.verdict != "wide" else "yellow")


def _verdict(row: Candidate, step: MergeStep, *, failed: bool) -> str:
    if step.policy == "none":
        return "-"
    worst = [cell.resource for cell in row.cells if cell.verdict == row.verdict]
    text = CANDIDATES[row.verdict]
    against = text if row.verdict == "fits" or not worst else f"{', '.join(worst)}: {text}"
    if row.nodes == step.nodes and step.admitted:
        short = [cell.resource for cell in row.cells if cell.need > cell.free]
        if failed:
            lack = f", but too little {', '.join(short)} is free" if short else ""
            return style(f"chosen{lack}", fg="red" if short else "green")
        # What speaks against the chosen set has the same words as where it speaks against another.
        return style("chosen" if row.verdict in ("fits", "wide-single") else f"chosen, though {against}", fg="green")
    return f"equal, {against}" if row.nodes in step.tied else against


def losses_text(fix: Fix) -> str:
    """Describe what a fix gives up."""
    return "; ".join(LOSSES[name] for name in fix.losses)


def fixes_text(fixes: tuple[Fix, ...], unsearched: str = "", *, wide: bool, title: str = _FITS) -> str:
    """Return the fixes as a numbered list, those that give up a guarantee last; `unsearched` is the reason why there
    are none, or not all."""
    if not fixes:
        return unsearched or NOTHING_HELPS
    free, dear = [fix for fix in fixes if not fix.losses], [fix for fix in fixes if fix.losses]
    lines = [style(title if free else f"{title.removesuffix(':')}, at the price of a guarantee:", bold=True)]
    for place, fix in enumerate((*free, *dear), 1):
        if free and dear and fix is dear[0]:
            lines.append(style("At the price of a guarantee:", bold=True))
        lines.append(f"{place:>3}. {fix_text(fix)}")
        # Where other pods are concerned the order of the steps matters; the rest is as plain as its commands.
        if wide or fix.affected:
            lines += [f"       {line}" for line in fix.commands]
        if wide:
            lines += [f"       {e.path}: {e.before or '(nothing)'} → {e.after or '(nothing)'}" for e in fix.edits]
    if unsearched:
        lines.append(unsearched)
    return "\n".join(lines)


def fix_text(fix: Fix) -> str:
    """Describe a fix in sentences: what to do, why it helps, whom it affects, what is lost."""
    because = f": {fix.because}" if fix.because else ""
    return " ".join(part for part in (f"{fix.text}{because}.", affected_text(fix), lost_text(fix)) if part)


def lost_text(fix: Fix) -> str:
    """Describe what a fix gives up, empty for nothing."""
    return f"Lost: {losses_text(fix)}." if fix.losses else ""


def affected_text(fix: Fix) -> str:
    """Describe how many pods a fix restarts, empty where its own text names them or there are none."""
    if not getattr(fix.change, "drained", False) or not fix.affected:
        return ""
    owners = sum(pod.exclusive_cpus > 0 for pod in fix.affected)
    if len(fix.affected) == 1:
        return f"It restarts 1 pod{', which owns CPUs' if owners else ''}."
    return f"It restarts {len(fix.affected)} pods; {owners or 'none'} of them own{'s' * (owners == 1)} CPUs."
