"""Kubeconfig files: cluster, user and namespace of a request, found as kubectl finds them.

Several files (`KUBECONFIG`) are merged: the first that names a cluster, user or context wins, and the first
`current-context`. Paths in a file are relative to it. Without any file a pod uses its service account.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from podslice.reading.files import read_text
from podslice.reading.yaml import load_documents
from podslice.values.decoding import decoding_problem
from podslice.values.errors import InputError, did_you_mean

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_REMEDY = "set KUBECONFIG, or give --kubeconfig FILE"


class ClusterEntry(msgspec.Struct, frozen=True, rename="kebab"):
    """Address of an API server and the authority of its certificate; `*_data` are base64, as in the file."""

    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""


class ExecVariable(msgspec.Struct, frozen=True):
    """An environment variable of a credential plugin."""

    name: str
    value: str


class ExecPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """A program that prints credentials."""

    command: str
    api_version: str = ""
    args: tuple[str, ...] | None = None
    env: tuple[ExecVariable, ...] | None = None
    install_hint: str = ""
    provide_cluster_info: bool = False


class User(msgspec.Struct, frozen=True, rename="kebab"):
    """The user of requests; `*_data` are base64."""

    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    impersonate: str = msgspec.field(default="", name="as")
    impersonate_groups: tuple[str, ...] = msgspec.field(default=(), name="as-groups")
    auth_provider: dict[str, Any] | None = None
    exec: ExecPlugin | None = None


class Context(msgspec.Struct, frozen=True):
    """A cluster, a user, and the default namespace."""

    cluster: str = ""
    user: str = ""
    namespace: str = ""


class Access(NamedTuple):
    """A context with its cluster and user resolved. `cluster_name`, `user_name` and `source` are for messages."""

    cluster: ClusterEntry
    user: User
    namespace: str
    cluster_name: str = ""
    user_name: str = ""
    source: str = ""


class AccessOptions(NamedTuple):
    """Options of the command line; an empty one leaves the choice to the files."""

    kubeconfig: str = ""
    context: str = ""
    cluster: str = ""
    user: str = ""
    namespace: str = ""


def find_access(
    chosen: AccessOptions, environment: Mapping[str, str], service_account: Path = SERVICE_ACCOUNT
) -> Access:
    """Return how to reach the cluster. Raises `InputError`."""
    files = list(_files(chosen, environment))
    if files:
        return _Merged(files).access(chosen)
    if chosen.context or chosen.cluster or chosen.user:
        option = next(f"--{name}" for name in ("context", "cluster", "user") if getattr(chosen, name))
        raise InputError("there is no kubeconfig it could be in", path=option, remedy=_REMEDY)
    return _in_cluster(chosen, environment, service_account)


def _files(chosen: AccessOptions, environment: Mapping[str, str]) -> Iterator[Path]:
    """Yield the kubeconfig files to read. The file of --kubeconfig must exist; of several in KUBECONFIG some may be
    missing."""
    listed = environment.get("KUBECONFIG", "")
    if chosen.kubeconfig:
        if not Path(chosen.kubeconfig).exists():
            raise InputError(f"{chosen.kubeconfig} does not exist", path="--kubeconfig", remedy="name another FILE")
        yield Path(chosen.kubeconfig)
    elif listed:
        # A file that is listed twice counts once.
        paths = [Path(part) for part in dict.fromkeys(listed.split(os.pathsep)) if part]
        found = [path for path in paths if path.exists()]
        if not found:
            raise InputError(f"{listed} does not exist", path="KUBECONFIG", remedy=_REMEDY)
        yield from found
    else:
        usual = Path(environment.get("HOME", "/")) / ".kube" / "config"
        if usual.exists():
            yield usual


def _in_cluster(chosen: AccessOptions, environment: Mapping[str, str], folder: Path) -> Access:
    # The kubelet gives these variables and this folder to every pod with a service account.
    host, port = environment.get("KUBERNETES_SERVICE_HOST", ""), environment.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").exists():
        home = Path(environment.get("HOME", "/")) / ".kube" / "config"
        raise InputError(f"no cluster is configured: {home} does not exist", remedy=_REMEDY)
    namespace = folder / "namespace"
    own = read_text(str(namespace)).strip() if namespace.exists() else ""
    return Access(
        ClusterEntry(
            # An IPv6 address needs brackets in a URL.
            server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
            certificate_authority=str(folder / "ca.crt"),
        ),
        User(token_file=str(folder / "token")),
        chosen.namespace or own or "default",
        "this one",
        "the service account",
        str(folder),
    )


S = TypeVar("S", bound=msgspec.Struct)


class _Entry(NamedTuple):
    data: Any
    source: Path
    path: str


class _Merged:
    """The merged entries by name. Only entries that are used are decoded, so that broken ones elsewhere do no harm."""

    def __init__(self, files: list[Path]) -> None:
        self._files = files
        self._current = ""
        self._entries: dict[str, dict[str, _Entry]] = {"clusters": {}, "users": {}, "contexts": {}}
        for file in files:
            self._add(file)

    def _add(self, file: Path) -> None:
        documents = load_documents(read_text(str(file)), str(file))
        config = documents[0] if documents else {}
        if not isinstance(config, dict) or config.get("kind", "Config") != "Config":
            raise InputError("is not a kubeconfig", source=str(file), remedy="kind: Config")
        self._current = self._current or str(config.get("current-context") or "")
        for field, known in self._entries.items():
            listed = config.get(field) or []
            if not isinstance(listed, list):
                raise InputError("is not a list", source=str(file), path=field)
            for index, entry in enumerate(listed):
                if not isinstance(entry, dict) or not isinstance(entry.get("name"), str):
                    raise InputError("has no name", source=str(file), path=f"{field}[{index}]")
                one = _Entry(entry.get(field[:-1]) or {}, file, f"{field}[{index}].{field[:-1]}")
                known.setdefault(entry["name"], one)

    def access(self, chosen: AccessOptions) -> Access:
        context = Context()
        name = chosen.context or self._current
        if name:
            context, _ = self._decode("contexts", name, Context)
        elif not chosen.cluster:
            raise InputError(
                "there is no current-context", source=self._source,
                remedy=f"give --context, {self._choices('contexts')}; or kubectl config use-context",
            )  # fmt: skip
        cluster_name, user_name = chosen.cluster or context.cluster, chosen.user or context.user
        cluster, of_cluster = self._decode("clusters", cluster_name, ClusterEntry)
        user, of_user = self._decode("users", user_name, User) if user_name else (User(), self._files[0])
        if not cluster.server:
            raise InputError("has no server", source=str(of_cluster), path=f"cluster {cluster_name}")
        return Access(
            _resolve_cluster(cluster, of_cluster),
            _resolve_user(user, of_user),
            chosen.namespace or context.namespace or "default",
            cluster_name,
            user_name,
            self._source,
        )

    @property
    def _source(self) -> str:
        return os.pathsep.join(map(str, self._files))

    def _choices(self, field: str) -> str:
        names = list(self._entries[field])
        return f"one of {', '.join(names[:8])}" if names else "of which there is none"

    def _decode(self, field: str, name: str, kind: type[S]) -> tuple[S, Path]:
        entry = self._entries[field].get(name)
        if entry is None:
            remedy = did_you_mean(name, self._entries[field], self._choices(field))
            raise InputError(f"there is no {field[:-1]} {name!r}", source=self._source, remedy=remedy)
        try:
            return msgspec.convert(_without_nulls(entry.data), kind), entry.source
        except msgspec.ValidationError as error:
            found = decoding_problem(str(error))
            path = f"{entry.path}.{found.path}" if found.path else entry.path
            raise InputError(found.problem, source=str(entry.source), path=path, remedy=found.remedy) from None


def _without_nulls(data: Any) -> Any:
    """Return data without nulls. A null counts as not set, as in Go: kubectl itself writes `users: null`."""
    if isinstance(data, dict):
        return {name: _without_nulls(value) for name, value in data.items() if value is not None}
    return data


def _resolve_cluster(cluster: ClusterEntry, file: Path) -> ClusterEntry:
    return msgspec.structs.replace(cluster, certificate_authority=_resolve(file, cluster.certificate_authority))


def _resolve_user(user: User, file: Path) -> User:
    plugin = user.exec
    if plugin is not None and "/" in plugin.command:
        plugin = msgspec.structs.replace(plugin, command=_resolve(file, plugin.command))
    paths = {name: _resolve(file, getattr(user, name)) for name in ("client_certificate", "client_key", "token_file")}
    return msgspec.structs.replace(user, exec=plugin, **paths)


def _resolve(file: Path, path: str) -> str:
    """Return a path of a kubeconfig, relative to the folder of its file; empty for none."""
    return str(file.absolute().parent / path) if path else ""
