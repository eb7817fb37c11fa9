"""The structured allocator: first solution, constraints, counters, amounts, and what v1.36.2 does otherwise."""

from __future__ import annotations

import copy
import random
from typing import Any

import pytest
from e2e.random_claims import CLASSES, random_case

from podslice.api.pod.spec import from_dict
from podslice.dra.allocation.nodes import ClusterDevices
from podslice.dra.allocation.pools import LabelledNode, OfferedDevice, pools_of
from podslice.dra.allocation.search import AbandonedError, RequestedClaim, Search, SearchLimitError
from podslice.dra.allocation.selectors import SelectorCache, SelectorError, UnknownClassError
from podslice.dra.allocation.usage import DeviceUsage
from podslice.dra.objects import DeviceClass, ResourceClaimSpec, ResourceSlice

Json = dict[str, Any]
NUMA = "resource.kubernetes.io/numaNode"


def by_driver(expression: str, offered: OfferedDevice) -> bool:
    """As much of CEL as these tests say: `DRIVER` is a device of that driver."""
    if expression == "broken":
        raise SelectorError(expression, offered.id[2], "no such key")
    return expression == offered.driver


CLASS_OBJECTS = {
    name: from_dict({"metadata": {"name": name}, "spec": {"selectors": [{"cel": {"expression": one}}] if one else []}},
                    DeviceClass)
    for name, one in (("any", ""), ("gpu", "gpu.example.com"), ("cpu", "podslice.io"), ("broken", "broken"))
}  # fmt: skip


def slice_of(*devices: Json, driver: str = "gpu.example.com", **spec: Any) -> ResourceSlice:
    pool = {"name": "pool", "generation": spec.pop("generation", 0), "resourceSliceCount": spec.pop("count", 1)}
    whole = {"driver": driver, "nodeName": "n", "pool": pool, "devices": list(devices), **spec}
    return from_dict({"metadata": {"name": spec.pop("name", "s")}, "spec": whole}, ResourceSlice)


def device(name: str, numa: int | None = None, **more: Any) -> Json:
    attributes = {} if numa is None else {NUMA: {"int": numa}}
    return {"name": name, "attributes": attributes, **more}


def claim(*requests: Json, constraints: tuple[Json, ...] = (), name: str = "c") -> RequestedClaim:
    spec = {"devices": {"requests": list(requests), "constraints": list(constraints)}}
    return RequestedClaim(name, from_dict(spec, ResourceClaimSpec).devices)


def request(name: str, which: str = "gpu", **form: Any) -> Json:
    return {"name": name, "exactly": {"deviceClassName": which, **form}}


def found(
    slices: list[ResourceSlice], *claims: RequestedClaim, usage: DeviceUsage | None = None
) -> list[list[str]] | None:
    usage = usage or DeviceUsage()
    before = copy.deepcopy((usage.owned, usage.consumed, {key: one for key, one in usage.counters.items() if one}))
    answer = Search(pools_of(slices, LabelledNode("n")), usage, SelectorCache(CLASS_OBJECTS, by_driver), claims).run()
    left = {key: one for key, one in usage.counters.items() if one}
    assert (usage.owned, usage.consumed, left) == before
    return None if answer is None else [[grant.offered.id[2] for grant in grants] for grants in answer]


def test_first_devices_in_order_of_slices_and_lists() -> None:
    """Slices go by name, devices as listed, and a device of its own is given once."""
    slices = [slice_of(device("b"), name="1", count=2), slice_of(device("z"), device("a"), name="0", count=2)]
    assert found(slices, claim(request("r", count=2), request("s"))) == [["z", "a", "b"]]
    assert found(slices, claim(request("r", count=2)), claim(request("s", count=2))) is None


def test_backtracking_for_a_common_attribute() -> None:
    """The first device is given back where the others then have nothing in common with it."""
    slices = [slice_of(device("a", 0), device("b", 1), device("c", 1))]
    same = ({"matchAttribute": NUMA},)
    assert found(slices, claim(request("r"), request("s"), constraints=same)) == [["b", "c"]]
    assert found(slices, claim(request("r", count=3), constraints=same)) is None


def near(name: str, *numas: int) -> Json:
    """A device with the list form of its NUMA node."""
    return {"name": name, "attributes": {NUMA: {"ints": list(numas)}}}


def test_lists_match_by_a_value_that_all_have() -> None:
    """KEP-5491: a list is a set, one value a set of it. What two devices share must be what the third has."""
    same = ({"matchAttribute": NUMA},)
    slices = [slice_of(near("a", 0, 1), near("b", 1, 2), near("c", 2, 0), device("d", 1))]
    two, three = claim(request("r", count=2), constraints=same), claim(request("r", count=3), constraints=same)
    assert found(slices, two) == [["a", "b"]]
    assert found(slices, three) == [["a", "b", "d"]]
    assert found([slice_of(near("a", 0, 1), near("b", 1, 2), near("c", 2, 0))], three) is None


def test_distinct_lists_share_no_value() -> None:
    """Devices of several requests differ in every value."""
    distinct = ({"distinctAttribute": NUMA},)
    slices = [slice_of(near("a", 0, 1), near("b", 1, 2), device("c", 1), near("d", 2, 3))]
    assert found(slices, claim(request("r"), request("s"), constraints=distinct)) == [["a", "d"]]


def test_distinct_attribute_looks_at_the_last_device_of_a_request() -> None:
    """As v1.36.2 has it: of a request with several devices only the last one's value counts for the next request."""
    slices = [slice_of(device("a", 0), device("b", 1), device("c", 0))]
    distinct = ({"distinctAttribute": NUMA},)
    assert found(slices, claim(request("r", count=2), request("s"), constraints=distinct)) == [["a", "b", "c"]]
    assert found(slices, claim(request("r"), request("s"), request("t"), constraints=distinct)) is None


def counting(*devices: tuple[str, int, bool], slots: int) -> list[ResourceSlice]:
    listed = []
    for name, amount, tainted in devices:
        counters = [{"counterSet": "all", "counters": {"slots": {"value": str(amount)}}}]
        taints = [{"key": "sick", "effect": "NoSchedule"}] if tainted else []
        listed.append(device(name, consumesCounters=counters, taints=taints))
    shared = [{"name": "all", "counters": {"slots": {"value": str(slots)}}}]
    return [slice_of(*listed, name="0", count=2), slice_of(name="1", count=2, sharedCounters=shared)]


def test_counters() -> None:
    """Devices share what their pool has."""
    slices = counting(("a", 2, False), ("b", 2, False), ("c", 1, False), slots=3)
    assert found(slices, claim(request("r", count=2))) == [["a", "c"]]
    assert found(slices, claim(request("r", count=3))) is None


def test_a_tainted_device_leaks_counters() -> None:
    """As v1.36.2 has it: a device that is not tolerated still takes its counters while the search lasts."""
    assert found(counting(("a", 3, True), ("b", 3, False), slots=5), claim(request("r"))) is None
    assert found(counting(("a", 3, True), ("b", 2, False), slots=5), claim(request("r"))) == [["b"]]


def zone(value: int, **limits: str) -> Json:
    policy = {"requestPolicy": {"default": "0", "validRange": {"min": "0", **limits}}} if limits else {}
    return device(f"zone-{value}", allowMultipleAllocations=True, capacity={"cpu": {"value": str(value), **policy}})


@pytest.mark.parametrize(
    ("asked", "limits", "consumed"),
    [
        ("3", {"step": "2"}, 4), ("1500m", {"step": "1"}, 2), ("1500m", {"min": "0"}, 1.5), ("9", {"max": "6"}, None),
        (None, {"step": "2"}, 0), (None, {}, 8), ("3", {}, 3),
    ],
)  # fmt: skip
def test_consumed_amounts(asked: str | None, limits: dict[str, str], consumed: float | None) -> None:
    """Amounts are rounded up by the policy; without a request it is the default, and without a policy all there is."""
    slices = [slice_of(zone(8, **limits), driver="podslice.io")]
    form = {} if asked is None else {"capacity": {"requests": {"cpu": asked}}}
    search = Search(
        pools_of(slices, LabelledNode("n")), DeviceUsage(), SelectorCache(CLASS_OBJECTS, by_driver),
        [claim(request("r", "cpu", **form))],
    )  # fmt: skip
    answer = search.run()
    got = None if answer is None else (answer[0][0].consumed or {})["podslice.io/cpu"] / 10**9
    assert got == consumed


def test_a_zone_serves_many_until_it_is_full() -> None:
    """Requests of one claim share a zone, devices of one request do not."""
    slices = [slice_of(zone(8, step="2"), driver="podslice.io")]
    four = {"capacity": {"requests": {"cpu": "4"}}}
    assert found(slices, claim(request("r", "cpu", **four), request("s", "cpu", **four))) == [["zone-8", "zone-8"]]
    assert found(slices, claim(*(request(name, "cpu", **four) for name in "rst"))) is None
    assert found(slices, claim(request("r", "cpu", count=2, **four))) is None


def test_first_available() -> None:
    """The first form that lets everything else in is taken, under the name of both."""
    slices = [slice_of(device("a")), slice_of(zone(8, step="2"), driver="podslice.io")]
    forms = [{"name": "two", "deviceClassName": "gpu", "count": 2}, {"name": "zone", "deviceClassName": "cpu"}]
    search = Search(
        pools_of(slices, LabelledNode("n")), DeviceUsage(), SelectorCache(CLASS_OBJECTS, by_driver),
        [claim({"name": "r", "firstAvailable": forms})],
    )  # fmt: skip
    answer = search.run()
    assert answer is not None
    assert [(grant.request, grant.offered.id[2]) for grant in answer[0]] == [("r/zone", "zone-8")]


def test_all_devices() -> None:
    """All means those with room before the pod; one in use, or none at all, is a refusal, and a broken constraint or a
    pool with slices missing ends the scheduler's work on the pod."""
    slices = [slice_of(device("a", 0), device("b", 1))]
    every = claim(request("r", allocationMode="All"))
    assert found(slices, every) == [["a", "b"]]
    assert found(slices, claim(request("q")), every) is None
    assert found([slice_of(driver="podslice.io")], every) is None
    tainted = slice_of(device("a", 0), device("b", 1, taints=[{"key": "sick", "effect": "NoSchedule"}]))
    assert found([tainted], claim(request("r", allocationMode="All"), constraints=({"matchAttribute": NUMA},))) is None
    lacking = [slice_of(device("a")), slice_of(zone(8, step="2"), driver="podslice.io")]
    asking = {"capacity": {"requests": {"cpu": "2"}}}
    assert found(lacking, claim(request("r", "any", allocationMode="All", **asking))) == [["zone-8"]]
    with pytest.raises(AbandonedError, match=r"because a claim constraint would not be satisfied"):
        found(slices, claim(request("r", allocationMode="All"), constraints=({"matchAttribute": NUMA},)))
    with pytest.raises(AbandonedError, match=r"asks for all devices, but resource pool gpu.example.com/pool is curr"):
        found([slice_of(device("a"), count=2)], every)


def test_pools() -> None:
    """Only the newest generation counts; a pool with slices missing, or with two devices of one name, gives nothing."""
    newer = slice_of(device("new"), generation=2)
    assert found([slice_of(device("old"), generation=1), newer], claim(request("r"))) == [["new"]]
    assert found([slice_of(device("a"), count=2)], claim(request("r"))) is None
    assert found([slice_of(device("a"), device("a"))], claim(request("r"))) is None
    assert found([slice_of(device("a"), nodeName="other")], claim(request("r"))) is None


def test_what_ends_a_search() -> None:
    """An unknown class and an expression without an answer are errors, in the scheduler's words where it has some."""
    slices = [slice_of(device("a"))]
    with pytest.raises(UnknownClassError, match=r"^request r: device class nope does not exist$"):
        found(slices, claim(request("r", "nope")))
    with pytest.raises(SelectorError, match="no such key"):
        found(slices, claim(request("r", "broken")))


def test_at_most_32_devices() -> None:
    """A claim has at most 32 devices."""
    slices = [slice_of(*(device(f"d{number}") for number in range(40)))]
    answer = found(slices, claim(request("r", count=32)))
    assert answer is not None
    assert len(answer[0]) == 32
    assert found(slices, claim(request("r", count=20), request("s", count=13))) is None


@pytest.mark.parametrize("seed", range(40))
def test_nodes_of_one_look_answer_alike(seed: int) -> None:
    """Looking answers up by a node's state gives what a search gives, pod after pod, whatever the devices' names."""
    draw = random.Random(seed)
    classes = {one["metadata"]["name"]: from_dict(one, DeviceClass) for one in CLASSES}
    case = random_case(draw, "n0")
    slices = [renamed(spec, node, index) for node in ("n0", "n1") for index, spec in enumerate(case.slices)]

    def matches(expression: str, offered: OfferedDevice) -> bool:
        return hash_of(expression, offered) % 3 > 0

    cluster = ClusterDevices(slices, [LabelledNode("n0"), LabelledNode("n1")], classes, matches)
    for number, pod in enumerate(case.pods):
        claims = [
            RequestedClaim(f"{number}-{i}", from_dict(one, ResourceClaimSpec).devices)
            for i, one in enumerate(pod.claims)
        ]
        answers = []
        for node in ("n0", "n1"):
            try:
                known = cluster.find(node, claims)
            except AbandonedError:
                known = None
            try:
                fresh = Search(cluster.nodes[node].pools, cluster.usage, cluster.selectors, claims).run()
            except AbandonedError:
                fresh = None
            assert known == fresh
            for one, own in zip(claims, known or [], strict=False):
                cluster.take(node, own, one.name)
            answers.append([[(grant.request, grant.offered.id[2]) for grant in own] for own in known or []])
        assert answers[0] == answers[1]


def answers(slices: list[ResourceSlice], pods: list[list[RequestedClaim]], matches: Any) -> list[object]:
    """Return the grants of one pod after the other, and the farthest state of each search; up to the first that takes
    too long."""
    classes = {one["metadata"]["name"]: from_dict(one, DeviceClass) for one in CLASSES}
    selecting, usage = SelectorCache(classes, matches), DeviceUsage()
    pools = pools_of(slices, LabelledNode("n0"))
    results: list[object] = []
    for claims in pods:
        search = Search(pools, usage, selecting, claims)
        try:
            got = search.run()
        except AbandonedError as error:
            results.append(str(error))
            continue
        except SearchLimitError:
            break
        for one, own in zip(claims, got or [], strict=False):
            for grant in own:
                usage.take(grant, one.name)
        results.append((got, search.deepest))
    return results


@pytest.mark.parametrize("seed", range(150))
def test_pruning_changes_no_answer(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaving out what is like a device that led nowhere finds what trying everything finds, pod after pod."""
    draw = random.Random(seed)
    case = random_case(draw, "n0")
    slices = [renamed(spec, "n0", index) for index, spec in enumerate(case.slices)]
    pods = [
        [RequestedClaim(f"{n}-{i}", from_dict(one, ResourceClaimSpec).devices) for i, one in enumerate(pod.claims)]
        for n, pod in enumerate(case.pods)
    ]

    def matches(expression: str, offered: OfferedDevice) -> bool:
        return hash_of(expression, offered) % 5 > 0

    monkeypatch.setattr("podslice.dra.allocation.search.MOST_STEPS", 20_000)
    monkeypatch.setattr("podslice.dra.allocation.search.STEPS_BEFORE_PRUNING", 1 << 60)
    plain = answers(slices, pods, matches)
    monkeypatch.setattr("podslice.dra.allocation.search.STEPS_BEFORE_PRUNING", -1)
    results = answers(slices, pods, matches)
    assert results[: len(plain)] == plain


@pytest.mark.parametrize(("cpus", "together"), [(64, 8), (384, 16), (128, 64)])
def test_many_devices_alike(cpus: int, together: int) -> None:
    """A device for each CPU: all of one cache are found where only the last cache is whole, and that there is none is
    said, instead of trying all sets of CPUs."""
    devices = [device(f"cpu-{n}", n // together) for n in range(cpus)]
    for n, one in enumerate(devices):
        one["attributes"]["cpu"] = {"int": n}
    count = min(together, 32)
    last = cpus - together
    whole = [n for n in range(cpus) if n % together >= together - count + 1 or n >= last]
    slices = [slice_of(*(devices[n] for n in whole))]
    same = ({"matchAttribute": NUMA},)
    wanted = claim(request("r", count=count), constraints=same)
    assert found(slices, wanted) == [[f"cpu-{n}" for n in range(last, last + count)]]
    left = [slice_of(*(devices[n] for n in whole if n % together >= together - count + 1))]
    assert found(left, wanted) is None
    assert found(left, claim(request("r", count=count - 1), request("s"), constraints=same)) is None


def renamed(spec: Json, node: str, index: int) -> ResourceSlice:
    """The same slice on another node."""
    pool = {**spec["pool"], "name": spec["pool"]["name"].replace("n0", node)}
    whole = {"metadata": {"name": f"{node}-{index:02x}"}, "spec": {**spec, "nodeName": node, "pool": pool}}
    return from_dict(whole, ResourceSlice)


def hash_of(expression: str, offered: OfferedDevice) -> int:
    """The same for devices that look the same, in every process."""
    return sum((expression + repr(offered.look)).encode())


@pytest.mark.parametrize("counters", [False, True])
def test_pools_of_other_nodes_that_lack_slices(counters: bool) -> None:
    """As v1.36.2 has it: such a pool keeps requests for all devices from every node if it has counters."""
    shared = [{"name": "all", "counters": {"slots": {"value": "1"}}}] if counters else []
    other = slice_of(nodeName="m", count=3, sharedCounters=shared, driver="other.example.com")
    slices = [slice_of(device("a")), other]
    cluster = ClusterDevices(slices, [LabelledNode("n"), LabelledNode("m")], CLASS_OBJECTS, by_driver)
    every = [claim(request("r", allocationMode="All"))]
    if counters:
        with pytest.raises(AbandonedError, match=r"other\.example\.com/pool is currently being updated"):
            cluster.find("n", every)
    else:
        found = cluster.find("n", every)
        assert found is not None
        assert [grant.offered.id[2] for grant in found[0]] == ["a"]
