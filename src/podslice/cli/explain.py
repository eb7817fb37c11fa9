"""`podslice explain`: why a pod lands where it does, or why not, and the smallest changes that help."""

from __future__ import annotations

import sys
from typing import Any

import click

from podslice.cli.node_option import node_options, print_warnings, running_options, start_node
from podslice.cli.output import OUTPUT, emit


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@node_options
@running_options
@click.option("--fixes/--no-fixes", default=True, help="Search for changes that would admit a refused pod.")
@OUTPUT("table", "wide")
def explain(files: tuple[str, ...], fixes: bool, output: str, **options: Any) -> None:
    """Tell the story of every pod of FILE...: what it asks for, which NUMA nodes could give it, what decided, and for
    a refused pod the smallest changes that make it fit. Every change was tried on a copy of the node.

    Admitted pods stay on the node for the pods after them. --pods and --state say what runs there before.

    \b
    Examples:
      podslice explain pod.yaml --machine epyc-9654-nps4 --config kubelet.yaml
      podslice explain pod.yaml --state /var/lib/kubelet --config /var/lib/kubelet/config.yaml
      kubectl get pods --field-selector spec.nodeName=n7 -o yaml | podslice explain new.yaml --pods - ...

    Exit codes: 0 all admitted, 1 some refused, 2 bad input.
    """
    from podslice.core.explain.explain import explain as explain_pod
    from podslice.core.node import Node
    from podslice.k8s.manifest import load_pods, unique
    from podslice.render.explanation import to_data, to_text

    started = start_node(**options)
    print_warnings(started.warnings)
    node: Node = started.node
    shown, refused = [], False
    for loaded in unique([loaded for file in files for loaded in load_pods(file)], taken=set(node.kubelet.active)):
        explanation = explain_pod(node.kubelet, loaded.pod, fixes=fixes)
        shown.append(explanation)
        refused = refused or not explanation.trace.admitted
        if explanation.trace.admitted:
            node.admit(loaded.pod)
    if output in ("table", "wide"):
        click.echo("\n\n".join(to_text(explanation, wide=output == "wide") for explanation in shown))
    else:
        emit([to_data(explanation) for explanation in shown], output)
    sys.exit(1 if refused else 0)
