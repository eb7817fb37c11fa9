"""Which right a refused request needs, and the command that grants it."""

from __future__ import annotations

import re
import shlex
from typing import NamedTuple

from podslice.kubectl.connection import ClusterError

_USER = re.compile(r'User "([^"]{1,200})"')


class Right(NamedTuple):
    """A verb on a resource, of one namespace or of the whole cluster (empty)."""

    verb: str
    resource: str
    namespace: str = ""

    def __str__(self) -> str:
        where = f" in namespace {self.namespace}" if self.namespace else ""
        return f"{self.verb} {self.resource}{where}"


def grant_text(right: Right, error: ClusterError) -> str:
    """Return the two commands with which an administrator grants the right to the user that the API server names."""
    found = _USER.search(error.answer)
    user = shlex.quote(found[1]) if found else "USER"
    name = "podslice-why-" + right.resource.partition(".")[0].replace("/", "-")
    kind = "role" if right.namespace else "clusterrole"
    where = f" -n {right.namespace}" if right.namespace else ""
    return (
        f"kubectl create {kind} {name}{where} --verb={right.verb} --resource={right.resource} && "
        f"kubectl create {kind}binding {name}{where} --{kind}={name} --user={user}"
    )


def missing_right(right: Right, error: ClusterError) -> ClusterError:
    """Return the error of a request that was refused with 403, with the right that it needs."""
    problem = f"you may not {right}: {error.problem}"
    return ClusterError(problem, source=error.source, remedy=grant_text(right, error), status=403, answer=error.answer)
