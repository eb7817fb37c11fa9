"""Chooses the release whose kubelet the agent decides as: that of the kubelet beside it, which its Node object states.

A kubelet that became one of another release was restarted for it, and so is the agent: it ends as at any stop, and
begins anew on its state files. What is not known is said in `problem`, which the status and the log repeat.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
from msgspec.structs import replace

from podslice.agent.api_server.apiserver import ApiServer
from podslice.agent.settings import AgentSettings, LoadedSettings, check_resources
from podslice.host.state.statefile import write_atomically
from podslice.node.checkpoints.names import KUBELET_VERSION_FILE
from podslice.service.answers import ApiError
from podslice.service.pacing import BackOff
from podslice.values.errors import InputError, PodsliceError
from podslice.values.quirks import PROFILE_RELEASES, profile_of_release
from podslice.values.releases.release import Release
from podslice.values.releases.table import nearest_release, parse_release

LOOK_SECONDS = 300.0
"""Interval between two reads of the Node object."""
START_SECONDS = 5.0
"""Longest wait for the API server at a start; then the version of the last run counts."""
_LONGEST_VERSION = 64


class DecidingRelease(msgspec.Struct, frozen=True):
    """The profile that decides, the version of the kubelet beside the agent (empty: not known), and why the profile may
    not be that kubelet's; empty where it is."""

    profile: str
    version: str = ""
    problem: str = ""

    @property
    def release(self) -> Release:
        """The release that decides."""
        return PROFILE_RELEASES[self.profile]


def choose_release(settings: AgentSettings, version: str) -> DecidingRelease:
    """Return the release to decide by beside a kubelet of this version, empty where it is not known."""
    version = version[:_LONGEST_VERSION]
    if not settings.follows_kubelet:
        return DecidingRelease(settings.fixed_profile, version, _difference(settings, version))
    if not version:
        return DecidingRelease(settings.profile, "", _unknown(settings))
    try:
        return DecidingRelease(profile_of_release(settings.profile, version), version)
    except InputError as error:
        release = nearest_release(version) or PROFILE_RELEASES[settings.profile]
        problem = f"the kubelet is {version}: {error.problem}; decides as Kubernetes {release}, the nearest that is"
        return DecidingRelease(profile_of_release(settings.profile, str(release)), version, problem)


def _unknown(settings: AgentSettings) -> str:
    release = PROFILE_RELEASES[settings.profile]
    why = "is not known yet" if settings.sources.api_server else "is not known without sources.apiServer"
    return f"the version of the kubelet {why}; decides as Kubernetes {release}"


def _difference(settings: AgentSettings, version: str) -> str:
    """Return that the kubelet is of another release than the settings name; empty where it is not."""
    release = PROFILE_RELEASES[settings.fixed_profile]
    try:
        same = not version or parse_release(version) is release
    except InputError:
        same = False
    return "" if same else f"the kubelet is {version}; decides as Kubernetes {release}, as the settings say"


def with_release(loaded: LoadedSettings, found: DecidingRelease) -> LoadedSettings:
    """Return the settings with the profile that decides. Raises `InputError` where a kubelet of that release does not
    start with `resources`."""
    check_resources(loaded.config, found.release)
    return replace(loaded, agent=replace(loaded.agent, profile=found.profile))


async def find_release(
    settings: AgentSettings, api: ApiServer | None, node: str, *, seconds: float = START_SECONDS
) -> DecidingRelease:
    """Return the release to start with: by the Node object, or by the one of the last run where the API server does not
    answer."""
    version = ""
    if api is not None:
        with contextlib.suppress(ApiError, TimeoutError):
            async with asyncio.timeout(seconds):
                version = await api.kubelet_version(node)
    return choose_release(settings, version or _remembered(Path(settings.state_directory)))


def _remembered(directory: Path) -> str:
    try:
        return (directory / KUBELET_VERSION_FILE).read_text(encoding="ascii")[:_LONGEST_VERSION].strip()
    except (OSError, ValueError):
        return ""


class KubeletRelease:
    """Follows the version of the kubelet beside one agent. `now` is what decides. `restarts`: the agent ends to begin
    anew, as the kubelet of another release.

    `stop`: ends the agent; None for one that cannot begin anew. `trouble`: gets each
    problem. `remember`: where the version is kept; None for nowhere. `starts`: raises `PodsliceError` for settings with
    which the node does not start.
    """

    def __init__(
        self,
        loaded: LoadedSettings,
        now: DecidingRelease,
        api: ApiServer | None,
        node: str,
        *,
        trouble: Callable[[str, str], None],
        stop: Callable[[], None] | None,
        remember: Path | None,
        starts: Callable[[LoadedSettings], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.now, self.restarts = now, False
        self._loaded, self._api, self._node = loaded, api, node
        self._trouble, self._stop, self._sleep = trouble, stop, sleep
        self._remember, self._starts = remember, starts

    def version(self) -> str:
        """Return the version of the kubelet, empty while it is not known."""
        return self.now.version

    def is_kubelets(self) -> bool:
        """Whether the release that decides is that of the kubelet."""
        return not self.now.problem

    async def run(self, back_off: BackOff | None = None) -> None:
        """Look at intervals, for ever; sooner again after a failure."""
        back_off = back_off or BackOff(1.0, LOOK_SECONDS)
        while True:
            if await self.look():
                back_off.reset()
                await self._sleep(LOOK_SECONDS)
            else:
                await self._sleep(back_off.next())

    async def look(self) -> bool:
        """Read the Node object once, and restart the agent where its kubelet is of another release now. Return False
        where the API server does not answer."""
        failure = ""
        try:
            version = "" if self._api is None else await self._api.kubelet_version(self._node)
        except ApiError as error:
            version, failure = "", f" ({error})"
        if version:
            self._take(version)
        if self.now.problem:
            self._trouble("kubeletRelease", self.now.problem + failure)
        return not failure

    def _take(self, version: str) -> None:
        settings = self._loaded.agent
        found = choose_release(settings, version)
        self._keep(version)
        if found.profile == self.now.profile:
            self.now = found
            return
        try:
            self._starts(with_release(self._loaded, found))
        except PodsliceError as error:
            problem = f"the kubelet is {version}, with which resources do not start: {error}"
            self.now = DecidingRelease(self.now.profile, version, f"{problem}; decides as before")
            return
        text = f"the kubelet is {version}; decided as Kubernetes {self.now.release}"
        if self._stop is None:
            self.now = DecidingRelease(self.now.profile, version, f"{text} until the runtime starts the agent again")
            return
        self._trouble("kubeletRelease", f"{text}, starts again as {found.release}")
        self.restarts = True
        self._stop()

    def _keep(self, version: str) -> None:
        if self._remember is None or version == _remembered(self._remember):
            return
        try:
            write_atomically(self._remember / KUBELET_VERSION_FILE, version.encode("ascii", "replace"))
        except OSError as error:
            self._trouble("kubeletRelease", f"the kubelet's version cannot be kept: {error.strerror}")
