"""Kubeconfig files, proxies and credential plugins that are odd: one line, exit code 2, and no secret is told."""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from podslice.kubectl import credentials
from tests.kubectl.conftest import Plugin
from tests.trials.test_odd_servers import PODS, TOKEN, http, odd_server, one_line, plugin, told, use

__all__ = ["plugin"]

USERS: dict[str, Any] = {
    "token with a line break": {"token": f"{TOKEN}\r\nX-Evil: 1"},
    "token with a space": {"token": f"{TOKEN} x"},
    "token of letters that no header has": {"token": f"{TOKEN}\u2028é"},
    "as with a line break": {"token": TOKEN, "as": "a\r\nX-Evil: 1"},
    "groups with a line break": {"token": TOKEN, "as": "a", "as-groups": ["b\nc"]},
    "token of numbers": {"token": [TOKEN]},
    "user is a list": [TOKEN],
    "exec without command": {"exec": {}},
    "exec of nothing": {"exec": {"command": "", "apiVersion": "client.authentication.k8s.io/v1"}},
    "exec with NUL": {"exec": {"command": "x\0", "apiVersion": "client.authentication.k8s.io/v1"}},
    "exec with an odd variable": {"exec": {"command": "true", "apiVersion": "client.authentication.k8s.io/v1",
                                  "env": [{"name": "A=\0", "value": "x"}]}},
    "exec is a text": {"exec": "login"},
}  # fmt: skip


@pytest.mark.parametrize("name", USERS)
@pytest.mark.process
def test_an_odd_user(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """An invalid user is reported without its token, and nothing is sent."""
    with odd_server(lambda path, send: send(http(200, PODS))) as server:
        use(tmp_path, monkeypatch, f"http://127.0.0.1:{server.port}", user=USERS[name])
        answer = plugin("top")
        assert (answer.returncode, answer.stdout, len(answer.stderr.splitlines())) == (2, "", 1)
        assert TOKEN not in answer.stderr
        assert server.heads == []


def test_unknown_fields_harm_nobody(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A newer kubectl's file is read as far as it is understood."""
    with odd_server(lambda path, send: send(http(200, PODS))) as server:
        user = {"token": TOKEN, "from-the-future": [1]}
        use(tmp_path, monkeypatch, f"http://127.0.0.1:{server.port}", user=user, cluster={"newer": {"a": 1}})
        assert "no agent runs in namespace podslice" in one_line(plugin, "top")


CONFIGS = (
    "", "[]", "x", "3", "null", "{", "\0", "- a\n- b", "clusters: {a: b}", "users: [null]", "contexts: [[1]]",
    "current-context: [1]", "a: &a [*a]", "{" * 20_000, "kind: [Config]", "\ufeff", "a: 1\na: 2", "--- \n---\n",
)  # fmt: skip


@pytest.mark.parametrize("text", CONFIGS)
def test_a_file_that_is_no_kubeconfig(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """Any text in place of a kubeconfig."""
    (tmp_path / "config").write_text(text)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    answer = plugin("top")
    assert (answer.returncode, answer.stdout, len(answer.stderr.splitlines())) == (2, "", 1), answer


@pytest.mark.parametrize("server", [
    "https://ann:tell-nobody-eyJhbGciOi@127.0.0.1:1", "ann:tell-nobody-eyJhbGciOi@127.0.0.1:1",
    "https://ann:tell-nobody-eyJhbGciOi@127.0.0.1:x", "ftp://ann:tell-nobody-eyJhbGciOi@h", "https://a b", "https://",
    "https://[::1", "https://h/a b", "https://\u2028", "https://" + "x" * 300, "https://a..b", "http://127.0.0.1:1/\x7f",
])  # fmt: skip
def test_an_odd_server_in_the_file(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str
) -> None:
    """An invalid address is reported without a password in it."""
    use(tmp_path, monkeypatch, server)
    one_line(plugin, "top")


@pytest.mark.parametrize("said", [b"garbage\r\n\r\n", b"", told(407, TOKEN), b"HTTP/1.1 200 " + b"x" * 100_000])
def test_an_odd_proxy(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes) -> None:
    """A proxy that is none; its password is not told."""
    with odd_server(lambda path, send: send(said)) as proxy:
        url = f"http://ann:{TOKEN}@127.0.0.1:{proxy.port}"
        use(tmp_path, monkeypatch, "https://k8s.invalid", cluster={"proxy-url": url})
        one_line(plugin, "top")
        assert proxy.heads


PRINTED: dict[str, tuple[str, str]] = {
    "nothing": ("", "printed no ExecCredential"),
    "garbage": ("sys.stdout.buffer.write(bytes(range(256)))", "printed no ExecCredential"),
    "a list": ("print('[1]')", "printed no ExecCredential"),
    "deep": ("print('[' * 100000)", "printed no ExecCredential"),
    "status is text": ("tell('x')", "printed no ExecCredential"),
    "status is null": ("tell(None)", "printed no ExecCredential"),
    "token is a list": ("tell({'token': [SECRET]})", "printed neither a token"),
    "token of two lines": ("tell({'token': SECRET + chr(10) + 'x'})", "printed a token with spaces"),
    "a lot": ("sys.stdout.write(SECRET * 1000000)", "printed more than 1 MiB"),
    "for ever": ("while True: sys.stdout.write('x' * 65536)", "printed more than 1 MiB"),
    "many errors": ("sys.stderr.write('e' * 10000000); sys.exit(3)", "ended with 3: eee"),
    "killed": ("os.kill(os.getpid(), 9)", "ended with -9"),
}


def login(folder: Path, script: str) -> dict[str, Any]:
    program = folder / "login"
    version = "client.authentication.k8s.io/v1"
    program.write_text(
        f"#!{sys.executable} -S\nimport json, os, sys, time\nSECRET = {TOKEN!r}\n"
        f"def tell(status): print(json.dumps({{'apiVersion': {version!r}, 'status': status}}))\n{script}"
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": version, "command": "./login"}}


@pytest.mark.parametrize("name", PRINTED)
@pytest.mark.process
def test_an_odd_credential_plugin(plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One that prints garbage, too much or nothing, or ends badly."""
    script, said = PRINTED[name]
    use(tmp_path, monkeypatch, "http://127.0.0.1:1", user=login(tmp_path, script))
    assert said in one_line(plugin, "top")


@pytest.mark.parametrize("script", ["time.sleep(100)", "sys.stdout.close(); os.close(1); time.sleep(100)"])
@pytest.mark.process
def test_a_credential_plugin_that_hangs(
    plugin: Plugin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    """It is ended, also where it has closed what it prints to."""
    monkeypatch.setattr(credentials, "_PLUGIN_SECONDS", 0.4)
    note = f"open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()))\n"
    use(tmp_path, monkeypatch, "http://127.0.0.1:1", user=login(tmp_path, note + script))
    assert "did not answer within 0 s (log in again)" in one_line(plugin, "top")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
