"""The slices a driver writes: readers never see a pool that is half old under the same generation."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from podslice.dra.publish import Json, SliceNames, SliceWrites, plan_writes

NAMES = SliceNames("podslice.io", "node-a")


def specs(*devices: str) -> list[Json]:
    """A slice for each word."""
    pool = {"name": "node-a/podslice.io", "resourceSliceCount": len(devices)}
    return [
        {"driver": "podslice.io", "nodeName": "node-a", "pool": pool, "devices": [{"name": one}]} for one in devices
    ]


class Server:
    """Slices by name, as an API server keeps them."""

    def __init__(self) -> None:
        self.slices: dict[str, Json] = {}
        self.calls = 0

    def carry_out(self, writes: SliceWrites) -> None:
        for one in writes.deletes:
            del self.slices[one["metadata"]["name"]]
        for one in writes.replaces:
            self.slices[one["metadata"]["name"]] = one
        for one in writes.creates:
            name = f"{one['metadata']['generateName']}{len(self.slices)}x"
            assert name not in self.slices
            self.slices[name] = {"metadata": {"name": name}, "spec": one["spec"]}
        self.calls += sum(map(len, writes))

    def publish(self, wanted: list[Json]) -> SliceWrites:
        writes = plan_writes(wanted, list(self.slices.values()), NAMES, lambda n, spec: same(wanted[n], spec))
        self.carry_out(writes)
        return writes

    def pools(self) -> set[tuple[int, int]]:
        return {(one["spec"]["pool"]["generation"], one["spec"]["pool"]["resourceSliceCount"])
                for one in self.slices.values()}  # fmt: skip

    def devices(self) -> list[str]:
        """In the order in which a scheduler walks them."""
        return [one["spec"]["devices"][0]["name"] for _, one in sorted(self.slices.items())]


def same(wanted: Json, spec: Json) -> bool:
    return bool(spec["devices"] == wanted["devices"])


def test_first() -> None:
    """A new pool begins with generation 1, in names that keep the order of the slices."""
    server = Server()
    wanted = [f"d{n:02}" for n in range(20)]
    server.publish(specs(*wanted))
    assert server.pools() == {(1, 20)}
    assert server.devices() == wanted
    assert not server.publish(specs(*wanted))


def test_one_change_keeps_the_generation() -> None:
    """A change by one call on one slice needs no new generation; two slices get a new one for all."""
    server = Server()
    server.publish(specs("a", "b", "c"))
    writes = server.publish(specs("a", "x", "c"))
    assert [len(each) for each in writes] == [0, 1, 0]
    assert server.pools() == {(1, 3)}
    writes = server.publish(specs("y", "x", "z"))
    assert [len(each) for each in writes] == [0, 3, 0]
    assert server.pools() == {(2, 3)}


def test_wiped() -> None:
    """Slices that a kubelet has taken away are all there again; where some are left, under a new generation."""
    server = Server()
    server.publish(specs("a", "b"))
    server.slices.clear()
    server.publish(specs("a", "b"))
    assert server.devices() == ["a", "b"]
    server.slices.pop(min(server.slices))
    server.publish(specs("a", "b"))
    assert server.pools() == {(2, 2)}
    assert server.devices() == ["a", "b"]


def test_not_ours() -> None:
    """Old generations, surplus slices and names of no scheme go first."""
    server = Server()
    server.publish(specs("a"))
    pool = {"name": "node-a/podslice.io", "generation": 1, "resourceSliceCount": 1}
    odd: dict[str, Any] = {"pool": pool, "devices": []}
    for name, generation in (("by-hand", 1), ("0-podslice.io-node-a-zz", 1), ("0-podslice.io-node-a-old", 0)):
        server.slices[name] = {"metadata": {"name": name}, "spec": odd | {"pool": pool | {"generation": generation}}}
    writes = server.publish(specs("a"))
    assert {one["metadata"]["name"] for one in writes.deletes} == {
        "by-hand", "0-podslice.io-node-a-zz", "0-podslice.io-node-a-old"
    }  # fmt: skip
    assert server.devices() == ["a"]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 18), st.integers(0, 3), st.sampled_from(["", "one", "all"])), max_size=8))
def test_any_life(steps: list[tuple[int, int, str]]) -> None:
    """Whatever was there, one round makes it right: one generation, the right count, the right order, nothing else;
    and the next round writes nothing."""
    server = Server()
    for count, version, wipe in steps:
        if wipe and server.slices:
            for name in sorted(server.slices)[: 1 if wipe == "one" else None]:
                del server.slices[name]
        wanted = [f"{n:02}-{version if n == 0 else 0}" for n in range(count)]
        server.publish(specs(*wanted))
        assert server.devices() == wanted
        assert len(server.pools()) == 1
        assert {one for _, one in server.pools()} == {count}
        assert not server.publish(specs(*wanted))
