"""CEL selectors as the API server understands them."""

from __future__ import annotations

import pytest

from podslice.api.pod.spec import from_dict
from podslice.dra.allocation.pools import OfferedDevice, make_device
from podslice.dra.allocation.selectors import SelectorError
from podslice.dra.cel import CELSelectors
from podslice.dra.objects import SliceDevice


@pytest.fixture
def gpu() -> OfferedDevice:
    data = {
        "name": "d",
        "attributes": {
            "numa": {"int": 1},
            "v": {"version": "1.2.3-rc.1"},
            "other.io/s": {"string": "x"},
            "near": {"ints": [1, 0]},
            "names": {"strings": ["x", "y"]},
            "vs": {"versions": ["1.2.3"]},
        },
        "capacity": {"cpu": {"value": "8"}, "memory": {"value": "1500m"}},
    }
    return make_device("gpu.io", "p", from_dict(data, SliceDevice))


@pytest.mark.parametrize(
    ("expression", "holds"),
    [
        ('device.driver == "gpu.io" && !device.allowMultipleAllocations', True),
        ('device.attributes["gpu.io"].numa in [0, 1]', True),
        ('"s" in device.attributes["other.io"] && !("s" in device.attributes["gpu.io"])', True),
        ('has(device.attributes["nobody.io"].x)', False),
        ('device.attributes["gpu.io"].?nope.orValue(3) == 3', True),
        ('cel.bind(a, device.attributes["gpu.io"], a.numa == 2)', False),
        ('["x", "y"].exists(one, one == device.attributes["other.io"].s.lowerAscii())', True),
        ('device.attributes["gpu.io"].v.isLessThan(semver("1.2.3"))', True),
        ('semver("1.2.3-rc.2").isGreaterThan(device.attributes["gpu.io"].v)', True),
        ('device.attributes["gpu.io"].v == semver("1.2.3-rc.1+build")', True),
        ('device.attributes["gpu.io"].v.major() + device.attributes["gpu.io"].v.patch() == 4', True),
        ('device.capacity["gpu.io"].cpu.compareTo(quantity("8000m")) == 0', True),
        ('device.capacity["gpu.io"].cpu == quantity("8")', True),
        ('device.capacity["gpu.io"].cpu.add(quantity("1Ki")).sub(24).asInteger() == 1008', True),
        ('device.capacity["gpu.io"].memory.isInteger() || isQuantity("1x") || isSemver("1")', False),
        ('device.capacity["gpu.io"].memory.asApproximateFloat() == 1.5', True),
        ('device.attributes["gpu.io"].near.includes(0) && 1 in device.attributes["gpu.io"].near', True),
        ('device.attributes["gpu.io"].near.includes(2)', False),
        ('device.attributes["gpu.io"].numa.includes(1)', True),
        ('device.attributes["gpu.io"].names.includes("y") && !device.attributes["other.io"].s.includes("y")', True),
        ('device.attributes["gpu.io"].vs[0] == semver("1.2.3")', True),
    ],
)
def test_expressions(gpu: OfferedDevice, expression: str, holds: bool) -> None:
    """The language, its extensions and Kubernetes' own types."""
    selectors = CELSelectors()
    assert selectors.check(expression) == ""
    assert selectors.matches(expression, gpu) is holds


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ('device.attributes["gpu.io"].nope', 'Key not found in map : "nope"'),
        ('device.attributes["gpu.io"].numa', "is not a truth value but 1"),
        ('quantity("1x") == quantity("1")', "quantities must match the regular expression"),
        ('device.capacity["gpu.io"].memory.asInteger() == 1', "cannot convert value to integer"),
        ('semver("1") == semver("1.0.0")', "'1' is not a semantic version"),
    ],
)
def test_no_answer(gpu: OfferedDevice, expression: str, problem: str) -> None:
    """An expression without a truth value is an error that names the expression and the device."""
    with pytest.raises(SelectorError) as caught:
        CELSelectors().matches(expression, gpu)
    assert problem in str(caught.value)
    assert "on device d: " in str(caught.value)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("1 +", "column 4: Syntax error"),
        ("nobody.x == 1", "column 7: undeclared reference to 'nobody.x'"),
        ('"a" == 1', "column 5: found no matching overload for '_==_' applied to '(string, int)'"),
        ('quantity("1").compareTo(semver("1.0.0")) == 0', "found no matching overload for 'compareTo'"),
        ('"a"', "must evaluate to bool, is string"),
    ],
)
def test_what_does_not_compile(expression: str, problem: str) -> None:
    """Wrong syntax, unknown names and wrong types are found before any device is looked at, with their column."""
    assert problem in CELSelectors().check(expression)
