"""Pages on a telephone: whatever is wide scrolls in its own box, the page does not."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.test_draw import one_running
from tests.serve.browser import CHROMIUM, Browser
from tests.shell import podslice as run

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
NODE = ("--machine", "epyc-9654-nps4", "--config", "examples/kubelet.yaml")
COMMANDS = {
    "draw": ("draw", "examples/pods.yaml", *NODE, "--pods", "{running}"),
    "explain": ("explain", "examples/pods.yaml", *NODE),
    "whatif": ("whatif", "examples/pods.yaml", *NODE[:2], "--recommend", "--set", "cpuManagerPolicy=static",
               "--set", "reservedSystemCPUs=0-1"),
}  # fmt: skip


TEXTS_OUTSIDE = """[...document.querySelectorAll('svg.podslice:not(.swatch)')].flatMap(svg => {
const page = svg.getBoundingClientRect();
return [...svg.querySelectorAll('text')].filter(text => {
const box = (text.parentNode.querySelector(':scope > rect.inner, :scope > rect.box') || svg).getBoundingClientRect();
const own = text.getBoundingClientRect();
return own.width && (own.left < box.left || own.right > box.right + 0.5 || own.right > page.right + 0.5)})})
.map(text => text.textContent)"""
"""Texts of the drawings that run over the edge of their box."""
TALLEST_ROW = "Math.max(0, ...[...document.querySelectorAll('.owners tr')].map(row => row.offsetHeight))"


@pytest.mark.slow
def test_pages_do_not_scroll_sideways(tmp_path: Path) -> None:
    """At 420 pixels every page is as wide as the window, tables opened, in both themes. PODSLICE_SHOTS keeps
    screenshots."""
    with Browser(tmp_path / "profile") as browser:
        for name, command in COMMANDS.items():
            page = tmp_path / f"{name}.html"
            words = [word.format(running=one_running(tmp_path)) for word in command]
            assert run(*words, "--out", str(page)).returncode in (0, 1)
            browser.call("Page.navigate", url=page.as_uri())
            browser.wait_for("document.readyState === 'complete' && document.querySelector('body *') !== null")
            browser.evaluate("document.querySelectorAll('details').forEach(one => one.open = true)")
            for dark in (False, True):
                shots = Path(os.environ.get("PODSLICE_SHOTS", tmp_path))
                theme = "dark" if dark else "light"
                browser.screenshot(shots / f"{name}-420-{theme}.png", 420, 2400, dark=dark)
                assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
                assert browser.evaluate("innerWidth") == 420
                assert browser.evaluate(TEXTS_OUTSIDE) == []
                assert browser.evaluate(TALLEST_ROW) < 190, "eight facts, each on a line or two"
                browser.screenshot(shots / f"{name}-1400-{theme}.png", 1400, 1800, dark=dark)
                assert browser.evaluate(TEXTS_OUTSIDE) == []
                assert browser.evaluate(TALLEST_ROW) < 60
        assert browser.errors == []
