"""Accept the server certificates that a kubelet accepts, which is a Go program. Standard library only."""

from __future__ import annotations

import ssl


def trust_as_go(context: ssl.SSLContext) -> None:
    """Make a TLS context verify as Go does. Chains, names and dates are verified as ever."""
    # Since Python 3.13 a context refuses authorities without key usage and certificates without key identifiers. Many
    # clusters have such certificates, and Go accepts them.
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    # An intermediate that the trust store names is an authority, though another one signed it; older Pythons deny that.
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
