"""A source of pods that knows what a test puts into it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from podslice.api.pod.spec import Pod
from podslice.service.identity import Identity


class FakeSource:
    """A source for tests: pods put into `pods` by UID."""

    def __init__(self, pods: Iterable[Pod] = ()) -> None:
        self.name = "fake"
        self.ready = True
        self.cause = ""
        self.changed = asyncio.Event()
        self.pods = {pod.metadata.uid: pod for pod in pods}

    def add(self, pod: Pod) -> None:
        self.pods[pod.metadata.uid] = pod
        self.changed.set()

    def find(self, identity: Identity) -> Pod | None:
        return self.pods.get(identity.uid)

    def expects(self, identity: Identity) -> bool:
        return self.name == "apiServer" and not identity.static

    def ask(self, identity: Identity) -> None:
        return None

    def explain_unknown(self) -> str:
        return "the API server has not reported this pod yet"
