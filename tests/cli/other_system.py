"""Run podslice as if this were another system: `python -m tests.cli.other_system win32 < COMMANDS`.

Modules, functions and constants that Windows or macOS does not have are taken away, files below /proc and /sys do not
exist, and standard output has Windows' encoding. Standard input holds a JSON list of command lines, each a list of
words; standard output gets a JSON list with exit code, output and errors of each.
"""

from __future__ import annotations

import builtins
import concurrent.futures.process  # noqa: F401 - decides by the real system which modules it imports
import functools
import importlib
import io
import json
import os
import platform
import socket
import sys
import tempfile
import urllib.request  # noqa: F401 - as above
from collections.abc import Callable
from typing import Any

import click  # noqa: F401 - as above
import rich.console  # noqa: F401

_NOT_ON_MACOS = {
    "os": "sched_getaffinity sched_setaffinity sched_yield eventfd pidfd_open memfd_create copy_file_range "
    "posix_fadvise posix_fallocate getxattr listxattr setxattr splice getrandom O_DIRECT O_PATH O_TMPFILE",
    "select": "epoll",
    "signal": "SIGSTKFLT SIGPWR SIGPOLL SIGRTMIN SIGRTMAX sigtimedwait sigwaitinfo",
    "socket": "AF_NETLINK AF_PACKET AF_VSOCK SO_PEERCRED SOCK_CLOEXEC SOCK_NONBLOCK",
}
_NOT_ON_WINDOWS = {
    "asyncio": "open_unix_connection start_unix_server",
    "os": "getuid geteuid getgid getegid getgroups setuid setsid fork forkpty posix_spawn wait wait3 wait4 WNOHANG "
    "uname statvfs sysconf getloadavg chown fchown lchown fchmod chroot nice killpg getpgid mkfifo mknod pipe2 "
    "pread pwrite preadv pwritev readv writev sendfile lockf fdatasync sync major minor makedev ttyname "
    "O_CLOEXEC O_DIRECTORY O_DSYNC O_NOCTTY O_NOFOLLOW O_NONBLOCK O_SYNC",
    "signal": "SIGALRM SIGCHLD SIGCONT SIGHUP SIGKILL SIGPIPE SIGQUIT SIGSTOP SIGTSTP SIGUSR1 SIGUSR2 SIGWINCH "
    "alarm pause pthread_kill pthread_sigmask setitimer sigwait",
    "socket": "AF_UNIX SO_REUSEPORT sethostname",
}
_LINUX_MODULES = {"spwd", "ossaudiodev"}
_POSIX_MODULES = {
    "crypt",
    "curses",
    "fcntl",
    "grp",
    "nis",
    "pty",
    "pwd",
    "readline",
    "resource",
    "syslog",
    "termios",
    "tty",
}


class _Missing:
    """Finds that a module does not exist."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name in self._names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def become(system: str) -> None:
    """Take away what `system`, win32 or darwin, does not have."""
    windows = system == "win32"
    # asyncio wakes its loop through one; Windows' own has another family.
    pair = functools.partial(socket.socketpair, socket.AF_UNIX)
    modules = _LINUX_MODULES | (_POSIX_MODULES if windows else set())
    for name in modules:
        sys.modules.pop(name, None)
    sys.meta_path.insert(0, _Missing(modules))  # type: ignore[arg-type]
    for names in (_NOT_ON_MACOS, _NOT_ON_WINDOWS) if windows else (_NOT_ON_MACOS,):
        for module, attributes in names.items():
            for attribute in attributes.split():
                vars(importlib.import_module(module)).pop(attribute, None)
    socket.socketpair = pair
    tempfile._O_TMPFILE_WORKS = False  # type: ignore[attr-defined]
    sys.platform = system
    platform.system = lambda: "Windows" if windows else "Darwin"
    for holder, function in (
        (builtins, "open"),
        (io, "open"),
        (os, "open"),
        (os, "stat"),
        (os, "listdir"),
        (os, "scandir"),
    ):
        setattr(holder, function, _without_kernel_files(getattr(holder, function)))


def _without_kernel_files(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(path: Any, *arguments: Any, **named: Any) -> Any:
        if isinstance(path, str | os.PathLike) and str(path).startswith(("/proc", "/sys")):
            raise FileNotFoundError(2, "No such file or directory", str(path))
        return function(path, *arguments, **named)

    return call


def run(words: list[str]) -> tuple[int, str, str]:
    """Run a command line, and return exit code, output and errors."""
    from podslice.cli.main import main

    encoding = "cp1252" if sys.platform == "win32" else "utf-8"
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding, write_through=True) for _ in range(2))
    before = sys.stdout, sys.stderr, sys.argv
    sys.stdout, sys.stderr, sys.argv = out, err, ["podslice", *words]
    code: Any = 0
    try:
        main()
    except SystemExit as error:
        code = error.code
    finally:
        sys.stdout, sys.stderr, sys.argv = before
    return code or 0, *(stream.buffer.getvalue().decode("utf-8", "backslashreplace") for stream in (out, err))  # type: ignore[attr-defined]


if __name__ == "__main__":
    if sys.argv[1] != "linux":
        become(sys.argv[1])
    print(json.dumps([run(words) for words in json.load(sys.stdin)]))
