"""Pods of exported metrics: kube-state-metrics' series about requests become objects, like those of kubectl.

A pod exists from its first sample to its last one. What happened between two moments of the export, such as the end of
a pod that is in one and not in the next, is assumed half-way between them; `kube_pod_created` and
`kube_pod_completion_time` have the exact time. Pods that have a sample at the last moment still run.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from podslice.fleet.importing.kube_pods import SEEN_LAST, time_text
from podslice.fleet.importing.metrics_read import LATEST, MetricSeries
from podslice.values.quantity import plural

_AMOUNT = re.compile(
    r"kube_pod_(?P<init>init_)?container_resource_(?P<field>requests|limits)(?:_(?P<of>cpu_cores|memory_bytes))?$"
)
_OLD = {"cpu_cores": "cpu", "memory_bytes": "memory"}
_INFO, _OWNER, _CONTAINER = "kube_pod_info", "kube_pod_owner", "kube_pod_container_info"
_INIT, _POLICY = "kube_pod_init_container_info", "restart_policy"
"""The label exists from kube-state-metrics 2.11 on."""
_CREATED, _COMPLETED, _PHASE = "kube_pod_created", "kube_pod_completion_time", "kube_pod_status_phase"
_DOMAIN = re.compile(r"((?:[a-z0-9]+_)*?[a-z0-9]+_(?:com|io|org|net|dev|ai|cn))_(.+)")


class MetricsPods(NamedTuple):
    """Pods as objects, the beginning of the export (milliseconds since 1970), and lines about assumptions and about
    what was left out."""

    pods: tuple[dict[str, Any], ...]
    begin: int
    assumed: tuple[str, ...]
    problems: tuple[str, ...]


class _Grid:
    """The moments of all samples, and the usual distance within one series (0: unknown), in milliseconds. Series of
    several queries may lie between each other's moments."""

    def __init__(self, moments: Iterable[int], steps: Counter[int]) -> None:
        self.moments = sorted(moments)
        between = steps or Counter(after - before for before, after in pairwise(self.moments))
        self.usual = min(between, key=lambda step: (-between[step], step), default=0)
        self.longest = max(between, default=0)
        self._step = self.usual if steps else 0

    def before(self, at: int) -> int:
        """Return the middle between this moment and the one before; the moment itself where it is among the first."""
        place = bisect_left(self.moments, at)
        return at if at - self.moments[0] < max(self._step, 1) else (self.moments[place - 1] + at) // 2

    def after(self, at: int) -> int | None:
        """Return the middle between this moment and the next one; None where it is among the last."""
        place = bisect_right(self.moments, at)
        return None if self.moments[-1] - at < max(self._step, 1) else (self.moments[place] + at) // 2

    def follows(self, at: int, before: int) -> bool:
        """Whether no moment is missing between two."""
        # Up to one and a half steps apart count as consecutive.
        return 2 * (at - before) <= 3 * self._step or bisect_left(self.moments, at) <= bisect_right(
            self.moments, before
        )


class _Life:
    """The samples of one pod."""

    def __init__(self) -> None:
        self.times: dict[str, set[int]] = {}
        """Moments of its samples, by node; node "" while it is pending."""
        self.namespace = self.name = self.uid = self.owner = self.priority = ""
        self.created: int | None = None
        self.ended: int | None = None
        self.changed = False
        self.containers: dict[tuple[bool, str], dict[str, dict[str, float]]] = {}
        """Requests and limits by resource, by (is init container, name)."""
        self.policies: dict[str, str] = {}
        """Restart policies of init containers, where known: Always makes a sidecar."""


def metrics_pods(series: Iterable[MetricSeries], resources: Iterable[str] = ()) -> MetricsPods:
    """Return the pods of series. `resources`: names of the nodes' resources, which labels are matched with."""
    reader = _Reader(resources)
    for one in series:
        reader.read(one)
    return reader.collect()


class _Reader:
    """Collects series by pod."""

    def __init__(self, resources: Iterable[str]) -> None:
        self._names = {_label_of(name): name for name in resources}
        self._lives: dict[tuple[str, ...], _Life] = {}
        self._moments: set[int] = set()
        self._steps: Counter[int] = Counter()
        self._unused: Counter[str] = Counter()
        self._nameless: Counter[str] = Counter()
        self._guessed: dict[str, str] = {}
        self._has_limits = False

    def read(self, one: MetricSeries) -> None:
        """Add a series."""
        amount = _AMOUNT.match(one.name)
        if amount is None and one.name not in (_INFO, _OWNER, _CONTAINER, _INIT, _CREATED, _COMPLETED, _PHASE):
            self._unused[one.name or "without a name"] += 1
            return
        # Prometheus renames an exporter's own label to `exported_…` where the scraped target has one of that name.
        name = one.labels.get("exported_pod") or one.labels.get("pod", "")
        if not name:
            self._nameless[f"{one.name} without the label pod"] += 1
            return
        life = self._life(one, name)
        if amount is not None:
            self._read_amount(one, amount, life)
        elif one.name == _CREATED:
            life.created = self._moment(one)
        elif one.name == _COMPLETED:
            life.ended = self._moment(one)
        elif one.name == _PHASE:
            self._read_phase(one, life)
        else:
            self._read_info(one, life)

    def _moment(self, one: MetricSeries) -> int | None:
        """Return the latest value, which is a time in seconds since 1970, in milliseconds."""
        found = round(max(value for _, value in one.samples) * 1000)
        if 0 <= found < LATEST:
            return found
        self._nameless[f"{one.name} with a value that is not a time"] += 1
        return None

    def _life(self, one: MetricSeries, name: str) -> _Life:
        """Return the record of a series' pod."""
        namespace = one.labels.get("exported_namespace") or one.labels.get("namespace") or "default"
        uid = one.labels.get("uid", "")
        life = self._lives.setdefault((namespace, name, uid), _Life())
        life.namespace, life.name, life.uid = namespace, name, uid
        return life

    def _read_amount(self, one: MetricSeries, amount: re.Match[str], life: _Life) -> None:
        """Add the requests or limits of a container."""
        container = one.labels.get("exported_container") or one.labels.get("container", "")
        resource = _OLD.get(amount["of"] or "") or self._resource(one.labels.get("resource", ""))
        if not container or not resource:
            self._nameless[f"{one.name} without the label {'resource' if container else 'container'}"] += 1
            return
        self._add_times(one, life)
        self._has_limits |= amount["field"] == "limits"
        values = [value for _, value in one.samples]
        fields = life.containers.setdefault((bool(amount["init"]), container), {"requests": {}, "limits": {}})
        known = fields[amount["field"]].get(resource, 0.0)
        life.changed |= min(values) != max(values)
        # A resize changes the amount; the largest decides, and a line reports it.
        fields[amount["field"]][resource] = max(known, *values)

    def _add_times(self, one: MetricSeries, life: _Life) -> None:
        times = [at for at, _ in one.samples]
        life.times.setdefault(one.labels.get("node", ""), set()).update(times)
        self._moments.update(times)
        self._steps.update(after - before for before, after in pairwise(times) if after > before)

    def _read_info(self, one: MetricSeries, life: _Life) -> None:
        """Add owner, priority class and containers."""
        self._add_times(one, life)
        kind = one.labels.get("owner_kind") or one.labels.get("created_by_kind") or ""
        # kube-state-metrics writes `<none>` for pods without an owner.
        life.owner = kind if kind not in ("", "<none>") else life.owner
        life.priority = one.labels.get("priority_class") or life.priority
        container = one.labels.get("exported_container") or one.labels.get("container", "")
        if one.name in (_CONTAINER, _INIT) and container:
            life.containers.setdefault((one.name == _INIT, container), {"requests": {}, "limits": {}})
        if one.name == _INIT and _POLICY in one.labels:
            life.policies[container] = one.labels[_POLICY]

    def _read_phase(self, one: MetricSeries, life: _Life) -> None:
        over = [at for at, value in one.samples if value == 1.0 and one.labels.get("phase") in ("Succeeded", "Failed")]
        if over and life.ended is None:
            life.ended = over[0]

    def _resource(self, label: str) -> str:
        """Return the resource of a label, as a node names it or by a guess."""
        if label in self._names or not label:
            return self._names.get(label, "")
        name = _guess_resource(label)
        if name != label:
            self._guessed[label] = name
        return name

    def collect(self) -> MetricsPods:
        """Return the pods of all series."""
        grid = _Grid(self._moments, self._steps)
        lives = [life for _, life in sorted(self._merge_without_uid().items()) if life.times]
        pods = [one for life in lives for one in _split_stays(life, grid)]
        gaps = sum(one.has_gap(grid) for one in pods)
        changed = sum(one.changed for one in lives)
        again = len(pods) - len(lives)
        assumed = [f"resource {label} of metrics is taken to be {name}" for label, name in self._guessed.items()]
        if grid.moments:
            assumed.append(f"metrics have {plural(len(grid.moments), 'moment')}, {_step_text(grid)}: what comes and "
                           "goes between two of them does so half-way")  # fmt: skip
        if pods and not self._has_limits:
            assumed.append("metrics have no limits, so pods are Burstable and get no CPUs of their own: export "
                           "kube_pod_container_resource_limits too")  # fmt: skip
        unknown = sum(any(init for init, _ in one.containers) for one in lives)
        if unknown and not any(one.policies for one in lives):
            assumed.append(f"metrics name no sidecar among the init containers of {plural(unknown, 'pod')}: "
                           f"kube-state-metrics has them in {_INIT}, from 2.11 on")  # fmt: skip
        if changed:
            assumed.append(f"the requests of {plural(changed, 'pod')} changed while they ran; the largest are taken")
        if gaps:
            assumed.append(f"{plural(gaps, 'pod')} without samples for a while ran on meanwhile")
        if again:
            assumed.append(f"{plural(again, 'pod')} without the label uid came again under the same name: gone for a "
                           "while, or on another node")  # fmt: skip
        problems = [f"{count} series of metric {name} have nothing about pods' requests" for name, count in
                    sorted(self._unused.items())]  # fmt: skip
        problems += [f"{count} series of {what}" for what, count in sorted(self._nameless.items())]
        shown = tuple(one.to_object(grid) for one in pods)
        return MetricsPods(shown, grid.moments[0] if grid.moments else 0, tuple(assumed), tuple(problems))

    def _merge_without_uid(self) -> dict[tuple[str, ...], _Life]:
        """Merge series without the label uid into the pod with a UID, where only one pod has that name."""
        named: dict[tuple[str, ...], list[_Life]] = {}
        for life in self._lives.values():
            if life.uid:
                named.setdefault((life.namespace, life.name), []).append(life)
        kept = dict(self._lives)
        for (namespace, name), own in named.items():
            without = kept.get((namespace, name, ""))
            if without is not None and len(own) == 1:
                _join(own[0], without)
                del kept[namespace, name, ""]
        return kept


def _join(life: _Life, other: _Life) -> None:
    """Add the series of `other`, which has no UID, to a pod."""
    for node, times in other.times.items():
        life.times.setdefault(node, set()).update(times)
    life.owner, life.priority = life.owner or other.owner, life.priority or other.priority
    life.created = other.created if life.created is None else life.created
    life.ended = other.ended if life.ended is None else life.ended
    life.containers = {**other.containers, **life.containers}
    life.policies = {**other.policies, **life.policies}


class _Stay(NamedTuple):
    """A pod while it existed: the moments of its samples, in order, and its node. `number`: among pods with its name
    and without UIDs."""

    life: _Life
    times: tuple[int, ...]
    node: str
    number: int

    def has_gap(self, grid: _Grid) -> bool:
        """Whether the pod has no sample at a moment between others that it has."""
        return not all(grid.follows(after, before) for before, after in pairwise(self.times))

    def to_object(self, grid: _Grid) -> dict[str, Any]:
        """Return the Pod object."""
        life = self.life
        came = self._begin(grid)
        end = self._end(grid, came)
        metadata: dict[str, Any] = {
            "name": life.name,
            "namespace": life.namespace,
            "uid": life.uid,
            "creationTimestamp": time_text(came),
            "ownerReferences": [{"kind": life.owner}] if life.owner else [],
        }
        if end is not None:
            metadata["annotations"] = {SEEN_LAST: time_text(end)}
        spec: dict[str, Any] = {"containers": [*_containers(life, init=False)] or [{"name": "main"}]}
        spec |= {"initContainers": found} if (found := [*_containers(life, init=True)]) else {}
        spec |= {"nodeName": self.node} if self.node else {}
        spec |= {"priorityClassName": life.priority} if life.priority else {}
        status = {"phase": "Running" if self.node else "Pending", "startTime": time_text(came)}
        return {"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": spec, "status": status}

    def _begin(self, grid: _Grid) -> int:
        created = self.life.created
        known = created is not None and created <= self.times[0] and not self.number
        return created if known and created is not None else grid.before(self.times[0])

    def _end(self, grid: _Grid, came: int) -> int | None:
        """Return when the pod ended in milliseconds since 1970, None while it runs."""
        ended = self.life.ended
        if ended is not None and self.number == 0 and ended >= came:
            return ended
        return grid.after(self.times[-1])


def _split_stays(life: _Life, grid: _Grid) -> Iterator[_Stay]:
    """Split the samples of a name into pods. A name with a UID is one pod, whatever is missing between; without, a
    sample on another node, or after moments that the pod misses, begins another pod."""
    waiting = life.times.get("", set())
    if life.uid:
        node = next((node for node in sorted(life.times) if node), "")
        yield _Stay(life, tuple(sorted(set().union(*life.times.values()))), node, 0)
        return
    seen = sorted((at, node) for node, times in life.times.items() if node for at in times)
    seen += [(at, "") for at in waiting if not seen or at < seen[0][0]]
    parts: list[tuple[str, list[int]]] = []
    for at, node in sorted(seen):
        follows = bool(parts) and grid.follows(at, parts[-1][1][-1])
        if follows and node == parts[-1][0]:
            parts[-1][1].append(at)
        elif follows and not parts[-1][0]:
            parts[-1] = node, [*parts[-1][1], at]
        else:
            parts.append((node, [at]))
    for number, (node, times) in enumerate(parts):
        yield _Stay(life, tuple(times), node, number)


def _containers(life: _Life, *, init: bool) -> Iterator[dict[str, Any]]:
    for (is_init, name), fields in sorted(life.containers.items()):
        if is_init is not init:
            continue
        requests, limits = dict(fields["requests"]), dict(fields["limits"])
        extended = {key: value for key, value in requests.items() if "/" in key}
        amounts = {"requests": requests, "limits": {**extended, **limits}}
        resources = {
            field: {key: _quantity(key, value) for key, value in sorted(own.items())} for field, own in amounts.items()
        }
        always = {"restartPolicy": "Always"} if init and life.policies.get(name) == "Always" else {}
        yield {"name": name, "resources": {field: own for field, own in resources.items() if own}, **always}


def _quantity(resource: str, value: float) -> str:
    return f"{round(value * 1000)}m" if resource == "cpu" else str(round(value))


def _label_of(resource: str) -> str:
    """Return the label that kube-state-metrics makes of a resource's name."""
    return re.sub(r"[^a-zA-Z0-9_]", "_", resource)


def _guess_resource(label: str) -> str:
    """Return the name of a resource that no node has, from its label."""
    if label in ("cpu", "memory"):
        return label
    if label.startswith(("hugepages_", "ephemeral_")):
        return label.replace("_", "-")
    domain = _DOMAIN.fullmatch(label)
    if domain is None:
        return label
    return f"{domain[1].replace('_', '.')}/{domain[2].replace('_', '-')}"


def _step_text(grid: _Grid) -> str:
    """Describe the distance of moments."""
    if not grid.usual:
        return "so nothing of it comes or goes"
    more = f", up to {grid.longest / 1000:g} s" if grid.longest > grid.usual else ""
    return f"{grid.usual / 1000:g} s apart{more}"
