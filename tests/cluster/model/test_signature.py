"""Equal pods have one signature, and what has no part in it decides nothing."""

from __future__ import annotations

from random import Random

import pytest
from msgspec.structs import replace
from tools.judge.values import draw_node

from podslice import ExtendedResourceClaim, ExtendedResourceRequest, Node, Pod
from podslice.api.pod.spec import Container, map_containers, pod_from_dict
from podslice.node.holding import Holding, holding_of
from podslice.replica.signature import Signatures, signature_key
from podslice.values.errors import UpstreamDefectError
from tests.conftest import make_pod


def rename(pod: Pod, r: Random) -> Pod:
    """The same pod by other names, with another UID, in another namespace, with labels and images."""

    names: dict[str, str] = {}

    def other(container: Container) -> Container:
        names[container.name] = f"c{r.randrange(10**9)}-{container.name}"[:63]
        return replace(container, name=names[container.name], image=f"image-{r.random()}")

    uid = f"{r.randrange(1 << 60):x}"
    metadata = replace(
        pod.metadata, name=f"other-{uid}", uid=uid, namespace="elsewhere", labels={"app": uid}, generation=3
    )
    spec = map_containers(pod.spec, other)
    made = pod.status.extended_resource_claim_status
    if made is None:
        return replace(pod, metadata=metadata, spec=spec)
    mappings = tuple(replace(one, container_name=names[one.container_name]) for one in made.request_mappings)
    status = replace(pod.status, extended_resource_claim_status=ExtendedResourceClaim("other", mappings))
    return replace(pod, metadata=metadata, spec=spec, status=status)


def decide_on(node: Node, pod: Pod) -> tuple[str, Holding | None]:
    """The verdict, and what the pod has, without names."""
    node = Node.of(node.rules, node.state)
    try:
        decision = node.admit(pod)
    except UpstreamDefectError as defect:
        return defect.name, None
    return decision.reason, holding_of(node.state, pod.metadata.uid) if decision.admitted else None


@pytest.mark.slow
@pytest.mark.parametrize(("profile", "seeds"), [("podslice", 60), ("kubelet-1.36", 60)])
def test_names_decide_nothing(profile: str, seeds: int) -> None:
    """Drawn nodes with pods on them decide alike about a pod and about the same pod by other names: verdict, reason and
    holding; and both have one signature."""
    admitted = refused = 0
    for seed in range(seeds):
        r = Random(seed)
        drawn = draw_node(r, profile)
        if drawn is None:
            continue
        node, drawer = drawn
        for _ in range(12):
            pod = pod_from_dict(drawer.pod(pod_level=r.random() < 0.3))
            other = rename(pod, r)
            assert signature_key(pod) == signature_key(other)
            answer = decide_on(node, pod)
            assert decide_on(node, other) == answer, seed
            admitted, refused = admitted + (answer[1] is not None), refused + (answer[1] is None)
            try:
                node.admit(other)
            except UpstreamDefectError:
                break
    assert admitted > seeds
    assert refused > seeds


def test_what_counts() -> None:
    """Amounts, their spelling, the order of containers, sidecars, the pod level, annotations of a policy and what the
    scheduler says of claims make another signature."""
    pod = make_pod("p", ("a", "1"), ("b", "2"))
    counted = {"resourceClaimName": "x", "containers": ["a"], "resources": {"cpu": "2"}}
    mapped = [ExtendedResourceRequest(name, "example.com/gpu") for name in "ab"]
    others = [
        make_pod("p", ("b", "2"), ("a", "1")),
        make_pod("p", ("a", "1"), ("b", "3")),
        make_pod("p", ("a", "1000m"), ("b", "2")),
        make_pod("p", ("b", "2"), init=(("a", "1", False),)),
        make_pod("p", ("b", "2"), init=(("a", "1", True),)),
        make_pod("p", ("a", "1"), ("b", "2"), budget="4"),
        replace(pod, metadata=replace(pod.metadata, annotations={"podslice.io/resize": "below-baseline=allow"})),
        replace(pod, status=replace(pod.status, node_allocatable_resource_claim_statuses=(counted,))),
        *(
            replace(pod, status=replace(pod.status, extended_resource_claim_status=ExtendedResourceClaim("x", (one,))))
            for one in mapped
        ),
    ]
    keys = [signature_key(one) for one in (pod, *others)]
    assert len(set(keys)) == len(keys)


def test_room() -> None:
    """No more signatures are known than there is room for, the latest stay, and numbers are never given twice."""
    signatures = Signatures(3)
    pods = [make_pod("p", ("c", str(cpus))) for cpus in range(1, 6)]
    numbers = []
    for pod in pods:
        numbers.append(signatures.of(pod).number)
        forgotten = [one.number for one in signatures.drop_surplus()]
        assert all(number in numbers for number in forgotten)
    assert len(signatures) == 3
    assert signatures.of(pods[4]).number == numbers[4]
    assert signatures.of(pods[0]).number not in numbers
