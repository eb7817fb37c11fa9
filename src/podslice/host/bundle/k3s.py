"""k3s, which is the kubelet itself: no process has that name, and `ps` does not show its options.

The arguments of its kubelet are on its command line or in its systemd unit, else in its configuration files, where a
later file replaces the list of an earlier one and `kubelet-arg+` adds to it. Its own settings are drop-ins.
`capture.sh` does the same in a shell; a test compares the two.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import Any, Final

from podslice.config.carriers.command_line import passed_by_k3s
from podslice.host.filesystem import FileSystem
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError

SERVICES: Final = {"k3s-server": "k3s", "k3s-agent": "k3s-agent"}
"""Names of the process, and of its systemd units."""
HIDDEN: Final = "k3s runs the kubelet, and neither /etc/rancher/k3s nor its unit can be read here"
_CONFIGURATION = "etc/rancher/k3s"
_OWN_SETTINGS = "var/lib/rancher/k3s/agent/etc/kubelet.conf.d"


def find_k3s(fs: FileSystem) -> list[str] | None:
    """Return the words of a command line with which k3s runs its kubelet, None where it does not run. Raises
    `InputError` where they cannot be had."""
    process = _find_process(fs)
    if process is None:
        return None
    command, service = process
    unit = _read(fs, f"etc/systemd/system/{service}.service")
    given = [one for words in (command, _words_of_unit(unit)) for one in passed_by_k3s(words)]
    given = list(dict.fromkeys(given)) or list(_configured(fs))
    if not given and not unit and not fs.entries("etc/rancher"):
        raise InputError(HIDDEN)
    settings = [f"--config-dir=/{_OWN_SETTINGS}"] if fs.entries(_OWN_SETTINGS) else []
    return ["k3s", *settings, *(f"--{one.lstrip('-')}" for one in given)]


def _find_process(fs: FileSystem) -> tuple[list[str], str] | None:
    """Return the words and the unit of the last process."""
    found = None
    for name in fs.entries("proc"):
        service = SERVICES.get(_read(fs, f"proc/{name}/comm").strip()) if name.isdecimal() else None
        if service is not None:
            found = (_read(fs, f"proc/{name}/cmdline").split("\0"), service)
    return found


def _read(fs: FileSystem, path: str) -> str:
    """Return a file's text, "" where it cannot be read."""
    try:
        return fs.read(path)
    except OSError:
        return ""


def _words_of_unit(text: str) -> list[str]:
    command = text.partition("\nExecStart=")[2].replace("\\\n", " ").partition("\n")[0]
    try:
        return shlex.split(command)
    except ValueError:
        return command.split()


def _configured(fs: FileSystem) -> Iterator[str]:
    folder = f"{_CONFIGURATION}/config.yaml.d"
    files = [f"{_CONFIGURATION}/config.yaml", *(f"{folder}/{name}" for name in sorted(fs.entries(folder)))]
    found: list[Any] = []
    for path in files:
        if not path.endswith(".yaml"):
            continue
        try:
            documents = load_documents(_read(fs, path), path)
        except InputError:
            continue  # k3s would not have started with it
        for name, value in documents[0].items() if documents and isinstance(documents[0], dict) else ():
            if name in ("kubelet-arg", "kubelet-arg+"):
                kept = found if name.endswith("+") else []
                found = [*kept, *(value if isinstance(value, list) else [value])]
    yield from (one for one in found if isinstance(one, str) and one)
