"""Examples of KEP-4540, of the gates, and of the article on CPU management, by id."""

from __future__ import annotations

import re

import pytest

from podslice import CPUSet
from podslice.config.reservation import exclusive_cpus
from podslice.node.topology.hint import Hint
from podslice.node.topology.merge import Merger
from podslice.values.gates import FeatureGates, GateError
from tests.conftest import make_node, make_pod

KEP_4540 = {"machine": "pack:2 numa:1(memory=64GB) core:16 pu:2", "reserved_system_cpus": "0,32,1,33,16,48"}
STRICT = "2-15,17-31,34-47,49-63"


def affinity_mask(cpus: CPUSet) -> str:
    """CPUs as Linux prints `Cpus_allowed` of a machine with 64 of them."""
    bits = sum(1 << cpu for cpu in cpus)
    return f"{bits >> 32:08x},{bits & 0xFFFFFFFF:08x}"


def test_strict_reservation_of_shared_containers() -> None:
    """KEP-4540-list, KEP-4540-mask: with strict-cpu-reservation shared containers use all but the reserved CPUs."""
    node = make_node(**KEP_4540, cpu_manager_policy_options={"strict-cpu-reservation": "true"})
    (container,) = node.admit(make_pod("p", ("c", "1500m"))).containers
    assert str(container.cpus) == STRICT
    assert affinity_mask(container.cpus) == "fffefffc,fffefffc"


def test_lenient_reservation_of_shared_containers() -> None:
    """KEP-4540-off: without the option shared containers use the reserved CPUs as well."""
    (container,) = make_node(**KEP_4540).admit(make_pod("p", ("c", "1500m"))).containers
    assert affinity_mask(container.cpus) == "ffffffff,ffffffff"


@pytest.mark.parametrize(
    ("kept", "exclusive"), [pytest.param(4, 54, id="KEP-4540-archived"), (0, 58), (58, 0), (99, 0)]
)
def test_minimum_of_shared_cpus(kept: int, exclusive: int) -> None:
    """The archived option keeps CPUs shared: of 64 CPUs with 6 reserved and 4 kept, 54 can be given away."""
    assert exclusive_cpus(64, reserved=6, kept_shared=kept) == exclusive


def test_managers_need_pod_level_resources() -> None:
    """GATE-needs: PodLevelResourceManagers cannot be on without PodLevelResources."""
    off = {"PodLevelResources": False, "InPlacePodLevelResourcesVerticalScaling": False}
    with pytest.raises(GateError, match=re.escape("depends on features that are disabled: [PodLevelResources]")):
        FeatureGates.from_overrides({"PodLevelResourceManagers": True, **off})


def test_five_cpus_on_whole_cores() -> None:
    """ARTICLE-5: five CPUs leave the sixth sibling to others, or are refused with full-pcpus-only."""
    shared = make_node().admit(make_pod("p", ("c", "5")))
    assert len(shared.containers[0].cpus) == 5
    whole = make_node(cpu_manager_policy_options={"full-pcpus-only": "true"}).admit(make_pod("p", ("c", "5")))
    assert whole.reason == "SMTAlignmentError"


@pytest.mark.parametrize(("policy", "admitted"), [("best-effort", True), ("restricted", False)])
def test_a_device_against_the_preferred_cpus(policy: str, admitted: bool) -> None:
    """ARTICLE-merge: CPUs prefer node 1 and can do with both, the device is on node 0: upstream's rule takes node 0,
    not the CPUs' preference."""
    cpu = {"cpu": [Hint(0b10, True), Hint(0b11, False)]}
    device = {"device": [Hint(0b01, False)]}
    merged = Merger(policy, [(0, None), (1, None)]).merge([cpu, device])
    assert (merged.hint, merged.admitted) == (Hint(0b01, False), admitted)
