"""The local page in a real browser: live, by keyboard, by dropping a file."""

from __future__ import annotations

import os
import threading
from functools import partial
from pathlib import Path

import pytest

from podslice.cli.options.node import start_node
from podslice.draw.command import stamps
from podslice.serve.app import App, ShownNode
from podslice.service.http.page_server import PageServer
from tests.cli.test_draw import SMALL, write_state
from tests.serve.browser import CHROMIUM, Browser
from tests.serve.test_app import POD

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
OVERRIDES = ("cpuManagerPolicy=static", "reservedSystemCPUs=0", "topologyManagerPolicy=restricted")


@pytest.mark.slow
def test_page_in_chromium(tmp_path: Path) -> None:
    """The node appears and follows its files; Ctrl+Enter and a dropped file get answers; Tab reaches everything in
    order; picking an owner dims the others; nothing in the console is an error. PODSLICE_SHOTS keeps screenshots."""
    state = tmp_path / "state"
    state.mkdir()
    write_state(state, "2")
    node = partial(start_node, source=(SMALL,), state_path=state, overrides=OVERRIDES)
    app = App(lambda: ShownNode(node().node), lambda: stamps(state))
    with PageServer("127.0.0.1", 0, app) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        try:
            with Browser(tmp_path / "profile") as browser:
                _use(browser, server.url, state)
                if "PODSLICE_SHOTS" in os.environ:
                    for dark in (False, True):
                        name = f"serve-{'dark' if dark else 'light'}.png"
                        browser.screenshot(Path(os.environ["PODSLICE_SHOTS"]) / name, 1280, 1900, dark=dark)
                assert browser.errors == []
        finally:
            server.shutdown()
            thread.join()


def _use(browser: Browser, url: str, state: Path) -> None:
    browser.call("Page.navigate", url=url)
    browser.wait_for("document.querySelector('#node svg') !== null")
    assert "(state)/pod-0/main" in browser.evaluate("document.querySelector('#node').innerText")
    write_state(state, "2", "3")
    browser.wait_for("document.querySelector('#node').innerText.includes('(state)/pod-1/main')")

    browser.evaluate("document.body.focus()")
    browser.key("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    browser.key("Tab")
    assert browser.evaluate("document.activeElement.id") == "pod"
    browser.call("Input.insertText", text=POD % ("big", "16"))
    browser.key("Enter", control=True)
    browser.wait_for("document.querySelector('#answer').innerText.includes('would be refused')")
    assert "best first" in browser.evaluate("document.querySelector('#answer').innerText")
    assert browser.evaluate("document.activeElement.id") == "answer"

    browser.evaluate(
        "(() => { const data = new DataTransfer();"
        f"data.items.add(new File([{(POD % ('dropped', '2'))!r}], 'pod.yaml'));"
        "document.dispatchEvent(new DragEvent('drop', {dataTransfer: data, bubbles: true, cancelable: true})) })()"
    )
    browser.wait_for("document.querySelector('#answer').innerText.includes('default/dropped would be admitted')")
    assert browser.evaluate("document.querySelectorAll('#answer .wide rect.changed').length") == 2

    browser.evaluate("document.querySelector('#node tr[data-o=\"1\"]').focus()")
    assert browser.evaluate("document.querySelectorAll('#node .wide.pick').length") == 1
    assert browser.evaluate("document.querySelectorAll('#node .wide .c.on').length") == 3 + 1
    browser.evaluate("document.activeElement.blur()")
    assert browser.evaluate("document.querySelectorAll('#node svg.pick').length") == 0
