"""What keeps a pod from being Guaranteed agrees with its class."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from podslice.api.pod.class_gaps import class_gaps
from podslice.api.pod.demand import GUARANTEED, compute_qos
from podslice.api.pod.spec import pod_from_dict
from podslice.api.server.defaults import default_pod
from podslice.values.gates import FeatureGates

GATES = FeatureGates.from_overrides({})
AMOUNTS = st.dictionaries(st.sampled_from(["cpu", "memory"]), st.sampled_from(["1", "2"]))
RESOURCES = st.fixed_dictionaries({}, optional={"requests": AMOUNTS, "limits": AMOUNTS})


@given(st.lists(RESOURCES, min_size=1, max_size=3), st.lists(RESOURCES, max_size=2))
def test_no_gap_means_guaranteed(
    containers: list[dict[str, dict[str, str]]], inits: list[dict[str, dict[str, str]]]
) -> None:
    """A pod that the API server accepts is Guaranteed exactly when no field is in the way."""
    spec = {
        "containers": [{"name": f"c{i}", "resources": one} for i, one in enumerate(containers)],
        "initContainers": [{"name": f"i{i}", "resources": one} for i, one in enumerate(inits)],
    }
    pod = default_pod(pod_from_dict({"spec": spec}), GATES)
    gaps = class_gaps(pod, GATES)
    if not any(gap.request > gap.limit and not gap.missing for gap in gaps):
        assert (not gaps) == (compute_qos(pod, GATES) == GUARANTEED)
