"""Shell completion: names of files, fields and values of `--set`, lint rules."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

import click
from click.shell_completion import BashComplete, CompletionItem, add_completion_class, split_arg_string

_FILES = ("FILE", "TAR", "DIR", "BUNDLE")


def complete_setting(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete `--set`: fields of the configuration, with their values where there are few."""
    return [CompletionItem(text) for text in _settings() if text.lower().startswith(incomplete.lower())]


def _settings() -> Iterator[str]:
    # Imported here: a shell starts the program for each press of TAB, mostly to complete other words.
    import msgspec

    from podslice.config.kubelet import KubeletConfig
    from podslice.config.policy_options import POLICIES, SCOPES, TopologyManagerOptions
    from podslice.values.cpu_policy_options import CPUPolicyOptions
    from podslice.values.gates import GATES

    booleans = ("true", "false")
    values: dict[str, Iterable[str]] = {
        "cpuManagerPolicy": ("none", "static"),
        "memoryManagerPolicy": ("None", "Static"),
        "topologyManagerPolicy": POLICIES,
        "topologyManagerScope": SCOPES,
    }
    keys: dict[str, Iterable[str]] = {
        "cpuManagerPolicyOptions": _option_names(CPUPolicyOptions),
        "topologyManagerPolicyOptions": _option_names(TopologyManagerOptions),
        "featureGates": GATES,
    }
    for field in msgspec.structs.fields(KubeletConfig):
        name = field.encode_name
        # The bag of fields that are kept and never read; it is not a field of a KubeletConfiguration.
        if field.name == "other_fields":
            continue
        for key in keys.get(name, ()):
            yield from (f"{name}.{key}={value}" for value in (("",) if key.startswith("max-") else booleans))
        if name not in keys:
            known = values.get(name, booleans if field.type in (bool, bool | None) else ("",))
            yield from (f"{name}={value}" for value in known)


def _option_names(options: type[Any]) -> list[str]:
    return [name.replace("_", "-") for name in options.__struct_fields__]


def complete_rule(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete `--explain`, `--select`, `--ignore`: ids of lint rules with titles, and names once one is begun."""
    from podslice.advise.lint.registry import RULES

    before, comma, last = incomplete.rpartition(",")
    wanted = last.lower()
    ids = [(rule.id, rule.title) for rule in RULES if rule.id.lower().startswith(wanted)]
    names = [(rule.name, rule.title) for rule in RULES if wanted and rule.name.startswith(wanted)]
    return [CompletionItem(f"{before}{comma}{text}", help=title) for text, title in (*ids, *names)]


class FileName(click.types.StringParamType):
    """Type of a text that is, or may be, the name of a file; the shell completes names of files."""

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        return [CompletionItem(incomplete, type="file")]


def complete_files(command: click.Command) -> click.Command:
    """Make the shell complete file names for each parameter whose metavar names a file; returns the command."""
    for param in command.params:
        metavar = param.metavar or ""
        if param.type is click.STRING and any(word in metavar.partition(".")[0] for word in _FILES):
            param.type = FileName()
    return command


class Bash(BashComplete):
    """Completion for bash, which splits `FIELD=VALUE` into three words and expects only the part after the `=`."""

    source_template: ClassVar[str] = BashComplete.source_template.replace(
        "    return 0\n", "    [[ ${#COMPREPLY[@]} -eq 1 && $COMPREPLY == *= ]] && compopt -o nospace\n    return 0\n"
    )

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._begun = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        tokens = split_arg_string(os.environ["COMP_WORDS"])
        position = int(os.environ["COMP_CWORD"])
        words: list[str] = []
        for token in (*tokens[1:position], tokens[position] if position < len(tokens) else ""):
            # `=` is in COMP_WORDBREAKS, so bash hands over FIELD, = and VALUE as words of their own.
            if words and (token == "=" or words[-1].endswith("=")):
                words[-1] += token
            else:
                words.append(token)
        # `format_completion` needs the begun word: bash replaces only the part after the last `=`.
        self._begun = words.pop()
        return words, self._begun

    def format_completion(self, item: CompletionItem) -> str:
        begun = self._begun.partition("=")[2] if self._begun.startswith("-") else self._begun
        head = begun[: begun.rfind("=") + 1]
        return f"{item.type},{item.value.removeprefix(head) if head else item.value}"


def register() -> None:
    """Register the completion classes of this module with click."""
    add_completion_class(Bash)
