"""Names as Kubernetes allows them (RFC 1123 labels and subdomains), with the API server's sentences."""

from __future__ import annotations

import re

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z")
_LABEL_VALUE = re.compile(r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?\Z")
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with "
    "an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_LONGEST_LABEL, _LONGEST_SUBDOMAIN = 63, 253


def label_problems(name: str) -> list[str]:
    """What keeps a text from being the name of a container or a namespace; an empty list for a good one."""
    if len(name) <= _LONGEST_LABEL and _LABEL.match(name):
        return []
    problems = [f"must be no more than {_LONGEST_LABEL} characters"] if _bytes(name) > _LONGEST_LABEL else []
    if not _LABEL.match(name):
        problems.append("must not contain dots" if _SUBDOMAIN.match(name) else _LABEL_RULE)
    return problems


def subdomain_problems(name: str, *, unit: str = "characters") -> list[str]:
    """What keeps a text from being the name of a pod or a node, or the domain of a key (the length of which is told
    in bytes)."""
    problems = [f"must be no more than {_LONGEST_SUBDOMAIN} {unit}"] if _bytes(name) > _LONGEST_SUBDOMAIN else []
    return problems if _SUBDOMAIN.match(name) else [*problems, _SUBDOMAIN_RULE]


def label_value_problems(value: str) -> list[str]:
    """What keeps a text from being the value of a label."""
    problems = [f"must be no more than {_LONGEST_LABEL} bytes"] if _bytes(value) > _LONGEST_LABEL else []
    return problems if _LABEL_VALUE.match(value) else [*problems, _LABEL_VALUE_RULE]


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace"))
