"""Checks of `podslice cluster --check-config` beyond the options: certificates, addresses, and rights."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec

from podslice.cluster.apiclient import HTTPClusterApi
from podslice.cluster.running import CheckedOptions, ClusterOptions
from podslice.service.answers import ApiError
from podslice.service.http.access import check_free, listening_error
from podslice.values.errors import InputError

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
_SOON = 14 * 86400.0
_CORE = ""


class Right(NamedTuple):
    """A right at the API server, and what it is for."""

    verb: str
    group: str
    resource: str
    use: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def __str__(self) -> str:
        resource = "/".join(filter(None, (self.resource, self.subresource)))
        return f"{self.verb} {resource}{f'.{self.group}' if self.group else ''}"


def needed_rights(options: ClusterOptions) -> Iterator[Right]:
    """Yield the rights that the service needs with these options."""
    for resource in ("pods", "nodes"):
        for verb in ("list", "watch"):
            yield Right(verb, _CORE, resource, "the model")
    yield Right("create", _CORE, "pods", "binding pods", "binding")
    yield Right("create", _CORE, "events", "events of disputes")
    for verb in ("list", "watch", "delete"):
        yield Right(verb, "podslice.io", "nodestates", "states of nodes before their streams")
    if options.journal_address:
        yield Right("create", "authentication.k8s.io", "tokenreviews", "streams of agents")
    if options.service.nominate:
        yield Right("patch", _CORE, "pods", "nominations", "status")
    if options.service.wake:
        yield Right("patch", _CORE, "nodes", "requeues", "status")
    if options.service.evict:
        yield Right("create", _CORE, "pods", "evictions", "eviction")
    if options.lease:
        namespace, _, name = options.lease.partition("/")
        yield Right("get", "coordination.k8s.io", "leases", "leadership", namespace=namespace, name=name)


def check_certificate(checked: CheckedOptions, now: float) -> str:
    """Return a line about the certificate. Raises `InputError` for one that has expired."""
    if checked.certificate is None:
        return "certificate: none"
    texts = []
    for name, end in checked.certificate.expiries.items():
        when = f"{datetime.fromtimestamp(end, UTC):%Y-%m-%dT%H:%M:%SZ}"
        if end <= now:
            path = "--client-ca" if name == "clientAuthority" else "--tls-cert"
            raise InputError(f"expired at {when}", path=path, remedy="renew it")
        texts.append(f"{name} until {when}{' (soon)' if end - now < _SOON else ''}")
    return f"certificate: {', '.join(texts)}"


def check_addresses(checked: CheckedOptions) -> str:
    """Return a line about the addresses. Raises `InputError` for one that is taken, or is none of this machine."""
    listening, page = checked.listening, checked.page
    found = {
        "--address": (listening.host, listening.port),
        "--metrics-address": listening.metrics,
        "--journal-address": checked.journals,
        "--page-address": None if page is None else (page.host, page.port),
    }
    used = {option: where for option, where in found.items() if where is not None}
    for option, (host, port) in used.items():
        try:
            check_free(host, port)
        except OSError as error:
            more = "; beside a service that runs this is its own"
            raise listening_error(error, host, port, option, more) from None
    return f"addresses: {', '.join(f'{host}:{port}' for host, port in used.values())} are free"


class _ReviewStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _Review(msgspec.Struct, frozen=True):
    status: _ReviewStatus = _ReviewStatus()


async def check_rights(options: ClusterOptions, ask: Callable[[str, bytes], Awaitable[bytes]]) -> str:
    """Return a line about the rights, by SelfSubjectAccessReviews. Raises `InputError` for those that are missing,
    `ApiError` where the API server does not say."""
    rights = list(needed_rights(options))
    allowed = await asyncio.gather(*(_is_allowed(right, ask) for right in rights))
    missing = [f"{right} ({right.use})" for right, good in zip(rights, allowed, strict=True) if not good]
    if missing:
        raise InputError(
            f"the API server does not allow {', '.join(missing)}",
            path="rights",
            remedy="bind the ClusterRole podslice-cluster (deploy/manifests/scheduler.yaml) to this account",
        )
    return f"rights: all {len(rights)}"


async def _is_allowed(right: Right, ask: Callable[[str, bytes], Awaitable[bytes]]) -> bool:
    attributes = {name: value for name, value in right._asdict().items() if name != "use" and value}
    spec: dict[str, Any] = {"resourceAttributes": attributes}
    body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
    answer = await ask(REVIEWS, msgspec.json.encode(body))
    try:
        return msgspec.json.decode(answer, type=_Review).status.allowed
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ApiError(f"{REVIEWS}: the answer is not a review: {str(error)[:200]}") from None


async def check_all(options: ClusterOptions, checked: CheckedOptions) -> list[str]:
    """Check everything, and return a line for each kind. Raises `InputError`."""
    lines = [check_certificate(checked, time.time()), check_addresses(checked)]
    try:
        api = HTTPClusterApi()
    except InputError as error:
        return [*lines, f"rights: not checked, {error}"]
    try:
        lines.append(await check_rights(options, api.ask))
    except ApiError as error:
        lines.append(f"rights: not checked, {error}")
    finally:
        await api.close()
    return lines
