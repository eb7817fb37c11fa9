"""The options of a cell: everything that decides its result beside the nodes, the pods and the seed."""

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
    """Scheduler:

    - `policy`: its score; the first three names add BalancedAllocation if `balanced`.
    - `curve`: of requested-to-capacity-ratio, points of (utilisation 0-100, score 0-10), ascending.
    - `filter`: what the scheduler knows of nodes beside sums: `kube` nothing, `kube-nrt` NRT objects that are
      `nrt_delay_ms` old, `exact` everything.
    - `percentage`: of nodes to score, 0 for upstream's adaptive one.
    - `ties`: how one of the best nodes is chosen.

    Refusals and events:

    - `retry` after a refusal: `owner` as the shapes' owners do, `next-node` the next best node at once, at most `tries`
      of them, `never`.
    - `delay_ms`: between a refusal and the owner's next pod; `limit` caps the counted attempts of a loop.
    - `preemption`: pods of lower priority are preempted for a pod that was refused less often than `limit`; `budgets`
      are the PodDisruptionBudgets that preemption tries not to violate.
    - `events`: of nodes, in order of time.

    Time and samples:

    - `until_ms`: the run stops there, -1 for no end; `warmup_ms`: integrals begin there.
    - `sample_ms`: interval of the rows of the series, 0 for none.
    - `sample_share`: a row whenever this many more thousandths of what all pods request (GPUs; CPUs where no pod has a
      GPU) have arrived, 0 for none.
    - `sample_arrivals`: a row after every pod.

    Measures:

    - `popular`: thousandths of the pods whose shapes count for fragmentation; `usual`: pods of each shape from which
      these are chosen, where the pods that arrive are a resampled copy.
    - `metrics`: what is computed beside counts, of "alignment", "fragmentation" (of GPUs), "stranded" and "largest" (at
      the end).
    - `cpus`: include the pods' CPUs and NUMA nodes in the result.
    - `memory`: bytes for remembered answers; results do not depend on it.
    - `verify`: every so many-th remembered answer is computed again and compared, 0 for none.
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
