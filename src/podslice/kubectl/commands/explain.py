"""`kubectl podslice explain`: try a pod on a node of the cluster, as the node is now."""

from __future__ import annotations

import sys
from typing import Any

import click

from podslice.cli.options.pods import pod_options, read_pods
from podslice.cli.options.release import AUTO, check_version
from podslice.cli.output import OUTPUT, emit, only_refused_option, print_warnings, prose_width, quiet_option
from podslice.cli.provenance import agent_provenance, print_provenance
from podslice.kubectl.commands.options import agents_of, cluster_options, complete_node
from podslice.render.ansi import echo
from podslice.values.errors import InputError


@click.command()
@click.option(
    "-f", "--filename", "files", multiple=True, required=True, metavar="FILE", help="Pods, or workloads; - is stdin."
)
@click.option(
    "--node", "name", required=True, metavar="NAME", shell_complete=complete_node, help="The node to try them on."
)
@cluster_options
@pod_options
@click.option(
    "--kubernetes",
    metavar="VERSION",
    default="",
    help="As a kubelet of this release, such as 1.37; auto: the one on the node (default: as its agent decides).",
)
@click.option("--fixes/--no-fixes", default=True, help="Search for changes that would admit a refused pod.")
@only_refused_option
@quiet_option
@OUTPUT("table", "wide")
def explain(
    *, files: tuple[str, ...], name: str, fixes: bool, kubernetes: str, only_refused: bool, output: str, **options: Any
) -> None:
    """Show what the node NAME would do with every pod of FILE as it is now, why, and for a refused pod the smallest
    changes that make it fit. Nothing is created; every change was tried on a copy of the node.

    Admitted pods stay on the copy for the pods after them. The amounts that the scheduler counts are not looked at.

    \b
    Examples:
      kubectl podslice explain -f pod.yaml --node n7
      kubectl podslice explain -f pod.yaml --node n7 -o json
      kubectl podslice explain -f pod.yaml --node n7 --kubernetes 1.37

    Exit codes: 0 all admitted, 1 some refused, 2 bad input, or no answer.
    """
    from podslice.advise.explain.documents import ExplanationList, pod_document
    from podslice.advise.explain.explain import explain_each
    from podslice.advise.explain.table import to_text
    from podslice.kubectl.live import kubelet_version, remote_node

    how = {key: options.pop(key) for key in ("replicas", "strict", "validate")}
    check_version(kubernetes)
    agents = agents_of(options)
    document = agents.ask(agents.on(name), "/node")
    if kubernetes == AUTO:
        kubernetes = kubelet_version(document)
        if not kubernetes:
            remedy = "name the release: --kubernetes 1.34"
            raise InputError(
                f"the agent of {name} does not know its kubelet's version", path="--kubernetes", remedy=remedy
            )
    remote = remote_node(document, name, kubernetes)
    if remote.node is None:
        raise InputError(f"nothing can be decided there: {remote.problem}", source=name, remedy="see podslice status")
    read = read_pods(files, **how).beside(set(remote.node.pods))
    print_warnings(read.warnings)
    found = [one.explanation for one in explain_each(remote.node, [one.pod for one in read.pods], fixes=fixes)]
    shown = [one for one in found if not (only_refused and one.trace.admitted)]
    node = remote.node
    provenance = agent_provenance(node, f"the agent of {name}")
    print_provenance(provenance, output)
    if output in ("table", "wide"):
        echo("\n\n".join(to_text(one, wide=output == "wide", width=prose_width()) for one in shown))
    else:
        emit(ExplanationList(tuple(map(pod_document, shown)), provenance=provenance), output)
    sys.exit(0 if all(one.trace.admitted for one in found) else 1)
