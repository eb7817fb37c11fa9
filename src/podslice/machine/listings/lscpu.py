"""lscpu of util-linux: the summary, `-e`, `-p`, and each of them with `-J`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from podslice.machine.build import MAX_CPUS
from podslice.machine.listings.facts import (
    WHOLE,
    Level,
    MachineFacts,
    NodeFacts,
    Totals,
    check_agreement,
    parse_cpu,
    parse_number,
)
from podslice.machine.model import group_cpus
from podslice.values.cpuset import Bits, CPUSetError, bits_of, parse_bits
from podslice.values.errors import InputError

_COLUMNS: Mapping[str, Level] = {"core": "core", "socket": "socket", "l3": "l3"}
_TABLE = "# The following is the parsable format"
_TRANSLATED = re.compile(r"(?:Architektur|Arquitectura|Arquitetura|Architettura|Architektura|Architecture |架构|架構|"
                         r"アーキテクチャ|Архитектура) ?[:：]")  # fmt: skip
_START = re.compile(
    r'Architecture:\s|CPU op-mode\(s\):|CPU\(s\):\s+\d|\{\s*"(?:lscpu|cpus)"\s*:|# The following is the parsable format'
    r"|(?:# )?CPU[\s,].*\b(?:NODE|SOCKET|CORE|Node|Socket|Core)\b"
)
_NODE_LIST = re.compile(r"NUMA node(\d{1,6}) CPU\(s\)\Z")
_STRIDE = re.compile(r"\b(\d{1,5})-(\d{1,5}):(\d{1,5})\b")
_INSTANCES = re.compile(r"\((\d{1,6}) instances?\)")
_NO_VALUE = re.compile(r":\s*-(?=\s*[,}\n])")
"""util-linux before 2.39 prints a bare - for a missing value of an offline CPU, which is not JSON."""
_FULL = "lscpu -e prints what is needed"
Row = Mapping[str, str]


def is_lscpu(text: str) -> bool:
    """Whether the text looks as if lscpu had printed it."""
    start = text.lstrip()[:4096]
    return bool(_START.match(start) or _TRANSLATED.match(start))


def from_lscpu(text: str, source: str = "") -> MachineFacts:
    """Read what lscpu printed, in any of its forms. Raises `InputError` with the line."""
    start = text.lstrip()
    if start.startswith("{"):
        return _from_json(start, source)
    if start.startswith("#"):
        return _facts_of_rows(_comma_rows(start.splitlines(), source), "lscpu -p", source)
    if re.match(r"CPU\s(?!op-mode)", start):
        return _facts_of_rows(_column_rows(start.splitlines(), source), "lscpu -e", source)
    _refuse_other_languages(start, source)
    printed, *tables = start.split(_TABLE)
    fields = [line.partition(":") for line in printed.splitlines()]
    summary = _facts_of_summary([(name.strip(), value.strip()) for name, _, value in fields], source)
    if not tables:
        return summary
    # lscpu and lscpu -p in one file: the table places every CPU.
    facts = _facts_of_rows(_comma_rows((_TABLE + tables[0]).splitlines(), source), "lscpu -p", source)
    check_agreement([summary, facts])
    nodes = {**summary.nodes, **facts.nodes}  # the table has no row for a node without CPUs
    return msgspec.structs.replace(facts, nodes=nodes, architecture=summary.architecture, name=summary.name)


def _refuse_other_languages(text: str, source: str) -> None:
    """Raise `InputError` for a summary with translated names, of which some would be missed in silence."""
    names = [line.partition(":")[0] for line in text.splitlines()[:200] if ":" in line]
    if _TRANSLATED.match(text) or not all(name.isascii() for name in names):
        raise InputError("is lscpu's output in another language", source=source, remedy="LC_ALL=C lscpu -e")


# Tables of CPUs


def _from_json(text: str, source: str) -> MachineFacts:
    try:
        data = json.loads(_NO_VALUE.sub(": null", text))
    except (ValueError, RecursionError) as error:
        raise InputError(f"breaks off, or is not lscpu's JSON: {error}", source=source, remedy=WHOLE) from None
    if isinstance(data.get("cpus"), list):
        rows = [
            {str(key).lower(): _cell(value) for key, value in one.items()}
            for one in data["cpus"]
            if isinstance(one, dict)
        ]
        return _facts_of_rows(rows, "lscpu -J", source)
    if not isinstance(data.get("lscpu"), list):
        raise InputError("has neither cpus nor lscpu", source=source, remedy=_FULL)
    return _facts_of_summary(list(_flatten(data["lscpu"])), source)


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "" if value is None else str(value)


def _flatten(fields: Iterable[Any]) -> Iterable[tuple[str, str]]:
    """Yield the fields of the summary, which newer versions nest below headings."""
    pending = list(fields)[::-1]
    while pending:
        one = pending.pop()
        if isinstance(one, dict):
            yield str(one.get("field", "")).rstrip(":"), _cell(one.get("data"))
            children = one.get("children")
            pending += children[::-1] if isinstance(children, list) else []


def _comma_rows(lines: Sequence[str], source: str) -> list[Row]:
    """Return the rows of `-p`: the last comment names the columns; an empty one separates the caches."""
    header = next((line for line in reversed(lines) if line.startswith("#") and "," in line), "")
    names = [name.strip().lower() for name in header.lstrip("# ").split(",")]
    if "cpu" not in names:
        raise InputError("has no line that names the columns", source=source, remedy="keep the lines with #")
    body = [line.strip() for line in lines]
    return [dict(zip(names, line.split(","), strict=False)) for line in body if line and not line.startswith("#")]


def _column_rows(lines: Sequence[str], source: str) -> list[Row]:
    """Return the rows of `-e`: columns by blanks, the caches of a CPU in one column with colons."""
    names = lines[0].lower().split()
    rows: list[Row] = []
    for number, line in enumerate(lines[1:], 2):
        cells = line.split()
        if not cells or not cells[0].isdigit():
            if cells:
                break  # what follows the table is of another program
            continue
        if len(cells) < len(names) and "-" not in cells:
            problem = f"line {number} has {len(cells)} of {len(names)} columns"
            raise InputError(problem, source=source, remedy="give all of lscpu -e")
        rows.append(dict(zip(names, cells, strict=False)))
    return rows


def _facts_of_rows(rows: Sequence[Row], program: str, source: str) -> MachineFacts:
    places: dict[Level, dict[int, int]] = {"core": {}, "socket": {}, "l3": {}}
    node_of: dict[int, int] = {}
    online, offline = [], []
    for row in map(_split_caches, rows):
        if not row.get("cpu"):  # `-p` leaves the cells of an offline CPU empty
            continue
        cpu = parse_cpu(row["cpu"], source)
        if row.get("online", "yes").lower() in ("no", "n", "0", "false"):
            offline.append(cpu)
            continue
        online.append(cpu)
        for column, level in _COLUMNS.items():
            if (number := parse_number(row.get(column))) is not None:
                places[level][cpu] = number
        if (node := parse_number(row.get("node"))) is not None:
            node_of[cpu] = node
    return MachineFacts(
        source=source,
        program=program,
        online=bits_of(online),
        offline=bits_of(offline),
        places={level: found for level, found in places.items() if len(found) == len(online)},
        nodes={node: NodeFacts(cpus=cpus) for node, cpus in group_cpus(node_of).items()},
    )


def _split_caches(row: Row) -> Row:
    """Return the row with `L1d:L1i:L2:L3` and its cell as columns of their own."""
    joined = next((name for name in row if ":" in name and "l1" in name), None)
    if joined is None:
        return row
    return {**row, **dict(zip(joined.split(":"), row[joined].split(":"), strict=False))}


# The summary


def _facts_of_summary(fields: Sequence[tuple[str, str]], source: str) -> MachineFacts:
    summary = dict(reversed(fields))  # the first of two equal ones counts
    nodes = {
        int(match[1]): NodeFacts(cpus=_cpu_list(value, source))
        for name, value in fields
        if (match := _NODE_LIST.match(name))
    }
    online = summary.get("On-line CPU(s) list") or summary.get("On-line CPU(s) mask", "")
    listed = None if not online or online.startswith("0x") else _cpu_list(online, source)
    offline = summary.get("Off-line CPU(s) list", "")
    instances = _INSTANCES.search(summary.get("L3 cache", ""))
    count = parse_number(summary.get("CPU(s)"))
    sockets = parse_number(summary.get("Socket(s)")) or _sockets_of_mainframe(summary, count or 0)
    if not (listed or count):
        raise InputError("has no number of CPUs", source=source, remedy=_FULL)
    return MachineFacts(
        source=source,
        program="lscpu",
        online=listed,
        offline=_cpu_list(offline, source) if offline else 0,
        nodes=nodes,
        totals=Totals(
            cpus=listed.bit_count() if listed else count or 0,
            sockets=sockets,
            cores_per_socket=parse_number(summary.get("Core(s) per socket")) or 0,
            threads_per_core=parse_number(summary.get("Thread(s) per core")) or 0,
            l3_caches=int(instances[1]) if instances else 0,
        ),
        architecture=summary.get("Architecture", ""),
        name=summary.get("Model name", ""),
    )


def _without_stride(match: re.Match[str]) -> str:
    """Return a range with a step, as older lscpu prints it (`0-62:2`), number by number."""
    first, last, step = map(int, match.groups())
    return ",".join(map(str, range(first, min(last, MAX_CPUS) + 1, max(step, 1))))


def _sockets_of_mainframe(summary: Mapping[str, str], cpus: int) -> int:
    """Return the sockets of a mainframe, 0 where the counts are those of the hardware, of which a partition has some
    cores only."""
    names = ("Socket(s) per book", "Book(s)", "Core(s) per socket", "Thread(s) per core")
    in_book, number, cores, threads = (parse_number(summary.get(name)) or 0 for name in names)
    return in_book * number if in_book * number * cores * threads == cpus else 0


def _cpu_list(text: str, source: str) -> Bits:
    try:
        return parse_bits(_STRIDE.sub(_without_stride, text))
    except CPUSetError as error:
        problem = f"{text[:20]!r} is not a list of CPUs: {error.problem}"
        raise InputError(problem, source=source, remedy=WHOLE) from None
