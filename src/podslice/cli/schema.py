"""`podslice schema`: the schemas of the documents of `-o json` and `-o yaml`."""

from __future__ import annotations

import json

import click
from click.shell_completion import CompletionItem

from podslice.cli.output import legend_option
from podslice.documents.kinds import KINDS, find_kind
from podslice.render.ansi import echo


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(name, help=kind.command)
        for name, kind in KINDS.items()
        if name.lower().startswith(incomplete.lower())
    ]


@click.command()
@click.argument("kind", required=False, shell_complete=_complete)
@legend_option
def schema(kind: str | None) -> None:
    """Print the JSON Schema (draft 2020-12) of KIND, or list the kinds and the commands that print them.

    Every document of -o json and -o yaml has apiVersion and kind. Formats of others (SARIF, MachineInfo, the kubelet's
    files) have schemas of their own elsewhere.

    \b
    Examples:
      podslice schema
      podslice schema AdmissionReport > admission.schema.json

    Exit codes: 0 printed, 2 no such kind.
    """
    if kind is None:
        from podslice.render.table import print_table

        print_table(["KIND", "PRINTED BY"], [[name, found.command] for name, found in KINDS.items()])
        return
    from podslice.documents.schema import load_schema

    echo(json.dumps(load_schema(find_kind(kind)), indent=2, ensure_ascii=False))
