"""Pods made from state files alone keep exactly what the files say."""

from __future__ import annotations

from random import Random

import pytest

from podslice import Node, StartError
from podslice.machine.devices import inventory_from_data
from podslice.node.checkpoints.content import read_content
from podslice.node.checkpoints.names import MANAGER_STATE_FILES
from podslice.node.checkpoints.stand_ins import stand_ins
from tests.advise.explain.random_nodes import GPU, Setup, random_config, random_machine, random_pod


def busy(seed: int) -> tuple[Setup, Node] | None:
    """A random node with random pods; None where its kubelet would not start."""
    random = Random(seed)
    machine = random_machine(random)
    devices = inventory_from_data([{"resource": GPU, "perNUMANode": {machine.nodes[0].id: 2}}] if seed % 3 else [])
    setup = Setup(machine, random_config(random), devices, True, "podslice", ())
    try:
        node = setup.empty()
    except StartError:
        return None
    for number in range(8):
        node.admit(random_pod(random, f"p{number}", bool(seed % 3)))
    return setup, node


@pytest.mark.parametrize("seed", range(60))
def test_stand_ins_keep_what_is_owned(seed: int) -> None:
    """A kubelet that starts on the files with stand-ins refuses none and changes no owner."""
    found = busy(seed)
    if found is None:
        return
    setup, node = found
    files = {name: data for name, data in node.files.items() if name in MANAGER_STATE_FILES}
    pods = stand_ins({name: read_content(data) for name, data in files.items()})
    again = Node(setup.machine, setup.config, devices=setup.devices, predicates=False, files=files)
    assert again.readmit(pods) == []
    state, kept = node.kubelet.manager.cpu.state, again.kubelet.manager.cpu.state
    assert (kept.assignments, kept.pod_cpus, kept.default) == (state.assignments, state.pod_cpus, state.default)
    memory, booked = node.kubelet.manager.memory, again.kubelet.manager.memory
    assert booked.machine_state == memory.machine_state
    assert again.kubelet.manager.device.assignments() == node.kubelet.manager.device.assignments()


def test_known_pods_are_left_out() -> None:
    """UIDs that are known have pods of their own."""
    found = busy(1)
    assert found is not None
    contents = {name: read_content(data) for name, data in found[1].files.items()}
    uids = [pod.metadata.uid for pod in stand_ins(contents)]
    assert uids
    assert [pod.metadata.uid for pod in stand_ins(contents, frozenset(uids[:1]))] == uids[1:]
