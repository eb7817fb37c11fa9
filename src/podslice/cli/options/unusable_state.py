"""Why a node does not start with the state files that are given for it, and what to do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from podslice.config.kubelet import KubeletConfig
from podslice.config.validation import validate
from podslice.evidence.contradiction import Contradiction, StateFacts, doubt_machine, doubt_node
from podslice.node.container import STATE_FILE_OF_STAGE
from podslice.node.node import Node
from podslice.values.errors import InputError, StartError, raise_all

if TYPE_CHECKING:
    pass


POD_LEVEL_GATE = "PodLevelResourceManagers"


_WITH_GATE = (("cpu", "v3"), ("memory", "v2"))
"""Formats that only a kubelet with this gate writes."""


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
