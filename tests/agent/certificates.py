"""Certificates as clusters have them, made with openssl: authorities with and without the extensions that strict
verification asks for, a certificate of one of them, and one that signs itself."""

from __future__ import annotations

import shutil
import ssl
import subprocess
from pathlib import Path
from typing import NamedTuple

OPENSSL = shutil.which("openssl")
_CA = "basicConstraints=critical,CA:TRUE\n"
_USAGE = "keyUsage=critical,keyCertSign\n"
CA_EXTENSIONS = {
    "complete": _CA + _USAGE + "subjectKeyIdentifier=hash\n",
    "no-key-usage": _CA + "subjectKeyIdentifier=hash\n",
    "no-key-identifier": _CA + _USAGE + "subjectKeyIdentifier=none\n",
    "plain": "basicConstraints=CA:TRUE\nsubjectKeyIdentifier=none\n",
}


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
    """An authority of that kind and a certificate for `name`."""
    folder.mkdir(parents=True, exist_ok=True)
    found = Certificates(folder / "ca.crt", folder / "tls.crt", folder / "tls.key")
    (folder / "ca.cnf").write_text(
        f"[req]\ndistinguished_name=dn\nx509_extensions=v3\n[dn]\n[v3]\n{CA_EXTENSIONS[kind]}"
    )
    identifier = "authorityKeyIdentifier=keyid\n" if kind in ("complete", "no-key-usage") else ""
    (folder / "tls.cnf").write_text(f"subjectAltName={name}\nextendedKeyUsage=serverAuth\n{identifier}")
    new = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    _openssl(folder, *new, "-x509", "-days", "2", "-config", "ca.cnf", "-subj", "/CN=kubernetes", "-keyout", "ca.key",
             "-out", "ca.crt")  # fmt: skip
    _openssl(folder, *new, "-config", "ca.cnf", "-subj", "/CN=server", "-keyout", "tls.key", "-out", "tls.csr")
    _openssl(folder, "x509", "-req", "-in", "tls.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
             "-days", "2", "-extfile", "tls.cnf", "-out", "tls.crt")  # fmt: skip
    return found


def _openssl(folder: Path, *arguments: str) -> None:
    assert OPENSSL is not None
    subprocess.run([OPENSSL, *arguments], cwd=folder, check=True, capture_output=True, timeout=60)
