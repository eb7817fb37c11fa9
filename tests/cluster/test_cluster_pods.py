"""Pods of a cluster in a few bytes each: no field that is read gets lost, while pods come and go."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from podslice.cluster.cluster_pods import ClusterPods, Numbered
from podslice.cluster.packed_table import LARGEST_KEY, PackedTable
from podslice.replica.uids import is_among, pack_uid, pack_uids, unpack_uid, unpack_uids
from podslice.values.errors import InputError
from tests.cluster.bench import Bench, mirror_object, pod_object, scheduled_pod


def uid_of(r: Random) -> str:
    """A UUID, a hash as static pods have, or a word."""
    uuid = str(UUID(int=r.getrandbits(128)))
    return r.choice((uuid, uuid.replace("-", ""), f"pod-{r.randrange(10**6)}"))


@pytest.mark.parametrize("seed", range(4))
def test_a_packed_table_is_a_dictionary(seed: int) -> None:
    """Entries that come, change and go, over many splits of its pieces."""
    r, table, there = Random(seed), PackedTable(), dict[bytes, bytes]()
    for _ in range(3000):
        key = pack_uid(uid_of(r)) if r.random() < 0.6 or not there else r.choice(list(there))
        if r.random() < 0.3:
            assert table.pop(key) == there.pop(key, None)
        else:
            there[key] = r.randbytes(r.choice((0, 1, 40, 300)))
            table.put(key, there[key])
        assert table.get(key) == there.get(key)
        assert (key in table) == (key in there)
    assert sorted(table) == sorted(there)
    assert len(table) == len(there)


def test_iteration_survives_growth() -> None:
    """Iteration over a table that grows meanwhile misses nothing."""
    table = PackedTable()
    first = {pack_uid(f"first-{number}") for number in range(200)}
    for key in first:
        table.put(key, b"")
    met = set()
    for number, key in enumerate(table):
        met.add(key)
        if number < 500:
            table.put(pack_uid(f"later-{number}"), b"")
    assert first <= met


def test_what_is_too_long_for_a_table() -> None:
    """It is refused, and nothing has changed."""
    table = PackedTable()
    with pytest.raises(ValueError, match="too long"):
        table.put(b"k" * (LARGEST_KEY + 1), b"")
    assert len(table) == 0


def test_uids_are_packed_and_unpacked() -> None:
    """UIDs of any form; different ones stay different, and a set contains its members and no others."""
    r = Random(1)
    uids = {uid_of(r) for _ in range(300)}
    uids |= {"0" * 36, "AAAAAAAA-0000-0000-0000-000000000000", "a" * 16, "a" * 17, "----------", "é" * 36}
    assert len({pack_uid(one) for one in uids}) == len(uids)
    assert all(unpack_uid(pack_uid(one)) == one for one in uids)
    some = set(sorted(uids)[::2])
    names = pack_uids(some)
    assert {one for one in uids if is_among(one, names)} == some
    assert sorted(unpack_uids(names)) == sorted(some)
    assert not is_among(str(UUID(bytes=names[12:28])), names) or str(UUID(bytes=names[12:28])) in some


def test_numbers_are_used_again() -> None:
    """The number of a value without users is used again."""
    numbered: Numbered[str] = Numbered()
    assert [numbered.take(one) for one in ("a", "b", "a")] == [0, 1, 0]
    numbered.release(0)
    assert numbered.value(0) == "a"
    numbered.release(0)
    assert (numbered.take("c"), numbered.value(0)) == (0, "c")


def test_a_pod_at_rest_is_the_same_pod() -> None:
    """All but its specification, its group and when it was created."""
    document = mirror_object("abc", "p", "4", "n", priority=7, preemptionPolicy="Never")
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    document["status"]["startTime"] = "2026-01-01T00:00:01Z"
    pods, pod = ClusterPods(), scheduled_pod(document)
    pods["uid-p"] = pod
    assert (pods["uid-p"], list(pods.awake()), pods.coming("n")) == (pod, [pod], [pod])
    pods.rest("uid-p")
    assert (list(pods), len(pods), "uid-p" in pods, list(pods.awake()), pods.coming("n")) == (
        ["uid-p"],
        1,
        True,
        [],
        [],
    )
    again = pods["uid-p"]
    assert again.kept == pod.kept
    assert (again.node_uid, again.deleting, again.preempts, again.priority) == ("abc", True, False, 7)
    assert again.has_same_spec(pod)
    with pytest.raises(InputError, match="is not kept"):
        _ = again.pod
    del pods["uid-p"]
    assert (list(pods), pods.get("uid-p"), pods.pop("uid-p", None)) == ([], None, None)
    with pytest.raises(KeyError):
        del pods["uid-p"]


@pytest.mark.parametrize("seed", range(3))
def test_pods_come_rest_wake_and_go(seed: int) -> None:
    """Beside a dictionary that does the same."""
    r, pods, there = Random(seed), ClusterPods(), dict[str, str]()
    names = [f"p{number}" for number in range(60)]
    for _ in range(1500):
        name = r.choice(names)
        uid, what = f"uid-{name}", r.random()
        if what < 0.5:
            there[uid] = r.choice(("", "a", "b"))
            pods[uid] = scheduled_pod(pod_object(name, "1", there[uid]))
        elif what < 0.8:
            pods.rest(uid)
        else:
            pods.pop(uid, None)
            there.pop(uid, None)
        assert {one: pods[one].node for one in pods} == there
        awake = {pod.uid: pod.node for pod in pods.awake()}
        assert {pod.uid for pod in pods.coming("a")} == {one for one, node in awake.items() if node == "a"}


def test_nothing_is_kept_of_pods_that_run() -> None:
    """Once the node has taken a pod in it is at rest, and stays so whatever its kubelet says of it afterwards."""
    bench = Bench("a")
    bench.watch_pod(pod_object("p", "8"))
    bench.watch_pod(pod_object("p", "8", "a"))
    pods = bench.placing.pods
    assert list(pods.awake()) == []
    running = pod_object("p", "8", "a")
    running["status"]["phase"] = "Running"
    bench.placing.pod_changed(pods["uid-p"], scheduled_pod(running))
    assert list(pods.awake()) == []
    assert [pod.uid for pod in bench.placing.on_node("a")] == ["uid-p"]
    bench.placing.pod_changed(pods["uid-p"], None)
    assert (len(pods), bench.placing.on_node("a")) == (0, [])
