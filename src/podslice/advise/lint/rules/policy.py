"""Rules about what goes beyond a kubelet: annotations under podslice.io/, and a policy beside a configuration."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.lint.model import CONFIG, ERROR, INFO, MACHINE, WARNING, Problem, Rule
from podslice.advise.lint.subject import NodeSubject, PodSubject
from podslice.api.pod.resizable import needs_restart
from podslice.config.annotations import (
    CPU_CLASS,
    KNOWN,
    LONGEST_DELAY,
    MIXED,
    MOVABLE,
    PREFIX,
    RESIZE,
    SMT,
    annotation_problems,
    may_annotate,
    requested_resize,
)
from podslice.config.policy import NO_POLICY, Defragmentation, ExclusiveResize, MixedCPUs, PodslicePolicy
from podslice.values.errors import did_you_mean

_EVERYTHING = PodslicePolicy(
    resize=ExclusiveResize(exclusive=True), defrag=Defragmentation(carry_out="onRequest"), mixed=MixedCPUs(free=1)
)
"""A policy under which every annotation counts."""
_EXCLUSIVE_GATE = "InPlacePodVerticalScalingExclusiveCPUs"


def _field(key: str) -> str:
    return f"metadata.annotations[{key}]"


def _unknown(subject: PodSubject) -> Iterator[Problem]:
    for key in subject.written.metadata.annotations or {}:
        if key.startswith(PREFIX) and key not in KNOWN:
            yield Problem(_field(key), "podslice reads no such annotation", did_you_mean(key, KNOWN, "remove it"))


def _wrong(subject: PodSubject) -> Iterator[Problem]:
    policy = subject.policy or _EVERYTHING
    refuses = subject.policy is not None and policy.annotations.invalid == "refuse"
    for one in annotation_problems(policy, subject.pod):
        if refuses:
            then = "the pod is refused"
        elif subject.policy is not None:
            then = "it is ignored"
        else:
            then = "a policy that reads it refuses the pod or ignores it"
        severity = ERROR if refuses else WARNING
        yield Problem(_field(one.key), f"{one.problem}: {then}", "docs/policy.md has the grammar", severity)


def _without_effect(subject: PodSubject) -> Iterator[Problem]:
    policy, annotations = subject.policy, subject.written.metadata.annotations or {}
    if policy is None:
        return
    for key, section, configured in (
        (RESIZE, "resize", policy.resize != NO_POLICY.resize),
        (MOVABLE, "defrag", policy.defrag != NO_POLICY.defrag),
        (CPU_CLASS, "cpuClasses", bool(policy.cpu_classes)),
        (SMT, "cpuClasses", bool(policy.cpu_classes)),
        (MIXED, "mixed", policy.mixed is not None),
    ):
        if key not in annotations:
            continue
        if not configured:
            yield Problem(_field(key), f"the policy has no section {section}", f"configure {section}, or leave it out")
        elif not may_annotate(policy, subject.pod):
            globs = ", ".join(policy.annotations.namespaces) or "none"
            yield Problem(_field(key), f"the policy lets only these namespaces use annotations: {globs}", "remove it")
        # The policy decides for all pods, so that the annotation changes nothing.
        elif key == MOVABLE and policy.defrag.movable != "annotated":
            yield Problem(_field(key), f"the policy says defrag.movable: {policy.defrag.movable}", "remove it")
        elif key == RESIZE and not any(one.exclusive_cpus for one in subject.admission.containers):
            yield Problem(_field(key), "no container asks for exclusive CPUs", "remove it")


def _restarts(subject: PodSubject) -> Iterator[Problem]:
    if not _can_resize(subject.node, subject.policy):
        return
    own = {one.name for one in subject.admission.containers if one.exclusive_cpus}
    for place in subject.places:
        if place.container.name in own and needs_restart(place.container, "cpu"):
            requests = requested_resize(subject.policy or NO_POLICY, subject.pod)
            delayed = "; its shrink-delay has no use then" if place.container.name in requests.delays else ""
            yield Problem(
                f"{place.path}.resizePolicy",
                f"a resize of cpu restarts the container, although its exclusive CPUs can change under it{delayed}",
                "restartPolicy: NotRequired, if the program can live with other CPUs",
            )


def _can_resize(node: NodeSubject | None, policy: PodslicePolicy | None) -> bool:
    """Whether containers with exclusive CPUs are resized here."""
    return (policy is not None and policy.resize.exclusive) or (node is not None and node.gates[_EXCLUSIVE_GATE])


def _policy_without_effect(subject: NodeSubject) -> Iterator[Problem]:
    policy = subject.policy
    if policy.resize.exclusive and not subject.static_cpus:
        message = "no container has exclusive CPUs that could be resized: resize.exclusive has no effect"
        yield Problem("cpuManagerPolicy", message, "cpuManagerPolicy: static, or leave the policy out")
    settings = [field for field in policy.resize.__struct_fields__ if field != "exclusive"]
    changed = [field for field in settings if getattr(policy.resize, field) != getattr(NO_POLICY.resize, field)]
    if policy.mixed is not None and not subject.static_cpus:
        message = "no container has exclusive CPUs: mixed has no effect"
        yield Problem("cpuManagerPolicy", message, "cpuManagerPolicy: static, or leave the section out")
    if policy.mixed is not None and policy.mixed.quota == "total":
        message = "mixed.quota total throttles exclusive CPUs too when threads on shared ones use more than their part"
        yield Problem("cpuCFSQuota", message, 'quota: "off" in the section mixed')
    if changed and not _can_resize(subject, policy):
        names = dict(zip(policy.resize.__struct_fields__, policy.resize.__struct_encode_fields__, strict=True))
        listed = ", ".join(f"resize.{names[field]}" for field in changed)
        message = f"{listed} of the policy {'has' if len(changed) == 1 else 'have'} no effect without resize.exclusive"
        yield Problem("featureGates", message, "exclusive: true in the policy")


def _empty_classes(subject: NodeSubject) -> Iterator[Problem]:
    classes = None if subject.view is None else subject.view.cpu_classes
    if subject.view is None or classes is None:
        return
    for place, one in enumerate(subject.policy.cpu_classes):
        cpus = classes.cpus.get(one.name, 0)
        if one.exclusive == "never" or subject.view.assignable & classes.ownable.get(one.name, 0):
            continue
        count, reserved = cpus.bit_count(), (cpus & subject.view.reserved).bit_count()
        message = f"class {one.name} has no CPU on this machine"
        if count:
            message = f"class {one.name} has {count} CPUs, {reserved} of them reserved, and with minShared "
            message += f"{one.min_shared} no container can own one"
        yield Problem(f"spec.cpuClasses[{place}]", message, "correct match and minShared, or leave the class out")


RULES: tuple[Rule[PodSubject], ...] = (
    Rule(
        "PS601",
        "unknown-podslice-annotation",
        WARNING,
        "An annotation that podslice does not read",
        f"Annotations under {PREFIX} ask podslice for something (docs/policy.md). One that it does not know is "
        f"ignored, and the pod runs without what its author meant. Known are {', '.join(sorted(KNOWN))}.",
        _unknown,
    ),
    Rule(
        "PS602",
        "wrong-podslice-annotation",
        ERROR,
        "A value that podslice cannot read",
        "Where the PodslicePolicy of a node configures the section of an annotation, a wrong value refuses the pod "
        "(InvalidPodsliceAnnotation), or with annotations.invalid: ignore has no effect. Values are lists with "
        "commas of items for all containers or, as CONTAINER=ITEM, for one. podslice.io/resize takes shrink-delay="
        f"SECONDS up to {LONGEST_DELAY} and below-baseline=allow, podslice.io/movable true, false or pinned-too. "
        "podslice.io/mixed-cpus a number of exclusive CPUs or all. "
        "Without --policy the finding is a warning.",
        _wrong,
        others=(WARNING,),
    ),
    Rule(
        "PS603",
        "annotation-without-effect",
        INFO,
        "An annotation that the policy ignores",
        "With --policy: the policy has no such section, does not let the pod's namespace use annotations, or decides "
        "for all pods; or the pod has nothing that the annotation is about.",
        _without_effect,
    ),
    Rule(
        "PS604",
        "resize-restarts-container",
        INFO,
        "Exclusive CPUs could change in place, but the container restarts",
        "Where exclusive CPUs are resized in place (resize.exclusive of --policy, or the gate "
        f"{_EXCLUSIVE_GATE}), a container keeps running on its new CPUs. resizePolicy with restartPolicy: "
        "RestartContainer for cpu restarts it all the same.",
        _restarts,
    ),
)

NODE_RULES: tuple[Rule[NodeSubject], ...] = (
    Rule(
        "PS413",
        "policy-without-effect",
        WARNING,
        "The PodslicePolicy has no effect here",
        "With --policy: containers with exclusive CPUs exist only under cpuManagerPolicy static, and are resized only "
        f"with resize.exclusive, or the gate {_EXCLUSIVE_GATE}. Without these the section resize has no effect. "
        "The section mixed has no effect without exclusive CPUs, and with quota: total it throttles these too.",
        _policy_without_effect,
        needs=CONFIG,
    ),
    Rule(
        "PS416",
        "class-without-cpus",
        WARNING,
        "A CPU class whose CPUs no container can own",
        "With --policy: a class that no CPU of the machine matches, or whose CPUs are all reserved or stay shared "
        "(minShared), takes no exclusive container: a pod that requires it is refused (CPUClassUnavailable), and one "
        "that prefers it goes elsewhere. A class with exclusive: never is not reported.",
        _empty_classes,
        needs=MACHINE,
    ),
)
