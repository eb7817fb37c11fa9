"""`podslice explain`: why a pod lands where it does, or why not, and the smallest changes that help."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from podslice.cli.node_option import node_options, running_options, start_node
from podslice.cli.output import (
    OUTPUT,
    emit,
    only_refused_option,
    page_name,
    print_warnings,
    prose_width,
    quiet_option,
    write_text,
)
from podslice.cli.pods_option import read_pods
from podslice.render.ansi import echo

if TYPE_CHECKING:
    from podslice.advise.explain.explain import Explained, Explanation


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@node_options
@running_options
@click.option("--fixes/--no-fixes", default=True, help="Search for changes that would admit a refused pod.")
@click.option(
    "--out", metavar="FILE.html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page as well."
)
@only_refused_option
@quiet_option
@OUTPUT("table", "wide")
def explain(
    *, files: tuple[str, ...], fixes: bool, out: Path | None, only_refused: bool, output: str, **options: Any
) -> None:
    """Tell the story of every pod of FILE...: what it asks for, which NUMA nodes could give it, what decided, and for
    a refused pod the smallest changes that make it fit. Every change was tried on a copy of the node.

    Admitted pods stay on the node for the pods after them. --pods and --state say what runs there before.

    \b
    Examples:
      podslice explain pod.yaml --machine epyc-9654-nps4 --config kubelet.yaml
      podslice explain pod.yaml --machine epyc-9654-nps4 --config kubelet.yaml --out why.html
      podslice explain pod.yaml --state /var/lib/kubelet --config /var/lib/kubelet/config.yaml
      kubectl get pods --field-selector spec.nodeName=n7 -o yaml | podslice explain new.yaml --pods - ...

    Exit codes: 0 all admitted, 1 some refused, 2 bad input.
    """
    from podslice.advise.explain.explain import explain_each
    from podslice.cli.progress import progress
    from podslice.contract.explanation import ExplanationList, explained
    from podslice.render.answers import ShownExplanation, answer_page

    page_name(out)
    node, _, warnings = start_node(**options)
    read = read_pods(files, taken=set(node.pods), **options)
    print_warnings((*warnings, *read.warnings))
    pods = [one.pod for one in read.pods]
    shown: list[Explained] = []
    all_admitted, printer = True, _ExplanationPrinter(output)
    for one in progress(explain_each(node, pods, fixes=fixes), total=len(pods), what="pods explained"):
        admitted = one.explanation.trace.admitted
        all_admitted = all_admitted and admitted
        if not (only_refused and admitted):
            printer.show(one.explanation)
            shown.append(one if out is not None else one._replace(before=node.view, after=node.view))
    if out is not None:
        write_text(out, answer_page([ShownExplanation.of(one) for one in shown]))
    if output not in ("table", "wide"):
        emit(ExplanationList(tuple(explained(one.explanation) for one in shown)), output)
    sys.exit(0 if all_admitted else 1)


class _ExplanationPrinter:
    """Prints one explanation after the other, each at once, with an empty line in between."""

    def __init__(self, output: str) -> None:
        self._output = output
        self._printed = False

    def show(self, explanation: Explanation) -> None:
        """Nothing where programs read: they get one document in the end."""
        from podslice.render.explanation import to_text

        if self._output in ("table", "wide"):
            text = to_text(explanation, wide=self._output == "wide", width=prose_width())
            echo(f"\n{text}" if self._printed else text)
            sys.stdout.flush()
            self._printed = True
