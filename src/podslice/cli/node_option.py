"""The options that choose the node of a command: machine, kubelet configuration, devices, and the pods that run there
already."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import click
import msgspec

from podslice.api.pod.spec import Pod
from podslice.cli.completion import complete_setting
from podslice.cli.config_option import ConfigSource, config_options, read_source
from podslice.cli.cross_check import check_files, check_started, labels_of, read_contents, with_memory_of_files
from podslice.cli.machine_option import Sources, machine_options, resolve_node
from podslice.cli.output import with_options
from podslice.cli.pods_option import pod_options, read_pods
from podslice.cli.provenance import assumptions, configuration_origin, machine_origin, stating
from podslice.config.kubelet import KubeletConfig
from podslice.config.policy import NO_POLICY, PodslicePolicy, check_policy
from podslice.config.validation import validate
from podslice.config.without_effect import settings_without_effect
from podslice.evidence.contradiction import Contradiction, doubt_machine, doubt_node
from podslice.evidence.listed import find_node_name, sort_listed
from podslice.evidence.provenance import CountedPods, LeftOut, Provenance, provenance_of
from podslice.evidence.state_check import StateFacts
from podslice.machine.devices import DeviceInventory
from podslice.node.checkpoints.names import ALLOCATED_STATE_FILE, CPU_STATE_FILE, DEVICE_STATE_FILE, MANAGER_STATE_FILES
from podslice.node.container import STATE_FILE_OF_STAGE
from podslice.node.node import Node
from podslice.node_objects.described import DescribedNode
from podslice.values.cpuset import Bits
from podslice.values.errors import InputError, StartError, raise_all
from podslice.values.gate_table import gate_warnings
from podslice.values.gates import gates_of
from podslice.values.quirks import PROFILE_NAMES, PROFILE_RELEASES, PROFILES, profile_for

if TYPE_CHECKING:
    from podslice.api.manifests.loaded import LoadedPod
    from podslice.config.kubelet_file import LoadedConfig
    from podslice.evidence.pod_resources import PodResources

F = TypeVar("F", bound=Callable[..., Any])
_NOTHING: Mapping[str, Any] = {}
DEFAULT_PROFILE = "podslice"
POD_LEVEL_GATE = "PodLevelResourceManagers"
_DEVICE_OWNERS = (
    "the Device Manager's file is not there: owners of devices are those that the kubelet's PodResources names"
)
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
_profile_option = click.option(
    "--profile",
    type=click.Choice(PROFILE_NAMES),
    default=DEFAULT_PROFILE,
    show_default=True,
    help="kubelet-1.36 reproduces upstream's defects as well (docs/deviations.md); the others those of their release.",
)
_kubernetes_option = click.option(
    "--kubernetes",
    metavar="VERSION",
    default="",
    help="The release whose kubelet this is, such as 1.34 or v1.34.9; auto: the one that the Node object of --from or "
    "of a bundle states. Default: that of the profile, for `why` auto where a node states it (docs/releases.md).",
)


def profile_option(command: F) -> F:
    """Add `--profile` and `--kubernetes` to a command; it gets the profile that the two choose."""

    @wraps(command)
    def with_release(*, profile: str, kubernetes: str, **options: Any) -> Any:
        if kubernetes == "auto":
            kubernetes = _reported_release(options.get("source") or options.get("sources"))
        try:
            chosen = profile_for(profile, kubernetes) if kubernetes else profile
        except InputError as error:
            raise error.at(path="--kubernetes") from None
        return command(profile=chosen, **options)

    return with_options(cast("F", with_release), _profile_option, _kubernetes_option)


def _reported_release(source: Sources) -> str:
    """Return the version of the kubelet that the objects of `--from` or of a bundle describe. Raises `InputError`
    without one."""
    found = reported_version(source)
    if not found:
        raise InputError(
            "auto needs a Node object that states its kubelet's version",
            path="--kubernetes",
            remedy="--from node.yaml, or name the release: --kubernetes 1.34",
        )
    return found


def reported_version(source: Sources) -> str:
    """Return the version of the kubelet by the first Node object among the sources; empty where none states it."""
    from podslice.host.machine_files import load_described

    for one in source or ():
        if one != "-":  # standard input is read once, for the machine
            with suppress(InputError):  # said where the machine is read
                reported = load_described(one).reported
                if reported is not None and reported.kubelet_version:
                    return reported.kubelet_version
    return ""


def profile_of_node(profile: str, source: Sources) -> str:
    """Return the profile for the release that a Node object states; the same where it states none, or one that is not
    known."""
    version = reported_version(source)
    with suppress(InputError):
        return profile_for(profile, version) if version else profile
    return profile


devices_option = click.option(
    "--devices", "devices_path", metavar="FILE", help="Plugin devices of the node (docs/devices.md)."
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


def running_options(command: F) -> F:
    """Add `--pods` and `--state`, which give what runs on the node already, and the options about pods."""
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
            help="Directory of a kubelet's or an agent's state files, which say who owns what now. Owners that --pods "
            "does not name count too, unless DIR shows that they are gone.",
        ),
    )


class Running(NamedTuple):
    """Pods and state that a node has already: the `listed` pods of `--pods`, UIDs of those in it that have `ended`,
    those that run `elsewhere`, all listed pods that are `left_out`, the state files of `--state` by name (empty without
    it), the UIDs of pods that the kubelet `knows` (None: unknown), warnings for the user, lines about objects of the
    list that were passed over, and the kubelet's `answers` beside the state files (None: there are none)."""

    listed: tuple[Pod, ...]
    ended: frozenset[str]
    elsewhere: tuple[Pod, ...]
    left_out: tuple[LeftOut, ...]
    files: dict[str, bytes]
    knows: frozenset[str] | None
    warnings: tuple[str, ...]
    passed_over: tuple[str, ...] = ()
    answers: PodResources | None = None

    def owners(self) -> list[Pod]:
        """Return stand-ins for owners in the files that no list names and that may still run. Raises `InputError`."""
        return [pod for pod in _owners(self.files, self.listed) if self._may_be_there(pod.metadata.uid)]

    def _may_be_there(self, uid: str) -> bool:
        return uid not in self.ended and (self.knows is None or uid in self.knows)


def read_running(
    *,
    pods_path: str | None = None,
    state_path: Path | None = None,
    replicas: bool = False,
    strict: bool = False,
    validate: bool = True,
    asked: Iterable[LoadedPod] = (),
    machine_name: str = "",
    **_: Any,
) -> Running:
    """Read what the `running_options` name; other options are ignored. The node that pods `asked` about are bound to,
    or else the machine of this name, says which listed pods are of other nodes. Raises `InputError`."""
    from podslice.host.state.state_directory import read_state_directory

    given = read_pods(
        (pods_path,) if pods_path else (), replicas=replicas, strict=strict, validate=validate, none_is_fine=True
    )
    pods = [one.pod for one in given.pods]
    name = find_node_name((one.pod for one in asked), machine_name, pods)
    found = sort_listed(pods, name)
    listed, ended = found.running, frozenset(pod.metadata.uid for pod in found.ended)
    files = read_state_directory(state_path) if state_path else {}
    warnings = (*given.warnings, *_several_nodes(listed))
    if state_path is not None and (own := read_agent_pods(state_path)) is not None:
        named = {pod.metadata.uid for pod in listed} | ended
        listed = (*(pod for uid, pod in own.items() if uid not in named), *listed)
        return Running(
            listed, ended, found.elsewhere, found.left_out, files, frozenset(own), warnings, given.passed_over
        )
    # A kubelet keeps no specifications, so its owners become stand-ins (`owners`); an agent's folder has them.
    knows = find_known_pods(state_path, files) if state_path else None
    answers = _read_answers(state_path) if state_path else None
    if answers is not None and answers.devices and DEVICE_STATE_FILE not in files:
        from podslice.evidence.pod_resources import rebuild_device_file

        uids = {label: uid for uid, label in labels_of(listed).items()}
        files = {**files, DEVICE_STATE_FILE: rebuild_device_file(answers, uids)}
        warnings = (*warnings, _DEVICE_OWNERS)
    return Running(listed, ended, found.elsewhere, found.left_out, files, knows, warnings, given.passed_over, answers)


def _read_answers(folder: Path) -> PodResources | None:
    """Return what the kubelet's PodResources API answered, where a file beside the state files has it."""
    from podslice.evidence.pod_resources import POD_RESOURCES_FILE, read_pod_resources
    from podslice.host.state.statefile import read_state

    path = folder / POD_RESOURCES_FILE
    data = read_state(path)
    return None if data is None else read_pod_resources(data, str(path))


class StartedNode(NamedTuple):
    """A started node, the pods that run on it, warnings for the user, what the node rests on, the CPUs that the state
    files keep for pods that are gone, and sentences about them."""

    node: Node
    running: tuple[Pod, ...]
    warnings: tuple[str, ...]
    provenance: Provenance
    notes: tuple[str, ...] = ()
    held: Bits = 0


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
    devices = load_devices(devices_path) or described.devices
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
    return StartedNode(node, running, (*warnings, *there.warnings), provenance, notes, held)


def _idle_notes(files: Mapping[str, bytes], known: frozenset[str]) -> tuple[tuple[str, ...], Bits]:
    """Return sentences about the CPUs that state files keep for other pods than those that are known, and these CPUs
    that the shared pool gets at the next admission."""
    from podslice.node.checkpoints.content import read_content
    from podslice.node.cpu.checkpoint import CPUCheckpoint
    from podslice.node.cpu.ended import describe_idle, describe_pools
    from podslice.state_files.idle import find_idle

    checkpoint = read_content(files[CPU_STATE_FILE]).checkpoint if CPU_STATE_FILE in files else None
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


def _several_nodes(pods: tuple[Pod, ...]) -> tuple[str, ...]:
    """Return a warning when the pods, which should run on one node, name several."""
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


def read_agent_pods(directory: Path) -> dict[str, Pod] | None:
    """Read the pods of an agent's state directory by UID: first the stand-ins that hold the CPUs of claims, then the
    pods in order of admission with their granted resources. None where the directory is no agent's. Raises `InputError`
    for one that cannot be read."""
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


def find_known_pods(directory: Path, files: Mapping[str, bytes]) -> frozenset[str] | None:
    """Return the UIDs of the pods that the kubelet of a directory knows; None where that cannot be seen.

    What refused and removed pods held stays in the managers' files until the next admission. But a kubelet makes a
    folder for each pod that it takes and removes it with the pod, and it grants nothing to pods that it refuses.
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
    source: ConfigSource | None,
    overrides: tuple[str, ...],
    *,
    strict: bool = False,
    defaults: Mapping[str, Any] = _NOTHING,
) -> LoadedConfig:
    """Load a configuration and apply `--set FIELD=VALUE`; `defaults` are its fields where no file is given. Raises
    `InputError`, for unknown fields only when `strict`."""
    from podslice.config.carriers.layer import API_VERSION, KIND, ConfigDocument, merge_layers
    from podslice.config.kubelet_file import load_document

    document = ConfigDocument({"apiVersion": API_VERSION, "kind": KIND, **defaults})
    try:
        if source is not None:
            document = merge_layers(read_source(source))
        for override in overrides:
            field, equals, value = override.partition("=")
            if not equals or not field:
                raise InputError(
                    f"{override!r} is not FIELD=VALUE", path="--set", remedy="--set cpuManagerPolicy=static"
                )
            _override(document.data, field, value)
        loaded = load_document(document)
    except InputError as error:
        raise error.at(source="" if source is None else str(source)) from None
    if strict:
        raise_all(InputError(warning, source=str(source or "--set")) for warning in loaded.warnings)
    return loaded


def load_config_and_gates(
    source: ConfigSource | None,
    overrides: tuple[str, ...],
    *,
    strict: bool = False,
    defaults: Mapping[str, Any] = _NOTHING,
    profile: str = "podslice",
) -> tuple[LoadedConfig, tuple[str, ...]]:
    """Load as `load_config`, and add to the warnings what the kubelet of the profile would log about its gates, and the
    settings that have no effect beside the others."""
    loaded = load_config(source, overrides, strict=strict, defaults=defaults)
    minor = PROFILE_RELEASES[profile].minor
    gates = {name: gate.default for name, gate in gates_of(minor).items() if gate is not None}
    idle = (one.sentence for one in settings_without_effect(loaded.config, gates))
    return loaded, (*loaded.warnings, *gate_warnings(loaded.config.feature_gates, minor), *idle)


def _override(data: dict[str, Any], field: str, value: str) -> None:
    """Set a field, or with `FIELD.KEY` the entry of a map (`featureGates.MemoryQoS`); a key may contain dots."""
    from podslice.config.schema import is_text
    from podslice.reading.yaml import load_documents

    documents = load_documents(value, f"--set {field}")
    # Text fields take the value as it is: reservedSystemCPUs=0 is the list "0", not a number.
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
    """Load the devices of a node from a file. Raises `InputError`."""
    if path is None:
        return None
    from podslice.machine.devices import inventory_from_data
    from podslice.machine.listings.nvidia_topo import from_nvidia_topo, is_nvidia_topo
    from podslice.reading.files import read_text
    from podslice.reading.yaml import load_documents

    text = read_text(path)
    if is_nvidia_topo(text):
        return from_nvidia_topo(text, path)
    documents = load_documents(text, path)
    if not documents:
        raise InputError("holds no devices", source=path, remedy="docs/devices.md shows the form")
    return inventory_from_data(documents[0], source=path)


def load_policy(path: str | None, profile: str) -> PodslicePolicy:
    """Load the policy of a file and check it against a profile; empty without a file. Raises `InputError`."""
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
    """The folder and the files of `--state`; `unnamed` is `describe_missing_options` of the other options, `facts` are
    the files beside the node that is given for them, `contradictions` what is known to speak against it."""

    directory: Path
    files: Mapping[str, bytes]
    unnamed: str
    facts: StateFacts
    contradictions: tuple[Contradiction, ...] = ()


def describe_missing_options(*, configured: bool, machine: bool) -> str:
    """Return the remedy where configuration or machine of the kubelet that wrote state files are not given; empty where
    both are."""
    config = () if configured else ("its configuration with --config",)
    missing = config if machine else (*config, "its machine with --sysfs, --machine or --from")
    return f"name the kubelet that wrote it: {', '.join(missing)}" if missing else ""


def start_or_explain(make: Callable[[], Node], config: KubeletConfig, *, state: GivenState | None = None) -> Node:
    """Return the node. Raises an `InputError` that says why a kubelet would not start, and which file in `state` is at
    fault."""
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
    """Return the error for an unusable state file, with our own remedy.

    The kubelet's message says to delete its own file; the given one may be a copy, and can be repaired. An intact file
    of a kubelet whose options are missing needs no repair, which would drop what its pods hold. Nor does the file of
    another machine: the machine may be the one that is wrong.
    """
    from podslice.evidence.memory_check import check_memory

    name = STATE_FILE_OF_STAGE[error.stage]
    facts = state.facts
    amounts = check_memory(facts.contents, facts.machine, measured=facts.measured)
    doubt = doubt_node(state.contradictions) or doubt_machine(amounts)
    what = "configuration" if doubt is not None and doubt.about == "configuration" else "machine"
    whose = "" if doubt is None else f"is the {what} that you name the one of these files? the notes compare them"
    unusable = InputError(
        f"a kubelet would not start with it: {error.facts.get('problem', error.message)}",
        source=str(state.directory / name),
        remedy=_whose(state, name, config) or whose or error.remedy,
    )
    for one in amounts:
        if one not in state.contradictions:
            unusable.add_note(str(one))
    return unusable


def _whose(state: GivenState, name: str, config: KubeletConfig) -> str:
    """Return which options describe the kubelet that wrote an intact file; empty where they are given, or for
    others."""
    with_gate = has_pod_level_gate(state.files.get(name, b""))
    if with_gate is None:
        return ""
    if state.unnamed:
        return state.unnamed
    if with_gate and not config.feature_gates.get(POD_LEVEL_GATE, False):
        return f"it was written with the gate on: --set featureGates.{POD_LEVEL_GATE}=true"
    return ""


def has_pod_level_gate(data: bytes) -> bool | None:
    """Whether the kubelet that wrote a CPU or Memory Manager's file had the gate PodLevelResourceManagers on. None for
    other files, and for files that are not intact."""
    from podslice.node.checkpoints.content import read_content
    from podslice.values.go.gojson import CheckpointError

    try:
        content = read_content(data)
    except CheckpointError:
        return None
    if not content.intact or content.kind not in ("cpu", "memory"):
        return None
    return (content.kind, content.version) in _WITH_GATE
