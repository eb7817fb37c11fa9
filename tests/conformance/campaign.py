"""`python -m tests.conformance.campaign --pods 2000 --seed 1`: many questions to a real API server, and what podslice
answers otherwise. With `--found FILE` what differs is written there, one JSON document a line."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from e2e.controlplane import Api, ControlPlane, Settings, StatusError
from e2e.programs import find_programs
from e2e.sharedplane import NODES, prepare_namespace

from podslice.api.server.limitrange import limit_range_from_dict
from podslice.api.server.resize_admission import INIT_RESIZE, PLR_RESIZE
from tests.conformance.compare import Difference, differences, gates_of, podslice_says, server_says
from tests.conformance.draw import Draw
from tests.conformance.draw_resizes import ResizeDraw
from tests.conformance.draw_rules import RuleDraw
from tests.conformance.resizes import (
    around_of,
    make_node,
    make_rules,
    podslice_says_of_resize,
    server_says_of_resize,
)
from tests.conformance.rules import (
    podslice_says_of_limit_range,
    podslice_says_with_quota,
    server_says_of_limit_range,
    with_quota,
)
from tests.conformance.updates import podslice_says_of_update, server_says_of_update

Gates = Mapping[str, bool]
PODS_A_RULE = 20
RESIZES_A_POD = 5
RUNTIME_CLASS = {
    "metadata": {"name": "with-overhead"},
    "handler": "any",
    "overhead": {"podFixed": {"cpu": "250m", "memory": "120Mi"}},
}


class Case(NamedTuple):
    """A question, what kind of answer the server gave, and how podslice's differs."""

    asked: Any
    verdict: str
    differences: list[Difference]


class Report:
    """Counts by verdict, and the cases that differ."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        self.found: list[Case] = []

    def add(self, case: Case) -> None:
        self.counts[f"{case.verdict}, {'differs' if case.differences else 'same'}"] += 1
        if case.differences:
            self.found.append(case)


def dry_runs(api: Api, pods: int, seed: int, overrides: Gates) -> Report:
    """Pods as somebody would create them."""
    _runtime_class(api)
    draw, gates, report = Draw(seed), gates_of(overrides), Report()
    for number in range(pods):
        pod = draw.pod(f"p{number}")
        server = server_says(api, pod)
        report.add(Case(pod, server.verdict, differences(server, podslice_says(pod, gates))))
    return report


def limit_ranges(api: Api, pods: int, seed: int, overrides: Gates) -> Report:
    """LimitRange objects, and pods in the namespaces of those that are good."""
    _runtime_class(api)
    draw, gates, report = RuleDraw(seed, rare=0.3), gates_of(overrides), Report()
    for number in range(pods // PODS_A_RULE):
        rule = draw.limit_range(f"r{number}")
        server = server_says_of_limit_range(api, rule)
        unlike = differences(server, podslice_says_of_limit_range(rule, gates))
        report.add(Case(rule, f"LimitRange {server.verdict}", unlike))
        if server.verdict != "accepted" or unlike:
            continue
        namespace = f"limits-{seed}-{number}"
        prepare_namespace(api, namespace)
        api.call("POST", f"/api/v1/namespaces/{namespace}/limitranges", rule)
        kept = limit_range_from_dict(rule)
        for position in range(PODS_A_RULE):
            pod = draw.pod(f"p{position}")
            answer = server_says(api, pod, namespace)
            ours = podslice_says(pod, gates, [kept])
            report.add(Case([rule, pod], answer.verdict, differences(answer, ours)))
    return report


def quotas(api: Api, pods: int, seed: int, overrides: Gates) -> Report:
    """Pods in namespaces with a ResourceQuota, most of them too small."""
    _runtime_class(api)
    draw, gates, report = RuleDraw(seed, rare=0.2), gates_of(overrides), Report()
    for number in range(pods // PODS_A_RULE):
        namespace = f"quota-{seed}-{number}"
        prepare_namespace(api, namespace)
        rule = draw.quota(f"q{number}")
        kept = with_quota(api, namespace, rule)
        for position in range(PODS_A_RULE):
            pod = draw.pod(f"p{position}")
            answer = server_says(api, pod, namespace)
            ours = podslice_says_with_quota(pod, gates, kept)
            report.add(Case([rule, pod], answer.verdict, differences(answer, ours)))
    return report


def resizes(api: Api, pods: int, seed: int, overrides: Gates) -> Report:
    """Resizes of pods that exist: on a node that can hold little and declares no features or on a better one, in a
    namespace with a LimitRange, with a ResourceQuota or with neither."""
    _runtime_class(api)
    draw, gates, report = ResizeDraw(seed, rare=0.2), gates_of(overrides), Report()
    namespaces = {kind: f"resize-{kind}-{seed}" for kind in ("plain", "plain", "limits", "quota")}
    rules = {namespaces[kind]: make_rules(api, name, kind) for kind, name in namespaces.items()}
    nodes = [
        make_node(api, f"able-{seed}", {"cpu": "64", "memory": "64Gi"}, (PLR_RESIZE, INIT_RESIZE)),
        make_node(api, f"small-{seed}", {"cpu": "3", "memory": "1Gi"}, ()),
    ]
    while sum(report.counts.values()) < pods:
        pod, node = draw.pod(f"p{sum(report.counts.values())}"), draw.one_of(nodes)
        namespace = draw.one(list(rules))
        pod["spec"]["nodeName"] = node.name
        made = api.ask("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        if made.code != 201:
            continue
        path = f"/api/v1/namespaces/{namespace}/pods/{pod['metadata']['name']}"
        if draw.chance(0.5):
            api.call("PUT", f"{path}/status", {**made.body, "status": draw.status(made.body)})
        old, around = api.call("GET", path), around_of(api, namespace, node, rules[namespace])
        for _ in range(RESIZES_A_POD):
            new = draw.resize(old)
            answer = server_says_of_resize(api, new)
            ours = podslice_says_of_resize(new, old, gates, around)
            report.add(Case([old["spec"], new["spec"]], answer.verdict, differences(answer, ours)))
    return report


def updates(api: Api, pods: int, seed: int, overrides: Gates) -> Report:
    """Ordinary updates of pods that exist."""
    _runtime_class(api)
    draw, gates, report = ResizeDraw(seed, rare=2.0), gates_of(overrides), Report()
    namespace = f"update-{seed}"
    prepare_namespace(api, namespace)
    while sum(report.counts.values()) < pods:
        made = api.ask("POST", f"/api/v1/namespaces/{namespace}/pods", draw.pod(f"p{sum(report.counts.values())}"))
        if made.code != 201:
            continue
        old = made.body
        for _ in range(RESIZES_A_POD):
            new = draw.update(old)
            answer = server_says_of_update(api, new)
            ours = podslice_says_of_update(new, old, gates)
            report.add(Case([old["spec"], new["spec"]], answer.verdict, differences(answer, ours)))
    return report


def _runtime_class(api: Api) -> None:
    answer = api.ask("POST", "/apis/node.k8s.io/v1/runtimeclasses", RUNTIME_CLASS)
    if answer.code not in (201, 409):
        raise StatusError(answer.code, answer.body)


SUITES: dict[str, Callable[[Api, int, int, Gates], Report]] = {
    "pods": dry_runs,
    "limits": limit_ranges,
    "quota": quotas,
    "resize": resizes,
    "update": updates,
}


def main() -> int:
    """Exit 1 if anything differs."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.campaign", description=__doc__)
    parser.add_argument("--suite", choices=SUITES, default="pods")
    parser.add_argument("--pods", type=int, default=1000, help="how many questions")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gates", default="", metavar="A=true,B=false", help="feature gates of both sides")
    parser.add_argument("--found", type=Path, metavar="FILE")
    options = parser.parse_args()
    pairs = (one.partition("=") for one in options.gates.split(",") if one)
    gates = {name: value == "true" for name, _, value in pairs}
    with (
        tempfile.TemporaryDirectory(prefix="podslice-campaign-") as folder,
        ControlPlane(find_programs(), Path(folder), Settings(NODES, gates)) as plane,
        plane.api() as api,
    ):
        prepare_namespace(api, "default")
        report = SUITES[options.suite](api, options.pods, options.seed, gates)
    for what, number in report.counts.most_common():
        print(f"{number:6} {what}")
    if options.found:
        options.found.write_text("".join(json.dumps(_shown(case)) + "\n" for case in report.found))
    return 1 if report.found else 0


def _shown(case: Case) -> dict[str, Any]:
    return {"pod": case.asked, "differences": [one._asdict() for one in case.differences]}


if __name__ == "__main__":
    sys.exit(main())
