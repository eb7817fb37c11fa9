"""A tree that is on Python's path without being installed has no version, and that ends nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from podslice import version
from podslice.agent.process.daemon import Agent
from podslice.cli.main import cli
from podslice.cluster.running import ClusterOptions, known_versions
from podslice.version import UNPACKAGED
from tests.agent.fake_apiserver import FakeApiServer
from tests.agent.test_daemon import with_agent
from tests.service.fake_runtime import FakeRuntime


@pytest.fixture(autouse=True)
def unpackaged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "is_installed", lambda: False)


@pytest.mark.slow
def test_a_followed_agent_starts(tmp_path: Path) -> None:
    """With `cluster` and a NodeResourceTopology to write, the agent serves and tells a service what it is."""

    async def test(agent: Agent, fake: FakeRuntime, api: FakeApiServer) -> None:
        await fake.run_pod("a")
        assert agent.owner.admitting.journal.version == UNPACKAGED
        assert agent.owner.admitting.journal.journal is not None

    with_agent(tmp_path, test, cluster={"checkpoint": True}, nodeResourceTopology="own")


def test_two_of_them_are_not_one_version() -> None:
    """A service without a version predicts no agent without one, unless it is told to."""
    assert known_versions(ClusterOptions()) == frozenset()
    assert known_versions(ClusterOptions(versions=(UNPACKAGED,))) == {UNPACKAGED}


@pytest.mark.parametrize("command", [("version",), ("lint", "-o", "sarif", "examples/small.yaml")], ids="{0[0]}".format)
def test_commands_answer(command: tuple[str, ...]) -> None:
    """Whatever prints a version prints that there is none."""
    ran = CliRunner().invoke(cli, command)
    assert (ran.exit_code, UNPACKAGED in ran.output) == (0, True)
