"""Renewal of certificates with real connections: those that are open go on, new ones see the new certificate."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import ssl
from pathlib import Path

import pytest
from e2e.certificates import OPENSSL, Certificates, client, make
from e2e.hollow_nodes import VERSION

from podslice.agent.journal import NodeJournal
from podslice.agent.reporter import JournalStream
from podslice.cluster import certificate_watch
from podslice.cluster.certificate_watch import CertificateWatch
from podslice.cluster.journal.journals import Journals
from podslice.cluster.page.listening import PageListening
from podslice.cluster.page.page_host import PageHost
from podslice.cluster.service import ClusterService, Listening
from podslice.node.node import Node
from podslice.replica.rulebook import Rulebook
from podslice.service.certificates import CertificateFiles, ServerCertificate, certificate_expiries
from podslice.service.clusterobjects import read_node
from podslice.service.pacing import BackOff
from podslice.service.trust import AuthorityFile, TrustedContext
from podslice.values.errors import InputError
from tests.clock import until
from tests.cluster.bench import LIKE, Bench, filter_request, ignore, node_object, pod_object, wire_service
from tests.cluster.fake_api import FakeClusterApi
from tests.cluster.recorded_log import RecordedLog

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(OPENSSL is None, reason="needs openssl (apt-get install openssl)"),
]


EXPIRY = 'podslice_cluster_certificate_expiry_timestamp_seconds{certificate="server"}'


class Secret:
    """The folder of a Secret as a kubelet mounts it: links through `..data`, which is swapped for a new folder."""

    def __init__(self, folder: Path, first: Certificates) -> None:
        self.folder, self._count = folder, 0
        folder.mkdir()
        self.put(first)
        for name in ("tls.crt", "tls.key", "ca.crt"):
            (folder / name).symlink_to(f"..data/{name}")
        paths = (str(folder / name) for name in ("tls.crt", "tls.key", "ca.crt"))
        self.files = CertificateFiles(*paths)

    def put(self, made: Certificates) -> None:
        """Write another certificate, as the kubelet does."""
        self._count += 1
        new = self.folder / f"..{self._count}"
        new.mkdir()
        for path, name in ((made.certificate, "tls.crt"), (made.key, "tls.key"), (made.authority, "ca.crt")):
            shutil.copy(path, new / name)
        (self.folder / "..new").symlink_to(new.name)
        os.rename(self.folder / "..new", self.folder / "..data")


@pytest.fixture
def two(tmp_path: Path) -> tuple[Certificates, Certificates]:
    """Certificates of two authorities."""
    name = "DNS:localhost,IP:127.0.0.1"
    return make(tmp_path / "old", name=name), make(tmp_path / "new", name=name)


async def caller(token: str) -> str:
    return token


def node_journal() -> NodeJournal:
    """The journal of a node that has just started."""
    journal = NodeJournal(version=VERSION)
    journal.begin(Node.of(LIKE.rules, LIKE.state))
    return journal


def stream(
    folder: Path, node: str, port: int, authority: Path, troubles: list[str], journal: NodeJournal | None = None
) -> JournalStream:
    """The stream of a node's agent."""
    (folder / node).write_text(node)
    return JournalStream(
        f"127.0.0.1:{port}", journal or node_journal(), node=node, token_file=folder / node,
        authority=AuthorityFile(authority, "cluster.caFile"), server_name="localhost",
        trouble=lambda where, what: troubles.append(what),
    )  # fmt: skip


def test_streams_of_agents(tmp_path: Path, two: tuple[Certificates, Certificates]) -> None:
    """A stream that is open outlives the renewal; a new one needs the new authority, and an agent with the old one says
    why it has none. The service notices by itself, and logs it."""
    old, new = two
    secret, troubles, log = Secret(tmp_path / "secret", old), list[str](), RecordedLog()

    async def main() -> None:
        certificate = ServerCertificate(secret.files)
        renewals = asyncio.Event()

        async def wait(seconds: float) -> None:
            await renewals.wait()
            renewals.clear()

        watch = CertificateWatch(certificate, log, trouble=lambda where, what: troubles.append(what), sleep=wait)
        journals = Journals(Rulebook(), {VERSION}, caller=caller, trouble=ignore)
        port = await journals.start("127.0.0.1", 0, *certificate.pair, renewed=lambda: certificate.pair)
        tasks = [asyncio.ensure_future(watch.run())]
        first = stream(tmp_path, "first", port, old.authority, troubles)
        tasks.append(asyncio.ensure_future(first.run()))
        await until(lambda: journals.is_fresh("first"))
        kept = journals.nodes["first"].stream

        secret.put(new)
        renewals.set()
        await until(lambda: [event for event, _ in log.lines][-1] == "certificate renewed")
        late = stream(tmp_path, "late", port, old.authority, troubles)
        tasks.append(asyncio.ensure_future(late.run()))
        await until(lambda: any("CERTIFICATE_VERIFY_FAILED" in one for one in troubles))
        tasks.append(asyncio.ensure_future(stream(tmp_path, "second", port, new.authority, troubles).run()))
        await until(lambda: journals.is_fresh("second"))
        assert journals.nodes["first"].stream is kept
        assert journals.is_fresh("first")
        assert "late" not in journals.nodes
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await journals.close()

    asyncio.run(main())


def handshake(port: int, authority: Path, shown: tuple[Path, Path] | None = None) -> tuple[str, ssl.SSLSocket]:
    """Connect, and return the serial number of the server's certificate with the open connection. Raises `OSError`."""
    context = ssl.create_default_context(cafile=authority)
    if shown is not None:
        context.load_cert_chain(*shown)
    plain = socket.create_connection(("127.0.0.1", port), timeout=60)
    try:
        secure = context.wrap_socket(plain, server_hostname="127.0.0.1")
    except BaseException:
        plain.close()
        raise
    found = secure.getpeercert()
    assert found is not None
    (expiry,) = certificate_expiries(ssl.DER_cert_to_PEM_cert(secure.getpeercert(True) or b"").encode(), "", "")
    assert expiry == ssl.cert_time_to_seconds(str(found["notAfter"]))
    return str(found["serialNumber"]), secure


def post(connection: ssl.SSLSocket) -> int:
    """Ask the extender something, and return the status; 0 where it hung up."""
    body = json.dumps({"Pod": {}, "NodeNames": []}).encode()
    try:
        connection.sendall(b"POST /v1/none HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        return int((connection.recv(4096).split() or [b"", b"0"])[1])
    except (OSError, IndexError):
        return 0


def test_listeners_over_http(tmp_path: Path, two: tuple[Certificates, Certificates]) -> None:
    """Extender, metrics and page show the new certificate to new connections. The connection of a scheduler goes on; a
    new one needs a certificate of the new authority, and that of the old one counts no more."""
    old, new = two
    secret = Secret(tmp_path / "secret", old)
    clients = [client(made.authority.parent, "/CN=kube-scheduler") for made in two]

    async def main() -> None:
        certificate = ServerCertificate(secret.files)
        service = wire_service(FakeClusterApi(), Bench("a").journals, certificate=certificate)
        page = PageHost(service.placing, failed=ignore)
        token = tmp_path / "token"
        token.write_text("0123456789abcdef")
        await service.start(Listening("127.0.0.1", 0, certificate.mutual, ("127.0.0.1", 0), certificate.plain))
        page.start(PageListening("127.0.0.1", 0, certificate.plain, str(token)))
        ports = [service.metrics_port, int(page.url.split(":")[2].strip("/"))]

        def connect(made: Certificates, shown: tuple[Path, Path]) -> list[tuple[str, ssl.SSLSocket]]:
            plain = [handshake(port, made.authority) for port in ports]
            return [*plain, handshake(service.port, made.authority, shown)]

        before = await asyncio.to_thread(connect, old, clients[0])
        assert await asyncio.to_thread(post, before[2][1]) == 404
        secret.put(new)
        assert certificate.look()
        after = await asyncio.to_thread(connect, new, clients[1])
        assert len({serial for serial, _ in before}) == len({serial for serial, _ in after}) == 1
        assert before[0][0] != after[0][0]
        assert await asyncio.to_thread(post, before[2][1]) == 404, "an open connection goes on"
        assert await asyncio.to_thread(post, after[2][1]) == 404
        for port in (*ports, service.port):
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.to_thread(handshake, port, old.authority, clients[0])
        # In TLS 1.3 a client learns with its first answer that it was refused.
        _, refused = await asyncio.to_thread(handshake, service.port, new.authority, clients[0])
        assert await asyncio.to_thread(post, refused) == 0
        for _, connection in (*before, *after, ("", refused)):
            connection.close()
        await page.close()
        await service.stop()

    asyncio.run(main())


def test_broken_files_change_nothing(
    tmp_path: Path, two: tuple[Certificates, Certificates], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key of another certificate keeps what is served; log and metrics say so, once, and that it is mended."""
    monkeypatch.setattr(certificate_watch, "LOOK_SECONDS", 0.001)
    old, new = two
    secret, log, troubles = Secret(tmp_path / "secret", old), RecordedLog(), list[str]()
    certificate = ServerCertificate(secret.files)
    service = wire_service(
        FakeClusterApi(), Bench("a").journals, certificate=certificate, log=log,
        trouble=lambda where, what: troubles.append(f"{where}: {what}"),
    )  # fmt: skip
    expiry = certificate.expiries["server"]

    def text() -> str:
        return service.metrics.text().decode()

    async def main() -> None:
        task = asyncio.ensure_future(service.loops["certificate"]())
        assert "podslice_cluster_certificate_reload_successful 1.0" in text()
        secret.put(new._replace(key=old.key))
        await until(lambda: troubles)
        assert "podslice_cluster_certificate_reload_successful 0.0" in text()
        (line,) = (one for one in text().splitlines() if one.startswith(EXPIRY))
        assert float(line.split()[1]) == expiry
        assert certificate.pair == (old.certificate.read_bytes(), old.key.read_bytes())
        secret.put(new)
        await until(lambda: [event for event, _ in log.lines][-1:] == ["certificate renewed"])
        task.cancel()

    asyncio.run(main())
    (trouble,) = troubles
    assert trouble.startswith("certificate: the new files are not served: ")
    assert "--tls-cert, --tls-key: the key is not that of the certificate" in trouble
    assert 'podslice_cluster_troubles_total{kind="certificate"} 1.0' in text()
    assert certificate.pair == (new.certificate.read_bytes(), new.key.read_bytes())
    assert "podslice_cluster_certificate_reload_successful 1.0" in text()


def test_an_agents_authority(tmp_path: Path, two: tuple[Certificates, Certificates]) -> None:
    """An agent trusts what its file has at each connection, and while that cannot be used what it had before; it says
    so once. Without any authority it has nothing to trust."""
    old, new = two
    secret, troubles = Secret(tmp_path / "secret", old), list[str]()
    authority = AuthorityFile(Path(secret.files.client_authority), "cluster.caFile")
    assert authority.read() == old.authority.read_bytes()
    assert authority.expiry() > 1e9
    secret.put(new._replace(authority=new.key))
    turns = iter((1, 2, 3))

    async def sleep(seconds: float) -> None:
        if next(turns) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(authority.watch(lambda where, what: troubles.append(what), sleep))
    assert (authority.read(), authority.is_used()) == (old.authority.read_bytes(), 0.0)
    assert len(troubles) == 1
    assert "the new authority is not used" in troubles[0]
    assert "has a private key and no certificate" in troubles[0]
    secret.put(new)
    assert (authority.read(), authority.is_used()) == (new.authority.read_bytes(), 1.0)
    missing = AuthorityFile(tmp_path / "nowhere", "cluster.caFile")
    with pytest.raises(InputError, match="cannot be read"):
        missing.read()
    assert missing.expiry() == 0.0


def test_a_clients_authorities(tmp_path: Path, two: tuple[Certificates, Certificates]) -> None:
    """A connection to a server whose authority was added to the file since the start is made; a file that is away for a
    moment changes nothing."""
    old, new = two
    bundle = tmp_path / "ca.crt"
    shutil.copy(old.authority, bundle)
    trust = TrustedContext(bundle)
    assert len(trust.latest().get_ca_certs()) == 1
    bundle.write_bytes(old.authority.read_bytes() + new.authority.read_bytes())
    assert len(trust.latest().get_ca_certs()) == 2
    bundle.unlink()
    assert len(trust.latest().get_ca_certs()) == 2


def test_handshakes_that_fail(tmp_path: Path, two: tuple[Certificates, Certificates]) -> None:
    """A client that does not trust the certificate, or shows none, is told of by its listener; one that does is not."""
    old, new = two
    secret, failed = Secret(tmp_path / "secret", old), list[str]()
    certificate = ServerCertificate(secret.files)
    certificate.watch_handshakes(failed.append, lambda cause: failed.append(f"mutual: {cause}"))

    async def main() -> None:
        service = wire_service(FakeClusterApi(), Bench("a").journals, certificate=certificate)
        page, token = PageHost(service.placing, failed=ignore), tmp_path / "token"
        token.write_text("0123456789abcdef")
        await service.start(Listening("127.0.0.1", 0, certificate.mutual, ("127.0.0.1", 0), certificate.plain))
        page.start(PageListening("127.0.0.1", 0, certificate.plain, str(token)))
        pages = int(page.url.split(":")[2].strip("/"))
        for port in (service.metrics_port, pages):
            _, good = await asyncio.to_thread(handshake, port, old.authority)
            with pytest.raises(ssl.SSLCertVerificationError):
                await asyncio.to_thread(handshake, port, new.authority)
            good.close()
        await until(lambda: len(failed) == 2)
        _, connection = await asyncio.to_thread(handshake, service.port, old.authority)
        await until(lambda: len(failed) == 3)
        connection.close()
        await page.close()
        await service.stop()

    asyncio.run(main())
    assert "UNKNOWN_CA" in failed[0]
    assert failed[1].startswith("127.0.0.1: ")
    assert failed[2] == "mutual: PEER_DID_NOT_RETURN_A_CERTIFICATE"


def test_an_authority_that_agents_do_not_know(tmp_path: Path, two: tuple[Certificates, Certificates]) -> None:
    """A service that starts anew with a certificate of another authority gets no streams: its metrics count every node
    as unproven from the beginning, by the NodeStates, as its filter does, and the agent counts no stream."""
    old, new = two
    troubles: list[str] = []

    def series(service: ClusterService, name: str) -> float:
        (line,) = (one for one in service.metrics.text().decode().splitlines() if one.split()[0] == name)
        return float(line.split()[1])

    def taken(service: ClusterService, name: str) -> bool:
        return bool(service.placing.filter(filter_request(pod_object(name, "2"), ["n"])).nodes)

    journal = node_journal()

    async def meet(made: Certificates, port: int, *, proven: bool) -> int:
        """Start a service with this certificate, have the agent try, and return the port."""
        journals = Journals(Rulebook(), {VERSION}, caller=caller, trouble=ignore)
        service = wire_service(FakeClusterApi(), journals)
        service.nodes.on_change(None, read_node(json.dumps(node_object("n")).encode()))
        assert journal.journal is not None
        journals.seed("n", journal.journal.whole_state())
        port = await journals.start("127.0.0.1", port, made.certificate.read_bytes(), made.key.read_bytes())
        agent = stream(tmp_path, "n", port, old.authority, troubles, journal)
        task = asyncio.ensure_future(agent.run(BackOff(0.01, 0.1)))
        await until(lambda: journals.is_fresh("n") or any("CERTIFICATE_VERIFY_FAILED" in one for one in troubles))
        await service.upkeep.confirm_all()
        assert series(service, "podslice_cluster_nodes_with_agent") == 1
        assert series(service, "podslice_cluster_nodes_proven") == proven
        assert series(service, 'podslice_cluster_nodes_unproven{cause="noStream"}') == (not proven)
        assert taken(service, f"p-{proven}") == proven
        assert len(journal.streams) == proven
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await journals.close()
        return port

    async def main() -> None:
        port = await meet(old, 0, proven=True)
        await meet(new, port, proven=False)

    asyncio.run(main())
