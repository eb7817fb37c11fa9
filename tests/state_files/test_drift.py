"""Memory sizes that drift at a reboot: KEP-6232's tolerance in profile podslice, upstream's refusal in kubelet-1.36."""

from __future__ import annotations

import msgspec
import pytest

from podslice import Machine, Node, StartError
from podslice.machine.drift import FREED_DIFFERENTLY as DRIFT
from tests.conftest import make_pod
from tests.state_files.test_crash import CONFIG, MACHINE


def resized(delta: int) -> Machine:
    first, *others = MACHINE.nodes
    first = msgspec.structs.replace(first, memory=first.memory + delta)
    return msgspec.structs.replace(MACHINE, nodes=(first, *others))


def test_the_limit_itself_is_tolerated() -> None:
    """A node may differ by 64 MiB or 1 % of its memory, whichever is more, and not by a byte more than that."""
    most = max(MACHINE.nodes[0].memory // 100, DRIFT)
    node = Node(MACHINE, CONFIG)
    assert node.admit(make_pod("p", ("c", "2"))).admitted
    assert Node(resized(most), CONFIG, files=node.files).readmit([make_pod("p", ("c", "2"))]) == []
    with pytest.raises(StartError, match="expected machine state is different"):
        Node(resized(most + 1), CONFIG, files=node.files)


@pytest.mark.parametrize("delta", [43_696_128, -53_760_000], ids=["grown", "shrunk"])
def test_small_drift(delta: int) -> None:
    """After a reboot with slightly other sizes all pods keep their memory; upstream does not start."""
    node = Node(MACHINE, CONFIG)
    pod = make_pod("p", ("c", "2"))
    before = node.admit(pod).containers[0]
    again = Node(resized(delta), CONFIG, files=node.files)
    assert again.readmit([pod]) == []
    ledger = again.kubelet.manager.memory.machine_state[0].memory_map
    assert ledger is not None
    assert ledger["memory"].total == MACHINE.nodes[0].memory + delta
    assert again.kubelet.manager.memory.numa_nodes("p", "c") == before.memory_nodes.bits
    with pytest.raises(StartError, match="the expected machine state is different from the real one"):
        Node(resized(delta), CONFIG, files=node.files, profile="kubelet-1.36")


def test_large_change_is_no_drift() -> None:
    """A node that lost a memory module is refused with upstream's message."""
    node = Node(MACHINE, CONFIG)
    with pytest.raises(StartError, match="the expected machine state is different from the real one"):
        Node(resized(-8 << 30), CONFIG, files=node.files)
