"""`podslice explain`: why a pod lands where it does, or why not, and the smallest changes that help."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import click

from podslice.cli.node_option import node_options, print_warnings, running_options, start_node
from podslice.cli.output import OUTPUT, emit, prose_width, write_text
from podslice.cli.pods_option import read_pods
from podslice.render.ansi import echo


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@node_options
@running_options
@click.option("--fixes/--no-fixes", default=True, help="Search for changes that would admit a refused pod.")
@click.option(
    "--out", metavar="FILE.html", type=click.Path(path_type=Path, dir_okay=False), help="Write a page as well."
)
@OUTPUT("table", "wide")
def explain(files: tuple[str, ...], fixes: bool, out: Path | None, output: str, **options: Any) -> None:
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
    from podslice.contract.explanation import ExplanationList, explained
    from podslice.render.explanation import to_text
    from podslice.web.pages import answer_page
    from podslice.web.pages import explained as explain_all

    node, _, warnings = start_node(**options)
    read = read_pods(files, taken=set(node.kubelet.active), **options)
    print_warnings((*warnings, *read.warnings))
    answers = explain_all(node, [one.pod for one in read.pods], fixes=fixes)
    explanations = [explanation for explanation, _ in answers]
    if out is not None:
        write_text(out, answer_page(answers))
    if output in ("table", "wide"):
        width = prose_width()
        texts = [to_text(explanation, wide=output == "wide", width=width) for explanation in explanations]
        echo("\n\n".join(texts))
    else:
        emit(ExplanationList(tuple(map(explained, explanations))), output)
    sys.exit(0 if all(explanation.trace.admitted for explanation in explanations) else 1)
