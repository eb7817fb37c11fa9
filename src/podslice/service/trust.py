"""Whose certificates are accepted: those a kubelet accepts, which is a Go program. Standard library only."""

from __future__ import annotations

import ssl


def trust_as_go(context: ssl.SSLContext) -> None:
    """Since Python 3.13 a context also refuses authorities without key usage and certificates without key identifiers,
    which many clusters have. And whoever is named as an authority is one, even if another authority signed it, which
    older Pythons deny. Chains, names and dates are verified as ever."""
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
