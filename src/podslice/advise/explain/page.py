"""Explanations as HTML: verdict, story, table, fixes and the picture of each pod, for the local page or as a file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import htpy as h

from podslice.advise.explain.explain import Explained, Explanation
from podslice.advise.explain.fixes.fix import Fix
from podslice.advise.explain.obstacles import with_obstacles
from podslice.advise.explain.resize import ResizeExplanation, ResizeResult
from podslice.advise.explain.story import amount_texts
from podslice.advise.explain.table import NOTHING_HELPS, affected_text, lost_text
from podslice.advise.explain.trace import MergeStep
from podslice.evidence.contradiction import Contradiction
from podslice.evidence.provenance import Provenance, contradiction_line, provenance_lines
from podslice.render.html import basis_lines, page, section
from podslice.render.picture import Picture, picture_of

_MOST_ROWS = 16
ANSWER_STYLE = """
main{display:block}textarea{width:100%;min-height:9rem;box-sizing:border-box;font:13px/1.4 ui-monospace,monospace;
background:var(--paper);color:var(--ink);border:1px solid var(--dim);border-radius:6px;padding:.6rem}
button{font:inherit;padding:.35rem 1rem;border-radius:6px;border:1px solid var(--dim);background:var(--hover);
color:var(--ink);cursor:pointer}button:focus-visible,textarea:focus-visible,a:focus-visible,input:focus-visible{
outline:2px solid var(--link);outline-offset:1px}.row{display:flex;gap:1rem;align-items:center;margin:.5rem 0;
flex-wrap:wrap}.drop textarea{border-style:dashed;border-color:var(--link)}.yes{color:#1a7f37}.no{color:#c1320b}
@media (prefers-color-scheme:dark){.yes{color:#3fb950}.no{color:#ff8f6b}}
#answer:not(:empty){padding:.5rem 1rem;border-radius:6px}#answer:focus{outline:1px solid var(--line)}
.skip{position:absolute;left:-99rem}.skip:focus{position:static}kbd{border:1px solid var(--line);border-radius:3px;
padding:0 .3em;font-size:12px}article+article{border-top:1px solid var(--line);margin-top:1rem}
"""


class ShownExplanation(NamedTuple):
    """An explanation, the picture of the node with the pod or with what is in its way, and how the explanation
    contradicts the pod's status."""

    explanation: Explanation
    picture: Picture
    contradiction: Contradiction | None = None

    @classmethod
    def of(cls, one: Explained, contradiction: Contradiction | None = None) -> ShownExplanation:
        """Return the explanation with a picture of the node: with the pod, or with what is in its way."""
        explanation, before = one.explanation, picture_of(one.before)
        if explanation.trace.admitted:
            return cls(explanation, picture_of(one.after, before=before), contradiction)
        return cls(explanation, with_obstacles(before, one.before, [explanation]), contradiction)


def answer_fragment(answers: Sequence[ShownExplanation], warnings: Sequence[str], provenance: Provenance) -> str:
    """Return verdict, story, table and fixes of each pod, and the picture with it, under what they rest on."""
    notes = (h.p(".problem", role="alert")[f"warning: {warning}"] for warning in warnings)
    articles = (_answer(answer, prefix=f"a{i}-") for i, answer in enumerate(answers))
    return str(h.div[basis_lines(provenance_lines(provenance)), notes, articles])


class ShownResize(NamedTuple):
    """An explanation of a resize, and where it was granted the picture of the node with it."""

    explanation: ResizeExplanation
    picture: Picture | None

    @classmethod
    def of(cls, one: ResizeResult) -> ShownResize:
        """Return the explanation, with a picture of the node where the resize was granted."""
        granted = one.explanation.granted
        return cls(one.explanation, picture_of(one.after, before=picture_of(one.before)) if granted else None)


def answer_page(answers: Sequence[ShownExplanation], resizes: Sequence[ShownResize], provenance: Provenance) -> str:
    """Return the answers as a page of its own, for a file; those about resizes after those about pods, under what
    they rest on."""
    names = [answer.explanation.trace.name for answer in answers]
    names += [f"{explanation.name} resized" for explanation, _ in resizes]
    articles = [_answer(answer, prefix=f"a{i}-") for i, answer in enumerate(answers)]
    articles += [_resize(*resize, prefix=f"r{i}-") for i, resize in enumerate(resizes)]
    title = f"Explained: {', '.join(names)}"
    heading = h.h1["What this node does with each pod"]
    return page(title, [heading, basis_lines(provenance_lines(provenance)), articles], style=ANSWER_STYLE)


def _resize(explanation: ResizeExplanation, picture: Picture | None, *, prefix: str) -> h.Element:
    granted = explanation.granted
    verdict = "would be resized" if granted else f"resize {explanation.outcome.lower()}: {explanation.message}"
    return h.article[
        h.h2[f"{explanation.namespace}/{explanation.name} ", h.span(".yes" if granted else ".no")[verdict]],
        h.details(open=not granted)[h.summary["The story"], h.ul[(h.li[one] for one in explanation.story[1:])]],
        None
        if granted
        else _fix_list(explanation.fixes, explanation.unsearched, "What lets it in, best first (each was tried)"),
        section("After the resize (changed CPUs are framed)", picture._replace(distances=()), prefix)
        if picture is not None
        else None,
    ]


def _answer(answer: ShownExplanation, *, prefix: str) -> h.Element:
    explanation, picture, contradiction = answer
    drawing = section(
        "With this pod (changed CPUs are framed)" if explanation.trace.admitted else "What is in its way",
        # The reason stands above already.
        picture._replace(distances=(), refusals=()),
        prefix,
    )
    problem = h.p(".problem")[contradiction_line(contradiction)] if contradiction is not None else None
    return explanation_article(explanation, problem=problem, drawing=drawing)


def explanation_article(
    explanation: Explanation, *, problem: h.Element | None = None, drawing: h.Element | None = None
) -> h.Element:
    """Return verdict, reasons, fixes, story and table of one pod, with what contradicts them and a drawing."""
    trace, said = explanation.trace, explanation.said
    first, *story = explanation.story
    # Of a refused pod the last sentence is the reason: it stands at the top, the way there below the fixes.
    ending = [] if trace.admitted else [story.pop() if story else first]
    verdict = "would be admitted" if trace.admitted else f"would be refused: {trace.reason}"
    return h.article[
        h.h2[f"{trace.namespace}/{trace.name} ", h.span(".yes" if trace.admitted else ".no")[verdict]],
        problem,
        (h.p[sentence] for sentence in (*explanation.why, *ending)),
        h.p[f"The kubelet said (status in the file): {said}"] if said is not None else None,
        _fixes(explanation),
        drawing,
        h.details[h.summary["The story"], h.ul[(h.li[sentence.strip()] for sentence in story)]],
        _table(trace.steps[-1]),
    ]


def _fixes(explanation: Explanation) -> h.Element | None:
    if explanation.trace.admitted:
        return None
    title = "What makes it fit, best first (each was tried)"
    return _fix_list(explanation.fixes, explanation.unsearched, title)


def _fix_list(fixes: Sequence[Fix], unsearched: str, title: str) -> h.Element:
    if not fixes:
        return h.p[unsearched or NOTHING_HELPS]
    free, dear = [fix for fix in fixes if not fix.losses], [fix for fix in fixes if fix.losses]
    parts: list[h.Element] = []
    if free:
        parts += [h.h3[title], h.ol[(_fix(fix) for fix in free)]]
    if dear:
        parts.append(h.h3["At the price of a guarantee" if free else f"{title}, at the price of a guarantee"])
        parts.append(h.ol(start=len(free) + 1)[(_fix(fix) for fix in dear)])
    return h.div[parts, h.p[unsearched] if unsearched else None]


def _fix(fix: Fix) -> h.Element:
    details = [f"{e.path}: {e.before} → {e.after or '–'}" for e in fix.edits]
    return h.li[
        f"{fix.text}{f': {fix.because}' if fix.because else ''}. {affected_text(fix)}",
        h.span(".no")[f" {lost_text(fix)}"] if fix.losses else None,
        h.ul[(h.li[h.code[text]] for text in (*details, *fix.commands))] if details or fix.commands else None,
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
    return " / ".join(amount_texts(resource, need, free))
