"""The meaning and unit of a trace's columns: of known traces by their header, of others by the user's mapping.

All amounts become whole numbers: millicores, bytes, milliseconds. Fractions are rounded up, as Kubernetes rounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_CEILING, Decimal, InvalidOperation
from difflib import get_close_matches
from typing import NamedTuple

from podslice.values.decoding import abbreviate
from podslice.values.errors import InputError

MAX_AMOUNT = 1 << 60
_MOST_DIGITS = 20
_KI = 1024
UNITS: dict[str, dict[str, Decimal]] = {
    "cpu": {"milli": Decimal(1), "cores": Decimal(1000)},
    "memory": {
        "B": Decimal(1), "KiB": Decimal(_KI), "MiB": Decimal(_KI**2), "GiB": Decimal(_KI**3),
        "kB": Decimal(10**3), "MB": Decimal(10**6), "GB": Decimal(10**9),
    },
    "time": {"ms": Decimal(1), "s": Decimal(1000), "min": Decimal(60_000), "h": Decimal(3_600_000)},
    "count": {"": Decimal(1)},
}  # fmt: skip
"""The units of each dimension, as multiples of millicores, bytes and milliseconds."""
_DIMENSION = {
    "cpu": "cpu", "memory": "memory", "gpus": "count", "gpuMilli": "count", "arrival": "time", "end": "time",
    "duration": "time", "scheduled": "time", "maxPerNode": "count", "priority": "count",
}  # fmt: skip
TEXTS = ("name", "models", "qos", "phase", "owner", "model")
FIELDS = (*TEXTS, *_DIMENSION)
_DEFAULT_UNIT = {"cpu": "milli", "memory": "B", "time": "ms", "count": ""}


class Column(NamedTuple):
    """A column of a file and the unit of its amounts, empty for text and counts."""

    name: str
    unit: str = ""


class Format(NamedTuple):
    """A kind of trace: whether its rows are pods or nodes, its columns by meaning, and notes that every user must know
    and the file does not show."""

    name: str
    rows: str
    columns: Mapping[str, Column]
    notes: tuple[str, ...] = ()


FORMATS = (
    Format(
        "podslice-pods",
        "pods",
        {
            "name": Column("name"), "cpu": Column("cpu_milli", "milli"), "memory": Column("memory_bytes", "B"),
            "gpus": Column("gpus"), "gpuMilli": Column("gpu_milli"), "models": Column("gpu_models"),
            "qos": Column("qos"), "owner": Column("owner"), "maxPerNode": Column("max_per_node"),
            "arrival": Column("arrival_ms", "ms"), "end": Column("end_ms", "ms"),
        },
    ),
    Format(
        "podslice-nodes",
        "nodes",
        {
            "name": Column("name"), "cpu": Column("cpu_milli", "milli"), "memory": Column("memory_bytes", "B"),
            "gpus": Column("gpus"), "model": Column("gpu_model"),
        },
    ),
    Format(
        "openb-nodes",
        "nodes",
        {
            "name": Column("sn"), "cpu": Column("cpu_milli", "milli"), "memory": Column("memory_mib", "MiB"),
            "gpus": Column("gpu"), "model": Column("model"),
        },
        ("The GPU models G1 to G3 are undisclosed.",),
    ),
    Format(
        "openb-pods",
        "pods",
        {
            "name": Column("name"), "cpu": Column("cpu_milli", "milli"), "memory": Column("memory_mib", "MiB"),
            "gpus": Column("num_gpu"), "gpuMilli": Column("gpu_milli"), "models": Column("gpu_spec"),
            "qos": Column("qos"), "phase": Column("pod_phase"), "arrival": Column("creation_time", "s"),
            "end": Column("deletion_time", "s"), "scheduled": Column("scheduled_time", "s"),
        },
        ("QoS names are the owner's own classes, not Kubernetes'.",),
    ),
    Format(
        "openb-pods-without-times",
        "pods",
        {
            "name": Column("name"), "cpu": Column("cpu_milli", "milli"), "memory": Column("memory_mib", "MiB"),
            "gpus": Column("num_gpu"), "gpuMilli": Column("gpu_milli"),
        },
    ),
    Format(
        "dlrm-2025",
        "pods",
        {
            "name": Column("instance_sn"), "cpu": Column("cpu_request", "cores"),
            "memory": Column("memory_request", "GiB"), "gpus": Column("gpu_request"), "owner": Column("app_name"),
            "maxPerNode": Column("max_instance_per_node"), "arrival": Column("creation_time", "s"),
            "end": Column("deletion_time", "s"), "scheduled": Column("scheduled_time", "s"),
        },
        (
            "A pod without creation time ran before the trace begins, one without deletion time ran on after its end.",
            "RDMA is a percentage of one NIC, a limit on density only; disk is left out.",
        ),
    ),
    Format(
        "spot-2026-nodes",
        "nodes",
        {
            "name": Column("node_name"), "cpu": Column("cpu_num", "cores"), "gpus": Column("gpu_capacity_num"),
            "model": Column("gpu_model"),
        },
    ),
    Format(
        "opendc",
        "pods",
        {
            "name": Column("id"), "cpu": Column("cpu_count", "cores"), "memory": Column("mem_capacity", "MB"),
            "arrival": Column("submission_time", "ms"), "duration": Column("duration", "ms"),
        },
        ("These are virtual machines or jobs of a batch system, not pods; cpu_capacity (MHz) is left out.",),
    ),
)  # fmt: skip


def find_format(columns: Iterable[str]) -> Format | None:
    """Return the known format whose columns all exist, the one with most of them; None for an unknown trace."""
    existing = set(columns)
    fitting = [one for one in FORMATS if {column.name for column in one.columns.values()} <= existing]
    # The columns of a smaller format may all be among those of a larger one, as in the two forms of openb's pods.
    return max(fitting, key=lambda one: len(one.columns), default=None)


def resolve_format(
    columns: tuple[str, ...], mapping: Mapping[str, Column], rows: str, source: str, *, in_file: bool = False
) -> Format:
    """Return the format of a file with these columns; `mapping` comes first, which is written in a scenario (`in_file`)
    or on the command line. Raises `InputError`."""
    known = find_format(columns)
    if not mapping:
        if known is None:
            names = {"cpu": "COLUMN:cores", "memory": "COLUMN:MiB"}
            remedy = f"map the columns: {_mapping_example(names, in_file=in_file)}"
            raise InputError(f"has columns of no known trace: {', '.join(columns)}", source=source, remedy=remedy)
        return known
    for meaning, column in mapping.items():
        if column.name not in columns:
            raise InputError(f"has no column {column.name!r} for {meaning}", source=source,
                             remedy=_suggest(column.name, columns))  # fmt: skip
    base = {meaning: column for meaning, column in (known.columns if known else {}).items() if meaning not in mapping}
    merged = {**base, **mapping}
    if "cpu" not in merged:
        raise InputError(
            "no column is the CPUs", source=source, remedy=_mapping_example({"cpu": "COLUMN:cores"}, in_file=in_file)
        )
    kind = rows or (known.rows if known else "pods")
    return Format(known.name if known else "mapped", kind, merged, known.notes if known else ())


def _mapping_example(names: Mapping[str, str], *, in_file: bool) -> str:
    """Return the text with which a user maps columns."""
    if in_file:
        return f"columns: {{{', '.join(f'{meaning}: {name!r}' for meaning, name in names.items())}}}".replace("'", '"')
    return " ".join(f"--columns {meaning}={name}" for meaning, name in names.items())


def read_mapping(texts: Iterable[str]) -> dict[str, Column]:
    """Parse `meaning=column[:unit]` as users write it. Raises `InputError`."""
    mapping: dict[str, Column] = {}
    for text in texts:
        meaning, equals, rest = text.partition("=")
        # From the right: names of columns may hold a colon, units do not.
        name, colon, unit = rest.rpartition(":")
        if not colon:
            name, unit = rest, ""
        if not equals or not name:
            raise InputError(f"{text!r} is not a mapping", path="--columns", remedy="write cpu=COLUMN:cores")
        mapping[meaning] = check_column(meaning, Column(name, unit), path=f"--columns {text}")
    return mapping


def check_column(meaning: str, column: Column, *, path: str) -> Column:
    """Return the column with its default unit filled in. Raises `InputError`."""
    if meaning not in FIELDS:
        raise InputError(f"{meaning!r} is nothing that a column can mean", path=path, remedy=_suggest(meaning, FIELDS))
    if meaning in TEXTS:
        if column.unit:
            raise InputError(f"{meaning} is text and has no unit", path=path)
        return column
    units = UNITS[_DIMENSION[meaning]]
    unit = column.unit or _DEFAULT_UNIT[_DIMENSION[meaning]]
    if unit not in units:
        known = ", ".join(filter(None, units)) or "none"
        raise InputError(f"{column.unit!r} is not a unit of {meaning}", path=path, remedy=f"one of {known}")
    return Column(column.name, unit)


def _suggest(name: str, known: Iterable[str]) -> str:
    """Return a remedy with the nearest name, or all of them."""
    names = list(known)
    close = get_close_matches(name, names, 1)
    return f"did you mean {close[0]}?" if close else f"one of {', '.join(names)}"


def factor(meaning: str, column: Column) -> Decimal:
    """Return the factor from the unit of a column to millicores, bytes, milliseconds or pieces. `meaning`: what the
    column holds, a key of the trace's format."""
    return UNITS[_DIMENSION[meaning]][column.unit or _DEFAULT_UNIT[_DIMENSION[meaning]]]


def amount(text: str, times: Decimal) -> int | None:
    """Return a cell as a whole number of millicores, bytes, milliseconds or pieces; None for an empty one. Raises
    `ValueError` with the problem."""
    text = text.strip()
    if not text or text.lower() in ("nan", "null", "none"):
        return None
    try:
        value = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"{abbreviate(text)} is not a number") from None
    if not value.is_finite():
        raise ValueError(f"{abbreviate(text)} is not a number")
    # Checked before the conversion: `1e999999` would become an integer of a million digits.
    if value.adjusted() > _MOST_DIGITS or abs(value * times) > MAX_AMOUNT:
        raise ValueError(f"{abbreviate(text)} is out of range")
    # Rounded up, as Kubernetes rounds a quantity: a pod never gets less than it asked for.
    return int((value * times).to_integral_value(ROUND_CEILING))
