"""The release by which the agent decides: that of the kubelet beside it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from podslice.agent.kubelet.kubelet_release import (
    DecidingRelease,
    KubeletRelease,
    choose_release,
    find_release,
    with_release,
)
from podslice.agent.process.daemon import Agent
from podslice.agent.process.host_access import HostAccess
from podslice.agent.runtime.nri import Launch
from podslice.agent.settings import LoadedSettings, settings_from_dict
from podslice.agent.wiring import wire
from podslice.config.policy import Hotplug, PodslicePolicy
from podslice.host.kernel.cgroup2 import CgroupTree
from podslice.machine.readers.synthetic import from_synthetic
from podslice.node.checkpoints.names import KUBELET_VERSION_FILE
from podslice.replica.events import WholeState
from podslice.replica.nodestate import build_status
from podslice.status.agent_socket import read_status
from podslice.values.errors import InputError
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.fakenode import FakeTree
from tests.agent.helpers import MACHINE
from tests.agent.test_daemon import settings, with_agent
from tests.clock import PATIENCE, until
from tests.service.fake_runtime import FakeRuntime

AS, SAID, NEAREST = "decides as Kubernetes", "as the settings say", "the nearest that is"
NOT_KNOWN = f"Kubernetes {{}} is not known here; {AS}"
WITHOUT = "is not known without sources.apiServer"
API: dict[str, Any] = {"sources": {"apiServer": True}}


def load(folder: Path, **fields: Any) -> LoadedSettings:
    return settings_from_dict(settings(folder, **{**API, **fields}))


@pytest.mark.parametrize(
    ("fields", "version", "profile", "problem"),
    [
        ({}, "v1.34.9", "podslice-1.34", ""),
        ({}, "v1.36.2", "podslice", ""),
        ({}, "v1.31.11-gke.1", "podslice-1.31", ""),
        ({}, "v1.38.1", "podslice-1.37", f"the kubelet is v1.38.1: {NOT_KNOWN.format(1.38)} 1.37, {NEAREST}"),
        ({}, "v1.20.3", "podslice-1.31", f"the kubelet is v1.20.3: {NOT_KNOWN.format('1.20')} 1.31, {NEAREST}"),
        ({}, "dev", "podslice", f"the kubelet is dev: 'dev' is not a Kubernetes version; {AS} 1.36, {NEAREST}"),
        ({}, "", "podslice", "the version of the kubelet is not known yet; decides as Kubernetes 1.36"),
        ({"sources": {}}, "", "podslice", f"the version of the kubelet {WITHOUT}; {AS} 1.36"),
        ({"kubernetes": "1.34"}, "v1.34.9", "podslice-1.34", ""),
        ({"kubernetes": 1.34}, "", "podslice-1.34", ""),
        ({"kubernetes": "1.34"}, "v1.35.1", "podslice-1.34", f"the kubelet is v1.35.1; {AS} 1.34, {SAID}"),
        ({"profile": "kubelet-1.35"}, "v1.35.1", "kubelet-1.35", ""),
        ({"profile": "kubelet-1.36"}, "v1.38.1", "kubelet-1.36", f"the kubelet is v1.38.1; {AS} 1.36, {SAID}"),
        ({"profile": "kubelet-1.36", "kubernetes": "auto"}, "v1.33.2", "kubelet-1.33", ""),
    ],
)  # fmt: skip
def test_the_release_of_a_version(
    tmp_path: Path, fields: dict[str, Any], version: str, profile: str, problem: str
) -> None:
    """The kubelet's release decides unless the settings name one; what is not known is said."""
    assert choose_release(load(tmp_path, **fields).agent, version) == DecidingRelease(profile, version, problem)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"kubernetes": "1.99"},
         "kubernetes: Kubernetes 1.99 is not known here (known are 1.31 to 1.37; nearest is 1.37)"),
        ({"kubernetes": "latest"}, "kubernetes: 'latest' is not a Kubernetes version (write for example 1.34)"),
        ({"profile": "kubelet-1.36", "kubernetes": "1.34"},
         "kubernetes: profile kubelet-1.36 is of Kubernetes 1.36, not 1.34 (use kubelet-1.34)"),
    ],
)  # fmt: skip
def test_settings_that_name_no_release(tmp_path: Path, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(InputError) as error:
        load(tmp_path, **fields)
    assert str(error.value) == text


def test_resources_that_another_release_takes(tmp_path: Path) -> None:
    """`resources` need only suit the kubelet beside the agent; without an API server the release is known at once."""
    enforced = {"enforceNodeAllocatable": ["pods", "kube-reserved-compressible"], "kubeReservedCgroup": "/kube"}
    old = {"kubeReserved": {"cpu": "1"}, "cgroupRoot": "/", "cgroupsPerQOS": True, **enforced}
    loaded = load(tmp_path, resources=old)
    with_release(loaded, choose_release(loaded.agent, "v1.33.1"))
    with pytest.raises(InputError, match="kube-reserved-compressible"):
        with_release(loaded, choose_release(loaded.agent, "v1.31.1"))
    with pytest.raises(InputError, match="kube-reserved-compressible"):
        load(tmp_path, resources=old, kubernetes="1.31")


def test_the_version_of_the_last_run(tmp_path: Path) -> None:
    """Without API server the agent starts as the kubelet that it knew last."""

    async def run() -> None:
        loaded, api = load(tmp_path), FakeApiServer()
        api.kubelet = "v1.34.2"
        followed = follow(loaded, choose_release(loaded.agent, ""), api)
        await followed.look()
        assert (tmp_path / "state" / KUBELET_VERSION_FILE).read_text() == "v1.34.2"
        api.down = True
        assert await find_release(loaded.agent, api, "n1") == DecidingRelease("podslice-1.34", "v1.34.2")

    (tmp_path / "state").mkdir()
    asyncio.run(run())


def follow(loaded: LoadedSettings, now: DecidingRelease, api: FakeApiServer, **other: Any) -> KubeletRelease:
    """Follow with what does nothing."""
    facts: dict[str, Any] = {
        "trouble": lambda what, text: None, "stop": lambda: None, "starts": lambda loaded: None,
        "remember": Path(loaded.agent.state_directory), **other,
    }  # fmt: skip
    return KubeletRelease(loaded, now, api, "n1", **facts)


def test_an_upgrade_of_the_kubelet(tmp_path: Path) -> None:
    """Another patch changes nothing, another release restarts the agent, one that does not start changes nothing."""

    async def run() -> None:
        loaded, api, said, stops = load(tmp_path), FakeApiServer(), list[str](), list[bool]()
        api.kubelet = "v1.34.2"
        now = choose_release(loaded.agent, "v1.34.2")

        def refuse(settings: LoadedSettings) -> None:
            raise InputError("gate X is unknown")

        def say(what: str, text: str) -> None:
            said.append(text)

        followed = follow(loaded, now, api, trouble=say, stop=lambda: stops.append(True))
        api.kubelet = "v1.34.9"
        await followed.look()
        assert (followed.now, followed.restarts, said) == (DecidingRelease("podslice-1.34", "v1.34.9"), False, [])
        api.kubelet = "v1.35.1"
        await followed.look()
        assert followed.restarts
        assert stops == [True]
        assert said == ["the kubelet is v1.35.1; decided as Kubernetes 1.34, starts again as 1.35"]
        unable = follow(loaded, now, api, trouble=say, starts=refuse)
        await unable.look()
        assert not unable.restarts
        assert unable.now.profile == "podslice-1.34"
        assert "with which resources do not start: gate X is unknown; decides as before" in unable.now.problem
        started = follow(loaded, now, api, trouble=say, stop=None)
        await started.look()
        assert (started.restarts, started.now.profile) == (False, "podslice-1.34")
        assert "until the runtime starts the agent again" in started.now.problem

    (tmp_path / "state").mkdir()
    asyncio.run(run())


def test_documents_name_the_release(tmp_path: Path) -> None:
    """Status, live node, journal and NodeState of a whole agent; a kubelet of another release is a condition."""

    async def look(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await until(lambda: agent.release.version() == "v1.38.0" and agent.owner.node is not None)
        status = await asyncio.to_thread(read_status, str(tmp_path / "agent.sock"))
        assert (status.kubernetes, status.kubelet) == ("1.37", "v1.38.0")
        assert status.conditions[0].startswith(f"kubeletRelease: the kubelet is v1.38.0; {AS} 1.37, {SAID}")
        assert b'podslice_kubernetes_release{release="1.37"} 0.0' in agent.endpoints.page.text()
        live = agent.endpoints.live.tell()
        assert (live["kubernetes"], live["kubelet"], live["profile"]) == ("1.37", "v1.38.0", "podslice-1.37")
        journal = agent.owner.admitting.journal.journal
        assert journal is not None
        state = journal.whole_state()
        assert isinstance(state.event, WholeState)
        assert state.event.setup.profile == "podslice-1.37"
        assert build_status(state).kubernetes == "1.37"

    api = FakeApiServer()
    api.kubelet = "v1.38.0"
    with_agent(tmp_path, look, api=api, kubernetes="1.37", cluster={})


def test_an_agent_stops_to_begin_anew(tmp_path: Path) -> None:
    """A whole agent that started as the kubelet of another release."""

    async def run() -> None:
        fake, api = FakeRuntime(), FakeApiServer()
        api.kubelet = "v1.34.9"
        FakeTree(tmp_path / "cgroup")
        host, launch = HostAccess(tree=CgroupTree(tmp_path / "cgroup")), Launch("podslice", "90", fake.connect, False)
        agent = wire(load(tmp_path), from_synthetic(MACHINE), host, api=api, launch=launch)
        await asyncio.wait_for(agent.run(), PATIENCE)
        assert agent.release.restarts

    asyncio.run(run())


def test_the_file_is_compared_with_what_was_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A profile that the kubelet's version chose is no change of the file; what was read counts at the next start."""

    async def run() -> None:
        loaded, fake = load(tmp_path), FakeRuntime()
        FakeTree(tmp_path / "cgroup")
        host, launch = HostAccess(tree=CgroupTree(tmp_path / "cgroup")), Launch("podslice", "90", fake.connect, False)
        changed = replace(loaded, policy=PodslicePolicy(hotplug=Hotplug()))
        agent = wire(
            loaded, from_synthetic(MACHINE), host, api=FakeApiServer(), launch=launch, read=lambda: changed,
            release=choose_release(loaded.agent, "v1.34.1"),
        )  # fmt: skip
        await agent.reloading.reload()
        assert agent.reloading.loaded.policy == changed.policy
        assert agent.owner.admitting.profile == "podslice-1.34"

    asyncio.run(run())
    said = capsys.readouterr().out
    assert "the policy has changed" in said
    assert "changed in the file too" not in said
