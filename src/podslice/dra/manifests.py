"""Objects of `resource.k8s.io` from files: slices, classes, claims and templates."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from podslice.api.pod.field_error import FieldError, invalid
from podslice.api.pod.spec import from_dict
from podslice.config.objects import iter_objects
from podslice.dra.cel import CELSelectors
from podslice.dra.objects import DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from podslice.dra.v1beta1 import convert_v1beta1
from podslice.dra.validate import claim_errors, class_errors, slice_errors
from podslice.reading.files import read_text
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError, raise_all

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2")
"""Versions of the same shape; v1beta1 has another, and is converted."""
_OF_CLAIMS: dict[str, Any] = {
    "DeviceClass": DeviceClass,
    "ResourceClaim": ResourceClaim,
    "ResourceClaimTemplate": ResourceClaimTemplate,
}
_OF_SLICES: dict[str, Any] = {"ResourceSlice": ResourceSlice}
_KINDS = _OF_SLICES | _OF_CLAIMS


class DeviceObjects(NamedTuple):
    """The objects of files; classes by name, claims and templates by namespace and name."""

    slices: tuple[ResourceSlice, ...]
    classes: dict[str, DeviceClass]
    claims: dict[tuple[str, str], ResourceClaim]
    templates: dict[tuple[str, str], ResourceClaimTemplate]


def load_device_objects(
    claim_paths: Iterable[str], slice_paths: Iterable[str], selectors: CELSelectors
) -> DeviceObjects:
    """Return all such objects in files (`-`: standard input); objects of other kinds are skipped.

    Raises `InputError` with all errors of all files, also for objects that the API server refuses, for a file of claims
    without any object about claims, and for one of slices without slices.
    """
    found = DeviceObjects((), {}, {}, {})
    slices: list[ResourceSlice] = []
    errors: list[InputError] = []
    for path, kinds in [*((path, _OF_CLAIMS) for path in claim_paths), *((path, _OF_SLICES) for path in slice_paths)]:
        source = "stdin" if path == "-" else path
        try:
            objects = list(iter_objects(load_documents(read_text(path), source), _KINDS))
            _check_kinds({str(data["kind"]) for _, data in objects}, kinds, source)
        except InputError as error:
            errors.append(error)
            continue
        for document, data in objects:
            try:
                one = _load(data, selectors)
            except InputError as error:
                errors += [each.at(source=source, document=document) for each in error.errors]
                continue
            place = (one.metadata.namespace or "default", one.metadata.name)
            if isinstance(one, ResourceSlice):
                slices.append(one)
            elif isinstance(one, DeviceClass):
                found.classes[one.metadata.name] = one
            elif isinstance(one, ResourceClaim):
                found.claims[place] = one
            else:
                found.templates[place] = one
    raise_all(errors)
    return found._replace(slices=tuple(slices))


def _check_kinds(found: set[str], wanted: dict[str, Any], source: str) -> None:
    """Raise `InputError` for a file without any object of the kinds it was given for."""
    if found.isdisjoint(wanted):
        other = "--slices" if wanted is _OF_CLAIMS else "--claims"
        get = ",".join(f"{kind.lower()}{'e' * kind.endswith('s')}s" for kind in wanted)
        remedy = f"give it with {other}" if found else f"kubectl get {get} -A -o yaml"
        raise InputError(f"holds no {' or '.join(wanted)}", source=source, remedy=remedy)


def _load(
    data: dict[str, Any], selectors: CELSelectors
) -> ResourceSlice | DeviceClass | ResourceClaim | ResourceClaimTemplate:
    group, _, version = str(data.get("apiVersion", "")).partition("/")
    if group == GROUP and version == "v1beta1":
        data = convert_v1beta1(data)
    elif group != GROUP or version not in VERSIONS:
        known = " or ".join(f"{GROUP}/{one}" for one in (*VERSIONS, "v1beta1"))
        raise InputError(f"{data.get('apiVersion')!r} is not {known}", path="apiVersion", remedy="kubectl convert it")
    kind = str(data["kind"])
    one: Any = from_dict(data, _KINDS[kind])
    remedy = f"the API server refuses this {kind}"
    errors = [*_server_errors(one), *_cel_errors(one, selectors)]
    raise_all([InputError(error.sentence, path=error.field, remedy=remedy) for error in errors])
    found: ResourceSlice | DeviceClass | ResourceClaim | ResourceClaimTemplate = one
    return found


def _server_errors(one: object) -> Iterator[FieldError]:
    if isinstance(one, ResourceSlice):
        yield from slice_errors(one)
    elif isinstance(one, DeviceClass):
        yield from class_errors(one)
    elif isinstance(one, ResourceClaim):
        yield from claim_errors(one.spec.devices)
    elif isinstance(one, ResourceClaimTemplate):
        yield from claim_errors(one.spec.spec.devices, "spec.spec.devices")


def _cel_errors(one: object, selectors: CELSelectors) -> Iterator[FieldError]:
    """Yield expressions that do not compile, or are no condition."""
    if isinstance(one, DeviceClass):
        listed = [(f"spec.selectors[{index}]", each) for index, each in enumerate(one.spec.selectors)]
    elif isinstance(one, ResourceClaim | ResourceClaimTemplate):
        spec, path = (one.spec, "spec") if isinstance(one, ResourceClaim) else (one.spec.spec, "spec.spec")
        listed = [
            (f"{path}.devices.requests[{number}].{name}.selectors[{index}]", each)
            for number, request in enumerate(spec.devices.requests)
            for name, form in request.forms()
            for index, each in enumerate(form.selectors)
        ]
    else:
        listed = []
    for path, each in listed:
        problem = selectors.check(each.cel.expression)
        if problem:
            yield invalid(f"{path}.cel.expression", each.cel.expression, problem)
