"""SIGHUP: the configuration file is read again, and its policy counts from then on (docs/agent.md).

All of it is checked before anything changes: the file, the policy, and whether the node would start with it on what it
holds. What is not good leaves everything as it was, and people hear of it. What is held stays held, also what the new
policy would not have given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import msgspec

from podslice.advise.explain.fixes.resize_fixes import policy_differences
from podslice.agent.moves.memory_moves import RunInThread
from podslice.agent.owner import Owner
from podslice.agent.settings import LoadedSettings
from podslice.values.errors import PodsliceError


class Reloading:
    """Of one agent that began with `loaded`. `read` reads the file again and raises `InputError`, None where there is
    no file; `say` hears what changed."""

    def __init__(
        self,
        owner: Owner,
        loaded: LoadedSettings,
        read: Callable[[], LoadedSettings] | None,
        *,
        say: Callable[[str], None],
        run_in_thread: RunInThread = asyncio.to_thread,
    ) -> None:
        self._owner = owner
        self._loaded = loaded
        self._read = read
        self._say = say
        self._run_in_thread = run_in_thread
        self._due = asyncio.Event()

    def hear(self) -> None:
        """The signal has come."""
        self._due.set()

    async def run(self) -> None:
        """Read whenever the signal comes, for ever; signals that come meanwhile are one."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self.reload()

    async def reload(self) -> None:
        """Once."""
        try:
            loaded = self._loaded if self._read is None else await self._run_in_thread(self._read)
            changes = [
                f"{one.path}: {one.before or 'unset'} -> {one.after or 'unset'}"
                for one in policy_differences(self._loaded.policy, loaded.policy)
            ]
            if changes:
                self._owner.change_policy(loaded.policy)
        except PodsliceError as error:
            self._owner.reporter.trouble("policy", f"the policy stays as it was: {error}")
            return
        for text in self._texts(loaded, changes):
            self._say(text)
        self._loaded = msgspec.structs.replace(self._loaded, policy=loaded.policy)

    def _texts(self, loaded: LoadedSettings, changes: list[str]) -> Iterator[str]:
        yield f"the policy has changed: {'; '.join(changes)}" if changes else "the policy is as it was"
        old, new = self._loaded.agent, loaded.agent
        names = [
            field.encode_name
            for field in msgspec.structs.fields(old)
            if field.name != "policy" and getattr(old, field.name) != getattr(new, field.name)
        ]
        if names:
            yield f"changed in the file too, and counts when the agent starts again: {', '.join(names)}"
