"""Histories in which state files were damaged."""

import pytest

from podslice.replay.run import run_case
from podslice.values.quirks import PROFILES

MACHINE = {
    "nodes": [{"id": 0, "memory": 1 << 33, "cores": [{"socket": 0, "core": c, "threads": [c]} for c in range(4)]}]
}
KUBELET = {"cpuManagerPolicy": "static", "reservedSystemCPUs": "0"}


@pytest.mark.parametrize("profile", PROFILES)
def test_converting_a_damaged_file_leaves_it(profile: str) -> None:
    """A file that no version can read survives a conversion byte for byte, and the start says what is wrong."""
    damaged = '{"policyName":"static","defaultCpuSet":"0-3","entries":{"u":7},"checksum":1}'
    operations = [
        {"op": "restart", "files": {"cpu_manager_state": damaged}},
        {"op": "restart", "convert": {"cpu": "v1"}},
    ]
    result = run_case({"name": "damaged", "machine": MACHINE, "kubelet": KUBELET, "ops": operations}, PROFILES[profile])
    outcome = result["ops"][1]
    assert outcome["filesBefore"]["cpu_manager_state"] == damaged
    assert outcome["stage"] == "startCPUManager"
