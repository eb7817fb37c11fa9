"""An invalid value is refused in one line, and never kept."""

from __future__ import annotations

from typing import Any

import pytest

from podslice import CPUSet, Quantity
from podslice.values.cpuset import MAX_CPU_ID, CPUSetError
from podslice.values.quantity import QuantityError


@pytest.mark.parametrize("ids", ["0-3", [1, "a"], [-1], 5, [1.5], [MAX_CPU_ID + 1], None])
def test_what_are_no_cpu_ids(ids: Any) -> None:
    with pytest.raises(CPUSetError) as caught:
        CPUSet(ids)
    assert "CPUSet.parse" in str(caught.value) if isinstance(ids, str) else "CPU ids" in str(caught.value)


def test_cpu_ids_from_anything_that_can_be_walked_through_once() -> None:
    assert str(CPUSet(cpu for cpu in (3, 1, 2, 3))) == "1-3"
    assert CPUSet([MAX_CPU_ID]).bits == 1 << MAX_CPU_ID


@pytest.mark.parametrize(("make", "remedy"), [
    (lambda: Quantity("1Gi"), "Quantity.parse"), (lambda: Quantity.parse(5), "Quantity.of"),
])  # fmt: skip
def test_what_is_no_quantity(make: Any, remedy: str) -> None:
    with pytest.raises(QuantityError, match=remedy):
        make()
