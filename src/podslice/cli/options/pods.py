"""The options with which commands read pods, and the reading itself: everything wrong in any file is reported at
once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click
from msgspec.structs import replace

from podslice.cli.output import with_options

if TYPE_CHECKING:
    from podslice.api.manifests.loaded import LoadedPod
    from podslice.evidence.provenance import Provenance
    from podslice.machine.devices import DeviceInventory

F = TypeVar("F", bound=Callable[..., Any])

strict_option = click.option(
    "--strict",
    is_flag=True,
    help="Unknown fields of pods and configurations are errors, not warnings; so are objects whose pods are not known.",
)


def pod_options(command: F) -> F:
    """Add the options of every command that decides about pods: `--replicas`, `--strict`, `--no-validate`; `read_pods`
    takes them."""
    return with_options(
        command,
        click.option(
            "--replicas", is_flag=True, help="Count every replica of a workload; without it a workload is one pod."
        ),
        strict_option,
        click.option(
            "--validate/--no-validate", default=True, help="Refuse pods that the API server refuses (default), or not."
        ),
    )


class ReadPods(NamedTuple):
    """Pods of files with unique names and UIDs, warnings about them for the user, the pods as they were written, and
    lines about objects that were passed over, which are among the warnings."""

    pods: tuple[LoadedPod, ...]
    warnings: tuple[str, ...]
    written: tuple[LoadedPod, ...]
    passed_over: tuple[str, ...] = ()

    def beside(self, taken: Collection[str]) -> ReadPods:
        """Return the pods with UIDs that are not in `taken`, those of the pods that run on the node."""
        from podslice.api.manifests.loaded import assign_names

        more = tuple(_one_more(one) for one in self.written if one.pod.metadata.uid in taken)
        pods = tuple(assign_names(list(self.written), taken=taken))
        return self._replace(pods=pods, warnings=(*self.warnings, *more))

    def tell(self, provenance: Provenance) -> Provenance:
        """Return the provenance of an answer about these pods, with what was passed over beside them."""
        return replace(provenance, passed_over=(*provenance.passed_over, *self.passed_over))


def read_pods(
    files: Iterable[str],
    *,
    replicas: bool = False,
    strict: bool = False,
    validate: bool = True,
    none_is_fine: bool = False,
    without_ended: bool = False,
    **_: Any,
) -> ReadPods:
    """Read the pods of all files, with unique names and UIDs; `ReadPods.beside` makes them unique on a node as well.
    Other options are ignored.

    With `none_is_fine` the files list what is on a node: a list may be empty, and may contain pods that have ended. In
    other files such pods count like all others, with a warning where they are beside pods that have not ended;
    `without_ended` leaves them out.

    Raises `InputError` with everything that is wrong in any of them.
    """
    from podslice.api.manifests.loaded import assign_names
    from podslice.api.manifests.manifest import load_manifests
    from podslice.api.manifests.pipeline import ReadOptions

    loaded, notes, passed_over = load_manifests(files, ReadOptions(replicas, validate, strict, none_is_fine))
    ended = [] if none_is_fine else _ended_beside_others(loaded)
    if without_ended:
        # By identity: pods of different files may be equal.
        over = set(map(id, ended))
        loaded = [one for one in loaded if id(one) not in over]
    warnings = [*notes, *(warning for one in loaded for warning in one.warnings)]
    if not replicas:
        warnings += _of_many([one for one in loaded if one.replicas > 1])
    if ended:
        warnings.append(_over(ended, "they are left out" if without_ended else "they are counted all the same"))
    return ReadPods(tuple(assign_names(loaded)), tuple(warnings), tuple(loaded), passed_over)


def unknown_devices(pods: Iterable[LoadedPod], known: DeviceInventory) -> tuple[str, ...]:
    """Return warnings about devices that pods request and the node has none of. A kubelet admits such pods without
    them, as their plugin may be away (memory-device 3.4, step 6); without the warning, a forgotten `--devices` would
    look like an admission."""
    from podslice.machine.devices import is_extended_resource_name

    names = {resource.resource for resource in known.resources}
    asking: dict[str, str] = {}
    for one in pods:
        metadata = one.pod.metadata
        made = one.pod.status.extended_resource_claim_status
        claimed = {each.resource_name for each in made.request_mappings} if made is not None else set()
        for container in (*one.pod.spec.init_containers, *one.pod.spec.containers):
            for resource in container.resources.limits or ():
                if resource not in names | claimed and is_extended_resource_name(resource):
                    asking.setdefault(resource, f"{metadata.namespace}/{metadata.name}")
    return tuple(
        f"{resource}, which {who} asks for, is ignored: no device of the node is known to offer it "
        "(--devices FILE describes them)"
        for resource, who in asking.items()
    )


def _ended_beside_others(loaded: list[LoadedPod]) -> list[LoadedPod]:
    """Return the pods that have ended; none where all have, since then the command is about them."""
    from podslice.evidence.listed import ENDED

    ended = [one for one in loaded if one.pod.status.phase in ENDED]
    return ended if len(ended) < len(loaded) else []


def _over(ended: list[LoadedPod], what: str) -> str:
    from podslice.values.quantity import plural

    names = [f"{one.pod.metadata.namespace}/{one.pod.metadata.name}" for one in ended]
    some = ", ".join(names[:3]) + (" …" if len(names) > 3 else "")
    who = f"{plural(len(ended), 'pod')} {'has' if len(ended) == 1 else 'have'} ended"
    return f"{ended[0].source}: {who} ({some}): {what}"


_MOST_LINES = 3


def _of_many(loaded: list[LoadedPod]) -> list[str]:
    """Return lines about workloads of which one pod is counted: a few by name, many together."""
    if len(loaded) <= _MOST_LINES:
        return [_one_of_many(one) for one in loaded]
    total = sum(one.replicas for one in loaded)
    names = ", ".join(
        f"{one.kind} {one.pod.metadata.namespace}/{one.pod.metadata.name}" for one in loaded[:_MOST_LINES]
    )
    line = f"{len(loaded)} workloads ask for {total} pods ({names}, …), one of each is counted; --replicas counts all"
    return [f"{loaded[0].source}: {line}" if len({one.source for one in loaded}) == 1 else line]


def _one_of_many(loaded: LoadedPod) -> str:
    metadata = loaded.pod.metadata
    who = f"{loaded.kind} {metadata.namespace}/{metadata.name}"
    return f"{loaded.source}: {who} asks for {loaded.replicas} pods, one of them is counted; --replicas counts all"


def _one_more(loaded: LoadedPod) -> str:
    metadata = loaded.pod.metadata
    return f"{loaded.source}: {metadata.namespace}/{metadata.name} runs on the node already; this is one more such pod"
