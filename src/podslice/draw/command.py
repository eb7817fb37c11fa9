"""`podslice draw`: the node as a picture, in the terminal, as SVG or as a page."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from podslice.api.pod.spec import Pod
from podslice.cli.closed_pipe import is_unread
from podslice.cli.options.node import StartedNode, node_options, resize_option, start_node
from podslice.cli.options.pods import read_pods, unknown_devices
from podslice.cli.options.resize import RequestedResize, read_resizes
from podslice.cli.options.running import running_options
from podslice.cli.output import (
    print_warnings,
    prose_width,
    use_colours,
    write_shown,
)
from podslice.evidence.provenance import provenance_lines
from podslice.node.checkpoints.names import DEVICE_STATE_FILE
from podslice.node.node import Node
from podslice.node.shared_pool import describe_pool
from podslice.node.view import NodeView
from podslice.render.ansi import echo, shown_paths, style, to_terminal, visible
from podslice.render.picture import Picture, picture_of
from podslice.values.errors import InputError, PodsliceError

_FORMS = ("text", "svg", "html", "png")
_SUFFIXES = {".svg": "svg", ".html": "html", ".htm": "html", ".txt": "text", ".png": "png"}


@click.command()
@click.argument("files", nargs=-1, metavar="[FILE...]")
@node_options
@running_options
@resize_option
@click.option(
    "--evict", "evicted", multiple=True, metavar="POD", help="Remove a running pod first (namespace/name or UID)."
)
@click.option("-o", "--output", type=click.Choice(_FORMS), help="Form of the picture (default: by the name of --out).")
@click.option("--out", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False), help="Write the picture here.")
@click.option("--watch", is_flag=True, help="Keep drawing the --state directory in the terminal until interrupted.")
@click.option(
    "--interval",
    default=1.0,
    show_default=True,
    metavar="SECONDS",
    type=click.FloatRange(min=0.1),
    help="Interval at which --watch checks for changes.",
)
def draw(
    *,
    files: tuple[str, ...],
    evicted: tuple[str, ...],
    resize_paths: tuple[str, ...],
    output: str | None,
    out: Path | None,
    watch: bool,
    interval: float,
    **options: Any,
) -> None:
    """Draw a node: sockets, NUMA nodes with distances and memory, L3 groups, cores and threads, the owner of every CPU,
    pods with their slices, devices. SVG and HTML are self-contained and follow the reader's light or dark mode; PNG is
    for where neither is shown.

    With FILE..., --evict or --resize the picture shows the node before and after: evicted pods leave, FILE's pods are
    admitted, then those of --resize are resized, and CPUs that change hands are framed. CPUs beyond those promised
    at an admission are marked. The picture before is left out where the node had no pods or nothing changes.

    A refused pod is drawn with what is in its way: on each NUMA node what it needs, what is free and who has the rest.

    \b
    Examples:
      podslice draw --machine epyc-9654-nps4
      podslice draw --state /var/lib/kubelet --config kubelet.yaml --out node.html
      podslice draw new.yaml --pods running.yaml --machine epyc-9654-nps4 --config kubelet.yaml --out change.png
      podslice draw db.yaml --resize db-8.yaml --policy policy.yaml --machine epyc-9654-nps4 --config kubelet.yaml
      podslice draw --state /var/lib/kubelet --config kubelet.yaml --watch

    Exit codes: 0 drawn, 1 drawn, and a pod is refused or not resized, 2 bad input.
    """
    if watch:
        # Machines, configurations and pods are read once; only a state directory changes by itself.
        if options["state_path"] is None:
            raise InputError("needs a state directory to watch", path="--watch", remedy="--state /var/lib/kubelet")
        _watch(options, interval)
        return
    form = picture_form(output, out)
    asked = read_pods(files, **options)
    started = start_node(asked=asked.pods, **options)
    read = asked.beside(set(started.node.pods))
    print_warnings((*started.warnings, *read.warnings, *unknown_devices(read.pods, started.node.view.devices)))
    resizes = read_resizes(resize_paths, **options)
    basis = provenance_lines(started.provenance)
    pictures, granted = _pictures(started, [one.pod for one in read.pods], evicted, resizes, basis)
    if out is None:
        print_picture(pictures, form)
    else:
        write_picture(out, pictures, form)
    if not granted:
        sys.exit(1)


def picture_form(output: str | None, out: Path | None) -> str:
    """Return the requested form, or that of the file's name. Raises `InputError` for an unknown suffix."""
    if output is not None or out is None:
        return output or "text"
    if out.suffix.lower() not in _SUFFIXES:
        raise InputError("unknown file type", path="--out", remedy="use .svg, .html, .png or .txt, or give -o")
    return _SUFFIXES[out.suffix.lower()]


def _pictures(
    started: StartedNode,
    pods: Sequence[Pod],
    evicted: tuple[str, ...],
    resizes: Sequence[RequestedResize],
    basis: Sequence[str],
) -> tuple[list[tuple[str, Picture]], bool]:
    """Return the pictures with their headings, and whether all pods were admitted and resized as asked."""
    node = started.node
    # An admission frees the CPUs of pods that are gone, so only the picture before knows of them.
    before = _with_pool(picture_of(node.view, basis=basis), node.view, started)
    if not pods and not evicted and not resizes:
        return [("", before)], True
    for name in evicted:
        node.remove(find_pod(node, name))
    changes = [f"without {name}" for name in evicted]
    refused: list[Pod] = []
    for pod in pods:
        decision = node.admit(pod)
        name = f"{decision.namespace}/{decision.name}"
        changes.append(f"with {name}" if decision.admitted else f"{name} refused ({decision.reason})")
        refused += [] if decision.admitted else [pod]
    answers = [one.try_on(node) for one in resizes]
    granted = [answer.outcome in ("Allocated", "Unchanged") for answer in answers]
    for answer, good in zip(answers, granted, strict=True):
        name = f"{answer.namespace}/{answer.name}"
        changes.append(f"{name} {'resized' if good else f'not resized ({answer.outcome})'}")
    after = _with_pool(picture_of(node.view, before=before, basis=basis), node.view)
    if len(refused) == len(pods) and not evicted and not any(granted):
        # Nothing changed: the picture after would repeat the one before.
        after = before
    changed = after is not before
    after = _with_refused(after, node, refused)
    heading = f"{'After' if changed else 'Unchanged'}: {', '.join(changes)}"
    # An empty node before would only repeat the picture after.
    pictures = [("Before", before), (heading, after)] if changed and before.pods else [(heading, after)]
    return pictures, not refused and all(granted)


def _with_pool(picture: Picture, view: NodeView, started: StartedNode | None = None) -> Picture:
    """Return the picture with sentences about the shared pool: who owns the rest, and what the state files that the
    node `started` with keep for pods that are gone."""
    notes, held = ((), 0) if started is None else (started.notes, started.held)
    pool = describe_pool(view, held) if view.pins_cpus else ""
    return picture._replace(shared=picture.shared & ~held, pool=pool, notes=(*picture.notes, *notes))


def _with_refused(picture: Picture, node: Node, pods: Sequence[Pod]) -> Picture:
    """Return the picture with what is in the way of pods that the node refuses as it is now."""
    if not pods:
        return picture
    from podslice.advise.explain.explain import explain_each
    from podslice.advise.explain.obstacles import with_obstacles

    # A pod that an earlier change of the same command lets in now is not refused any more, and has no obstacles.
    explained = [one.explanation for one in explain_each(node, pods, fixes=False)]
    return with_obstacles(picture, node.view, [one for one in explained if not one.trace.admitted])


def find_pod(node: Node, name: str) -> str:
    """Return the UID of the running pod with this UID, name or namespace/name. Raises `InputError`."""
    known = []
    for uid, pod in node.view.pods.items():
        metadata = pod.spec.metadata
        label = metadata.full_name
        if name in (uid, metadata.name, label):
            return uid
        known.append(label)
    raise InputError(f"no pod {name!r} runs here", remedy=f"one of {', '.join(known[:8])}" if known else "none runs")


def _render(pictures: list[tuple[str, Picture]], form: str) -> str:
    if form == "html":
        from podslice.render.html import to_html

        return to_html(pictures)
    # An SVG is one picture: that of the end, with the change in its heading.
    if form in ("svg", "png"):
        from podslice.render.svg import to_svg

        heading, picture = pictures[-1]
        return to_svg(picture._replace(details=(*picture.details, heading)) if heading else picture)
    return "\n\n".join(
        _terminal(heading, picture._replace(basis=()) if place else picture)
        for place, (heading, picture) in enumerate(pictures)
    )


def print_picture(pictures: list[tuple[str, Picture]], form: str) -> None:
    """Print pictures, PNG as bytes. Raises `InputError` where a terminal would get the bytes."""
    text = _render(pictures, form)
    if form != "png":
        echo(text)
        return
    from podslice.render.png import to_png

    if sys.stdout.isatty():
        raise InputError("a terminal shows no PNG", path="-o", remedy="--out node.png")
    sys.stdout.flush()
    sys.stdout.buffer.write(to_png(shown_paths(text)))


def write_picture(out: Path, pictures: list[tuple[str, Picture]], form: str) -> None:
    """Write pictures into a file, texts without colours, and say so. Raises `InputError`."""
    text = _render(pictures, form)
    if form == "png":
        from podslice.render.png import to_png

        write_shown(out, to_png(shown_paths(text)))
    else:
        write_shown(out, click.unstyle(text) if form == "text" else text)


def _terminal(heading: str, picture: Picture) -> str:
    from podslice.render.prose import wrap_lines
    from podslice.render.terminal import to_text

    basis = "".join(wrap_lines(visible(line), prose_width()) + "\n" for line in picture.basis)
    title = style(heading, bold=True) + "\n" if heading else ""
    width = shutil.get_terminal_size((120, 24)).columns
    headline = "\n" if basis else wrap_lines(f"{picture.title} · {' · '.join(picture.details)}", prose_width()) + "\n\n"
    # The answer to why the pool is small comes before the map that shows it.
    notes = "".join(wrap_lines(note, prose_width()) + "\n" for note in (picture.pool, *picture.notes) if note)
    top = basis + (headline + title if basis else title + headline) + (f"{notes}\n" if notes else "")
    return top + to_text(picture._replace(notes=()), width=width)


# Watching


def _watch(options: dict[str, Any], interval: float) -> None:
    """Draw again whenever a state file changes."""
    from rich.live import Live
    from rich.text import Text

    directory: Path = options["state_path"]
    with Live(auto_refresh=False, vertical_overflow="crop", screen=use_colours()) as live:

        def show(text: str) -> None:
            live.update(Text.from_ansi(to_terminal(text)), refresh=True)

        follow(lambda: current_text(options), lambda: stamps(directory), show, lambda: time.sleep(interval), is_unread)


def current_text(options: dict[str, Any]) -> str:
    """Return the picture of a state directory now, or the error in its place."""
    try:
        started = start_node(**options)
        picture = picture_of(started.node.view, basis=provenance_lines(started.provenance))
        return _terminal("", _with_pool(picture, started.node.view, started))
    except PodsliceError as error:
        return style(f"podslice: {error}", fg="red")


def stamps(directory: Path) -> tuple[tuple[str, int, int], ...]:
    """Return names, sizes and times of the files below a directory."""
    found = []
    for path in sorted((*directory.glob("*_state"), *directory.glob(f"**/{DEVICE_STATE_FILE}"))):
        try:
            status = path.stat()
        except OSError:
            continue
        # Size as well: two writes within the clock's resolution have the same time.
        found.append((str(path), status.st_mtime_ns, status.st_size))
    return tuple(found)


def follow(
    make: Callable[[], str],
    stamp: Callable[[], object],
    show: Callable[[str], None],
    wait: Callable[[], None],
    is_over: Callable[[], bool],
) -> None:
    """Show what `make` returns, again whenever `stamp` changes, until `is_over`; `wait` paces it."""
    last: object = None
    while not is_over():
        now = stamp()
        if now != last:
            last = now
            show(make())
        wait()
