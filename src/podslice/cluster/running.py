"""`podslice cluster` as a process: addresses and certificates, then the service until a signal ends it."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import ssl
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from podslice.cluster.apiclient import HTTPClusterApi
from podslice.cluster.journal.callers import TokenCallers
from podslice.cluster.journal.journals import Journals
from podslice.cluster.leadership import Leadership, lease_path
from podslice.cluster.log_lines import LogLevel, LogLines
from podslice.cluster.metrics import ClusterMetrics
from podslice.cluster.page.listening import TOKEN_OPTION, PageListening
from podslice.cluster.placements import NodeReport
from podslice.cluster.service import ClusterService, Listening, ServiceSettings
from podslice.cluster.wiring import wire
from podslice.replica.compatibility import DECISIONS, PROTOCOL
from podslice.replica.rulebook import Rulebook
from podslice.service.certificates import CertificateFiles, ServerCertificate
from podslice.service.http.access import is_loopback, parse_address
from podslice.service.native_lines import LibraryLog, NativeLines
from podslice.service.pacing import TURN_SECONDS
from podslice.service.tokens import read_access_token
from podslice.values.errors import InputError
from podslice.version import UNPACKAGED, running_version

if TYPE_CHECKING:
    from podslice.cluster.page.page_host import PageHost


_NEW_OBJECTS = 10_000
"""New objects before a garbage collection. The service makes hardly any reference cycles, and with Python's 700 much of
a start was spent in collections."""


class ClusterOptions(NamedTuple):
    """Options of the command line; addresses are HOST:PORT, empty for none. `agents` are user names of service
    accounts, `versions` those of agents that decide as this program does, `lease` the NAMESPACE/NAME of the
    scheduler's Lease, empty for none."""

    address: str = "127.0.0.1:9098"
    journal_address: str = ""
    metrics_address: str = "127.0.0.1:9099"
    page_address: str = ""
    page_token_file: str = ""
    tls: CertificateFiles = CertificateFiles()
    agents: tuple[str, ...] = ("system:serviceaccount:podslice:podslice-agent",)
    versions: tuple[str, ...] = ()
    service: ServiceSettings = ServiceSettings()
    lease: str = ""


class CheckedOptions(NamedTuple):
    """The checked options: addresses with their TLS contexts, and the certificate behind them."""

    listening: Listening
    journals: tuple[str, int] | None
    certificate: ServerCertificate | None
    page: PageListening | None = None
    lease: str = ""
    """The API path of the scheduler's Lease."""


def check(options: ClusterOptions) -> CheckedOptions:
    """Check the options. Raises `InputError` for contradictions, for certificates that cannot be used, and for a
    listener beyond the loopback without authentication."""
    extender = parse_address(options.address, "--address", "127.0.0.1:9098")
    journals = parse_address(options.journal_address, "--journal-address", "0.0.0.0:9097")
    if extender is None:
        raise InputError("is empty", path="--address", remedy="write 127.0.0.1:9098")
    tls = options.tls
    if bool(tls.cert) != bool(tls.key):
        raise InputError("neither is of use without the other", path="--tls-cert, --tls-key", remedy="give both")
    if not is_loopback(extender[0]) and not (tls.cert and tls.client_authority):
        raise InputError(
            f"{extender[0]} is not a loopback address, anyone who reaches it could filter and bind",
            path="--address",
            remedy="leave it out, or give --tls-cert, --tls-key and --client-ca: kube-scheduler shows a certificate",
        )
    if journals is not None and not tls.cert:
        raise InputError(
            "agents send their tokens, so there must be a certificate",
            path="--journal-address",
            remedy="give --tls-cert and --tls-key",
        )
    metrics = parse_address(options.metrics_address, "--metrics-address", "127.0.0.1:9099")
    page = parse_address(options.page_address, "--page-address", "127.0.0.1:9101")
    if options.page_token_file:
        read_access_token(options.page_token_file, TOKEN_OPTION)
    # Metrics name no pods, so anyone may read them, but beyond the loopback only over TLS, so that they are the
    # service's own. The page shows names of pods and their nodes.
    if not (metrics is None or is_loopback(metrics[0]) or tls.cert):
        raise InputError(
            f"{metrics[0]} is not a loopback address, and needs TLS",
            path="--metrics-address",
            remedy="write 127.0.0.1:9099, or give --tls-cert and --tls-key",
        )
    if not (page is None or is_loopback(page[0]) or (options.page_token_file and tls.cert)):
        raise InputError(
            f"{page[0]} is not a loopback address, anyone who reaches it could read all pods",
            path="--page-address",
            remedy="write 127.0.0.1:9101, or give --page-token-file, --tls-cert and --tls-key",
        )
    certificate = ServerCertificate(tls) if tls.cert else None
    plain, mutual = (None, None) if certificate is None else (certificate.plain, certificate.mutual)
    listening = Listening(*extender, _beyond(extender, mutual), metrics, _beyond(metrics, plain))
    shown = None if page is None else PageListening(*page, _beyond(page, plain), options.page_token_file)
    lease = lease_path(options.lease, "--lease") if options.lease else ""
    return CheckedOptions(listening, journals, certificate, shown, lease)


def _beyond(address: tuple[str, int] | None, context: ssl.SSLContext | None) -> ssl.SSLContext | None:
    """Return the TLS context of a listener, None on the loopback."""
    return None if address is None or is_loopback(address[0]) else context


def known_versions(options: ClusterOptions) -> frozenset[str]:
    """Return the versions of agents that decide as this program does. A source tree without a version counts only where
    --compatible names it."""
    return frozenset({running_version()} - {UNPACKAGED}).union(options.versions)


def tune_interpreter() -> None:
    """Set up Python for a process that serves a cluster: fewer garbage collections, and threads that hold the
    interpreter lock no longer than a turn of the event loop."""
    gc.set_threshold(_NEW_OBJECTS)
    sys.setswitchinterval(TURN_SECONDS)


async def run_cluster(options: ClusterOptions, *, log_level: LogLevel = "info") -> None:
    """Run the service until SIGTERM or SIGINT. Raises `InputError` where it cannot start."""
    checked = check(options)
    tune_interpreter()
    with NativeLines() as native:
        log, metrics = LogLines(log_level, stream=native.stream), ClusterMetrics()
        libraries = LibraryLog(log, "--journal-address", count=metrics.count_trouble)
        native.follow(libraries.write)
        if checked.certificate is not None:
            tell = libraries.write_handshake
            checked.certificate.watch_handshakes(
                partial(tell, "--metrics-address, --page-address"), partial(tell, "--address")
            )
        log.info(
            "starting", version=running_version(), protocol=PROTOCOL, decisions=DECISIONS,
            compatible=sorted(known_versions(options)),
        )  # fmt: skip
        await _run(options, checked, log, metrics)
        log.info("stopped")


async def _run(options: ClusterOptions, checked: CheckedOptions, log: LogLines, metrics: ClusterMetrics) -> None:
    def trouble(where: str, what: str) -> None:
        log.warning("trouble", where=where, what=what)

    def journal_trouble(where: str, what: str) -> None:
        metrics.count_trouble(where)
        trouble(where, what)

    def disputed(report: NodeReport) -> None:
        outcome = report.outcome
        log.warning("dispute", node=report.node, pod=report.uid, fate=outcome.kind, expected=str(outcome.expected),
                    found=str(outcome.found))  # fmt: skip

    api = HTTPClusterApi()
    callers = TokenCallers(api.ask, frozenset(options.agents))
    journals = Journals(
        Rulebook(), known_versions(options), caller=callers.find_node, trouble=journal_trouble, log=log,
        version=running_version(),
    )  # fmt: skip
    service = wire(
        api, journals, options.service, trouble=trouble, disputed=disputed, seeded=journals, log=log,
        certificate=checked.certificate, metrics=metrics,
    )  # fmt: skip
    if checked.lease:
        watch = Leadership(api.read, checked.lease, socket.gethostname(), log, trouble=journal_trouble)
        metrics.add_gauges({"leader": ("1 while the scheduler beside the service leads.", lambda: watch.leads or 0)})
        service.supervisor.start("lease", watch.run)
    page: PageHost | None = None
    over = asyncio.Event()

    def stop(number: signal.Signals) -> None:
        if not over.is_set():
            log.info("stopping", signal=number.name)
        over.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop, number)
    try:
        await service.start(checked.listening)
        port = await _start_journals(journals, checked)
        if checked.page is not None:
            page = page_host(service, trouble)
            page.start(checked.page)
        where = "" if page is None else page.url
        log.info("serving", extender=service.port, metrics=service.metrics_port, journals=port, page=where)
        await over.wait()
    finally:
        # Callers end before what they call.
        if page is not None:
            await page.close()
        await service.stop()
        await journals.close()
        await api.close()


def page_host(service: ClusterService, trouble: Callable[[str, str], None]) -> PageHost:
    """Return the page, imported only here because few services have one."""
    from podslice.cluster.page.page_host import PageHost

    return PageHost(service.placing, failed=trouble)


async def _start_journals(journals: Journals, checked: CheckedOptions) -> int:
    """Listen for the agents' streams; return the port, 0 for none. Raises `InputError`."""
    certificate = checked.certificate
    if checked.journals is None or certificate is None:
        return 0
    return await journals.start(*checked.journals, *certificate.pair, renewed=lambda: certificate.pair)
