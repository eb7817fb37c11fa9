"""SIGHUP: the agent reads its policy again."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from podslice.agent.process.reloading import Reloading
from podslice.agent.runtime.ttrpc import RPCError
from podslice.agent.settings import LoadedSettings, settings_from_dict
from podslice.config.policy import PodslicePolicy
from podslice.machine.delta import without_cpus
from tests import clock
from tests.agent.elastic import Elastic, at_once
from tests.agent.test_daemon import POLICY, settings
from tests.agent.test_process import Listening, start
from tests.agent.test_resizing import app, in_elastic
from tests.clock import PATIENCE, until
from tests.service.fake_runtime import FakeRuntime

NOTHING: dict[str, Any] = {}
ELASTIC = {"resize": {"exclusive": True}}


class Editor:
    """The file, and what is said when it is read again."""

    def __init__(self, world: Elastic, spec: dict[str, Any]) -> None:
        self.said: list[str] = []
        self.fields: dict[str, Any] = {}
        self.folder = world.folder
        self.spec = spec
        self.reloading = Reloading(world.owner, self.read(), self.read, say=self.said.append, run_in_thread=at_once)

    def read(self) -> LoadedSettings:
        return settings_from_dict(settings(self.folder, policy={**POLICY, "spec": self.spec}, **self.fields))

    async def write(self, spec: dict[str, Any], **fields: Any) -> None:
        self.spec, self.fields = spec, fields
        await self.reloading.reload()


def test_new_rules_count_from_then_on(tmp_path: Path) -> None:
    """A resize that was infeasible is granted after the signal; no container moves by it, and the changes are
    reported by field."""

    async def test(world: Elastic) -> None:
        editor = Editor(world, ELASTIC)
        await world.run(app("a", "4"))
        world.source.add(app("a", "2"))
        with pytest.raises(RPCError, match="promised at admission"):
            await world.update("a-app", 2000)
        before = world.state_files()
        await editor.write({"resize": {"exclusive": True, "belowBaseline": "allow"}, "hotplug": {}})
        assert world.state_files().keys() == before.keys()
        assert world.cpus("a-app") == "2-5"
        await world.update("a-app", 2000)
        await world.settle()
        assert world.cpus("a-app") == "2-3"
        (said,) = editor.said
        assert said.startswith("the policy has changed: spec.resize.belowBaseline: infeasible -> allow; spec.hotplug: ")
        world.agrees()

    in_elastic(tmp_path, test)


def test_what_was_not_carried_out_is(tmp_path: Path) -> None:
    """A resize of exclusive CPUs that the kubelet made while the policy did not let the agent follow is carried out
    when it does, without another call of the runtime."""

    async def test(world: Elastic) -> None:
        editor = Editor(world, NOTHING)
        await world.run(app("a", "4"))
        world.source.add(app("a", "6"))
        await world.update("a-app", 6000)
        assert world.cpus("a-app") == "2-5"
        await editor.write(ELASTIC)
        task = asyncio.ensure_future(world.resizing.run())
        await clock.until(lambda: world.cpus("a-app") == "2-7")
        task.cancel()
        await world.settle()
        world.agrees()

    in_elastic(tmp_path, test, policy=PodslicePolicy())


@pytest.mark.parametrize(
    ("spec", "fields", "trouble"),
    [
        ({"resize": {"exclusive": "yes"}}, {}, "the policy stays as it was: policy.spec.resize.exclusive: "),
        ({"resice": {}}, {}, "the policy stays as it was: policy.spec.resice: unknown field"),
        (NOTHING, {"reconcileSeconds": 0}, "the policy stays as it was: reconcileSeconds: "),
    ],
)
def test_what_is_wrong_changes_nothing(
    tmp_path: Path, spec: dict[str, Any], fields: dict[str, Any], trouble: str
) -> None:
    """A file with anything wrong in it leaves policy, ledgers and files as they were, and is a trouble `policy`."""

    async def test(world: Elastic) -> None:
        editor = Editor(world, ELASTIC)
        await world.run(app("a", "4"))
        rules, files = world.node.rules, world.state_files()
        await editor.write(spec, **fields)
        ((what, message),) = world.notes.troubles
        assert what == "policy"
        assert message.startswith(trouble)
        assert (world.node.rules, world.state_files(), editor.said) == (rules, files, [])
        await editor.write(ELASTIC)
        assert editor.said == ["the policy is as it was"]

    in_elastic(tmp_path, test)


def test_other_settings_wait_for_a_restart(tmp_path: Path) -> None:
    """Other changes in the file are named, with the note that they need a restart."""

    async def test(world: Elastic) -> None:
        editor = Editor(world, ELASTIC)
        await editor.write(ELASTIC, reconcileSeconds=7, strangers="report")
        assert editor.said == [
            "the policy is as it was",
            "changed in the file too, and counts when the agent starts again: reconcileSeconds, strangers",
        ]

    in_elastic(tmp_path, test)


@pytest.mark.slow
def test_slow_plugins_are_still_left_out(tmp_path: Path) -> None:
    """Calls of plugins are timed by the same stopwatch after another policy and another machine, which make them
    anew: a plugin that was too slow stays left out until the agent starts again."""
    keep_whole = {"plugins": {"profile": [{"name": "keep-whole"}]}}

    async def test(world: Elastic) -> None:
        editor = Editor(world, NOTHING)
        await editor.write({**keep_whole, "hotplug": {}})
        first = world.node.rules.cpu.plugins
        assert first is not None
        assert first.watch is not None
        await editor.write({"plugins": {"profile": [{"name": "keep-whole"}, {"name": "pack-caches"}]}, "hotplug": {}})
        second = world.node.rules.cpu.plugins
        world.owner.change_machine(without_cpus(world.owner.machine, 1 << 31))
        third = world.node.rules.cpu.plugins
        assert second is not None
        assert third is not None
        assert len({id(first), id(second), id(third)}) == 3
        assert first.watch is second.watch is third.watch

    in_elastic(tmp_path, test)


@pytest.mark.process
def test_the_signal(tmp_path: Path) -> None:
    """SIGHUP to the process: a bad policy file is named in the log and the agent goes on; the mended one counts, and
    says on the log what changed."""

    def log() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (tmp_path / "log").read_text().splitlines() if line.startswith("{")]

    async def main() -> None:
        policy = tmp_path / "policy.yaml"
        policy.write_text(json.dumps({**POLICY, "spec": NOTHING}))
        fake = FakeRuntime(request_timeout=PATIENCE)
        agent = start(tmp_path, policy=str(policy), podResourcesSocket="", metricsAddress="")
        try:
            async with Listening(tmp_path / "nri.sock", fake):
                await asyncio.wait_for(fake.attached.wait(), PATIENCE)
                policy.write_text(json.dumps({**POLICY, "spec": {"resize": {"exclusive": 3}}}))
                agent.send_signal(signal.SIGHUP)
                await until(lambda: any(line.get("what") == "policy" for line in log()))
                policy.write_text(json.dumps({**POLICY, "spec": ELASTIC}))
                agent.send_signal(signal.SIGHUP)
                await until(lambda: any(line["event"] == "policy" for line in log()))
            agent.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(agent.wait, PATIENCE) == 0
        finally:
            agent.kill()
            agent.wait()
        (bad,) = [line["message"] for line in log() if line.get("what") == "policy"]
        assert bad.startswith(f"the policy stays as it was: {policy}: spec.resize.exclusive: ")
        (good,) = [line["text"] for line in log() if line["event"] == "policy"]
        assert good == "the policy has changed: spec.resize.exclusive: false -> true"

    asyncio.run(main())
