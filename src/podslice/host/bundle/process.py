"""The running kubelet: the flags of its process that concern its configuration, and the files that they name.

`capture.sh` does the same in a shell; a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from typing import Final

from podslice.config.carriers.dropins import SUFFIX
from podslice.config.carriers.flags import FIELD_OF_FLAG
from podslice.host.bundle.k3s import find_k3s
from podslice.host.filesystem import FileSystem
from podslice.values.errors import InputError

PROGRAM: Final = "kubelet"
_SECRET = frozenset(("manifest-url",))
KEPT_FLAGS: Final = (FIELD_OF_FLAG.keys() - _SECRET) | {"config", "config-dir", "hostname-override", "root-dir"}
"""Flags that a bundle keeps. Others may hold secrets, as `manifest-url-header` does, or are unknown."""
_SHORT = re.compile(r"-[A-Za-z]")
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", re.ASCII)


def find_flags(fs: FileSystem) -> list[str] | None:
    """Return the kept flags of the kubelet that runs, None where none does.

    A container may run a process of that name too: those of the node's own PID namespace come first. Raises
    `InputError` where several have other flags. Without any, k3s may run it.
    """
    own, others = dict[str, None](), dict[str, None]()
    for name in fs.entries("proc"):
        if not name.isdecimal():
            continue
        try:
            if fs.read(f"proc/{name}/comm").strip() != PROGRAM or not (text := fs.read(f"proc/{name}/cmdline")):
                continue
            found = own if _is_of_the_node(fs.read(f"proc/{name}/status")) else others
        except OSError:
            continue  # it has ended
        found[text] = None
    found = own or others
    if not found and (words := find_k3s(fs)) is not None:
        return list(keep_flags(words[1:]))
    if len(found) > 1:
        raise InputError(f"{len(found)} processes are named {PROGRAM}, with different flags")
    return next((list(keep_flags(text.replace("\0", "\n").splitlines()[1:])) for text in found), None)


def _is_of_the_node(status: str) -> bool:
    """Whether a process has one number only, that of the namespace in which it is seen."""
    numbers = re.search(r"^NSpid:\s*(.*)", status, re.MULTILINE)
    return numbers is None or len(numbers[1].split()) < 2


def keep_flags(words: Iterable[str]) -> Iterator[str]:
    """Yield the kept flags among words of a command line, each with its value in one word."""
    waiting = ""
    for word in words:
        if waiting and not word.startswith("--") and not _SHORT.match(word):
            yield f"--{waiting}={word}"
            waiting = ""
            continue
        if waiting:
            yield f"--{waiting}"
        waiting = ""
        if word == "--":
            break
        name, equals, value = word.removeprefix("--").partition("=")
        name = name.replace("_", "-")
        if not word.startswith("--") or name not in KEPT_FLAGS:
            continue
        if equals:
            yield f"--{name}={value}"
        else:
            waiting = name
    if waiting:
        yield f"--{waiting}"


def value_of(flags: Iterable[str], name: str) -> str:
    """Return the value of a flag among kept ones; the last one counts. Empty for none."""
    return next((flag.partition("=")[2] for flag in [*flags][::-1] if flag.startswith(f"--{name}=")), "")


def list_drop_ins(fs: FileSystem, folder: str) -> dict[str, str]:
    """Return the paths of drop-ins in a folder and in those below it, by their names in a bundle."""
    found = {}
    for name in fs.entries(folder):
        inner = [f"{name}/{one}" for one in fs.entries(f"{folder}/{name}")]
        for place in (name, *inner):
            if place.endswith(SUFFIX) and all(_NAME.fullmatch(part) for part in PurePosixPath(place).parts):
                found[place] = f"{folder}/{place}"
    return found
