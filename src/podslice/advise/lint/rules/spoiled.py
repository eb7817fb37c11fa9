"""Rules about containers that keep the others of their pod from owning CPUs: sidecars, injected ones among them."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.lint.equalize import Unequal, advice, lost_cpus, unequal_parts, wanting_cpus
from podslice.advise.lint.model import INFO, WARNING, Problem, Rule
from podslice.advise.lint.subject import PodSubject
from podslice.api.pod.demand import BURSTABLE, GUARANTEED, is_pod_level_resources_set
from podslice.api.pod.injected import Injector, expected_injectors, injector_of
from podslice.api.pod.spec import Pod


def _spoiled(subject: PodSubject) -> Iterator[Problem]:
    if subject.qos != BURSTABLE or is_pod_level_resources_set(subject.pod):
        return
    parts = unequal_parts(subject)
    owners = {place.container.name for place in wanting_cpus(subject)}
    if not owners or subject.static_cpus is False:
        yield from _lone_bare_container(subject, parts)
        return
    # A DRA driver may give CPUs, whatever the class; PS101 reports a single field.
    if any(place.container.resources.claims for place in subject.places) or sum(len(one.gaps) for one in parts) == 1:
        return
    for part in parts:
        # PS103 reports the memory of the containers that ask for whole CPUs.
        if part.name not in owners:
            yield Problem(
                part.path,
                f"{_described(subject, part)}: the pod is Burstable, and the static CPU manager gives no container of "
                f"it CPUs of its own ({lost_cpus(subject)})",
                advice(subject, part),
                WARNING if subject.static_cpus else INFO,
            )


def _described(subject: PodSubject, part: Unequal) -> str:
    kind = next(place.kind for place in subject.places if place.container.name == part.name)
    source = injector_of(part.name)
    who = f"{'init container' if kind == 'init' else kind} {part.name}"
    who += f" (added by {source.title})" if source else ""
    return f"{who} has {'no resources' if part.bare else part.clauses}"


def _lone_bare_container(subject: PodSubject, parts: list[Unequal]) -> Iterator[Problem]:
    """Report the one container without resources beside others that are equal; no exclusive CPUs are lost."""
    rest = len(subject.places) - 1
    if len(parts) == 1 and rest and parts[0].bare:
        (part,) = parts
        others = "the other container has" if rest == 1 else f"the other {rest} containers have"
        yield Problem(
            part.path,
            f"{_described(subject, part)} while {others} equal requests and limits: the pod is Burstable",
            advice(subject, part),
            INFO,
        )


def _injected_later(subject: PodSubject) -> Iterator[Problem]:
    if subject.qos != GUARANTEED or subject.static_cpus is False or subject.admission.pod_level:
        return
    if not wanting_cpus(subject):
        return
    for source in expected_injectors(subject.written):
        if source.settings and not _sets_equal_amounts(subject, source):
            keys = [key for pair in source.settings.values() for key in pair]
            yield Problem(
                f"metadata.{_mark(subject.written, source)}[{source.request}]",
                f"{source.title} adds {source.containers[0]} when the pod is created: unless its requests equal its "
                f"limits, the pod becomes Burstable and no container owns CPUs ({lost_cpus(subject)})",
                f"set annotations {', '.join(keys)}, each request equal to its limit",
                WARNING if subject.static_cpus else INFO,
            )


def _mark(pod: Pod, source: Injector) -> str:
    return "annotations" if source.request in (pod.metadata.annotations or {}) else "labels"


def _sets_equal_amounts(subject: PodSubject, source: Injector) -> bool:
    annotations = subject.written.metadata.annotations or {}
    pairs = [(annotations.get(request), annotations.get(limit)) for request, limit in source.settings.values()]
    return all(request is not None and request == limit for request, limit in pairs)


RULES: tuple[Rule[PodSubject], ...] = (
    Rule(
        "PS104",
        "spoiled-by-container",
        INFO,
        "One container keeps the pod from being Guaranteed",
        "A container asks for whole CPUs with request equal to limit, as one does for exclusive CPUs. Another one "
        "(often a sidecar, an exporter or an init container that was added later, also by a service mesh) has no "
        "limits, or requests below them: the whole pod is Burstable, and no container of it owns CPUs. It is a "
        "warning on a node with the static CPU manager. Without whole CPUs, only a container without any resources "
        "beside others that are equal is reported. Pods with resource claims are left out, because a DRA driver may "
        "give them CPUs. The advice was tried: with it in all containers that are reported the pod is Guaranteed, and "
        "with a machine the empty node admits it.",
        _spoiled,
        others=(WARNING,),
    ),
    Rule(
        "PS111",
        "spoiled-when-injected",
        INFO,
        "A container that is added later may keep the pod from being Guaranteed",
        "The pod is Guaranteed, asks for whole CPUs, and asks a webhook (Istio, Linkerd, Vault, Dapr, Consul, GKE's "
        "Cloud Storage FUSE) for a container. The defaults of most are requests below limits or no limits, which "
        "makes the pod Burstable when it is created. Annotations of the pod set them. It is a warning on a node with "
        "the static CPU manager.",
        _injected_later,
        others=(WARNING,),
    ),
)
