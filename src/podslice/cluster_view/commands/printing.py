"""Requests and output of `podslice cluster pending|fit|fragmentation`, shared with the kubectl plugin."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote

import msgspec

from podslice.cli.output import emit, print_warnings, prose_width
from podslice.cluster_view.answers import (
    ClusterFragmentation,
    FragmentationPoint,
    PendingPod,
    PendingPodList,
    PodFit,
    PodFitList,
)
from podslice.render.ansi import echo, style
from podslice.render.prose import wrap_lines
from podslice.values.document import without_header
from podslice.values.errors import InputError
from podslice.values.quantity import plural

if TYPE_CHECKING:
    from podslice.cluster_view.client import Page

T = TypeVar("T", bound=msgspec.Struct)
_COLOURS = {"refused": "red", "unreadable": "red", "nominated": "green", "waiting": "yellow"}
_MOST_NAMED = 3
_MOST_TIMES = 8
_REMEDY = "give the service and this program the same version"


def fetch(page: Page, kind: type[T], target: str, body: bytes | None = None) -> T:
    """Fetch a document of this kind. Raises `InputError`."""
    found = page.ask(target, body)
    try:
        return msgspec.convert(without_header(kind.__name__, found), kind)
    except (msgspec.ValidationError, AttributeError, TypeError) as error:
        raise InputError(f"the service's answer is not understood: {error}", remedy=_REMEDY) from None


# pending


def print_pending(page: Page, *, ways: bool, output: str) -> int:
    """Print the pending pods; return exit code 1 where no node takes one of them."""
    found = fetch(page, PendingPodList, "/pending" + ("?ways=1" if ways else ""))
    if output in ("table", "wide"):
        _show_pending(found, wide=output == "wide")
    else:
        emit(found, output)
    return int(any(one.state == "refused" for one in found.items))


def _show_pending(found: PendingPodList, *, wide: bool) -> None:
    from podslice.render.table import print_table

    if not found.items:
        echo("No pod waits for a node.")
        return
    headings = ["POD", "STATE", "PRIORITY", "ALIKE", *["SINCE"] * wide, "WHY"]
    print_table(headings, [_pending_row(one, wide=wide) for one in found.items], right=(2, 3))
    if found.total > len(found.items):
        echo(f"and {found.total - len(found.items)} more")
    first: dict[str, str] = {}
    for one in found.items:
        if one.way is not None:
            # Pods with equal needs have the same way out, which is printed once.
            first.setdefault(one.way.text, f"{one.namespace}/{one.name}")
    if first:
        echo("\n" + style("What would help, by the first pod of each kind (each was tried):", bold=True))
    for text, name in first.items():
        echo(wrap_lines(f"  {name}: {text}", prose_width()))


def _pending_row(one: PendingPod, *, wide: bool) -> list[str]:
    state = style(one.state, fg=_COLOURS[one.state]) if one.state in _COLOURS else one.state
    since = [one.since or "-"] * wide
    return [f"{one.namespace}/{one.name}", state, str(one.priority), str(one.like), *since, one.reason]


# fit


def print_fit(page: Page, files: tuple[str, ...], pods: tuple[str, ...], *, ways: bool, output: str) -> int:
    """Print where pods of files, and pending pods, could go; return exit code 1 where one fits on no node. Raises
    `InputError`."""
    query = "ways=1" if ways else ""
    answers = [fetch(page, PodFitList, f"/fit?{query}", _manifest(path)) for path in files]
    answers += [fetch(page, PodFitList, f"/fit?{query}&pod={quote(name, safe='')}") for name in pods]
    found = PodFitList(
        tuple(one for answer in answers for one in answer.items),
        tuple(warning for answer in answers for warning in answer.warnings),
    )
    print_warnings(found.warnings)
    if output in ("table", "wide"):
        for number, one in enumerate(found.items):
            echo("" if not number else "\n", nl=False)
            _show_fit(one, wide=output == "wide")
    else:
        emit(found, output)
    # A pod whose node is kept for it needs no other.
    return int(not all(one.fitting or one.held for one in found.items))


def _manifest(path: str) -> bytes:
    """Return the text of a file with pods. Raises `InputError` with the place of an error."""
    from podslice.api.manifests.manifest import read_text_manifests
    from podslice.api.manifests.pipeline import ReadOptions
    from podslice.reading.files import read_text

    text = read_text(path)
    # Read here only for errors with their line, and for warnings; the service reads the text again.
    print_warnings(read_text_manifests(text, "stdin" if path == "-" else path, ReadOptions()).notes)
    return text.encode()


def _show_fit(fit: PodFit, *, wide: bool) -> None:
    from podslice.render.table import print_table

    if fit.held:
        verdict = style(f"room is kept for it on {fit.held}", fg="green")
    elif fit.fitting:
        verdict = style(f"{fit.fitting} of {plural(fit.nodes, 'node')} take it", fg="green")
    else:
        verdict = style(f"none of {plural(fit.nodes, 'node')} takes it", fg="red")
    echo(f"{style(fit.pod, bold=True)}: {verdict}")
    if fit.best:
        # The release is shown where it makes a difference.
        mixed = wide or len({one.kubernetes for one in fit.best}) > 1
        rows = [
            [one.node, one.cpus or "shared", ",".join(map(str, one.numa_nodes)) or "any", *[one.kubernetes] * mixed]
            for one in fit.best
        ]
        print_table(["BEST NODES", "CPUS", "NUMA NODES", *["KUBERNETES"] * mixed], rows)
    if fit.refused:
        most = None if wide else _MOST_NAMED
        rows = [[str(one.count), one.reason, _join_names(one.nodes, most)] for one in fit.refused]
        print_table(["NODES", "WHY NOT", "NAMES"], rows, right=(0,))
    if fit.ways:
        echo(style("What would help, cheapest first (each was tried):", bold=True))
        for number, way in enumerate(fit.ways, 1):
            echo(wrap_lines(f"  {number}. {way.text}", prose_width()))
    elif fit.ways is not None:
        echo("No small change was found that would help.")
    for note in fit.notes:
        # The verdict names the node that is kept already.
        if not fit.held or fit.held not in note:
            echo(wrap_lines(note, prose_width()))


def _join_names(names: tuple[str, ...], most: int | None) -> str:
    more = f" and {len(names) - most} more" if most is not None and len(names) > most else ""
    return ", ".join(names[:most]) + more


# fragmentation


def print_fragmentation(page: Page, *, output: str) -> int:
    """Print how scattered free CPUs are and were; return exit code 0."""
    found = fetch(page, ClusterFragmentation, "/fragmentation")
    if output in ("table", "wide"):
        _show_fragmentation(found, wide=output == "wide")
    else:
        emit(found, output)
    return 0


def _show_fragmentation(found: ClusterFragmentation, *, wide: bool) -> None:
    from podslice.render.table import print_table

    now = found.history[-1]
    colour = "red" if found.percent >= 50 else "yellow" if found.percent >= 25 else "green"
    echo(
        f"{plural(found.nodes, 'node')}: {now.cpus} CPUs, {now.owned} owned or promised, {now.free} free; "
        f"{style(f'{found.percent} %', fg=colour)} of the free ones are not on their node's best NUMA node"
    )
    rows = [[str(one.cpus), str(one.pods), str(one.usable), _percent(one.usable, now.free)] for one in found.sizes]
    print_table(["CPUS OF A POD", "PODS THAT FIT", "CPUS USABLE", "OF THE FREE"], rows, right=(0, 1, 2, 3))
    if found.scattered:
        echo("")
        worst = found.scattered if wide else found.scattered[:5]
        print_table(
            ["MOST SCATTERED", "FREE", "ON ONE"], [[one.node, str(one.free), str(one.largest)] for one in worst],
            right=(1, 2),
        )  # fmt: skip
    if len(found.history) > 1:
        echo("")
        times = found.history if wide else _thin_out(found.history)
        print_table(["TIME", "OWNED", "FREE", "ON ONE"], [_time_row(one) for one in times], right=(1, 2, 3))


def _thin_out(history: tuple[FragmentationPoint, ...]) -> list[FragmentationPoint]:
    """Return the first point, the last one and some between."""
    last = len(history) - 1
    places = sorted({round(last * step / (_MOST_TIMES - 1)) for step in range(_MOST_TIMES)})
    return [history[place] for place in places]


def _time_row(one: FragmentationPoint) -> list[str]:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(one.at))
    return [at, str(one.owned), str(one.free), str(one.largest)]


def _percent(part: int, whole: int) -> str:
    return f"{round(100 * part / whole)} %" if whole else "-"
