"""Whoever calls podslice catches `PodsliceError`, and has caught all that it raises on purpose."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator

import pytest

import podslice
from podslice import PodsliceError


def _exceptions() -> Iterator[type[BaseException]]:
    for found in pkgutil.walk_packages(podslice.__path__, "podslice."):
        if found.name.endswith(("_pb2", "__main__")):
            continue
        module = importlib.import_module(found.name)
        for one in vars(module).values():
            if isinstance(one, type) and issubclass(one, BaseException) and one.__module__ == module.__name__:
                yield one


@pytest.mark.slow
def test_exceptions_have_one_base() -> None:
    """Every module is imported."""
    every = list(_exceptions())
    assert len(every) > 50
    assert [f"{one.__module__}.{one.__qualname__}" for one in every if not issubclass(one, PodsliceError)] == []
