"""`podslice draw` as a person uses it."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from podslice.draw.command import current_text, follow, stamps
from tests.conftest import make_node, make_pod
from tests.shell import podslice as run

NODE = ("--machine", "epyc-9654-nps4", "--config", "examples/kubelet.yaml")
SMALL = "pack:1 numa:2(memory=16GB) core:4 pu:2"


@pytest.mark.slow
def test_draw_before_and_after(tmp_path: Path) -> None:
    """FILE's pods make a page with two pictures, an SVG with frames, and two maps in the terminal."""
    page, drawing = tmp_path / "node.html", tmp_path / "node.svg"
    running = ("--pods", str(one_running(tmp_path)))
    assert run("draw", "examples/pods.yaml", *NODE, *running, "--out", str(page)).returncode == 0
    text = page.read_text()
    assert [text.count(part) for part in ('class="picture"', "NUMA distances", "<h2>")] == [2, 1, 2]
    assert run("draw", "examples/pods.yaml", *NODE, "--out", str(drawing)).returncode == 0
    ElementTree.parse(drawing)
    assert drawing.read_text().count('class="m"') == 28
    text = run("draw", "examples/pods.yaml", *NODE).stdout
    assert "After: with default/database, with default/trading" in text
    assert "default/too-wide refused (TopologyAffinityError)" in text
    assert "Before" not in text, "an empty node is not a picture"


@pytest.mark.slow
def test_admit_writes_the_picture_too(tmp_path: Path) -> None:
    """`admit --out` writes the node after, CPUs of the new pods framed; with an unknown suffix nothing is admitted."""
    drawing = tmp_path / "after.svg"
    result = run("admit", "examples/pods.yaml", *NODE, "--out", str(drawing), "-o", "json")
    assert (result.returncode, drawing.read_text().count('class="m"')) == (1, 28)
    wrong = run("admit", "examples/pods.yaml", *NODE, "--out", str(tmp_path / "after.gif"))
    assert (wrong.returncode, wrong.stdout) == (2, "")


@pytest.mark.slow
def test_draw_evicts(tmp_path: Path) -> None:
    """--evict removes a running pod by its name; an unknown name is an error that lists the pods."""
    arguments = ("draw", *NODE, "--pods", "examples/pods.yaml", "--evict")
    assert "After: without default/database" in run(*arguments, "default/database").stdout
    result = run(*arguments, "nobody")
    assert result.returncode == 2
    assert "default/database" in result.stderr.splitlines()[-1]


@pytest.mark.slow
def test_file_names_say_the_form(tmp_path: Path) -> None:
    """A text file has no colours, and an unknown suffix is refused before anything is drawn."""
    text = tmp_path / "node.txt"
    assert run("draw", "--machine", "laptop-i5-8250u", "--out", str(text)).returncode == 0
    assert "\x1b" not in text.read_text()
    result = run("draw", "--machine", "laptop-i5-8250u", "--out", str(tmp_path / "node.png"))
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "--out: unknown file type (use .svg, .html or .txt, or give -o)" in result.stderr


def one_running(folder: Path) -> Path:
    """Write a manifest of a pod that owns four CPUs."""
    file = folder / "running.yaml"
    amounts = "{limits: {cpu: 4, memory: 1Gi}}"
    containers = f"[{{name: c, image: i, resources: {amounts}}}]"
    file.write_text(f"kind: Pod\napiVersion: v1\nmetadata: {{name: old}}\nspec: {{containers: {containers}}}")
    return file


def write_state(directory: Path, *cpus: str) -> None:
    node = make_node(SMALL)
    for number, amount in enumerate(cpus):
        assert node.admit(make_pod(f"pod-{number}", ("main", amount))).admitted
    for name, data in node.files.items():
        (directory / name).write_bytes(data)


def test_watch_follows_the_files(tmp_path: Path) -> None:
    """The picture is drawn again when a state file changed, and only then; a damaged file is reported."""
    options = {
        "source": (SMALL,),
        "state_path": tmp_path,
        "overrides": ("cpuManagerPolicy=static", "reservedSystemCPUs=0", "topologyManagerPolicy=restricted"),
    }
    write_state(tmp_path, "2")
    steps = iter(["same", "more", "damage", "end"])
    shown: list[str] = []

    def wait() -> None:
        step = next(steps)
        if step == "more":
            write_state(tmp_path, "2", "3")
        elif step == "damage":
            (tmp_path / "cpu_manager_state").write_text("{")
        elif step == "end":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        follow(lambda: current_text(options), lambda: stamps(tmp_path), shown.append, wait)
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", text) for text in shown]
    assert len(plain) == 3
    assert "(state)/pod-0/main" in plain[0]
    assert "pod-1" not in plain[0]
    assert "(state)/pod-1/main" in plain[1]
    assert plain[2].startswith(f"podslice: {tmp_path}/cpu_manager_state: a kubelet would not start with it")


def test_watch_needs_a_directory() -> None:
    """--watch without --state is a mistake of one line."""
    result = run("draw", "--watch")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "--state" in result.stderr


@pytest.mark.slow
def test_draw_a_resize(tmp_path: Path) -> None:
    """Resizes are part of the picture after, whose title names those granted and those not."""
    drawing = tmp_path / "node.svg"
    elastic = ("--config", "examples/elastic/kubelet.yaml", "--policy", "examples/elastic/policy.yaml")
    node = ("--from", "numa:2(memory=32GB) core:8 pu:2", *elastic)
    running = ("--pods", "examples/elastic/pods.yaml")
    shrink = ("--resize", "examples/elastic/shrink.yaml")
    text = run("draw", *node, *running, "--resize", "examples/elastic/grow.yaml", *shrink).stdout
    assert "After: default/db not resized (Deferred), default/db not resized (Infeasible)" in text
    smaller = tmp_path / "six.yaml"
    smaller.write_text(Path("examples/elastic/grow.yaml").read_text().replace('"8"', '"6"'))
    assert run("draw", *node, *running, "--resize", str(smaller), "--out", str(drawing)).returncode == 0
    ElementTree.parse(drawing)
    assert drawing.read_text().count("beyond what was promised at its admission") == 2
    assert drawing.read_text().count('class="m"') == 2
