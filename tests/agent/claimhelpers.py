"""An agent whose policy leaves CPUs to claims, and claims as the scheduler leaves them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from podslice.agent.admitting import NodeSetup
from podslice.agent.contract import Listed
from podslice.agent.dra.cdi import device_id
from podslice.agent.dra.claimledger import ClaimLedger
from podslice.agent.dra.reservations import Reservations
from podslice.agent.node_wiring import ClaimSetup, wire_node
from podslice.agent.records import NodeRecords
from podslice.api.pod.spec import from_dict
from podslice.config.policy import ClaimMemory, ClaimRules, PodslicePolicy
from podslice.dra.objects import ResourceClaim
from podslice.dra.prepared import PreparedClaim, PreparedDevice
from podslice.machine.readers.synthetic import from_synthetic
from podslice.service.answers import ApiError
from podslice.values.cpuset import parse_bits, union
from tests.agent.helpers import MACHINE, Notes, World, agent_config

POLICY = PodslicePolicy(claims=ClaimRules("8-15,24-31"))
NODE = "n"


def claim(name: str, *devices: tuple[int, int], pod: str = "", memory: dict[str, int] | None = None) -> PreparedClaim:
    """With CPUs on NUMA nodes, for the pod of the same name."""
    listed = tuple(
        PreparedDevice(f"r{place}", f"{NODE}/podslice.io", f"podslice-numa-{numa}", numa, cpus, memory or {}, "share")
        for place, (numa, cpus) in enumerate(devices)
    )
    return PreparedClaim(f"uid-{name}", "default", name, listed, (pod or name,))


def with_memory() -> tuple[Any, PodslicePolicy]:
    """A configuration with ledgers of memory, and a policy that leaves some to claims."""
    from podslice.config.kubelet import MemoryReservation

    config = agent_config(
        memory_manager_policy="Static",
        system_reserved={"memory": "1Gi"},
        reserved_memory=(MemoryReservation(0, {"memory": "1Gi"}),),
    )
    return config, PodslicePolicy(claims=ClaimRules("8-15,24-31", (ClaimMemory(1, {"memory": "2Gi"}),)))


def reservations_of(records: NodeRecords, api: Any, checkpoint: Path, **more: Any) -> Reservations:
    """Return the reservations of a node whose API server is `api`."""
    return Reservations(records.claims, api, checkpoint, trouble=lambda what, why: None, **more)


class ClaimWorld(World):
    """A world with a ledger of claims. `users` are the pods that may use claims, by the claims' UIDs; with `api` they
    are read from that API server as an agent does, by `reservations`."""

    reservations: Reservations

    def __init__(self, folder: Path, *, api: Any = None, **options: Any) -> None:
        self.sleep = options.pop("sleep", asyncio.sleep)
        super().__init__(folder, **{"policy": POLICY, **options})
        self.users: dict[str, frozenset[str]] = {}
        self.api = api

    def claim_setup(self, records: NodeRecords) -> ClaimSetup:
        self.reservations = reservations_of(records, self.api, self.folder / "dra_manager_state", sleep=self.sleep)
        asked = lambda uid: self.users.get(uid, frozenset())  # noqa: E731
        return ClaimSetup(self.folder / "cdi", asked if self.api is None else self.reservations.find_pods)

    @property
    def ledger(self) -> ClaimLedger:
        assert self.owner.claims is not None
        return self.owner.claims


class Desk:
    """An owner and its ledger without runtime; made anew, it is the process after. `api` is its API server,
    `checkpoint` the file in which the kubelet keeps its claims."""

    def __init__(self, folder: Path, api: Any = None, checkpoint: Path | None = None) -> None:
        self.folder = folder
        self.notes = Notes()
        records = NodeRecords()
        self.reservations = reservations_of(
            records, FakeClaims() if api is None else api, checkpoint or folder / "dra_manager_state"
        )
        setup = NodeSetup(folder / "state", from_synthetic(MACHINE), agent_config(), POLICY)
        claims = ClaimSetup(folder / "cdi", self.reservations.find_pods)
        self.owner = wire_node(setup, self.notes, records=records, claims=claims).owner
        assert self.owner.claims is not None
        self.ledger = self.owner.claims
        self.owner.synchronize(Listed([], []))

    def holds(self) -> dict[str, int]:
        """CPUs by claim, as the node has them."""
        view = self.owner.store.node.view  # type: ignore[union-attr]
        return {uid.removeprefix("claim/"): union(named.values()) for uid, named in view.owners.items()}

    def check(self) -> None:
        """Nobody lost a CPU, nobody has another's; every claim that is known has its CPUs and its CDI file, and there
        is nothing else."""
        view = self.owner.store.node.view  # type: ignore[union-attr]
        held = self.holds()
        assert union(held.values()) | view.shared == view.topology.all_cpus
        assert sum(cpus.bit_count() for cpus in held.values()) + view.shared.bit_count() == view.topology.num_cpus
        assert union(held.values()) & ~parse_bits("8-15,24-31") == 0
        assert set(held) == set(self.ledger.claims)
        assert {path.stem for path in (self.folder / "state" / "claims").glob("*")} == set(held)
        told = {path.name.removeprefix("podslice.io-claim_").removesuffix(".json")
                for path in (self.folder / "cdi").glob("*")}  # fmt: skip
        assert told == set(held)


class FakeClaims:
    """The API server's claims by namespace and name; `down`: it does not answer."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.statuses: list[list[dict[str, Any]]] = []
        self.down = False

    def put(self, one: PreparedClaim, **more: Any) -> None:
        """As the scheduler leaves it."""
        results = [
            {"request": d.request, "driver": "podslice.io", "pool": d.pool, "device": d.device, "shareID": d.share_id,
             "consumedCapacity": {"podslice.io/cpu": str(d.cpus)}}
            for d in one.devices
        ]  # fmt: skip
        reserved = [{"resource": "pods", "name": uid, "uid": uid} for uid in one.pods]
        status = {"allocation": {"devices": {"results": results}}, "reservedFor": reserved}
        metadata = {"name": one.name, "namespace": one.namespace, "uid": one.uid}
        self.objects[one.namespace, one.name] = {"metadata": metadata, "status": status, **more}

    async def read_claim(self, namespace: str, name: str) -> ResourceClaim | None:
        if self.down:
            raise ApiError("connection refused")
        found = self.objects.get((namespace, name))
        return None if found is None else from_dict(found, ResourceClaim)

    async def patch_claim_status(self, namespace: str, name: str, patch: list[dict[str, Any]]) -> None:
        self.statuses.append(patch)
        self.objects[namespace, name]["status"]["devices"] = [one["value"] for one in patch if one["path"][-1] == "-"]


def ids(one: PreparedClaim) -> list[str]:
    """Return the CDI device ids in the answer to the kubelet for a claim."""
    return [device_id(one.uid, place) for place in range(len(one.devices))]
