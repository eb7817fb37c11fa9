"""Events a kubelet posts on a pod."""

from __future__ import annotations

from typing import Literal

import msgspec


class PodEvent(msgspec.Struct, frozen=True):
    """An event on a pod; `reason` is one word for programs, `message` is for people."""

    type: Literal["Normal", "Warning"]
    reason: str
    message: str
