"""`python -m e2e.allocations`: random claims, answered by the real kube-scheduler and by podslice."""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from e2e.controlplane import Api, ControlPlane, Json, Settings
from e2e.programs import find_programs
from e2e.random_claims import CLASSES, Case, PodCase, random_case
from e2e.scheduling import SOON, create_node, profile
from podslice.api.pod.spec import from_dict
from podslice.dra.allocation.nodes import ClusterDevices
from podslice.dra.allocation.pools import LabelledNode
from podslice.dra.allocation.search import AbandonedError, RequestedClaim, Search, SearchLimitError
from podslice.dra.allocation.selectors import SelectorCache, SelectorError
from podslice.dra.allocation.usage import DeviceGrant, DeviceUsage, recorded_consumption
from podslice.dra.cel import CELSelectors
from podslice.dra.objects import AllocationResult, DeviceClass, ResourceClaimSpec, ResourceSlice

Devices = list[list[tuple[str, str, str, str, tuple[tuple[str, int], ...]]]]
"""Results of each claim: request, driver, pool, device and consumed capacity in billionths."""


class Verdict(NamedTuple):
    """Allocated devices (None: refused), and the message."""

    devices: Devices | None
    message: str = ""


class Outcome(NamedTuple):
    """The answers of both sides for one pod."""

    node: str
    number: int
    slices: tuple[Json, ...]
    pod: PodCase
    real: Verdict
    ours: Verdict

    @property
    def different(self) -> bool:
        return (self.real.devices is None) != (self.ours.devices is None)

    @property
    def elsewhere(self) -> bool:
        return not self.different and self.real.devices != self.ours.devices


class Model:
    """The answers of podslice for the pods of one case."""

    def __init__(self, slices: list[ResourceSlice], node: str, selecting: SelectorCache) -> None:
        self._pools = (
            ClusterDevices(slices, [LabelledNode(node)], {}, lambda expression, offered: False).nodes[node].pools
        )
        self._selecting = selecting
        self._usage = self._before = DeviceUsage()
        self._devices = {one.id: one for pool in self._pools for one in pool.devices}

    def answer(self, pod: PodCase) -> Verdict:
        self._before = self._usage.copy()
        claims = [
            RequestedClaim(f"claim-{index}", from_dict(spec, ResourceClaimSpec).devices)
            for index, spec in enumerate(pod.claims)
        ]
        try:
            found = Search(self._pools, self._usage, self._selecting, claims).run()
        except (AbandonedError, SelectorError, SearchLimitError) as error:
            return Verdict(None, str(error))
        if found is None:
            return Verdict(None)
        devices: Devices = []
        for grants in found:
            rows = []
            for grant in grants:
                consumed = tuple(sorted((grant.consumed or {}).items()))
                rows.append((grant.request, *grant.offered.id, consumed))
                self._usage.take(grant, "claim")
            devices.append(rows)
        return Verdict(devices)

    def follow(self, real: Verdict) -> None:
        """Continue from the other side's answer."""
        self._usage = self._before
        for rows in real.devices or []:
            for request, driver, pool, device, consumed in rows:
                self._usage.take(
                    DeviceGrant(request, self._devices[driver, pool, device], dict(consumed) or None), "claim"
                )


def slice_of(spec: Json, node: str, index: int) -> Json:
    return {"metadata": {"name": f"{node}-{index:02x}"}, "spec": spec}


class Asking:
    """The scheduler's answers."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
        self.pods = "/api/v1/namespaces/default/pods"

    def prepare(self, case: Case, node: str) -> None:
        create_node(self.api, node)
        for index, spec in enumerate(case.slices):
            self.api.call("POST", "/apis/resource.k8s.io/v1/resourceslices", slice_of(spec, node, index))

    def create(self, pod: PodCase, name: str, node: str) -> None:
        names = [f"{name}-{index}" for index in range(len(pod.claims))]
        for claim, spec in zip(names, pod.claims, strict=True):
            self.api.call("POST", self.claims, {"metadata": {"name": claim}, "spec": spec})
        term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}
        only = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
        self.api.call("POST", self.pods, {"metadata": {"name": name}, "spec": {
            "terminationGracePeriodSeconds": 0, "automountServiceAccountToken": False, "schedulerName": "real",
            "affinity": {"nodeAffinity": only},
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": one} for one in names]}}],
            "resourceClaims": [{"name": one, "resourceClaimName": one} for one in names],
        }})  # fmt: skip

    def settled(self, names: list[str]) -> dict[str, Verdict]:
        """Wait until the scheduler has answered for each pod."""
        missing, found = set(names), {}
        deadline = time.monotonic() + 120
        while missing:
            for pod in self.api.call("GET", self.pods)["items"]:
                name = pod["metadata"]["name"]
                if name not in missing:
                    continue
                if pod["spec"].get("nodeName"):
                    found[name] = Verdict(self.devices(name, len(pod["spec"]["resourceClaims"])))
                    missing.discard(name)
                    continue
                for condition in pod.get("status", {}).get("conditions", []):
                    if condition["type"] == "PodScheduled" and condition["status"] == "False":
                        message = condition.get("message", "")
                        if "cannot allocate all claims" in message or "CEL" in message or "claim default/" in message:
                            found[name] = Verdict(None, message)
                            missing.discard(name)
                        elif time.monotonic() > deadline:
                            found[name] = Verdict(None, f"?? {message}")
                            missing.discard(name)
            time.sleep(0.2)
        return found

    def devices(self, name: str, count: int) -> Devices:
        devices: Devices = []
        for index in range(count):
            claim = self.api.call("GET", f"{self.claims}/{name}-{index}")
            results = claim["status"]["allocation"]["devices"]["results"]
            devices.append([row(from_dict(one, AllocationResult)) for one in results])
        return devices

    def delete(self, name: str, count: int) -> None:
        self.api.call("DELETE", f"{self.pods}/{name}?gracePeriodSeconds=0")
        for index in range(count):
            self.api.call("DELETE", f"{self.claims}/{name}-{index}")


def row(result: AllocationResult) -> tuple[str, str, str, str, tuple[tuple[str, int], ...]]:
    return (
        result.request,
        result.driver,
        result.pool,
        result.device,
        tuple(sorted(recorded_consumption(result).items())),
    )


def batch(api: Api, cases: list[tuple[str, Case]], selecting: SelectorCache) -> Iterator[Outcome]:
    asking = Asking(api)
    pools = [slice_of(spec, node, index) for node, case in cases for index, spec in enumerate(case.slices)]
    whole = [from_dict(one, ResourceSlice) for one in pools]
    models = [Model(whole, node, selecting) for node, _ in cases]
    for node, case in cases:
        asking.prepare(case, node)
    time.sleep(1.0)
    for step in range(max(len(case.pods) for _, case in cases)):
        names = [f"{node}-p{step}" for node, _ in cases]
        for (node, case), name in zip(cases, names, strict=True):
            asking.create(case.pods[step], name, node)
        found = asking.settled(names)
        for (node, case), name, model in zip(cases, names, models, strict=True):
            real, ours = found[name], model.answer(case.pods[step])
            yield Outcome(node, step, case.slices, case.pods[step], real, ours)
            if real.devices != ours.devices:
                model.follow(real)
            if real.devices is None:
                asking.delete(name, len(case.pods[step].claims))
    for path in (asking.pods, asking.claims, "/apis/resource.k8s.io/v1/resourceslices", "/api/v1/nodes"):
        api.call("DELETE", f"{path}?gracePeriodSeconds=0")
    for claim in api.call("GET", asking.claims)["items"]:
        api.call("PATCH", f"{asking.claims}/{claim['metadata']['name']}", {"metadata": {"finalizers": None}},
                 "application/merge-patch+json")  # fmt: skip


def compare(folder: Path, *, cases: int, seed: int, size: int = 25, missing: float = 0.0) -> Iterator[Outcome]:
    """Yield the answers of both sides for the pods of `nodes` nodes, `size` of them at a time. `missing` is how likely
    a pool lacks a slice."""
    draw = random.Random(seed)
    classes = {one["metadata"]["name"]: from_dict(one, DeviceClass) for one in CLASSES}
    selecting = SelectorCache(classes, CELSelectors().matches)
    with ControlPlane(find_programs(), folder / "plane", Settings()) as plane:
        plane.start_scheduler({"profiles": [profile("real")], **SOON})
        with plane.api() as api:
            api.ask("POST", "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
            for one in CLASSES:
                api.call("POST", "/apis/resource.k8s.io/v1/deviceclasses", one)
            for first in range(0, cases, size):
                nodes = [f"node-{number}" for number in range(first, min(first + size, cases))]
                yield from batch(api, [(node, random_case(draw, node, missing=missing)) for node in nodes], selecting)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m e2e.allocations", description=__doc__)
    parser.add_argument("--cases", type=int, default=200, help="nodes, each with four pods (default: 200)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=25, help="nodes at a time (default: 25)")
    parser.add_argument("--missing", type=float, default=0.0, help="how likely a pool lacks a slice (default: 0)")
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        for outcome in compare(
            Path(folder), cases=options.cases, seed=options.seed, size=options.batch, missing=options.missing
        ):
            counts["pods"] += 1
            counts["claims"] += len(outcome.pod.claims)
            counts["allocated"] += outcome.real.devices is not None
            counts["different"] += outcome.different
            counts["other devices"] += outcome.elsewhere
            if outcome.different or outcome.elsewhere:
                print(json.dumps(outcome._asdict(), default=str), flush=True)
            if counts["pods"] % (4 * options.batch) == 0:
                print(dict(counts), file=sys.stderr, flush=True)
    print(", ".join(f"{count} {what}" for what, count in counts.items()))
    return 1 if counts["different"] or counts["other devices"] else 0


if __name__ == "__main__":
    sys.exit(main())
