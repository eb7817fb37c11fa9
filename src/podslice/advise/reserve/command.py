"""`podslice reserve`: what a node should reserve for its system, as lines of a KubeletConfiguration."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import msgspec

from podslice.advise.reserve.advise import ReservationAdvice, ReservationRequest, advise
from podslice.advise.reserve.formulas import CHOICES, DEFAULT, KEPT, MEASURED, MeasuredAmounts
from podslice.advise.reserve.measured import USAGE_FILE, measured_amounts
from podslice.advise.reserve.placement import PLACEMENTS
from podslice.advise.reserve.summaries import load_summaries
from podslice.advise.reserve.usage import load_usage
from podslice.cli.options.config import ConfigSource, config_options
from podslice.cli.options.machine import Sources, machine_options, resolve_node
from podslice.cli.options.node import contradictions, devices_option, policy_option, set_option
from podslice.cli.options.node_files import load_config_and_gates, load_policy
from podslice.cli.options.release import profile_option
from podslice.cli.output import emit, legend_option, print_warnings, prose_width, quiet_option
from podslice.cli.provenance import assumptions, configuration_origin, machine_origin, print_provenance, stating
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import ReservationRules
from podslice.evidence.provenance import HERE, provenance_of
from podslice.host.device_files import load_devices
from podslice.machine.devices import DeviceInventory
from podslice.machine.model import Machine
from podslice.node_objects.described import DescribedNode
from podslice.render.ansi import echo
from podslice.values.errors import InputError, StartError


@click.command()
@machine_options
@config_options("The node's present KubeletConfiguration; its other settings stay.")
@set_option
@devices_option
@click.option("--pods", type=click.IntRange(1, 10_000), metavar="N", help="Pods on the node [default: maxPods, 110].")
@click.option("--formula", type=click.Choice(CHOICES), help=f"Provider whose amounts are used [default: {DEFAULT}].")
@click.option(
    "--measured",
    "measured_path",
    metavar="DIR",
    help="Use the samples that the agent with this state directory recorded.",
)
@click.option(
    "--from-metrics",
    "summary_paths",
    metavar="FILE",
    multiple=True,
    help="Use answers of the kubelet's Summary API (kubectl get --raw /api/v1/nodes/NAME/proxy/stats/summary); may be "
    "given several times.",
)
@policy_option
@profile_option
@click.option(
    "--placement", type=click.Choice(PLACEMENTS), help="Which CPUs to reserve [default: as suits the machine]."
)
@click.option("--strict", is_flag=True, help="Keep shared pods off the reserved CPUs (strict-cpu-reservation).")
@click.option(
    "--housekeeping-per-node",
    is_flag=True,
    help="Reserve one core more on every NUMA node with devices, for their interrupts.",
)
@quiet_option
@legend_option
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "kubelet", "json", "yaml"]),
    default="table",
    show_default=True,
    help="Form of the output; kubelet: only the lines.",
)
def reserve(
    *,
    machine: str | None,
    sysfs: str | None,
    source: Sources,
    config_path: ConfigSource | None,
    overrides: tuple[str, ...],
    devices_path: str | None,
    pods: int | None,
    formula: str | None,
    measured_path: str | None,
    summary_paths: tuple[str, ...],
    policy_path: str | None,
    profile: str,
    placement: str | None,
    strict: bool,
    housekeeping_per_node: bool,
    output: str,
) -> None:
    """Advise on what a node should reserve for its system: which CPUs, and how much memory of each NUMA node, by the
    formulas of providers, as lines of a KubeletConfiguration with which a kubelet starts.

    \b
    Examples:
      podslice reserve --pods 250                                  # on this very machine
      podslice reserve --machine epyc-9654-nps4 --formula openshift
      podslice reserve --sysfs node7.tar.xz --config kubelet.yaml -o kubelet
      podslice reserve --measured /var/lib/podslice
      podslice reserve --from node.yaml --config kubelet.yaml --from-metrics summary.json --kubernetes 1.34

    Exit codes: 0 advice given, 2 bad input.
    """
    node = resolve_node(machine, sysfs, source)
    loaded, warnings = load_config_and_gates(config_path, overrides, defaults=node.fields, profile=profile)
    config = loaded.config
    print_warnings((*contradictions(config, node), *warnings))
    base = provenance_of(profile)
    provenance = msgspec.structs.replace(
        base,
        machine=machine_origin(node.machine, name=machine, sysfs=sysfs, source=source),
        configuration=configuration_origin(loaded, config_path, overrides, node.fields),
        assumptions=(*base.assumptions, *assumptions(node, loaded, configured=config_path is not None)),
    )
    rules = ReservationRules() if policy_path is None else load_policy(policy_path, profile).reservation
    request = ReservationRequest(
        pods=pods or rules.pods or config.max_pods,
        formula=formula or rules.formula,
        placement=placement or rules.placement,
        strict=strict or rules.strict,
        housekeeping=housekeeping_per_node or rules.housekeeping_per_node,
        found=_load_found(measured_path, summary_paths),
    )
    inventory = (
        (load_devices(devices_path) if devices_path else None)
        or node.devices
        or _discover_devices(node, machine, sysfs, source)
    )
    with stating(f"assumed: {line}" for line in provenance.assumptions):
        advice = _advice(node.machine, config, inventory, request, profile)
    advice = msgspec.structs.replace(advice, provenance=provenance)
    print_provenance(provenance, output)
    if output in ("json", "yaml"):
        emit(advice, output)
    elif output == "kubelet":
        echo(_fragment(advice), nl=False)
    else:
        _print(advice)


def _load_found(folder: str | None, summaries: tuple[str, ...]) -> MeasuredAmounts | None:
    """Load what was measured: by an agent, or what the kubelet answered. Raises `InputError`."""
    if folder is not None and summaries:
        raise InputError(
            "--measured and --from-metrics both give what was measured", remedy="leave one out: an agent's is exacter"
        )
    return load_summaries(summaries) if summaries else _load_measured(folder)


def _load_measured(folder: str | None) -> MeasuredAmounts | None:
    """Load the amounts measured by an agent. Raises `InputError` where there is less than a day of samples."""
    if folder is None:
        return None
    usage = load_usage(Path(folder) / USAGE_FILE)
    problem = (
        "does not exist, or was not written by an agent"
        if usage is None
        else f"has {usage.observed_minutes // 60} hours of samples, not 24"
    )
    found = None if usage is None else measured_amounts(usage)
    if found is None:
        remedy = "let an agent run for a day with reservation.measure in its policy, and name its state directory"
        raise InputError(problem, source=f"{folder}/{USAGE_FILE}", remedy=remedy)
    return found


def _discover_devices(
    node: DescribedNode, machine: str | None, sysfs: str | None, source: Sources
) -> DeviceInventory | None:
    """Return the GPUs and NICs of this machine or of a captured one."""
    if machine is not None or source is not None:
        return None
    from podslice.host.filesystem import DiskFileSystem
    from podslice.host.pci import group_by_resource, parse_resource_names, read_pci_functions
    from podslice.host.snapshot import open_snapshot

    fs = DiskFileSystem("/") if sysfs is None else open_snapshot(sysfs)
    return group_by_resource(read_pci_functions(fs, node.machine), parse_resource_names(()))


def _advice(
    machine: Machine,
    config: KubeletConfig,
    devices: DeviceInventory | None,
    request: ReservationRequest,
    profile: str,
) -> ReservationAdvice:
    try:
        return advise(machine, config, devices=devices, request=request, profile=profile)
    except StartError as error:
        raise InputError(
            f"a kubelet would not start with any advice: {error.message}",
            path=f"kubelet {error.stage}",
            remedy=error.remedy,
        ) from None


def _fragment(advice: ReservationAdvice) -> str:
    from podslice.config.carriers.layer import API_VERSION, KIND
    from podslice.reading.yaml import dump

    header: dict[str, Any] = {"apiVersion": API_VERSION, "kind": KIND}
    return dump(header | advice.lines)


def _print(advice: ReservationAdvice) -> None:
    from podslice.render.prose import wrap_lines
    from podslice.render.table import print_table
    from podslice.values.quantity import plural

    width = prose_width()
    for line in _head(advice, plural(advice.pods, "pod")):
        echo(wrap_lines(line, width))
    echo("")
    kinds = any(one.classes for one in advice.nodes)
    rows = [
        [
            str(one.numa_node),
            one.cpus or "-",
            *([" ".join(one.classes) or "-"] if kinds else []),
            one.memory,
            str(one.devices),
        ]
        for one in advice.nodes
    ]
    print_table(["NUMA", "CPUS", *(["CLASS"] if kinds else []), "MEMORY", "DEVICES"], rows)
    echo("")
    kept = advice.kept
    print_table(
        ["FORMULA", "PROVIDER", "CPU", "MEMORY", "EVICTION"],
        [
            *([one.name, one.title, one.cpu, one.memory, one.eviction] for one in advice.formulas),
            ["-", "kept today", kept.cpu, kept.memory, kept.eviction],
        ],
    )
    for source, names in _sources(advice):
        echo(f"  {', '.join(names)}: {source}")
    after, before = advice.after, advice.before
    echo(f"\nfor pods: {after.cpu} CPU and {after.memory}, now {before.cpu} and {before.memory}")
    for note in advice.notes:
        echo(wrap_lines(f"note: {note}", width))
    echo(f"\n{_fragment(advice)}", nl=False)


def _head(advice: ReservationAdvice, pods: str) -> Iterator[str]:
    """Yield the answer: the amounts, where each comes from, what is less than today, and the CPUs."""
    yield (
        f"{_subject(advice)}, {pods}: reserve {advice.cpu} CPU and {advice.memory} of memory, and evict below "
        f"{advice.eviction}"
    )
    origins = advice.origins
    if len({origins.cpu, origins.memory, origins.eviction}) == 1:
        yield f"All of it is {_origin_words(origins.cpu)}."
    else:
        parts = (("CPU", origins.cpu), ("memory", origins.memory), ("eviction", origins.eviction))
        yield f"{'; '.join(f'{what}: {_origin_words(origin)}' for what, origin in parts)}."
    if advice.less:
        yield f"Less than is kept today: {'; '.join(advice.less)}."
    yield f"CPUs {advice.cpus} ({advice.placement}: {advice.reason})"


def _origin_words(origin: str) -> str:
    if origin == KEPT:
        return "what the node keeps today"
    return "what was measured" if origin == MEASURED else f"the formula of {origin}"


def _subject(advice: ReservationAdvice) -> str:
    """Return the machine that the advice is about, in words."""
    source = advice.provenance.machine.source
    return advice.machine or ("This machine" if source in ("", HERE) else f"The machine of {source}")


def _sources(advice: ReservationAdvice) -> Iterator[tuple[str, list[str]]]:
    """Yield each address with the names of the formulas that it publishes."""
    names: dict[str, list[str]] = {}
    for one in advice.formulas:
        names.setdefault(one.source, []).append(one.name)
    yield from names.items()
