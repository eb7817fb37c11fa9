"""`numactl -H` (`--hardware`): the CPUs, memory and distances of NUMA nodes."""

from __future__ import annotations

import re

from podslice.machine.listings.facts import MachineFacts, NodeFacts, Totals
from podslice.values.cpuset import bits_of, union
from podslice.values.errors import InputError

_CPUS = re.compile(r"node (\d{1,6}) cpus:((?: \d{1,6})*)\s*\Z")
_SIZE = re.compile(r"node (\d{1,6}) size: (\d{1,12}) MB\s*\Z")
_LINE = re.compile(r"node (\d{1,6}) (cpus|size):\s*(.*?)\s*\Z")
_NOT_AVAILABLE = "<not available>"
"""What numactl prints for the size of a node that the kernel does not tell."""
_ROW = re.compile(r"\s*(\d{1,6}):((?:\s+\d{1,5})+)\s*\Z")
MEBIBYTE = 1 << 20


def is_numactl(text: str) -> bool:
    """Whether the text looks like output of `numactl -H`."""
    return bool(re.match(r"\s*available: \d+ nodes? \(", text))


def from_numactl(text: str, source: str = "") -> MachineFacts:
    """Read `numactl -H`. It prints whole MiB, called MB; a node without CPUs has an empty list, and a machine without
    NUMA is one node. Raises `InputError`."""
    nodes: dict[int, NodeFacts] = {}
    order: list[str] = []
    for line in text.splitlines():
        if match := _CPUS.match(line):
            number = int(match[1])
            nodes[number] = nodes.get(number, NodeFacts())._replace(cpus=bits_of(map(int, match[2].split())))
        elif match := _SIZE.match(line):
            number = int(match[1])
            nodes[number] = nodes.get(number, NodeFacts())._replace(memory=int(match[2]) * MEBIBYTE, unit=MEBIBYTE)
        elif match := _LINE.match(line):
            _check_unread(match, source)
        elif line.startswith("node ") and ":" not in line:
            order = line.split()[1:]
        elif match := _ROW.match(line):
            number, row = int(match[1]), tuple(map(int, match[2].split()))
            if number in nodes and len(row) == len(order) == len(nodes):
                nodes[number] = nodes[number]._replace(distances=row)
    announced = re.match(r"\s*available: 0*(\d+)", text)
    if not nodes or any(facts.cpus is None for facts in nodes.values()):
        raise InputError("breaks off before the CPUs of a node", source=source, remedy="give all of numactl -H")
    if announced and announced[1] != str(len(nodes)):
        problem = f"announces {announced[1][:10]} nodes and lists {len(nodes)}"
        raise InputError(problem, source=source, remedy="give all of numactl -H")
    online = union(facts.cpus or 0 for facts in nodes.values())
    memory = sum(facts.memory or 0 for facts in nodes.values())
    return MachineFacts(
        source=source,
        program="numactl -H",
        online=online,
        nodes=dict(sorted(nodes.items())),
        totals=Totals(cpus=online.bit_count(), memory=memory, unit=len(nodes) * MEBIBYTE if memory else 1),
    )


def _check_unread(match: re.Match[str], source: str) -> None:
    """Raise `InputError` for a line whose CPUs or size are not numbers, except a size that numactl does not know."""
    node, field, value = match.groups()
    if field == "size" and value == _NOT_AVAILABLE:
        return
    what = "a list of CPUs" if field == "cpus" else "a size in MB"
    problem = f"node {int(node)} {field}: {value[:20]!r} is not {what}"
    raise InputError(problem, source=source, remedy="give numactl -H as the program printed it")
