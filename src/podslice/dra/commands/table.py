"""Tables of allocated and refused claims."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from podslice.admit.documents import ClaimAnswer, ClaimObstacle, ClaimRefusal
from podslice.cli.output import prose_width
from podslice.render.ansi import echo, style
from podslice.render.prose import wrap_lines
from podslice.render.table import print_table

_MOST_SHOWN = 5
_MOST_NAMED = 8
"""Kinds of nodes, and names of one kind, in the text at most."""


def print_answers(answers: Sequence[ClaimAnswer]) -> None:
    """Print a table of devices, and below it the refusals and their reasons."""
    counting = any(answer.counts for answer in answers)
    rows = [row if counting else row[:-1] for answer in answers for row in _rows(answer)]
    headings = ["POD", "CLAIM", "VERDICT", "NODE", "REQUEST", "DEVICE", "CONSUMED"]
    print_table(headings + ["COUNTED WITH REQUESTS"] * counting, rows)
    for answer in answers:
        if answer.allocated:
            continue
        name = style(answer.pod or answer.claims[0], bold=True)
        echo(wrap_lines(f"\n{name} {style('not allocated', fg='red')}: {answer.message}", prose_width()))
        for refusal in answer.refusals[:_MOST_SHOWN]:
            if len(answer.refusals) > 1:
                echo(wrap_lines(f"  {_nodes_text(refusal.nodes)}:", prose_width()))
            _print_refusal(refusal)
        left = sum(len(refusal.nodes) for refusal in answer.refusals[_MOST_SHOWN:])
        if left:
            echo(f"  {left} more node{'s' * (left != 1)}: see -o json")


def _print_refusal(refusal: ClaimRefusal) -> None:
    if refusal.why:
        echo(wrap_lines(f"  {refusal.why}", prose_width()))
    for obstacle in refusal.obstacles:
        echo(wrap_lines(f"  {_sentence(obstacle)}", prose_width()))
        for problem, devices in _by_problem(obstacle).items():
            echo(wrap_lines(f"    {', '.join(devices)}: {problem}", prose_width()))
    for fix in refusal.fixes:
        echo(wrap_lines(f"  {style('fix', fg='green')} {fix.claim} {fix.path}: {fix.text}", prose_width()))


def _nodes_text(nodes: tuple[str, ...]) -> str:
    more = len(nodes) - _MOST_NAMED
    named = ", ".join(nodes[:_MOST_NAMED])
    return f"node{'s' * (len(nodes) > 1)} {named}{f' and {more} more' if more > 0 else ''}"


def _rows(answer: ClaimAnswer) -> Iterator[list[str]]:
    if not answer.allocated:
        refused = style("refused", fg="red")
        yield from ([answer.pod or "-", claim, refused, *["-"] * 5] for claim in answer.claims)
    counts = {f"{answer.pod.partition('/')[0]}/{one.claim}": _amounts(one.resources) for one in answer.counts}
    for index, device in enumerate(answer.devices):
        first = index == 0
        verdict = style("allocated", fg="green") if first else ""
        pod, node = (answer.pod or "-", answer.node) if first else ("", "")
        yield [pod, device.claim, verdict, node, device.request, f"{device.driver} {device.device}",
               _amounts(device.consumed), counts.pop(device.claim, "-")]  # fmt: skip


def _amounts(amounts: Mapping[str, str]) -> str:
    return " ".join(f"{name}={amount}" for name, amount in amounts.items()) or "-"


def _sentence(obstacle: ClaimObstacle) -> str:
    wanted = "all devices" if not obstacle.wanted else f"{obstacle.wanted} device{'s' * (obstacle.wanted != 1)}"
    able = f"{obstacle.able or 'none'} could serve it alone"
    return f"{obstacle.claim} request {obstacle.request} wants {wanted}; {able}"


def _by_problem(obstacle: ClaimObstacle) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for device, problem in obstacle.problems.items():
        found.setdefault(problem, []).append(device.rpartition("/")[2])
    return found
