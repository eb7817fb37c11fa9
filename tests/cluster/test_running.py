"""Options that `podslice cluster` refuses: listeners that others reach without authentication."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from e2e.certificates import OPENSSL, make

from podslice.cluster.journal.journals import Journals
from podslice.cluster.page.listening import PageListening
from podslice.cluster.page.page_host import PageHost
from podslice.cluster.running import ClusterOptions, check
from podslice.replica.rulebook import Rulebook
from podslice.service.certificates import CertificateFiles
from podslice.values.errors import InputError
from tests.cluster.bench import wire_service
from tests.cluster.fake_api import FakeClusterApi
from tests.cluster.pagebench import PageCluster

pytestmark = pytest.mark.process

BOTH = CertificateFiles("c", "k", "a")


@pytest.mark.parametrize(
    ("options", "path", "text"),
    [
        (ClusterOptions(address=""), "--address", "is empty"),
        (ClusterOptions(address="here"), "--address", "is not an address"),
        (ClusterOptions(address="127.0.0.1:99999"), "--address", "is not an address"),
        (ClusterOptions(address="0.0.0.0:9098"), "--address", "not a loopback address"),
        (ClusterOptions(address="0.0.0.0:9098", tls=CertificateFiles("c", "k")), "--address", "not a loopback address"),
        (ClusterOptions(journal_address="127.0.0.1:9097"), "--journal-address", "there must be a certificate"),
        (ClusterOptions(tls=CertificateFiles("c")), "--tls-cert, --tls-key", "neither is of use without the other"),
        (ClusterOptions(tls=BOTH), "--tls-cert", "cannot be read"),
        (ClusterOptions(address="0.0.0.0:9098", tls=BOTH), "--tls-cert", "cannot be read"),
        (ClusterOptions(metrics_address="x"), "--metrics-address", "is not an address"),
        (ClusterOptions(metrics_address="0.0.0.0:9099"), "--metrics-address", "not a loopback address"),
        (ClusterOptions(page_address="x"), "--page-address", "is not an address"),
        (ClusterOptions(page_address="0.0.0.0:9101"), "--page-address", "not a loopback address"),
        (ClusterOptions(page_address="0.0.0.0:9101", page_token_file="{token}"), "--page-address", "not a loopback"),
        (ClusterOptions(page_address="127.0.0.1:9101", page_token_file="{short}"), "--page-token-file", "no token"),
        (ClusterOptions(page_token_file="nowhere"), "--page-token-file", "cannot be read"),
    ],
)
def test_refused(options: ClusterOptions, path: str, text: str, tmp_path: Path) -> None:
    """One line that names the option and what to do."""
    for name, token in (("token", "0123456789abcdef"), ("short", "secret")):
        (tmp_path / name).write_text(token)
        file = options.page_token_file.replace(f"{{{name}}}", str(tmp_path / name))
        options = options._replace(page_token_file=file)
    with pytest.raises(InputError) as error:
        check(options)
    assert error.value.path == path
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_loopback_needs_nothing() -> None:
    """The defaults start without a certificate, and metrics may be off."""
    found = check(ClusterOptions(metrics_address=""))
    assert (found.listening.host, found.listening.port, found.listening.tls) == ("127.0.0.1", 9098, None)
    assert (found.listening.metrics, found.journals, found.certificate, found.page) == (None, None, None, None)
    page = check(ClusterOptions(page_address="localhost:9101")).page
    assert page is not None
    assert (page.host, page.port, page.tls, page.token_file) == ("localhost", 9101, None, "")


@pytest.mark.skipif(OPENSSL is None, reason="needs openssl (apt-get install openssl)")
def test_beyond_the_loopback(tmp_path: Path) -> None:
    """With a certificate and an authority for clients others may reach it, and must show a certificate."""
    made = make(tmp_path)
    tls = CertificateFiles(str(made.certificate), str(made.key), str(made.authority))
    found = check(ClusterOptions(address="0.0.0.0:9098", journal_address="0.0.0.0:9097", tls=tls))
    assert found.listening.tls is not None
    assert found.listening.tls.verify_mode.name == "CERT_REQUIRED"
    assert found.journals == ("0.0.0.0", 9097)
    assert found.certificate is not None
    assert found.certificate.pair == (made.certificate.read_bytes(), made.key.read_bytes())
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    options = ClusterOptions(page_address="0.0.0.0:9101", page_token_file=str(token), tls=tls)
    page = check(options).page
    assert page is not None
    assert page.tls is not None
    with pytest.raises(InputError, match="has no certificate: no PEM block"):
        check(options._replace(tls=CertificateFiles(str(token), str(token))))


@pytest.mark.skipif(OPENSSL is None, reason="needs openssl (apt-get install openssl)")
def test_metrics_are_served_over_tls(tmp_path: Path) -> None:
    """Beyond the loopback metrics need TLS; on it no certificate is needed."""
    made = make(tmp_path)
    tls = CertificateFiles(str(made.certificate), str(made.key))
    assert check(ClusterOptions(tls=tls)).listening.metrics_tls is None
    listening = check(ClusterOptions(metrics_address="0.0.0.0:9099", tls=tls)).listening._replace(
        port=0, metrics=("127.0.0.1", 0)
    )
    trusting = ssl.create_default_context(cafile=str(made.authority))

    def read(scheme: str, port: int) -> bytes:
        url, context = f"{scheme}://127.0.0.1:{port}/metrics", trusting if scheme == "https" else None
        with urllib.request.urlopen(url, timeout=60, context=context) as answer:
            return bytes(answer.read())

    async def main() -> None:
        service = wire_service(FakeClusterApi(), Journals(Rulebook(), (), caller=nobody, trouble=lambda *_: None))
        await service.start(listening)
        try:
            assert b"podslice_cluster_nodes 0.0" in await asyncio.to_thread(read, "https", service.metrics_port)
            with pytest.raises(OSError):  # noqa: PT011  hung up on, in whatever words
                await asyncio.to_thread(read, "http", service.metrics_port)
        finally:
            await service.stop()

    asyncio.run(main())


async def nobody(token: str) -> str:
    return ""


@pytest.mark.skipif(OPENSSL is None, reason="needs openssl (apt-get install openssl)")
def test_the_page_is_served_beside_the_service(tmp_path: Path) -> None:
    """Over TLS to clients with the token in the file, also a new one; fragmentation is sampled meanwhile, and after it
    is closed no client is served."""
    made, token = make(tmp_path), tmp_path / "token"
    token.write_text("0123456789abcdef")
    cluster = PageCluster()
    cluster.node("n", 4)
    trusting = ssl.create_default_context(cafile=str(made.authority))

    def ask(url: str, given: str) -> int:
        asked = urllib.request.Request(f"{url}nodes", headers={"X-Podslice-Token": given})
        try:
            with urllib.request.urlopen(asked, timeout=60, context=trusting) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code

    async def main() -> None:
        host = PageHost(cluster.placing, failed=lambda where, what: None)
        host.start(PageListening("127.0.0.1", 0, made.server(), str(token)))
        try:
            assert host.url.startswith("https://127.0.0.1:")
            assert await asyncio.to_thread(ask, host.url, "0123456789abcdef") == 200
            token.write_text("fedcba9876543210")
            assert await asyncio.to_thread(ask, host.url, "0123456789abcdef") == 401
            assert await asyncio.to_thread(ask, host.url, "fedcba9876543210") == 200
            token.write_text("")
            assert await asyncio.to_thread(ask, host.url, "fedcba9876543210") == 503
            assert len(host.queries.history.points) == 1
        finally:
            await host.close()
        with pytest.raises(OSError, match="refused"):
            await asyncio.to_thread(ask, host.url, "fedcba9876543210")

    asyncio.run(main())


def test_without_what_claims_need() -> None:
    """The service starts, and its commands answer, where the extra `claims` is not installed."""
    blocked = "import sys; sys.modules['cel_expr_python'] = None; from podslice.entry import main; main()"
    for arguments in (["cluster", "--help"], ["cluster", "--address", "here"]):
        answer = subprocess.run([sys.executable, "-c", blocked, *arguments], capture_output=True, text=True)
        assert "CEL" not in answer.stderr
        assert "Traceback" not in answer.stderr
        assert answer.returncode == (0 if arguments[-1] == "--help" else 2)


def test_what_a_running_service_does_not_import() -> None:
    """Modules that are not needed take no memory: the page, logs and terminals for people, YAML, clients for
    configurations."""
    unwanted = ["rich", "structlog", "yaml", "lightkube", "httpx2", "google.protobuf", "podslice.advise",
                "podslice.cluster.page.app", "podslice.kubectl", "podslice.agent.settings"]  # fmt: skip
    code = (
        "import sys, podslice.cli.main, podslice.cluster.command, podslice.cluster.running\n"
        f"print([name for name in {unwanted!r} if name in sys.modules])"
    )
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "[]"
