"""Pods of an InferenceService (KServe): of its own containers, or of a model with resources."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from podslice.api.manifests.fields import number_of, part_of
from podslice.api.manifests.found import FoundPod, Others, PassedOver, name_template
from podslice.api.manifests.objects import ManifestObject
from podslice.api.manifests.shapes import find_shapes
from podslice.api.manifests.templates import template_pod

_FORMATS = "model huggingface lightgbm onnx paddle pmml pytorch sklearn tensorflow triton xgboost".split()
_KEPT = ("nodeSelector", "tolerations", "affinity")
_NOTE = "the serving runtime's container with the model's resources; what KServe and Knative put beside it is not known"


def inference_pods(found: ManifestObject, _: Others) -> Iterator[FoundPod | PassedOver]:
    """Yield the pods of a service. A model without resources has those of its runtime, which another object says."""
    yield from (template_pod(found, shape) for shape in find_shapes(found.data) if not shape.is_object)
    predictor = part_of(found.data, "spec", "predictor")
    if "containers" in predictor:
        return
    name = next((name for name in _FORMATS if isinstance(predictor.get(name), dict)), "")
    model = part_of(predictor, name)
    if not part_of(model, "resources"):
        yield PassedOver(found, "its resources are those of a serving runtime")
        return
    container = {key: model[key] for key in ("image", "env", "args", "command", "resources") if key in model}
    spec: dict[str, Any] = {key: predictor[key] for key in _KEPT if key in predictor}
    spec["containers"] = [{**container, "name": "kserve-container"}]
    yield name_template(
        found,
        {"spec": spec},
        f"spec.predictor.{name}",
        replicas=max(number_of(predictor, "minReplicas") or 1, 1),
        roles=("predictor",),
        notes=(_NOTE,),
    )
