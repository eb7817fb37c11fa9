"""Files that would end, hang or inflate a process are one line and exit code 2, whatever option names them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from podslice.reading import yaml_events as build
from podslice.reading.yaml import load_documents
from podslice.values.errors import InputError
from tests.bounded import podslice, refused

pytestmark = pytest.mark.process

PODS = str(Path(__file__).parents[2] / "examples" / "pods.yaml")
MACHINE = ("--machine", "xeon-6338-2s")


def merges(levels: int, width: int = 9) -> str:
    """Mappings that merge the one before several times; 7 levels are 441 bytes."""
    lines = ["a0: &a0 {x: 1, y: 2}"]
    for level in range(1, levels + 1):
        lines.append(f"a{level}: &a{level}\n  <<: [" + ", ".join([f"*a{level - 1}"] * width) + "]")
    return "\n".join(lines) + "\n"


def aliases(levels: int, width: int = 9) -> str:
    """Lists that name the one before several times."""
    lines = ["a0: &a0 [x, y]"]
    lines += [f"a{level}: &a{level} [" + ", ".join([f"*a{level - 1}"] * width) + "]" for level in range(1, levels + 1)]
    return "\n".join(lines) + "\n"


def ladder(levels: int) -> str:
    """Each list holds the one before: as deep as there are lines, without a nested bracket."""
    return "".join(f"a{level}: &a{level} [{f'*a{level - 1}' if level else ''}]\n" for level in range(levels))


BOMBS = {
    "flow": "[" * 30_000 + "]" * 30_000,
    "json": '{"a":' * 30_000 + "1" + "}" * 30_000,
    "flow mappings": "{a: " * 30_000 + "}" * 30_000,
    "blocks": "".join(" " * depth + "a:\n" for depth in range(2000)),
    "dashes": "- " * 30_000 + "a",
    "open": "[" * 30_000,
    "merges": merges(7),
    "more merges": merges(11),
    "aliases": aliases(11),
    "ladder": ladder(2000),
    "own alias": "a: &a [*a]",
    "number": '{"a": ' + "9" * 5000 + "}",
}


@pytest.mark.slow
@pytest.mark.parametrize("bomb", BOMBS)
def test_bombs(tmp_path: Path, bomb: str) -> None:
    """Depth, aliases and merge keys are refused while a file is read, within seconds and 64 MiB."""
    file = tmp_path / "bomb.yaml"
    file.write_text(BOMBS[bomb])
    refused(podslice("admit", file, *MACHINE))


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        ("admit", PODS, *MACHINE, "--config"),
        ("admit", PODS, *MACHINE, "--devices"),
        ("admit", PODS, "--from"),
        ("explain", PODS, *MACHINE, "--pods"),
        ("inspect", PODS, "--limit-range"),
        ("inspect", PODS, "--node"),
        ("lint",),
        ("agent", "--check-config", "--config"),
        ("state", "show"),
        ("replay",),
        ("topology", "--from"),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("bomb", ["flow", "more merges"])
def test_every_option(tmp_path: Path, command: tuple[str, ...], bomb: str) -> None:
    """No option reads a file without these bounds."""
    file = tmp_path / "bomb"
    file.write_text(BOMBS[bomb])
    refused(podslice(*command, file))


@pytest.mark.slow
@pytest.mark.parametrize("command", [("admit", *MACHINE), ("topology", "--from"), ("lint",), ("state", "show")])
def test_endless_files(command: tuple[str, ...]) -> None:
    """A device that never ends is not a file."""
    refused(podslice(*command, "/dev/zero"))


@pytest.mark.slow
@pytest.mark.parametrize("command", [("admit", *MACHINE), ("topology", "--from"), ("lint",)])
def test_endless_input(command: tuple[str, ...]) -> None:
    """A standard input that never ends is read up to a limit."""
    with subprocess.Popen(["yes", "a: 1"], stdout=subprocess.PIPE) as endless:
        try:
            assert "larger than 48 MiB" in refused(podslice(*command, "-", stdin=endless.stdout))
        finally:
            endless.kill()


def test_large_files_are_not_read(tmp_path: Path) -> None:
    """A file beyond the limit is refused by its size."""
    file = tmp_path / "large"
    with file.open("wb") as sparse:
        sparse.truncate(1 << 40)
    assert "larger than 48 MiB" in refused(podslice("admit", file, *MACHINE))


def test_values_are_counted() -> None:
    """YAML and JSON hold no more values than a limit."""
    for text in ("[" + "[]," * 2000 + "[]]", "- []\n" * 2000):
        with pytest.raises(InputError, match="holds more than 1000 values"):
            load_documents(text, most_nodes=1000)


def test_aliases_of_people_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Aliases and merge keys mean what they always meant, also up to the limit."""
    text = "base: &base {cpu: 1, memory: 2}\none: {<<: *base, cpu: 3}\nlist: [*base, *base]\n"
    one = {"cpu": 3, "memory": 2}
    base = {"cpu": 1, "memory": 2}
    assert load_documents(text) == [{"base": base, "one": one, "list": [base, base]}]
    monkeypatch.setattr(build, "MAX_ALIASED", 5)
    with pytest.raises(InputError, match="expands to too many values"):
        load_documents(text)


def test_merge_order() -> None:
    """The first of several merged mappings counts most, a mapping's own keys count more."""
    text = "a: &a {x: 1, w: 1}\nb: &b {x: 2, z: 2}\nc: {z: 3, <<: [*a, *b]}\n"
    assert load_documents(text)[0]["c"] == {"x": 1, "w": 1, "z": 3}
