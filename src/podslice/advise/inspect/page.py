"""The page about one pod: its amounts as written and as stored, and what each part of the cluster derives from them.

All values are text, both for people and in the machine-readable forms; empty text means no value.
"""

from __future__ import annotations

import msgspec

from podslice.evidence.provenance import Provenance
from podslice.values.shown import Shown


class Value(msgspec.Struct, frozen=True):
    """An amount as `written` and as it `becomes`; `by` names what changed it: `defaulting`, `LimitRange`, or `gate` for
    an amount that a feature gate drops."""

    written: str = ""
    becomes: str = ""
    by: str = ""

    @property
    def changed(self) -> bool:
        """Whether the value is another one, not only spelled differently."""
        return bool(self.by)


class Amounts(msgspec.Struct, frozen=True):
    """One resource of the pod or of a container; `kind` is `pod`, `container`, `init`, `sidecar`, `ephemeral` or
    `overhead`. `resource` is empty for a container that names none."""

    owner: str
    kind: str
    path: str
    resource: str
    request: Value
    limit: Value


class QOS(msgspec.Struct, frozen=True, rename="camel"):
    """The QoS class and its reason in one sentence."""

    qos_class: str
    why: str


class Effective(msgspec.Struct, frozen=True, rename="camel"):
    """The effective request and limit of one resource with their formulas."""

    resource: str
    request: str
    request_formula: str
    limit: str
    limit_formula: str


class Cgroup(msgspec.Struct, frozen=True, rename="camel"):
    """A cgroup's files with their values, as the kernel reads them.

    `older_weight` is the cpu.weight that runtimes before opencontainers/cgroups 0.0.6 write for a container.
    `oom_score_adj` None with the formula in `oom_formula`: it depends on the node's memory.
    """

    owner: str
    kind: str
    path: str
    files: dict[str, str]
    older_weight: str = ""
    oom_score_adj: int | None = None
    oom_formula: str = ""


class Count(msgspec.Struct, frozen=True):
    """The amounts that one part of a cluster counts for the pod; `note` holds what is special, or why it counts
    nothing."""

    who: str
    amounts: dict[str, str]
    note: str = ""


class Placement(msgspec.Struct, frozen=True, rename="camel"):
    """The kubelet's verdict about the pod on an empty node, the CPUs of each container that owns some, and the events
    it posts."""

    admitted: bool
    reason: str = ""
    message: str = ""
    cpus: dict[str, str] = {}
    events: tuple[str, ...] = ()


class Page(Shown, msgspec.Struct, frozen=True, rename="camel"):
    """Everything about one pod. `errors` are the API server's, `refusals` those of LimitRange objects; `remarks` hold
    differences between v1.36.2 and the profile, refusals of the node, and events that the kubelet posts. `quota` says
    which containers a CPU quota throttles, and why; empty without CPU limits."""

    kind: str
    namespace: str
    name: str
    amounts: tuple[Amounts, ...]
    errors: tuple[str, ...]
    warnings: tuple[str, ...]
    refusals: tuple[str, ...]
    remarks: tuple[str, ...]
    qos: QOS
    effective: tuple[Effective, ...]
    cgroups: tuple[Cgroup, ...]
    cgroup_notes: tuple[str, ...]
    counts: tuple[Count, ...]
    placement: Placement | None = None
    quota: str = ""
    source: str = ""
    document: int = 0

    @property
    def accepted(self) -> bool:
        """Whether the API server stores the pod, as far as resources decide."""
        return not self.errors and not self.refusals


class InspectionList(msgspec.Struct, frozen=True):
    """One page for each pod, in the order of the files, and what they rest on; machine and configuration are empty
    where none is given."""

    items: tuple[Page, ...]
    provenance: Provenance = Provenance()
