"""The provenance of an answer, from the options of its command; printed above what people read, and in every
document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec

from podslice.cli.options.machine import Sources
from podslice.cli.output import print_warnings, prose_width
from podslice.evidence.contradiction import Contradiction
from podslice.evidence.provenance import (
    DEFAULTS,
    HERE,
    Origin,
    Provenance,
    describe_configuration,
    describe_machine,
    from_agent,
    provenance_lines,
)
from podslice.machine.model import Machine
from podslice.node_objects.described import DescribedNode
from podslice.render.ansi import echo, style, visible
from podslice.values.assumption import Assumption
from podslice.values.errors import PodsliceError
from podslice.values.quirks import profile_name

if TYPE_CHECKING:
    from podslice.cli.options.config import ConfigSource
    from podslice.config.kubelet_file import LoadedConfig
    from podslice.node.node import Node

_FOR_PEOPLE = ("table", "wide")
_DOCUMENTS = ("json", "yaml")
_LONGEST = 80


def machine_origin(
    machine: Machine,
    *,
    name: str | None = None,
    sysfs: str | None = None,
    source: Sources = None,
    taken: tuple[str, ...] = (),
) -> Origin:
    """Return the origin of a machine: the option that names it, or that it is this one; and what of it was `taken` from
    elsewhere."""
    given = (("--machine", name), ("--sysfs", sysfs), *(("--from", one) for one in source or ()))
    named = [f"{option} {_value(value)}" for option, value in given if value is not None]
    return Origin(describe_machine(machine), ", ".join(named) or HERE, taken)


def configuration_origin(
    loaded: LoadedConfig,
    source: ConfigSource | None,
    overrides: Iterable[str] = (),
    reported: Mapping[str, Any] | None = None,
) -> Origin:
    """Return the origin of a configuration, with what was taken from where in the file. `reported` are the fields that
    the object of the node has, which count where no file is given."""
    given = () if source is None else source.options
    named = [f"{option} {_value(value)}" for option, value in given]
    if source is None and reported:
        named.append(f"{', '.join(sorted(reported))} as the node reports, else a kubelet's defaults")
    settings = " ".join(f"--set {_value(one)}" for one in overrides)
    if settings:
        named += [settings] if named else [f"a kubelet's defaults with {settings}"]
    return Origin(describe_configuration(loaded.config), " and ".join(named) or DEFAULTS, loaded.origins)


def assumptions(
    described: DescribedNode | None, loaded: LoadedConfig | None = None, *, configured: bool
) -> tuple[Assumption, ...]:
    """Return what is assumed of a node that an object describes, and of a configuration that a file tells in part. What
    an object implies of the configuration counts only where none is given."""
    about_node = () if described is None else (*described.assumed, *(() if configured else described.settled))
    about_configuration = () if loaded is None else (Assumption("configuration", line) for line in loaded.assumed)
    return (*about_node, *about_configuration)


def print_provenance(provenance: Provenance, output: str, more: Iterable[Contradiction] = ()) -> None:
    """Print the provenance above an answer for people, with `more` contradictions. A document has them as fields; with
    any other output assumptions and contradictions are warnings."""
    found = (*provenance.contradictions, *more)
    if output in _FOR_PEOPLE:
        whole = msgspec.structs.replace(provenance, contradictions=found)
        echo(provenance_text(whole, prose_width()) + "\n")
    elif output not in _DOCUMENTS:
        print_warnings((*(f"assumed: {line}" for line in provenance.assumptions), *map(str, found)))


def provenance_text(provenance: Provenance, width: int | None) -> str:
    """Return the provenance for a terminal, and what contradicts it, broken at `width` columns, if given."""
    from podslice.render.prose import wrap_lines

    first, *others = (wrap_lines(visible(line), width) for line in provenance_lines(provenance))
    return "\n".join([style(first, dim=True), *(style(line, fg="yellow") for line in others)])


@contextmanager
def stating(lines: Iterable[str]) -> Iterator[None]:
    """Add what the node rests on to every error of the block, which may well follow from it."""
    try:
        yield
    except PodsliceError as error:
        for line in lines:
            error.add_note(line)
        raise


def _value(text: str) -> str:
    """Return the value of an option as it is shown: its first line, in quotes where it is not one word."""
    line, *more = text.strip().split("\n")
    shown = line if len(line) <= _LONGEST and not more else f"{line[:_LONGEST]}…"
    return f"'{shown}'" if " " in shown or not shown else shown


def agent_provenance(node: Node, source: str) -> Provenance:
    """Return the provenance of a node that an agent reports; `source` names the agent."""
    profile = profile_name(node.rules.release, node.rules.quirks)
    return from_agent(node.machine, node.view.config, len(node.pods), source, profile)
