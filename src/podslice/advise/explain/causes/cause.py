"""A cause: what, were it otherwise, would admit a refused pod, or bring up the next cause.

It is a value that everything which speaks of a refusal shares: the story, the fixes, `lint`, pages and documents.
`causes.py` finds causes, `cause_words.py` puts them into sentences.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import takewhile

import msgspec

from podslice.values.cpuset import CPUSet

CAUSES = {
    "short": "too little is free there",
    "too-big": "too little would be free there if no other pod were on the node",
    "group": "the memory of these NUMA nodes is tied to another group of NUMA nodes",
    "reserved-counted": "the kubelet counts reserved CPUs when it looks for the fewest NUMA nodes",
    "unhealthy-counted": "the kubelet counts unhealthy devices when it looks for the fewest NUMA nodes",
    "narrowest": "the policy takes the fewest NUMA nodes that could hold the resource, and another one needs more",
    "no-common-nodes": "no set of NUMA nodes that the policy takes has enough of every resource, even if empty",
    "own-containers": "earlier containers of the same pod have taken what this one needs",
    "held-elsewhere": "what an earlier container of the pod leaves to this one is on other NUMA nodes",
    "whole-cores": "full-pcpus-only gives whole cores",
    "pod-budget": "the pod's exclusive containers leave nothing of its budget for the others",
    "node-pool": "the last shared CPU of the node would become exclusive",
    "node-total": "all pods together would ask for more than the node has for pods",
    "pod-count": "the node has as many pods as it may",
    "defect": "a defect of this release is in the way",
    "rule": "a rule refuses the pod as it is, whatever is free on the node",
    "unknown": "no single cause was found: see the kubelet's message",
}
"""Stable codes of causes."""
HOLDERS = {
    "pod": "a pod on the node",
    "ended-init": "an init container that has ended, whose pod keeps its CPUs",
    "own": "an earlier container of the same pod",
    "reserved": "what the configuration reserves for the system",
    "sibling": "CPUs of cores with reserved CPUs, which full-pcpus-only does not give away",
    "unhealthy": "devices that are not healthy",
    "class": "CPUs of classes that the pod may not own",
}
"""Stable kinds of holders."""


class Holder(msgspec.Struct, frozen=True, rename="camel"):
    """Who or what has some of a resource that a pod lacks: `kind` as in `HOLDERS`, `name` a pod's namespace and name,
    `amount` in the unit of the cause. `container` is named where only that one holds it; `nodes` are its NUMA nodes
    where they matter."""

    kind: str
    amount: int
    name: str = ""
    uid: str = ""
    container: str = ""
    nodes: CPUSet | None = None


class Cause(msgspec.Struct, frozen=True, rename="camel"):
    """One constraint that keeps a pod out, as `code` in `CAUSES`.

    `container` is the one that is refused, None for the pod as a whole. It needs `need` of `resource` on the NUMA nodes
    `nodes` (None: wherever it is); `free` is what it could have there, `capacity` what it could have if no other pod
    were on the node, and `short` the least that must become free there so that this cause is gone. Amounts are CPUs,
    bytes, devices or pods as `unit` says, for `node-total` thousandths of a CPU. `holders` have the rest, the largest
    first. `rule` is the field, option or behaviour that demands it. `facts` are further words of the rule.

    `next` is the cause that comes up once this one is gone; None: then the pod is admitted. `proven`: that was tried
    on a copy of the node.
    """

    code: str
    container: str | None = None
    resource: str = ""
    nodes: CPUSet | None = None
    need: int = 0
    free: int = 0
    capacity: int = 0
    short: int = 0
    unit: str = ""
    holders: tuple[Holder, ...] = ()
    rule: str = ""
    facts: tuple[str, ...] = ()
    next: Cause | None = None
    proven: bool = False

    @property
    def chain(self) -> Iterator[Cause]:
        """This cause and those that come up after it, in order."""
        one: Cause | None = self
        while one is not None:
            yield one
            one = one.next

    @property
    def together(self) -> Iterator[Cause]:
        """This cause and those right after it at the same place, all of which must go for the place to do."""
        return takewhile(lambda one: (one.container, one.nodes) == (self.container, self.nodes), self.chain)


class Causes(msgspec.Struct, frozen=True, rename="camel"):
    """The causes of a refusal: each alone, with those that are `next` to it, would admit the pod; the binding one
    first. `cut_short`: more would have been tried, but the number of trials is bounded."""

    found: tuple[Cause, ...] = ()
    cut_short: bool = False
