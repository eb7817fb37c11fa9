"""`podslice whatif`: the same pods under several kubelet configurations and machines, side by side."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click
import msgspec
from click.core import ParameterSource

from podslice.advise.whatif.capacity import add_capacity
from podslice.advise.whatif.compare import Outcome, Scenario, evaluate, populate
from podslice.advise.whatif.documents import comparison_document
from podslice.advise.whatif.objective import DEFAULT_PREFERENCE, PREFERENCES, Group, Recommendation, rank
from podslice.advise.whatif.restart.command import print_restarts, print_results, restarts
from podslice.advise.whatif.restart.restart import How
from podslice.advise.whatif.variants import recommended_variants
from podslice.advise.whatif.workload import Admit, Step, resize_to
from podslice.cli.completion import complete_setting
from podslice.cli.cross_check import check_files, labels_of, read_contents, with_memory_of_files
from podslice.cli.options.bundle import bundle_option
from podslice.cli.options.config import find_source
from podslice.cli.options.machine import Sources, complete_machine, load_named_machine, resolve_node
from podslice.cli.options.node import predicates_option, resize_option
from podslice.cli.options.node_files import load_config_and_gates, load_policy
from podslice.cli.options.pods import read_pods, unknown_devices
from podslice.cli.options.release import profile_option
from podslice.cli.options.running import Running, read_agent_pods, read_running, running_options
from podslice.cli.options.unusable_state import describe_missing_options
from podslice.cli.output import OUTPUT, check_page_name, emit, print_warnings, prose_width, quiet_option, write_shown
from podslice.cli.progress import progress
from podslice.cli.provenance import assumptions, configuration_origin, machine_origin, print_provenance
from podslice.evidence.contradiction import StateFacts
from podslice.evidence.provenance import CountedPods, Origin, Provenance, provenance_of
from podslice.host.device_files import load_devices
from podslice.machine.devices import DeviceInventory
from podslice.node.node import Node
from podslice.node_objects.described import DescribedNode
from podslice.render.ansi import echo
from podslice.render.prose import wrap_lines
from podslice.values.errors import InputError, StartError
from podslice.values.quirks import PROFILE_RELEASES, profile_of_release

replace = msgspec.structs.replace
_MOST_PICTURES = 6
_MOST_ROWS = 12


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE...]")
@bundle_option
@click.option(
    "--machine",
    "machines",
    multiple=True,
    metavar="NAME",
    shell_complete=complete_machine,
    help="A ready-made machine; repeat for more.",
)
@click.option("--sysfs", "captures", multiple=True, metavar="DIR|TAR", help="A captured machine; repeat for more.")
@click.option("--from", "sources", multiple=True, metavar="FILE|TEXT", help="A described machine; repeat for more.")
@click.option("--config", "configs", multiple=True, metavar="FILE", help="A KubeletConfiguration; repeat for more.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    shell_complete=complete_setting,
    help="Override a field in all of them.",
)
@click.option("--policy", "policies", multiple=True, metavar="FILE", help="A PodslicePolicy; repeat for more.")
@resize_option
@click.option(
    "--workload",
    "workload_path",
    metavar="FILE",
    help="After FILE, admit, resize and remove pods as a ResizeWorkload lists them (docs/whatif.md).",
)
@click.option(
    "--machine-then",
    "then",
    multiple=True,
    metavar="MACHINE",
    help="Then change the machine to this one while all pods run: a file, a snapshot, a text; repeat for more.",
)
@click.option("--how-many", is_flag=True, help="Say how many such pods fit, and what keeps the next one out.")
@click.option("--restart", is_flag=True, help="Say what becomes of each running pod when the kubelet starts again.")
@click.option("--reboot", is_flag=True, help="The same for a reboot: no container runs, and pods come back in order.")
@click.option(
    "--kubernetes-then",
    metavar="VERSION",
    help="The release of the kubelet that starts then: an upgrade. With --restart or --reboot.",
)
@click.option("--devices", "devices_path", metavar="FILE", help="Plugin devices of every machine (docs/machines.md).")
@profile_option
@predicates_option
@running_options
@click.option(
    "--recommend", is_flag=True, help="Try every policy, scope and set of options of the release, and name the best."
)
@click.option(
    "--prefer",
    type=click.Choice(list(PREFERENCES)),
    help=f"What weighs most in a recommendation (docs/whatif.md).  [default: {DEFAULT_PREFERENCE}]",
)
@click.option(
    "--out",
    metavar="FILE.html",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a page with a bar chart and pictures.",
)
@quiet_option
@OUTPUT("table", "wide")
def whatif(
    *,
    files: tuple[str, ...],
    configs: tuple[str, ...],
    overrides: tuple[str, ...],
    policies: tuple[str, ...],
    resize_paths: tuple[str, ...],
    workload_path: str | None,
    then: tuple[str, ...],
    devices_path: str | None,
    profile: str,
    how_many: bool,
    restart: bool,
    reboot: bool,
    kubernetes_then: str | None,
    recommend: bool,
    prefer: str | None,
    out: Path | None,
    output: str,
    **options: Any,
) -> None:
    """Admit the pods of FILE... in order under every combination of --machine, --config and --policy, and compare:
    admitted, refused by reason, pods that own nothing, pods across NUMA nodes or caches, CPUs stranded (of no use to
    more such pods), cores shared by owners, fragmentation of each NUMA node. --pods and --state name the pods that run
    there before. With --resize and --workload pods are resized in place after that: how many resizes are granted,
    deferred or infeasible. With --machine-then CPUs, memory or NUMA nodes leave or join while the pods run, with the
    consequences for each pod. With --restart or --reboot the kubelet starts again: each running pod stays, moves or is
    refused; with several --config the first one is that of now. With --how-many copies of the pods come until one is
    refused: a number, and the constraint that ends it.

    \b
    Examples:
      podslice whatif pods.yaml --machine epyc-9654-nps4 --machine xeon-8480-2s --config now.yaml --config new.yaml
      podslice whatif pods.yaml --replicas --machine epyc-9654-nps4 --config now.yaml --recommend --out report.html
      podslice whatif --workload day.yaml --machine epyc-9654-nps4 --config now.yaml --policy a.yaml --policy b.yaml
      podslice whatif new.yaml --pods running.yaml --machine epyc-9654-nps4 --config now.yaml --config new.yaml
      podslice whatif pod.yaml --how-many --machine epyc-9654-nps4 --config now.yaml
      podslice whatif --restart --node node7.tar.gz --kubernetes 1.35 --kubernetes-then 1.36

    Exit codes: 0 done, 1 a running pod is refused or gets other CPUs when the kubelet starts again, 2 bad input.
    """
    from podslice.advise.whatif.page import comparison_page
    from podslice.render.picture import picture_of

    check_page_name(out)
    again: How | None = "reboot" if reboot else "restart" if restart else None
    if again is not None:
        profile = _starting_profile(profile, policies, options["state_path"])
    asked = read_pods(files, without_ended=True, **options)
    nodes = list(_nodes({name: options[name] for name in ("machines", "captures", "sources")}))
    name = nodes[0].described.machine.name if len(nodes) == 1 else ""
    there = read_running(asked=asked.pods, machine_name=name, **options)
    # Owners in the state files that no pod names are stand-ins with the same resources.
    running = (*there.listed, *there.owners())
    if again is not None:
        # FILE names what runs, as --pods does.
        running = (*running, *(one.pod for one in asked.beside({pod.metadata.uid for pod in running}).pods))
    elif kubernetes_then:
        raise InputError("needs a start", path="--kubernetes-then", remedy="add --restart or --reboot")
    read = asked.beside({pod.metadata.uid for pod in running})
    pods = [one.pod for one in read.pods]
    base = msgspec.structs.replace(
        provenance_of(profile),
        state=str(options["state_path"] or ""),
        pods=CountedPods(len(running), there.left_out),
        passed_over=(*there.passed_over, *asked.passed_over),
    )
    scenarios, provenance, warnings = _scenarios(nodes, there, configs, overrides, devices_path, base, options, profile)
    if again is not None:
        scenarios = [msgspec.structs.replace(one, running=running, files=there.files) for one in scenarios]
        print_warnings(
            (*there.warnings, *asked.warnings, *unknown_devices(asked.pods, scenarios[0].devices), *warnings)
        )
        then_profile = _later_profile(profile, kubernetes_then) if kubernetes_then else profile
        print_restarts(scenarios, provenance, output, how=again, profiles=(profile, then_profile))
        return
    steps = tuple(_steps(files, workload_path, resize_paths, options))
    later = tuple(load_named_machine(name, "--machine-then") for name in then)
    scenarios = [
        msgspec.structs.replace(one, running=running, files=there.files, steps=steps, then=later)
        for scenario in scenarios
        for one in _with_policies(scenario, policies, profile)
    ]
    known = scenarios[0].devices
    print_warnings((*there.warnings, *read.warnings, *unknown_devices(read.pods, known), *warnings))
    admissions = sum(isinstance(step, Admit) for step in steps)
    if recommend:
        scenarios = [
            # Another policy does not start on the state files: the node is drained and takes its pods again, in order.
            msgspec.structs.replace(
                variant, name=_variant_label(scenario.name, variant.name, several=len(scenarios) > 1), files={}
            )
            for scenario in scenarios
            for variant in recommended_variants(scenario, profile=profile)
        ]
    outcomes = (evaluate(scenario, pods, profile=profile) for scenario in scenarios)
    report = list(progress(outcomes, total=len(scenarios), what="scenarios"))
    if how_many:
        report = [
            add_capacity(outcome, scenario, pods, profile=profile)
            for outcome, scenario in zip(report, scenarios, strict=True)
        ]
    if recommend:
        print_warnings(_start_warnings(scenarios, report, profile))
    if there.files and any(outcome.problem for outcome in report):
        named = any(options[name] for name in ("machines", "captures", "sources"))
        unnamed = describe_missing_options(configured=bool(configs or overrides), machine=named)
        print_warnings((f"--state: {unnamed}",) if unnamed else ())
    ranking = rank(report, prefer or DEFAULT_PREFERENCE)
    shown = list(ranking.outcomes) if recommend else report
    if out is not None:
        chosen = (
            # Recommending compares dozens of scenarios: only the winner is drawn.
            [ranking.outcomes[0].scenario] if recommend else [outcome.scenario for outcome in report][:_MOST_PICTURES]
        )
        pictures = [
            (scenario.name, picture_of(node.view, title=scenario.machine.name))
            for scenario in scenarios
            if scenario.name in chosen and (node := populate(scenario, pods, profile=profile)) is not None
        ]
        page = comparison_page(
            shown, ranking, len(pods) + admissions, recommend=recommend, pictures=pictures, provenance=provenance
        )
        write_shown(out, page)
    started = restarts(scenarios, how="restart", profiles=(profile, profile)) if there.files and not recommend else ()
    for one in provenance:
        print_provenance(one, output)
    if output in ("table", "wide"):
        wide = output == "wide"
        _print(shown, ranking, len(pods) + admissions, running=len(running), recommend=recommend, wide=wide)
        if changed := [result for result in started if result.changes]:
            echo("")
            print_results(changed, wide=wide)
    else:
        emit(comparison_document(shown, ranking, provenance, started), output)
    # One configuration that does not start is a result; none that starts is bad input.
    if all(outcome.problem for outcome in report):
        sys.exit(2)
    if any(result.changes for result in started):
        sys.exit(1)


def _starting_profile(profile: str, policies: tuple[str, ...], state: Path | None) -> str:
    """Return the profile of the kubelet that starts. Unless the user chose one, or an agent decides on the node, it is
    that of a kubelet with the defects of its release: those decide what a start does to running pods."""
    chosen = click.get_current_context().get_parameter_source("profile") is not ParameterSource.DEFAULT
    if chosen or policies or (state is not None and read_agent_pods(state) is not None):
        return profile
    return f"kubelet-{PROFILE_RELEASES[profile]}"


def _later_profile(profile: str, kubernetes: str) -> str:
    """Return the profile of the kubelet after an upgrade. Raises `InputError`."""
    try:
        return profile_of_release(profile, kubernetes)
    except InputError as error:
        raise error.at(path="--kubernetes-then") from None


def _steps(
    files: tuple[str, ...], workload_path: str | None, resize_paths: tuple[str, ...], options: dict[str, Any]
) -> Iterator[Step]:
    """Yield the steps that come after the pods that are compared."""
    if not (files or workload_path):
        raise InputError("names no pod", path="FILE", remedy="podslice whatif pods.yaml, or --workload FILE")
    if workload_path is not None:
        from podslice.advise.whatif.workload_file import load_workload

        yield from load_workload(workload_path)
    for path in resize_paths:
        yield from (resize_to(one.pod) for one in read_pods((path,), **options).pods)


def _with_policies(scenario: Scenario, policies: tuple[str, ...], profile: str) -> Iterator[Scenario]:
    """Yield the scenario under each policy, or under none."""
    for path in policies:
        name = scenario.name if len(policies) < 2 else f"{scenario.name} / {Path(path).stem}"
        yield msgspec.structs.replace(scenario, name=name, policy=load_policy(path, profile))
    if not policies:
        yield scenario


def _start_warnings(scenarios: list[Scenario], report: list[Outcome], profile: str) -> tuple[str, ...]:
    """Return a warning with its remedy where a kubelet starts with no other configuration than the present one."""
    others = [one for one, outcome in zip(scenarios, report, strict=True) if not outcome.is_present]
    failing = sum(bool(outcome.problem) for outcome in report)
    if failing < len(others) or not others:
        return ()
    try:
        Node(others[0].machine, others[0].config, profile=profile)
    except StartError as error:
        remedy = f" ({error.remedy})" if error.remedy else ""
        return (f"{failing} of {len(report)} configurations do not start: {error.message}{remedy}",)
    return ()


def _variant_label(scenario: str, variant: str, *, several: bool) -> str:
    return f"{scenario}: {variant}" if several else variant


class _NamedNode(NamedTuple):
    """A machine of the options: its name, the node, and where it comes from."""

    name: str
    described: DescribedNode
    origin: Origin


def _scenarios(
    nodes: Sequence[_NamedNode],
    there: Running,
    configs: tuple[str, ...],
    overrides: tuple[str, ...],
    devices_path: str | None,
    base: Provenance,
    options: dict[str, Any],
    profile: str,
) -> tuple[list[Scenario], tuple[Provenance, ...], tuple[str, ...]]:
    """Return every machine with every configuration, what each of them rests on, and warnings."""
    devices = load_devices(devices_path) if devices_path else None
    scenarios, provenance, warnings = list[Scenario](), list[Provenance](), list[str]()
    contents = read_contents(there.files)
    for name, given_node, origin in nodes:
        node = with_memory_of_files(given_node, contents)
        machine = replace(origin, details=(*origin.details, *node.taken))
        for path in configs or (None,):
            given = None if path is None else find_source(path)
            loaded, more = load_config_and_gates(
                given, overrides, strict=options["strict"], defaults=node.fields, profile=profile
            )
            warnings += more
            label = Path(path).stem if path else "defaults"
            configuration = configuration_origin(loaded, given, overrides, node.fields)
            assumed = assumptions(node, loaded, configured=bool(configs))
            facts = StateFacts(
                contents,
                node.machine,
                node.measured,
                loaded.config,
                changed=bool(overrides) or path is None or len(configs) > 1,
                devices=devices or node.devices,
                labels=labels_of(there.listed),
                answers=there.answers,
            )
            rests_on = replace(base, machine=machine, configuration=configuration, assumptions=assumed)
            provenance.append(replace(rests_on, contradictions=check_files(facts, there.elsewhere)))
            scenarios.append(
                Scenario(
                    name if len(configs) < 2 else f"{name} / {label}",
                    node.machine,
                    loaded.config,
                    devices or node.devices or DeviceInventory(),
                    predicates=options["predicates"],
                )
            )
    return scenarios, tuple(provenance), tuple(dict.fromkeys(warnings))


def _nodes(given: dict[str, tuple[str, ...]]) -> Iterator[_NamedNode]:
    """Yield the machines in the order of the options, or this one."""
    chosen: list[tuple[str, tuple[str | None, str | None, Sources]]] = []
    for option, values in given.items():
        for value in values:
            machine, capture = value if option == "machines" else None, value if option == "captures" else None
            chosen.append((value, (machine, capture, (value,) if option == "sources" else None)))
    for name, arguments in chosen or [("this machine", (None, None, None))]:
        node = resolve_node(*arguments)
        machine, capture, source = arguments
        origin = machine_origin(node.machine, name=machine, sysfs=capture, source=source)
        yield _NamedNode(node.machine.name or name, node, origin)


# Output


def _best_and_present(groups: Sequence[Group]) -> list[Group]:
    """Return the best groups, and the present configuration wherever it ranks."""
    return [*groups[:_MOST_ROWS], *(group for group in groups[_MOST_ROWS:] if group.first.is_present)]


def _print(
    shown: list[Outcome], ranking: Recommendation, pods: int, *, running: int, recommend: bool, wide: bool
) -> None:
    from podslice.advise.whatif.recommendation import best_text, winners_text
    from podslice.advise.whatif.table import (
        bars,
        capacity_text,
        classes_text,
        consequences_text,
        displaced_text,
        groups_text,
        matrix,
        resizes_text,
        verdicts,
    )
    from podslice.values.quantity import plural

    width = prose_width()
    asked = [outcome for outcome in (shown[:1] if recommend else shown) if outcome.capacity is not None]
    names = [pod.pod for pod in shown[0].pods]
    for outcome in asked:
        echo(wrap_lines(capacity_text(outcome, names, running=running), width) + "\n")
    if asked and len(shown) == 1:
        return
    echo(f"{plural(pods, 'pod')}\n")
    if recommend:
        echo(wrap_lines(best_text(ranking), width) + "\n")
    groups = ranking.groups if recommend else ()
    some = groups if wide else _best_and_present(groups)
    table = matrix(shown, groups=some, wide=wide)
    echo(table.text)
    if len(groups) > len(some):
        echo(f"… {len(groups) - len(some)} more (-o wide shows them)")
    if table.left_out:
        echo(wrap_lines(table.left_out, width))
    listed = [group.first for group in some] if recommend else shown
    if wide and (alike := groups_text(some)):
        echo("\n" + wrap_lines(alike, width))
    if wide and (displaced := displaced_text(listed)):
        echo("\n" + wrap_lines(displaced, width))
    if not recommend:
        echo("\n" + bars(shown, pods))
    if classes := classes_text(listed):
        echo("\n" + classes)
    if consequences := consequences_text(listed):
        echo("\n" + consequences)
    if wide and not recommend:
        echo("\n" + verdicts(shown))
        if resized := resizes_text(shown):
            echo("\n" + resized)
    if len(shown) > 1 and not recommend:
        echo("\n" + wrap_lines(f"{best_text(ranking, recommend=False)}\n{winners_text(ranking)}", width))
