"""The options that say what runs on the node already: `--pods` and `--state`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from podslice.api.pod.spec import Pod
from podslice.cli.cross_check import labels_of
from podslice.cli.options.pods import pod_options, read_pods
from podslice.cli.output import with_options
from podslice.evidence.listed import find_node_name, sort_listed
from podslice.evidence.provenance import LeftOut
from podslice.node.checkpoints.names import ALLOCATED_STATE_FILE, DEVICE_STATE_FILE, MANAGER_STATE_FILES
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.api.manifests.loaded import LoadedPod
    from podslice.evidence.pod_resources import PodResources

F = TypeVar("F", bound=Callable[..., Any])


_DEVICE_OWNERS = (
    "the Device Manager's file is not there: owners of devices are those that the kubelet's PodResources names"
)


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
    given = read_pods(
        (pods_path,) if pods_path else (), replicas=replicas, strict=strict, validate=validate, none_is_fine=True
    )
    pods = [one.pod for one in given.pods]
    name = find_node_name((one.pod for one in asked), machine_name, pods)
    found = sort_listed(pods, name)
    listed, ended = found.running, frozenset(pod.metadata.uid for pod in found.ended)
    files: dict[str, bytes] = {}
    if state_path:
        from podslice.host.state.state_directory import read_state_directory

        files = read_state_directory(state_path)
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
    pods in order of admission with their granted resources. Return None where the directory is not an agent's. Raises
    `InputError` for one that cannot be read."""
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
