"""The options with which commands choose the node they work on: machine, kubelet configuration, devices, and what
already runs there."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
import msgspec

from podslice.api.pod.spec import Pod
from podslice.cli.completion import complete_setting
from podslice.cli.machine_option import Sources, machine_options, resolve_node
from podslice.cli.output import with_options
from podslice.cli.pods_option import pod_options, read_pods
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy, check_policy
from podslice.config.validation import validate
from podslice.machine.devices import DeviceInventory
from podslice.node.checkpoints.names import ALLOCATED_STATE_FILE, MANAGER_STATE_FILES
from podslice.node.container import STATE_FILE_OF_STAGE
from podslice.node.decision import Decision
from podslice.node.node import Node
from podslice.node_objects.described import DescribedNode
from podslice.values.errors import InputError, StartError, raise_all
from podslice.values.gate_table import gate_warnings
from podslice.values.quirks import PROFILES

if TYPE_CHECKING:
    from podslice.config.kubelet_file import LoadedConfig

F = TypeVar("F", bound=Callable[..., Any])
_NOTHING: Mapping[str, Any] = {}
POD_LEVEL_GATE = "PodLevelResourceManagers"
_WITH_GATE = (("cpu", "v3"), ("memory", "v2"))
"""Formats that only a kubelet with this gate writes."""


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
profile_option = click.option(
    "--profile",
    type=click.Choice(list(PROFILES)),
    default="podslice",
    show_default=True,
    help="kubelet-1.36 reproduces upstream's defects as well (docs/deviations.md).",
)
devices_option = click.option(
    "--devices", "devices_path", metavar="FILE", help="Plugin devices of the node (docs/devices.md)."
)
predicates_option = click.option(
    "--predicates/--no-predicates", default=True, help="Also check OutOfcpu, OutOfmemory and the like."
)


def node_options(command: F) -> F:
    """Adds the machine options, `--config`, `--set`, `--policy`, `--profile`, `--devices` and `--predicates`; the
    command gets them as keyword arguments and hands them to `start_node`."""
    options = (
        click.option(
            "--config", "config_path", metavar="FILE", help="KubeletConfiguration (default: the kubelet's defaults)."
        ),
        set_option,
        policy_option,
        profile_option,
        devices_option,
        predicates_option,
    )
    return machine_options(with_options(command, *options))


def running_options(command: F) -> F:
    """Adds `--pods` and `--state`, what runs on the node already, and the options about pods."""
    return with_options(
        command,
        pod_options,
        click.option(
            "--pods",
            "pods_path",
            metavar="FILE",
            help="Pods that run on the node, in order (kubectl get pods -o yaml); ended ones do not count.",
        ),
        click.option(
            "--state",
            "state_path",
            metavar="DIR",
            type=click.Path(path_type=Path),
            help="State files of a kubelet, or of an agent, which has its pods in there too: who owns what now; owners "
            "that --pods does not name count as well, unless DIR shows that they are gone.",
        ),
    )


class Running(NamedTuple):
    """What runs on a node already: the `listed` pods of `--pods`, UIDs of those in it that have `ended`, the state
    files of `--state` by name (empty without it), the UIDs of pods that the kubelet `knows` (None: nothing tells), and
    what a person should know."""

    listed: tuple[Pod, ...]
    ended: frozenset[str]
    files: dict[str, bytes]
    knows: frozenset[str] | None
    warnings: tuple[str, ...]

    def owners(self) -> list[Pod]:
        """Stand-ins for owners in the files that nobody lists and that may be there. Raises `InputError`."""
        return [pod for pod in _owners(self.files, self.listed) if self._may_be_there(pod.metadata.uid)]

    def _may_be_there(self, uid: str) -> bool:
        return uid not in self.ended and (self.knows is None or uid in self.knows)

    def refused(self, decisions: Iterable[Decision]) -> tuple[str, ...]:
        """Warnings about those of them that the node does not take."""
        return tuple(f"{d.namespace}/{d.name} runs, but this node refuses it: {d.reason}" for d in decisions)


def read_running(
    *,
    pods_path: str | None = None,
    state_path: Path | None = None,
    replicas: bool = False,
    strict: bool = False,
    validate: bool = True,
    **_: Any,
) -> Running:
    """What the `running_options` name; other options are passed over. Raises `InputError`."""
    from podslice.host.state.state_directory import read_state_directory
    from podslice.state_files.running import ENDED

    given = read_pods(
        (pods_path,) if pods_path else (), replicas=replicas, strict=strict, validate=validate, none_is_fine=True
    )
    listed = tuple(one.pod for one in given.pods if one.pod.status.phase not in ENDED)
    ended = frozenset(one.pod.metadata.uid for one in given.pods if one.pod.status.phase in ENDED)
    files = read_state_directory(state_path) if state_path else {}
    warnings = (*given.warnings, *_several_nodes(listed))
    if state_path is not None and (own := agents_pods(state_path)) is not None:
        named = {pod.metadata.uid for pod in listed} | ended
        listed = (*(pod for uid, pod in own.items() if uid not in named), *listed)
        return Running(listed, ended, files, frozenset(own), warnings)
    knows = known_pods(state_path, files) if state_path else None
    return Running(listed, ended, files, knows, warnings)


class StartedNode(NamedTuple):
    """A node ready to work with. `warnings` are for people; `running` are the pods on it."""

    node: Node
    running: tuple[Pod, ...]
    warnings: tuple[str, ...]


def start_node(
    *,
    machine: str | None = None,
    sysfs: str | None = None,
    source: Sources = None,
    config_path: str | None = None,
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
) -> StartedNode:
    """The node the options describe, with its running pods on it. Raises `InputError`."""
    described = resolve_node(machine, sysfs, source)
    chosen = described.machine
    config, warnings = load_config_and_gates(config_path, overrides, strict=strict, told=described.fields)
    warnings = (*warnings_about(described, config, configured=config_path is not None), *warnings)
    devices = load_devices(devices_path) or described.devices
    policy = load_policy(policy_path, profile)
    unnamed = not_named(
        configured=bool(config_path or overrides), machine=any(x is not None for x in (machine, sysfs, source))
    )
    there = read_running(
        pods_path=pods_path, state_path=state_path, replicas=replicas, strict=strict, validate=validate
    )
    node = started(
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
        state=None if state_path is None else GivenState(state_path, there.files, unnamed),
    )
    pods = (*there.listed, *there.owners())
    refused = node.resume(pods) if there.files else node.settle(pods, restored=False)
    gone = {decision.uid for decision in refused}
    running = tuple(pod for pod in pods if pod.metadata.uid not in gone)
    return StartedNode(node, running, (*warnings, *there.warnings, *there.refused(refused)))


def assumptions(described: DescribedNode, *, configured: bool) -> Iterator[str]:
    """What is assumed of a node that an object describes; of its configuration only where none is given."""
    for line in (*described.assumed, *(() if configured else described.settled)):
        yield f"assumed: {line}"


def warnings_about(described: DescribedNode, config: KubeletConfig, *, configured: bool) -> Iterator[str]:
    """What is assumed of a node that an object describes, and where the configuration says otherwise than it."""
    yield from assumptions(described, configured=configured)
    yield from _contradicted(config, described)


def _contradicted(config: KubeletConfig, described: DescribedNode) -> Iterator[str]:
    """Where the configuration that was given says otherwise than the object that describes the node."""
    known = {field.encode_name: field.name for field in msgspec.structs.fields(KubeletConfig)}
    for name in ("topologyManagerPolicy", "topologyManagerScope"):
        told, given = described.fields.get(name), getattr(config, known[name])
        if told is not None and told != given:
            yield f"{name} {given}, as configured; {described.machine.name or 'the object'} says {told}"


def _several_nodes(pods: tuple[Pod, ...]) -> tuple[str, ...]:
    """A warning when the pods that should run on one node say that they run on several."""
    names = sorted({pod.spec.node_name for pod in pods} - {""})
    if len(names) < 2:
        return ()
    return (f"--pods names {len(names)} nodes ({', '.join(names[:3])}); all its pods count as running on this one",)


def _owners(files: dict[str, bytes], listed: tuple[Pod, ...]) -> list[Pod]:
    from podslice.node.checkpoints.content import read_content
    from podslice.node.checkpoints.stand_ins import stand_ins
    from podslice.values.go.gojson import CheckpointError

    contents = {}
    for name in files.keys() & {*MANAGER_STATE_FILES, ALLOCATED_STATE_FILE}:
        data = files[name]
        try:
            contents[name] = read_content(data)
        except CheckpointError as error:
            raise InputError(str(error), source=name, remedy="podslice state repair may help") from None
    return stand_ins(contents, frozenset(pod.metadata.uid for pod in listed))


def agents_pods(directory: Path) -> dict[str, Pod] | None:
    """The pods of an agent's state directory by UID, in order of admission and with the resources that were granted to
    them, before them what holds the CPUs of claims; None for a directory that is none. Raises `InputError` for one that
    cannot be read."""
    from podslice.agent.dra.claimfiles import ClaimFiles
    from podslice.host.state.podfiles import PodFiles

    try:
        pods, problems = PodFiles(directory).read()
        claims, unread = ClaimFiles(directory).read()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=str(error.filename or directory)) from None
    if problems or unread:
        raise InputError([*problems, *unread][0])
    holders = {claim.holder: pod for claim in claims.values() if (pod := claim.holder_pod()) is not None}
    return {**holders, **pods} or None


def known_pods(directory: Path, files: Mapping[str, bytes]) -> frozenset[str] | None:
    """UIDs of the pods that the kubelet of a directory knows; None where nothing tells.

    What refused and removed pods held stays in its files until the next admission. But it makes a folder for each pod
    that it takes and removes it with the pod, and it grants nothing to pods that it refuses.
    """
    from podslice.node.checkpoints.allocation import load
    from podslice.values.go.gojson import CheckpointError

    try:
        return frozenset(entry.name for entry in (directory / "pods").iterdir())
    except OSError:
        pass
    try:
        granted = files.get(ALLOCATED_STATE_FILE)
        return None if granted is None else frozenset(load(granted))
    except CheckpointError:
        return None


def load_config(
    path: str | None, overrides: tuple[str, ...], *, strict: bool = False, told: Mapping[str, Any] = _NOTHING
) -> LoadedConfig:
    """A configuration with `--set FIELD=VALUE` on top; `told` are fields where no file is given. Raises `InputError`,
    for unknown fields only when `strict`."""
    from podslice.config.kubelet_file import API_VERSION, KIND, ConfigDocument, load_document, read_document
    from podslice.reading.files import read_text

    document = ConfigDocument({"apiVersion": API_VERSION, "kind": KIND, **told})
    try:
        if path is not None:
            document = read_document(read_text(path))
        for override in overrides:
            field, equals, value = override.partition("=")
            if not equals or not field:
                raise InputError(
                    f"{override!r} is not FIELD=VALUE", path="--set", remedy="--set cpuManagerPolicy=static"
                )
            _override(document.data, field, value)
        loaded = load_document(document)
    except InputError as error:
        raise error.at(source=path or "") from None
    if strict:
        raise_all(InputError(warning, source=path or "--set") for warning in loaded.warnings)
    return loaded


def load_config_and_gates(
    path: str | None, overrides: tuple[str, ...], *, strict: bool = False, told: Mapping[str, Any] = _NOTHING
) -> tuple[KubeletConfig, tuple[str, ...]]:
    """As `load_config`, with what the kubelet would log about its gates among the warnings."""
    loaded = load_config(path, overrides, strict=strict, told=told)
    return loaded.config, (*loaded.warnings, *gate_warnings(loaded.config.feature_gates))


def _override(data: dict[str, Any], field: str, value: str) -> None:
    """Set a field; `featureGates.MemoryQoS` is a key of a map, and what comes after the first dot is that key."""
    from podslice.config.schema import is_text
    from podslice.reading.yaml import load_documents

    documents = load_documents(value, f"--set {field}")
    given = value if is_text(field) else documents[0] if documents else ""
    name, dot, key = field.partition(".")
    if not dot:
        data[name] = given
        return
    known = data.get(name)
    if known is not None and not isinstance(known, dict):
        raise InputError(f"{name} is not a map", path=f"--set {field}", remedy=f"--set {name}=VALUE")
    data[name] = {**(known or {}), key: given}


def load_devices(path: str | None) -> DeviceInventory | None:
    """The devices of a node from a file. Raises `InputError`."""
    if path is None:
        return None
    from podslice.machine.devices import inventory_from_data
    from podslice.reading.files import read_text
    from podslice.reading.yaml import load_documents

    documents = load_documents(read_text(path), path)
    if not documents:
        raise InputError("holds no devices", source=path, remedy="docs/devices.md shows the form")
    return inventory_from_data(documents[0], source=path)


def load_policy(path: str | None, profile: str) -> PodslicePolicy:
    """The policy of a file, for a profile; the empty one without a file. Raises `InputError`."""
    if path is None:
        return NO_POLICY
    from podslice.config.policy_file import load_policy as load

    policy = load(path)
    try:
        check_policy(policy, PROFILES[profile])
    except InputError as error:
        raise error.at(source=path) from None
    return policy


class GivenState(NamedTuple):
    """What `--state` names: the folder and its files; `unnamed` is what `not_named` says of the other options."""

    directory: Path
    files: Mapping[str, bytes]
    unnamed: str = ""


def not_named(*, configured: bool, machine: bool) -> str:
    """How to name what else belongs to state files, where no option does: configuration and machine of the kubelet
    that wrote them. Empty where both are named."""
    config = () if configured else ("its configuration with --config",)
    missing = config if machine else (*config, "its machine with --sysfs, --machine or --from")
    return f"name the kubelet that wrote it: {', '.join(missing)}" if missing else ""


def started(make: Callable[[], Node], config: KubeletConfig, *, state: GivenState | None = None) -> Node:
    """The node, or an `InputError` that says why a kubelet would not start; of the files in `state`, which one."""
    raise_all(InputError(text, path="kubelet configuration") for text in dict.fromkeys(map(str, validate(config))))
    try:
        return make()
    except StartError as error:
        if state is not None and error.stage in STATE_FILE_OF_STAGE:
            raise _unusable_state(error, state, config) from None
        raise InputError(
            f"a kubelet would not start: {error.message}", path=f"kubelet {error.stage}", remedy=error.remedy
        ) from None


def _unusable_state(error: StartError, state: GivenState, config: KubeletConfig) -> InputError:
    """The kubelet's message says to delete its own file; what was given may be a copy, and can be repaired. An intact
    file of a kubelet that was only not named needs no repair, which would take away what its pods hold."""
    name = STATE_FILE_OF_STAGE[error.stage]
    return InputError(
        f"a kubelet would not start with it: {error.facts.get('problem', error.message)}",
        source=str(state.directory / name),
        remedy=_whose(state, name, config) or error.remedy,
    )


def _whose(state: GivenState, name: str, config: KubeletConfig) -> str:
    """Which kubelet an intact file is of, as far as the options do not say it; else empty."""
    with_gate = written_with_gate(state.files.get(name, b""))
    if with_gate is None:
        return ""
    if state.unnamed:
        return state.unnamed
    if with_gate and not config.feature_gates.get(POD_LEVEL_GATE, False):
        return f"it was written with the gate on: --set featureGates.{POD_LEVEL_GATE}=true"
    return ""


def written_with_gate(data: bytes) -> bool | None:
    """Whether the kubelet that wrote a CPU or Memory Manager's file had the gate PodLevelResourceManagers on; None for
    another file, and for one that is not intact."""
    from podslice.node.checkpoints.content import read_content
    from podslice.values.go.gojson import CheckpointError

    try:
        content = read_content(data)
    except CheckpointError:
        return None
    if not content.intact or content.kind not in ("cpu", "memory"):
        return None
    return (content.kind, content.version) in _WITH_GATE
