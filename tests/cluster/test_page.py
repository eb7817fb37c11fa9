"""The cluster's page: answers that are the nodes' own, small maps that follow changes, and who may ask."""

from __future__ import annotations

import asyncio
import gzip
import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from podslice import Node
from podslice.cluster.model.eviction import Evictable
from podslice.cluster.model.room import SIZES, Room
from podslice.cluster.page.app import ClusterPage, on_loop, read_asked_pod, read_pods
from podslice.cluster.page.history import FragmentationHistory, measure_room_now
from podslice.cluster.page.slices import Slices
from podslice.cluster.page.survey import NOT_LOOKED_AT
from podslice.cluster.page.ways_out import CrowdedNode, ways_on, ways_out
from podslice.cluster_view.answers import FragmentationPoint, NodeTile, PodFit
from podslice.node.decide import release
from podslice.service.http.guard import Request
from podslice.values.quantity import Quantity
from tests.cluster.bench import mirror_object, pod_object, scheduled_pod, shared_pod
from tests.cluster.fake_api import Json
from tests.cluster.pagebench import PageCluster, ServedCluster, guaranteed_pod, serve
from tests.read_documents import read_document


@pytest.fixture
def cluster() -> PageCluster:
    """An empty node, one whose seven free CPUs are scattered, one that is nearly full, and one that is cordoned."""
    cluster = PageCluster()
    cluster.node("empty")
    cluster.node("scattered", 4, 4)
    cluster.node("full", 7, 7)
    cluster.node("cordoned", unschedulable=True)
    return cluster


@pytest.fixture
def site(cluster: PageCluster) -> Iterator[ServedCluster]:
    with serve(cluster) as found:
        yield found


def answer(site: ServedCluster, path: str, kind: str, body: Json | str | None = None, **headers: str) -> Json:
    """The document that is at a path, or answers a manifest."""
    data = None if body is None else (body if isinstance(body, str) else json.dumps(body)).encode()
    if data is not None:
        headers |= {"X-Podslice": "1"}
    with urllib.request.urlopen(urllib.request.Request(site.url + path, data, headers), timeout=60) as reply:
        return read_document(reply.read().decode(), kind)


def status(site: ServedCluster, path: str, **headers: str) -> int:
    """That of an answer that is none."""
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(urllib.request.Request(site.url + path, headers=headers), timeout=60)
    error.value.close()
    return error.value.code


def manifest(cpus: str, **spec: Any) -> Json:
    document = pod_object("asked", cpus, **spec)
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "asked"}, "spec": document["spec"]}


def fit(site: ServedCluster, cpus: str, **spec: Any) -> Json:
    (found,) = answer(site, "fit?ways=1", "PodFitList", manifest(cpus, **spec))["items"]
    return dict(found)


def test_fit_says_where_and_why_not(site: ServedCluster, cluster: PageCluster) -> None:
    """Every node is in the answer once: those that take the pod, the best with the CPUs it would own, or a reason."""
    found = fit(site, "6")
    own = Node.of(cluster.like.rules, cluster.like.state).admit(guaranteed_pod("asked", 6)).containers[0]
    assert (found["pod"], found["exclusive"], found["nodes"], found["fitting"]) == ("default/asked", True, 4, 1)
    assert found["best"] == [{"node": "empty", "cpus": str(own.cpus), "numaNodes": [0], "kubernetes": "1.36"}]
    assert found["fittingNodes"] == ["empty"]
    refused = {one["reason"]: one["nodes"] for one in found["refused"]}
    assert refused == {
        "no NUMA node has 6 exclusive CPUs free": ["scattered", "full"],
        "node(s) were unschedulable": ["cordoned"],
    }
    assert found["ways"] is None


@pytest.mark.parametrize("number", ["1.5", "1e3", "0.1e1"])
def test_fractions_in_a_manifest(site: ServedCluster, number: str) -> None:
    """Whatever number stands in a manifest, the page answers."""
    body = json.dumps(manifest("6", tolerations=[{"tolerationSeconds": 77}])).replace("77", number)
    (found,) = answer(site, "fit", "PodFitList", body)["items"]
    assert found["best"][0]["node"] == "empty"


def test_fit_is_what_nodes_say() -> None:
    """For drawn nodes and pods, the nodes that a survey names are exactly those whose own admission takes the pod."""
    r, cluster = Random(18), PageCluster()
    nodes: dict[str, Node] = {}
    for number in range(12):
        node = Node.of(cluster.like.rules, cluster.like.state)
        for count in range(r.randrange(5)):
            node.admit(guaranteed_pod(f"n{number}-{count}", r.randrange(1, 6)))
        nodes[f"n{number}"] = node
        cluster.node(f"n{number}", state=node.state)
    with serve(cluster) as site:
        for cpus in range(1, 17):
            pod = guaranteed_pod("asked", cpus)
            wanted = {name for name, node in nodes.items() if node.try_admit(pod).admitted}
            assert set(fit(site, str(cpus))["fittingNodes"]) == wanted


def test_labels_taints_and_what_is_not_looked_at(site: ServedCluster, cluster: PageCluster) -> None:
    """A selector that no node meets is reported in the scheduler's words; what other objects decide is noted."""
    cluster.node("tainted", taints=[{"key": "gpu", "value": "a", "effect": "NoSchedule"}])
    found = fit(site, "2", nodeSelector={"zone": "a"}, affinity={"nodeAffinity": {}})
    assert [(one["reason"], one["count"]) for one in found["refused"]] == [
        ("node(s) didn't match Pod's node affinity/selector", 5)
    ]
    assert NOT_LOOKED_AT in found["notes"]
    assert found["ways"] == []
    reasons = {one["reason"]: one["nodes"] for one in fit(site, "2")["refused"]}
    assert reasons["node(s) had untolerated taint(s)"] == ["tainted"]


def test_pods_that_share(site: ServedCluster, cluster: PageCluster) -> None:
    """A pod that wants nothing for itself is kept out by no node's topology, and the list of waiting pods says so."""
    found = fit(site, "500m")
    assert (found["exclusive"], found["fitting"], found["best"]) == (False, 3, [])
    document = shared_pod("quiet")
    cluster.placing.pod_changed(None, scheduled_pod(document))
    (row,) = answer(site, "pending", "PendingPodList")["items"]
    assert (row["name"], row["state"]) == ("quiet", "shared")


# Ways out


def crowded(cluster: PageCluster, name: str, **priorities: int) -> CrowdedNode:
    replica = cluster.placing.replicas[name]
    assert replica.rules is not None
    assert replica.state is not None
    running = tuple(Evictable(uid, priorities.get(uid.replace("-", "_"), 0)) for uid in replica.state.pods)
    return CrowdedNode(name, replica.rules, replica.state, running)


def test_every_way_out_works(cluster: PageCluster) -> None:
    """Moves, eviction and a smaller request are all found for a pod that scattered CPUs keep out; each, done for real
    on a node of its own, lets the pod in, and before it the node refuses."""
    pod = guaranteed_pod("asked", 6)
    node = crowded(cluster, "scattered")
    assert not Node.of(node.rules, node.state).try_admit(pod).admitted
    ways = {way.kind: way for way in ways_on(pod, node, {})}
    assert set(ways) == {"moves", "eviction", "request"}
    assert [way.cost for way in ways_out(pod, [node], {})] == sorted(way.cost for way in ways.values())
    without = node.state
    for uid in ways["eviction"].pods:
        without = release(node.rules, without, uid)
    assert Node.of(node.rules, without).try_admit(pod).admitted
    smaller = int(next(edit.after for edit in ways["request"].edits if edit.path.endswith("requests.cpu")))
    assert Node.of(node.rules, node.state).try_admit(guaranteed_pod("asked", smaller)).admitted
    assert not Node.of(node.rules, node.state).try_admit(guaranteed_pod("asked", smaller + 1)).admitted
    assert ways["moves"].pods
    assert "within scattered" in ways["moves"].text


def test_lower_priority_leaves_first(cluster: PageCluster) -> None:
    """Pods of lower priority are named as such; where there are none, that others are not is said and costs more."""
    pod = guaranteed_pod("asked", 6)
    important = replace(pod, spec=replace(pod.spec, priority=5))
    (way,) = (way for way in ways_on(important, crowded(cluster, "full"), {}) if way.kind == "eviction")
    assert "(of lower priority)" in way.text
    (other,) = (way for way in ways_on(pod, crowded(cluster, "full"), {}) if way.kind == "eviction")
    assert "(of no lower priority)" in other.text
    assert other.cost > way.cost


def test_pending_pods_have_the_cheapest_way_out(site: ServedCluster, cluster: PageCluster) -> None:
    """A pod that is refused everywhere has a reason counted by node and a way out; equal pods are counted; one that
    fits only waits, one that is held names its node; the highest priority comes first."""
    for name in ("empty", "cordoned"):
        cluster.node(name, 7, 7)
        cluster.runs(f"{name}-0", name)
    for name in ("a", "b"):
        cluster.wait(name, 6)
    cluster.wait("small", 1, priority=7)
    found = answer(site, "pending?ways=1", "PendingPodList")
    assert (found["total"], found["searched"]) == (3, True)
    small, a, b = found["items"]
    assert (small["name"], small["state"], small["way"]) == ("small", "waiting", None)
    assert (a["state"], a["like"], b["like"]) == ("refused", 1, 1)
    assert a["reason"] == "0/4 nodes take it: 4 no NUMA node has 6 exclusive CPUs free"
    assert a["way"] == b["way"]
    assert a["way"]["cost"] > 0
    cluster.now += 10
    held = cluster.placing.choose(cluster.placing.pods["uid-small"])
    row = answer(site, "pending", "PendingPodList")["items"][0]
    assert (row["state"], row["node"]) == ("nominated", held)
    (one,) = answer(site, "fit?pod=default/small", "PodFitList")["items"]
    assert one["held"] == held
    (one,) = answer(site, "fit?ways=1&pod=default/a", "PodFitList")["items"]
    assert {way["kind"] for way in one["ways"]} >= {"request", "eviction"}
    assert {"default/empty-0", "default/cordoned-0"} >= {
        pod for way in one["ways"] if way["kind"] == "eviction" for pod in way["pods"]
    }
    assert status(site, "fit?pod=default/nobody") == 422


def test_nobody_can_evict_a_static_pod(site: ServedCluster, cluster: PageCluster) -> None:
    """A static pod, whose mirror has another UID, and one of which the API server knows nothing are no victims, however
    important the pod is that waits."""
    for name in ("empty", "full", "scattered", "cordoned"):
        cluster.node(name, 7, 7)
    cluster.placing.pods["uid-static"] = scheduled_pod(mirror_object("uid-empty-0", "static", "7", "empty"))
    cluster.wait("a", 7, priority=9)
    (one,) = answer(site, "fit?ways=1&pod=default/a", "PodFitList")["items"]
    assert (one["fitting"], [way for way in one["ways"] if way["kind"] == "eviction"]) == (0, [])
    cluster.runs("empty-1", "empty")
    (one,) = answer(site, "fit?ways=1&pod=default/a", "PodFitList")["items"]
    (way,) = (way for way in one["ways"] if way["kind"] == "eviction")
    assert (way["node"], way["pods"]) == ("empty", ["default/empty-1"])


# Maps


def tiles(found: Json) -> dict[str, list[str]]:
    return {one["node"]: one["zones"] for one in found["items"]}


def test_small_maps(site: ServedCluster, cluster: PageCluster) -> None:
    """Each CPU is there once, in the order of cores; CPUs promised to a pod on its way are not free any more."""
    found = answer(site, "nodes", "ClusterNodes")
    assert found["whole"]
    assert tiles(found)["empty"] == ["0 1r 7f", "1 8f"]
    for zones in tiles(found).values():
        assert [sum(int(run[:-1]) for run in zone.split()[1:]) for zone in zones] == [8, 8]
    cluster.wait("p", 4)
    cluster.placing.choose(cluster.placing.pods["uid-p"])
    cluster.now += 1
    later = answer(site, f"nodes?since={found['revision']}", "ClusterNodes")
    assert not later["whole"]
    (zones,) = tiles(later).values()
    assert sum(int(run[:-1]) for zone in zones for run in zone.split()[1:] if run.endswith("c")) == 4


def test_only_changes_are_sent(site: ServedCluster, cluster: PageCluster) -> None:
    """A client with the latest revision gets nothing, by ETag not even a body; a node that left is named; another
    process' revision, one from the future and nonsense get everything."""
    first = answer(site, "nodes", "ClusterNodes")
    same = answer(site, f"nodes?since={first['revision']}", "ClusterNodes")
    assert (same["whole"], same["items"], same["gone"]) == (False, [], [])
    assert status(site, "nodes", **{"If-None-Match": f'"{first["revision"]}"'}) == 304
    cluster.placing.node_changed(cluster.placing.places.nodes["full"], None)
    cluster.placing.model.confirm_node("empty", confirmed=False)
    cluster.now += 1
    later = answer(site, f"nodes?since={first['revision']}", "ClusterNodes")
    assert later["gone"] == ["full"]
    assert [(one["node"], bool(one["problem"])) for one in later["items"]] == [("empty", True)]
    cluster.node("full", 2)
    cluster.now += 1
    again = answer(site, f"nodes?since={first['revision']}", "ClusterNodes")
    assert (again["gone"], sorted(tiles(again))) == ([], ["empty", "full"])
    for strange in ("other.1", "boot.99", "boot.", "boot.-1", "x", "boot.1e3", "boot." + "9" * 30):
        assert answer(site, f"nodes?since={strange}", "ClusterNodes")["whole"]


def test_maps_after_a_life_are_those_from_scratch() -> None:
    """A client that applies all changes one after the other has what one that asks for everything gets."""
    r, cluster = Random(7), PageCluster()
    known: dict[str, NodeTile] = {}
    revision = ""

    async def follow() -> None:
        nonlocal revision
        cluster.now += 1
        found = await cluster.queries.nodes(revision)
        if found.whole:
            known.clear()
        for name in found.gone:
            del known[name]
        known.update({tile.node: tile for tile in found.items})
        revision = found.revision

    for step in range(120):
        name = f"n{r.randrange(8)}"
        place = cluster.placing.places.nodes.get(name)
        if place is not None and r.random() < 0.3:
            cluster.placing.node_changed(place, None)
        else:
            cluster.node(name, *(r.randrange(1, 4) for _ in range(r.randrange(4))), unschedulable=r.random() < 0.2)
        if step % r.randrange(1, 4) == 0:
            asyncio.run(follow())
    asyncio.run(follow())
    fresh = asyncio.run(cluster.queries.nodes(""))
    assert known == {tile.node: tile for tile in fresh.items}


def test_a_node_drawn_large(site: ServedCluster) -> None:
    """The picture of a node has its pods; of an unknown node there is none."""
    with urllib.request.urlopen(site.url + "node?name=scattered", timeout=60) as reply:
        text = reply.read().decode()
    assert "<svg" in text
    assert "scattered: Kubernetes 1.36, 2 pods" in text
    assert status(site, "node?name=%3Cscript%3E") == 422


# Fragmentation


def test_fragmentation(site: ServedCluster, cluster: PageCluster) -> None:
    """Counted by NUMA node for each size, without nodes that take no pods; free and owned CPUs are all there are."""
    cluster.node("silent")
    cluster.placing.model.confirm_node("silent", confirmed=False)
    found = answer(site, "fragmentation", "ClusterFragmentation")
    (now,) = found["history"]
    assert found["nodes"] == 4
    assert (now["cpus"], now["owned"], now["free"], now["largest"]) == (60, 22, 38, 8 + 4 + 1 + 8)
    assert found["percent"] == round(100 * (38 - 21) / 38)
    by_size = {one["cpus"]: (one["pods"], one["usable"]) for one in found["sizes"]}
    assert by_size[1] == (38, 38)
    assert by_size[8] == (2, 16)
    assert by_size[64] == (0, 0)
    assert found["scattered"][0]["node"] in ("empty", "cordoned")


def test_history_is_bounded() -> None:
    """However long it goes on, no more points than it may keep; the first and the last stay, and time goes forward."""
    history = FragmentationHistory(most=20)
    room = Room(1, 10, 5, 5, (0,) * len(SIZES), (0,) * len(SIZES), ())
    for at in range(1000):
        history.take(room, float(at))
        assert len(history.points) <= 20
    times = [point.at for point in history.points]
    assert times == sorted(times)
    assert (times[0], times[-1]) == (0.0, 999.0)
    assert isinstance(history.points[0], FragmentationPoint)


def test_no_nodes() -> None:
    """Without any node every question has an answer."""
    with serve(PageCluster()) as site:
        assert answer(site, "nodes", "ClusterNodes")["items"] == []
        assert answer(site, "pending", "PendingPodList")["items"] == []
        assert answer(site, "fragmentation", "ClusterFragmentation")["nodes"] == 0
        assert fit(site, "2")["fitting"] == 0


# On the loop


def test_other_work_goes_on(cluster: PageCluster) -> None:
    """A survey gives way after every step that fills a slice, so that other work goes on."""
    turns = 0
    times = iter(range(10_000))

    async def main() -> PodFit:
        nonlocal turns

        async def pause() -> None:
            nonlocal turns
            turns += 1

        cluster.queries._slicing = lambda: Slices(1.0, clock=lambda: float(next(times)), pause=pause)
        (loaded,) = read_pods(json.dumps(manifest("2")).encode())
        look = await cluster.queries.fit(read_asked_pod(loaded))
        await cluster.queries.nodes("")
        return look.fit

    assert asyncio.run(main()).fitting == 2
    assert turns >= 4 + 3 + 4
    assert cluster.queries.longest == 1.0


# Who may ask


def page(cluster: PageCluster, loop: asyncio.AbstractEventLoop, token: str = "") -> ClusterPage:
    return ClusterPage(cluster.queries, on_loop(loop), token=lambda: token, secure=True)


def test_strangers(cluster: PageCluster) -> None:
    """Without a token another host's name is refused; with one, every client that does not know it. A header, a cookie
    and the page's address will do, and the last becomes a cookie that only travels over TLS. Nothing can be changed."""
    loop, token = asyncio.new_event_loop(), "0123456789abcdef"
    local, guarded = page(cluster, loop), page(cluster, loop, token)
    for path in ("/", "/nodes", "/pending", "/fit", "/node", "/fragmentation"):
        assert local.respond(Request("GET", path, headers={"host": "evil.example"})).status == 403
        assert guarded.respond(Request("GET", path, headers={"host": "localhost"})).status == 401
        assert guarded.respond(Request("GET", path, headers={"cookie": "podslice_token=wrong"})).status == 401
        assert guarded.respond(Request("DELETE", path, headers={"x-podslice-token": token})).status == 405
    assert guarded.respond(Request("GET", "/", headers={"cookie": f"podslice_token={token}"})).status == 200
    assert guarded.respond(Request("GET", "/", headers={"x-podslice-token": token})).status == 200
    login = guarded.respond(Request("GET", "/", f"token={token}"))
    assert (login.status, dict(login.headers)["Location"]) == (303, ".")
    assert dict(login.headers)["Set-Cookie"].endswith("; Secure")
    assert local.respond(Request("POST", "/fit", headers={"host": "localhost"}, body=b"x")).status == 403
    loop.close()
    assert local.respond(Request("GET", "/nodes", headers={"host": "localhost"})).status == 503


def test_large_answers_are_compressed(site: ServedCluster, cluster: PageCluster) -> None:
    """For those who can read it so; the others get it as it is."""
    for number in range(100):
        cluster.node(f"n{number}")
    plain = answer(site, "nodes", "ClusterNodes")
    asked = urllib.request.Request(site.url + "nodes", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked, timeout=60) as reply:
        assert reply.headers["Content-Encoding"] == "gzip"
        assert json.loads(gzip.decompress(reply.read())) == plain


def test_quantities_of_ways_are_text(cluster: PageCluster) -> None:
    """A smaller request says its field's path, and both values as Kubernetes writes them."""
    (way,) = (way for way in ways_on(guaranteed_pod("asked", 6), crowded(cluster, "full"), {}) if way.kind == "request")
    assert {edit.before for edit in way.edits} == {"6"}
    assert all(Quantity.parse(edit.after) for edit in way.edits)
    assert measure_room_now(cluster.placing.model).nodes == 4
