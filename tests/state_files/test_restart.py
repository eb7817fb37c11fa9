"""Restarts on changed ground: pods that vanished, another configuration, a machine that lost CPUs."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from podslice import StartError
from podslice.host.state.store import NodeStore
from podslice.machine.readers.synthetic import from_synthetic
from tests.conftest import make_pod
from tests.state_files.test_crash import CONFIG, MACHINE


def test_vanished_pods_give_everything_back(tmp_path: Path) -> None:
    """Resources of pods that ended while the process was down are free after the restart."""
    fresh = dict(NodeStore(tmp_path / "fresh", MACHINE, CONFIG).node.files)
    store = NodeStore(tmp_path / "node", MACHINE, CONFIG)
    for uid, budget in (("a", None), ("b", "4")):
        assert store.admit(make_pod(uid, ("x", "2"), ("y", None), budget=budget)).admitted
    assert dict(NodeStore(tmp_path / "node", MACHINE, CONFIG).node.files) == fresh


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        pytest.param(
            {"cpu_manager_policy": "none"},
            'configured policy "none" differs from state checkpoint policy "static"',
            id="CPU policy",
        ),
        pytest.param(
            {"memory_manager_policy": "None", "reserved_memory": ()},
            'configured policy "None" differs from state checkpoint policy "Static"',
            id="memory policy",
        ),
        pytest.param(
            {"cpu_manager_policy_options": {"strict-cpu-reservation": "true"}},
            'some of strictly reserved cpus: "0" are present in defaultCpuSet',
            id="strict reservation",
        ),
    ],
)
def test_changed_configuration(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    """A configuration the files do not fit is refused in upstream's words, with our remedy beside them."""
    store = NodeStore(tmp_path, MACHINE, CONFIG)
    assert store.admit(make_pod("a", ("x", "2"))).admitted
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(StartError) as error:
        NodeStore(tmp_path, MACHINE, msgspec.structs.replace(CONFIG, **changes))
    assert message in error.value.message
    assert "podslice state repair" in error.value.remedy
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_lost_cpus(tmp_path: Path) -> None:
    """A machine that came back with fewer CPUs is refused in upstream's words, and nothing is written."""
    NodeStore(tmp_path, MACHINE, CONFIG)
    before = (tmp_path / "cpu_manager_state").read_bytes()
    smaller = from_synthetic("pack:2 numa:1(memory=20GiB) core:3 pu:2(indexes=pu)")
    with pytest.raises(StartError, match="doesn't match with CPUs in state"):
        NodeStore(tmp_path, smaller, CONFIG)
    assert (tmp_path / "cpu_manager_state").read_bytes() == before


def test_runtime_request(tmp_path: Path) -> None:
    """The values for the container runtime: a CPU list, memory nodes without ranges."""
    (container,) = NodeStore(tmp_path, MACHINE, CONFIG).admit(make_pod("a", ("x", "2"))).containers
    assert container.linux_resources() == {"cpuset_cpus": "1,9", "cpuset_mems": "0"}
