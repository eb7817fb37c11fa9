"""Allocations of devices, and their refusals (memory-device 2.7, 2.8, 2.9)."""

from __future__ import annotations

import pytest

from podslice.machine.devices import Device
from podslice.node.devices.plugin import AllocateResponse, PluginError, PluginOptions, SimulatedPlugin
from podslice.values.errors import AdmissionError, UpstreamDefectError
from podslice.values.quirks import KUBELET_1_36, PODSLICE
from tests.node.devices.helpers import ANYWHERE, GPU, NIC, admit, gpus, manager, near, pod, remove


class Fussy(SimulatedPlugin):
    """Prefers given ids, or fails where it should."""

    def __init__(self, *preferred, fails="", empty=False, pre_start=False):
        self.options = PluginOptions(pre_start, get_preferred_allocation_available=True)
        self.preferred, self.fails, self.empty = list(preferred), fails, empty
        self.asked, self.started = [], []

    def get_preferred_allocation(self, available, must_include, size):
        self.asked.append((available, must_include, size))
        if self.fails == "prefer":
            raise PluginError("rpc error: code = Unknown desc = no")
        return self.preferred

    def allocate(self, ids):
        if self.fails == "allocate":
            raise PluginError("rpc error: code = Unknown desc = no")
        return None if self.empty else AllocateResponse(envs={"IDS": ",".join(ids)})

    def pre_start(self, ids):
        self.started.append(ids)


@pytest.mark.parametrize(
    ("placed", "count", "affinity", "expected"),
    [
        pytest.param([0, 0, 1, 1], 1, near(1), ["g2"], id="aligned, lowest id"),
        pytest.param([0, 0, 1, 1], 2, near(1), ["g2", "g3"], id="exactly the aligned ones"),
        pytest.param([0, 0, 1, 1], 3, near(1), ["g0", "g2", "g3"], id="aligned, then others"),
        pytest.param([None, 0, 1], 2, near(1), ["g1", "g2"], id="unaligned before no topology"),
        pytest.param([1, 0, 1], 1, ANYWHERE, ["g0"], id="no mask, lowest id"),
        pytest.param([None, None], 1, near(1), ["g0"], id="no topology at all"),
        pytest.param([(0, 1), 1, 0], 1, near(0), ["g0"], id="one of several nodes suffices"),
    ],
)
def test_choice_by_affinity(placed, count, affinity, expected):
    """Aligned devices first, then those elsewhere, then those without a place; lowest ids within each."""
    devices = manager(gpus(*placed), plugin=SimulatedPlugin(preferred_allocation=False))
    wanted = pod("u", {GPU: count})
    assert admit(devices, wanted, affinity) == ""
    assert devices.devices_of("u", "c0") == {GPU: expected}


def test_ids_are_ordered_by_bytes():
    """`g10` comes before `g2`, whatever the order of the plugin's list."""
    devices = manager([Device("g2"), Device("g10"), Device("Z")])
    assert admit(devices, pod("u", {GPU: 2})) == ""
    assert devices.devices_of("u", "c0") == {GPU: ["Z", "g10"]}


def test_plugin_prefers_among_the_aligned():
    """The plugin chooses where there is a choice, and only from what it was offered."""
    plugin = Fussy("g0", "g3", "nonsense")
    devices = manager(gpus(0, 1, 1, 1), plugin=plugin)
    assert admit(devices, pod("u", {GPU: 1}), near(1)) == ""
    assert devices.devices_of("u", "c0") == {GPU: ["g3"]}
    assert plugin.asked == [(["g1", "g2", "g3"], [], 1)]


def test_plugin_is_asked_for_the_rest_with_what_is_taken():
    """When the aligned devices do not suffice, they are must-include ids of the question."""
    plugin = Fussy("g1", "g3")
    devices = manager(gpus(0, 1, 0, 0), plugin=plugin)
    assert admit(devices, pod("u", {GPU: 2}), near(1)) == ""
    assert plugin.asked == [(["g0", "g1", "g2", "g3"], ["g1"], 2)]
    assert devices.devices_of("u", "c0") == {GPU: ["g1", "g3"]}


def test_plugin_is_not_asked_without_a_choice():
    """Exactly the aligned devices are taken without a question."""
    plugin = Fussy()
    assert admit(manager(gpus(0, 1, 1), plugin=plugin), pod("u", {GPU: 2}), near(1)) == ""
    assert plugin.asked == []


def test_init_devices_are_reused():
    """An app container gets the finished init container's devices; a sidecar keeps its own."""
    devices = manager(gpus(0, 0, 0))
    assert admit(devices, pod("u", {GPU: 2}, init=({GPU: 2},), sidecars=({GPU: 1},))) == ""
    assert devices.assignments() == {"u": {"s0": {GPU: ["g0"]}, "i0": {GPU: ["g1", "g2"]}, "c0": {GPU: ["g1", "g2"]}}}


def test_reused_devices_are_offered_once():
    """Two app containers do not share what one init container had."""
    devices = manager(gpus(0, 0))
    assert admit(devices, pod("u", {GPU: 1}, {GPU: 1}, init=({GPU: 2},))) == ""
    assert [devices.devices_of("u", name)[GPU] for name in ("c0", "c1")] == [["g0"], ["g1"]]


def test_other_pods_end_the_reuse():
    """The reuse table belongs to the pod allocated last."""
    devices = manager(gpus(0, 0, 0))
    wanted = pod("u", {GPU: 1}, init=({GPU: 1},))
    devices.context.activate(wanted)
    devices.allocate(wanted, wanted.containers[0], ANYWHERE)
    assert admit(devices, pod("other", {GPU: 1})) == ""
    devices.allocate(wanted, wanted.containers[1], ANYWHERE)
    assert devices.devices_of("u", "c0") == {GPU: ["g2"]}


@pytest.mark.parametrize(
    ("listed", "count", "message"),
    [
        pytest.param(
            gpus(0, 0),
            3,
            f"requested number of devices unavailable for {GPU}. Requested: 3, Available: 2",
            id="too many",
        ),
        pytest.param(
            gpus(0, health="Unhealthy"),
            1,
            f"no healthy devices present; cannot allocate unhealthy devices {GPU}",
            id="all unhealthy",
        ),
    ],
)
def test_refusals(listed, count, message):
    """The texts are upstream's, and a refused pod leaves nothing behind."""
    devices = manager(listed)
    assert admit(devices, pod("u", {GPU: count})) == message
    assert devices.assignments() == {}
    assert devices.count_in_use() == {}


def test_first_short_resource_of_the_specification_is_reported():
    """When two resources are short, the one written first names the refusal."""
    devices = manager(gpus(0))
    devices.register(NIC, [Device("n0")], SimulatedPlugin())
    assert NIC in admit(devices, pod("u", {NIC: 2, GPU: 2}))
    assert GPU in admit(devices, pod("v", {GPU: 2, NIC: 2}))


def test_changed_request():
    """A container cannot get another number of devices while its pod lives."""
    devices = manager(gpus(0, 0))
    assert admit(devices, pod("u", {GPU: 1})) == ""
    message = f'pod "u" container "c0" changed request for resource "{GPU}" from 1 to 2'
    assert admit(devices, pod("u", {GPU: 2})) == message


def test_held_devices_that_became_unhealthy():
    """Admitting a pod again needs its devices healthy."""
    devices = manager(gpus(0, 0))
    assert admit(devices, pod("u", {GPU: 1})) == ""
    devices.update_devices(GPU, [Device("g0", (0,), "Unhealthy"), Device("g1", (0,))])
    message = f"previously allocated devices are no longer healthy; cannot allocate unhealthy devices {GPU}"
    assert admit(devices, pod("u", {GPU: 1})) == message


def test_admission_again_changes_nothing():
    """Allocation is idempotent."""
    devices = manager(gpus(0, 0, 1))
    wanted = pod("u", {GPU: 2}, init=({GPU: 1},))
    assert admit(devices, wanted) == ""
    before = devices.content()
    assert admit(devices, wanted) == ""
    assert devices.content() == before


@pytest.mark.parametrize(
    ("plugin", "message"),
    [
        pytest.param(Fussy(fails="allocate"), "rpc error: code = Unknown desc = no", id="Allocate"),
        pytest.param(
            Fussy(fails="prefer"),
            "device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown desc = no",
            id="GetPreferredAllocation",
        ),
    ],
)
def test_plugin_errors(plugin, message):
    """A failing plugin refuses the container and keeps no device."""
    devices = manager(gpus(0, 0), plugin=plugin)
    assert admit(devices, pod("u", {GPU: 1})) == message
    assert devices.assignments() == {}
    assert devices.count_in_use() == {}


def test_plugin_answer_without_container():
    """An empty answer is refused; upstream counts the devices as in use until something is released."""
    for quirks, left in ((PODSLICE, {}), (KUBELET_1_36, {GPU: 1})):
        devices = manager(gpus(0, 0), plugin=Fussy(empty=True), quirks=quirks)
        assert admit(devices, pod("u", {GPU: 1})).startswith("no containers return in allocation response")
        assert devices.count_in_use() == left


def test_second_resource_fails():
    """A container whose second resource is short keeps nothing; upstream keeps the first until the pod is gone."""
    for quirks, left in ((PODSLICE, {}), (KUBELET_1_36, {"u": {"c0": {GPU: ["g0"]}}})):
        devices = manager(gpus(0), quirks=quirks)
        devices.register(NIC, [Device("n0")], SimulatedPlugin())
        wanted = pod("u", {GPU: 1, NIC: 2})
        assert admit(devices, wanted) != ""
        assert devices.assignments() == left
        remove(devices, "u")
        assert devices.assignments() == {}


def test_unknown_resources_are_ignored():
    """A resource no plugin ever registered is left to others."""
    assert admit(manager(), pod("u", {GPU: 1})) == ""


def test_zero_devices_without_healthy_ones():
    """A limit of 0 asks for nothing; upstream still wants a healthy device."""
    listed = gpus(0, health="Unhealthy")
    assert admit(manager(listed), pod("u", {GPU: 0})) == ""
    assert admit(manager(listed, quirks=KUBELET_1_36), pod("u", {GPU: 0})).startswith("no healthy devices present")


def test_vanished_init_device_is_not_reused():
    """A device the plugin no longer lists is not handed on; upstream crashes."""
    for quirks in (PODSLICE, KUBELET_1_36):
        devices = manager(gpus(0, 0), quirks=quirks)
        wanted = pod("u", {GPU: 1}, init=({GPU: 1},))
        devices.context.activate(wanted)
        devices.allocate(wanted, wanted.containers[0], ANYWHERE)
        devices.update_devices(GPU, gpus(0, 0)[1:])
        if quirks is KUBELET_1_36:
            with pytest.raises(UpstreamDefectError):
                devices.allocate(wanted, wanted.containers[1], ANYWHERE)
        else:
            devices.allocate(wanted, wanted.containers[1], ANYWHERE)
            assert devices.devices_of("u", "c0") == {GPU: ["g1"]}


POD_LEVEL = {"resources": {"limits": {"cpu": "1"}}, "gates": {"PodLevelResourceManagers": True}}


def test_pod_level_pods_get_devices_at_admission():
    """Of two pod-level pods for one device the second is refused at admission; upstream admits both."""
    for quirks in (PODSLICE, KUBELET_1_36):
        devices = manager(gpus(0), quirks=quirks)
        first, second = pod("a", {GPU: 1}, **POD_LEVEL), pod("b", {GPU: 1}, **POD_LEVEL)
        for wanted in (first, second):
            devices.context.activate(wanted)
        devices.allocate_pod(first, ANYWHERE)
        if quirks is KUBELET_1_36:
            devices.allocate_pod(second, ANYWHERE)
            devices.container_start(first, first.containers[0], ANYWHERE)
            with pytest.raises(AdmissionError, match="unavailable"):
                devices.container_start(second, second.containers[0], ANYWHERE)
        else:
            with pytest.raises(AdmissionError, match="unavailable"):
                devices.allocate_pod(second, ANYWHERE)
        assert devices.devices_of("a", "c0") == {GPU: ["g0"]}
        assert devices.devices_of("b", "c0") == {}


def test_pre_start_of_late_devices():
    """A container that gets its devices when it starts can start with PreStartContainer, but not upstream."""
    for quirks in (PODSLICE, KUBELET_1_36):
        plugin = Fussy(pre_start=True)
        devices = manager(gpus(0), plugin=plugin, quirks=quirks)
        wanted = pod("u", {GPU: 1})
        devices.context.activate(wanted)
        if quirks is KUBELET_1_36:
            with pytest.raises(AdmissionError, match=f"pod u, container c0, resource {GPU}"):
                devices.container_start(wanted, wanted.containers[0], ANYWHERE)
        else:
            devices.container_start(wanted, wanted.containers[0], ANYWHERE)
            assert plugin.started == [["g0"]]


def test_run_options_combine_all_resources():
    """The container gets what every plugin answered; the first value of a variable wins."""
    devices = manager(gpus(0), plugin=Fussy())
    devices.register(NIC, [Device("n0")], Fussy())
    wanted = pod("u", {GPU: 1, NIC: 1})
    assert admit(devices, wanted) == ""
    assert devices.container_start(wanted, wanted.containers[0], ANYWHERE).envs == {"IDS": "g0"}


def test_a_pod_that_left_gets_nothing_at_container_start():
    """Only active pods are given devices late."""
    devices, wanted = manager(gpus(0)), pod("u", {GPU: 1})
    devices.container_start(wanted, wanted.containers[0], ANYWHERE)
    assert devices.assignments() == {}
