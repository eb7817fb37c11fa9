"""`podslice draw` as a person uses it."""

from __future__ import annotations

import os
import re
import sys
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
    assert run("draw", "examples/pods.yaml", *NODE, *running, "--out", str(page)).returncode == 1
    text = page.read_text()
    assert [text.count(part) for part in ('class="picture"', "NUMA distances", "<h2>")] == [2, 2, 2]
    written = run("draw", "examples/pods.yaml", *NODE, "--out", str(drawing))
    assert (written.returncode, written.stdout) == (1, ""), "a pod of the file is refused"
    assert written.stderr.endswith(f"podslice: {drawing} is written\n")
    ElementTree.parse(drawing)
    assert drawing.read_text().count('class="changed"') == 28
    text = run("draw", "examples/pods.yaml", *NODE).stdout
    assert "After: with default/database, with default/trading" in text
    assert "default/too-wide refused (TopologyAffinityError)" in text
    assert "Before" not in text, "an empty node is not a picture"


@pytest.mark.slow
def test_admit_writes_the_picture_too(tmp_path: Path) -> None:
    """`admit --out` writes the node after, CPUs of the new pods framed; with an unknown suffix nothing is admitted."""
    drawing = tmp_path / "after.svg"
    result = run("admit", "examples/pods.yaml", *NODE, "--out", str(drawing), "-o", "json")
    assert (result.returncode, drawing.read_text().count('class="changed"')) == (1, 28)
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
    result = run("draw", "--machine", "laptop-i5-8250u", "--out", str(tmp_path / "node.gif"))
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "--out: unknown file type (use .svg, .html, .png or .txt, or give -o)" in result.stderr


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
    left = ["same", "more", "damage", "end"]
    shown: list[str] = []

    def wait() -> None:
        step = left.pop(0)
        if step == "more":
            write_state(tmp_path, "2", "3")
        elif step == "damage":
            (tmp_path / "cpu_manager_state").write_text("{")

    follow(lambda: current_text(options), lambda: stamps(tmp_path), shown.append, wait, lambda: not left)
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
    assert "Unchanged: default/db not resized (Deferred), default/db not resized (Infeasible)" in text
    assert (text.count("Socket 0"), "Before" in text) == (1, False)
    smaller = tmp_path / "six.yaml"
    smaller.write_text(Path("examples/elastic/grow.yaml").read_text().replace('"8"', '"6"'))
    assert run("draw", *node, *running, "--resize", str(smaller), "--out", str(drawing)).returncode == 0
    ElementTree.parse(drawing)
    assert drawing.read_text().count("beyond what was promised at its admission") == 2
    assert drawing.read_text().count('class="changed"') == 2


BIG = """
apiVersion: v1
kind: Pod
metadata: {name: big}
spec: {containers: [{name: main, image: i, resources: {limits: {cpu: %s, memory: 1Gi}}}]}
"""


def test_a_refused_pod_is_drawn_once_with_what_is_in_its_way(tmp_path: Path) -> None:
    """On each NUMA node: what it needs, what is free, what is missing and who has it; the node is drawn once."""
    pod = tmp_path / "big.yaml"
    pod.write_text(BIG % 5)
    running = ("--pods", str(one_running(tmp_path)))
    policies = ("--set", "cpuManagerPolicy=static", "--set", "topologyManagerPolicy=single-numa-node")
    node = ("--from", SMALL.replace("core:4", "core:3"), *policies, "--set", "reservedSystemCPUs=0,3,6,9", *running)
    answer = run("draw", str(pod), *node)
    assert answer.returncode == 1
    assert [answer.stdout.count(part) for part in ("Before", "NUMA 0 ", "NUMA 1 ", "Needs 5 CPUs")] == [0, 1, 1, 2]
    assert "Unchanged: default/big refused (TopologyAffinityError)" in answer.stdout
    assert "  ! Needs 5 CPUs, 0 free: 5 short\n" in answer.stdout
    assert "    Taken: default/old (4), reserved (2)\n" in answer.stdout
    assert "  ! Needs 5 CPUs, 4 free: 1 short\n    Taken: reserved (2)\n" in answer.stdout


def test_png(tmp_path: Path) -> None:
    """--out x.png writes an image as large as the drawing promises; -o png writes the bytes for a pipe."""
    pytest.importorskip("resvg_py", reason="PNG needs resvg-py: pip install '.[png]'")
    image = tmp_path / "node.png"
    assert run("draw", "--machine", "laptop-i5-8250u", "--out", str(image)).returncode == 0
    data = image.read_bytes()
    assert data.startswith(b"\x89PNG\r\n")
    assert int.from_bytes(data[16:20], "big") == 2 * 680


def test_png_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the library one line says what to install; no file is written."""
    monkeypatch.setitem(sys.modules, "resvg_py", None)
    answer = run("draw", "--machine", "laptop-i5-8250u", "--out", str(tmp_path / "node.png"))
    assert (answer.returncode, answer.stdout, list(tmp_path.iterdir())) == (2, "", [])
    assert re.search(r"pip install '\S+\[png\]', or write .svg", answer.stderr)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_others_may_read_a_picture(tmp_path: Path, mask: int, mode: int) -> None:
    """A new file has the mode that the umask leaves, as from any other program."""
    old = os.umask(mask)
    try:
        assert run("draw", "--machine", "laptop-i5-8250u", "--out", str(tmp_path / "node.svg")).returncode == 0
    finally:
        os.umask(old)
    assert (tmp_path / "node.svg").stat().st_mode & 0o777 == mode
