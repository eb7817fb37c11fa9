"""Every failure podslice reports, as types that carry facts and make their own sentence.

Three families, because three different people act on them: `InputError` (the user gave something unusable and can
correct it), `StartError` (a kubelet with this configuration would not start on this machine) and `AdmissionError` (the
node refuses this pod). `UpstreamDefectError` stands for an input on which Kubernetes v1.36.2 itself loops for ever or
crashes; profile `kubelet-1.36` raises it where the decision would be.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple


class PodsliceError(Exception):
    """Base of every exception podslice raises on purpose."""


_LONGEST = 600


def _truncate(text: str) -> str:
    """Cut a part of a message that may quote an input of any length."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


class InputError(PodsliceError):
    """Raised for unusable input: where it is, what it says, and what would be valid.

    `source` names the file (or `stdin`), `document` the zero-based document in it, `path` the field
    (`spec.containers[0].resources.limits[cpu]`), `remedy` what to write instead. Prints as one line.
    """

    def __init__(
        self, problem: str, *, source: str = "", document: int | None = None, path: str = "", remedy: str = ""
    ) -> None:
        self.problem = _truncate(problem)
        self.source = _truncate(source)
        self.document = document
        self.path = _truncate(path)
        self.remedy = remedy
        super().__init__(str(self))

    def __str__(self) -> str:
        where = self.source
        if self.document is not None:
            where += f" document {self.document + 1}" if where else f"document {self.document + 1}"
        parts = [part for part in (where, self.path, self.problem) if part]
        text = ": ".join(parts)
        if self.remedy:
            text += f" ({self.remedy})"
        # One error is one line in logs and tables, whatever the input it quotes.
        return " ".join(text.split("\n"))

    @property
    def errors(self) -> tuple[InputError, ...]:
        """This error alone; `InputErrors` has several."""
        return (self,)

    def at(self, *, source: str = "", document: int | None = None, path: str = "") -> InputError:
        """Return the same error with its place completed: `self` keeps the parts it already has."""
        return InputError(
            self.problem,
            source=self.source or source,
            document=self.document if self.document is not None else document,
            path=self.path or path,
            remedy=self.remedy,
        )


class InputErrors(InputError):  # noqa: N818 - several of them
    """Raised for an input with more than one error. Prints one line for each.

    Its attributes are those of the first error; `errors` has all of them, as for every `InputError`.
    """

    def __init__(self, errors: Sequence[InputError]) -> None:
        self._errors = tuple(errors)
        first = self._errors[0]
        super().__init__(
            first.problem, source=first.source, document=first.document, path=first.path, remedy=first.remedy
        )

    @property
    def errors(self) -> tuple[InputError, ...]:
        return self._errors

    def __str__(self) -> str:
        return "\n".join(map(str, self._errors))

    def at(self, *, source: str = "", document: int | None = None, path: str = "") -> InputError:
        return InputErrors([error.at(source=source, document=document, path=path) for error in self._errors])


def raise_all(errors: Iterable[InputError]) -> None:
    """Raise the collected errors: nothing for none, a single one as it is, several as `InputErrors`."""
    single = [one for error in errors for one in error.errors]
    if single:
        raise single[0] if len(single) == 1 else InputErrors(single)


class StartKind(NamedTuple):
    """A way in which a start fails: a stable `code`, upstream's `message` and our `remedy`, empty where the message
    says it. Both texts have a placeholder in braces for each fact. Kinds stand beside the code that finds them."""

    code: str
    message: str
    remedy: str = ""


class StartError(PodsliceError):
    """Raised where a kubelet with this configuration would not start. `stage` names the step as in the recorded
    decisions; `kind` and `facts` make `message`, upstream's text, and `remedy`, what to do about it."""

    def __init__(self, stage: str, kind: StartKind, /, **facts: object) -> None:
        self.stage = stage
        self.kind = kind
        self.facts = facts
        self.message = kind.message.format(**facts)
        self.remedy = kind.remedy.format(**facts)
        super().__init__(self.message)

    def but(self, **facts: object) -> StartError:
        """Return the same error with some facts replaced."""
        return StartError(self.stage, self.kind, **{**self.facts, **facts})


class RefusalKind(NamedTuple):
    """A way to refuse a pod: a stable `code`, upstream's `message`, and the `reason` of the pod status, empty where the
    refusing manager gives none. Both texts have a placeholder in braces for each fact. Kinds stand beside the code that
    refuses."""

    code: str
    message: str
    reason: str = ""


class Refusal(NamedTuple):
    """Why a pod is not admitted: `reason` and `message` as in the pod status, made of `kind` and `facts`."""

    kind: RefusalKind
    facts: Mapping[str, object] = {}

    @property
    def code(self) -> str:
        """Stable code, finer than upstream's reason."""
        return self.kind.code

    @property
    def reason(self) -> str:
        """Upstream's `status.reason`, for programs."""
        return self.kind.reason.format(**self.facts)

    @property
    def message(self) -> str:
        """Upstream's `status.message`, for people."""
        return self.kind.message.format(**self.facts)


class AdmissionError(PodsliceError):
    """Raised where the node refuses a pod. `reason` may be empty when the refusing manager gives none; the Topology
    Manager then wraps the message (cpu-topology 9.2)."""

    def __init__(self, kind: RefusalKind, /, **facts: object) -> None:
        self.refusal = Refusal(kind, facts)
        # The message is composed only when it is read.
        super().__init__(kind.code)

    @property
    def reason(self) -> str:
        """The pod's `status.reason`."""
        return self.refusal.reason

    @property
    def message(self) -> str:
        """The pod's `status.message`."""
        return self.refusal.message

    def __str__(self) -> str:
        return self.message


class UpstreamDefectError(PodsliceError):
    """Raised where Kubernetes v1.36.2 crashes, or never answers (`hangs`). `name` is the row in docs/deviations.md,
    `remedy` what would end it, empty where nothing is known that does."""

    def __init__(self, name: str, detail: str = "", *, hangs: bool = False, remedy: str = "") -> None:
        self.hangs = hangs
        self.name = name
        self.detail = detail
        self.remedy = remedy
        super().__init__(f"{name}: {detail}" if detail else name)

    @property
    def consequence(self) -> str:
        """What becomes of the pod, as a sentence without a full stop."""
        return "the kubelet never answers, and the pod stays Pending" if self.hangs else "the kubelet crashes"

    @property
    def because(self) -> str:
        """Why, with the name of the defect, and what would end it."""
        remedy = f". What would end it: {self.remedy}" if self.remedy else ""
        return f"{f'{self.detail} ' if self.detail else ''}(upstream defect {self.name}){remedy}"

    @property
    def sentence(self) -> str:
        """What becomes of the pod, why, and what would end it."""
        return f"{self.consequence}: {self.because}"


MOST_HINTS = 50
"""How many unknown names of one text get a suggestion: each costs a millisecond, and a text may hold thousands."""


def did_you_mean(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """Return the remedy for an unknown name: the nearest known one, or `otherwise` where none is near."""
    # Imported here: only an error needs it, and every command starts with this module.
    from difflib import get_close_matches

    close = get_close_matches(name, list(known), 1)
    return f"did you mean {close[0]}?" if close else otherwise
