"""Lines for the user about what was read from files: objects passed over, or not counted, and what is assumed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from podslice.api.manifests.found import FoundPod, PassedOver
from podslice.api.manifests.objects import ManifestObject
from podslice.values.errors import InputError

_MOST_NAMES = 3
_LONGEST_NAME = 80
HOOK = "helm.sh/hook"


def passed_over_errors(passed: Iterable[PassedOver]) -> Iterator[InputError]:
    """Yield one error for each input and reason. As warnings they say the same."""
    groups: dict[tuple[str, str], list[ManifestObject]] = {}
    for one in passed:
        groups.setdefault((one.object.place.input, one.why), []).append(one.object)
    for (source, why), objects in groups.items():
        yield InputError(f"passed over: {name_objects(objects)}: {why}", source=source)


def describe_doubles(doubles: Iterable[ManifestObject]) -> Iterator[str]:
    """Yield a line for each input about objects that are not counted, since what they make is in the files too."""
    for source, objects in _by_input(doubles):
        verb, whose = ("is", "its") if len(objects) == 1 else ("are", "their")
        yield f"{source}: {name_objects(objects)} {verb} not counted, {whose} pods or owners are in the input too"


def describe_idle(found: Iterable[FoundPod]) -> Iterator[str]:
    """Yield a line for each input about objects that ask for no pods with any of their templates."""
    pods = list(found)
    awake = {id(one.object) for one in pods if one.replicas}
    for source, objects in _by_input(one.object for one in pods if id(one.object) not in awake):
        yield f"{source}: {name_objects(objects)} {'asks' if len(objects) == 1 else 'ask'} for 0 pods"


def describe_hooks(found: Iterable[FoundPod]) -> Iterator[str]:
    """Yield a line for each input about pods of Helm hooks."""
    hooks: dict[str, list[ManifestObject]] = {}
    for one in found:
        annotations = one.object.metadata.get("annotations")
        if isinstance(annotations, dict) and isinstance(annotations.get(HOOK), str):
            hooks.setdefault(annotations[HOOK], []).append(one.object)
    for hook, all_objects in hooks.items():
        for source, objects in _by_input(all_objects):
            what = "is a Helm hook" if len(objects) == 1 else "are Helm hooks"
            yield f"{source}: {name_objects(objects)} {what} ({hook}), not part of what runs; counted all the same"


def describe_notes(found: Iterable[FoundPod]) -> Iterator[str]:
    """Yield a line for each input and assumption."""
    notes: dict[str, list[ManifestObject]] = {}
    for one in found:
        for note in one.notes:
            notes.setdefault(note, []).append(one.object)
    for note, all_objects in notes.items():
        for source, objects in _by_input(all_objects):
            yield f"{source}: {name_objects(objects)}: {note}"


def name_objects(objects: Sequence[ManifestObject]) -> str:
    """Return kinds and names of objects, with their number where not all are named: `3 JobSets (a, b, c)`."""
    kinds: dict[str, dict[str, None]] = {}
    for one in objects:
        kinds.setdefault(one.kind, {})[one.name] = None
    return ", ".join(_name_kind(kind, list(names)) for kind, names in kinds.items())


def _name_kind(kind: str, names: list[str]) -> str:
    kind, names = kind[:_LONGEST_NAME], [name[:_LONGEST_NAME] for name in names]
    if len(names) == 1:
        return f"{kind} {names[0]}"
    some = ", ".join(names[:_MOST_NAMES]) + (", …" if len(names) > _MOST_NAMES else "")
    return f"{len(names)} {kind} ({some})"


def _by_input(objects: Iterable[ManifestObject]) -> Iterator[tuple[str, list[ManifestObject]]]:
    found: dict[str, dict[int, ManifestObject]] = {}
    for one in objects:
        found.setdefault(one.place.input, {})[id(one)] = one
    for source, members in found.items():
        yield source, list(members.values())
