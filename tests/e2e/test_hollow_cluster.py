"""The harness of hollow nodes: calls to an API server that is away."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from e2e.controlplane import Answer, StatusError
from e2e.hollow_cluster import patiently

from tests.clock import PATIENCE


class AbsentApi:
    """Connections to an API server that has stopped, or answers these codes first."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.tried = threading.Event()

    def ask(self, method: str, path: str, body: object) -> Answer:
        self.tried.set()
        if not self.codes:
            raise ConnectionRefusedError
        return Answer(self.codes.pop(0), {}, [])

    def close(self) -> None:
        """There is nothing to close."""


def call(api: Any, over: threading.Event) -> None:
    patiently(api, "DELETE", "/pods/p", over=over)


def test_a_thread_ends_with_its_load() -> None:
    """A call that waits for an API server ends as soon as the load is over, and not minutes later."""
    api, over = AbsentApi(), threading.Event()
    thread = threading.Thread(target=call, args=(api, over), daemon=True)
    thread.start()
    assert api.tried.wait(PATIENCE)
    assert thread.is_alive()
    over.set()
    thread.join(PATIENCE)
    assert not thread.is_alive()


def test_what_is_tried_again() -> None:
    """A busy server is asked again, one that has the answer is not, and a refusal is an error."""
    over = threading.Event()
    busy = AbsentApi(429, 503, 404)
    call(busy, over)
    assert busy.codes == []
    with pytest.raises(StatusError):
        call(AbsentApi(403), over)
