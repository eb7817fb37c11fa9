"""The pods after a start of the kubelet, as a table with a sentence above it."""

from __future__ import annotations

from collections.abc import Iterator

from podslice.advise.whatif.restart.restart import HoldingAfter, PodAfterRestart, RestartResult
from podslice.render.ansi import style
from podslice.render.table import format_table
from podslice.values.quantity import plural

_MOST_NAMES = 4
_WORDS = {
    "stays": ("stays as it is", "stay as they are"),
    "moves": ("goes on with other resources", "go on with other resources"),
    "refused": ("is refused", "are refused"),
    "ends": ("ends", "end"),
}


def restart_text(result: RestartResult, *, wide: bool = False, named: bool = False) -> str:
    """Return the sentence, and a table of the pods that do not stay as they are; `wide` has all pods and what the
    shared pool becomes. `named`: the scenario's name comes first."""
    text = summary(result)
    lines = [style(f"{result.scenario}: {text[:1].lower()}{text[1:]}" if named else text, bold=True)]
    if result.problem:
        lines += [f"  What to do: {result.remedy}."] if result.remedy else []
        return "\n".join(lines)
    if result.leaked_cpus:
        lines.append(f"  CPUs {result.leaked_cpus} leak: afterwards they are neither shared nor owned by a pod.")
    if wide and result.shared_before != result.shared_after:
        lines.append(
            f"  The shared pool becomes {result.shared_after or 'empty'} (now {result.shared_before or 'empty'})."
        )
    shown = [pod for pod in result.pods if wide or pod.outcome != "stays"]
    if shown:
        rows = [row for pod in shown for row in _rows(pod)]
        lines += ["", format_table(("POD", "THEN", "CONTAINER", "NOW", "AFTER"), rows, bold=True)]
    lines += _messages(result)
    return "\n".join(lines)


def _messages(result: RestartResult) -> Iterator[str]:
    """Yield each message of the kubelet once, with the pods that get it."""
    said = dict[str, list[str]]()
    for pod in result.pods:
        if pod.outcome == "refused":
            said.setdefault(f"{pod.reason}: {pod.message}", []).append(pod.pod)
    for message, pods in said.items():
        more = f" and {len(pods) - _MOST_NAMES} more" if len(pods) > _MOST_NAMES else ""
        yield f"{', '.join(pods[:_MOST_NAMES])}{more}: {message}"


def summary(result: RestartResult) -> str:
    """Return the result in one sentence."""
    when = f"After a {'reboot' if result.how == 'reboot' else 'kubelet restart'}"
    if result.problem:
        return f"{when} the kubelet does not start: {result.problem}"
    if result.without_files:
        when = "Once the node is drained and the state files are deleted,"
    if not result.pods:
        return f"{when}: no pod runs here."
    counts = {name: sum(pod.outcome == name for pod in result.pods) for name in _WORDS}
    running = plural(len(result.pods), "running pod")
    if counts["stays"] == len(result.pods):
        return f"{when} nothing changes for {running}."
    parts = [f"{number} {_WORDS[name][number > 1]}" for name, number in counts.items() if number]
    if len(parts) == 1:
        return f"{when} {len(result.pods)} of {running} {parts[0].partition(' ')[2]}."
    return f"{when}, of {running}: {', '.join(parts)}."


def _rows(pod: PodAfterRestart) -> Iterator[list[str]]:
    first = True
    for one in pod.holdings or (None,):
        cells = ["-", "-", "-"] if one is None else _cells(one, refused=pod.outcome == "refused")
        yield [pod.pod if first else "", pod.outcome if first else "", *cells]
        first = False


def _cells(one: HoldingAfter, *, refused: bool) -> list[str]:
    noun = {"cpu": "CPUs", "memory": "memory of NUMA node"}.get(one.resource, one.resource)
    after = "-" if refused else f"{noun} {one.after}" if one.after else _nothing(one.resource)
    return [one.container or "(pod)", f"{noun} {one.before}" if one.before else "-", after]


def _nothing(resource: str) -> str:
    return "shared CPUs" if resource == "cpu" else "-"
