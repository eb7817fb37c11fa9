"""The options that choose the node of a command: machine, kubelet configuration, devices, and the pods that run there
already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
import msgspec

from podslice.api.pod.spec import Pod
from podslice.cli.completion import complete_setting
from podslice.cli.cross_check import check_files, check_started, labels_of, read_contents, with_memory_of_files
from podslice.cli.options.config import ConfigSource, config_options
from podslice.cli.options.machine import Sources, machine_options, resolve_node
from podslice.cli.options.node_files import load_config_and_gates, load_policy
from podslice.cli.options.release import profile_option
from podslice.cli.options.running import read_running
from podslice.cli.options.unusable_state import GivenState, describe_missing_options, start_or_explain
from podslice.cli.output import with_options
from podslice.cli.provenance import assumptions, configuration_origin, machine_origin, stating
from podslice.config.kubelet import KubeletConfig
from podslice.evidence.contradiction import StateFacts
from podslice.evidence.provenance import CountedPods, Provenance, provenance_of
from podslice.node.checkpoints.names import CPU_STATE_FILE
from podslice.node.node import Node
from podslice.node_objects.described import DescribedNode
from podslice.values.cpuset import Bits

if TYPE_CHECKING:
    from podslice.api.manifests.loaded import LoadedPod

F = TypeVar("F", bound=Callable[..., Any])
_NOTHING: Mapping[str, Any] = {}


set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="FIELD=VALUE",
    shell_complete=complete_setting,
    help="Override a field of the configuration; FIELD.KEY for an entry of a map.",
)
policy_option = click.option(
    "--policy", "policy_path", metavar="FILE", help="PodslicePolicy: what is done beyond a kubelet (docs/policy.md)."
)
resize_option = click.option(
    "--resize",
    "resize_paths",
    metavar="FILE",
    multiple=True,
    help="Then resize these pods in place, in order; may be given several times.",
)


devices_option = click.option(
    "--devices", "devices_path", metavar="FILE", help="Plugin devices of the node (docs/machines.md)."
)
predicates_option = click.option(
    "--predicates/--no-predicates", default=True, help="Also check OutOfcpu, OutOfmemory and the like."
)


def node_options(command: F) -> F:
    """Add the machine options, `--config`, `--set`, `--policy`, `--profile`, `--kubernetes`, `--devices` and
    `--predicates`; the command gets them as keyword arguments and passes them to `start_node`."""
    options = (
        config_options(),
        set_option,
        policy_option,
        profile_option,
        devices_option,
        predicates_option,
    )
    return machine_options(with_options(command, *options))


class StartedNode(NamedTuple):
    """A started node, the pods that run on it, warnings for the user, what the node rests on, the CPUs that the state
    files keep for pods that are gone, and sentences about them. `config`: the configuration as it is written, with
    fields that the kubelet's release does not have."""

    node: Node
    running: tuple[Pod, ...]
    warnings: tuple[str, ...]
    provenance: Provenance
    notes: tuple[str, ...] = ()
    held: Bits = 0
    config: KubeletConfig = KubeletConfig()


def start_node(
    *,
    machine: str | None = None,
    sysfs: str | None = None,
    source: Sources = None,
    config_path: ConfigSource | None = None,
    overrides: tuple[str, ...] = (),
    policy_path: str | None = None,
    profile: str = "podslice",
    devices_path: str | None = None,
    predicates: bool = True,
    pods_path: str | None = None,
    state_path: Path | None = None,
    replicas: bool = False,
    strict: bool = False,
    validate: bool = True,
    asked: Iterable[LoadedPod] = (),
) -> StartedNode:
    """Start the node that the options describe, with its running pods. Pods `asked` about that are bound to a node say
    which of the listed pods run there. Raises `InputError`, with what is assumed of the machine in its notes."""
    described = resolve_node(machine, sysfs, source)
    if devices_path is not None:
        described = described.without_devices()
    chosen = described.machine
    loaded, warnings = load_config_and_gates(
        config_path, overrides, strict=strict, defaults=described.fields, profile=profile
    )
    config = loaded.config
    warnings = (*contradictions(config, described), *warnings)
    devices = None
    if devices_path:
        from podslice.host.device_files import load_devices

        devices = load_devices(devices_path)
    devices = devices or described.devices
    policy = load_policy(policy_path, profile)
    unnamed = describe_missing_options(
        configured=bool(config_path or overrides), machine=any(x is not None for x in (machine, sysfs, source))
    )
    there = read_running(
        pods_path=pods_path,
        state_path=state_path,
        replicas=replicas,
        strict=strict,
        validate=validate,
        asked=asked,
        machine_name=chosen.name,
    )
    contents = read_contents(there.files)
    described = with_memory_of_files(described, contents)
    chosen = described.machine
    assumed = assumptions(described, loaded, configured=config_path is not None)
    # A command for people who try settings on a node; its files date from before.
    facts = StateFacts(
        contents,
        chosen,
        described.measured,
        config,
        changed=bool(overrides) or config_path is None,
        devices=devices,
        labels=labels_of(there.listed),
        answers=there.answers,
    )
    found = check_files(facts, there.elsewhere)
    # Where options are missing the error asks for them first.
    with stating((*(f"assumed: {line}" for line in assumed), *(() if unnamed else map(str, found)))):
        node = start_or_explain(
            lambda: Node(
                chosen,
                config,
                profile=profile,
                devices=devices,
                predicates=predicates,
                files=there.files,
                policy=policy,
            ),
            config,
            state=None if state_path is None else GivenState(state_path, there.files, unnamed, facts, found),
        )
        pods = (*there.listed, *there.owners())
        # With state files the pods get what these say; without, they are admitted in the order of the list.
        refused = node.resume(pods) if there.files else node.settle(pods, restored=False)
    gone = {decision.uid for decision in refused}
    running = tuple(pod for pod in pods if pod.metadata.uid not in gone)
    base = provenance_of(profile)
    provenance = msgspec.structs.replace(
        base,
        machine=machine_origin(chosen, name=machine, sysfs=sysfs, source=source, taken=described.taken),
        configuration=configuration_origin(loaded, config_path, overrides, described.fields),
        state=str(state_path or ""),
        pods=CountedPods(len(running), there.left_out),
        assumptions=(*base.assumptions, *assumed),
        passed_over=there.passed_over,
        contradictions=(
            *found,
            *check_started(node, described, facts, listed=there.listed, refused=refused),
        ),
    )
    notes, held = _idle_notes(there.files, frozenset(pod.metadata.uid for pod in pods))
    return StartedNode(node, running, (*warnings, *there.warnings), provenance, notes, held, config)


def _idle_notes(files: Mapping[str, bytes], known: frozenset[str]) -> tuple[tuple[str, ...], Bits]:
    """Return sentences about the CPUs that state files keep for other pods than those that are known, and these CPUs
    that the shared pool gets at the next admission."""
    if CPU_STATE_FILE not in files:
        return (), 0
    from podslice.node.checkpoints.content import read_content
    from podslice.node.cpu.checkpoint import CPUCheckpoint
    from podslice.node.cpu.ended import describe_idle, describe_pools
    from podslice.state_files.idle import find_idle

    checkpoint = read_content(files[CPU_STATE_FILE]).checkpoint
    if not isinstance(checkpoint, CPUCheckpoint):
        return (), 0
    state = find_idle(checkpoint, known, {})
    pools = (describe_pools(state.now, state.then),) if state.now != state.then else ()
    return (*(describe_idle(one, one.pod) for one in state.idle), *pools), state.then & ~state.now


def warnings_about(described: DescribedNode, config: KubeletConfig, *, configured: bool) -> Iterator[str]:
    """Yield what is assumed of a node that an object describes, and where its configuration contradicts the object."""
    for line in assumptions(described, configured=configured):
        yield f"assumed: {line}"
    yield from contradictions(config, described)


def contradictions(config: KubeletConfig, described: DescribedNode) -> Iterator[str]:
    """Yield where the given configuration contradicts the object that describes the node."""
    known = {field.encode_name: field.name for field in msgspec.structs.fields(KubeletConfig)}
    for name in ("topologyManagerPolicy", "topologyManagerScope"):
        reported, given = described.fields.get(name), getattr(config, known[name])
        if reported is not None and reported != given:
            yield f"{name} {given}, as configured; {described.machine.name or 'the object'} says {reported}"
