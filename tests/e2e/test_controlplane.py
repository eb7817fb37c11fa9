"""The control plane that cluster tests start; with the real programs where they are at hand."""

from __future__ import annotations

import asyncio
import lzma
from pathlib import Path

import pytest
from e2e.controlplane import ACCOUNTS, ADMIN, Api, ControlPlane, ControlPlaneError, Settings, StatusError, free_port
from e2e.packages import FetchError
from e2e.programs import VARIABLE, Programs, find_programs

from tests import clock


def test_programs_that_are_not_there_are_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the programs are absent, one line names the folder and the variable."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    with pytest.raises(FetchError, match=f"no Kubernetes programs in {tmp_path}; {VARIABLE} names") as raised:
        find_programs(tmp_path / "cache")
    assert "\n" not in str(raised.value)


def test_programs_are_unpacked_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The unpacked files can be run, are kept, and other packed files are other programs."""
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    for name in ("hyperkube", "etcd"):
        (tmp_path / f"{name}.xz").write_bytes(lzma.compress(name.encode()))
    found = find_programs(tmp_path / "cache")
    assert found.hyperkube.read_bytes() == b"hyperkube"
    assert found.etcd.stat().st_mode & 0o111
    found.etcd.write_bytes(b"kept")
    assert find_programs(tmp_path / "cache").etcd.read_bytes() == b"kept"
    (tmp_path / "etcd.xz").write_bytes(lzma.compress(b"newer"))
    assert find_programs(tmp_path / "cache").etcd.read_bytes() == b"newer"


def test_programs_are_looked_for_in_the_users_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the variable the user's cache is the place, and plain files are taken as they are."""
    monkeypatch.delenv(VARIABLE, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "podslice/kubernetes"
    with pytest.raises(FetchError, match=f"no Kubernetes programs in {folder}"):
        find_programs()
    folder.mkdir(parents=True)
    for name in ("hyperkube", "etcd"):
        (folder / name).write_bytes(name.encode())
    assert find_programs() == (folder / "hyperkube", folder / "etcd")


def test_a_port_and_its_neighbour() -> None:
    """Calls find ports that can be had, and never one that another call was just given."""
    found = [free_port(2) for _ in range(20)]
    assert len({port + more for port in found for more in (0, 1)}) == 40
    assert all(1024 <= port < 32768 for port in found)


@pytest.fixture
def programs() -> Programs:
    try:
        return find_programs()
    except FetchError as error:
        pytest.skip(str(error))


@pytest.mark.slow
def test_control_plane_comes_back_with_its_objects(programs: Programs, tmp_path: Path) -> None:
    """The API server stores, refuses with a Status, and a copy of the folder has the objects and the tokens."""
    plane = ControlPlane(programs, tmp_path / "first", Settings(nodes=("one",), controllers=ACCOUNTS))
    account = "/api/v1/namespaces/kept/serviceaccounts/default"
    with plane, plane.api() as api, plane.api("system:node:one") as kubelet:
        api.call("POST", "/api/v1/namespaces", {"metadata": {"name": "kept"}})
        asyncio.run(clock.until(lambda: _found(api, account)))
        with pytest.raises(StatusError, match=r"422 Invalid: Pod \"x\" is invalid: spec.containers: Required value"):
            api.call("POST", "/api/v1/namespaces/kept/pods", {"metadata": {"name": "x"}})
        with pytest.raises(StatusError, match="403 Forbidden"):
            kubelet.call("GET", "/api/v1/namespaces/kept/secrets")
        token = plane.token(ADMIN)
    plane.keep(tmp_path / "copy")
    with ControlPlane(programs, tmp_path / "copy") as plane, plane.api() as api:
        assert plane.token(ADMIN) == token
        assert _found(api, account)


@pytest.mark.slow
@pytest.mark.parametrize("failures", [2, 3])
def test_a_server_that_ends_while_it_starts(programs: Programs, tmp_path: Path, failures: int) -> None:
    """It is started again, at most twice; then its last words are the error."""
    frail, count = tmp_path / "frail", tmp_path / "count"
    frail.write_text(
        f"#!/bin/sh\necho >>{count}\n"
        f'[ $(wc -l <{count}) -gt {failures} ] && exec {programs.hyperkube} "$@"\necho the hook timed out; exit 1\n'
    )
    frail.chmod(0o755)
    plane = ControlPlane(programs._replace(hyperkube=frail), tmp_path / "plane")
    if failures < 3:
        with plane, plane.api() as api:
            assert api.ask("GET", "/readyz").code == 200
        return
    with pytest.raises(ControlPlaneError, match="kube-apiserver is not ready: the hook timed out"):
        plane.start()
    plane.stop()
    assert len(count.read_text()) == failures


def _found(api: Api, path: str) -> bool:
    try:
        return bool(api.call("GET", path)["metadata"]["uid"])
    except StatusError as error:
        if error.code != 404:
            raise
        return False
