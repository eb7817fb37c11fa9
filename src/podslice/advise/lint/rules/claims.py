"""Rules about claims of devices: what their CPUs and memory count for (docs/dra.md)."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.lint.model import CLAIMS, INFO, WARNING, Problem, Rule
from podslice.advise.lint.subject import PodSubject
from podslice.api.pod.demand import BEST_EFFORT, add_into, counted_claims
from podslice.values.quantity import ZERO, Quantity

_GATE = "DRANodeAllocatableResources"


def _claims_without_requests(subject: PodSubject) -> Iterator[Problem]:
    """Report a pod with claims and no requests at all."""
    claiming = next((place for place in subject.places if place.container.resources.claims), None)
    if claiming is not None and subject.qos == BEST_EFFORT:
        yield Problem(
            f"{claiming.path}.resources.claims",
            f"{claiming.container.name} has claims, and nothing in the pod has requests: it is BestEffort",
            "request some cpu and memory",
        )


def _claims_counted_twice(subject: PodSubject) -> Iterator[Problem]:
    """Report requests as large as a claim that the scheduler has counted with them."""
    for claim in counted_claims(subject.pod):
        for place in subject.places:
            requests = (place.container.resources.requests or {}) if place.container.name in claim.containers else {}
            for name, amount in claim.resources.items():
                if not amount.is_zero() and requests.get(name, ZERO) >= amount:
                    yield Problem(
                        f"{place.path}.resources.requests[{name}]",
                        f"{place.container.name} requests {requests[name]} {name} besides claim "
                        f"{claim.resource_claim_name}, which counts for {amount}",
                        "request what it needs besides the claim",
                    )


def _claims_not_counted(subject: PodSubject) -> Iterator[Problem]:
    """Report containers with claims that together request less than the claims are for."""
    if subject.gates[_GATE] or counted_claims(subject.pod):
        return
    having = [(place, {str(one.get("name")) for one in place.container.resources.claims or ()} & {*subject.claimed})
              for place in subject.places]  # fmt: skip
    claimed_total: dict[str, Quantity] = {}
    for name in {name for _, names in having for name in names}:
        add_into(claimed_total, subject.claimed[name])
    requested_total: dict[str, Quantity] = {}
    for place, names in having:
        add_into(requested_total, place.requests if names else {})
    for resource, amount in sorted(claimed_total.items()):
        requested = subject.pod_requests.get(resource) or requested_total.get(resource, ZERO)
        if requested < amount:
            first = next(place for place, names in having if names)
            yield Problem(
                f"{first.path}.resources.claims",
                f"claims are for {amount} {resource}, the containers that have them request {requested}: a scheduler "
                "without the gate counts that alone",
                f"request {resource}: {amount}, or leave what is for claims out of the node's allocatable resources",
            )


RULES: tuple[Rule[PodSubject], ...] = (
    Rule(
        "PS108",
        "claims-without-requests",
        INFO,
        "A pod with claims alone is BestEffort",
        "Claims of devices do not count for the QoS class. A pod whose containers have claims and no requests is "
        "BestEffort, whatever CPUs and memory the claims are for: it is evicted first, its cgroup has the least "
        "weight, and without the gate DRANodeAllocatableResources the scheduler and quotas count nothing of it.",
        _claims_without_requests,
    ),
    Rule(
        "PS109",
        "mirrored-claims",
        WARNING,
        "Requests repeat a claim that is counted",
        "Repeating a claim's CPUs and memory in the requests of its container is for a scheduler that does not count "
        "the resources of claims. With the gate DRANodeAllocatableResources the scheduler does count them, as "
        "status.nodeAllocatableResourceClaimStatuses shows, so that the node's amounts are counted twice.",
        _claims_counted_twice,
    ),
    Rule(
        "PS110",
        "unmirrored-claims",
        INFO,
        "Requests do not repeat a claim",
        "Without the gate DRANodeAllocatableResources a scheduler does not count the CPUs and memory that claims are "
        "for. Where the node's allocatable resources contain them, it assigns them to other pods as well, which then "
        "wait on the node. Either the requests of the containers repeat the claims, or the node reserves what claims "
        "get (kubeReserved). Claims are read from the files of --claims.",
        _claims_not_counted,
        CLAIMS,
    ),
)
