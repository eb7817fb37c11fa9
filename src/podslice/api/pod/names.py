"""Names as Kubernetes allows them (RFC 1123 labels and subdomains), with the API server's sentences."""

from __future__ import annotations

import re

from podslice.values.errors import InputError

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
    """Return the errors in the name of a container or a namespace; empty for a valid one."""
    if len(name) <= _LONGEST_LABEL and _LABEL.match(name):
        return []
    # Upstream counts bytes and calls them characters.
    problems = [f"must be no more than {_LONGEST_LABEL} characters"] if _byte_length(name) > _LONGEST_LABEL else []
    if not _LABEL.match(name):
        problems.append("must not contain dots" if _SUBDOMAIN.match(name) else _LABEL_RULE)
    return problems


def subdomain_problems(name: str, *, unit: str = "characters") -> list[str]:
    """Return the errors in the name of a pod or a node, or in the domain of a key, whose length upstream reports in
    bytes (`unit`)."""
    problems = [f"must be no more than {_LONGEST_SUBDOMAIN} {unit}"] if _byte_length(name) > _LONGEST_SUBDOMAIN else []
    return problems if _SUBDOMAIN.match(name) else [*problems, _SUBDOMAIN_RULE]


def label_value_problems(value: str) -> list[str]:
    """Return the errors in the value of a label."""
    problems = [f"must be no more than {_LONGEST_LABEL} bytes"] if _byte_length(value) > _LONGEST_LABEL else []
    return problems if _LABEL_VALUE.match(value) else [*problems, _LABEL_VALUE_RULE]


def _byte_length(text: str) -> int:
    return len(text.encode("utf-8", "replace"))


# Names that people type, before they become part of a request: a path holds no spaces, and `?` ends it

_OF_A_LABEL = "lower-case letters, digits and '-', at most 63"
_OF_A_DOMAIN = "lower-case letters, digits, '-' and '.', at most 253"


def check_node_name(text: str) -> str:
    """Return `text` if it is the name of a node. Raises `InputError`."""
    return _check_name(text, subdomain_problems(text), "node", f"{_OF_A_DOMAIN}; kubectl get nodes lists them")


def check_pod_name(text: str) -> str:
    """Return `text` if it is the name of a pod, without namespace. Raises `InputError`."""
    return _check_name(text, subdomain_problems(text), "pod", _OF_A_DOMAIN)


def check_namespace_name(text: str, option: str) -> str:
    """Return `text` if it is the name of a namespace, the value of `option`. Raises `InputError`."""
    return _check_name(text, label_problems(text), "namespace", _OF_A_LABEL, option)


def _check_name(text: str, problems: list[str], what: str, remedy: str, option: str = "") -> str:
    if problems:
        raise InputError(f"{text!r} is not a valid {what} name", path=option, remedy=remedy)
    return text
