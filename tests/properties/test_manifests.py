"""Objects of operators with anything in their fields: pods, something passed over, or an error in one line."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from podslice.api.manifests.custom import MAKERS
from podslice.api.manifests.manifest import Manifests, read_manifests
from podslice.api.manifests.pipeline import ReadOptions
from podslice.api.manifests.texts import Text
from podslice.values.errors import InputError

FIELDS = """
    spec template templates metadata name labels annotations containers initContainers container script steps dag tasks
    inline sidecars containerSet resource image resources requests limits cpu memory driver executor server cores
    coreRequest coreLimit memoryOverhead memoryOverheadFactor gpu quantity instances dynamicAllocation enabled type
    domain devices gpus hostDevices deviceName sockets threads dedicatedCpuPlacement guest hugepages pageSize
    instancetype kind running runStrategy replicas virtualMachineTemplate predictor model minReplicas trainer numNodes
    resourcesPerNode runtimeRef workloadRef workflowTemplateRef workflowSpec jobManager taskManager job parallelism
    podTemplate flinkConfiguration nodeSelector tolerations headGroupSpec workerGroupSpecs groupName numOfHosts
    leaderWorkerTemplate     workerTemplate leaderTemplate size items ownerReferences uid
""".split()
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10**12),
    st.sampled_from(["", "x", "1", "2Gi", "512m", "-1", "{{a}}", "Pod"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(FIELDS), inner, max_size=6)),
    max_leaves=25,
)
KINDS = st.sampled_from(
    [*MAKERS, ("jobset.x-k8s.io", "JobSet"), ("ray.io", "RayCluster"), ("serving.knative.dev", "Service"),
     ("example.com", "Gizmo"), ("batch", "Job"), ("", "Pod")]
)  # fmt: skip


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    group, kind = draw(KINDS)
    metadata = draw(st.one_of(st.just({"name": "x"}), VALUES))
    version = "v1" if group in ("", "batch") else "v1beta1"
    return {"apiVersion": f"{group}/{version}".strip("/"), "kind": kind, "metadata": metadata, "spec": draw(VALUES)}


@given(st.lists(objects(), min_size=1, max_size=3), st.booleans())
def test_any_object_is_pods_or_one_line_errors(documents: list[Any], strict: bool) -> None:
    """Whatever stands in a field, reading ends in pods with names, or in errors of one line each."""
    errors: tuple[InputError, ...] = ()
    found = Manifests([])
    try:
        found = read_manifests([Text(documents, "f.yaml")], ReadOptions(strict=strict, idle=True))
    except InputError as error:
        errors = error.errors
    assert bool(found.pods) != bool(errors)
    assert all("\n" not in str(line) for line in (*errors, *found.notes))
    assert all(one.pod.metadata.name and one.pod.spec.containers for one in found.pods)
