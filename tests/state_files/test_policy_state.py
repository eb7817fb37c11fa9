"""The state that podslice keeps beside the managers' files."""

from __future__ import annotations

import msgspec
import pytest

from podslice import Node
from podslice.node.checkpoints.names import POLICY_STATE_FILE
from podslice.node.checkpoints.policy_state import encode, with_loans
from podslice.node.cpu.state import CPUState, Loans
from podslice.node.decide import restart
from podslice.values.cpuset import Bits, parse_bits
from tests.node.resize.test_exclusive import node, one, resized

HELD = {"u1": {"c": parse_bits("2-7")}}
DATA = '{"version":1,"bootId":"","originals":{"u1":{"c":"2-5"}}}'
FILE = msgspec.json.encode({"data": DATA, "checksum": 3053661560})


def loans_in(data: bytes | None, assignments: dict[str, dict[str, Bits]]) -> Loans:
    return with_loans(CPUState(assignments=assignments), data).loans


def test_the_specified_bytes() -> None:
    """The example of the specification, with its checksum."""
    here = node()
    state = here.state.cpu.with_default(parse_bits("0-31")).assign("u1", "c", parse_bits("2-5"))
    assert encode(state.resize("u1", "c", parse_bits("2-7"))) == FILE
    assert loans_in(FILE, HELD) == {"u1": {"c": (6, 7)}}


@pytest.mark.parametrize(
    "data",
    [None, b"", b"{}", b"[", FILE.replace(b"3053661560", b"1"), FILE.replace(b"2-5", b"2-9")],
    ids=["none", "empty", "no-data", "broken", "checksum", "other-content"],
)
def test_damaged(data: bytes | None) -> None:
    """A file that is missing, damaged or about other pods promises nothing, and prevents no start."""
    assert loans_in(data, HELD) == {}


def test_the_managers_file_wins() -> None:
    """Promises of a container that has other CPUs by now, or that is not known, are dropped."""
    assert loans_in(FILE, {}) == {}
    assert loans_in(FILE, {"u1": {"c": parse_bits("4-9")}}) == {}
    assert loans_in(FILE, {"u1": {"c": parse_bits("2-5")}}) == {}


def test_over_a_restart() -> None:
    """Promises, and the order in which further CPUs came, outlive the process."""
    here = node()
    here.admit(one("4"))
    resized(here, "12", "6", "8")
    here.admit(one("2", "q"))
    here.remove("uid-q")
    resized(here, "10")
    loans = here.state.cpu.loans
    assert POLICY_STATE_FILE in here.files
    here = Node.of(here.rules, restart(here.rules, here.state).state)
    assert here.state.cpu.loans == loans
    assert resized(here, "4").outcome == "Allocated"
    assert restart(here.rules, here.state).state.cpu.loans == {}


def test_no_file_without_need() -> None:
    """A node where no container has more than was promised writes no file of its own."""
    here = node()
    here.admit(one("4"))
    assert POLICY_STATE_FILE not in here.files
