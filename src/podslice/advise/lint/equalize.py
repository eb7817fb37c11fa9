"""Equal requests and limits for a pod that is not Guaranteed: amounts that were tried, in words."""

from __future__ import annotations

from typing import NamedTuple

from podslice.advise.lint.attempt import helps
from podslice.advise.lint.model import count_cpus
from podslice.advise.lint.subject import ContainerPath, PodSubject
from podslice.api.pod.class_edits import (
    EXAMPLES,
    Amounts,
    closing_amounts,
    edit_words,
    gap_words,
    gaps_by_owner,
    with_amounts,
)
from podslice.api.pod.class_gaps import ClassGap
from podslice.api.pod.eligibility import integral_cpus
from podslice.api.pod.injected import injector_of

NONE_HELPS = "no equal amounts that were tried make the node admit the pod: podslice explain says what is in its way"


class Unequal(NamedTuple):
    """A container, or the pod as a whole (empty name), whose requests and limits are not equal."""

    name: str
    gaps: tuple[ClassGap, ...]

    @property
    def bare(self) -> bool:
        """Whether it has neither cpu nor memory."""
        return len(self.gaps) == len(EXAMPLES) and all(gap.missing and gap.request.is_zero() for gap in self.gaps)

    @property
    def path(self) -> str:
        """The field that differs, or the resources where there are several."""
        return self.gaps[0].path if len(self.gaps) == 1 else self.gaps[0].place

    @property
    def clauses(self) -> str:
        """What differs, after `has`."""
        return gap_words(self.gaps)


def whole_cpus(place: ContainerPath) -> int:
    """Return the whole CPUs that a container asks for with equal request and limit, 0 for none."""
    limit = place.limits.get("cpu")
    cpus = integral_cpus(limit)
    return cpus if cpus and place.requests.get("cpu") == limit else 0


def wanting_cpus(subject: PodSubject) -> list[ContainerPath]:
    """Return the containers that ask for whole CPUs as one does for exclusive ones, and run as long as the pod."""
    return [place for place in subject.places if place.kind != "init" and whole_cpus(place)]


def lost_cpus(subject: PodSubject) -> str:
    """Return `app 8 CPUs, db 4 CPUs`: what the containers ask for and do not own while the pod is Burstable."""
    return ", ".join(f"{place.container.name} {count_cpus(whole_cpus(place))}" for place in wanting_cpus(subject))


def unequal_parts(subject: PodSubject) -> list[Unequal]:
    """Return what keeps a pod from being Guaranteed, by container."""
    return [Unequal(name, tuple(gaps)) for name, gaps in gaps_by_owner(subject.pod, subject.gates).items()]


def equal_amounts(subject: PodSubject) -> dict[str, Amounts] | None:
    """Return equal requests and limits for every part of a pod that differs, with which the pod is Guaranteed, the
    containers that ask for whole CPUs are entitled to them, and the empty node admits it; None where none do.

    CPU limits go down to the request first, so that a sidecar that shares asks for no whole CPUs.
    """
    parts = unequal_parts(subject)
    owners = () if subject.admission.pod_level else wanting_cpus(subject)
    names = frozenset(place.container.name for place in owners)
    for lower_cpu in (True, False):
        changes = {part.name: closing_amounts(part.gaps, lower_cpu=lower_cpu) for part in parts}
        if helps(subject, with_amounts(subject.written, changes), names, guaranteed=True):
            return changes
    return None


def advice(subject: PodSubject, part: Unequal) -> str:
    """Return the change of one part that, with those of the other parts, makes the pod Guaranteed."""
    changes = equal_amounts(subject)
    if changes is None:
        return NONE_HELPS
    # What a container with whole CPUs needs of memory cannot be guessed.
    guess = part.name not in {place.container.name for place in wanting_cpus(subject)}
    effect = ""
    for gap in part.gaps:
        amount = changes[part.name][gap.resource]
        if not gap.missing and amount != gap.limit:
            effect = f"; CPU quota then throttles it at {amount}"
        if gap.resource == "cpu" and part.name and (cpus := integral_cpus(amount)):
            effect = f"; it then owns {count_cpus(cpus)} itself"
    of = f" of {part.name}" if part.name else ""
    text = f"set {edit_words(part.gaps, changes[part.name], guess=guess)}{of}{effect}"
    source = injector_of(part.name)
    if source is not None and source.settings:
        keys = [key for gap in part.gaps for key in source.settings[gap.resource]]
        text += f"; annotations of the pod that do so: {', '.join(keys)}"
    others = [name for name in changes if name != part.name]
    return f"{text}; together with {' and '.join(others)}" if others else text
