"""`podslice why`: why a pod of a node was refused, waits, or runs where it does."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from podslice.cli.options.bundle import bundle_in_use
from podslice.cli.options.config import find_source
from podslice.cli.options.node import node_options, start_node
from podslice.cli.options.pods import read_pods, unknown_devices
from podslice.cli.options.release import DEFAULT_PROFILE, profile_of_node
from podslice.cli.options.running import running_options
from podslice.cli.output import OUTPUT, emit, print_warnings, prose_width, quiet_option
from podslice.evidence.contradiction import doubt_node
from podslice.evidence.provenance import Provenance
from podslice.host.bundle.layout import EVENTS
from podslice.render.ansi import echo
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.advise.why.reported import PodEventLine
    from podslice.api.manifests.loaded import LoadedPod
    from podslice.host.bundle.opened import Bundle
    from podslice.node.node import Node

_NO_STATE = (
    "who owns which CPUs: without state files the pods are placed anew, in the order of the list (podslice capture has "
    "them)"
)
_NO_PODS = "what runs on the node: without --pods it is empty"
_NO_MACHINE = "the machine: nothing was tried again (--node BUNDLE, or --machine, --sysfs, --from)"
_NO_DOUBT_OF_OWNERS = ("memory-rounding", "release")
"""Subjects of assumptions on which it does not rest who owns which CPUs."""


@click.command()
@click.argument("pod", metavar="POD|FILE")
@node_options
@running_options
@click.option("--events", "events_path", metavar="FILE", help="Events of the pod (kubectl get events -o json).")
@click.option("--fixes/--no-fixes", default=True, help="Search for changes that would admit a refused pod.")
@quiet_option
@OUTPUT("table", "wide")
def why(*, pod: str, events_path: str | None, fixes: bool, output: str, **options: Any) -> None:
    """Say why POD is as it is: why its kubelet refused it, why it has no node, why it waits, or which CPUs it has. POD
    is NAME or NAMESPACE/NAME in the pods of --node or --pods, or a file with the pod as the API server has it.

    The first line is the cause. A refusal is tried again on the node as it was then, as far as it is known: without the
    pods that started later. What the kubelet said, what podslice expects, and what both rest on are apart.

    `kubectl podslice why` gathers all of it by itself.

    \b
    Examples:
      podslice why shop/web-0 --node node7.podslice.tar.gz
      podslice why web-0.yaml --node node7.podslice.tar.gz -o wide
      podslice why web-0 --pods running.yaml --from node.yaml --config kubelet.json

    Exit codes: 0 it runs, waits as usual or has succeeded, 1 it was refused, has no node or fails, 2 bad input.
    """
    bundle = bundle_in_use()
    listed = _listed(options["pods_path"], options)
    asked = _find(pod, listed, options)
    if events_path is None and bundle is not None and (found := bundle.find(EVENTS)) is not None:
        events_path = str(found)
    missing = () if bundle is None else missing_of(bundle)
    named = any(options[name] for name in ("machine", "sysfs", "source"))
    options["profile"] = _profile(options, bundle)
    node, provenance, lacking = _start(asked, options) if named else (None, Provenance(), (_NO_MACHINE,))
    unknown = (*lacking, *missing)
    sys.exit(answer_why(asked, listed, node, _events(events_path, asked), unknown, provenance,
                        fixes=fixes, output=output))  # fmt: skip


def missing_of(bundle: Bundle) -> tuple[str, ...]:
    """Return a line for each part that a bundle does not have."""
    return (*(f"{part}: {reason}" for part, reason in bundle.manifest.missing), *bundle.unknown)


def answer_bundle(bundle: Bundle, asked: LoadedPod, *, fixes: bool, output: str) -> int:
    """Print the answer about a pod from a bundle alone, and return the exit code."""
    config, pods = bundle.config, bundle.pods
    options: dict[str, Any] = {
        "source": bundle.sources or None,
        "config_path": None if config is None else find_source(str(config), bundle),
        "policy_path": None if bundle.policy is None else str(bundle.policy),
        "devices_path": None if bundle.devices is None else str(bundle.devices),
        "pods_path": None if pods is None else str(pods),
        "state_path": bundle.state,
        "profile": profile_of_node(DEFAULT_PROFILE, bundle.objects),
        # The API server has taken these pods, and a bundle leaves out some of their fields.
        "validate": False,
    }
    missing = missing_of(bundle)
    node, provenance, lacking = _start(asked, options) if options["source"] else (None, Provenance(), (_NO_MACHINE,))
    found = bundle.find(EVENTS)
    events = _events(None if found is None else str(found), asked)
    listed = _listed(options["pods_path"], options)
    return answer_why(asked, listed, node, events, (*lacking, *missing), provenance, fixes=fixes, output=output)


def answer_why(
    asked: LoadedPod,
    listed: Iterable[LoadedPod],
    node: Node | None,
    events: tuple[PodEventLine, ...],
    unknown: Sequence[str],
    provenance: Provenance,
    *,
    fixes: bool,
    output: str,
) -> int:
    """Print the answer, and return the exit code."""
    from podslice.advise.why.diagnosis import RUNS, WAITING, Asked, diagnose
    from podslice.advise.why.documents import diagnosis_document
    from podslice.advise.why.reported import read_reported
    from podslice.advise.why.table import why_text

    reported = read_reported(asked.data)._replace(
        name=asked.pod.metadata.name, namespace=asked.pod.metadata.namespace or "default"
    )
    others = [read_reported(one.data) for one in listed]
    doubt = doubt_node(provenance.contradictions)
    assumed = any(one.about not in _NO_DOUBT_OF_OWNERS for one in provenance.assumptions)
    certain = bool(provenance.state) and not assumed and doubt is None
    foreign = () if node is None else unknown_devices((asked,), node.view.devices)
    about = Asked(asked.pod, reported, others, certain and not foreign, provenance.contradictions)
    # What helps on another machine is not advice.
    diagnosis = diagnose(node, about, fixes=fixes and doubt is None)
    document = diagnosis_document(reported, diagnosis, events, (*unknown, *foreign), provenance)
    if output in ("table", "wide"):
        echo(why_text(document, diagnosis, wide=output == "wide", width=prose_width()))
    else:
        emit(document, output)
    good = diagnosis.code in (RUNS, WAITING) or reported.phase == "Succeeded"
    return 0 if good else 1


def _start(asked: LoadedPod, options: dict[str, Any]) -> tuple[Node | None, Provenance, tuple[str, ...]]:
    """Start the node. Where that fails, what was reported is an answer all the same."""
    try:
        node, _, warnings, provenance, *_ = start_node(asked=(asked,), **options)
    except InputError as error:
        return None, Provenance(), tuple(f"the node, which cannot be started: {one}" for one in error.errors)
    print_warnings(warnings)
    lacking = () if provenance.state else (_NO_STATE,)
    return node, provenance, lacking if options["pods_path"] else (*lacking, _NO_PODS)


def _profile(options: Mapping[str, Any], bundle: Bundle | None) -> str:
    """Return the profile: of the release that the node states, where no option names one."""
    given = click.get_current_context().get_parameter_source
    profile: str = options["profile"]
    if given("kubernetes") is ParameterSource.COMMANDLINE or given("profile") is ParameterSource.COMMANDLINE:
        return profile
    objects = () if bundle is None else bundle.objects
    return profile_of_node(profile, (*(options["source"] or ()), *objects))


def _listed(path: str | None, options: dict[str, Any]) -> tuple[LoadedPod, ...]:
    how = {**options, "validate": False}
    return read_pods((path,), none_is_fine=True, **how).pods if path is not None else ()


def _find(name: str, listed: Sequence[LoadedPod], options: dict[str, Any]) -> LoadedPod:
    """Return the pod of this name, or the one of a file. Raises `InputError`."""
    if name == "-" or Path(name).is_file():
        found = read_pods((name,), **{**options, "validate": False}).pods
        if len(found) != 1:
            names = ", ".join(one.pod.metadata.full_name for one in found[:3])
            raise InputError(f"holds {len(found)} pods ({names})", source=name, remedy="name one of them, and give the "
                             "file with --pods")  # fmt: skip
        return found[0]
    matching = [one for one in listed if name in (one.pod.metadata.full_name, one.pod.metadata.name)]
    if len(matching) == 1:
        return matching[0]
    if matching:
        names = ", ".join(one.pod.metadata.full_name for one in matching[:3])
        raise InputError(f"{name!r} is the name of {len(matching)} pods", path="POD", remedy=f"write one of {names}")
    if not listed:
        raise InputError(f"{name!r} is not a file, and no pods are given", path="POD", remedy="--node BUNDLE or --pods")
    from podslice.values.errors import did_you_mean

    some = ", ".join(one.pod.metadata.full_name for one in listed[:3])
    remedy = did_you_mean(
        name, (one.pod.metadata.full_name for one in listed), f"there are {len(listed)}, such as {some}"
    )
    raise InputError(f"{name!r} is none of the pods, and no file", path="POD", remedy=remedy)


def _events(path: str | None, asked: LoadedPod) -> tuple[PodEventLine, ...]:
    """Return the events of the pod. Raises `InputError`."""
    if path is None:
        return ()
    from podslice.advise.why.reported import read_events
    from podslice.api.manifests.fields import part_of
    from podslice.reading.files import read_text
    from podslice.reading.lists import flatten_lists
    from podslice.reading.yaml import load_documents

    found = [one for document in load_documents(read_text(path), path) for one in flatten_lists(document)]
    metadata = asked.pod.metadata
    mine = []
    for event in found:
        about = part_of(part_of(event).get("involvedObject") or part_of(event).get("regarding"))
        same = about.get("name") == metadata.name and about.get("namespace", "default") == (
            metadata.namespace or "default"
        )
        if about.get("kind") == "Pod" and same and about.get("uid", metadata.uid) == metadata.uid:
            mine.append(event)
    return read_events(mine)
