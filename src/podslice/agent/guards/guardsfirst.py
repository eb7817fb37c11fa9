"""Guards that a policy requires: they work before a container with CPUs of its own is created (docs/guards.md)."""

from __future__ import annotations

from typing import Protocol

from podslice.agent.contract import RefusedError
from podslice.agent.owner import Found, Owner
from podslice.agent.records import ReportedRefusal
from podslice.agent.seam import failure_of
from podslice.service.identity import Identity
from podslice.service.proto import nri_pb2 as nri


class RequiredGuards(Protocol):
    """Guards of a node. `failure` says why those of the last pass do not work; `required`: some containers are not
    created without them, those of pods that they concern."""

    failure: str

    @property
    def required(self) -> bool: ...
    def concerns(self, uid: str) -> bool: ...
    async def look(self) -> None: ...


async def guard_first(
    guards: RequiredGuards, owner: Owner, sandbox: str, identity: Identity, message: nri.Container, found: Found
) -> None:
    """What CPUs a container gets is decided, and these are guarded. Raises `RefusedError` for one that gets none."""
    owner.seam.attempt("create", identity, lambda: owner.foresee(sandbox, identity, message, found))
    if guards.concerns(identity.uid):
        try:
            await guards.look()
        except Exception as error:
            owner.reporter.failed(identity, failure_of("guards", error))


def check_guards(guards: RequiredGuards, owner: Owner, identity: Identity) -> None:
    """Raises `RefusedError` where guards do not work for a pod with CPUs of its own."""
    if guards.failure and guards.concerns(identity.uid):
        refusal = ReportedRefusal("GuardsNotReady", f"{guards.failure}; the policy has guards.required")
        owner.reporter.refused(identity, refusal)
        raise RefusedError(refusal)
