"""The options with which commands read pods, and the reading itself: everything wrong in any file is told at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from podslice.cli.output import with_options
from podslice.core.errors import InputError, raise_all

if TYPE_CHECKING:
    from podslice.k8s.manifest import LoadedPod

F = TypeVar("F", bound=Callable[..., Any])

strict_option = click.option(
    "--strict", is_flag=True, help="Unknown fields of pods and configurations are errors, not warnings."
)


def pod_options(command: F) -> F:
    """Adds what every command that decides about pods has: `--replicas`, `--strict`, `--no-validate`; `read_pods`
    takes them."""
    return with_options(
        command,
        click.option("--replicas", is_flag=True, help="Take as many pods of a workload as it asks for, not one."),
        strict_option,
        click.option(
            "--validate/--no-validate", default=True, help="Refuse pods that the API server refuses (default), or not."
        ),
    )


class ReadPods(NamedTuple):
    """Pods of files, and what a person should know about them."""

    pods: tuple[LoadedPod, ...]
    warnings: tuple[str, ...]


def read_pods(
    files: Iterable[str],
    *,
    replicas: bool = False,
    strict: bool = False,
    validate: bool = True,
    taken: Collection[str] = (),
    none_is_fine: bool = False,
    **_: Any,
) -> ReadPods:
    """The pods of all files with names and UIDs of their own, none of them `taken`. Other options are passed over.
    With `none_is_fine` a file may be an empty List.

    Raises `InputError` with everything that is wrong in any of them.
    """
    from podslice.k8s.manifest import load_pods, unique

    loaded: list[LoadedPod] = []
    errors: list[InputError] = []
    for file in files:
        try:
            loaded += load_pods(file, replicas=replicas, validate=validate, strict=strict, none_is_fine=none_is_fine)
        except InputError as error:
            errors.append(error)
    raise_all(errors)
    warnings = [warning for one in loaded for warning in one.warnings]
    if not replicas:
        warnings += [_one_of_many(one) for one in loaded if one.replicas > 1]
    warnings += [_one_more(one) for one in loaded if one.pod.metadata.uid in taken]
    return ReadPods(tuple(unique(loaded, taken=taken)), tuple(warnings))


def _one_of_many(loaded: LoadedPod) -> str:
    metadata = loaded.pod.metadata
    who = f"{loaded.kind} {metadata.namespace}/{metadata.name}"
    return f"{loaded.source}: {who} asks for {loaded.replicas} pods, one of them is counted; --replicas counts all"


def _one_more(loaded: LoadedPod) -> str:
    metadata = loaded.pod.metadata
    return f"{loaded.source}: {metadata.namespace}/{metadata.name} runs on the node already; this is one more such pod"
