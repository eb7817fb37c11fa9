"""Devices over time: lists, disconnection, restarts, and ledgers that always balance (memory-device 2.4, 2.11)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.machine.devices import Device
from podslice.node.devices.plugin import SimulatedPlugin
from podslice.node.devices.records import DeviceRecord
from podslice.node.topology.hint import Hint
from podslice.values.quirks import KUBELET_1_36, PODSLICE
from tests.node.devices.helpers import ANYWHERE, GPU, NIC, admit, gpus, manager, near, pod, remove


def restarted(devices, running=(), *, quirks=PODSLICE, plugins=False):
    """A new manager on the old one's checkpoint and pods, before all sources are ready."""
    fresh = manager(quirks=quirks)
    fresh.context.active = devices.context.active
    fresh.context.sources_ready = False
    fresh.start(devices.content(), running)
    if plugins:
        fresh.register(GPU, gpus(0, 0, 1, 1), SimulatedPlugin())
    return fresh


def test_capacity():
    """Capacity counts all devices of the last list, allocatable the healthy ones."""
    devices = manager([*gpus(0, 1), Device("bad", health="Unhealthy")])
    assert devices.capacity()[:2] == ({GPU: 3}, {GPU: 2})


def test_disconnected_plugin():
    """Without its plugin a resource has capacity but nothing to give, and after five minutes it is gone."""
    devices = manager(gpus(0, 1))
    devices.disconnect(GPU, now=100.0)
    assert devices.capacity(now=400.0) == ({GPU: 2}, {GPU: 0}, [])
    assert devices.capacity(now=400.1) == ({}, {}, [GPU])
    assert devices.capacity(now=500.0) == ({}, {}, [])
    devices.register(GPU, gpus(0, 1), SimulatedPlugin())
    assert devices.capacity(now=600.0) == ({GPU: 2}, {GPU: 2}, [])


def test_allocations_survive_a_disconnection():
    """A container keeps its devices while the plugin is away."""
    devices = manager(gpus(0, 1))
    assert admit(devices, pod("u", {GPU: 1})) == ""
    devices.disconnect(GPU)
    assert devices.devices_of("u", "c0") == {GPU: ["g0"]}
    devices.register(GPU, gpus(0, 1), SimulatedPlugin())
    assert admit(devices, pod("v", {GPU: 2})) == (
        f"requested number of devices unavailable for {GPU}. Requested: 2, Available: 1"
    )


def test_restart_restores_the_records():
    """After a restart every container holds what it held, and capacity is 0 until the plugin is back."""
    devices = manager(gpus(0, 0, 1, 1))
    assert admit(devices, pod("u", {GPU: 2}), near(1)) == ""
    fresh = restarted(devices)
    assert fresh.assignments() == devices.assignments()
    assert fresh.content().entries == devices.content().entries
    assert fresh.capacity() == ({GPU: 0}, {GPU: 0}, [])
    assert fresh.count_in_use() == {GPU: 2}
    assert fresh.holds_devices("u")


@pytest.mark.parametrize("quirks", [PODSLICE, KUBELET_1_36], ids=["podslice", "kubelet"])
def test_restart_with_running_container(quirks):
    """A container that runs is admitted again before its plugin is back."""
    devices, wanted = manager(gpus(0, 0, 1, 1)), pod("u", {GPU: 2})
    assert admit(devices, wanted) == ""
    fresh = restarted(devices, [("u", "c0")], quirks=quirks)
    assert fresh.container_hints(wanted, wanted.containers[0]) == {GPU: None}
    assert admit(fresh, wanted) == ""


def test_restart_without_running_container():
    """A container that does not run keeps its devices; upstream refuses the pod until the plugin is back."""
    devices, wanted = manager(gpus(0, 0, 1, 1)), pod("u", {GPU: 2})
    assert admit(devices, wanted) == ""
    assert admit(restarted(devices), wanted) == ""
    message = f"no healthy devices present; cannot allocate unhealthy devices {GPU}"
    assert admit(restarted(devices, quirks=KUBELET_1_36), wanted) == message
    assert admit(restarted(devices, quirks=KUBELET_1_36, plugins=True), wanted) == ""


def test_restart_does_not_invent_devices():
    """A pod without a record is refused while its plugin is away, in every profile."""
    fresh = restarted(manager(gpus(0)))
    assert admit(fresh, pod("new", {GPU: 1})).startswith("no healthy devices present")


def test_pods_gone_meanwhile_are_collected_late():
    """The devices of a deleted pod are free once all sources are ready."""
    devices = manager(gpus(0))
    assert admit(devices, pod("u", {GPU: 1})) == ""
    devices.context.deactivate("u")
    fresh = restarted(devices)
    fresh.remove_stale()
    assert fresh.count_in_use() == {GPU: 1}
    fresh.context.sources_ready = True
    fresh.remove_stale()
    assert fresh.count_in_use() == {}
    assert fresh.assignments() == {}


def test_broken_entries_are_skipped():
    """An entry whose response is not protobuf is left out; the others count."""
    devices = manager(gpus(0, 0))
    assert admit(devices, pod("u", {GPU: 1})) == ""
    content = devices.content()
    content.entries.append(DeviceRecord("v", "c0", GPU, {0: ["g1"]}, b"\xff"))
    fresh = manager()
    fresh.start(content)
    assert fresh.assignments() == {"u": {"c0": {GPU: ["g0"]}}}


def test_multi_node_devices_are_listed_under_each_node():
    """The checkpoint names a device under every NUMA node it has, −1 without one; it counts once."""
    devices = manager([Device("a", (0, 1)), Device("b")])
    assert admit(devices, pod("u", {GPU: 2})) == ""
    (entry,) = devices.content().entries
    assert entry.by_node == {0: ["a"], 1: ["a"], -1: ["b"]}
    assert devices.count_in_use() == {GPU: 2}


requests = st.dictionaries(st.sampled_from([GPU, NIC]), st.integers(0, 3))
pods = st.builds(lambda app, init, side: (app, init, side), *[st.lists(requests, max_size=2)] * 3)
steps = st.lists(st.tuples(st.integers(0, 5), pods, st.sampled_from([None, 1, 2, 3])), max_size=14)


@pytest.mark.slow
@given(steps, st.sampled_from([PODSLICE, KUBELET_1_36]))
def test_no_device_is_owned_twice(history, quirks):
    """Whatever comes and goes, two pods never hold the same device, and an empty node is like new."""
    devices = manager(gpus(0, 0, 1, None), quirks=quirks)
    devices.register(NIC, [Device("n0", (0,)), Device("n1", (1,)), Device("n2", (0, 1))], SimulatedPlugin())
    fresh = devices.content()
    for number, (app, init, side), mask in history:
        uid = f"u{number}"
        if uid in devices.context.active:
            remove(devices, uid)
        wanted = pod(uid, *app, init=tuple(init), sidecars=tuple(side))
        affinity = ANYWHERE if mask is None else Hint(mask, ANYWHERE.preferred)
        refused = admit(devices, wanted, affinity)
        if refused:
            devices.remove_stale()
            assert uid not in devices.assignments()
        else:
            held = devices.assignments().get(uid, {})
            for container in wanted.containers:
                limits = container.spec.resources.limits or {}
                asked = {name: amount.value() for name, amount in limits.items() if amount.value()}
                assert {name: len(ids) for name, ids in held.get(container.name, {}).items()} == asked
        _check_owners(devices)
    for uid in list(devices.context.active):
        remove(devices, uid)
    assert devices.assignments() == {}
    assert devices.count_in_use() == {}
    devices.register(NIC, [Device("n0", (0,)), Device("n1", (1,)), Device("n2", (0, 1))], SimulatedPlugin())
    assert devices.content() == fresh


@pytest.mark.parametrize(("quirks", "kept"), [(PODSLICE, []), (KUBELET_1_36, ["u"])])
def test_checkpoint_after_a_pod_left(quirks, kept):
    """A kubelet's checkpoint has the devices of a pod that left until something else writes it; ours is up to date."""
    devices = manager(gpus(0, 1), quirks=quirks)
    assert admit(devices, pod("u", {GPU: 1})) == ""
    remove(devices, "u")
    assert devices.count_in_use() == {}
    assert [entry.pod for entry in devices.content().entries] == kept
    assert admit(devices, pod("v", {GPU: 1})) == ""
    assert [entry.pod for entry in devices.content().entries] == ["v"]


def test_checkpoint_after_a_failed_container():
    """Devices of a container whose allocation failed half-way are in no checkpoint of a kubelet's."""
    devices = manager(gpus(0, 1), quirks=KUBELET_1_36)
    devices.register(NIC, [Device("n0", (0,))], SimulatedPlugin())
    assert admit(devices, pod("u", {GPU: 1}, {GPU: 1, NIC: 2})) != ""
    assert [entry.container for entry in devices.content().entries] == ["c0"]


def _check_owners(devices):
    owners: dict[tuple[str, str], str] = {}
    for uid, containers in devices.assignments().items():
        running: list[tuple[str, str]] = []
        for name, held in containers.items():
            taken = [(resource, device) for resource, ids in held.items() for device in ids]
            for device in taken:
                assert owners.setdefault(device, uid) == uid
            running += taken if not name.startswith("i") else []
        assert len(running) == len(set(running))


@given(pods, st.sampled_from([1, 2, None]))
def test_undo_of_a_pod_leaves_no_trace(wanted, mask):
    """The state as it was before a pod, put back, is exactly that."""
    devices = manager(gpus(0, 0, 1, None))
    assert admit(devices, pod("first", {GPU: 1})) == ""
    before, content = devices.state, devices.content()
    app, init, side = wanted
    admit(devices, pod("u", *app, init=tuple(init), sidecars=tuple(side)), Hint(mask, ANYWHERE.preferred))
    devices.state = before
    assert devices.content() == content
    assert devices.count_in_use() == {GPU: 1}


@pytest.mark.parametrize(
    ("quirks", "second"), [(PODSLICE, ["g1"]), (KUBELET_1_36, ["g0"])], ids=["podslice", "kubelet"]
)
def test_a_pod_that_comes_again_is_a_new_pod(quirks, second):
    """Devices of an init container in a former life of the pod are not offered again; a kubelet hands out a device that
    has become unhealthy since."""
    devices = manager(gpus(0, 0), quirks=quirks)
    assert admit(devices, pod("u", init=({GPU: 2},))) == ""
    remove(devices, "u")
    devices.update_devices(GPU, [Device("g0", health="Unhealthy"), *gpus(0, 0)[1:]])
    assert admit(devices, pod("u", init=({GPU: 1},))) == ""
    assert devices.devices_of("u", "i0") == {GPU: second}


def test_records_keep_their_order_over_a_restart():
    """The checkpoint lists the pods in order of allocation, before and after a restart, whatever their UIDs are."""
    devices = manager(gpus(0, 0, 1, 1, 2, 2, 3, 3))
    uids = ["z", "a", "m", "b", "y", "c"]
    for uid in uids:
        assert admit(devices, pod(uid, {GPU: 1})) == ""
    fresh = restarted(devices, plugins=True)
    assert [entry.pod for entry in fresh.content().entries] == uids
