"""The options with which `podslice admit` allocates claims of devices, and the answers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from podslice.cli.output import with_options
from podslice.contract.admission import ClaimAnswer, ClaimDevice, ClaimFix, ClaimObstacle, ClaimRefusal
from podslice.core.errors import InputError

if TYPE_CHECKING:
    from podslice.core.dra.nodes import ClusterDevices
    from podslice.core.dra.obstacles import ClaimExplanation
    from podslice.core.dra.search import WantedClaim
    from podslice.core.dra.usage import DeviceGrant
    from podslice.core.pod.spec import Pod
    from podslice.k8s.claims import DeviceObjects
    from podslice.k8s.manifest import LoadedPod

F = TypeVar("F", bound=Callable[..., Any])
_MOST_SHOWN = 5
_MOST_NAMED = 8
"""Kinds of nodes, and names of one kind, that people are told of."""
_REFUSED = "cannot allocate all claims"
_ELSEWHERE = "resourceclaim not available on the node"
"""What the scheduler says of every node where allocated claims of a pod are on nodes that have nothing in common."""


def claim_options(command: F) -> F:
    """Adds `--claims` and `--slices`."""
    return with_options(
        command,
        click.option(
            "--claims",
            "claim_paths",
            multiple=True,
            metavar="FILE",
            help="DeviceClasses, ResourceClaims and ResourceClaimTemplates; repeatable.",
        ),
        click.option(
            "--slices", "slice_paths", multiple=True, metavar="FILE", help="ResourceSlices of the nodes; repeatable."
        ),
    )


class ClaimAnswers:
    """Allocates claims one after the other on the nodes that the slices name."""

    def __init__(self, claim_paths: Sequence[str], slice_paths: Sequence[str]) -> None:
        """Raises `InputError`, also for one kind of files without the other."""
        from podslice.k8s.cel import CELSelectors
        from podslice.k8s.claims import load_device_objects

        if not (claim_paths and slice_paths):
            missing = "--slices" if claim_paths else "--claims"
            raise InputError("is missing", path=missing, remedy="claims are allocated from slices: give both")
        selectors = CELSelectors()
        self._objects = load_device_objects(claim_paths, slice_paths, selectors)
        self._cluster = _cluster(self._objects, selectors)
        self._named: set[tuple[str, str]] = set()
        self._granted: dict[tuple[str, str], frozenset[str]] = {}
        """The nodes on which claims can be used that a pod has got."""

    def of_pod(self, pod: Pod) -> ClaimAnswer | None:
        """What the claims of a pod get, None for a pod without. Raises `InputError` for one that nobody knows."""
        wanted = list(self._wanted(pod))
        held = [key for key, _ in wanted if self._allocated(key)]
        self._named.update(key for key, _ in wanted)
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if not wanted:
            return None
        return self._answer(name, {key: one for key, one in wanted if key not in held}, self._where(held))

    def _where(self, held: Iterable[tuple[str, str]]) -> frozenset[str]:
        """The nodes on which claims can be used that have been allocated."""
        found = frozenset(self._cluster.nodes)
        for key in held:
            if key in self._granted:
                found &= self._granted[key]
                continue
            allocation = self._objects.claims[key].status.allocation
            selector = None if allocation is None else allocation.node_selector
            if selector is not None:
                nodes = self._cluster.nodes.values()
                found &= frozenset(one.node.name for one in nodes if selector.matches(one.node.labels, one.node.name))
        return found

    def others(self) -> list[ClaimAnswer]:
        """Claims that no pod has named, each for itself, in the order of the files."""
        from podslice.core.dra.search import WantedClaim

        return [
            self._answer("", {key: WantedClaim(f"{key[0]}/{key[1]}", one.spec.devices)})
            for key, one in self._objects.claims.items()
            if key not in self._named and one.status.allocation is None
        ]

    def _allocated(self, key: tuple[str, str]) -> bool:
        claim = self._objects.claims.get(key)
        return claim is not None and (claim.status.allocation is not None or key in self._granted)

    def _wanted(self, pod: Pod) -> Iterator[tuple[tuple[str, str], WantedClaim]]:
        from podslice.core.dra.search import WantedClaim

        namespace = pod.metadata.namespace or "default"
        for index, entry in enumerate(pod.spec.resource_claims):
            path = f"spec.resourceClaims[{index}]"
            if entry.resource_claim_name is not None:
                key = (namespace, entry.resource_claim_name)
                claim = self._objects.claims.get(key)
                if claim is None:
                    raise _unknown(pod, f"{path}.resourceClaimName", key, self._objects.claims)
                yield key, WantedClaim(f"{namespace}/{entry.resource_claim_name}", claim.spec.devices)
            elif entry.resource_claim_template_name is not None:
                key = (namespace, entry.resource_claim_template_name)
                template = self._objects.templates.get(key)
                if template is None:
                    raise _unknown(pod, f"{path}.resourceClaimTemplateName", key, self._objects.templates)
                made = f"{pod.metadata.name}-{entry.name}"
                yield (namespace, made), WantedClaim(f"{namespace}/{made}", template.spec.spec.devices)

    def _answer(
        self, pod: str, wanted: Mapping[tuple[str, str], WantedClaim], among: frozenset[str] | None = None
    ) -> ClaimAnswer:
        """What these claims get together, on one of the nodes that count."""
        from podslice.core.dra.search import AbandonedError, SearchLimitError
        from podslice.core.dra.selecting import SelectorError, UnknownClassError

        claims = list(wanted.values())
        names = tuple(claim.name for claim in claims)
        if among is not None and not among:
            return ClaimAnswer(pod, names, allocated=False, message=_ELSEWHERE)
        try:
            found = self._cluster.first(claims, among)
        except UnknownClassError as error:
            there = ", ".join(list(self._objects.classes)[:_MOST_NAMED]) or "none"
            return ClaimAnswer(pod, names, allocated=False, message=f"{error} (the files have: {there})")
        except (AbandonedError, SearchLimitError, SelectorError) as error:
            return self._refusal(pod, claims, str(error), among)
        if found is None:
            return self._refusal(pod, claims, _REFUSED, among)
        node, grants = found
        devices = []
        for (key, claim), own in zip(wanted.items(), grants, strict=True):
            self._granted[key] = self._cluster.usable_on(own)
            self._cluster.take(node, own, claim.name)
            devices += [_device(claim.name, grant) for grant in own]
        return ClaimAnswer(pod, names, allocated=True, node=node, devices=tuple(devices))

    def _refusal(self, pod: str, claims: list[WantedClaim], message: str, among: frozenset[str] | None) -> ClaimAnswer:
        """With what every node that counts has to say."""
        refusals = tuple(self._refused_by(nodes, claims) for nodes in self._cluster.alike(among))
        return ClaimAnswer(
            pod, tuple(claim.name for claim in claims), allocated=False, message=message, refusals=refusals
        )

    def _refused_by(self, nodes: tuple[str, ...], claims: list[WantedClaim]) -> ClaimRefusal:
        from podslice.core.dra.obstacles import explain

        cluster = self._cluster
        why = explain(cluster.nodes[nodes[0]].pools, cluster.usage, cluster.selecting, claims)
        fixes = tuple(ClaimFix(fix.claim, fix.path, fix.text) for fix in why.fixes)
        return ClaimRefusal(nodes, why.together, tuple(_obstacles(why)), fixes)


def with_claims(claims: ClaimAnswers | None, pods: Iterable[LoadedPod], answers: list[ClaimAnswer]) -> Iterator[Pod]:
    """The pods that a scheduler would bind, after their claims were allocated; `answers` gets what became of those."""
    for one in pods:
        answer = None if claims is None else claims.of_pod(one.pod)
        if answer is not None:
            answers.append(answer)
        if answer is None or answer.allocated:
            yield one.pod
    if claims is not None:
        answers += claims.others()


def _cluster(objects: DeviceObjects, selectors: Any) -> ClusterDevices:
    from podslice.core.dra.nodes import ClusterDevices, devices_of
    from podslice.core.dra.pools import LabelledNode

    names = dict.fromkeys(one.spec.node_name for one in objects.slices if one.spec.node_name)
    nodes = [LabelledNode(name) for name in sorted(names)] or [LabelledNode("any node")]
    cluster = ClusterDevices(objects.slices, nodes, objects.classes, selectors.matches)
    devices = devices_of(cluster)
    for (namespace, name), claim in objects.claims.items():
        if claim.status.allocation is not None:
            for result in claim.status.allocation.devices.results:
                known = devices.get((result.driver, result.pool, result.device))
                cluster.usage.add_result(result, known, f"{namespace}/{name}")
    cluster.refresh()
    return cluster


def _unknown(pod: Pod, path: str, key: tuple[str, str], known: Iterable[tuple[str, str]]) -> InputError:
    from podslice.core.values.nearest import did_you_mean

    names = [name for namespace, name in known if namespace == key[0]]
    problem = f"pod {pod.metadata.name} names {key[1]!r}, which no file given with --claims has"
    there = f"{key[0]} has {', '.join(names[:_MOST_NAMED])}" if names else f"namespace {key[0]} has none there"
    return InputError(problem, path=path, remedy=did_you_mean(key[1], names) or there)


def _device(claim: str, grant: DeviceGrant) -> ClaimDevice:
    from podslice.core.dra.obstacles import amount_text

    driver, pool, device = grant.offered.id
    consumed = {name.removeprefix(f"{driver}/"): amount_text(one) for name, one in (grant.consumed or {}).items()}
    return ClaimDevice(claim, grant.request, driver, pool, device, consumed)


def _obstacles(why: ClaimExplanation) -> Iterator[ClaimObstacle]:
    for one in why.requests:
        problems = {"/".join(each.device.id[1:]): each.problem for each in one.devices if each.problem}
        yield ClaimObstacle(one.claim, one.request, one.wanted, one.able, problems)


# For people


def print_answers(answers: Sequence[ClaimAnswer]) -> None:
    """A table of devices, and below it what was refused and why."""
    from podslice.cli.output import prose_width
    from podslice.render.ansi import echo, style
    from podslice.render.prose import wrapped
    from podslice.render.table import print_table

    rows = [row for answer in answers for row in _rows(answer)]
    print_table(["POD", "CLAIM", "VERDICT", "NODE", "REQUEST", "DEVICE", "CONSUMED"], rows)
    for answer in answers:
        if answer.allocated:
            continue
        name = style(answer.pod or answer.claims[0], bold=True)
        echo(wrapped(f"\n{name} {style('not allocated', fg='red')}: {answer.message}", prose_width()))
        for refusal in answer.refusals[:_MOST_SHOWN]:
            if len(answer.refusals) > 1:
                echo(wrapped(f"  {_nodes_text(refusal.nodes)}:", prose_width()))
            _print_refusal(refusal)
        left = sum(len(refusal.nodes) for refusal in answer.refusals[_MOST_SHOWN:])
        if left:
            echo(f"  {left} more node{'s' * (left != 1)}: see -o json")


def _print_refusal(refusal: ClaimRefusal) -> None:
    from podslice.cli.output import prose_width
    from podslice.render.ansi import echo, style
    from podslice.render.prose import wrapped

    if refusal.why:
        echo(wrapped(f"  {refusal.why}", prose_width()))
    for obstacle in refusal.obstacles:
        echo(wrapped(f"  {_sentence(obstacle)}", prose_width()))
        for problem, devices in _by_problem(obstacle).items():
            echo(wrapped(f"    {', '.join(devices)}: {problem}", prose_width()))
    for fix in refusal.fixes:
        echo(wrapped(f"  {style('fix', fg='green')} {fix.claim} {fix.path}: {fix.text}", prose_width()))


def _nodes_text(nodes: tuple[str, ...]) -> str:
    more = len(nodes) - _MOST_NAMED
    named = ", ".join(nodes[:_MOST_NAMED])
    return f"node{'s' * (len(nodes) > 1)} {named}{f' and {more} more' if more > 0 else ''}"


def _rows(answer: ClaimAnswer) -> Iterator[list[str]]:
    from podslice.render.ansi import style

    if not answer.allocated:
        refused = style("refused", fg="red")
        yield from ([answer.pod or "-", claim, refused, "-", "-", "-", "-"] for claim in answer.claims)
    for index, device in enumerate(answer.devices):
        first = index == 0
        consumed = " ".join(f"{name}={amount}" for name, amount in device.consumed.items()) or "-"
        verdict = style("allocated", fg="green") if first else ""
        pod, node = (answer.pod or "-", answer.node) if first else ("", "")
        yield [pod, device.claim, verdict, node, device.request, f"{device.driver} {device.device}", consumed]


def _sentence(obstacle: ClaimObstacle) -> str:
    wanted = "all devices" if not obstacle.wanted else f"{obstacle.wanted} device{'s' * (obstacle.wanted != 1)}"
    able = f"{obstacle.able or 'none'} could serve it alone"
    return f"{obstacle.claim} request {obstacle.request} wants {wanted}; {able}"


def _by_problem(obstacle: ClaimObstacle) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for device, problem in obstacle.problems.items():
        found.setdefault(problem, []).append(device.rpartition("/")[2])
    return found
