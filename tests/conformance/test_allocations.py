"""Random claims beside the real kube-scheduler: the same feasibility, the same devices, the same amounts."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.allocations import compare
from e2e.controlplane import Api

from podslice.config.policy import ClaimDevices
from podslice.dra.cel import CELSelectors
from podslice.dra.devices import ClaimableAmounts
from podslice.dra.slices import machine_slices
from podslice.machine.gallery import gallery_names, load_gallery


@pytest.mark.parametrize("missing", [0.0, 0.1])
def test_random_claims(programs: None, tmp_path: Path, missing: float) -> None:
    """podslice answers for each pod what the scheduler does, also where pools lack slices."""
    outcomes = list(compare(tmp_path, cases=12, seed=77, missing=missing))
    assert len(outcomes) == 48
    assert [one for one in outcomes if one.different or one.elsewhere] == []
    assert {one.real.devices is None for one in outcomes} == {True, False}


def test_fields_of_devices(admin: Api) -> None:
    """The API server refuses a selector about a field that no device has, as we do, in words that say it."""
    for expression, refused in (('device.drivr == "x"', True), ('device.driver == "device.drivr"', False)):
        assert bool(CELSelectors().check(expression)) == refused
        spec = {"selectors": [{"cel": {"expression": expression}}]}
        answer = admin.ask(
            "POST", "/apis/resource.k8s.io/v1/deviceclasses", {"metadata": {"name": "odd"}, "spec": spec}
        )
        assert answer.code == (422 if refused else 201)
        assert ("undefined field 'drivr'" in answer.message) == refused
    admin.call("DELETE", "/apis/resource.k8s.io/v1/deviceclasses/odd")


@pytest.mark.parametrize("devices", ["perNUMANode", "perCPU", "partitions"])
def test_slices_of_machines(admin: Api, devices: ClaimDevices) -> None:
    """A real API server keeps the slices of every ready-made machine as they are, whatever a device stands for."""
    path = "/apis/resource.k8s.io/v1/resourceslices"
    for name in gallery_names():
        for one in machine_slices(load_gallery(name), "n", ClaimableAmounts(whole_cores=True, devices=devices)):
            answer = admin.ask("POST", path, one)
            assert answer.code == 201, answer.message
            assert answer.body["spec"] == one["spec"]
            admin.call("DELETE", f"{path}/{one['metadata']['name']}")
