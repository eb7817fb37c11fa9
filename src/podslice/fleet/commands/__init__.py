"""`podslice fleet`: whole clusters. Each command loads when it is called."""

from __future__ import annotations

import click

from podslice.cli.group import LazyCommand, lazy_group

COMMANDS = {
    "init": LazyCommand("podslice.fleet.commands.init", "Write a scenario that runs as it is."),
    "import": LazyCommand("podslice.fleet.commands.import_", "Make a scenario of a live cluster."),
    "run": LazyCommand("podslice.fleet.commands.run", "Simulate the configurations of a scenario."),
    "report": LazyCommand("podslice.fleet.commands.report", "Write a page about a run."),
    "show": LazyCommand("podslice.fleet.commands.show", "Show a node of a run as it was at the end."),
    "compare": LazyCommand("podslice.fleet.commands.compare", "Compare the configurations of runs."),
    "plan": LazyCommand("podslice.fleet.commands.plan", "Find the least number of nodes."),
    "trace": LazyCommand("podslice.fleet.commands.trace", "Look at, convert, cut and check traces of clusters."),
    "validate": LazyCommand("podslice.fleet.commands.validate", "Compare the engine with published results."),
}


@click.group(cls=lazy_group(COMMANDS))
def fleet() -> None:
    """Simulate and compare whole clusters whose nodes refuse pods as a kubelet does.

    \b
    Examples:
      podslice fleet init openb
      podslice fleet run fleet-openb/scenario.yaml
      podslice fleet trace describe pods.csv.gz

    Not simulated: interference at run time, network, storage, image pulls, gang scheduling, the control plane's speed.

    Exit codes: 0 done, 1 the answer is no, 2 bad input.
    """
