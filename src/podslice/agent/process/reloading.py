"""Reloads the configuration file at SIGHUP and applies its policy (docs/agent.md).

Everything is checked before anything changes: the file, the policy, and whether the node would start with it and its
present pods. An error leaves all as it was and is reported. Pods keep what they have, even where the new policy would
not have given it.
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
    """Reloads the policy of one agent that started with `loaded`, which then has the policy that counts.

    `read` reads the file again and raises `InputError`; None where there is no file. `say` gets one line for each
    change.
    """

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
        self.loaded = loaded
        self._read = read
        self._say = say
        self._run_in_thread = run_in_thread
        self._due = asyncio.Event()

    def request(self) -> None:
        """Request a reload; called at SIGHUP."""
        self._due.set()

    async def run(self) -> None:
        """Reload after each signal, for ever; signals that come meanwhile count as one."""
        while True:
            await self._due.wait()
            self._due.clear()
            await self.reload()

    async def reload(self) -> None:
        """Reload once."""
        try:
            loaded = self.loaded if self._read is None else await self._run_in_thread(self._read)
            changes = [
                f"{one.path}: {one.before or 'unset'} -> {one.after or 'unset'}"
                for one in policy_differences(self.loaded.policy, loaded.policy)
            ]
            if changes:
                self._owner.change_policy(loaded.policy)
        except PodsliceError as error:
            self._owner.reporter.trouble("policy", f"the policy stays as it was: {error}")
            return
        for text in self._texts(loaded, changes):
            self._say(text)
        self.loaded = msgspec.structs.replace(self.loaded, policy=loaded.policy)

    def _texts(self, loaded: LoadedSettings, changes: list[str]) -> Iterator[str]:
        yield f"the policy has changed: {'; '.join(changes)}" if changes else "the policy is as it was"
        old, new = self.loaded.agent, loaded.agent
        names = [
            field.encode_name
            for field in msgspec.structs.fields(old)
            if field.name != "policy" and getattr(old, field.name) != getattr(new, field.name)
        ]
        if names:
            yield f"changed in the file too, and counts when the agent starts again: {', '.join(names)}"
