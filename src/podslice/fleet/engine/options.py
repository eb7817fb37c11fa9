"""How a cell is simulated: everything beside the nodes, the pods and the seed."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

from podslice.fleet.engine.budgets import DisruptionBudget
from podslice.fleet.engine.nodes import NodeEvent

PolicyName: TypeAlias = Literal[
    "least-allocated",
    "most-allocated",
    "requested-to-capacity-ratio",
    "first-fit",
    "best-fit",
    "random",
    "fgd",
    "gpu-packing",
    "gpu-clustering",
    "dot-product",
]
FilterName: TypeAlias = Literal["kube", "kube-nrt", "exact"]
TieRule: TypeAlias = Literal["random", "first", "permuted"]
Retry: TypeAlias = Literal["owner", "next-node", "never"]


class CellOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`policy`: the scheduler's score; the first three add BalancedAllocation if `balanced`. `curve`: of
    requested-to-capacity-ratio, points of (utilisation 0-100, score 0-10), ascending. `filter`: what the scheduler
    knows of nodes beside sums: nothing, NRT objects of an age of `nrt_delay_ms`, or everything. `percentage` of nodes
    to score, 0 for upstream's adaptive one. `ties`: which of the best nodes.

    `retry` after a refusal: `owner` as the shapes' owners do, `next-node` the next best one at once, at most `tries`
    of them, `never`. `delay_ms` between a refusal and the owner's next pod; `limit` caps counted attempts of a loop.
    `preemption`: pods of lower priority make room, for a pod that was refused less often than `limit`;
    `budgets`: whose going is avoided.
    `events` of nodes, in order of time.

    `until_ms`: nothing happens after it, -1 for no end. `sample_ms`: a row of the series every so often, 0 for none.
    `sample_share`: a row whenever another so many thousandths of what all pods request (GPUs, without any CPUs) have
    arrived, 0 for none. `sample_arrivals`: a row after every pod. `warmup_ms`: integrals begin there. `popular`:
    thousandths of the pods whose shapes count for fragmentation; `usual`: pods of each shape that say which these are,
    where the pods that come do not, as some were drawn again.

    `memory`: bytes for remembered answers; results do not depend on it. `verify`: every so many-th remembered answer is
    computed again and compared, 0 for none. `cpus`: the pods' CPUs and NUMA nodes are in the result. `metrics`: what is
    worked out beside counts, of "alignment", "fragmentation" (of GPUs), "stranded" and "largest" (at the end).
    """

    policy: PolicyName = "least-allocated"
    balanced: bool = True
    curve: tuple[tuple[int, int], ...] = ((0, 0), (100, 10))
    filter: FilterName = "kube"
    nrt_delay_ms: int = 10_000
    percentage: int = 0
    ties: TieRule = "random"
    retry: Retry = "owner"
    tries: int = 200
    delay_ms: int = 1000
    limit: int = 1000
    preemption: bool = False
    budgets: tuple[DisruptionBudget, ...] = ()
    events: tuple[NodeEvent, ...] = ()
    until_ms: int = -1
    sample_ms: int = 0
    sample_share: int = 0
    sample_arrivals: bool = False
    warmup_ms: int = 0
    popular: int = 950
    usual: tuple[int, ...] = ()
    memory: int = 1 << 30
    verify: int = 10_000
    cpus: bool = False
    metrics: tuple[str, ...] = ("alignment",)
