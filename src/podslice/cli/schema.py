"""`podslice schema`: what programs may rely on in `-o json` and `-o yaml`."""

from __future__ import annotations

import json

import click
from click.shell_completion import CompletionItem

from podslice.documents.kinds import KINDS, known_kind
from podslice.render.ansi import echo


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return [
        CompletionItem(name, help=kind.command)
        for name, kind in KINDS.items()
        if name.lower().startswith(incomplete.lower())
    ]


@click.command()
@click.argument("kind", required=False, shell_complete=_complete)
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
    from podslice.documents.schema import shipped_schema

    echo(json.dumps(shipped_schema(known_kind(kind)), indent=2, ensure_ascii=False))
