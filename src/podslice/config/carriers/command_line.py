"""Command lines of kubelets: as `ps` prints them, in systemd units, environment files, files of flags, and scripts that
pass flags on.

These texts are not YAML. Their flags override the file that `--config` names, which is usually not at hand: what it may
set is said to be assumed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from podslice.config.carriers.flags import Flag, FlagSummary, iter_flags, read_flags, split_words
from podslice.config.carriers.layer import Configuration, FieldPlace, Layer
from podslice.values.errors import InputError

_SECTION = re.compile(r"\s*\[(?:Unit|Service|Install)\]\s*\Z")
_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)=(.*)\Z", re.DOTALL)
_FLAG_LINE = re.compile(r"\s*['\"]?--?[a-zA-Z]")
_YAML_LINE = re.compile(r"\s*(?:- |[\w./\"'-]+:(?:\s|\Z))")
_MANIFEST = re.compile(r"^(?:apiVersion|kind): ", re.MULTILINE)
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))")
_PASSED_ON = re.compile(r"--kubelet-extra-args[= ]|--extra-config[= ]['\"]?kubelet\.")
_K3S = ("k3s", "k3s-server", "k3s-agent", "rke2", "rke2-server", "rke2-agent", "k3sup")
_KUBELETS = ("kubelet", "kubelet.exe")


class _Line(NamedTuple):
    """A logical line: continuation lines are joined. `number` is that of its first line, counted from 1."""

    number: int
    text: str


class _Found(NamedTuple):
    """Flags of a text. `whole`: they are all flags of the kubelet, else a part of them."""

    flags: list[Flag]
    origin: str
    assumed: tuple[str, ...] = ()
    whole: bool = True


def is_command_text(text: str) -> bool:
    """Whether a text is a command line of a kubelet or a file that holds one, and no YAML or JSON."""
    first = next((line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")), "")
    # A manifest may run a kubelet too, as a command or in a script.
    if text.lstrip()[:1] in ("{", "[") and not _SECTION.match(first):
        return False
    if first.startswith("---") or _YAML_LINE.match(first) or _MANIFEST.search(text):
        return False
    if _SECTION.match(first) or _FLAG_LINE.match(first) or is_script(text):
        return True
    assignment = _ASSIGNMENT.match(first)
    if assignment and ": " not in first.split("=", 1)[0]:
        return True
    return any(find_program(line.split()) is not None and " --" in line for line in text.splitlines()[:200])


def is_script(text: str) -> bool:
    """Whether a text is a script, or a line of one, that passes flags on to a kubelet."""
    begins = text.lstrip()
    alone = "\n" not in begins.strip() and ": " not in begins.partition("--")[0]
    return (begins.startswith("#!") or alone) and _PASSED_ON.search(text) is not None


def read_command_text(text: str, *, beside_file: bool = False) -> Configuration:
    """Return the configuration of a command line. `beside_file`: the file that `--config` names is given as well.
    Raises `InputError`."""
    lines = list(_logical_lines(text))
    if any(_SECTION.match(line.text) for line in lines):
        found = _read_unit(lines)
    elif is_script(text):
        found = _read_script(lines)
    elif all(_FLAG_LINE.match(line.text) for line in lines):
        found = _Found([flag for line in lines for flag in _flags_of(line.text, line.number)], "flags of a kubelet")
    elif all(_ASSIGNMENT.match(line.text) for line in lines) and lines:
        found = _read_environment(lines)
    else:
        found = _read_processes(lines)
    assumed = found.assumed
    if not found.whole and not beside_file:
        assumed = (*assumed, "the kubelet has no other flags, and no file: they were not given")
    summary = read_flags(found.flags, found.origin, assumed=assumed)
    return Configuration(found.origin, (_with_file(summary, beside_file=beside_file),))


def _with_file(summary: FlagSummary, *, beside_file: bool) -> Layer:
    """Return the layer with what is assumed of the file and the folder that the flags name."""
    files = [summary.others.get(name, "") for name in ("config", "config-dir")]
    unknown = " and ".join(name for name in files if name)
    if not unknown or beside_file:
        return summary.layer
    line = f"{unknown}, which the command line names, sets nothing: its content was not given"
    return summary.layer._replace(assumed=(*summary.layer.assumed, line))


def _logical_lines(text: str) -> Iterator[_Line]:
    joined, start = "", 0
    for number, line in enumerate(text.replace("\0", " ").splitlines(), 1):
        stripped = line.strip()
        if not joined and (not stripped or stripped[0] in "#;"):
            continue
        start = start if joined else number
        if stripped.endswith("\\"):
            joined += stripped[:-1] + " "
            continue
        yield _Line(start, joined + stripped)
        joined = ""
    if joined:
        yield _Line(start, joined)


def _flags_of(text: str, line: int) -> Iterator[Flag]:
    return iter_flags(split_words(text), FieldPlace(line=line))


# A process


def find_program(words: list[str]) -> int | None:
    """Return the index of the word that is the kubelet's program, or k3s or RKE2; None where there is none."""
    last_flag = max((at for at, word in enumerate(words) if word.startswith("-")), default=0)
    passes_on = any("kubelet-arg" in word for word in words)
    for at, word in enumerate(words[:last_flag]):
        name = _base_name(word)
        if name in _KUBELETS or (name in _K3S and passes_on):
            return at
    return None


def _base_name(word: str) -> str:
    """Return the program's name in a path, on Windows too."""
    return word.strip("'\"").replace("\\", "/").rpartition("/")[2]


def _read_processes(lines: Iterable[_Line]) -> _Found:
    """Read the line of a kubelet among those of `ps`."""
    found: dict[tuple[str, ...], _Line] = {}
    seen: list[str] = []
    for line in lines:
        words = _lenient_words(line.text)
        seen += words
        at = find_program(words)
        # The search itself stands in its own answer: `grep kubelet`.
        if at is not None and not any(_base_name(word) in ("grep", "egrep", "rg") for word in words[:at]):
            found.setdefault(tuple(words[at:]), line)
    if not found:
        raise InputError("holds no command line of a kubelet", remedy=_where_to_look(seen))
    if len(found) > 1:
        numbers = ", ".join(str(line.number) for line in found.values())
        raise InputError(f"holds {len(found)} command lines of kubelets, in lines {numbers}", remedy="give one of them")
    ((command, line),) = found.items()
    return _flags_of_program(list(command), line.number)


def _where_to_look(words: Iterable[str]) -> str:
    if any(_base_name(word) in _K3S for word in words):
        return "k3s shows none of its options to ps: give /etc/rancher/k3s/config.yaml, or systemctl cat k3s"
    return "ps -o args= -C kubelet prints it"


def _lenient_words(text: str) -> list[str]:
    """Split a line; `ps` prints words without their quotation marks, and those inside them may stand alone."""
    # A shell would take the separators of Windows away.
    text = text.replace("\\", "/") if "kubelet.exe" in text else text
    try:
        return split_words(text)
    except InputError:
        return text.split()


def _flags_of_program(words: list[str], line: int) -> _Found:
    program = _base_name(words[0])
    place = FieldPlace(line=line)
    if program in _K3S:
        return _Found(list(_passed_by_k3s(words, place)), f"the options --kubelet-arg of {program}")
    return _Found(list(iter_flags(words[1:], place)), "a kubelet's command line")


def _passed_by_k3s(words: list[str], place: FieldPlace) -> Iterator[Flag]:
    for given in passed_by_k3s(words):
        yield from iter_flags([f"--{given.lstrip('-')}"], place)


def passed_by_k3s(words: list[str]) -> Iterator[str]:
    """Yield the arguments that k3s or RKE2 passes to its kubelet, as NAME=VALUE, of the words of its command line."""
    for at, word in enumerate(words):
        name, equals, value = word.partition("=")
        given = value if equals else words[at + 1] if at + 1 < len(words) else ""
        if name == "--kubelet-arg" and given:
            yield given


# systemd


def _read_unit(lines: list[_Line]) -> _Found:
    """Read a unit, or what `systemctl cat` prints of it and its drop-ins: an empty `ExecStart=` discards earlier
    ones."""
    variables: dict[str, str] = {}
    files: list[str] = []
    command = _Line(0, "")
    for line in lines:
        key, equals, value = line.text.partition("=")
        if not equals:
            continue
        if key.strip() == "Environment":
            for word in split_words(value):
                name, _, text = word.partition("=")
                variables[name] = text
        elif key.strip() == "EnvironmentFile":
            files.append(value.strip().lstrip("-"))
        elif key.strip() == "ExecStart":
            command = _Line(line.number, value.strip().lstrip("-@:+!"))
        elif key.strip().isupper():
            # The content of an EnvironmentFile behind the unit.
            variables[key.strip()] = " ".join(split_words(value))
    return _expand_command(command, variables, files)


def _expand_command(command: _Line, variables: dict[str, str], files: list[str]) -> _Found:
    """Read the flags of a command with the values of its variables."""
    unknown = [f"${name}" for name in _variables_in(command.text) if name not in variables]
    words = split_words(_VARIABLE.sub(lambda match: variables.get(match[1] or match[2], ""), command.text))
    if not command.text:
        flags = [flag for text in variables.values() if "--" in text for flag in _flags_of(text, 0)]
        if not flags:
            raise InputError("is a unit of systemd that does not start a kubelet", remedy="systemctl cat kubelet")
        return _Found(flags, "variables of a systemd unit")
    at = find_program(words)
    if at is None:
        # All its flags may stand in variables.
        at = next((place for place, word in enumerate(words) if _base_name(word) in _KUBELETS), None)
    # A program that is itself a variable may be a kubelet.
    if at is None and not command.text.startswith("$"):
        raise InputError("is a unit of systemd that does not start a kubelet", remedy="systemctl cat kubelet")
    found = _flags_of_program(words[at:], command.number) if at is not None else _Found([], "")
    where = f" (set in {', '.join(dict.fromkeys(files))})" if files else ""
    line = f"{', '.join(unknown)}{where} is empty: the value was not given"
    return _Found(found.flags, "ExecStart of a systemd unit", (line,) if unknown else ())


def _variables_in(text: str) -> list[str]:
    return list(dict.fromkeys(match[1] or match[2] for match in _VARIABLE.finditer(text)))


def _read_environment(lines: Iterable[_Line]) -> _Found:
    """Read variables with flags, as in /etc/default/kubelet and /var/lib/kubelet/kubeadm-flags.env."""
    flags: list[Flag] = []
    names: list[str] = []
    for line in lines:
        match = _ASSIGNMENT.match(line.text)
        assert match is not None
        name, text = match.groups()
        values = [word for word in split_words(text) if word]
        if "KUBE" not in name.upper() and name.upper() not in ("ARGS", "OPTIONS", "DAEMON_ARGS", "INSTALL_K3S_EXEC"):
            continue
        words = [word for value in values for word in split_words(value)]
        if name == "INSTALL_K3S_EXEC":
            flags += _passed_by_k3s(words, FieldPlace(line=line.number))
        elif words and words[0].startswith("-"):
            flags += iter_flags(words, FieldPlace(line=line.number))
        else:
            continue
        names.append(name)
    if not names:
        raise InputError("holds variables, none with flags of a kubelet", remedy="KUBELET_EXTRA_ARGS=--max-pods=200")
    return _Found(flags, f"the variable{'s' if len(names) > 1 else ''} {', '.join(names)}", whole=False)


def _read_script(lines: Iterable[_Line]) -> _Found:
    """Read the flags that a script passes on to a kubelet: `bootstrap.sh --kubelet-extra-args '…'`."""
    flags: list[Flag] = []
    for line in lines:
        if not _PASSED_ON.search(line.text):
            continue
        words = split_words(line.text)
        for at, word in enumerate(words):
            name, equals, value = word.partition("=")
            given = value if equals else words[at + 1] if at + 1 < len(words) else ""
            if name == "--kubelet-extra-args":
                flags += _flags_of(given, line.number)
            elif name == "--extra-config" and given.startswith("kubelet."):  # minikube
                flags += iter_flags([f"--{given.removeprefix('kubelet.')}"], FieldPlace(line=line.number))
    return _Found(flags, "flags that a script passes to kubelets", whole=False)
