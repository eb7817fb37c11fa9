"""CPUs and memory that claims request, as far as they name amounts themselves."""

from __future__ import annotations

from functools import reduce

from podslice.api.pod.demand import HUGEPAGES_PREFIX
from podslice.api.pod.spec import ResourceList
from podslice.dra.allocation.search import MOST_RESULTS
from podslice.dra.names import DRIVER, capacity_resource
from podslice.dra.objects import DeviceClaim, DeviceSubRequest
from podslice.values.quantity import ZERO, Quantity

# Prefixes, since huge pages have a resource for each size.
_NATIVE = ("cpu", "memory", HUGEPAGES_PREFIX)


def requested_amounts(devices: DeviceClaim) -> ResourceList:
    """Return the amounts of CPUs and memory that a claim requests, by resource; of alternatives the least."""
    total: ResourceList = {}
    for request in devices.requests:
        forms = [_form_amounts(form) for _, form in request.forms()]
        for resource in set[str]().union(*forms):
            # Whichever alternative the scheduler takes, the claim gets at least this much.
            least = min((one.get(resource, ZERO) for one in forms), default=ZERO)
            if not least.is_zero():
                total[resource] = total.get(resource, ZERO).add(least)
    return total


def _form_amounts(form: DeviceSubRequest) -> ResourceList:
    found: ResourceList = {}
    for name, amount in form.capacity.requests.items():
        # A name without a domain belongs to the driver of the device.
        domain, _, short = name.rpartition("/")
        resource = capacity_resource(short)
        if domain in ("", DRIVER) and resource.startswith(_NATIVE):
            # A claim has at most MOST_RESULTS results, so a larger count cannot be allocated anyway.
            found[resource] = reduce(Quantity.add, [amount] * min(form.count, MOST_RESULTS))
    return found
