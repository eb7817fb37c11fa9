"""Validation of slices, classes and claims by the API server, as far as it decides about allocation
(cluster-integration A.1)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from podslice.api.pod.field_error import FieldError, duplicate, forbidden, invalid, not_found, required
from podslice.api.pod.names import label_problems, subdomain_problems
from podslice.dra.objects import (
    DeviceClaim,
    DeviceClass,
    DeviceConstraint,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    RequestPolicy,
    ResourceSlice,
    SliceDevice,
)

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_MOST_DEVICES, _MOST_SPECIAL_DEVICES, _MOST_PROPERTIES, _MOST_REQUESTS = 128, 64, 32, 32
_PLACES = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
_BOTH_POLICIES = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'


def slice_errors(one: ResourceSlice) -> Iterator[FieldError]:
    """Yield all errors of a slice."""
    spec = one.spec
    for problem in subdomain_problems(spec.driver):
        yield invalid("spec.driver", spec.driver, problem)
    if not spec.pool.name:
        yield required("spec.pool.name")
    if spec.pool.generation < 0:
        yield invalid("spec.pool.generation", spec.pool.generation, "must be greater than or equal to zero")
    if spec.pool.resource_slice_count <= 0:
        yield invalid("spec.pool.resourceSliceCount", spec.pool.resource_slice_count, "must be greater than zero")
    if spec.node_name == "":
        yield invalid("spec.nodeName", "", "must be either unset or set to a non-empty string")
    places = (spec.node_name, spec.node_selector, spec.all_nodes, spec.per_device_node_selection)
    given = sum(place is not None for place in places)
    if given != 1:
        yield invalid("spec", "{…}", _PLACES + (", but multiple fields are set" if given else ""))
    if spec.devices and spec.shared_counters:
        yield invalid("spec", "{…}", "only one of `sharedCounters` or `devices` is allowed")
    # The limit is on the slice: one such device lowers it for all.
    special = any(device.taints or device.consumes_counters for device in spec.devices)
    most = _MOST_SPECIAL_DEVICES if special else _MOST_DEVICES
    if len(spec.devices) > most:
        yield _too_many("spec.devices", len(spec.devices), most)
    yield from _unique("spec.devices", [device.name for device in spec.devices])
    for index, device in enumerate(spec.devices):
        yield from _device_errors(f"spec.devices[{index}]", device)


def _device_errors(path: str, device: SliceDevice) -> Iterator[FieldError]:
    for problem in label_problems(device.name):
        yield invalid(f"{path}.name", device.name, problem)
    if len(device.attributes) + len(device.capacity) > _MOST_PROPERTIES:
        detail = f"the total number of attributes and capacities must not exceed {_MOST_PROPERTIES}"
        yield invalid(path, len(device.attributes) + len(device.capacity), detail)
    for name, attribute in device.attributes.items():
        yield from _name_errors(f"{path}.attributes", name)
        if len(attribute.typed_values) != 1:
            yield invalid(f"{path}.attributes[{name}]", name, "exactly one value must be specified")
    for name, capacity in device.capacity.items():
        yield from _name_errors(f"{path}.capacity", name)
        policy = capacity.request_policy
        if policy is not None:
            at = f"{path}.capacity[{name}].requestPolicy"
            if not device.allow_multiple_allocations:
                yield forbidden(at, "allowed only with allowMultipleAllocations")
            yield from _policy_errors(at, policy, capacity.value.nano)
    yield from _mapping_errors(f"{path}.nodeAllocatableResourceMappings", device)


def _mapping_errors(path: str, device: SliceDevice) -> Iterator[FieldError]:
    for resource, mapping in device.node_allocatable_resource_mappings.items():
        if "/" in resource:
            yield invalid(f"{path}[{resource}]", resource, "must be a node allocatable resource name")
        if mapping.capacity_key and mapping.capacity_key not in device.capacity:
            yield not_found(f"{path}[{resource}].capacityKey", mapping.capacity_key)
        factor = mapping.allocation_multiplier
        if factor is not None and factor.nano <= 0:
            yield invalid(f"{path}[{resource}].allocationMultiplier", str(factor), "must be positive")


def _policy_errors(path: str, policy: RequestPolicy, value: int) -> Iterator[FieldError]:
    if policy.valid_values and policy.valid_range is not None:
        yield forbidden(path, _BOTH_POLICIES)
    if (policy.valid_values or policy.valid_range is not None) and policy.default is None:
        yield required(f"{path}.default")
    limits = policy.valid_range
    if limits is None or policy.default is None:
        return
    if limits.min is None:
        yield required(f"{path}.validRange.min")
        return
    default, least = policy.default.nano, limits.min.nano
    most = limits.max.nano if limits.max is not None else value
    if not least <= default <= most <= value:
        yield invalid(f"{path}.default", str(policy.default), "must lie between min and max, and max within the value")
    elif limits.step is not None and limits.step.nano > 0 and (default - least) % limits.step.nano:
        yield invalid(f"{path}.default", str(policy.default), "must be a multiple of step from min")


def _name_errors(path: str, name: str) -> Iterator[FieldError]:
    domain, slash, rest = name.rpartition("/")
    if slash:
        for problem in subdomain_problems(domain):
            yield invalid(path, name, problem)
    if len(rest) > 32 or not _IDENTIFIER.match(rest):
        yield invalid(path, name, "a valid C identifier of at most 32 characters is needed")


def class_errors(one: DeviceClass) -> Iterator[FieldError]:
    """Yield all errors of a class."""
    for problem in subdomain_problems(one.metadata.name):
        yield invalid("metadata.name", one.metadata.name, problem)
    yield from _selector_errors("spec.selectors", one.spec.selectors)


def claim_errors(devices: DeviceClaim, path: str = "spec.devices") -> Iterator[FieldError]:
    """Yield all errors in the requests of a claim."""
    if len(devices.requests) > _MOST_REQUESTS:
        yield _too_many(f"{path}.requests", len(devices.requests), _MOST_REQUESTS)
    yield from _unique(f"{path}.requests", [request.name for request in devices.requests])
    for index, request in enumerate(devices.requests):
        yield from _request_errors(f"{path}.requests[{index}]", request)
    known = {request.name for request in devices.requests}
    known |= {name for request in devices.requests for name, _ in request.forms()}
    if len(devices.constraints) > _MOST_REQUESTS:
        yield _too_many(f"{path}.constraints", len(devices.constraints), _MOST_REQUESTS)
    for index, rule in enumerate(devices.constraints):
        yield from _constraint_errors(f"{path}.constraints[{index}]", rule, known)


def _request_errors(path: str, request: DeviceRequest) -> Iterator[FieldError]:
    for problem in label_problems(request.name):
        yield invalid(f"{path}.name", request.name, problem)
    if (request.exactly is None) == (not request.first_available):
        yield required(path, "exactly one of `exactly` or `firstAvailable` is required")
    if len(request.first_available) > 8:
        yield _too_many(f"{path}.firstAvailable", len(request.first_available), 8)
    yield from _unique(f"{path}.firstAvailable", [form.name for form in request.first_available])
    if request.exactly is not None:
        yield from _form_errors(f"{path}.exactly", request.exactly)
    for index, form in enumerate(request.first_available):
        here = f"{path}.firstAvailable[{index}]"
        for problem in label_problems(form.name):
            yield invalid(f"{here}.name", form.name, problem)
        if form.admin_access:
            yield forbidden(f"{here}.adminAccess", "not allowed among alternatives")
        yield from _form_errors(here, form)


def _form_errors(path: str, form: DeviceSubRequest) -> Iterator[FieldError]:
    if not form.device_class_name:
        yield required(f"{path}.deviceClassName")
    if form.count < 1:
        yield invalid(f"{path}.count", form.count, "must be greater than zero")
    yield from _selector_errors(f"{path}.selectors", form.selectors)
    for name in form.capacity.requests:
        yield from _name_errors(f"{path}.capacity.requests", name)


def _constraint_errors(path: str, rule: DeviceConstraint, known: set[str]) -> Iterator[FieldError]:
    if (rule.match_attribute is None) == (rule.distinct_attribute is None):
        yield required(path, "exactly one of `matchAttribute` or `distinctAttribute` is required")
    for field, name in (("matchAttribute", rule.match_attribute), ("distinctAttribute", rule.distinct_attribute)):
        if name is not None:
            if "/" not in name:
                yield invalid(f"{path}.{field}", name, "must include a domain")
            yield from _name_errors(f"{path}.{field}", name)
    for index, request in enumerate(rule.requests):
        if request not in known:
            yield invalid(f"{path}.requests[{index}]", request, "must be the name of a request in the claim")


def _selector_errors(path: str, selectors: Sequence[DeviceSelector]) -> Iterator[FieldError]:
    if len(selectors) > _MOST_REQUESTS:
        yield _too_many(path, len(selectors), _MOST_REQUESTS)
    for index, one in enumerate(selectors):
        here = f"{path}[{index}].cel.expression"
        if not one.cel.expression:
            yield required(here)
        elif len(one.cel.expression.encode("utf-8", "replace")) > 10 << 10:
            yield invalid(here, one.cel.expression[:40], "must be at most 10240 bytes")


def _unique(path: str, names: Iterable[str]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            yield duplicate(f"{path}[{index}].name", name)
        seen.add(name)


def _too_many(path: str, count: int, most: int) -> FieldError:
    return invalid(path, count, f"must have at most {most} items")
