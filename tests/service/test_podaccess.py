"""How a program in a pod reaches its API server: the files that a kubelet keeps there, and nothing else."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from e2e.certificates import OPENSSL, make

from podslice.service import podaccess
from podslice.service.answers import ApiError
from podslice.service.http.apiconnection import AnswerError, ApiConnection
from podslice.service.podaccess import PodToken, pod_access, pod_namespace
from podslice.values.errors import InputError

needs_openssl = pytest.mark.skipif(OPENSSL is None, reason="needs openssl (apt-get install openssl)")


def service_account(folder: Path) -> Path:
    """The folder as a kubelet fills it, with the authority of the certificate that is beside it."""
    made = make(folder / "certificates")
    account = folder / "serviceaccount"
    account.mkdir()
    (account / "token").write_text("first\n")
    (account / "ca.crt").write_bytes(made.authority.read_bytes())
    return account


@needs_openssl
@pytest.mark.parametrize(
    ("host", "server"), [("10.0.0.1", "https://10.0.0.1:443"), ("fd00::1", "https://[fd00::1]:443")]
)
@pytest.mark.process
def test_where_it_is(tmp_path: Path, host: str, server: str) -> None:
    """The environment names the server; its certificate must be of the cluster's authority."""
    found = pod_access({"KUBERNETES_SERVICE_HOST": host, "KUBERNETES_SERVICE_PORT": "443"}, service_account(tmp_path))
    assert found is not None
    assert found.server == server
    assert found.trust.context.verify_mode.name == "CERT_REQUIRED"
    assert found.trust.context.check_hostname
    assert len(found.trust.context.get_ca_certs()) == 1


def test_no_pod(tmp_path: Path) -> None:
    """Without the files, or without the environment, it is not a pod; an authority that is missing is a trouble."""
    environment = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}
    assert pod_access(environment, tmp_path) is None
    (tmp_path / "token").write_text("t")
    assert pod_access({}, tmp_path) is None
    assert pod_access({"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, tmp_path) is None
    with pytest.raises(FileNotFoundError):
        pod_access(environment, tmp_path)


def test_its_namespace(tmp_path: Path) -> None:
    """It is in a file beside the token; without that it is not known."""
    assert pod_namespace(tmp_path) == ""
    (tmp_path / "namespace").write_text("other")
    assert pod_namespace(tmp_path) == "other"


def test_a_token_that_was_rotated(tmp_path: Path) -> None:
    """It is read once, again when it was not accepted, and an empty file is not a token."""
    file = tmp_path / "token"
    file.write_text("first\n")
    token = PodToken(file)
    assert asyncio.run(token.header(False)) == "Bearer first"
    file.write_text("second")
    assert asyncio.run(token.header(False)) == "Bearer first"
    assert asyncio.run(token.header(True)) == "Bearer second"
    file.write_text("")
    with pytest.raises(ApiError, match="holds no token"):
        asyncio.run(token.header(True))


@needs_openssl
@pytest.mark.process
def test_asking_from_a_pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection takes the pod's way before any configuration, shows the token, and reads a rotated one again."""
    account = service_account(tmp_path)
    monkeypatch.setattr(podaccess, "SERVICE_ACCOUNT", account)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    shown: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while head := await reader.readuntil(b"\r\n\r\n"):
            lines = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:-2])
            shown.append(lines["Authorization"])
            good = shown[-1] == "Bearer second"
            writer.write(
                f"HTTP/1.1 {'200 OK' if good else '401 Unauthorized'}\r\nContent-Length: 2\r\n\r\n{{}}".encode()
            )

    async def main() -> None:
        made = make(tmp_path / "other")
        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=made.server())
        (account / "ca.crt").write_bytes(made.authority.read_bytes())
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
        monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.sockets[0].getsockname()[1]))
        connection = ApiConnection(path="cluster")
        try:
            with pytest.raises(AnswerError, match="401"):
                await connection.ask("/x")
            (account / "token").write_text("second")
            assert await connection.ask("/x") == b"{}"
        finally:
            await connection.close()
            server.close()

    asyncio.run(main())
    assert shown[-1] == "Bearer second"
    assert set(shown[:-1]) == {"Bearer first"}
    (account / "ca.crt").write_text("nonsense")
    with pytest.raises(InputError, match=r"cluster: no access to an API server: .*remedy|run in a pod"):
        ApiConnection(path="cluster")
