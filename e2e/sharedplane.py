"""One control plane for several processes, as the workers of a test run are.

The first process that asks starts a guardian, which runs the control plane until no process holds the lock `users` any
more: the kernel lets go of the lock of a process that died. `python -m e2e.sharedplane` runs one by hand.
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from fcntl import LOCK_EX, LOCK_SH, flock
from pathlib import Path

import msgspec

from e2e.controlplane import ADMIN, Api, ControlPlane, ControlPlaneError, Json, Settings, kubeconfig
from e2e.packages import FetchError
from e2e.programs import find_programs

NODES = ("one", "two")
_CHECKOUT = Path(__file__).resolve().parents[1]


class Cluster(msgspec.Struct, frozen=True):
    """Address of a running API server: its port on the loopback, its authority's file, and a token for each user."""

    port: int
    authority: str
    tokens: dict[str, str]

    def api(self, user: str = ADMIN, *, token: str = "") -> Api:
        """Calls as that user, or with that token."""
        return Api(self.port, Path(self.authority), token or self.tokens[user])

    def kubeconfig(self, user: str = ADMIN, *, token: str = "") -> Json:
        cluster = {"server": f"https://127.0.0.1:{self.port}", "certificate-authority": self.authority}
        return kubeconfig(cluster, token or self.tokens[user])

    def prepare_namespace(self, name: str) -> None:
        """A namespace in which pods can be created: it has the service account that a controller would make.
        Having it already is fine. Raises `ControlPlaneError`."""
        with self.api() as api:
            prepare_namespace(api, name)


def prepare_namespace(api: Api, name: str) -> None:
    """See `Cluster.prepare_namespace`."""
    account = {"metadata": {"name": "default"}, "automountServiceAccountToken": False}
    for answer in (
        api.ask("POST", "/api/v1/namespaces", {"metadata": {"name": name}}),
        api.ask("POST", f"/api/v1/namespaces/{name}/serviceaccounts", account),
    ):
        if answer.code not in (201, 409):
            raise ControlPlaneError(answer.message)


def cluster_of(plane: ControlPlane, nodes: tuple[str, ...]) -> Cluster:
    users = [ADMIN, *(f"system:node:{name}" for name in nodes)]
    return Cluster(plane.port, str(plane.authority), {user: plane.token(user) for user in users})


@contextlib.contextmanager
def shared_plane(folder: Path) -> Iterator[Cluster]:
    """The control plane of this folder, started where no process has yet. Raises `FetchError`, `ControlPlaneError`."""
    find_programs()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "users").open("w") as users:
        flock(users, LOCK_SH)
        with (folder / "starting").open("w") as starting:
            flock(starting, LOCK_EX)
            found = _join(folder)
        yield found


def _join(folder: Path) -> Cluster:
    described = folder / "cluster.json"
    if not described.exists():
        with (folder / "guardian.log").open("wb") as log:
            guardian = subprocess.Popen(
                [sys.executable, "-m", "e2e.sharedplane", str(folder)],
                cwd=_CHECKOUT, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        while not described.exists():
            if guardian.poll() is not None:
                raise ControlPlaneError((folder / "guardian.log").read_text().strip())
            time.sleep(0.05)
        guardian.returncode = 0  # it may outlive this process, which does not wait for it
    return msgspec.json.decode(described.read_bytes(), type=Cluster)


def _guard(folder: Path) -> None:
    """Run a control plane until no process uses it any more; what it stored goes with it."""
    described = folder / "cluster.json"
    with (
        tempfile.TemporaryDirectory(prefix="plane-", dir=folder) as own,
        ControlPlane(find_programs(), Path(own), Settings(nodes=NODES)) as plane,
        (folder / "users").open() as users,
    ):
        partial = described.with_suffix(".part")
        partial.write_bytes(msgspec.json.encode(cluster_of(plane, NODES)))
        partial.rename(described)
        flock(users, LOCK_EX)
        described.unlink()


def _by_hand() -> None:
    """Run a control plane until this process gets a signal to end."""
    with (
        tempfile.TemporaryDirectory(prefix="podslice-cluster-") as own,
        ControlPlane(find_programs(), Path(own), Settings(nodes=NODES)) as plane,
    ):
        cluster = cluster_of(plane, NODES)
        cluster.prepare_namespace("default")
        config = Path(own) / "kubeconfig"
        config.write_bytes(msgspec.json.encode(cluster.kubeconfig()))
        print(f"export KUBECONFIG={config}", flush=True)
        with contextlib.suppress(KeyboardInterrupt):
            signal.pause()


def main() -> int:
    """Exit 2 if there is nothing to run."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _guard(Path(sys.argv[1])) if len(sys.argv) > 1 else _by_hand()
    except (FetchError, ControlPlaneError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
