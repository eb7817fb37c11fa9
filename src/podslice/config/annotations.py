"""Annotations by which a pod requests behaviour of a PodslicePolicy (docs/policy.md).

    podslice.io/resize: shrink-delay=30,below-baseline=allow     items for every container
    podslice.io/resize: db=below-baseline=allow                  one for the container db, which wins there
    podslice.io/movable: "true,db=false"

An annotation counts where the policy configures its section and lets the pod's namespace use annotations; elsewhere it
is ignored without a message, because a pod may run on many clusters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Final, Literal, NamedTuple, get_args

from podslice.api.pod.claim_holder import CLAIMED, is_holder
from podslice.api.pod.demand import GUARANTEED, pod_qos
from podslice.api.pod.mixed import ALL, MixedProblem, MixedShare, split_request
from podslice.api.pod.spec import Pod
from podslice.config.policy import IMPLICIT_CLASS, Defragmentation, ExclusiveResize, PodslicePolicy
from podslice.values.errors import PodsliceError, RefusalKind
from podslice.values.gates import FeatureGates
from podslice.values.golang import quote
from podslice.values.reasons import INVALID_ANNOTATION

PREFIX: Final = "podslice.io/"
RESIZE: Final = f"{PREFIX}resize"
MOVABLE: Final = f"{PREFIX}movable"
CPU_CLASS: Final = f"{PREFIX}cpu-class"
SMT: Final = f"{PREFIX}smt"
IRQ: Final = f"{PREFIX}irq"
ISOLATION: Final = f"{PREFIX}isolation"
CPU_POWER: Final = f"{PREFIX}cpu-power"
CACHE_CLASS: Final = f"{PREFIX}cache-class"
IRQ_CLAIM: Final = "claim:"
"""Prefix of an `IRQ` value that claims the interrupts of devices."""
MIXED: Final = f"{PREFIX}mixed-cpus"
RESOURCES: Final = f"{PREFIX}resources"
"""JSON that stands for a pod's specification where the runtime has no other source for it (docs/agent.md)."""
REFUSED: Final = f"{PREFIX}refused"
"""Set by an agent on a pod that it refuses."""
REFUSED_CONDITION: Final = f"{PREFIX}Refused"
"""The condition of a refused pod, which no kubelet overwrites."""
GUARDS: Final = (IRQ, ISOLATION, CPU_POWER, CACHE_CLASS)
"""Requests of containers with exclusive CPUs to guards (docs/isolation.md)."""
KNOWN: Final = frozenset({CLAIMED, RESIZE, MOVABLE, CPU_CLASS, SMT, MIXED, *GUARDS, RESOURCES, REFUSED})
LARGEST: Final = 16 << 10
"""Most bytes of one annotation."""
LONGEST_DELAY: Final = 300
"""Most seconds for which a container may keep CPUs that it gives back."""
INVALID_KIND: Final = RefusalKind("invalid-annotation", 'annotation "{key}": {problem}', INVALID_ANNOTATION)
_SHOWN = 40
_OF_POLICY = (CLAIMED, RESIZE, MOVABLE, CPU_CLASS, SMT, MIXED, *GUARDS)
_IRQ_VALUES = ("ban", "keep", "housekeeping")
_ISOLATIONS = ("shared", "root", "isolated")
_SMT_USES = ("use", "hide")
_MOST_DIGITS = 4
_GATES = FeatureGates.from_overrides({})
_DELAY, _BELOW = _OPTIONS = ("shrink-delay", "below-baseline")

Movable = Literal["true", "false", "pinned-too"]
_MOVES: dict[str, Movable] = {move: move for move in get_args(Movable)}


class AnnotationProblem(NamedTuple):
    """An error in one annotation of a pod."""

    key: str
    problem: str

    @property
    def message(self) -> str:
        """One line for a message, as the pod status would say it."""
        return INVALID_KIND.message.format(**self._asdict())


class _ProblemError(PodsliceError):
    """Raised for an invalid annotation; its argument is the problem."""


class ResizeRequest(NamedTuple):
    """The annotated options of a pod's resizes.

    `below`: containers that may give up CPUs promised to them; `delays`: seconds, by container, for which they keep
    CPUs that they give back; `pod_below`: the pod as a whole may give up promised CPUs too.
    """

    below: frozenset[str] = frozenset()
    delays: Mapping[str, float] = {}
    pod_below: bool = False


# What counts


def requested_resize(policy: PodslicePolicy, pod: Pod) -> ResizeRequest:
    """Return the pod's options for its resizes; the defaults where it may not annotate, or the annotation is
    invalid."""
    # A section equal to its default counts as not configured, so its annotations are ignored.
    if policy.resize == ExclusiveResize() or not _has_annotation(policy, pod, RESIZE):
        return ResizeRequest()
    try:
        items = list(_parse_resize_items(pod, (pod.metadata.annotations or {})[RESIZE]))
    except _ProblemError:
        return ResizeRequest()
    chosen = {
        (name, option): value for option in (_DELAY, _BELOW) for name, value in _resolve_option(pod, items, option)
    }
    below = frozenset(name for name, option in chosen if option == _BELOW)
    delays = {name: float(value) for (name, option), value in chosen.items() if option == _DELAY}
    return ResizeRequest(below, delays, any(not item.container and item.option == _BELOW for item in items))


def container_movability(policy: PodslicePolicy, pod: Pod) -> dict[str, Movable]:
    """Return, by container, whether the policy lets containers be moved: all, none, or those named by the pod's
    annotation. Without a section `defrag`, none."""
    rules = policy.defrag
    names = _container_names(pod)
    # A holder's CPUs are those of the devices allocated to its claim, so they must not change.
    if is_holder(pod.metadata.uid):
        return dict.fromkeys(names, "false")
    if rules.movable != "annotated":
        return dict.fromkeys(names, "true" if rules.movable == "all" else "false")
    found: dict[str, Movable] = dict.fromkeys(names, "false")
    if rules == Defragmentation() or not _has_annotation(policy, pod, MOVABLE):
        return found
    try:
        items = list(_parse_items(pod, (pod.metadata.annotations or {})[MOVABLE], _check_move))
    except _ProblemError:
        return found
    found.update((name, _MOVES[value]) for name, value in _resolve_option(pod, items, ""))
    return found


def requested_classes(policy: PodslicePolicy, pod: Pod) -> dict[str, str]:
    """Return the CPU class that the pod requests, by container, and for the pod as a whole under an empty name; `NAME!`
    where it is required. Empty where the pod may not annotate, or the annotation is invalid."""
    if not policy.cpu_classes or not _has_annotation(policy, pod, CPU_CLASS):
        return {}
    try:
        items = list(_parse_items(pod, (pod.metadata.annotations or {})[CPU_CLASS], partial(_check_class, policy)))
    except _ProblemError:
        return {}
    whole = {item.container: item.value for item in items if not item.container}
    return whole | dict(_resolve_option(pod, items, ""))


def requested_guard(policy: PodslicePolicy, pod: Pod, key: str) -> dict[str, str]:
    """Return the value that the pod requests of the guard `key`, by container, and for the pod as a whole under an
    empty name. Empty where the pod may not annotate, or the annotation is invalid."""
    if policy.guards is None or not _has_annotation(policy, pod, key):
        return {}
    try:
        items = list(_parse_items(pod, (pod.metadata.annotations or {})[key], partial(_check_guard, policy, key)))
    except _ProblemError:
        return {}
    whole = {item.container: item.value for item in items if not item.container}
    return whole | dict(_resolve_option(pod, items, ""))


def containers_hiding_smt(policy: PodslicePolicy, pod: Pod) -> frozenset[str]:
    """Return the containers of a pod that run on one thread of each of their cores."""
    if not policy.cpu_classes or not _has_annotation(policy, pod, SMT):
        return frozenset()
    try:
        items = list(_parse_items(pod, (pod.metadata.annotations or {})[SMT], _check_smt))
    except _ProblemError:
        return frozenset()
    return frozenset(name for name, value in _resolve_option(pod, items, "") if value == "hide")


def mixed_shares(policy: PodslicePolicy, pod: Pod) -> dict[str, MixedShare]:
    """Return, by container, how much of its request is exclusive and how much shared, for containers with both. Empty
    where the pod may not annotate, or the annotation is invalid."""
    if policy.mixed is None or not _has_annotation(policy, pod, MIXED):
        return {}
    try:
        return dict(_parse_mixed(policy, pod, (pod.metadata.annotations or {})[MIXED]))
    except _ProblemError:
        return {}


def policy_annotations(annotations: Mapping[str, str]) -> dict[str, str]:
    """Return the annotations that a policy reads, each cut behind the byte that shows it is too long."""
    return {key: annotations[key][: LARGEST + 1] for key in _OF_POLICY if key in annotations}


# What is wrong


def annotation_problems(policy: PodslicePolicy, pod: Pod) -> Iterator[AnnotationProblem]:
    """Yield the errors in the annotations of a pod that count under this policy."""
    annotations = pod.metadata.annotations or {}
    guards = ((key, policy.guards is not None, partial(_check_guard, policy, key)) for key in GUARDS)
    readers: list[tuple[str, bool, Callable[[Pod, str], Iterable[object]]]] = [
        (RESIZE, policy.resize != ExclusiveResize(), _parse_resize_items),
        (MOVABLE, policy.defrag != Defragmentation(), partial(_parse_items, check=_check_move)),
        (CPU_CLASS, bool(policy.cpu_classes), partial(_parse_items, check=partial(_check_class, policy))),
        (SMT, bool(policy.cpu_classes), partial(_parse_items, check=_check_smt)),
        (MIXED, policy.mixed is not None, partial(_parse_mixed, policy)),
        *((key, configured, partial(_parse_items, check=check)) for key, configured, check in guards),
    ]
    for key, configured, read in readers:
        if configured and _has_annotation(policy, pod, key):
            try:
                list(read(pod, annotations[key]))
            except _ProblemError as problem:
                yield AnnotationProblem(key, str(problem))


def may_annotate(policy: PodslicePolicy, pod: Pod) -> bool:
    """Whether the policy lets pods of this pod's namespace use annotations."""
    namespace = pod.metadata.namespace or "default"
    return any(fnmatchcase(namespace, glob) for glob in policy.annotations.namespaces)


def _has_annotation(policy: PodslicePolicy, pod: Pod, key: str) -> bool:
    annotations = pod.metadata.annotations
    return bool(annotations) and key in (annotations or {}) and may_annotate(policy, pod)


# Grammar


class _Item(NamedTuple):
    """A value for one container, or for all where `container` is empty; `option` names the setting, empty where an
    annotation has only one."""

    container: str
    option: str
    value: str


def _parse_items(pod: Pod, text: str, check: Callable[[str], None]) -> Iterator[_Item]:
    """Parse `ITEM[,ITEM...]`, ITEM = `VALUE` or `CONTAINER=VALUE`."""
    seen = set[str]()
    for word in _split_items(text):
        before, equals, after = word.partition("=")
        container, value = (before, after) if equals else ("", before)
        check(value)
        _check_container(pod, container, named=bool(equals))
        if container in seen:
            raise _ProblemError(f"has two values for {_describe_target(container)}")
        seen.add(container)
        yield _Item(container, "", value)


def _parse_resize_items(pod: Pod, text: str) -> Iterator[_Item]:
    """Parse the same with `OPTION=VALUE` for VALUE; each option at most once for a container."""
    seen = set[tuple[str, str]]()
    for word in _split_items(text):
        container, option, value = "", *_split_value(word)
        if option not in _OPTIONS or _split_value(value)[0] in _OPTIONS:
            # A container may be called like an option: the first word is an option's name only where no option follows
            # it.
            container, (option, value) = option, _split_value(value)
            _check_container(pod, container, named=True)
        _check_option(option, value)
        if (container, option) in seen:
            raise _ProblemError(f"has two values of {option} for {_describe_target(container)}")
        seen.add((container, option))
        yield _Item(container, option, value)


def _parse_mixed(policy: PodslicePolicy, pod: Pod, text: str) -> Iterator[tuple[str, MixedShare]]:
    items = list(_parse_items(pod, text, _check_count))
    guaranteed = pod_qos(pod, _GATES) == GUARANTEED
    specified = {one.name: one for one in (*pod.spec.init_containers, *pod.spec.containers)}
    for name, count in _resolve_option(pod, items, ""):
        share = split_request(specified[name], count, pod_guaranteed=guaranteed)
        if isinstance(share, MixedProblem):
            raise _ProblemError(share.text)
        if not share.remainder and policy.mixed is not None and not policy.mixed.free:
            raise _ProblemError(
                f"leaves container {name} nothing to share, and mixed.free lets no container share without"
            )
        yield name, share


def _split_items(text: str) -> Iterator[str]:
    if len(text.encode("utf-8", errors="replace")) > LARGEST:
        raise _ProblemError(f"is longer than {LARGEST} bytes")
    for item in text.split(","):
        word = item.strip()
        if not word:
            raise _ProblemError("has an empty item")
        yield word


def _split_value(text: str) -> tuple[str, str]:
    before, _, after = text.partition("=")
    return before, after


def _check_container(pod: Pod, container: str, *, named: bool) -> None:
    if named and container not in _container_names(pod):
        raise _ProblemError(f"names container {_quote_short(container)}, which the pod does not have")


def _check_move(value: str) -> None:
    if value not in _MOVES:
        raise _ProblemError(f"{_quote_short(value)} is none of {', '.join(_MOVES)}")


def _check_class(policy: PodslicePolicy, value: str) -> None:
    name = value.removesuffix("!")
    known = sorted({one.name for one in policy.cpu_classes} | {IMPLICIT_CLASS})
    if name not in known:
        raise _ProblemError(f"{_quote_short(name)} is not a CPU class of {', '.join(known)}")


def _check_smt(value: str) -> None:
    if value not in _SMT_USES:
        raise _ProblemError(f"{_quote_short(value)} is none of {', '.join(_SMT_USES)}")


def _check_guard(policy: PodslicePolicy, key: str, value: str) -> None:
    rules = policy.guards
    if key == IRQ and value.startswith(IRQ_CLAIM) and rules is not None:
        if value.removeprefix(IRQ_CLAIM) not in rules.claimable:
            raise _ProblemError(f"{_quote_short(value)} claims what guards.claimable does not name")
        return
    profiles = () if rules is None else rules.power_profiles
    caches = () if rules is None else rules.cache_classes
    known = {IRQ: (*_IRQ_VALUES, f"{IRQ_CLAIM}GLOB"), ISOLATION: _ISOLATIONS, CPU_POWER: tuple(profiles)}
    words = known.get(key, tuple(caches))
    if value not in words or value.startswith(IRQ_CLAIM):
        nothing = f"guards.{'powerProfiles' if key == CPU_POWER else 'cacheClasses'}, which has none"
        raise _ProblemError(f"{_quote_short(value)} is none of {', '.join(words) or nothing}")


def _check_count(value: str) -> None:
    digits = value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS
    if value != ALL and not (digits and int(value)):
        raise _ProblemError(f"{_quote_short(value)} is neither a number of CPUs nor {ALL}")


def _check_option(option: str, value: str) -> None:
    if option == _BELOW:
        if value != "allow":
            raise _ProblemError(f"{_BELOW} {_quote_short(value)} is not allow")
    elif option == _DELAY:
        digits = value.isascii() and value.isdigit() and len(value) <= 3
        if not digits or int(value) > LONGEST_DELAY:
            raise _ProblemError(
                f"{_DELAY} {_quote_short(value)} is not a whole number of seconds from 0 to {LONGEST_DELAY}"
            )
    else:
        raise _ProblemError(f"{_quote_short(option)} is neither {_DELAY} nor {_BELOW}")


def _resolve_option(pod: Pod, items: list[_Item], option: str) -> Iterator[tuple[str, str]]:
    """Yield the value of an option for each container that has one: its own, else that for all."""
    mine = {item.container: item.value for item in items if item.option == option}
    for name in _container_names(pod):
        if name in mine or "" in mine:
            yield name, mine.get(name, mine.get("", ""))


def _container_names(pod: Pod) -> list[str]:
    return [container.name for container in (*pod.spec.init_containers, *pod.spec.containers)]


def _describe_target(container: str) -> str:
    return f"container {container}" if container else "all containers"


def _quote_short(text: str) -> str:
    return quote(text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "...")
