"""The cluster's page in a real browser with 5 000 nodes: few elements, by keyboard, wide and narrow, dark and light."""

from __future__ import annotations

import json
import os
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from podslice.cluster.page.history import measure_room_now
from tests.cluster.bench import pod_object
from tests.cluster.pagebench import PageCluster, ServedCluster, crowd, serve
from tests.serve.browser import CHROMIUM, Browser

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium (apt-get install chromium)"),
    pytest.mark.slow,
]
NODES = 5000
SHOTS = os.environ.get("PODSLICE_SHOTS", "")


@pytest.fixture(scope="module")
def cluster() -> PageCluster:
    """Half full machines, pods that wait for room that there is and for some that there is not, and an hour gone by."""
    found = crowd(NODES, 300)
    for number, cpus in enumerate((8, 8, 8, 24, 24, 30, 96, 12)):
        found.wait(f"job-{number}", cpus, priority=number % 3 * 100)
    for step in range(120):
        room = measure_room_now(found.placing.model)
        taken = 4 * (step - 60) * step % 9973
        found.queries.history.take(room._replace(free=room.free - taken), 1_700_000_100 - 30.0 * (120 - step))
    return found


@pytest.fixture(scope="module")
def site(cluster: PageCluster) -> Iterator[ServedCluster]:
    with serve(cluster) as found:
        yield found


@pytest.fixture
def browser(site: ServedCluster, tmp_path: Path) -> Iterator[Browser]:
    with Browser(tmp_path / "profile") as found:
        resize(found, 1400, 1000)
        found.call("Page.navigate", url=site.url)
        found.wait_for(
            "document.querySelectorAll('.card').length > 0 && document.querySelector('#waiting table') !== null"
        )
        yield found
        assert [one for one in found.errors if "422" not in one] == []  # a pod that is none is asked about on purpose


def resize(browser: Browser, width: int, height: int) -> None:
    browser.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)


def press(browser: Browser, key: str, code: int) -> None:
    for kind in ("keyDown", "keyUp"):
        browser.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)


def test_first_paint(browser: Browser, site: ServedCluster) -> None:
    """All nodes are known and a screenful of them is drawn; what travels is small. PODSLICE_SHOTS keeps the times."""
    assert browser.evaluate("nodes.size") == NODES
    assert 12 <= browser.evaluate("document.querySelectorAll('.card').length") <= 200
    assert browser.evaluate("document.querySelectorAll('*').length") < 3000
    asked = urllib.request.Request(site.url + "nodes", headers={"Accept-Encoding": "gzip"})
    with urllib.request.urlopen(asked, timeout=60) as reply:
        assert len(reply.read()) < 200_000
    with urllib.request.urlopen(site.url, timeout=60) as reply:
        assert len(reply.read()) < 40_000
    times: dict[str, Any] = json.loads(
        browser.evaluate(
            "JSON.stringify({paint: performance.getEntriesByName('first-contentful-paint')[0]?.startTime,"
            "nodes: performance.getEntriesByName('nodes')[0].startTime})"
        )
    )
    assert times["nodes"] > 0
    if SHOTS:
        Path(SHOTS, "cluster-page-times.json").write_text(json.dumps(times))


def test_scrolling_keeps_few_elements(browser: Browser) -> None:
    """The last node is reached by scrolling, and what is out of sight is not an element any more."""
    browser.evaluate("grid.scrollTop = grid.scrollHeight")
    browser.wait_for(f"[...document.querySelectorAll('.card b')].some(b => b.textContent === 'node-{NODES - 1:05}')")
    assert not browser.evaluate("[...document.querySelectorAll('.card b')].some(b => b.textContent === 'node-00000')")
    assert browser.evaluate("document.querySelectorAll('.card').length") <= 200


def test_by_keyboard(browser: Browser) -> None:
    """Tab reaches the nodes, arrows and End move among them and say where one is, Enter opens one and Escape comes
    back; / goes to the filter."""
    browser.evaluate("document.body.focus()")
    browser.key("Tab")
    assert browser.evaluate("document.activeElement.className") == "skip"
    for _ in range(40):
        browser.key("Tab")
        if browser.evaluate("document.activeElement.id") == "grid":
            break
    assert browser.evaluate("document.activeElement.id") == "grid"
    press(browser, "ArrowRight", 39)
    press(browser, "ArrowDown", 40)
    at = browser.evaluate("here")
    assert at == 1 + browser.evaluate("columns") > 1
    assert browser.evaluate("grid.getAttribute('aria-activedescendant')") == f"node-{at}"
    assert browser.evaluate(f"document.getElementById('node-{at}').getAttribute('aria-selected')") == "true"
    press(browser, "End", 35)
    browser.wait_for(f"document.getElementById('node-{NODES - 1}') !== null")
    assert browser.evaluate(f"document.getElementById('node-{NODES - 1}').getAttribute('aria-posinset')") == str(NODES)
    press(browser, "Home", 36)
    browser.key("Enter")
    browser.wait_for("document.querySelector('#detail svg') !== null && document.activeElement.id === 'detail'")
    press(browser, "Escape", 27)
    assert browser.evaluate("[detail.children.length, document.activeElement.id]") == [0, "grid"]
    press(browser, "/", 191)
    assert browser.evaluate("document.activeElement.id") == "named"
    browser.call("Input.insertText", text="0499")
    browser.wait_for("document.querySelectorAll('.card').length === 11")


def test_where_a_pod_could_go(browser: Browser) -> None:
    """A pasted pod is answered with nodes or reasons, nodes are marked, a reason shows its nodes only; one that waits
    is asked about by its name, and a way out is said; a pod that is none gets one line."""
    browser.evaluate("text.focus()")
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "mine"},
        "spec": pod_object("mine", "24")["spec"],
    }
    browser.call("Input.insertText", text=json.dumps(document))
    browser.key("Enter", control=True)
    browser.wait_for("answer.innerText.includes('nodes take it') && document.activeElement.id === 'answer'")
    assert browser.evaluate("document.querySelectorAll('.card.fits').length") > 0
    browser.evaluate(
        "[...answer.querySelectorAll('button.link')].find(b => b.textContent.startsWith('no NUMA')).click()"
    )
    assert browser.evaluate("document.querySelectorAll('.card.fits').length") == 0
    assert 0 < browser.evaluate("shown.length") < NODES
    browser.evaluate(
        "[...by('waiting').querySelectorAll('button')].find(b => b.textContent === 'default/job-5').click()"
    )
    browser.wait_for("answer.innerText.includes('Ask for 24 instead of 30 CPUs')")
    browser.evaluate("text.value = 'kind: [', ask()")
    browser.wait_for("answer.querySelector('.problem') !== null")


def test_changes_are_followed(browser: Browser, cluster: PageCluster) -> None:
    """A node that changes is drawn anew without asking for the others; one that leaves is gone."""
    cluster.node("node-00000", 1)
    cluster.node("node-99999", 2)
    cluster.now += 10
    browser.wait_for("document.querySelector('#node-0 span').textContent === '94 free'")
    browser.wait_for("nodes.has('node-99999')")
    cluster.placing.node_changed(cluster.placing.places.nodes["node-99999"], None)
    cluster.now += 10
    browser.wait_for("!nodes.has('node-99999')")


def test_every_width_and_scheme(browser: Browser) -> None:
    """Nothing is wider than the window at 420 and 1400 pixels, in light and dark. PODSLICE_SHOTS keeps screenshots."""
    browser.wait_for("document.querySelector('#scattered svg') !== null")
    for width, height in ((420, 2700), (1400, 1750)):
        resize(browser, width, height)
        browser.wait_for("columns === Math.max(1, Math.floor((grid.clientWidth - 8) / 196))")
        assert browser.evaluate("document.documentElement.scrollWidth") <= width
        for dark in (False, True):
            if SHOTS:
                name = f"cluster-page-{width}-{'dark' if dark else 'light'}.png"
                browser.screenshot(Path(SHOTS) / name, width, height, dark=dark)


def test_the_picture_of_the_documents(browser: Browser) -> None:
    """A question by the name of a pod that waits marks every node with its answer. With PODSLICE_SHOTS this is
    docs/cluster-page.webp."""
    resize(browser, 1200, 1250)
    browser.wait_for("document.querySelector('#scattered svg') !== null")
    browser.evaluate("askAbout('default/job-4')")
    browser.wait_for("answer.querySelector('h3')?.textContent === 'default/job-4' && !answer.hasAttribute('aria-busy')")
    marked = browser.evaluate("[...document.querySelectorAll('.card')].every(card => /fits|not/.test(card.className))")
    assert marked
    if SHOTS:
        browser.evaluate("document.activeElement.blur(), scrollTo(0, 0)")
        browser.screenshot(Path(SHOTS) / "cluster-page.webp", 1200, 1250)
