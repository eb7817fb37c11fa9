"""`podslice whatif --restart` and `--reboot`: what becomes of the pods that run."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from podslice.advise.whatif.compare import Scenario
from podslice.advise.whatif.restart.documents import RestartReport
from podslice.advise.whatif.restart.restart import How, RestartResult, look_before, restart
from podslice.cli.output import emit, prose_width
from podslice.cli.provenance import print_provenance
from podslice.evidence.provenance import Provenance
from podslice.render.ansi import echo
from podslice.render.prose import wrap_lines
from podslice.values.errors import InputError, StartError


def print_restarts(
    scenarios: Sequence[Scenario],
    provenance: tuple[Provenance, ...],
    output: str,
    *,
    how: How,
    profiles: tuple[str, str],
) -> None:
    """Print the result for each scenario, and end with 1 where a start changes anything. The first scenario is what
    runs now. `profiles`: of the kubelet that runs and of the one that starts. Raises `InputError`."""
    results = restarts(scenarios, how=how, profiles=profiles)
    changes = any(result.changes for result in results)
    for one in provenance:
        print_provenance(one, output)
    if output in ("table", "wide"):
        print_results(results, wide=output == "wide")
    else:
        emit(RestartReport(changes, results, provenance), output)
    if changes:
        sys.exit(1)


def restarts(scenarios: Sequence[Scenario], *, how: How, profiles: tuple[str, str]) -> tuple[RestartResult, ...]:
    """Return the results of all scenarios. Raises `InputError` where nothing is known to run."""
    now, then = profiles
    first = scenarios[0]
    if not (first.running or first.files):
        raise InputError(
            "no pod runs on the node", path="--pods", remedy="--pods running.yaml, with --state DIR, or --node BUNDLE"
        )
    try:
        before = look_before(first, profile=now)
    except StartError as error:
        raise InputError(
            f"the kubelet that runs now would not start: {error.message}", path="--config", remedy=error.remedy
        ) from None
    return tuple(result for scenario in scenarios for result in restart(scenario, before, how=how, profile=then))


def print_results(results: Sequence[RestartResult], *, wide: bool) -> None:
    """Print the results one below the other."""
    from podslice.advise.whatif.restart.table import restart_text

    named = len({result.scenario for result in results}) > 1
    for place, result in enumerate(results):
        echo(("\n" if place else "") + wrap_lines(restart_text(result, wide=wide, named=named), prose_width()))
