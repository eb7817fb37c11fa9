"""The local page: its answers, and the requests that it refuses."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator

import pytest

from podslice import InputError, Node
from podslice.serve.app import App, ShownNode
from podslice.service.http.guard import LARGEST_BODY, Request
from podslice.service.http.page_server import PageServer, check_binding
from tests.clock import PATIENCE
from tests.conftest import make_node, make_pod
from tests.render.test_pictures import Validator
from tests.shell import podslice as run

POD = """
apiVersion: v1
kind: Pod
metadata: {name: %s}
spec: {containers: [{name: c, resources: {limits: {cpu: "%s", memory: 1Gi}}}]}
"""
LOCAL = {"host": "127.0.0.1:8036"}
OURS = {**LOCAL, "x-podslice": "1"}
TOKEN = "0123456789abcdef"


def small_node() -> Node:
    node = make_node("pack:1 numa:2(memory=16GB) core:4 pu:2", topology_manager_policy="single-numa-node")
    assert node.admit(make_pod("runs", ("main", "4"))).admitted
    return node


@pytest.fixture
def app() -> App:
    node = small_node()
    return App(lambda: ShownNode(node), lambda: "fixed")


def post(app: App, body: str, headers: dict[str, str] = OURS) -> tuple[int, str]:
    response = app.respond(Request("POST", "/explain", headers=headers, body=body.encode()))
    return response.status, response.body.decode()


def test_page_and_node(app: App) -> None:
    """The page is valid, loads nothing, allows only its own script; the node comes with a picture and an ETag."""
    response = app.respond(Request("GET", "/", headers=LOCAL))
    Validator().check(response.body.decode())
    policy = dict(response.headers)["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    nonce = policy.split("'nonce-")[1].split("'")[0]
    assert f'nonce="{nonce}"' in response.body.decode()
    node = app.respond(Request("GET", "/node", headers=LOCAL))
    assert "default/runs/main" in node.body.decode()
    again = app.respond(Request("GET", "/node", headers={**LOCAL, "if-none-match": dict(node.headers)["ETag"]}))
    assert (again.status, again.body) == (304, b"")


def test_verdict_picture_and_fixes(app: App) -> None:
    """An admitted pod comes with a picture of its frames, a refused one with fixes; the node stays as it is."""
    status, text = post(app, POD % ("fits", "4"))
    assert status == 200
    assert "would be admitted" in text
    assert text.count('class="changed"') == 2 * 4, "each CPU in the drawing for a screen and in that for a telephone"
    status, text = post(app, POD % ("big", "12"))
    assert status == 200
    assert "would be refused: TopologyAffinityError" in text
    assert "Ask for 8 instead of 12 CPUs in container c" in text
    assert "fits" not in app.respond(Request("GET", "/node", headers=LOCAL)).body.decode()


def test_pods_are_placed_one_after_the_other(app: App) -> None:
    """A second pod finds the first one there, so two that fit alone need not both fit; the node stays as it is."""
    both = POD % ("one", "7") + "---" + POD % ("two", "7")
    status, text = post(app, both)
    assert status == 200
    assert (text.count("would be admitted"), text.count("would be refused")) == (1, 1)
    assert post(app, POD % ("two", "7"))[1].count("would be admitted") == 1


@pytest.mark.parametrize("body", ["", "kind: Pod", "{", "kind: Service", "\x00", "a: [1"])
def test_mistakes_are_said(app: App, body: str) -> None:
    """Text that is not a pod gives one sentence and status 422; hostile names are escaped."""
    status, text = post(app, body)
    assert status == 422
    assert 'class="problem"' in text
    status, text = post(app, POD % ('"<script>alert(1)</script>"', "1"))
    assert status == 422
    assert "<script" not in text


def test_strangers_are_refused(app: App) -> None:
    """Other hosts' names, posts from other pages, unknown paths and methods, and large bodies."""
    assert app.respond(Request("GET", "/", headers={"host": "evil.example"})).status == 403
    assert app.respond(Request("GET", "/", headers={})).status == 403
    assert app.respond(Request("GET", "/", headers={"host": "localhost:1"})).status == 200
    assert app.respond(Request("GET", "/", headers={"host": "[::1]:1"})).status == 200
    assert post(app, POD % ("x", "1"), LOCAL)[0] == 403
    assert post(app, "x" * (LARGEST_BODY + 1))[0] == 413
    assert app.respond(Request("GET", "/etc/passwd", headers=LOCAL)).status == 404
    assert app.respond(Request("PUT", "/node", headers=LOCAL)).status == 405


def test_token() -> None:
    """With a token no request gets in without it; the page turns it into a cookie and removes it from the address."""
    node = small_node()
    app = App(lambda: ShownNode(node), lambda: "fixed", token=TOKEN)
    elsewhere = {"host": "node7.example"}
    assert app.respond(Request("GET", "/", headers=elsewhere)).status == 401
    assert app.respond(Request("GET", "/", query="token=wrong", headers=elsewhere)).status == 401
    assert app.respond(Request("GET", "/node", query=f"token={TOKEN}", headers=elsewhere)).status == 401
    login = app.respond(Request("GET", "/", query=f"token={TOKEN}", headers=elsewhere))
    assert (login.status, dict(login.headers)["Location"]) == (303, ".")
    cookie = dict(login.headers)["Set-Cookie"]
    assert "HttpOnly" in cookie
    assert app.respond(Request("GET", "/node", headers={**elsewhere, "cookie": cookie.split(";")[0]})).status == 200


def test_changes_are_seen() -> None:
    """When the state changes, the node is built again; a state that cannot be read is reported."""
    stamps = iter([1, 1, 2, 3])
    made: list[int] = []

    def make() -> ShownNode:
        made.append(1)
        if len(made) == 3:
            raise InputError("is damaged", source="cpu_manager_state")
        return ShownNode(small_node())

    app = App(make, lambda: next(stamps))
    answers = [app.respond(Request("GET", "/node", headers=LOCAL)) for _ in range(4)]
    assert len(made) == 3
    assert len({dict(answer.headers)["ETag"] for answer in answers}) == 3
    assert "cpu_manager_state: is damaged" in answers[3].body.decode()


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.0.2.1", "node7.example"])
def test_only_loopback_without_token(address: str) -> None:
    """Other addresses need a token, and a token must not be short."""
    with pytest.raises(InputError, match="loopback"):
        check_binding(address, "")
    with pytest.raises(InputError, match="too few"):
        check_binding(address, "short")
    check_binding(address, TOKEN)
    check_binding("127.0.0.1", "")
    check_binding("::1", "")


@pytest.mark.slow
def test_command_refuses_other_addresses() -> None:
    """The command reports in one line why it does not start."""
    result = run("serve", "--machine", "laptop-i5-8250u", "--address", "0.0.0.0")
    assert (result.returncode, result.stderr.count("\n")) == (2, 1)
    assert "--token" in result.stderr


@pytest.fixture
def server(app: App) -> Iterator[PageServer]:
    with PageServer("127.0.0.1", 0, app) as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.05})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def test_over_a_socket(server: PageServer) -> None:
    """Requests arrive over HTTP, several on one connection; bodies without or with a wrong length are refused."""
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    for _ in range(2):
        connection.request("GET", "/node")
        response = connection.getresponse()
        assert response.status == 200
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert b"default/runs" in response.read()
    connection.request("POST", "/explain", POD % ("x", "2"), {"X-Podslice": "1"})
    assert b"would be admitted" in connection.getresponse().read()
    connection.request("POST", "/explain", headers={"X-Podslice": "1", "Content-Length": "99999999"})
    assert connection.getresponse().status == 413
    connection.close()


def test_port_in_use(server: PageServer) -> None:
    """A taken port is a mistake of one line, not a traceback."""
    with pytest.raises(InputError, match="cannot listen"):
        PageServer("127.0.0.1", server.server_address[1], server.app)
