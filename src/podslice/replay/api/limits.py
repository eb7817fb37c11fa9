"""Sections about LimitRange."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from podslice.replay.api.case import ApiCase

SECTIONS: dict[str, Callable[[ApiCase], Any]] = {}
