"""`podslice upgrade`: what another release of the kubelet does with a node and its pods."""

from __future__ import annotations

import re
import sys
from typing import Any

import click

from podslice.advise.upgrade.documents import UpgradeReport
from podslice.advise.upgrade.engine import walk
from podslice.advise.upgrade.table import to_text
from podslice.cli.options.bundle import bundle_in_use
from podslice.cli.options.config import config_options
from podslice.cli.options.machine import Sources, machine_options
from podslice.cli.options.node import devices_option, predicates_option, set_option, start_node
from podslice.cli.options.release import reported_version
from podslice.cli.options.running import running_options
from podslice.cli.output import OUTPUT, emit, print_warnings, prose_width, quiet_option
from podslice.cli.provenance import print_provenance
from podslice.render.ansi import echo
from podslice.values.errors import InputError
from podslice.values.releases.release import Release
from podslice.values.releases.table import parse_release

_VERSION = re.compile(r"v?1\.\d+(\.\d+)?([-+].*)?")


@click.command()
@machine_options
@config_options()
@set_option
@devices_option
@predicates_option
@running_options
@click.option("--to", "target", metavar="VERSION", required=True, help="The release of the new kubelet, such as 1.36.")
@click.option("--all", "step_by_step", is_flag=True, help="Go through every minor release on the way.")
@quiet_option
@OUTPUT("table", "wide")
def upgrade(*, source: Sources, target: str, step_by_step: bool, output: str, **options: Any) -> None:
    """Say what changes on a node when its kubelet becomes one of another release: does it start, which gates and
    options are unknown, new or promoted, which pods move, are refused, gain or lose CPUs, quotas and memory, what pods
    that are made anew get, and what a roll-back meets. Both kubelets run on the same node, restart included.

    --from VERSION names the release that runs now; beside a Node object or a bundle that states it, it may be left out.
    --pods and --state name what runs there. A lower --to is a downgrade.

    \b
    Examples:
      podslice upgrade --from 1.33 --to 1.36 --machine epyc-9654-nps4 --config kubelet.yaml --pods running.yaml
      podslice upgrade --from 1.33 --to 1.36 --all --sysfs node7.tar.gz --config kubelet.json --state state
      podslice upgrade --node node7.tar.gz --to 1.37
      podslice upgrade --from node.yaml --to 1.36 --config kubelet.yaml --pods running.yaml -o json

    Exit codes: 0 no running pod is harmed, 1 one is or the kubelet does not start, 2 bad input.
    """
    versions = [one for one in source or () if _VERSION.fullmatch(one)]
    places = tuple(one for one in source or () if one not in versions) or None
    if versions and places is None and options["machine"] is None and options["sysfs"] is None:
        # For click the version is a value of the option that would name another machine than the bundle's.
        bundle = bundle_in_use()
        places = None if bundle is None else bundle.sources or None
    old, new = _release_now(versions, places), _parse(target, "--to")
    if old is new:
        raise InputError(f"the kubelet is one of {old} already", path="--to", remedy="name another release")
    started = start_node(source=places, profile=f"kubelet-{old}", **options)
    running, provenance = started.running, started.provenance
    print_warnings(started.warnings)
    print_provenance(provenance, output)
    steps = tuple(walk(started.node, running, new, step_by_step=step_by_step, config=started.config))
    harms = any(step.harms for step in steps)
    if output in ("table", "wide"):
        for place, step in enumerate(steps):
            echo(("\n" if place else "") + to_text(step, pods=len(running), width=prose_width(), wide=output == "wide"))
    else:
        emit(UpgradeReport(steps, len(running), harms, provenance), output)
    sys.exit(1 if harms else 0)


def _release_now(versions: list[str], places: Sources) -> Release:
    """Return the release that runs now: the one named, else that of the Node object. Raises `InputError`."""
    if len(versions) > 1:
        raise InputError(f"{' and '.join(versions)} are two releases", path="--from", remedy="give the one that runs")
    found = versions[0] if versions else reported_version(places)
    if not found:
        raise InputError("names no release", path="--from", remedy="--from 1.33: the release that runs now")
    return _parse(found, "--from")


def _parse(text: str, option: str) -> Release:
    try:
        return parse_release(text)
    except InputError as error:
        raise error.at(path=option) from None
