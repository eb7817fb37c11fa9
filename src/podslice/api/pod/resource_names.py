"""Resource names: which resources Kubernetes defines, which may be overcommitted, and errors in names
(pod-level-resources 0, 5.2)."""

from __future__ import annotations

import re

from podslice.api.pod.demand import HUGEPAGES_PREFIX
from podslice.api.pod.names import subdomain_problems
from podslice.machine.devices import is_extended_resource_name
from podslice.values.quantity import Quantity, QuantityError

_CONTAINER = frozenset({"cpu", "memory", "ephemeral-storage"})
_COUNTED = frozenset(
    {"pods", "resourcequotas", "services", "replicationcontrollers", "secrets", "configmaps",
     "persistentvolumeclaims", "services.nodeports", "services.loadbalancers"}
)  # fmt: skip
_STANDARD = _CONTAINER | _COUNTED | {"storage", "requests.storage"}
_STANDARD |= {f"{side}.{name}" for side in ("requests", "limits") for name in _CONTAINER}

_NAME = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]\Z")
_NAME_RULE = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character "
    "(e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_LONGEST_NAME = 63


def is_hugepages(name: str) -> bool:
    """Whether the resource is huge pages, of any size."""
    return name.startswith(HUGEPAGES_PREFIX)


def is_native(name: str) -> bool:
    """Whether Kubernetes defines the resource itself."""
    # Upstream tests for the substring, so a domain such as `x.kubernetes.io` counts as native too.
    return "/" not in name or "kubernetes.io/" in name


def is_overcommittable(name: str) -> bool:
    """Whether a limit may exceed its request: native resources but huge pages."""
    return is_native(name) and not is_hugepages(name)


def is_integer(name: str) -> bool:
    """Whether the resource comes in whole units only."""
    return name in _COUNTED or is_extended_resource_name(name)


def is_standard(name: str) -> bool:
    """Whether the name is one without a domain that Kubernetes knows anywhere, quotas included."""
    return name in _STANDARD or is_hugepages(name)


def is_standard_for_containers(name: str) -> bool:
    """Whether the name is one without a domain that a container may use."""
    return name in _CONTAINER or is_hugepages(name)


def hugepage_size(name: str) -> int | None:
    """Return the bytes of one page of a huge page resource; None where the name gives no positive whole size."""
    try:
        size = Quantity.parse(name.removeprefix(HUGEPAGES_PREFIX))
    except QuantityError:
        return None
    whole = size.sign() > 0 and size.milli_value() % 1000 == 0
    return size.value() if whole and size.value() > 0 else None


def name_problems(name: str) -> list[str]:
    """Return the errors in a resource name anywhere; empty for a valid one."""
    problems = qualified_name_problems(name)
    if not problems and "/" not in name and not is_standard(name):
        return ["must be a standard resource type or fully qualified"]
    return problems


def container_name_problems(name: str) -> list[str]:
    """Return the errors in the name of a container's resource."""
    problems = name_problems(name)
    if "/" not in name:
        if not is_standard_for_containers(name):
            problems.append("must be a standard resource for containers")
    elif not is_native(name) and not is_extended_resource_name(name):
        problems.append("doesn't follow extended resource name standard")
    return problems


def qualified_name_problems(name: str) -> list[str]:
    """Return the errors in a `name` or `domain/name`."""
    prefix, slash, own = name.rpartition("/")
    if "/" in prefix:
        return [
            f"a valid label key {_NAME_RULE} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"
        ]
    problems = []
    if slash and not prefix:
        problems.append("prefix part must be non-empty")
    elif slash:
        problems += [f"prefix part {problem}" for problem in subdomain_problems(prefix, unit="bytes")]
    if not own:
        problems.append("name part must be non-empty")
    elif len(own) > _LONGEST_NAME:
        problems.append(f"name part must be no more than {_LONGEST_NAME} bytes")
    if not _NAME.match(own):
        problems.append(f"name part {_NAME_RULE}")
    return problems
