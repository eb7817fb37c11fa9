"""Files of certificates and keys: when they expire, and files that were mixed up."""

from __future__ import annotations

import base64

import pytest

from podslice.service.certificates import certificate_expiries, check_key
from podslice.values.errors import InputError

KEY = b"-----BEGIN PRIVATE KEY-----\nMAA=\n-----END PRIVATE KEY-----\n"


def der(tag: int, content: bytes) -> bytes:
    """An element of ASN.1 in DER."""
    length = bytes([len(content)]) if len(content) < 128 else b"\x82" + len(content).to_bytes(2, "big")
    return bytes([tag]) + length + content


def certificate(not_after: bytes, *, version: bool = True) -> bytes:
    """A certificate in PEM with no more than what comes before its validity; `not_after` as an element."""
    validity = der(0x30, der(0x17, b"200101000000Z") + not_after)
    head = der(0xA0, der(2, b"\x02")) if version else b""
    fields = head + der(2, b"\x01" * 20) + der(0x30, b"") + der(0x30, b"x" * 300) + validity
    data = der(0x30, der(0x30, fields) + der(0x30, b""))
    return b"-----BEGIN CERTIFICATE-----\n" + base64.encodebytes(data) + b"-----END CERTIFICATE-----\n"


@pytest.mark.parametrize(
    ("not_after", "version", "expected"),
    [
        (der(0x17, b"300101000000Z"), True, 1893456000),
        (der(0x17, b"491231235959Z"), True, 2524607999),
        (der(0x17, b"500101000000Z"), True, -631152000),
        (der(0x18, b"20500101000000Z"), True, 2524608000),
        (der(0x18, b"99991231235959Z"), False, 253402300799),
    ],
)
def test_expiry(not_after: bytes, version: bool, expected: int) -> None:
    """Years of two digits are of this century before 50; from 2050 on they have four (RFC 5280, 4.1.2.5)."""
    assert certificate_expiries(certificate(not_after, version=version), "f", "--tls-cert") == [expected]


def test_bundles_have_many() -> None:
    """A file with text, a key and two certificates has two expiries."""
    data = b"a comment\n" + certificate(der(0x17, b"300101000000Z")) + KEY + certificate(der(0x18, b"20500101000000Z"))
    assert certificate_expiries(data, "f", "--tls-cert") == [1893456000, 2524608000]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (KEY, "has a private key and no certificate"),
        (KEY.replace(b"PRIVATE", b"EC PRIVATE"), "has a private key and no certificate"),
        (b"", "has no certificate: no PEM block"),
        (b"0123456789abcdef", "no PEM block"),
        (KEY.replace(b"PRIVATE", b"PUBLIC"), "only PUBLIC KEY"),
        (KEY.replace(b"PRIVATE KEY", b"CERTIFICATE"), "has a certificate that cannot be read"),
        (certificate(der(0x17, b"300101")), "has a certificate that cannot be read"),
        (certificate(der(0x17, b"\xff" * 13)), "has a certificate that cannot be read"),
        (certificate(der(0x17, b"300101000000Z")).replace(b"MII", b"MIQ"), "has a certificate that cannot be read"),
    ],
)
def test_no_certificate(data: bytes, text: str) -> None:
    """The message names file, field and what the file has instead; nothing of a key is in it."""
    with pytest.raises(InputError) as error:
        certificate_expiries(data, "tls.crt", "--tls-cert")
    assert (error.value.path, error.value.source) == ("--tls-cert", "tls.crt")
    assert text in str(error.value)
    assert "MAA=" not in str(error.value)


def test_no_key() -> None:
    """A certificate in place of a key is told."""
    check_key(KEY, "tls.key", "--tls-key")
    with pytest.raises(InputError, match="has a certificate and no private key"):
        check_key(certificate(der(0x17, b"300101000000Z")), "tls.key", "--tls-key")
    with pytest.raises(InputError, match="has no private key"):
        check_key(b"", "tls.key", "--tls-key")
