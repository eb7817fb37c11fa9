"""`podslice explain`: why a pod lands where it does, or why not, and the smallest changes that help."""

from __future__ import annotations

import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec

from podslice.api.pod.spec import Pod
from podslice.cli.options.node import node_options, resize_option, start_node
from podslice.cli.options.pods import read_pods, unknown_devices
from podslice.cli.options.resize import RequestedResize, read_resizes
from podslice.cli.options.running import running_options
from podslice.cli.output import (
    OUTPUT,
    StreamedItems,
    check_page_name,
    emit,
    only_refused_option,
    print_warnings,
    prose_width,
    quiet_option,
    write_shown,
)
from podslice.cli.provenance import print_provenance
from podslice.dra.commands.options import ClaimAnswers, allocate_claims, claim_options
from podslice.evidence.contradiction import Contradiction, doubt_node
from podslice.evidence.kubelet_differs import kubelet_differs
from podslice.evidence.said import check_status
from podslice.node.node import Node
from podslice.render.ansi import echo
from podslice.values.errors import InputError, UpstreamDefectError

if TYPE_CHECKING:
    from podslice.admit.documents import ClaimAnswer
    from podslice.advise.explain.explain import Explained, Explanation
    from podslice.advise.explain.resize import ResizeExplanation, ResizeResult


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE...]")
@node_options
@running_options
@resize_option
@claim_options
@click.option(
    "--fixes/--no-fixes", default=True, help="Search for changes that would admit a refused pod or grant a resize."
)
@click.option(
    "--out", metavar="FILE.html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page as well."
)
@only_refused_option
@quiet_option
@OUTPUT("table", "wide")
def explain(
    *,
    files: tuple[str, ...],
    resize_paths: tuple[str, ...],
    claim_paths: tuple[str, ...],
    slice_paths: tuple[str, ...],
    fixes: bool,
    out: Path | None,
    only_refused: bool,
    output: str,
    **options: Any,
) -> None:
    """Explain the admission of every pod of FILE...: what it asks for, which NUMA nodes could provide it, what decided,
    and for a refused pod the smallest changes that make it fit. Every change was tried on a copy of the node.

    Admitted pods stay on the node for the pods after them. --pods and --state name the pods that run there before. Then
    the pods of --resize are resized, one after the other: why each is granted, put off or refused, and the smallest
    changes that let it in. With --claims and --slices the claims of the pods are allocated first, as kube-scheduler
    does it; for a claim that cannot be allocated, the output names for each request what rules out which device.

    \b
    Examples:
      podslice explain pod.yaml --machine epyc-9654-nps4 --config kubelet.yaml
      podslice explain pod.yaml --machine epyc-9654-nps4 --config kubelet.yaml --out why.html
      podslice explain pod.yaml --state /var/lib/kubelet --config /var/lib/kubelet/config.yaml
      podslice explain pods.yaml --claims claims.yaml --slices slices.yaml   # Dynamic Resource Allocation
      podslice explain db.yaml --resize db-8.yaml --policy policy.yaml --machine epyc-9654-nps4 --config kubelet.yaml
      kubectl get pods --field-selector spec.nodeName=n7 -o yaml | podslice explain new.yaml --pods - ...

    Exit codes: 0 all admitted and resized, 1 some not, 2 bad input.
    """
    from podslice.advise.explain.documents import ExplanationList, pod_document, resize_document
    from podslice.advise.explain.explain import explain_each
    from podslice.advise.explain.fixes.doubt import without_doubtful_fixes
    from podslice.advise.explain.page import ShownExplanation, ShownResize, answer_page
    from podslice.cli.progress import progress
    from podslice.render.prose import wrap_lines

    claims = ClaimAnswers(claim_paths, slice_paths) if claim_paths or slice_paths else None
    if not files and not resize_paths and claims is None:
        raise InputError("names no pod", path="FILE", remedy="podslice explain pod.yaml")
    check_page_name(out)
    asked = read_pods(files, **options)
    node, _, warnings, provenance, *_ = start_node(asked=asked.pods, **options)
    read = asked.beside(set(node.pods))
    print_warnings((*warnings, *read.warnings, *unknown_devices(read.pods, node.view.devices)))
    answers: list[ClaimAnswer] = []
    pods = list(allocate_claims(claims, read.pods, answers, node.rules.gates))
    resizes = read_resizes(resize_paths, **options)
    shown: list[tuple[Explained, Contradiction | None]] = []
    streamed = click.get_current_context().with_resource(StreamedItems())
    all_granted, printer = all(answer.allocated for answer in answers), _Printer(output)
    provenance = asked.tell(provenance)
    print_provenance(provenance, output)
    if claims is not None and output in ("table", "wide"):
        from podslice.dra.commands.table import print_answers

        print_answers([answer for answer in answers if not (only_refused and answer.allocated)])
        echo("")
    doubt = doubt_node(provenance.contradictions)
    searched = fixes and doubt is None
    running = set(node.pods)
    for one, written in zip(
        progress(explain_each(node, pods, fixes=searched), total=len(pods), what="pods explained"), pods, strict=True
    ):
        if fixes:
            one = one._replace(explanation=without_doubtful_fixes(one.explanation, provenance.contradictions))
        admitted = one.explanation.trace.admitted
        all_granted = all_granted and admitted
        if not (only_refused and admitted):
            # A pod that runs there already is asked about as one more such pod, which has no status.
            refusal = None if admitted else one.explanation.trace.reason
            contradiction = None if written.metadata.uid in running else check_status(written, refusal)
            printer.show(one.explanation, contradiction)
            # Only a page draws the views; without one they would keep every node of the run alive.
            kept = one if out is not None else one._replace(before=node.view, after=node.view)
            if output == "json":
                streamed.add(pod_document(one.explanation, contradiction))
            if out is not None or output == "yaml":
                shown.append((kept, contradiction))
    if output in ("table", "wide") and (differs := kubelet_differs(node, pods)):
        echo(f"\n{wrap_lines(differs, prose_width())}")
    results = _explain_resizes(node, pods, resizes, fixes=searched)
    all_granted = all_granted and all(one.explanation.granted for one in results)
    results = [one for one in results if not (only_refused and one.explanation.granted)]
    resized = [one.explanation for one in results]
    for resize in resized:
        printer.show(resize)
    if out is not None:
        explained, changed = [ShownExplanation.of(*one) for one in shown], [ShownResize.of(one) for one in results]
        write_shown(out, answer_page(explained, changed, provenance))
    shown_claims = tuple(answer for answer in answers if not (only_refused and answer.allocated))
    document = ExplanationList((), tuple(map(resize_document, resized)), shown_claims, provenance)
    if output == "json":
        streamed.emit(document)
    elif output == "yaml":
        items = tuple(pod_document(one.explanation, contradiction) for one, contradiction in shown)
        emit(msgspec.structs.replace(document, items=items), output)
    sys.exit(0 if all_granted else 1)


def _explain_resizes(node: Node, pods: list[Pod], resizes: list[RequestedResize], *, fixes: bool) -> list[ResizeResult]:
    """Explain the resizes, on the node after the pods that it admits."""
    from podslice.advise.defrag.plan import moves_for_resize
    from podslice.advise.explain.resize import explain_resizes

    if not resizes:
        return []
    copy = node.copy()
    for pod in pods:
        with suppress(UpstreamDefectError):
            copy.admit(pod)
    results: list[ResizeResult] = []
    there = copy.view.pods
    try:
        for one in explain_resizes(
            copy, [one.find_among(there) for one in resizes], fixes=fixes, moves=moves_for_resize
        ):
            results.append(one)
    except InputError as error:
        raise resizes[len(results)].at(error) from None
    return results


class _Printer:
    """Prints one explanation after the other, each at once, with an empty line in between."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._printed = False

    def show(self, explanation: Explanation | ResizeExplanation, contradiction: Contradiction | None = None) -> None:
        """Print an explanation; nothing for `-o json` and `-o yaml`, which print one document in the end."""
        from podslice.advise.explain.resize import ResizeExplanation
        from podslice.advise.explain.table import resize_text, to_text

        if self._output in ("table", "wide"):
            wide, width = self._output == "wide", prose_width()
            if isinstance(explanation, ResizeExplanation):
                text = resize_text(explanation, wide=wide, width=width)
            else:
                text = to_text(explanation, wide=wide, width=width, contradiction=contradiction)
            echo(f"\n{text}" if self._printed else text)
            sys.stdout.flush()
            self._printed = True
