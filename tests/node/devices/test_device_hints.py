"""Device hints (memory-device 2.6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from podslice.node.devices.hints import Coverage
from podslice.node.topology.hint import Hint, enumerate_masks
from podslice.values.cpuset import Bits, iter_bits
from podslice.values.errors import UpstreamDefectError
from podslice.values.quirks import KUBELET_1_36
from tests.node.devices.helpers import ANYWHERE, GPU, admit, gpus, manager, near, pod


def hints_for(devices, wanted, container=0):
    hints = devices.container_hints(wanted, wanted.containers[container])[GPU]
    return None if hints is None else list(hints)


def pod_hints(devices, wanted):
    return {name: list(hints) for name, hints in devices.pod_hints(wanted).items()}


@pytest.mark.parametrize(
    ("placed", "count", "expected"),
    [
        pytest.param([0, 0, 1, 1], 1, [Hint(1, True), Hint(2, True), Hint(3, False)], id="fits one node"),
        pytest.param([0, 0, 1, 1], 3, [Hint(3, True)], id="needs both nodes"),
        pytest.param([0, 0, 1, 1], 5, [], id="not enough"),
        pytest.param([None, None], 1, None, id="no topology at all"),
        pytest.param([(), ()], 1, None, id="only empty topologies"),
        pytest.param([0, None], 1, [Hint(1, True)], id="devices without topology count for no mask"),
        pytest.param([0, None], 2, [], id="and cannot complete one"),
        pytest.param([(0, 1), 1], 2, [Hint(2, True), Hint(3, False)], id="a device on two nodes"),
        pytest.param([5, 0], 1, [Hint(1, True)], id="nodes the machine lacks are left out"),
        pytest.param([5, 6], 1, [], id="only nodes the machine lacks"),
    ],
)
def test_hints_of_a_fresh_node(placed, count, expected):
    """Masks that reach enough free devices, preferred when no smaller one could."""
    assert hints_for(manager(gpus(*placed)), pod("u", {GPU: count})) == expected


def test_preferred_counts_devices_in_use():
    """A mask is only preferred if it is as small as a machine with all devices free would allow."""
    devices = manager(gpus(0, 0, 1))
    assert admit(devices, pod("a", {GPU: 1}), near(0)) == ""
    assert hints_for(devices, pod("b", {GPU: 2})) == [Hint(3, False)]


def test_unhealthy_devices_count_for_the_smallest_mask_only():
    """An unhealthy device is not a candidate, but still makes its node look big enough."""
    devices = manager(gpus(0, 1) + [d.__class__("x", (0,), "Sick") for d in gpus(0)])
    assert hints_for(devices, pod("a", {GPU: 2})) == [Hint(3, False)]


def test_held_devices_give_the_same_hints_again():
    """A container that has its devices is steered to where they are."""
    devices, wanted = manager(gpus(0, 0, 1, 1)), pod("u", {GPU: 2})
    assert admit(devices, wanted, near(1)) == ""
    assert hints_for(devices, wanted) == [Hint(2, True), Hint(3, False)]
    assert pod_hints(devices, wanted) == {GPU: [Hint(2, True), Hint(3, False)]}


def test_another_number_than_held_is_impossible():
    """A changed request cannot be satisfied in place."""
    devices = manager(gpus(0, 0, 1, 1))
    assert admit(devices, pod("u", {GPU: 2}), near(1)) == ""
    assert hints_for(devices, pod("u", {GPU: 1})) == []
    assert pod_hints(devices, pod("u", {GPU: 1})) == {GPU: []}


def test_reusable_devices_must_be_in_the_mask():
    """After an init container on node 1, only masks with node 1 remain for the next container."""
    devices = manager(gpus(0, 0, 1, 1))
    wanted = pod("u", {GPU: 2}, init=({GPU: 1},))
    devices.context.activate(wanted)
    devices.allocate(wanted, wanted.containers[0], near(1))
    assert hints_for(devices, wanted, 1) == [Hint(2, True), Hint(3, False)]


def test_pod_hints_follow_the_sidecar_formula():
    """A pod needs the larger of its init peak and its running sum."""
    devices = manager(gpus(0, 0, 1, 1))
    wanted = pod("u", {GPU: 1}, init=({GPU: 2},), sidecars=({GPU: 1},))
    assert pod_hints(devices, wanted) == {GPU: [Hint(3, True)]}


def test_unknown_resources_are_not_asked_about():
    """Extended resources no plugin registered are none of the Device Manager's business."""
    assert manager().container_hints(pod("u", {GPU: 1}), pod("u", {GPU: 1}).containers[0]) == {}
    assert pod_hints(manager(), pod("u", {GPU: 1})) == {}


def test_zero_devices():
    """A limit of 0 asks for nothing; upstream offers every mask."""
    wanted = pod("u", {GPU: 0})
    assert hints_for(manager(gpus(0, 1)), wanted) is None
    upstream = hints_for(manager(gpus(0, 1), quirks=KUBELET_1_36), wanted)
    assert upstream == [Hint(1, True), Hint(2, True), Hint(3, False)]


def test_a_held_device_that_vanished():
    """Upstream crashes; otherwise a device that is no longer listed has no known node."""
    for quirks in (KUBELET_1_36, None):
        devices = manager(gpus(0, 1), **({"quirks": quirks} if quirks else {}))
        wanted = pod("u", {GPU: 1})
        assert admit(devices, wanted, near(0)) == ""
        devices.update_devices(GPU, gpus(0, 1)[1:])
        if quirks:
            with pytest.raises(UpstreamDefectError, match="vanished_devices_crash"):
                hints_for(devices, wanted)
        else:
            assert hints_for(devices, wanted) is None


def test_a_reusable_device_with_an_empty_topology():
    """Upstream then finds no mask at all; otherwise the device just counts for none."""
    for quirks, expected in ((KUBELET_1_36, []), (None, [Hint(1, True), Hint(2, True), Hint(3, False)])):
        devices = manager(gpus((), 0, 1), **({"quirks": quirks} if quirks else {}))
        wanted = pod("u", {GPU: 1}, init=({GPU: 1},))
        devices.context.activate(wanted)
        devices.allocate(wanted, wanted.containers[0], ANYWHERE)
        assert hints_for(devices, wanted, 1) == expected


placements = st.lists(st.sets(st.integers(0, 5), max_size=3), max_size=12)


@given(placements, st.integers(0, 13), st.integers(0), st.integers(0))
def test_hints_agree_with_the_definition(placed, count, free, reuse):
    """For any placement, the rule says what the specification says word by word."""
    everything = (1 << len(placed)) - 1
    on_node: dict[int, Bits] = {}
    for device, nodes in enumerate(placed):
        for node in nodes:
            on_node[node] = on_node.get(node, 0) | 1 << device
    coverage = Coverage(on_node, (0, 1, 2, 3))
    available, reusable = free & everything, reuse & everything
    assert list(coverage.hints(available, count, reusable=reusable) or ()) == _by_definition(
        coverage.nodes, placed, count, available, reusable
    )


def _by_definition(nodes, placed, count, available, reusable):
    smallest, found = len(nodes), []
    for mask in enumerate_masks(nodes):
        members = set(iter_bits(mask))
        touching = [bool(members & where) for where in placed]
        if sum(touching) >= count and len(members) < smallest:
            smallest = len(members)
        if not all(touching[device] for device in iter_bits(reusable)):
            continue
        number = reusable.bit_count() + sum(touching[device] for device in iter_bits(available))
        if number >= count:
            found.append(mask)
    return [Hint(mask, mask.bit_count() == smallest) for mask in found]
