"""What `podslice cluster` refuses to start with: listeners that others reach and nobody guards."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e.certificates import OPENSSL, make

from podslice.cluster.running import Certificate, ClusterOptions, check
from podslice.core.errors import InputError

BOTH = Certificate("c", "k", "a")


@pytest.mark.parametrize(
    ("options", "path", "text"),
    [
        (ClusterOptions(address=""), "--address", "is empty"),
        (ClusterOptions(address="here"), "--address", "is not an address"),
        (ClusterOptions(address="127.0.0.1:99999"), "--address", "is not an address"),
        (ClusterOptions(address="0.0.0.0:9098"), "--address", "not a loopback address"),
        (ClusterOptions(address="0.0.0.0:9098", tls=Certificate("c", "k")), "--address", "not a loopback address"),
        (ClusterOptions(journal_address="127.0.0.1:9097"), "--journal-address", "there must be a certificate"),
        (ClusterOptions(tls=Certificate("c")), "--tls-cert, --tls-key", "one is nothing without the other"),
        (ClusterOptions(tls=BOTH), "--tls-cert", "cannot be read"),
        (ClusterOptions(address="0.0.0.0:9098", tls=BOTH), "--tls-cert, --tls-key, --client-ca", "no usable"),
        (ClusterOptions(metrics_address="x"), "--metrics-address", "is not an address"),
    ],
)
def test_refused(options: ClusterOptions, path: str, text: str) -> None:
    """One line that names the option and what to do."""
    with pytest.raises(InputError) as error:
        check(options)
    assert error.value.path == path
    assert text in str(error.value)
    assert "\n" not in str(error.value)


def test_loopback_needs_nothing() -> None:
    """The defaults start without a certificate, and metrics may be off."""
    found = check(ClusterOptions(metrics_address=""))
    assert (found.listening.host, found.listening.port, found.listening.tls) == ("127.0.0.1", 9098, None)
    assert (found.listening.metrics, found.journals, found.certificate) == (None, None, None)


@pytest.mark.skipif(OPENSSL is None, reason="needs openssl (apt-get install openssl)")
def test_beyond_the_loopback(tmp_path: Path) -> None:
    """With a certificate and an authority for clients others may reach it, and must show a certificate."""
    made = make(tmp_path)
    tls = Certificate(str(made.certificate), str(made.key), str(made.authority))
    found = check(ClusterOptions(address="0.0.0.0:9098", journal_address="0.0.0.0:9097", tls=tls))
    assert found.listening.tls is not None
    assert found.listening.tls.verify_mode.name == "CERT_REQUIRED"
    assert found.journals == ("0.0.0.0", 9097)
    assert found.certificate == (made.certificate.read_bytes(), made.key.read_bytes())
