"""Options with which `podslice admit` and `explain` allocate claims of devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from msgspec.structs import replace

from podslice.admit.documents import ClaimAnswer, ClaimCount, ClaimDevice, ClaimFix, ClaimObstacle, ClaimRefusal
from podslice.cli.options.bundle import bundle_in_use
from podslice.cli.output import with_options
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.api.manifests.loaded import LoadedPod
    from podslice.api.pod.demand import CountedClaim
    from podslice.api.pod.spec import Pod, PodResourceClaim
    from podslice.dra.allocation.footprint import PodClaim, Uncounted
    from podslice.dra.allocation.nodes import ClusterDevices
    from podslice.dra.allocation.obstacles import ClaimExplanation
    from podslice.dra.allocation.search import RequestedClaim
    from podslice.dra.allocation.usage import DeviceGrant
    from podslice.dra.manifests import DeviceObjects

F = TypeVar("F", bound=Callable[..., Any])
_MOST_NAMED = 8
"""Names that a sentence lists at most."""
_REFUSED = "cannot allocate all claims"
_ELSEWHERE = "resourceclaim not available on the node"
"""The scheduler's message for every node where a pod's allocated claims have no node in common."""


def claim_options(command: F) -> F:
    """Add `--claims` and `--slices` to a command."""
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
        # Imported on use: most calls have no claims.
        from podslice.dra.cel import CELSelectors
        from podslice.dra.manifests import load_device_objects

        if not (claim_paths and slice_paths):
            missing = "--slices" if claim_paths else "--claims"
            raise InputError("is missing", path=missing, remedy="claims are allocated from slices: give both")
        selectors = CELSelectors()
        bundle = bundle_in_use()
        # Its claims hold devices of the node; those of --claims override them, as do the classes.
        given = () if bundle is None else (bundle.classes, bundle.claims)
        held = tuple(str(path) for path in given if path is not None)
        self._objects = load_device_objects((*held, *claim_paths), slice_paths, selectors)
        self._cluster = _cluster(self._objects, selectors)
        self._named: set[tuple[str, str]] = set()
        self._granted: dict[tuple[str, str], frozenset[str]] = {}
        """The nodes on which claims that a pod has got can be used."""
        self._counted: set[tuple[str, str]] = set()
        """Claims that count with the requests of the pod that got them."""

    def allocate_pod(self, pod: Pod, *, counting: bool = False) -> ClaimAnswer | None:
        """Allocate the claims of a pod; None for a pod without. `counting`: with the gate DRANodeAllocatableResources.
        Raises `InputError` for an unknown claim."""
        from podslice.dra.allocation.footprint import claim_in_use

        wanted = list(self._requested_claims(pod))
        held = [key for key, _ in wanted if self._allocated(key)]
        self._named.update(key for key, _ in wanted)
        name = f"{pod.metadata.namespace}/{pod.metadata.name}"
        if not wanted:
            return None
        shared = next((key for key in held if counting and key in self._counted), None)
        if shared is not None:
            return _refuse_uncounted(name, [claim for _, claim in wanted], "", claim_in_use(shared[1]))
        new = {key: one for key, one in wanted if key not in held}
        return self._allocate(name, new, self._usable_nodes(held), pod if counting else None)

    def _usable_nodes(self, held: Iterable[tuple[str, str]]) -> frozenset[str]:
        """Return the nodes on which all these allocated claims can be used."""
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

    def allocate_others(self) -> list[ClaimAnswer]:
        """Allocate the claims that no pod has named, one by one, in the order of the files."""
        from podslice.dra.allocation.search import RequestedClaim

        return [
            self._allocate("", {key: RequestedClaim(f"{key[0]}/{key[1]}", one.spec.devices)})
            for key, one in self._objects.claims.items()
            if key not in self._named and one.status.allocation is None
        ]

    def _allocated(self, key: tuple[str, str]) -> bool:
        claim = self._objects.claims.get(key)
        return claim is not None and (claim.status.allocation is not None or key in self._granted)

    def _requested_claims(self, pod: Pod) -> Iterator[tuple[tuple[str, str], RequestedClaim]]:
        from podslice.dra.allocation.search import RequestedClaim

        namespace = pod.metadata.namespace or "default"
        for index, entry in enumerate(pod.spec.resource_claims):
            path = f"spec.resourceClaims[{index}]"
            if entry.resource_claim_name is not None:
                key = (namespace, entry.resource_claim_name)
                claim = self._objects.claims.get(key)
                if claim is None:
                    raise _unknown_claim(pod, f"{path}.resourceClaimName", key, self._objects.claims)
                yield key, RequestedClaim(f"{namespace}/{entry.resource_claim_name}", claim.spec.devices)
            elif entry.resource_claim_template_name is not None:
                key = (namespace, entry.resource_claim_template_name)
                template = self._objects.templates.get(key)
                if template is None:
                    raise _unknown_claim(pod, f"{path}.resourceClaimTemplateName", key, self._objects.templates)
                made = _claim_name(pod, entry)
                yield (namespace, made), RequestedClaim(f"{namespace}/{made}", template.spec.spec.devices)

    def _allocate(
        self,
        pod: str,
        wanted: Mapping[tuple[str, str], RequestedClaim],
        among: frozenset[str] | None = None,
        counted_with: Pod | None = None,
    ) -> ClaimAnswer:
        """Allocate these claims together on one of the nodes in `among`."""
        from podslice.dra.allocation.footprint import count_claims, find_problem
        from podslice.dra.allocation.search import AbandonedError, SearchLimitError
        from podslice.dra.allocation.selectors import SelectorError, UnknownClassError

        claims = list(wanted.values())
        names = tuple(claim.name for claim in claims)
        if among is not None and not among:
            return ClaimAnswer(pod, names, allocated=False, message=_ELSEWHERE)
        try:
            found = self._cluster.find_first(claims, among)
        except UnknownClassError as error:
            there = ", ".join(list(self._objects.classes)[:_MOST_NAMED]) or "none"
            return ClaimAnswer(pod, names, allocated=False, message=f"{error} (the files have: {there})")
        except (AbandonedError, SearchLimitError, SelectorError) as error:
            return self._make_refusal(pod, claims, str(error), among)
        if found is None:
            return self._make_refusal(pod, claims, _REFUSED, among)
        node, grants = found
        counts: tuple[CountedClaim, ...] = ()
        if counted_with is not None:
            counts = count_claims(counted_with, _pod_claims(counted_with, wanted, grants))
            wrong = find_problem(counted_with, counts)
            if wrong is not None:
                return _refuse_uncounted(pod, claims, node, wrong)
            names_counted = {one.resource_claim_name for one in counts}
            self._counted.update(key for key in wanted if key[1] in names_counted)
        devices = []
        for (key, claim), own in zip(wanted.items(), grants, strict=True):
            self._granted[key] = self._cluster.nodes_with(own)
            self._cluster.take(node, own, claim.name)
            devices += [_device(claim.name, grant) for grant in own]
        return ClaimAnswer(
            pod, names, allocated=True, node=node, devices=tuple(devices), counts=tuple(map(_count, counts))
        )

    def _make_refusal(
        self, pod: str, claims: list[RequestedClaim], message: str, among: frozenset[str] | None
    ) -> ClaimAnswer:
        """Return a refusal with the obstacles on every node in `among`."""
        refusals = tuple(self._explain_refusal(nodes, claims) for nodes in self._cluster.group_alike(among))
        return ClaimAnswer(
            pod, tuple(claim.name for claim in claims), allocated=False, message=message, refusals=refusals
        )

    def _explain_refusal(self, nodes: tuple[str, ...], claims: list[RequestedClaim]) -> ClaimRefusal:
        from podslice.dra.allocation.obstacles import explain

        cluster = self._cluster
        why = explain(cluster.nodes[nodes[0]].pools, cluster.usage, cluster.selectors, claims)
        fixes = tuple(ClaimFix(fix.claim, fix.path, fix.text) for fix in why.fixes)
        return ClaimRefusal(nodes, why.together, tuple(_obstacles(why)), fixes)


def allocate_claims(
    claims: ClaimAnswers | None, pods: Iterable[LoadedPod], answers: list[ClaimAnswer], gates: Mapping[str, bool]
) -> Iterator[Pod]:
    """Yield the pods that a scheduler would bind, after their claims were allocated; `answers` receives the results.
    With the gate DRANodeAllocatableResources the pods' status says what their claims count for."""
    from podslice.scheduling.predicates import CLAIMS_COUNT

    for one in pods:
        answer = None if claims is None else claims.allocate_pod(one.pod, counting=gates[CLAIMS_COUNT])
        if answer is not None:
            answers.append(answer)
        if answer is None:
            yield one.pod
        elif answer.allocated:
            yield _set_counts(one.pod, answer)
    if claims is not None:
        answers += claims.allocate_others()


def _pod_claims(
    pod: Pod, wanted: Mapping[tuple[str, str], RequestedClaim], grants: Sequence[tuple[DeviceGrant, ...]]
) -> Iterator[PodClaim]:
    from podslice.dra.allocation.footprint import PodClaim

    for (_, name), own in zip(wanted, grants, strict=True):
        aliases = frozenset(one.name for one in pod.spec.resource_claims if _claim_name(pod, one) == name)
        yield PodClaim(name, aliases, own)


def _claim_name(pod: Pod, entry: PodResourceClaim) -> str:
    """Return the name of a pod's claim; of one yet to be made of a template, without the API server's suffix."""
    return entry.resource_claim_name or f"{pod.metadata.name}-{entry.name}"


def _refuse_uncounted(pod: str, claims: Sequence[RequestedClaim], node: str, wrong: Uncounted) -> ClaimAnswer:
    refusals = (ClaimRefusal((node,) if node else (), wrong.remedy),)
    return ClaimAnswer(
        pod, tuple(one.name for one in claims), allocated=False, message=wrong.message, refusals=refusals
    )


def _count(one: CountedClaim) -> ClaimCount:
    from podslice.dra.allocation.obstacles import amount_text

    resources = {name: amount_text(amount.nano) for name, amount in one.resources.items()}
    return ClaimCount(one.resource_claim_name, one.containers, resources)


def _set_counts(pod: Pod, answer: ClaimAnswer) -> Pod:
    """Return the pod with the status that the scheduler writes."""
    counts = tuple(
        {"resourceClaimName": one.claim, "containers": list(one.containers), "resources": one.resources}
        for one in answer.counts
    )
    return replace(pod, status=replace(pod.status, node_allocatable_resource_claim_statuses=counts)) if counts else pod


def _cluster(objects: DeviceObjects, selectors: Any) -> ClusterDevices:
    from podslice.dra.allocation.nodes import ClusterDevices, devices_of
    from podslice.dra.allocation.pools import LabelledNode

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


def _unknown_claim(pod: Pod, path: str, key: tuple[str, str], known: Iterable[tuple[str, str]]) -> InputError:
    from podslice.values.errors import did_you_mean

    names = [name for namespace, name in known if namespace == key[0]]
    find_problem = f"pod {pod.metadata.name} names {key[1]!r}, which no file given with --claims has"
    there = f"{key[0]} has {', '.join(names[:_MOST_NAMED])}" if names else f"namespace {key[0]} has none there"
    return InputError(find_problem, path=path, remedy=did_you_mean(key[1], names) or there)


def _device(claim: str, grant: DeviceGrant) -> ClaimDevice:
    from podslice.dra.allocation.obstacles import amount_text

    driver, pool, device = grant.offered.id
    consumed = {name.removeprefix(f"{driver}/"): amount_text(one) for name, one in (grant.consumed or {}).items()}
    return ClaimDevice(claim, grant.request, driver, pool, device, consumed)


def _obstacles(why: ClaimExplanation) -> Iterator[ClaimObstacle]:
    for one in why.requests:
        problems = {"/".join(each.device.id[1:]): each.problem for each in one.devices if each.problem}
        yield ClaimObstacle(one.claim, one.request, one.wanted, one.able, problems)
