"""Certificates as clusters have them, made with openssl: authorities with and without the extensions that strict
verification asks for, a certificate of one of them, and a key that signs tokens."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

from e2e.packages import FetchError

OPENSSL = shutil.which("openssl")
_CA = "basicConstraints=critical,CA:TRUE\n"
_USAGE = "keyUsage=critical,keyCertSign,cRLSign,digitalSignature\n"
CA_EXTENSIONS = {
    "complete": _CA + _USAGE + "subjectKeyIdentifier=hash\n",
    "no-key-usage": _CA + "subjectKeyIdentifier=hash\n",
    "no-key-identifier": _CA + _USAGE + "subjectKeyIdentifier=none\n",
    "plain": "basicConstraints=CA:TRUE\nsubjectKeyIdentifier=none\n",
}
_LONG = ("-days", "3650")
_EC = ("-pkeyopt", "ec_paramgen_curve:prime256v1")


class Certificates(NamedTuple):
    """Files: the authority, and what a server shows."""

    authority: Path
    certificate: Path
    key: Path

    def server(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, self.key)
        return context


def make(folder: Path, kind: str = "complete", name: str = "IP:127.0.0.1") -> Certificates:
    """An authority of that kind and a certificate for `name` (subject alternative names, with commas). Raises
    `FetchError` where openssl is missing."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Certificates(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")
    (folder / "ca.cnf").write_text(
        f"[req]\ndistinguished_name=dn\nx509_extensions=v3\n[dn]\n[v3]\n{CA_EXTENSIONS[kind]}"
    )
    identifier = "authorityKeyIdentifier=keyid\n" if kind in ("complete", "no-key-usage") else ""
    (folder / "tls.cnf").write_text(f"subjectAltName={name}\nextendedKeyUsage=serverAuth\n{identifier}")
    new = ["req", "-newkey", "ec", *_EC, "-nodes"]
    _openssl(folder, *new, "-x509", *_LONG, "-config", "ca.cnf", "-subj", "/CN=kubernetes", "-keyout", "ca.key",
             "-out", "ca.crt")  # fmt: skip
    _openssl(folder, *new, "-config", "ca.cnf", "-subj", "/CN=server", "-keyout", "tls.key", "-out", "tls.csr")
    _openssl(folder, "x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
             *_LONG, "-extfile", "tls.cnf", "-out", "tls.crt")  # fmt: skip
    return found


def client(folder: Path, subject: str) -> tuple[Path, Path]:
    """A certificate that `folder`'s authority vouches for, with which a client shows that it is `subject`, and its
    key."""
    (folder / "client.cnf").write_text("extendedKeyUsage=clientAuth\n")
    new = ("req", "-newkey", "ec", *_EC, "-nodes", "-config", "ca.cnf")
    _openssl(folder, *new, "-subj", subject, "-keyout", "client.key", "-out", "client.csr")
    _openssl(folder, "x509", "-req", "-in", "client.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
             *_LONG, "-extfile", "client.cnf", "-out", "client.crt")  # fmt: skip
    return folder / "client.crt", folder / "client.key"


def signing_key(folder: Path) -> None:
    """`sa.key` signs the tokens of service accounts, `sa.pub` verifies them."""
    _openssl(folder, "genpkey", "-algorithm", "EC", *_EC, "-out", "sa.key")
    _openssl(folder, "pkey", "-in", "sa.key", "-pubout", "-out", "sa.pub")


def _openssl(folder: Path, *arguments: str) -> None:
    if OPENSSL is None:
        raise FetchError("openssl is not installed (Debian: apt-get install openssl)")
    subprocess.run([OPENSSL, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)
