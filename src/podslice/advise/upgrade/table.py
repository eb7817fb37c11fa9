"""An upgrade as text: first the answer, then what changes, with its cause."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from podslice.advise.upgrade.engine import Change, Upgrade
from podslice.render.ansi import style
from podslice.render.prose import wrap_lines

_GATES = "featureGates."
_COUNTS = "Values of cgroup files count for containers that start after the restart."


def to_text(step: Upgrade, *, pods: int, width: int | None, wide: bool = False, most: int | None = None) -> str:
    """Return one step in lines of at most `width` columns; `wide` lists the other changes of the releases too. `most`:
    lines of each part, the harmful ones first."""
    return "\n".join(wrap_lines(line, width) if line else "" for line in _lines(step, pods, wide=wide, most=most))


def summary(step: Upgrade, pods: int) -> str:
    """Return the answer in one sentence."""
    way = f"Kubernetes {step.before} to {step.after}"
    harmed, changed = count_pods(one for one in step.running if one.harms), count_pods(step.running)
    starts = "does not start as it is" if step.errors else "starts"
    if step.errors and not step.running:
        return f"{way}: the {step.after} kubelet {starts}."
    if not pods:
        return f"{way}: the kubelet {starts}; no pods were given."
    then = " without these settings" if step.errors else ""
    fate = f"{harmed} of {pods} running pods {'is' if harmed == 1 else 'are'} harmed" if harmed else ""
    calm = f"{changed} of {pods} running pods {'changes' if changed == 1 else 'change'}, none is harmed"
    return f"{way}: the kubelet {starts};{then} {fate or (calm if changed else 'all running pods stay as they are')}."


def count_pods(changes: Iterable[Change]) -> int:
    """Return how many subjects have changes."""
    return len({(one.node, one.subject) for one in changes})


def _lines(step: Upgrade, pods: int, *, wide: bool, most: int | None) -> Iterator[str]:
    yield style(summary(step, pods), bold=True)
    if not step.proven:
        yield f"{step.after} is known from its specification only, not from recorded decisions."
    yield from (f"  {error}" for error in step.errors)
    yield from _section("Configuration", step.configuration)
    yield from _section("Running pods, after the restart with their state files", step.running, most)
    anew = [one for one in step.recreated if one not in step.running]
    yield from _section("Pods made anew, one after the other on the drained node", anew, most)
    if step.recreated and not anew:
        yield "  Pods that are made anew change in the same way."
    if any("cpu.max" in one.text or ": memory." in one.text for one in (*step.running, *step.recreated)):
        yield f"  {_COUNTS}"
    yield from _section(f"Back to {step.before}, on the files of the {step.after} kubelet", step.rollback, most)
    if step.also and wide:
        yield ""
        yield style(f"What else {step.after} does otherwise on such nodes", bold=True)
        yield from (f"  {text}" for text in step.also)
    elif step.also:
        yield ""
        yield f"{len(step.also)} changes of these releases can concern such a node: -o wide, docs/releases.md."


def _section(title: str, changes: Iterable[Change], most: int | None = None) -> Iterator[str]:
    """Yield a title and the changes below it, with what brings them about below those that have it in common; those of
    several subjects that say the same stand in one line."""
    if most is not None:
        changes = sorted(changes, key=lambda one: not one.harms)
    alike: dict[tuple[str, str, bool], list[str]] = {}
    for one in changes:
        alike.setdefault((one.text, one.cause, one.harms), []).append(f"{one.node} {one.subject}".lstrip())
    if not alike:
        return
    yield ""
    yield style(title, bold=True)
    shown = list(alike.items())[:most]
    for cause in dict.fromkeys(cause for (_, cause, _), _ in shown):
        for (text, brought_by, harms), subjects in shown:
            if brought_by == cause:
                names = _names(subjects, most)
                yield f"  {style(names, fg='red') if harms else names}: {text}"
        if cause:
            yield f"    cause: {cause}"
    if most is not None and len(alike) > most:
        yield f"  and {len(alike) - most} more such lines: -o wide"


def _names(subjects: Sequence[str], most: int | None) -> str:
    """Return several subjects in one line; what all begin with is said once."""
    lead = ""
    if len(subjects) > 1 and all(one.startswith(_GATES) for one in subjects):
        lead, subjects = "featureGates ", [one.removeprefix(_GATES) for one in subjects]
    more = f" and {len(subjects) - most} more" if most is not None and len(subjects) > most else ""
    return f"{lead}{', '.join(subjects[:most])}{more}"
