"""Loads on a hollow cluster (`hollow_cluster`), or a campaign of them with faults (`hollow_campaign`).

python -m e2e.hollow --nodes 100                      # every load, with the service and with the scheduler alone
python -m e2e.hollow --nodes 5000 --load equal --pods 5000 --with service
python -m e2e.hollow --nodes 1000 --load equal --pods 600 --silent --with all --runs 3  # in turn
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any

from e2e.hollow_campaign import campaign, summary
from e2e.hollow_cluster import ALONE, BACKLOG_HOLD, HEADER, SCHEDULER, HollowResult, Load, Progress, hollow, loads
from e2e.hollow_nodes import Fault
from e2e.packages import FetchError
from podslice.cluster.running import tune_interpreter
from podslice.cluster.service import NOMINATING_NODES

_WAYS: dict[str, dict[str, Any]] = {
    "podslice": {"service": True},
    "alone": {"service": False},
    "alone, every node": {"service": False, "every_node": True},
}
"""Who schedules. Alone the scheduler looks at a tenth of 5 000 nodes, or at every node, as it does with the service."""
_CHOICES = {"service": ["podslice"], "alone": ["alone"], "both": ["podslice", "alone"], "all": list(_WAYS)}


async def one_run(
    nodes: int, load: Load, *, service: bool, fault: Fault | None = None, backlog: bool = False, **settings: Any
) -> HollowResult:
    """Run one load on a cluster of its own."""
    if backlog:
        settings |= {"ahead": len(load.cpus), "hold": BACKLOG_HOLD}
    names = [f"n{number:05d}" for number in range(nodes)]
    with tempfile.TemporaryDirectory(prefix="podslice-hollow-") as folder:
        async with hollow(Path(folder), names, service=service, waits=backlog, **settings) as cluster:
            cluster.journals.fault = fault or Fault()
            return await Progress(cluster, load, SCHEDULER if service else ALONE, backlog=backlog).run()


def main() -> int:
    """Exit 1 for a broken promise, 2 where nothing can run."""
    parser = argparse.ArgumentParser(prog="python -m e2e.hollow", description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=0, help="pods of the load; default: four or five for each node")
    parser.add_argument("--load", choices=["equal", "mixed", "churn"], action="append")
    parser.add_argument("--with", dest="who", choices=list(_CHOICES), default="both")
    parser.add_argument("--runs", type=int, default=1, help="runs of each, one after the other")
    parser.add_argument(
        "--nominating-nodes", type=int, default=NOMINATING_NODES, help="nodes from which on new pods are nominated"
    )
    parser.add_argument("--no-nomination", action="store_true", help="filter alone, nothing is nominated ahead")
    parser.add_argument("--ahead", type=int, default=512, help="pods that are nominated and not bound yet, at most")
    parser.add_argument(
        "--backlog",
        action="store_true",
        help="the scheduler starts when all pods are there, nominated where they can be",
    )
    parser.add_argument("--silent", action="store_true", help="no kubelets: nodes do not write that their pods run")
    parser.add_argument("--campaign", type=Path, help="rounds with faults, a line each in this file (hollow_campaign)")
    parser.add_argument("--placements", type=int, default=1_000_000, help="of the campaign, those of its file included")
    parser.add_argument("--seed", type=int, default=7, help="what the campaign is drawn from")
    chosen = parser.parse_args()
    if chosen.campaign is not None:
        return _campaign(chosen)
    tune_interpreter()
    found, bad = loads(chosen.nodes, chosen.pods), False
    print(HEADER, flush=True)
    for name in chosen.load or list(found):
        results: dict[str, list[HollowResult]] = {}
        for who in _CHOICES[chosen.who] * chosen.runs:
            settings = _WAYS[who] | {"backlog": chosen.backlog, "silent": chosen.silent}
            if settings["service"]:
                settings |= {
                    "nominate": not chosen.no_nomination, "ahead": chosen.ahead,
                    "nominating_nodes": chosen.nominating_nodes,
                }  # fmt: skip
            try:
                result = asyncio.run(one_run(chosen.nodes, found[name], **settings))
            except FetchError as error:
                print(error, file=sys.stderr)
                return 2
            results.setdefault(who, []).append(result)
            print(result._replace(who=who).row(), flush=True)
            print(f"<!-- {json.dumps(result.counts)} -->", flush=True)
            bad |= settings["service"] and bool(result.problems)
        for line in _ratios(results):
            print(line, flush=True)
    return int(bad)


def _ratios(results: dict[str, list[HollowResult]]) -> Iterator[str]:
    """Yield how podslice compares to each other way, by the medians of all runs."""
    mine = results.pop("podslice", [])
    for who, theirs in results.items() if mine else ():
        rate = _ratio([one.rate for one in mine], [one.rate for one in theirs])
        used = _ratio([one.two_processors for one in mine], [one.two_processors for one in theirs])
        yield f"podslice / {who}: {rate:.2f} in pods/s, {used:.2f} by processor time"


def _ratio(mine: list[float], theirs: list[float]) -> float:
    return median(mine) / (median(theirs) or 1.0)


def _campaign(chosen: argparse.Namespace) -> int:
    try:
        campaign_run = campaign(chosen.campaign, nodes=chosen.nodes, placements=chosen.placements, seed=chosen.seed)
        rounds = asyncio.run(campaign_run)
    except FetchError as error:
        print(error, file=sys.stderr)
        return 2
    print(summary(rounds))
    return int(any(one.problems for one in rounds))


if __name__ == "__main__":
    sys.exit(main())
