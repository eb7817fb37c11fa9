"""Guards that a policy requires before a container with CPUs of its own is created (docs/isolation.md)."""

from __future__ import annotations

from typing import Protocol

from podslice.agent.contract import RefusedError
from podslice.agent.owner import Found, Owner
from podslice.agent.records import ReportedRefusal
from podslice.agent.seam import failure_of
from podslice.service.identity import Identity
from podslice.service.proto import nri_pb2 as nri


class RequiredGuards(Protocol):
    """Guards of a node. `failure`: why they did not work in the last pass. `required`: no container of the pods
    that they concern is created before the guards work."""

    failure: str

    @property
    def required(self) -> bool: ...
    def concerns(self, uid: str) -> bool: ...
    async def look(self) -> None: ...


async def run_guards_first(
    guards: RequiredGuards, owner: Owner, sandbox: str, identity: Identity, message: nri.Container, found: Found
) -> None:
    """Decide the CPUs of a container, and guard them before it is created. Raises `RefusedError` where it is
    refused."""
    owner.seam.attempt("create", identity, lambda: owner.decide_ahead(sandbox, identity, message, found))
    if guards.concerns(identity.uid):
        try:
            await guards.look()
        except Exception as error:
            owner.reporter.failed(identity, failure_of("guards", error))


def check_guards(guards: RequiredGuards, owner: Owner, identity: Identity) -> None:
    """Check that the guards work for a pod with CPUs of its own. Raises `RefusedError`."""
    if guards.failure and guards.concerns(identity.uid):
        refusal = ReportedRefusal("GuardsNotReady", f"{guards.failure}; the policy has guards.required")
        owner.reporter.refused(identity, refusal)
        raise RefusedError(refusal)
