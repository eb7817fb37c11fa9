"""Limits of connections: which are accepted, and which are closed to make room."""

from __future__ import annotations

import resource

import pytest

from podslice.service.http.connections import RESERVED_DESCRIPTORS, ConnectionTable, is_reserved


def test_the_oldest_stranger_goes() -> None:
    """Beyond the bound the longest there that has proven nothing goes; those that have stay."""
    table: ConnectionTable[str] = ConnectionTable(3, 9)
    for name in "abc":
        assert table.add(name, name) == []
    table.prove("a")
    assert table.add("d", "d") == ["b"]
    assert table.add("e", "d") == ["c"]
    assert ("a" in table, len(table)) == (True, 3)


def test_one_peer_has_a_share() -> None:
    """A peer with too many loses its own, however few there are altogether."""
    table: ConnectionTable[int] = ConnectionTable(100, 2)
    assert table.add(0, "other") == []
    assert [table.add(number, "one") for number in range(1, 5)] == [[], [], [1], [2]]
    assert 0 in table


def test_of_those_that_have_asked_the_last_to_ask_stay() -> None:
    """Where all have proven themselves, whoever asked longest ago goes."""
    table: ConnectionTable[str] = ConnectionTable(2, 9)
    for name in "ab":
        table.add(name, name)
        table.prove(name)
    table.prove("a")
    assert table.add("c", "c") == ["b"]
    table.remove("c")
    table.remove("c")
    assert len(table) == 1


def test_the_last_descriptors_are_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection never takes one of them."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (1024, 4096))
    assert not is_reserved(1023 - RESERVED_DESCRIPTORS)
    assert is_reserved(1024 - RESERVED_DESCRIPTORS)
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    assert not is_reserved(10**6)
