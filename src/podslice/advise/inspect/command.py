"""`podslice inspect`: one page about a pod's resources at every stage."""

from __future__ import annotations

import shutil
import sys
from functools import partial

import click
import msgspec

from podslice.advise.inspect.build import inspect_pod
from podslice.advise.inspect.facts import KnownNode
from podslice.advise.inspect.page import InspectionList, Page
from podslice.cli.options.bundle import without_bundle
from podslice.cli.options.config import ConfigSource, config_options
from podslice.cli.options.machine import Sources, machine_choice, resolve_node
from podslice.cli.options.node import devices_option, policy_option, set_option
from podslice.cli.options.node_files import load_config_and_gates, load_policy
from podslice.cli.options.pods import strict_option
from podslice.cli.options.release import profile_option
from podslice.cli.options.unusable_state import start_or_explain
from podslice.cli.output import (
    OUTPUT,
    emit,
    only_refused_option,
    print_error,
    print_warnings,
    quiet_option,
    use_colours,
)
from podslice.cli.progress import progress
from podslice.cli.provenance import (
    assumptions,
    configuration_origin,
    machine_origin,
    print_provenance,
    stating,
)
from podslice.config.kubelet import KubeletConfig, fields_in
from podslice.config.policy import PodslicePolicy
from podslice.evidence.provenance import Origin, Provenance, provenance_of
from podslice.host.device_files import load_devices
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import Machine
from podslice.node.node import Node
from podslice.render.ansi import echo
from podslice.values.assumption import Assumption
from podslice.values.errors import InputError
from podslice.values.gates import FeatureGates, GateError, later_gates
from podslice.values.quirks import PROFILE_RELEASES, PROFILES

_WIDEST = 140


@click.command()
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--limit-range", "limit_range_paths", multiple=True, metavar="FILE", help="LimitRange objects of the namespace."
)
@click.option("--gates", "gates_text", metavar="A=true,B=false", default="", help="Feature gates.")
@click.option("--node", "node_facts", multiple=True, metavar="FILE|BUNDLE|KEY=VALUE", callback=without_bundle,
              help="A Node or NodeResourceTopology, a bundle of podslice capture, or facts: memory=64Gi, cpu=16, "
              "hugepages-2Mi=1Gi.")  # fmt: skip
@config_options()
@set_option
@machine_choice
@policy_option
@profile_option
@devices_option
@strict_option
@only_refused_option
@quiet_option
@OUTPUT("table", "wide")
def inspect(
    *,
    files: tuple[str, ...],
    limit_range_paths: tuple[str, ...],
    gates_text: str,
    node_facts: tuple[str, ...],
    config_path: ConfigSource | None,
    overrides: tuple[str, ...],
    machine: str | None,
    sysfs: str | None,
    source: Sources,
    policy_path: str | None,
    profile: str,
    devices_path: str | None,
    strict: bool,
    only_refused: bool,
    output: str,
) -> None:
    """Show, for every pod of FILE..., its amounts as written and as stored, validation errors, the QoS class and why,
    effective requests and limits with their formulas, cgroup files, OOM scores, and what scheduler, quota, eviction
    and autoscalers count.

    FILE holds Pods, Lists or any object with a pod template as YAML or JSON; - is standard input. With --machine the
    kubelet's managers also decide about the pod on the empty node.

    \b
    Examples:
      podslice inspect pod.yaml
      podslice inspect pod.yaml --limit-range limits.yaml --node memory=64Gi
      podslice inspect pod.yaml --config kubelet.yaml --policy policy.yaml
      kubectl get pod db -o yaml | podslice inspect - --gates MemoryQoS=true -o json

    Exit codes: 0 all well, 1 the API server would refuse a pod, 2 bad input.
    """
    from podslice.api.manifests.manifest import load_manifests
    from podslice.api.manifests.pipeline import ReadOptions
    from podslice.config.limit_range import load_limit_ranges

    described = resolve_node(machine, sysfs, source) if (machine or sysfs or source) else None
    reported = described.fields if described is not None else {}
    given, warnings = load_config_and_gates(config_path, overrides, strict=strict, defaults=reported, profile=profile)
    config = fields_in(given.config, PROFILE_RELEASES[profile])
    base = provenance_of(profile)
    provenance = msgspec.structs.replace(
        base, assumptions=(*base.assumptions, *assumptions(None, given, configured=True))
    )
    if config_path is not None or overrides or reported:
        origin = configuration_origin(given, config_path, overrides, reported)
        provenance = msgspec.structs.replace(provenance, configuration=origin)
    if described is not None:
        origin = machine_origin(described.machine, name=machine, sysfs=sysfs, source=source)
        assumed = (*base.assumptions, *assumptions(described, given, configured=config_path is not None))
        provenance = msgspec.structs.replace(provenance, machine=origin, assumptions=assumed)
    elif node_facts:
        provenance = msgspec.structs.replace(
            provenance, machine=Origin("amounts", f"--node {' --node '.join(node_facts)}")
        )
    print_warnings(warnings)
    quirks = PROFILES[profile]
    gates = _gates(config, gates_text, profile)
    config = msgspec.structs.replace(config, feature_gates={**config.feature_gates, **_overrides(gates_text)})
    chosen = described.machine if described is not None else None
    # A file of devices replaces those that the machine's object lists.
    devices = described.devices if described is not None else None
    if devices_path:
        devices = load_devices(devices_path) or devices
    if devices_path is not None and chosen is None:
        raise InputError("no machine to put these devices on", path="--devices", remedy="name one with --machine")
    policy = load_policy(policy_path, profile)
    start = partial(_node, provenance.assumptions, chosen, config, profile=profile, devices=devices, policy=policy)
    node = start()
    view = msgspec.structs.replace(_view(config, node, node_facts), policy=policy, release=PROFILE_RELEASES[profile])
    limit_ranges = tuple(one for path in limit_range_paths for one in load_limit_ranges(path, gates))
    pages: list[Page] = []
    failed = refused = False
    printer = _InspectionPrinter(provenance, output)
    passed: list[str] = []
    for file in files:
        try:
            loaded, notes, passed_over = load_manifests([file], ReadOptions(validate=False, strict=strict, idle=True))
        except InputError as error:
            failed = True
            print_error(error)
            continue
        passed += passed_over
        print_warnings((*notes, *(warning for one in loaded for warning in one.warnings)))
        for one in progress(loaded, total=len(loaded), what="pods"):
            # With v1.36.2's quirks a refused pod leaves traces: every pod gets a fresh node.
            if node is not None and not node.view.undoes_refusals:
                node = start()
            page = inspect_pod(
                one.pod, gates, quirks, kind=one.kind, data=one.data, limit_ranges=limit_ranges, view=view, node=node
            )
            page = msgspec.structs.replace(page, source=one.source, document=one.document)
            refused = refused or not page.accepted
            if only_refused and page.accepted and (page.placement is None or page.placement.admitted):
                continue
            if output in ("table", "wide"):
                printer.show(page)
            else:
                pages.append(page)
    if output not in ("table", "wide"):
        emit(InspectionList(tuple(pages), msgspec.structs.replace(provenance, passed_over=tuple(passed))), output)
    if failed or refused:
        sys.exit(2 if failed else 1)


def _overrides(text: str) -> dict[str, bool]:
    values = {"true": True, "false": False}
    overrides = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = part.partition("=")
        if value.lower() not in values:
            raise InputError(
                f"{part!r} is not NAME=true or NAME=false", path="--gates", remedy="--gates MemoryQoS=true"
            )
        overrides[name] = values[value.lower()]
    return overrides


def _gates(config: KubeletConfig, text: str, profile: str) -> FeatureGates:
    try:
        return FeatureGates.from_overrides(
            {**config.feature_gates, **_overrides(text)},
            fixes=later_gates(PROFILES[profile]),
            release=PROFILE_RELEASES[profile],
            other_gates_allowed=False,
        )
    except GateError as error:
        raise InputError(str(error), path="--gates", remedy=error.hint) from None


def _node(
    assumed: tuple[Assumption, ...],
    machine: Machine | None,
    config: KubeletConfig,
    *,
    profile: str,
    devices: DeviceInventory | None,
    policy: PodslicePolicy,
) -> Node | None:
    if machine is None:
        return None
    with stating(f"assumed: {line}" for line in assumed):
        return start_or_explain(lambda: Node(machine, config, profile=profile, devices=devices, policy=policy), config)


def _view(config: KubeletConfig, node: Node | None, facts: tuple[str, ...]) -> KnownNode:
    from podslice.cli.node_facts import apply_facts, view_of_machine

    return apply_facts(KnownNode(config) if node is None else view_of_machine(node.machine, config, node), facts)


class _InspectionPrinter:
    """Prints what the pages rest on, then one page after the other, each at once, with a rule in between."""

    def __init__(self, provenance: Provenance, output: str) -> None:
        self._provenance = provenance
        self._output = output
        self._width = min(shutil.get_terminal_size((100, 24)).columns, _WIDEST)
        self._printed = False

    def show(self, page: Page) -> None:
        from podslice.advise.inspect.table import page_text

        if not self._printed:
            print_provenance(self._provenance, self._output)
        rule = f"\n{'─' * self._width}\n" if self._printed else ""
        echo(rule + page_text(page, width=self._width, coloured=use_colours(), wide=self._output == "wide"), nl=False)
        sys.stdout.flush()
        self._printed = True
