"""Outcomes that a recording can only match, because upstream chooses at random."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

ONE_OF = "errorIsOneOf"
"""Member of our outcomes with the errors of which upstream reports any."""


def failure(error: str, equals: Sequence[str]) -> dict[str, Any]:
    """Return the members of an outcome about an error; `equals`: all errors of which upstream reports one."""
    one_of = {ONE_OF: list(equals)} if len(equals) > 1 and error in equals else {}
    return {"error": error, **one_of}
