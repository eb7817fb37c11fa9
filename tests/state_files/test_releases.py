"""State files as the kubelets of each release take them."""

from __future__ import annotations

from pathlib import Path

import pytest

from podslice.node.checkpoints.content import read_content
from podslice.node.checkpoints.releases import Release
from podslice.state_files.consequence import NodeFacts, start_consequence, start_error
from podslice.state_files.convert import convert
from tests.state_files import samples

MINORS = range(31, 37)
POLICIES = NodeFacts(policies={"cpu": "static", "memory": "Static"})
FILES = samples.files()
ZERO = {
    name: data.replace(data[data.index(b'"checksum"') :], b'"checksum":0}')
    for name, data in FILES.items()
    if name in ("cpu-v2", "memory-v1")
}


def test_recorded_verdicts(shared: Path) -> None:
    """Each release's restoring code starts with the files that we say it starts with, and says what we quote."""
    folder = shared / "vectors-releases" / "state"
    seen = 0
    for line in (folder / "verdicts.tsv").read_text().splitlines():
        version, name, outcome = line.split("\t")
        minor = int(version.split(".")[1])
        kind = "cpu" if name.endswith("cpu_manager_state") else "memory"
        said = start_error((folder / name).read_bytes(), kind, Release(minor), POLICIES, name)
        expected = outcome.removeprefix("ERROR ") if outcome.startswith("ERROR ") else ""
        found = said.removeprefix(f"start {kind} manager error: ")
        assert (bool(said), found) == (bool(expected), expected), (version, name)
        seen += 1
    assert seen == 120


@pytest.mark.parametrize("minor", [25, *MINORS, 37])
def test_checksum_of_zero(minor: int) -> None:
    """A CPU file with checksum 0 starts everywhere, a memory file from 1.36 on."""
    cpu = start_consequence(ZERO["cpu-v2"], "cpu", Release(minor), NodeFacts())
    memory = start_consequence(ZERO["memory-v1"], "memory", Release(minor), NodeFacts())
    assert cpu is not None
    assert memory is not None
    assert cpu.starts
    assert memory.starts is (minor >= 36)
    assert ("checkpoint is corrupted" in memory.text) is (minor < 36)


@pytest.mark.parametrize("name", ["cpu-v2", "memory-v1"])
@pytest.mark.parametrize("minor", [20, *MINORS])
def test_file_of_1_37_starts_on_older_kubelets(name: str, minor: int) -> None:
    """A 1.37 file holds the older members with their own checksum, so an older kubelet reads the same state in it."""
    kind = name.split("-")[0]
    newer = convert(read_content(FILES[name]), Release(37), {}).data
    assert b'"checksum":0' not in newer
    assert newer.startswith(FILES[name].removesuffix(b"}"))
    assert start_error(newer, kind, Release(minor), NodeFacts()) == ""  # type: ignore[arg-type]
    back = convert(read_content(newer), Release(minor), {})
    assert (back.data, back.remarks) == (FILES[name], [])


@pytest.mark.parametrize(("name", "older"), [("cpu-v3", "cpu-v2"), ("memory-v2", "memory-v1")])
def test_pod_entries_are_in_data_alone(name: str, older: str) -> None:
    """Holdings of whole pods are in `data` of a 1.37 file, and not among the members for older kubelets."""
    newer = convert(read_content(FILES[name]), Release(37, pod_level=True), {}).data
    before, _, data = newer.partition(b'"data":')
    assert b"podEntries" not in before
    assert b"podEntries" in data
    kind = older.split("-")[0]
    assert start_error(newer, kind, Release(35), NodeFacts()) == ""  # type: ignore[arg-type]


@pytest.mark.parametrize("name", sorted(ZERO))
def test_unchecked_files_are_converted(name: str) -> None:
    """A file with checksum 0 gets a checksum, and a remark that nothing has checked it."""
    converted = convert(read_content(ZERO[name]), Release(35), {})
    assert converted.data == FILES[name]
    assert converted.remarks == ["the checksum was 0, so nothing has checked the content; the new file has a checksum"]
    kind = name.split("-")[0]
    assert start_error(converted.data, kind, Release(35), NodeFacts()) == ""  # type: ignore[arg-type]
