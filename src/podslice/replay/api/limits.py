"""Section about LimitRange objects: their own defaults and errors, and what they do to a pod."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from podslice.api.server.limitrange import ANNOTATION, LimitRange
from podslice.api.server.limitrange_check import limit_range_refusals, pod_totals
from podslice.api.server.validate_limitrange import limit_range_errors
from podslice.replay.api.case import ABSENT, ApiCase, Json
from podslice.replay.api.node import amounts
from podslice.replay.api.server import errors_to_json, resources_to_json, texts


def _limit_range(limit_range: LimitRange, case: ApiCase) -> Json:
    items = [
        {
            "type": item.type,
            "max": texts(item.max),
            "min": texts(item.min),
            "default": texts(item.default),
            "defaultRequest": texts(item.default_request),
            "maxLimitRequestRatio": texts(item.max_limit_request_ratio),
        }
        for item in limit_range.spec.limits
    ]
    return {
        "name": limit_range.metadata.name,
        "defaulted": items,
        "limitRangeValidationErrors": errors_to_json(limit_range_errors(limit_range, case.gates)),
    }


def _limit_ranger(case: ApiCase) -> Any:
    if not case.limit_ranges:
        return ABSENT
    pod = case.mutated_pod
    requests, limits = pod_totals(pod, case.gates)
    return {
        "annotation": (pod.metadata.annotations or {}).get(ANNOTATION, ""),
        "limitRanges": [_limit_range(one, case) for one in case.limit_ranges],
        "mutated": resources_to_json(pod),
        "podRequests": amounts(requests),
        "podLimits": amounts(limits),
        "validate": [
            {"name": one.metadata.name, "errors": limit_range_refusals(pod, one, case.gates)}
            for one in case.limit_ranges
        ],
    }


SECTIONS: dict[str, Callable[[ApiCase], Any]] = {"limitRanger": _limit_ranger}
