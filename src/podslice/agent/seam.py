"""The boundary at which the failure of one pod ends.

Every step for one pod or container goes through `Seam.attempt`. An unexpected error becomes a `PodFailure` of that pod:
it is counted, logged and sent as an event, and all other pods go on. Answers, such as a refusal, are not failures and
pass.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from typing import TypeVar

from podslice.agent.contract import PodFailure, RefusedError, Reporter
from podslice.agent.runtime.ttrpc import RPCError
from podslice.service.identity import Identity

_LONGEST = 300

T = TypeVar("T")


class Seam:
    """Catches the unexpected errors of single pods."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def attempt(self, step: str, identity: Identity, work: Callable[[], T]) -> T | PodFailure:
        """Return the result of `work`, or the failure that ended it."""
        try:
            return work()
        except (RefusedError, RPCError):
            raise
        except Exception as error:
            failure = failure_of(step, error)
            self._reporter.failed(identity, failure)
            return failure


def failure_of(step: str, error: Exception) -> PodFailure:
    """Return an error as one bounded line, with the source line that raised it."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    text = " ".join(f"{type(error).__name__}: {str(error)[:_LONGEST]}".split())
    return PodFailure(step, text, f"{os.path.basename(place.filename)}:{place.lineno}")
