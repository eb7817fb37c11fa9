"""The options that choose the configuration of a kubelet: its file or what carries it, drop-ins, and flags."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from podslice.cli.options.bundle import bundle_in_use
from podslice.cli.output import with_options
from podslice.values.errors import InputError

if TYPE_CHECKING:
    from podslice.config.carriers.layer import Layer
    from podslice.host.bundle.opened import Bundle

F = TypeVar("F", bound=Callable[..., Any])
_DIRECTORY, _ARGUMENTS = "podslice.config-dir", "podslice.kubelet-args"
_MOST_DROP_INS = 1000


class ConfigSource(NamedTuple):
    """The sources that the user named: `path` of a file, or of a folder of drop-ins; a `directory` of drop-ins; flags
    as `arguments`, or in a file `command_line` like /proc/PID/cmdline."""

    path: str | None = None
    directory: str | None = None
    arguments: str | None = None
    command_line: str | None = None

    @property
    def options(self) -> tuple[tuple[str, str], ...]:
        """The options that were given, with their values."""
        given = (
            ("--config", self.path),
            ("--config-dir", self.directory),
            ("the flags in", self.command_line),
            ("--kubelet-args", self.arguments),
        )
        return tuple((option, value) for option, value in given if value is not None)

    def __str__(self) -> str:
        return self.path or self.directory or "--kubelet-args"


def config_options(text: str = "KubeletConfiguration (default: the kubelet's defaults).") -> Callable[[F], F]:
    """Return the decorator that adds `--config`, `--config-dir` and `--kubelet-args`. The command gets them together as
    `config_path`, a `ConfigSource`, or None where none was given."""

    def decorate(command: F) -> F:
        return with_options(
            command,
            click.option("--config", "config_path", metavar="FILE", callback=_gather, help=text),
            click.option(
                "--config-dir",
                metavar="DIR",
                is_eager=True,
                expose_value=False,
                callback=_keep(_DIRECTORY),
                help="Drop-ins of the kubelet: *.conf, merged over --config in the order of their names.",
            ),
            click.option(
                "--kubelet-args",
                metavar="TEXT",
                is_eager=True,
                expose_value=False,
                callback=_keep(_ARGUMENTS),
                help="Flags of the kubelet, which override --config: '--cpu-manager-policy=static …'.",
            ),
        )

    return decorate


def _keep(key: str) -> Callable[[click.Context, click.Parameter, str | None], None]:
    def keep(ctx: click.Context, _: click.Parameter, value: str | None) -> None:
        ctx.meta[key] = value

    return keep


def _gather(ctx: click.Context, _: click.Parameter, path: str | None) -> ConfigSource | None:
    """Return one value for the three options. Click calls this after those that are eager."""
    directory, arguments = ctx.meta.get(_DIRECTORY), ctx.meta.get(_ARGUMENTS)
    source = find_source(path)
    if directory is not None:
        source = source._replace(directory=directory)
    if arguments is not None:
        source = source._replace(arguments=arguments, command_line=None)
    return None if source == ConfigSource() else source


def find_source(path: str | None, bundle: Bundle | None = None) -> ConfigSource:
    """Return the source at a path: that of the bundle in use, or of `bundle`, with its drop-ins and flags."""
    bundle = bundle or bundle_in_use()
    if bundle is None or path is None or path != str(bundle.config):
        return ConfigSource(path)
    folder, flags = bundle.drop_ins, bundle.command_line
    return ConfigSource(path, None if folder is None else str(folder), None, None if flags is None else str(flags))


def read_source(source: ConfigSource) -> list[Layer]:
    """Return the layers of a configuration, the lowest first. Raises `InputError`."""
    from podslice.config.carriers.dropins import fill_default_thresholds, read_drop_ins
    from podslice.config.carriers.layer import Layer
    from podslice.config.carriers.recognize import read_layers

    path = source.path
    folders = [source.directory] if source.directory else []
    if path is not None and path != "-" and Path(path).is_dir():
        folders, path = [path, *folders], None
    path, name = _split_name(path)
    layers = list(read_layers(_read_file(path), name=name)) if path is not None else []
    drop_ins = [layer for folder in folders for layer in read_drop_ins(_read_folder(folder))]
    if drop_ins:
        base = layers[0] if layers and layers[0].merge != "flags" else Layer({}, "")
        rest = layers[1:] if layers and layers[0].merge != "flags" else layers
        base, assumed = fill_default_thresholds(base, drop_ins)
        if path is None:
            assumed = ("the file that the drop-ins are merged over sets nothing: --config did not name it", *assumed)
        layers = [base._replace(assumed=(*base.assumed, *assumed)), *rest, *drop_ins]
    if source.command_line is not None:
        layers += _read_arguments(_read_file(source.command_line), source.command_line, beside_file=path is not None)
    if source.arguments is not None:
        layers += _read_arguments(source.arguments, "--kubelet-args", beside_file=path is not None)
    # Flags override every file, so a command line that came as --config still counts last.
    return sorted(layers, key=lambda layer: layer.merge == "flags")


def _split_name(path: str | None) -> tuple[str | None, str]:
    """Return the file, and the name of one of its configurations: FILE#NAME."""
    if path is None or Path(path).exists():
        return path, ""
    file, mark, name = path.rpartition("#")
    return (file, name) if mark and name and Path(file).is_file() else (path, "")


def _read_file(path: str) -> str:
    """Return the text of a file; the words of /proc/PID/cmdline as a line for a shell."""
    from podslice.reading.files import MAX_TEXT_BYTES, read_bytes, read_text

    if not path.endswith("/cmdline"):
        return read_text(path)
    words = read_bytes(path, MAX_TEXT_BYTES).decode("utf-8", errors="replace").split("\0")
    return shlex.join(word for word in words if word)


def _read_arguments(text: str, name: str, *, beside_file: bool) -> list[Layer]:
    from podslice.config.carriers.command_line import read_command_text

    try:
        layers = read_command_text(text, beside_file=beside_file).layers
    except InputError as error:
        raise error.at(source=name) from None
    # The option names itself as a source already.
    return [layer._replace(origin="") for layer in layers]


def _read_folder(folder: str) -> dict[str, str]:
    """Return the texts of the drop-ins of a folder, by their paths."""
    from podslice.config.carriers.dropins import SUFFIX
    from podslice.reading.files import read_text

    try:
        paths = sorted(str(one) for one in Path(folder).rglob(f"*{SUFFIX}") if one.is_file())
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", source=folder) from None
    if not Path(folder).is_dir():
        raise InputError("is not a folder", source=folder, remedy="--config names a file")
    if not paths:
        raise InputError(f"holds no drop-ins, which are files *{SUFFIX}", source=folder)
    if len(paths) > _MOST_DROP_INS:
        raise InputError(f"holds more than {_MOST_DROP_INS} drop-ins", source=folder)
    return {path: read_text(path) for path in paths}
