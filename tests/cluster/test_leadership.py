"""Who leads, by the Lease of the scheduler's leader election."""

from __future__ import annotations

import asyncio

import pytest

from podslice.cluster.leadership import Leadership, lease_path
from podslice.service.answers import ApiError
from podslice.values.errors import InputError
from tests.cluster.recorded_log import RecordedLog


def test_changes_are_logged_once() -> None:
    """Taking and losing the lead is logged once, with the holder; a problem once, and the latest answer counts on."""
    answers = [b'{"spec": {"holderIdentity": "podslice-cluster-1_ab"}}'] * 2
    answers += [b'{"spec": {"holderIdentity": "podslice-cluster-0_cd"}}'] * 2
    answers += [b"", b"", b"{}", b'{"spec": {"holderIdentity": "podslice-cluster-0_cd"}}']
    log, troubles, leads = RecordedLog(), list[str](), list[bool | None]()

    async def read(path: str) -> bytes:
        assert path == "/apis/coordination.k8s.io/v1/namespaces/n/leases/l"
        leads.append(watch.leads)
        if not answers:
            raise asyncio.CancelledError
        found = answers.pop(0)
        if not found:
            raise ApiError("the API server is away")
        return found

    async def sleep(seconds: float) -> None:
        """Take no time."""

    watch = Leadership(
        read, lease_path("n/l", "--lease"), "podslice-cluster-0", log,
        trouble=lambda where, what: troubles.append(f"{where}: {what}"), sleep=sleep,
    )  # fmt: skip
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(watch.run())
    assert leads == [None, False, False, True, True, True, True, False, True]
    assert troubles == ["lease: the API server is away"]
    assert [(event, fields["holder"]) for event, fields in log.lines] == [
        ("does not lead", "podslice-cluster-1_ab"), ("leads", "podslice-cluster-0_cd"), ("does not lead", ""),
        ("leads", "podslice-cluster-0_cd"),
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["name", "/name", "namespace/", "a/b/c"])
def test_what_is_no_lease(text: str) -> None:
    """The option is named."""
    with pytest.raises(InputError) as error:
        lease_path(text, "--lease")
    assert error.value.path == "--lease"
