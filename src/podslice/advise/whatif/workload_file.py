"""Reading a ResizeWorkload file (podslice.io/v1alpha1): pods that come, are resized in place, and go.

apiVersion: podslice.io/v1alpha1
kind: ResizeWorkload
steps:
- admit: pods.yaml               # the pods of a file, beside this one, or a Pod
- resize: default/db
  containers: {db: {cpu: "8"}}   # requests, and limits that equal them; `pod` for spec.resources
- remove: default/web
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from podslice.advise.explain.fixes.edits import POD
from podslice.advise.whatif.workload import Admit, Leave, Resize, Step
from podslice.api.manifests.manifest import load_pods
from podslice.api.pod.spec import pod_from_dict
from podslice.config.kubelet_file import load_config_data
from podslice.config.objects import check_object
from podslice.values.decoding import abbreviate
from podslice.values.errors import InputError
from podslice.values.quantity import Quantity, QuantityError

KIND = "ResizeWorkload"
_MOST_STEPS = 100_000
_ACTIONS = ("admit", "resize", "remove")


def load_workload(path: str) -> list[Step]:
    """Read one ResizeWorkload. Raises `InputError` in one line with the place."""
    try:
        return list(_steps(load_config_data(path, KIND), Path(path).parent))
    except InputError as error:
        raise error.at(source=path) from None


def _steps(data: dict[str, Any], folder: Path) -> Iterator[Step]:
    check_object(data, KIND, below="steps", remedy="the sequence is below steps")
    steps = data.get("steps")
    if not isinstance(steps, list) or len(steps) > _MOST_STEPS:
        raise InputError(f"is not a list of at most {_MOST_STEPS} steps", path="steps")
    for index, step in enumerate(steps):
        try:
            yield from _step(step, folder)
        except InputError as error:
            at = f"steps[{index}]" + (f".{error.path}" if error.path else "")
            raise InputError(error.problem, source=error.source, path=at, remedy=error.remedy) from None


def _step(step: Any, folder: Path) -> Iterator[Step]:
    actions = [name for name in _ACTIONS if isinstance(step, dict) and name in step]
    if len(actions) != 1:
        raise InputError(f"{abbreviate(step)} has not exactly one action", remedy=f"one of {', '.join(_ACTIONS)}")
    (what,) = actions
    allowed = {what, "containers", "pod"} if what == "resize" else {what}
    unknown = sorted(str(name) for name in step.keys() - allowed)
    if unknown:
        raise InputError("unknown field", path=unknown[0], remedy=f"{what} takes {', '.join(sorted(allowed))}")
    value = step[what]
    if what == "admit":
        yield from _admissions(value, folder)
    elif not isinstance(value, str) or not value:
        raise InputError(f"{abbreviate(value)} is not the name of a pod", path=what, remedy=f"{what}: default/db")
    elif what == "remove":
        yield Leave(value)
    else:
        yield Resize(value, dict(_amounts(step)))


def _admissions(value: Any, folder: Path) -> Iterator[Step]:
    if isinstance(value, str):
        # Relative to the workload, so that a directory of examples can be moved.
        yield from (Admit(one.pod) for one in load_pods(str(folder / value)))
    elif isinstance(value, dict):
        try:
            yield Admit(pod_from_dict(value))
        except InputError as error:
            raise error.at(path="admit") from None
    else:
        raise InputError(f"{abbreviate(value)} is neither a file nor a Pod", path="admit", remedy="admit: pods.yaml")


def _amounts(step: dict[str, Any]) -> Iterator[tuple[tuple[str, str], Quantity]]:
    containers = step.get("containers") or {}
    if not isinstance(containers, dict) or not (containers or step.get("pod")):
        raise InputError("has no amounts to request", path="resize", remedy='containers: {db: {cpu: "8"}}')
    for place, amounts in [*containers.items(), *([(POD, step["pod"])] if step.get("pod") else [])]:
        path = f"containers.{place}" if place != POD else "pod"
        if not isinstance(amounts, dict):
            raise InputError(f"{abbreviate(amounts)} is not amounts by resource", path=path, remedy='{cpu: "8"}')
        for name, text in amounts.items():
            try:
                yield (str(place), str(name)), Quantity.parse(str(text))
            except QuantityError as error:
                raise InputError(
                    f"{abbreviate(text)}: {error}", path=f"{path}.{name}", remedy="write for example 8"
                ) from None
